"""What only the user of a process reads."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from syncpoint.base.runtime.os_files import OsFiles
from syncpoint.base.runtime.private_files import private_folder, write_private
from syncpoint.node.locks import FolderLocks


@pytest.fixture(autouse=True)
def open_umask() -> Iterator[None]:
    old = os.umask(0)
    yield
    os.umask(old)


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_a_folder_and_what_lies_in_it_is_tightened(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("")
    outside.chmod(0o644)
    data = tmp_path / "data"
    (data / "logs").mkdir(parents=True)
    (data / "logs" / "segment").write_text("x")
    (data / "program").write_text("x")
    (data / "program").chmod(0o755)
    (data / "link").symlink_to(outside)
    private_folder(data)
    assert (mode(data), mode(data / "logs"), mode(data / "logs" / "segment")) == (0o700, 0o700, 0o600)
    assert mode(data / "program") == 0o700
    assert mode(outside) == 0o644


def test_new_files_are_private_whatever_the_umask(tmp_path: Path) -> None:
    files = OsFiles()
    files.mkdir(str(tmp_path / "disk"))
    files.mkdir(str(tmp_path / "disk" / "logs"))
    assert mode(tmp_path / "disk") == mode(tmp_path / "disk" / "logs") == 0o700
    locks = FolderLocks()
    locks.take(tmp_path / "locked")
    locks.release()
    assert mode(tmp_path / "locked") == 0o700
    assert mode(tmp_path / "locked" / "lock") == 0o600
    (tmp_path / "secret").write_text("old")
    write_private(tmp_path / "secret", b"new")
    assert mode(tmp_path / "secret") == 0o600
    assert (tmp_path / "secret").read_bytes() == b"new"


def test_a_process_that_keeps_private_shares_only_what_it_says(tmp_path: Path) -> None:
    program = (
        "import os, sys; from pathlib import Path; os.umask(0o022)\n"
        "from syncpoint.base.runtime.private_files import keep_private, share\n"
        "keep_private(); keep_private(); os.chdir(sys.argv[1])\n"
        "Path('kept').write_text(''); Path('shared').write_text(''); share(Path('shared'))"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=True)
    assert mode(tmp_path / "kept") == 0o600
    assert mode(tmp_path / "shared") == 0o644

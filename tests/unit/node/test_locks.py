"""One server per data folder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from syncpoint.base.model.errors import Code, FailedPrecondition
from syncpoint.node.locks import FolderLocks

CHILD = """
import sys
from pathlib import Path
from syncpoint.base.model.errors import SyncpointError
from syncpoint.node.locks import FolderLocks
try:
    FolderLocks().take(Path(sys.argv[1]))
except SyncpointError as error:
    print(error.code.name, error.message)
    sys.exit(3)
print("taken", flush=True)
sys.stdin.read()
"""


def child(folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", CHILD, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def test_a_second_process_is_refused_and_reported_who_has_the_folder(tmp_path: Path) -> None:
    locks = FolderLocks()
    locks.take(tmp_path / "deep" / "data")
    with child(tmp_path / "deep" / "data") as second:
        said, _ = second.communicate(timeout=20)
    assert second.returncode == 3
    assert said.startswith("FAILED_PRECONDITION")
    assert f"{tmp_path}/deep/data is in use by another server (process {os.getpid()})" in said
    locks.release()
    with child(tmp_path / "deep" / "data") as second:
        said, _ = second.communicate(timeout=20)
    assert second.returncode == 0


def test_a_dead_owner_holds_nothing(tmp_path: Path) -> None:
    with child(tmp_path) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "taken\n"
        locks = FolderLocks()
        with pytest.raises(FailedPrecondition, match=f"process {owner.pid}\\)") as caught:
            locks.take(tmp_path)
        assert caught.value.code is Code.FAILED_PRECONDITION
        owner.kill()
        owner.wait()
    locks.take(tmp_path)
    assert (tmp_path / "lock").read_text() == f"{os.getpid()}\n"
    locks.release()


def test_an_unreadable_holder_is_unknown(tmp_path: Path) -> None:
    locks = FolderLocks()
    locks.take(tmp_path)
    (tmp_path / "lock").write_text("")
    with pytest.raises(FailedPrecondition, match=r"process unknown\)"):
        FolderLocks().take(tmp_path)
    locks.release()


def test_folders_do_not_know_each_other(tmp_path: Path) -> None:
    locks = FolderLocks()
    for name in "abc":
        locks.take(tmp_path / name)
    locks.release()
    for name in "abc":
        locks.take(tmp_path / name)
    locks.release()

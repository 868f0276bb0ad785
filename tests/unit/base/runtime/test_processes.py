"""Standing still: nothing of a paused process goes on once it is said to be paused."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from syncpoint.base.runtime.processes import stand_still, stands_still

BUSY = """
import hashlib, mmap, sys, threading
with open(sys.argv[1], "r+b") as file:
    shared = mmap.mmap(file.fileno(), 4096)

def count(at):
    number, block = 0, bytes(1 << 16)
    while True:
        hashlib.sha256(block)  # others run in the meantime
        number += 1
        shared[at : at + 8] = number.to_bytes(8, "little")

threads = [threading.Thread(target=count, args=(64 * at,), daemon=True) for at in range(8)]
for thread in threads:
    thread.start()
print("ready", flush=True)
threads[0].join()
"""


@pytest.fixture
def busy(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """A process of eight threads that count, and the file they count in."""
    path = tmp_path / "counts"
    path.write_bytes(bytes(4096))
    process = subprocess.Popen([sys.executable, "-c", BUSY, str(path)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    yield process, path
    process.kill()
    process.wait()
    process.stdout.close()


def test_no_thread_goes_on_once_a_process_stands_still(busy: tuple[subprocess.Popen[bytes], Path]) -> None:
    process, path = busy
    for _ in range(20):
        stand_still(process.pid)
        before = path.read_bytes()
        assert stands_still(process.pid)
        for _ in range(50):
            os.sched_yield()
        assert path.read_bytes() == before
        process.send_signal(signal.SIGCONT)
        while path.read_bytes() == before:
            os.sched_yield()


def test_a_process_that_is_not_there_is_reported() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    with pytest.raises(ProcessLookupError):
        stand_still(process.pid)
    with pytest.raises(ProcessLookupError):
        stands_still(process.pid)

"""Disks that fail below a server process: errors, full disks, slow and torn writes, rotten reads."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.build_shim import Faults, compiler
from tests.kit.disk_process import DiskProcess, hang_up, remote
from tests.unit.log.diskserver.test_store_on_remote_disks import Chain

pytestmark = pytest.mark.skipif(compiler() is None, reason="no C compiler")


@pytest.fixture
def faults(tmp_path: Path) -> Faults:
    return Faults(tmp_path)


@pytest.fixture
def three(tmp_path: Path, faults: Faults) -> Iterator[list[DiskProcess]]:
    processes = [DiskProcess(tmp_path / f"s{number}", 1, env=faults.env) for number in range(3)]
    yield processes
    hang_up()
    for process in processes:
        process.end()


def good(chain: Chain) -> bool:
    return chain.live == 3


def until_met(chain: Chain, faults: Faults, where: str) -> int:
    """Commit until a disk has met its fault: the other two are enough, so it may be late. How many commits it took."""
    more = 0
    while not faults.hits(where) and more < 500:
        chain.commit(1)
        chain.turn(0.05)
        more += 1
    assert faults.hits(where) > 0
    return more


@pytest.mark.parametrize(
    "rule",
    [
        "write /s1/ 5 1 eio",
        "sync /s1/d0/chains/0000000007/logs/ 9 1 eio",
        "write /s1/ 3 -1 enospc",
        "sync /s1/ 0 -1 erofs",
    ],
)
def test_one_disk_fails_and_the_others_go_on(three: list[DiskProcess], faults: Faults, rule: str) -> None:
    chain = Chain(three)
    chain.commit(50)
    faults.set(rule)
    for _ in range(20):
        chain.commit(10)
    more = until_met(chain, faults, "/s1/")
    assert faults.hits() == faults.hits("/s1/")
    chain.until(lambda: chain.failed == {"/c1/d0"})
    faults.set()
    chain.commit(10)
    chain.until(lambda: good(chain))
    chain.reopen()
    assert chain.persisted == 260 + more
    chain.store.close()


def test_an_error_that_a_sync_gave_is_not_forgotten(three: list[DiskProcess], faults: Faults) -> None:
    files = remote(three)
    files.mkdir("/c1/d0")
    handle = files.open("/c1/d0/a", create=True)
    files.pwritev(handle, [b"data"], 0)
    faults.set("sync /s1/ 0 1 eio")
    with pytest.raises(OSError, match="Input/output"):
        files.fdatasync(handle)
    with pytest.raises(OSError, match="earlier"):
        files.fdatasync(handle)
    files.close(handle)


def test_a_slow_disk_is_waited_for(three: list[DiskProcess], faults: Faults) -> None:
    files = remote(three)  # gives up after three seconds of silence
    files.mkdir("/c1/d0")
    handle = files.open("/c1/d0/a", create=True)
    files.pwritev(handle, [b"data"], 0)
    faults.set("sync /s1/ 0 1 slow 4500")
    begun = time.monotonic()
    files.fdatasync(handle)
    assert faults.hits() == 1
    assert time.monotonic() - begun >= 4.5, "it was said before the disk had it"
    files.close(handle)


def test_a_slow_disk_does_not_slow_the_others(three: list[DiskProcess], faults: Faults) -> None:
    chain = Chain(three)
    chain.commit(10)
    faults.set("sync /s1/ 0 -1 slow 1500")
    begun = time.monotonic()
    for _ in range(10):
        chain.commit(1)
    assert time.monotonic() - begun < 15
    more = until_met(chain, faults, "/s1/")
    faults.set()
    chain.until(lambda: good(chain))
    chain.reopen()
    assert chain.persisted == 20 + more
    chain.store.close()


@pytest.mark.parametrize("action", ["torn", "die", "short"])
def test_a_server_that_dies_in_the_middle_of_a_write(three: list[DiskProcess], faults: Faults, action: str) -> None:
    chain = Chain(three)
    chain.commit(100)
    faults.set(f"write /s2/d0/chains/0000000007/logs/ 2 1 {action}")
    chain.commit(1)
    chain.commit(1)
    chain.commit(100)
    more = until_met(chain, faults, "/s2/")
    assert faults.hits("/s2/") == 1
    faults.set()
    if action != "short":
        three[2].end()
        three[2].start()
    chain.commit(100)
    chain.until(lambda: good(chain))
    chain.reopen()
    assert chain.persisted == 302 + more
    chain.store.close()


def test_a_disk_that_lies_about_syncing_is_one_of_three(three: list[DiskProcess], faults: Faults) -> None:
    chain = Chain(three)
    faults.set("sync /s0/ 0 -1 lie")
    chain.commit(100)
    more = until_met(chain, faults, "/s0/")
    three[0].end()
    segments = sorted(three[0].folders["d0"].glob("chains/*/logs/*/*.seg"))
    with segments[-1].open("r+b") as file:
        file.truncate(4096 * 3)  # what was never synced did not survive
    three[0].start()
    faults.set()
    chain.store.close(3.0)
    chain.files.close_all()
    chain.open()
    chain.resume()
    assert chain.persisted == 100 + more
    chain.store.close()


def test_a_rotten_read_is_served_by_another_disk(three: list[DiskProcess], faults: Faults) -> None:
    chain = Chain(three, cache_bytes=0)
    chain.commit(100)
    hits = 0
    for spoiled in ("/s0/", "/s1/", "/s2/"):  # one of them is the one that is read first
        faults.set(f"read {spoiled} 0 -1 flip 4000")
        assert chain.read_all() == 100
        hits += faults.hits(spoiled)
    assert hits > 0
    faults.set()
    chain.store.close()

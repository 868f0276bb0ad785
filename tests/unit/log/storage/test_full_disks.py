"""A file system that others filled to the last byte: acknowledging works and frees room, and so does a restart."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from syncpoint.base.model.errors import ResourceExhausted, Unavailable
from syncpoint.base.runtime.file_content import overwrite_file, read_file
from syncpoint.base.runtime.os_files import OsFiles
from syncpoint.base.runtime.random import SeededRandom
from syncpoint.log.storage.record import EntryKind
from syncpoint.testing.rigs.memory_files import FailOn, MemoryFiles
from tests.kit.disks import Harness
from tests.unit.log.storage.test_real_files import Loop

pytestmark = pytest.mark.shows("full-disks")


def fill(harness: Harness) -> None:
    """Not one byte is left."""
    for root in harness.roots:
        harness.files.capacity[root] = sum(len(harness.files.content(path)) for path in harness.files.paths(root))
        assert harness.files.free_bytes(root) == 0


def acknowledge_all(harness: Harness) -> None:
    for _ in range(20):
        harness.note(300)
        harness.commit()
    harness.take_checkpoint()
    harness.commit()
    harness.dead.update(harness.acked)
    for _ in range(60):
        harness.store.collect(harness.live)
        harness.clock.advance(1.1)
        harness.quiesce(30)


@pytest.mark.parametrize("spares", [True, False], ids=["spares", "filled before there were spares"])
@pytest.mark.parametrize("disks", [1, 3])
def test_acknowledging_everything_frees_a_full_disk(disks: int, spares: bool) -> None:
    harness = Harness.opened(1, disks, pool_segments=2 if spares else 0)
    for _ in range(150):
        harness.publish()
        if spares:
            harness.clock.advance(1.1)
        harness.commit()
    segments = len(list(harness.store.catalog))
    assert segments > 2
    fill(harness)
    acknowledge_all(harness)
    assert not harness.failures
    assert harness.states == ["ok"] * disks
    assert len(list(harness.store.catalog)) < segments
    assert all(harness.files.free_bytes(root) > 0 for root in harness.roots)
    harness.kill()
    harness.open()
    harness.judge()


@pytest.mark.parametrize("end", ["kill", "close", "power cut"])
@pytest.mark.parametrize("disks", [1, 3])
def test_a_full_disk_opens_again_and_is_freed_then(disks: int, end: str) -> None:
    harness = Harness.opened(1, disks, pool_segments=0)
    for _ in range(150):
        harness.persist()
    fill(harness)
    if end == "close":
        harness.stop()
    elif end == "kill":
        harness.kill()
    else:
        harness.power_cut()
    harness.open()
    harness.judge()
    harness.accept_recovered()
    acknowledge_all(harness)
    assert not harness.failures
    assert all(harness.files.free_bytes(root) > 0 for root in harness.roots)
    harness.kill()
    harness.open()
    harness.judge()


def test_spares_that_no_longer_fit_do_not_cost_the_disk() -> None:
    harness = Harness.opened(1, pool_segments=4, pool_segments_max=4)
    harness.persist()
    harness.files.faults.append(FailOn("/d0/pool", errno.ENOSPC, ("pwritev",)))  # somebody else was faster
    for _ in range(10):
        harness.clock.advance(1.1)
        harness.quiesce(5)
    assert harness.store.status().disks[0].state == "ok"


@pytest.mark.parametrize("cut", range(8))
def test_marks_written_over_are_old_or_new_after_a_power_cut(cut: int) -> None:
    class Cut(Exception):
        pass

    for seed in range(10):
        files = MemoryFiles()
        files.mkdir("/d")
        for content in (b"one", b"two"):
            overwrite_file(files, "/d/marks", content, 1024)
        left = cut

        def fault(operation: str, path: str) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise Cut

        files.faults.append(fault)
        done = True
        try:
            overwrite_file(files, "/d/marks", b"three", 1024)
        except Cut:
            done = False
        files.power_cut(SeededRandom(seed))
        found = (read_file(files, "/d/marks") or b"").rstrip()
        assert found == b"three" if done else found in (b"two", b"three")
        overwrite_file(files, "/d/marks", b"four", 1024)
        assert (read_file(files, "/d/marks") or b"").rstrip() == b"four"


def test_writing_over_asks_for_no_room() -> None:
    files = MemoryFiles()
    files.mkdir("/d")
    overwrite_file(files, "/d/marks", b"one", 1024)
    files.capacity["/d"] = 0
    for number in range(5):
        overwrite_file(files, "/d/marks", b"%d" % number, 1024)
        assert (read_file(files, "/d/marks") or b"").rstrip() == b"%d" % number


@pytest.fixture
def tmpfs(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "small"
    folder.mkdir()
    if os.geteuid() != 0:
        pytest.skip("mounting a tmpfs needs root")
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", folder], capture_output=True, check=False)
    if done.returncode:
        pytest.skip(f"no tmpfs can be mounted: {done.stderr.decode().strip()}")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


def fill_up(folder: Path) -> None:
    handle = os.open(folder / "others", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    size = 1 << 20
    while size:
        try:
            os.write(handle, bytes(size))
        except OSError:
            size //= 2
    os.close(handle)


@pytest.mark.parametrize("restarts", [0, 1, 4])
def test_a_real_file_system_without_one_free_byte(tmpfs: Path, restarts: int) -> None:
    disk = tmpfs / "d"
    loop = Loop([disk], pool_segments=0, pool_segments_max=0)
    source = loop.store.log_counter << 24
    for number in range(100):
        loop.store.append(EntryKind.MESSAGES, os.urandom(60_000), source=source, first_offset=number, count=1)
    loop.commit()
    fill_up(tmpfs)
    assert OsFiles().free_bytes(str(tmpfs)) == 0
    for _ in range(restarts):
        loop.store.close()
        fill_up(tmpfs)
        loop = Loop([disk], pool_segments=0, pool_segments_max=0)
        loop.store.append(EntryKind.LEDGER, b"acknowledged")
        loop.commit()
    segments = len(list(loop.store.catalog))
    for number in range(50):
        loop.store.append(EntryKind.LEDGER, b"acknowledged %d" % number)
        loop.commit()
    checkpoint = loop.store.checkpoint(iter([b"all of it"]))
    while not checkpoint.step(100):
        pass
    loop.commit()

    def freed() -> bool:
        loop.store.collect(lambda source, first, count, time_ns: False)
        return OsFiles().free_bytes(str(tmpfs)) > 1 << 20

    loop.until(freed)
    assert loop.store.failure is None
    assert len(list(loop.store.catalog)) < segments
    loop.store.close()


def test_the_end_of_a_log_that_only_a_full_disk_has_is_read_from_it() -> None:
    harness = Harness.opened(1, 3, pool_segments=0)
    harness.fill(5)
    harness.commit()
    keys = [harness.publish() for _ in range(5)]
    harness.store.flush()
    harness.run("syncpoint-write-2")  # the others never got it, and nobody was notified of it
    harness.kill()
    harness.files.faults.append(FailOn("/d2/logs", errno.ENOSPC, ("pwritev",)))
    harness.open()
    harness.judge()
    assert set(keys) <= harness.stored.keys()


def spend(harness: Harness) -> None:
    """Acknowledge until the log that is written takes nothing more."""
    for _ in range(2_000):
        if harness.failures:
            return
        try:
            harness.note(2_000)
        except Unavailable:
            return
        harness.commit()
    raise AssertionError("there is no end to it")


@pytest.mark.parametrize("spent", [True, False], ids=["all is spent", "owners end at once"])
@pytest.mark.parametrize("end", ["kill", "close", "power cut"])
@pytest.mark.parametrize("disks", [1, 3])
def test_owners_one_after_the_other_open_a_full_disk_and_the_last_one_frees_it(
    disks: int, end: str, spent: bool
) -> None:
    """None of them comes to delete anything, and others take whatever room there is again."""
    harness = Harness.opened(1, disks, segment_bytes=64 * 1024, pool_segments=2)
    for _ in range(300):
        harness.publish()
        harness.clock.advance(1.1)
        harness.commit()
    fill(harness)
    for takeover in range(4):
        for _ in range(5):
            harness.note()
        harness.commit()
        if spent:
            spend(harness)
        fill(harness)
        if end == "close" and takeover:
            harness.stop()
        elif end == "power cut":
            harness.power_cut()
        else:
            harness.kill()
        harness.open()
        harness.judge()
        harness.accept_recovered()
    segments = len(list(harness.store.catalog))
    fill(harness)
    harness.acked_facts = set(sorted(harness.acked_facts)[:5])  # what they come to is small
    acknowledge_all(harness)
    assert not harness.failures
    assert len(list(harness.store.catalog)) < segments
    assert all(harness.files.free_bytes(root) > 0 for root in harness.roots)
    for _ in range(3):  # what they have taken is there again
        fill(harness)
        harness.kill()
        harness.open()
        harness.judge()
        harness.accept_recovered()


def test_folders_of_logs_take_what_was_kept_for_them_block_by_block() -> None:
    harness = Harness.opened(1)
    slack = "/d0/pool/slack.keep"
    made: set[str] = set()
    left = len(harness.files.content(slack))

    def fault(operation: str, path: str) -> None:
        nonlocal left
        if operation == "mkdir" and path.startswith("/d0/logs/") and path not in made:
            size = len(harness.files.content(slack))
            if size == left:
                raise OSError(errno.ENOSPC, "no space left", path)
            assert left - size <= 4096, "others would take the rest"
            left = size
            made.add(path)

    for _ in range(5):
        harness.note()
        harness.commit()
        harness.kill()
        harness.files.faults.append(fault)
        harness.files.capacity["/d0"] = 0  # nor can it be made up for
        harness.open()
        harness.judge()
        harness.accept_recovered()
        harness.files.capacity.clear()
    assert len(made) == 5


def test_full_disks_refuse_messages_and_take_acknowledgements() -> None:
    harness = Harness(1, bytes_max=1_500_000, segment_bytes=128 * 1024, reserve_bytes=600_000)
    store = harness.open()
    harness.clock.advance(2)
    harness.quiesce()
    published = 0
    while not store.status().full:
        harness.publish(0, 2, 3_000)
        published += 1
        harness.commit()
        harness.clock.advance(0.2)
        harness.quiesce(2)
    assert published > 100
    with pytest.raises(ResourceExhausted, match="reserved"):
        store.admit(3_000)
    assert not store.status().too_few
    for _ in range(200):
        harness.note(300)
        harness.commit()
    assert not harness.failures
    harness.take_checkpoint()
    harness.commit()
    harness.dead.update(harness.acked)
    for _ in range(40):
        store.collect(harness.live)
        harness.clock.advance(1.1)
        harness.quiesce()
    store.admit(3_000)
    assert not store.status().full

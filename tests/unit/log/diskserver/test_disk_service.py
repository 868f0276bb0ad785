"""The disk service on files in memory: folders, channels, paths, deletion, restarts of process and machine."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from syncpoint.base.runtime.files import DiskFenced, FolderExchanged
from syncpoint.base.runtime.os_files import OsFiles
from syncpoint.log.diskserver.disk_service import Busy, DiskService, ServedChannel
from syncpoint.log.diskserver.fencing import FENCING_FILE, ChainFolders, FencingRecord, FencingToken, decode_record
from syncpoint.log.diskserver.protocol import (
    AGAIN,
    CREATE,
    REOPEN,
    WRITE,
    ChangeKind,
    DiskOp,
    FileChange,
    Hello,
    Reply,
    Request,
    Status,
)
from syncpoint.testing.rigs.memory_files import MemoryFiles

HELLO = Hello("d", 7, 1, 100, "sync", 1, 1)
FOLDER = "/disk/chains/0000000007"


class Harness:
    def __init__(self) -> None:
        self.files = MemoryFiles()
        self.files.mkdir("/disk")
        self.life = 0
        self.boot = "first"
        self.restart()

    def restart(self) -> None:
        self.life += 1
        self.service = DiskService({"d": "/disk"}, self.files, self.boot, self.life)
        self.service.start()
        self.seq = 0

    def hello(self, **more: object) -> ServedChannel:
        return self.service.hello(HELLO._replace(**more))  # type: ignore[arg-type]

    def run(self, channel: ServedChannel, op: DiskOp, attempt: int = 1, **more: object) -> Reply:
        self.seq += 1
        request = Request(op, epoch=channel.token.epoch, seq=self.seq)
        return self.service.run(channel, attempt, request._replace(**more))  # type: ignore[arg-type]

    def write(self, channel: ServedChannel, path: str, data: bytes) -> Reply:
        opened = self.run(channel, DiskOp.OPEN, handle=1, path=path, flags=CREATE | WRITE)
        assert opened.status == Status.OK, opened
        return self.run(channel, DiskOp.FDATASYNC, handle=1, changes=[FileChange(ChangeKind.WRITE, 0, len(data), data)])

    def exists(self, path: str) -> bool:
        try:
            self.files.stat(path)
        except FileNotFoundError:
            return False
        return True


def test_a_higher_token_ends_the_lower_one() -> None:
    harness = Harness()
    old = harness.hello()
    assert harness.write(old, "a", b"old").status == Status.OK
    new = harness.hello(epoch=2)
    refused = harness.run(old, DiskOp.FDATASYNC, handle=1, changes=[FileChange(ChangeKind.WRITE, 0, 3, b"bad")])
    assert refused.status == Status.FENCED
    assert b"epoch 2" in bytes(refused.payload)
    harness.run(new, DiskOp.OPEN, handle=1, path="a")
    assert harness.run(new, DiskOp.PREAD, handle=1, a=10).payload == b"old"
    with pytest.raises(DiskFenced):
        harness.hello(attempt=2)


def test_who_is_replaced_while_it_waits_to_leave_leaves_its_successor_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = Harness()
    old = harness.hello()
    successors = []

    def wait_for(predicate: Callable[[], bool], timeout: float) -> bool:
        monkeypatch.undo()
        new = harness.hello(epoch=2)
        assert harness.write(new, "a", b"new").status == Status.OK
        successors.append(new)
        return predicate()

    monkeypatch.setattr(old.chain.changed, "wait_for", wait_for)
    assert harness.run(old, DiskOp.LEAVE, a=1).status == Status.FENCED
    (new,) = successors
    assert not old.chain.record.clean
    assert harness.run(new, DiskOp.PREAD, handle=1, a=10).payload == b"new"


def test_a_lookup_under_a_lower_token_is_refused_too() -> None:
    harness = Harness()
    old = harness.hello()
    harness.hello(epoch=2)
    assert harness.run(old, DiskOp.STAT, path="").status == Status.FENCED


@pytest.mark.parametrize("cut", [False, True])
def test_a_token_outlives_the_process_and_the_power(cut: bool) -> None:
    harness = Harness()
    harness.hello(epoch=5)
    if cut:
        harness.files.power_cut(_NoChance())
    harness.restart()
    with pytest.raises(DiskFenced):
        harness.hello(epoch=4)
    with pytest.raises(DiskFenced):
        harness.hello(epoch=5, session=99)
    harness.hello(epoch=5)
    harness.hello(epoch=6, session=1)


class _NoChance:
    """Loses everything that may be lost."""

    def token(self, size: int) -> bytes:
        return bytes(size)

    def randrange(self, start: int, stop: int) -> int:
        return start

    def random(self) -> float:
        return 0.0


def test_a_later_session_of_the_same_epoch_ends_the_earlier_one() -> None:
    harness = Harness()
    first = harness.hello()
    harness.hello(session=101)
    assert harness.run(first, DiskOp.MKDIR, path="x").status == Status.FENCED


def test_a_request_of_another_epoch_than_its_connection_is_refused() -> None:
    harness = Harness()
    channel = harness.hello(epoch=2)
    assert harness.run(channel, DiskOp.MKDIR, path="x", epoch=1).status == Status.FENCED


def test_a_command_sent_again_is_answered_and_not_done_again() -> None:
    harness = Harness()
    channel = harness.hello()
    harness.write(channel, "a", b"1")
    request = Request(DiskOp.RENAME, path="a", other="b", epoch=1, seq=50)
    assert harness.service.run(channel, 1, request).status == Status.OK
    assert harness.hello(attempt=2) is channel
    assert harness.service.run(channel, 2, request).status == Status.OK
    assert harness.service.run(channel, 2, request._replace(seq=51)).status == Status.ERROR


def test_only_the_newest_connection_of_a_channel_counts() -> None:
    harness = Harness()
    channel = harness.hello()
    harness.hello(attempt=3)
    harness.hello(attempt=2)  # came late
    assert harness.run(channel, DiskOp.MKDIR, attempt=2, path="x").status == Status.STALE
    assert harness.run(channel, DiskOp.MKDIR, attempt=3, path="x").status == Status.OK


def test_after_a_restart_what_was_done_is_no_error() -> None:
    harness = Harness()
    channel = harness.hello()
    harness.write(channel, "a", b"1")
    harness.run(channel, DiskOp.RENAME, path="a", other="b")
    harness.run(channel, DiskOp.MKDIR, path="f")
    harness.run(channel, DiskOp.RMDIR, path="f")
    harness.restart()
    channel = harness.hello()
    assert harness.run(channel, DiskOp.RENAME, path="a", other="b").status == Status.ERROR
    assert harness.run(channel, DiskOp.RENAME, path="a", other="b", flags=AGAIN).status == Status.OK
    assert harness.run(channel, DiskOp.RENAME, path="x", other="y", flags=AGAIN).status == Status.ERROR
    assert harness.run(channel, DiskOp.RMDIR, path="f", flags=AGAIN).status == Status.OK
    assert harness.run(channel, DiskOp.UNLINK, path="a", flags=AGAIN).status == Status.OK
    assert harness.run(channel, DiskOp.UNLINK, path="a").status == Status.ERROR


def test_a_file_is_opened_again_only_if_it_is_the_same() -> None:
    harness = Harness()
    channel = harness.hello()
    opened = harness.run(channel, DiskOp.OPEN, handle=1, path="a", flags=CREATE | WRITE)
    file = f"{opened.b}:{opened.c}"
    harness.restart()
    channel = harness.hello()
    more = {"handle": 1, "path": "a", "other": file, "flags": REOPEN | WRITE}
    assert (
        harness.run(channel, DiskOp.FDATASYNC, changes=[FileChange(ChangeKind.ZERO, 0, 5)], **more).status == Status.OK
    )
    harness.files.unlink(f"{FOLDER}/a")
    harness.restart()
    channel = harness.hello()
    assert harness.run(channel, DiskOp.FDATASYNC, **more).status == Status.ERROR
    harness.write(channel, "a", b"another")
    harness.restart()
    channel = harness.hello()
    assert harness.run(channel, DiskOp.FDATASYNC, **more).status == Status.ERROR


@pytest.mark.parametrize(
    "path", ["..", "../x", "a/../../x", "/etc", "a//b", ".", FENCING_FILE, FENCING_FILE + ".tmp", "a\0"]
)
def test_no_path_leads_out_of_the_folder(path: str) -> None:
    harness = Harness()
    channel = harness.hello()
    for op in (DiskOp.STAT, DiskOp.UNLINK, DiskOp.LISTDIR, DiskOp.MKDIR, DiskOp.RMDIR, DiskOp.SYNC_DIR):
        assert harness.run(channel, op, path=path).errno == 13
    assert harness.run(channel, DiskOp.OPEN, handle=1, path=path, flags=CREATE | WRITE).errno == 13
    harness.write(channel, "good", b"")
    assert harness.run(channel, DiskOp.RENAME, path="good", other=path).errno == 13


def test_the_token_is_not_shown() -> None:
    harness = Harness()
    channel = harness.hello()
    harness.write(channel, "a", b"")
    assert harness.run(channel, DiskOp.LISTDIR, path="").payload == b"a"


def test_changes_are_done_in_order() -> None:
    harness = Harness()
    channel = harness.hello()
    harness.run(channel, DiskOp.OPEN, handle=1, path="a", flags=CREATE | WRITE)
    changes = [
        FileChange(ChangeKind.ALLOCATE, 0, 20),
        FileChange(ChangeKind.WRITE, 0, 6, b"abcdef"),
        FileChange(ChangeKind.ZERO, 2, 2),
        FileChange(ChangeKind.WRITE, 3, 1, b"x"),
        FileChange(ChangeKind.TRUNCATE, 0, 5),
    ]
    for _ in range(2):
        assert harness.run(channel, DiskOp.CHANGE, handle=1, changes=changes).status == Status.OK
        assert harness.run(channel, DiskOp.PREAD, handle=1, a=100).payload == b"ab\0xe"
        assert harness.run(channel, DiskOp.FSTAT, handle=1).a == 5


def test_a_failed_sync_is_reported() -> None:
    harness = Harness()
    channel = harness.hello()
    harness.write(channel, "a", b"1")

    def fault(operation: str, path: str) -> None:
        if operation == "fdatasync":
            raise OSError(5, "broken")

    harness.files.faults.append(fault)
    assert harness.run(channel, DiskOp.FDATASYNC, handle=1)[:2] == (Status.ERROR, 5)


@pytest.mark.parametrize("durability", ["async", "memory", "sync"])
@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("restarted", [True, False])
def test_a_disk_that_lost_unsynced_entries_counts_as_unknown(durability: str, clean: bool, restarted: bool) -> None:
    harness = Harness()
    channel = harness.hello(durability=durability)
    harness.write(channel, "disk.json", b"me")
    if clean:
        harness.run(channel, DiskOp.LEAVE, a=1)
    if restarted:
        harness.boot = "second"
    harness.restart()
    harness.hello(epoch=2, durability=durability)
    assert harness.exists(f"{FOLDER}/disk.json") == (durability == "sync" or clean or not restarted)


def test_a_polite_stop_syncs_and_is_clean() -> None:
    harness = Harness()
    channel = harness.hello(durability="async")
    harness.write(channel, "disk.json", b"me")
    harness.run(channel, DiskOp.CHANGE, handle=1, changes=[FileChange(ChangeKind.WRITE, 0, 2, b"ME")])
    harness.service.stop()
    harness.boot = "second"
    harness.files.power_cut(_NoChance())
    harness.restart()
    channel = harness.hello(durability="async")  # the same owner goes on
    harness.run(channel, DiskOp.OPEN, handle=1, path="disk.json")
    assert harness.run(channel, DiskOp.PREAD, handle=1, a=2).payload == b"ME"
    harness.boot = "third"  # and now it was not clean
    harness.restart()
    harness.hello(durability="async")
    assert not harness.exists(f"{FOLDER}/disk.json")


def test_what_is_written_since_the_machine_has_started_is_believed() -> None:
    """Also where the owner is the one from before: what was lost then is not lost again when the server restarts."""
    harness = Harness()
    harness.write(harness.hello(durability="async"), "disk.json", b"me")
    harness.boot = "second"
    harness.restart()
    channel = harness.hello(durability="async")
    assert not harness.exists(f"{FOLDER}/disk.json")
    harness.write(channel, "disk.json", b"me")
    harness.restart()
    harness.hello(durability="async")
    assert harness.exists(f"{FOLDER}/disk.json")


def test_a_damaged_token_makes_the_disk_unknown() -> None:
    harness = Harness()
    channel = harness.hello(epoch=5)
    harness.write(channel, "disk.json", b"me")
    handle = harness.files.open(f"{FOLDER}/{FENCING_FILE}")
    harness.files.pwritev(handle, [b"x"], 20)
    harness.restart()
    harness.hello(epoch=1)
    assert not harness.exists(f"{FOLDER}/disk.json")


def test_a_wiped_folder_gets_its_token_again() -> None:
    harness = Harness()
    channel = harness.hello(epoch=5)
    harness.files.wipe("/disk")
    assert harness.run(channel, DiskOp.MKDIR, path="").status == Status.OK
    harness.restart()
    with pytest.raises(DiskFenced):
        harness.hello(epoch=4)


def test_a_chain_is_deleted_only_with_a_tombstone() -> None:
    harness = Harness()
    channel = harness.hello()
    harness.run(channel, DiskOp.MKDIR, path="logs")
    harness.write(channel, "logs/a", b"1")
    assert harness.run(channel, DiskOp.DELETE).errno == 1
    assert harness.run(channel, DiskOp.TOMBSTONE).status == Status.OK
    assert harness.run(channel, DiskOp.DELETE).status == Status.OK
    assert not harness.exists(f"{FOLDER}/logs/a")
    with pytest.raises(DiskFenced):
        harness.hello(epoch=9)
    harness.restart()
    with pytest.raises(DiskFenced):
        harness.hello(epoch=9)


def test_a_deletion_cut_short_is_ended_at_the_next_start() -> None:
    harness = Harness()
    channel = harness.hello()
    harness.write(channel, "a", b"1")
    harness.run(channel, DiskOp.TOMBSTONE)
    harness.restart()
    assert not harness.exists(f"{FOLDER}/a")


def test_unknown_chains_are_set_aside_and_never_deleted(tmp_path: Path) -> None:
    service = DiskService({"d": str(tmp_path)}, OsFiles(), "first", 1)
    service.start()
    folders = ChainFolders(str(tmp_path), OsFiles(), "first")
    record = FencingRecord(FencingToken(1, 1), "sync", "first", clean=False)
    for chain in (1, 2, 3, 4):
        folders.store(chain, record)
    folders.tombstone(4)
    service.hello(HELLO._replace(chain=3))
    assert service.quarantine([1]) == {"d": [2]}
    assert service.quarantine([1]) == {"d": []}
    folders.store(2, record)
    assert service.quarantine([1, 3]) == {"d": [2]}
    assert sorted(path.name for path in (tmp_path / "quarantine").iterdir()) == ["0000000002-0", "0000000002-1"]
    assert folders.chains() == [1, 3, 4]
    assert folders.load(1) == record


def test_a_token_waits_for_the_command_under_way_and_then_closes_its_files() -> None:
    harness = Harness()
    channel = harness.hello()
    harness.write(channel, "a", b"1")
    reached, go_on = threading.Event(), threading.Event()

    def hang(operation: str, path: str) -> None:
        if operation == "fdatasync" and path.endswith("/a"):
            reached.set()
            go_on.wait(20)

    harness.files.faults.append(hang)
    thread = threading.Thread(target=lambda: harness.run(channel, DiskOp.FDATASYNC, handle=1))
    thread.start()
    reached.wait(20)
    with pytest.raises(Busy):
        harness.hello(epoch=2)
    with pytest.raises(DiskFenced):
        harness.hello(attempt=2)  # fenced already, although the token is not answered for yet
    go_on.set()
    thread.join(20)
    harness.hello(epoch=2)
    assert harness.service.status()["disks"]["d"]["chains"][7] == {"epoch": 2, "open_files": 0, "channels": 1}


@pytest.mark.parametrize("emptied", [False, True], ids=["another folder", "the same folder, emptied"])
def test_a_required_disk_is_not_begun_anew(tmp_path: Path, emptied: bool) -> None:
    disk, away = tmp_path / "d", tmp_path / "away"
    service = DiskService({"d": str(disk)}, OsFiles(), "first", 1, required=True)
    service.start()
    channel = service.hello(HELLO)
    if emptied:
        away.mkdir()
        (disk / "chains").rename(away / "chains")
    else:
        disk.rename(away)
        disk.mkdir()
    made = service.run(channel, 1, Request(DiskOp.MKDIR, epoch=1, seq=1, path=""))
    assert (made.status, made.errno) == (Status.ERROR, errno.ESTALE)
    assert b"require_disks" in bytes(made.payload)
    for again in (HELLO._replace(session=101), HELLO._replace(chain=8)):
        with pytest.raises(FolderExchanged, match="require_disks"):
            service.hello(again)
    assert not list(disk.iterdir()), "nothing was written"
    if emptied:
        (away / "chains").rename(disk / "chains")
    else:
        disk.rmdir()
        away.rename(disk)  # mounted again
    service.hello(HELLO._replace(session=102))
    service.hello(HELLO._replace(chain=8))


def test_no_such_disk_or_chain() -> None:
    harness = Harness()
    with pytest.raises(FileNotFoundError):
        harness.hello(disk="other")
    with pytest.raises(ValueError, match="chain"):
        harness.hello(chain=-1)


def test_the_record_of_a_token() -> None:
    record = FencingRecord(FencingToken(3, 4), "async", "b", clean=True)
    assert decode_record(record.encode()) == record
    assert decode_record(record.encode().replace(b"async", b"memor")) is None
    assert decode_record(b"[]") is None

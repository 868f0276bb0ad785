"""The same bytes for several disks of a server: sent once, written everywhere, never mistaken for others."""

from __future__ import annotations

import socket
import threading

from hypothesis import given, settings
from hypothesis import strategies as st

from syncpoint.log.diskserver.disk_service import DiskService, ServedChannel
from syncpoint.log.diskserver.payload_cache import KEPT_MAX, SENT_MAX, SHARE_MIN, PayloadCache, SentPayloads
from syncpoint.log.diskserver.protocol import (
    CREATE,
    WRITE,
    ChangeKind,
    DiskOp,
    FileChange,
    Hello,
    Reply,
    Request,
    Status,
    encode_reply,
)
from syncpoint.log.diskserver.sockets import FrameReader, send_frame
from syncpoint.testing.rigs.memory_files import MemoryFiles

BIG = SHARE_MIN


def write(offset: int, data: bytes) -> FileChange:
    return FileChange(ChangeKind.WRITE, offset, len(data), data)


def big(filler: int) -> bytes:
    return bytes([filler]) * BIG


def sent_to(server: int, *roots: str) -> SentPayloads:
    sent = SentPayloads(1000)
    for root in roots:
        sent.found(server, root)
    return sent


def test_the_first_disk_brings_it_and_the_others_name_it() -> None:
    sent, data = sent_to(7, "a", "b", "c"), big(1)
    first = sent.name(7, [write(0, b"head"), write(4, data)])
    assert first == [write(0, b"head"), FileChange(ChangeKind.WRITE, 4, BIG, data, 1000, 2)]
    for _ in range(2):
        assert sent.name(7, [write(8, data)]) == [FileChange(ChangeKind.COPY, 8, BIG, b"", 1000)]
    assert sent.name(7, [write(8, data)])[0].name == 1001, "all have it: it is not remembered any longer"


def test_equal_bytes_that_are_not_the_same_object_travel_again() -> None:
    sent = sent_to(7, "a", "b")
    names = {sent.name(7, [write(0, bytes(bytearray(big(1))))])[0].name for _ in range(3)}
    assert len(names) == 3


def test_a_disk_alone_at_its_server_names_nothing() -> None:
    sent, changes = sent_to(7, "a"), [write(0, big(1))]
    assert sent.name(7, changes) == changes
    sent.found(8, "b")
    assert sent.name(7, changes) == changes
    assert sent.name(8, changes) == changes
    sent.found(7, "b")  # it moved
    assert sent.name(7, changes)[0].takers == 1
    sent.lost("b")
    assert sent.name(7, changes) == changes


def test_a_disk_far_behind_is_sent_everything_again() -> None:
    sent = sent_to(7, "a", "b")
    many = [bytes(bytearray(big(number % 256))) for number in range(SENT_MAX // BIG + 1)]
    for data in many:
        assert sent.name(7, [write(0, data)])[0].kind == ChangeKind.WRITE
    assert sent.name(7, [write(0, many[0])])[0].kind == ChangeKind.WRITE
    assert sent.name(7, [write(0, many[-1])])[0].kind == ChangeKind.COPY


def test_what_is_kept_is_bounded_and_forgotten() -> None:
    kept = PayloadCache(0.0)
    data = bytes(1 << 20)
    for name in range(KEPT_MAX // len(data) + 5):
        kept.keep(1, 1, [FileChange(ChangeKind.WRITE, 0, len(data), data, name, 2)])
    assert kept.bytes == KEPT_MAX
    assert kept.complete(1, 1, [FileChange(ChangeKind.COPY, 0, len(data), b"", 4)]) is None
    assert kept.complete(1, 1, [FileChange(ChangeKind.COPY, 9, len(data), b"", 5)]) == [write(9, data)]
    assert kept.complete(2, 1, [FileChange(ChangeKind.COPY, 9, len(data), b"", 5)]) is None, "of another chain"
    assert kept.complete(1, 2, [FileChange(ChangeKind.COPY, 9, len(data), b"", 5)]) is None, "under another epoch"
    kept.forget(1)
    assert kept.bytes == 0
    assert kept.complete(1, 1, [FileChange(ChangeKind.COPY, 9, len(data), b"", 5)]) is None


def test_who_comes_first_waits_for_bytes_on_their_way() -> None:
    kept = PayloadCache(60.0)
    found: list[object] = []
    waiting = threading.Thread(
        target=lambda: found.append(kept.complete(1, 1, [FileChange(ChangeKind.COPY, 3, 2, b"", 5)]))
    )
    waiting.start()
    kept.keep(1, 1, [FileChange(ChangeKind.WRITE, 0, 2, b"ab", 5, 1)])
    waiting.join(30)
    assert found == [[write(3, b"ab")]]
    assert kept.bytes == 0


class _Disks:
    """Three disks of one server, and a forwarder that sends to them by hand."""

    def __init__(self) -> None:
        self.files = MemoryFiles()
        self.service = DiskService({name: f"/{name}" for name in "abc"}, self.files, "boot", 7)
        self.service.start()
        self.channels = {name: self.hello(name, 1) for name in "abc"}
        self.seq = 0
        for name in "abc":
            assert self.run(name, DiskOp.OPEN, path="f", flags=CREATE | WRITE).status == Status.OK

    def hello(self, disk: str, session: int) -> ServedChannel:
        return self.service.hello(Hello(disk, 1, 1, session, "sync", 1, 1))

    def run(self, disk: str, op: DiskOp, **more: object) -> Reply:
        self.seq += 1
        request = Request(op, 1, epoch=1, seq=self.seq, **more)  # type: ignore[arg-type]
        return self.service.run(self.channels[disk], 1, request)

    def content(self, disk: str) -> bytes:
        return bytes(self.run(disk, DiskOp.PREAD, a=1 << 20).payload)


@settings(deadline=None)  # the machine may be busy
@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.integers(1, 4), st.booleans()),
        max_size=40,
    )
)
def test_whatever_is_lost_each_disk_has_what_was_written_to_it(steps: list[tuple[str, int, bool]]) -> None:
    """Disks take entries of one log at their own pace; now and then the server forgets what it kept."""
    disks, sent = _Disks(), sent_to(7, "a", "b", "c")
    log = [bytes([number]) * (BIG if number % 3 else 10) for number in range(1, 200)]
    at = dict.fromkeys("abc", 0)
    expected = dict.fromkeys("abc", b"")
    for disk, count, lost in steps:
        changes, offset = [], len(expected[disk])
        for data in log[at[disk] : at[disk] + count]:
            changes.append(write(offset, data))
            offset += len(data)
        named = sent.name(7, changes)
        if lost:
            disks.service._kept.forget(1)  # nothing of before is there
        reply = disks.run(disk, DiskOp.FDATASYNC, changes=named)
        if reply.status == Status.LACKING:
            assert disks.content(disk) == expected[disk], "nothing was done"
            reply = disks.run(disk, DiskOp.FDATASYNC, changes=changes)
        assert reply.status == Status.OK
        expected[disk] += b"".join(log[at[disk] : at[disk] + count])
        at[disk] += count
        assert disks.content(disk) == expected[disk]


def test_a_token_ends_what_was_kept_before_it() -> None:
    disks, sent, data = _Disks(), sent_to(7, "a", "b"), big(3)
    assert disks.run("a", DiskOp.FDATASYNC, changes=sent.name(7, [write(0, data)])).status == Status.OK
    disks.channels["b"] = disks.hello("b", 2)
    assert disks.run("b", DiskOp.OPEN, path="f", flags=WRITE).status == Status.OK
    named = sent.name(7, [write(0, data)])
    assert named[0].kind == ChangeKind.COPY
    assert disks.run("b", DiskOp.FDATASYNC, changes=named).status == Status.LACKING


def test_one_disk_that_fails_does_not_touch_the_others() -> None:
    disks, sent, data = _Disks(), sent_to(7, "a", "b", "c"), big(3)
    disks.service.hello(Hello("a", 1, 2, 1, "sync", 1, 1))  # another owner has disk a
    assert disks.run("a", DiskOp.FDATASYNC, changes=sent.name(7, [write(0, data)])).status == Status.FENCED
    for disk in "bc":
        changes = [write(0, data)]
        reply = disks.run(disk, DiskOp.FDATASYNC, changes=sent.name(7, changes))
        if reply.status == Status.LACKING:
            reply = disks.run(disk, DiskOp.FDATASYNC, changes=changes)
        assert reply.status == Status.OK
        assert disks.content(disk) == data


def test_a_name_with_another_size_is_not_taken() -> None:
    kept = PayloadCache(0.0)
    kept.keep(1, 1, [FileChange(ChangeKind.WRITE, 0, 2, b"ab", 5, 1)])
    assert kept.complete(1, 1, [FileChange(ChangeKind.COPY, 3, 1, b"", 5)]) is None
    twice = [FileChange(ChangeKind.COPY, 3, 2, b"", 5), FileChange(ChangeKind.COPY, 7, 2, b"", 5)]
    assert kept.complete(1, 1, twice) == [write(3, b"ab"), write(7, b"ab")]
    assert kept.bytes == 0


def test_a_buffer_is_left_to_its_users_only_when_they_use_most_of_it() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        reader = FrameReader(theirs)
        for size in (100 << 10, 10 << 10, 100 << 10):
            send_frame(ours, encode_reply(Reply(payload=bytes(size))))
            _, payload = reader.read()
            before = bytes(payload)
            assert reader.let_go(len(payload)) is (size > 64 << 10)
            send_frame(ours, encode_reply(Reply(payload=b"x" * 10)))
            reader.read()
            assert bytes(payload) == before or size < 64 << 10

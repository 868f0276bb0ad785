"""Calls served in batches: each ends as it does alone, whatever happens to it or to its connection."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from syncpoint.base.model.errors import Code, InvalidArgument, SyncpointError
from syncpoint.wire.transport import frames
from syncpoint.wire.transport.call_batches import BYTES_MAX, CallBatch
from syncpoint.wire.transport.calls import Call, Methods, Unary
from syncpoint.wire.transport.limits import TransportLimits
from tests.kit.examples import examples

OK = {":status": "200", "content-type": "application/grpc", "grpc-status": "0"}


class Service:
    """Echoes, in batches or not. The request decides: the call is refused, answered at once, or only by `answer`."""

    def __init__(self, *, batched: bool) -> None:
        self.batched = batched
        self.batches: list[list[bytes]] = []
        self.waiting: list[tuple[Any, bytes]] = []

    def methods(self) -> Methods:
        return {b"/t.T/Echo": Unary(self.echo, batch_handler=self.echo_batch if self.batched else None)}

    def echo(self, call: Call, request: bytes) -> None:
        if request.startswith(b"bad"):
            raise InvalidArgument("", request.decode())
        if request.startswith(b"late"):
            self.waiting.append((call, request))
        else:
            call.reply(request)

    def echo_batch(self, batch: CallBatch, at: int) -> int:
        if not at:
            self.batches.append(batch.requests)
        kind, stop = batch.requests[at][:3], at + 1
        if kind == b"bad":
            if len(batch.requests[at]) > 3:
                raise InvalidArgument("", "not this one")
            return 0
        while stop < len(batch.requests) and batch.requests[stop][:3] == kind:
            stop += 1
        waiting = batch.answering(at, batch.requests[at:stop])
        if kind == b"lat":
            self.waiting.append((waiting, b""))
        else:
            waiting.reply(b"")
        return stop - at

    def answer(self) -> None:
        waiting, self.waiting = self.waiting, []
        for call, request in waiting:
            call.reply(request)

    def fail(self) -> None:
        waiting, self.waiting = self.waiting, []
        for call, _ in waiting:
            call.fail(SyncpointError(Code.UNAVAILABLE, "no"))


def calls_at(harness: Any, peer: Any, messages: list[bytes], *extra: tuple[str, str]) -> tuple[int, bytes]:
    """The number of the first stream, and the bytes of calls that follow each other."""
    first, out = peer.next_sid, bytearray()
    for message in messages:
        out += frames.headers(peer.next_sid, peer.block(harness.ECHO, *extra), end=False, frame_bytes=16384)
        out += frames.frame(frames.DATA, frames.END_STREAM, peer.next_sid, harness.grpc(message))
        peer.next_sid += 2
    return first, bytes(out)


def warm(harness: Any, *extra: tuple[str, str], limits: TransportLimits | None = None) -> tuple[Service, Any]:
    """A service, and a peer whose header block is known."""
    service = Service(batched=True)
    peer = harness.Peer(service.methods(), limits)
    for _ in range(2):
        peer.answer(peer.call(b"warm", harness.ECHO, *extra))
    service.batches.clear()
    return service, peer


def answers(peer: Any, first: int, count: int) -> list[tuple[bytes, dict[str, str]]]:
    got = peer.read()
    return [peer.answer(sid, got) for sid in range(first, first + 2 * count, 2)]


def test_calls_that_come_together_are_served_together(harness: Any) -> None:
    service, peer = warm(harness, ("x-a", "1"))
    writes, calls = peer.socket.writes, peer.server.counters.calls
    first, data = calls_at(harness, peer, [b"a", b"", b"c"], ("x-a", "1"))
    peer.send(data)
    assert service.batches == [[b"a", b"", b"c"]]
    assert answers(peer, first, 3) == [(harness.grpc(b"a"), OK), (harness.grpc(b""), OK), (harness.grpc(b"c"), OK)]
    assert peer.socket.writes == writes + 1
    assert peer.server.counters.calls == calls + 3
    counts = peer.server.methods[b"/t.T/Echo"].counts
    assert (counts.begun, counts.codes[0], counts.open, counts.latency.count) == (5, 5, 0, 5)
    assert not peer.conn.batches
    assert not peer.conn.batched_calls


messages = st.sampled_from([b"a", b"late", b"bad", b"bad2", b"x" * 5000])
steps = st.lists(
    st.one_of(
        st.tuples(st.just("calls"), st.lists(messages, max_size=6)),
        st.tuples(st.just("reset"), st.integers(0, 12)),
        st.tuples(st.just("window"), st.integers(0, 12), st.integers(1, 70_000)),
        st.tuples(st.just("whole window"), st.integers(1, 70_000)),
        st.tuples(st.just("initial"), st.integers(0, 100_000)),
        st.tuples(st.just("data"), st.integers(0, 12)),
        st.tuples(st.just("answer")),
        st.tuples(st.just("fail")),
        st.tuples(st.just("full"), st.booleans()),
        st.tuples(st.just("drain")),
        st.tuples(st.just("wait"), st.sampled_from([0.5, 4.0])),
    ),
    max_size=14,
)


def outcome(harness: Any, plan: list, cuts: list[int], *, batched: bool) -> Any:
    """What each stream is answered, and what is counted, of a client that does `plan`."""
    service = Service(batched=batched)
    peer = harness.Peer(service.methods())
    extra = ("grpc-timeout", "5S")
    peer.call(b"warm", harness.ECHO, extra)
    peer.call(b"warm", harness.ECHO, extra)
    for step in plan:
        data = b""
        match step:
            case ("calls", messages):
                data = calls_at(harness, peer, messages, extra)[1]
            case ("reset", n) if 2 * n + 1 < peer.next_sid:
                data = frames.rst_stream(2 * n + 1, frames.ErrorCode.CANCEL)
            case ("window", n, more) if 2 * n + 1 < peer.next_sid:
                data = frames.window_update(2 * n + 1, more)
            case ("whole window", more):
                data = frames.window_update(0, more)
            case ("initial", size):
                data = frames.settings({frames.SettingId.INITIAL_WINDOW_SIZE: size})
            case ("data", n) if 2 * n + 1 < peer.next_sid:
                data = frames.frame(frames.DATA, 0, 2 * n + 1, b"more")
            case ("answer",):
                service.answer()
            case ("fail",):
                service.fail()
            case ("full", full):
                peer.socket.full = 100 if full else None
                if not full:
                    peer.socket.empty()
            case ("drain",):
                peer.conn.drain()
            case ("wait", seconds):
                peer.loop.advance(seconds)
            case _:
                pass
        edges = [0, *sorted(cut for cut in cuts if cut < len(data)), len(data)]
        for a, b in pairwise(edges):
            if a < b and not peer.conn.closed:
                peer.send(data[a:b])
    peer.socket.full = None
    peer.socket.empty()
    peer.send(frames.window_update(0, 1_000_000))
    service.answer()
    peer.loop.run()
    streams: dict[int, Any] = {}
    for frame in frames.parse(bytes(peer.socket.written)):
        if frame.sid:
            kept = streams.setdefault(frame.sid, [b"", []])
            if frame.kind == frames.DATA:
                kept[0] += frame.payload
            else:
                kept[1].append((frame.kind, frame.flags, frame.payload))
    counts = peer.server.methods[b"/t.T/Echo"].counts
    open_ = len(peer.conn.streams) + peer.conn.batched_calls
    return streams, counts.begun, counts.codes, open_, peer.error()


@settings(max_examples=examples(250), deadline=None)
@given(plan=steps, cuts=st.lists(st.integers(0, 12_000), max_size=5))
def test_each_call_ends_as_it_does_alone(harness: Any, plan: list, cuts: list[int]) -> None:
    assert outcome(harness, plan, cuts, batched=True) == outcome(harness, plan, cuts, batched=False)


def test_a_reset_call_is_alone_and_the_others_are_answered(harness: Any) -> None:
    service, peer = warm(harness)
    first, data = calls_at(harness, peer, [b"late1", b"late2", b"late3"])
    peer.send(data + frames.rst_stream(first + 2, frames.ErrorCode.CANCEL))
    assert len(peer.conn.streams) == 0
    assert peer.conn.batched_calls == 2
    service.answer()
    assert answers(peer, first, 3) == [(harness.grpc(b"late1"), OK), (b"", {}), (harness.grpc(b"late3"), OK)]
    assert peer.server.methods[b"/t.T/Echo"].counts.codes[Code.CANCELLED] == 1


def test_a_lost_connection_cancels_all(harness: Any) -> None:
    service, peer = warm(harness)
    peer.send(calls_at(harness, peer, [b"late"] * 3)[1])
    peer.lose()
    service.answer()
    counts = peer.server.methods[b"/t.T/Echo"].counts
    assert counts.codes[Code.CANCELLED] == 3
    assert counts.open == 0
    assert not peer.conn.batches


def test_deadlines_and_failures_reach_each_call(harness: Any) -> None:
    service, peer = warm(harness, ("grpc-timeout", "5S"))
    first, data = calls_at(harness, peer, [b"late"] * 2, ("grpc-timeout", "5S"))
    peer.send(data)
    peer.loop.advance(6)
    assert [fields["grpc-status"] for _, fields in answers(peer, first, 2)] == ["4", "4"]
    service.answer()
    first, data = calls_at(harness, peer, [b"late", b"bad", b"late"], ("grpc-timeout", "5S"))
    peer.send(data)
    service.fail()
    assert [fields["grpc-status"] for _, fields in answers(peer, first, 3)] == ["14", "3", "14"]


def test_a_handler_that_breaks_fails_what_it_left(harness: Any, caplog: pytest.LogCaptureFixture) -> None:
    def broken(batch: CallBatch, at: int) -> int:
        if at:
            raise ZeroDivisionError
        batch.answering(0, [b"first"]).reply(b"")
        return 1

    peer = harness.Peer({b"/t.T/Echo": Unary(lambda call, request: call.reply(b""), batch_handler=broken)})
    for _ in range(2):
        peer.answer(peer.call(b"warm"))
    first, data = calls_at(harness, peer, [b"a", b"b"])
    peer.send(data)
    (body, fields), (_, failed) = answers(peer, first, 2)
    assert (body, fields) == (harness.grpc(b"first"), OK)
    assert failed["grpc-status"] == "13"
    assert "ZeroDivisionError" in caplog.text


def test_limits_hold_for_calls_of_batches(harness: Any) -> None:
    service, peer = warm(harness, limits=TransportLimits(concurrent_streams=3, updates_per_interval=5))
    first, data = calls_at(harness, peer, [b"late"] * 5)
    peer.send(data)
    resets = [frame.sid for frame in peer.read() if frame.kind == frames.RST_STREAM]
    assert resets == [first + 6, first + 8]
    service.answer()
    peer.read()
    service, peer = warm(harness, limits=TransportLimits(updates_per_interval=5))
    peer.send(calls_at(harness, peer, [b"x" * (BYTES_MAX // 3)] * 5)[1])
    assert [len(batch) for batch in service.batches] == [3, 2]
    first, data = calls_at(harness, peer, [b"a"])
    peer.send(data + frames.window_update(0, 1) * 6)
    assert peer.error() == frames.ErrorCode.ENHANCE_YOUR_CALM


def test_a_guard_in_front_of_a_method_sees_each_call(harness: Any) -> None:
    service, seen = Service(batched=True), []

    def look(call: Call, request: bytes) -> None:
        seen.append(request)
        service.echo(call, request)

    peer = harness.Peer({path: one.guarded_by(look) for path, one in service.methods().items()})  # type: ignore[union-attr]
    for _ in range(2):
        peer.answer(peer.call(b"warm"))
    first, data = calls_at(harness, peer, [b"a", b"b"])
    peer.send(data)
    assert [body for body, _ in answers(peer, first, 2)] == [harness.grpc(b"a"), harness.grpc(b"b")]
    assert seen[-2:] == [b"a", b"b"]
    assert not service.batches

"""Draining: no call that was accepted is lost, and the connection ends as soon as it can."""

from __future__ import annotations

from typing import Any

from syncpoint.base.model.errors import Code, SyncpointError
from syncpoint.wire.transport import frames
from syncpoint.wire.transport.calls import Streaming, StreamingCall, Unary
from syncpoint.wire.transport.frames import ErrorCode
from syncpoint.wire.transport.limits import TransportLimits


def setup(harness: Any) -> tuple[Any, list, list]:
    calls: list[Any] = []
    streams: list[Any] = []
    drained: list[StreamingCall] = []

    def begin(stream: StreamingCall) -> None:
        streams.append(stream)
        stream.on_drain = lambda: drained.append(stream)

    peer = harness.Peer({b"/t.T/Echo": Unary(lambda call, request: calls.append(call)), b"/t.T/Chat": Streaming(begin)})
    peer.drained = drained
    return peer, calls, streams


def goaways(got: list[frames.Frame]) -> list[tuple[int, int]]:
    return [(int.from_bytes(f.payload[:4], "big"), int.from_bytes(f.payload[4:8], "big")) for f in got if f.kind == 7]


def test_drain(harness: Any) -> None:
    peer, calls, streams = setup(harness)
    peer.call(b"")
    peer.open("/t.T/Chat")
    peer.read()
    peer.conn.drain()
    got = peer.read()
    assert goaways(got) == [(frames.WINDOW_MAX, 0)]
    (ping,) = (f for f in got if f.kind == frames.PING)
    assert peer.drained == streams

    # The client had opened another call before it read our GOAWAY.
    peer.call(b"")
    assert len(calls) == 2
    peer.send(frames.frame(frames.PING, frames.ACK, 0, ping.payload))
    assert goaways(peer.read()) == [(5, 0)]
    # Now it must not open more; a call above the named number is not begun.
    peer.call(b"")
    assert len(calls) == 2
    assert peer.error() is None

    calls[0].reply(b"")
    streams[0].finish(SyncpointError(Code.UNAVAILABLE, "again"))
    peer.loop.run()
    assert not peer.conn.closed
    calls[1].reply(b"last")
    got = peer.read()
    assert peer.answer(5, got)[0] == harness.grpc(b"last")
    assert peer.conn.closed
    assert peer.socket.closed
    assert not peer.socket.aborted


def test_an_idle_connection_ends_at_once(harness: Any) -> None:
    peer, _, _ = setup(harness)
    peer.conn.drain()
    peer.send(frames.frame(frames.PING, frames.ACK, 0, b"draining"))
    assert peer.error() == ErrorCode.NO_ERROR


def test_a_connection_that_says_nothing_is_closed_after_a_while(harness: Any) -> None:
    peer = harness.Peer({}, TransportLimits(drain_ping_s=3.0), greet=False)
    peer.conn.drain()
    peer.loop.advance(2.9)
    assert not peer.socket.closed
    peer.loop.advance(0.2)
    assert peer.socket.closed


def test_calls_on_their_way_over_a_new_connection_are_served(harness: Any) -> None:
    calls: list[Any] = []
    peer = harness.Peer({b"/t.T/Echo": Unary(lambda call, request: calls.append(call))}, greet=False)
    peer.conn.drain()
    peer.send(frames.PREFACE + frames.settings({}))
    sid = peer.call(b"")
    got = peer.read()
    assert goaways(got) == [(frames.WINDOW_MAX, 0)]
    peer.send(frames.frame(frames.PING, frames.ACK, 0, b"draining"))
    calls[0].reply(b"late")
    got = peer.read()
    assert peer.answer(sid, got)[0] == harness.grpc(b"late")
    assert peer.conn.closed


def test_what_is_left_fails(harness: Any) -> None:
    peer, calls, streams = setup(harness)
    reported: list[str] = []
    one = peer.call(b"")
    two = peer.open("/t.T/Chat")
    calls[0].on_cancel = lambda: reported.append("call")
    streams[0].on_cancel = lambda: reported.append("stream")
    peer.read()
    peer.conn.finish_all(SyncpointError(Code.UNAVAILABLE, "The server is stopping."))
    got = peer.read()
    statuses = [peer.answer(sid, [f for f in got if f.sid == sid])[1]["grpc-status"] for sid in (one, two)]
    assert statuses == ["14", "14"]
    assert reported == ["call", "stream"]
    assert peer.conn.closed

"""Limits of time: what takes longer ends, and what is in time goes on."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from typing import Any

import pytest

from syncpoint.testing.rigs.plain_tests import on_loop
from syncpoint.wire.transport import frames
from syncpoint.wire.transport.frames import ErrorCode
from syncpoint.wire.transport.limits import TransportLimits
from syncpoint.wire.transport.server import serve
from syncpoint.wire.transport.server_connection import ServerConnection
from tests.unit.wire.transport.echoing import CALM, methods


@pytest.mark.parametrize("start", [b"", b"PRI", frames.PREFACE, frames.PREFACE + frames.settings({})[:5]])
def test_greeting_s(harness: Any, start: bytes) -> None:
    peer = harness.Peer(methods(), TransportLimits(greeting_s=3.0), greet=False)
    if start:
        peer.send(start)
    peer.loop.advance(2.5)
    assert not peer.conn.closed
    peer.loop.advance(2)
    assert peer.error() == (ErrorCode.SETTINGS_TIMEOUT if start else 0), "who says nothing is sent nothing"


def test_greeting_s_begins_when_tls_is_finished(harness: Any) -> None:
    peer = harness.Peer(methods(), TransportLimits(greeting_s=3.0), greet=False)
    late = ServerConnection(peer.loop, peer.server)  # accepted; TLS takes its time
    peer.loop.advance(2.5)
    socket = harness.FakeSocket()
    late.connection_made(socket)
    peer.loop.advance(2)
    assert peer.conn.closed
    assert not late.closed
    peer.loop.advance(2)
    assert late.closed


@on_loop
async def test_handshake_s() -> None:
    """Who begins TLS and goes no further is cut off. A real clock runs here; nothing is measured."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server = await serve(methods(), tls=tls, limits=TransportLimits(handshake_s=0.1))
    reader, writer = await asyncio.open_connection(server.host, server.port)
    writer.write(bytes.fromhex("160301"))  # the first bytes of a client's hello
    with contextlib.suppress(ConnectionError):
        assert await asyncio.wait_for(reader.read(), 30) == b""
    writer.close()
    await server.close()


@pytest.mark.parametrize("asked", [False, True])
def test_first_request_s(harness: Any, asked: bool) -> None:
    peer = harness.Peer(methods(), TransportLimits(first_request_s=5.0, drain_ping_s=1.0))
    peer.read()
    peer.loop.advance(4.5)
    assert peer.read() == []
    if asked:
        peer.call(b"")
        peer.loop.advance(50)
        assert not peer.conn.draining
        return
    peer.loop.advance(2)
    first, *_ = peer.read()
    assert (first.kind, first.payload[8:]) == (frames.GOAWAY, b"nothing was asked for")
    # A request that was on its way is answered.
    sid = peer.call(b"x")
    assert peer.answer(sid)[0] == harness.grpc(b"x")
    peer.loop.advance(2)
    assert peer.error() == ErrorCode.NO_ERROR


def test_first_request_s_may_be_never(harness: Any) -> None:
    peer = harness.Peer(methods(), TransportLimits(first_request_s=0.0, keepalive_s=0.0))
    peer.read()
    peer.loop.advance(1000)
    assert peer.read() == []


@pytest.mark.parametrize("what", ["frame", "block"])
def test_frame_s(harness: Any, what: str) -> None:
    peer = harness.Peer(methods(), TransportLimits(frame_s=10.0, keepalive_s=0.0))
    if what == "frame":
        data = frames.frame(0xEE, 0, 0, bytes(1000))
    else:
        data = frames.frame(frames.HEADERS, 0, 1, peer.block()) + frames.frame(frames.CONTINUATION, 0, 1)
    for i in range(11):
        assert not peer.conn.closed
        peer.send(data if what == "block" and i == 0 else data[i : i + 1] if what == "frame" else b"")
        peer.loop.advance(1)
    peer.loop.advance(2)
    assert peer.error() == CALM


def test_frame_s_is_for_each_frame_also_where_every_read_ends_within_one(harness: Any) -> None:
    peer = harness.Peer(methods(), TransportLimits(frame_s=10.0, keepalive_s=0.0))
    sid = peer.open("/t.T/Chat")
    frame = frames.frame(frames.DATA, 0, sid, bytes(5) * 14_000)  # empty messages
    peer.send(frame[:100])
    for _ in range(20):
        peer.send(frame[100:] + frame[:100])
        peer.loop.advance(2.0)
    assert peer.error() is None
    peer.loop.advance(13.0)
    assert peer.error() == CALM


def test_keepalive_s_and_keepalive_answer_s(harness: Any) -> None:
    peer = harness.Peer(methods(), TransportLimits(keepalive_s=60.0, keepalive_answer_s=20.0, first_request_s=0.0))
    peer.read()
    for _ in range(3):
        peer.loop.advance(63)
        (ping,) = peer.read()
        assert ping.kind == frames.PING
        peer.send(frames.frame(frames.PING, frames.ACK, 0, ping.payload))
        peer.loop.advance(1)
    peer.loop.advance(63)
    assert not peer.conn.closed
    peer.loop.advance(23)
    assert peer.socket.aborted


def test_no_keepalive(harness: Any) -> None:
    peer = harness.Peer(methods(), TransportLimits(keepalive_s=0.0, sweep_s=100.0, first_request_s=0.0))
    peer.read()
    peer.loop.advance(10_000)
    assert peer.read() == []
    assert peer.error() is None


def test_sweep_s(harness: Any) -> None:
    peer = harness.Peer(methods(), TransportLimits(sweep_s=8.0, greeting_s=1.0), greet=False)
    peer.loop.advance(1.5)
    assert not peer.conn.closed
    peer.loop.advance(9)
    assert peer.conn.closed


def test_no_timer_is_left_of_calls_that_ended_in_time(harness: Any) -> None:
    peer = harness.Peer(methods(), TransportLimits(sweep_s=1.0))
    sid = peer.call(b"x", harness.ECHO, ("grpc-timeout", "90S"))
    assert peer.answer(sid)[0] == harness.grpc(b"x")
    assert peer.conn._deadline_timer is not None
    peer.loop.advance(3)
    assert peer.conn._deadline_timer is None
    held = peer.call(b"", "/t.T/Hold", ("grpc-timeout", "2S"))
    peer.loop.advance(3)
    assert peer.answer(held)[1]["grpc-status"] == "4", "and one of a later call is in time"


def test_drain_ping_s(harness: Any) -> None:
    calls: list[Any] = []
    peer = harness.Peer(methods(calls), TransportLimits(drain_ping_s=3.0))
    peer.call(b"", "/t.T/Hold")
    peer.read()
    peer.conn.drain()
    assert [f.kind for f in peer.read()] == [frames.GOAWAY, frames.PING]
    peer.loop.advance(2)
    assert peer.read() == []
    peer.loop.advance(2)
    (last,) = peer.read()
    assert (last.kind, last.payload[:4]) == (frames.GOAWAY, frames.u32(1))


def test_close_s(harness: Any) -> None:
    peer = harness.Peer(methods(), TransportLimits(close_s=5.0))
    peer.send(frames.frame(frames.PUSH_PROMISE, 0, 1))
    assert peer.error() == ErrorCode.PROTOCOL_ERROR
    peer.loop.advance(4)
    assert not peer.socket.aborted
    peer.loop.advance(2)
    assert peer.socket.aborted

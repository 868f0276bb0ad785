"""Who publishes and receives by one connection reads what it was answered before the message that follows from it."""

from __future__ import annotations

from typing import Any

import pytest

from syncpoint.base.model.errors import Unavailable
from syncpoint.wire.transport import frames
from syncpoint.wire.transport.behind_answers import BEHIND_S
from syncpoint.wire.transport.calls import Call, Streaming, StreamingCall, Unary
from syncpoint.wire.transport.frames import ErrorCode, SettingId
from syncpoint.wire.transport.limits import TransportLimits

PUBLISH, PULL, OTHER = "/t.T/Publish", "/t.T/Pull", "/t.T/Other"


class Caller:
    """A client of a server with a method that is answered first, a stream behind it, and other methods."""

    def __init__(self, harness: Any, limits: TransportLimits | None = None) -> None:
        self.calls: list[Call] = []
        self.streams: list[StreamingCall] = []
        keep = Unary(lambda call, request: self.calls.append(call))
        streaming = Streaming(self.streams.append, PUBLISH.encode())
        self.peer = harness.Peer({PUBLISH.encode(): keep, OTHER.encode(): keep, PULL.encode(): streaming}, limits)

    def open(self) -> tuple[int, StreamingCall]:
        sid = self.peer.open(PULL)
        return sid, self.streams[-1]

    def answer(self, path: str = PUBLISH) -> None:
        self.peer.call(b"", path)
        self.calls.pop().reply(b"id")

    def read(self) -> tuple[list[int], list[bytes]]:
        """Streams of which a message came, in order; what PINGs carry."""
        got = self.peer.read()
        pings = [one.payload for one in got if one.kind == frames.PING and not one.flags & frames.ACK]
        return [one.sid for one in got if one.kind == frames.DATA], pings

    def pong(self, payload: bytes) -> None:
        self.peer.send(frames.frame(frames.PING, frames.ACK, 0, payload))


def test_a_message_waits_until_the_answer_was_read(harness: Any) -> None:
    caller = Caller(harness)
    sid, stream = caller.open()
    stream.send(b"before")
    assert caller.read() == ([sid], [])
    caller.answer()
    stream.send(b"m")
    assert not stream.writable
    confirmed: list[bool] = []
    stream.on_writable = lambda: confirmed.append(stream.writable)
    came, (ping,) = caller.read()
    assert came == [sid + 2]
    assert not confirmed
    caller.pong(ping)
    assert caller.read() == ([sid], [])
    assert confirmed == [True]
    stream.send(b"after")
    assert caller.read() == ([sid], [])


def test_the_method_was_called_before_the_stream_was_opened(harness: Any) -> None:
    caller = Caller(harness)
    caller.answer()
    assert caller.read() == ([1], [])
    _, stream = caller.open()
    caller.answer()
    stream.send(b"m")
    came, (ping,) = caller.read()
    assert came == [5]
    caller.pong(ping)
    assert caller.read() == ([3], [])


def test_a_caller_that_answers_no_ping_gets_it_all_the_same(harness: Any) -> None:
    caller = Caller(harness)
    sid, stream = caller.open()
    caller.answer()
    stream.send(b"m")
    _, (ping,) = caller.read()
    caller.peer.loop.advance(BEHIND_S / 2)
    assert caller.read() == ([], [])
    caller.peer.loop.advance(BEHIND_S)
    assert caller.read() == ([sid], [])
    caller.pong(ping)  # late: it lets nothing go a second time
    caller.answer()
    stream.send(b"m")
    came, pings = caller.read()
    assert sid not in came
    assert len(pings) == 1


def test_what_is_given_beyond_the_largest_window_while_a_stream_waits_ends_nothing(harness: Any) -> None:
    caller = Caller(harness)
    sid, stream = caller.open()
    caller.answer()
    _, (ping,) = caller.read()
    caller.peer.send(frames.window_update(sid, frames.WINDOW_MAX))
    caller.pong(ping)
    stream.send(b"m")
    assert caller.read() == ([sid], [])
    assert caller.peer.error() is None


def test_answers_that_follow_do_not_prolong_it(harness: Any) -> None:
    caller = Caller(harness)
    sid, stream = caller.open()
    caller.answer()
    _, (ping,) = caller.read()
    caller.answer()
    stream.send(b"m")
    assert caller.read() == ([sid + 4], [])
    caller.pong(ping)
    assert caller.read() == ([sid], [])


def test_nothing_else_waits(harness: Any) -> None:
    caller = Caller(harness)
    caller.answer()
    caller.answer(OTHER)
    assert caller.read() == ([1, 3], [])  # without a stream
    sid, stream = caller.open()
    caller.answer(OTHER)
    stream.send(b"m")
    assert caller.read() == ([sid + 2, sid], [])  # another method's answer
    caller.answer()
    caller.answer(OTHER)
    later, opened = caller.open()
    opened.send(b"m")
    came, pings = caller.read()
    assert came == [sid + 4, sid + 6, later]  # another method's answer, and a stream that was opened afterwards
    assert len(pings) == 1


def test_a_call_that_fails_is_followed_at_once(harness: Any) -> None:
    caller = Caller(harness)
    sid, stream = caller.open()
    caller.peer.call(b"", PUBLISH)
    caller.calls.pop().fail(Unavailable("no"))
    stream.send(b"m")
    assert caller.read() == ([sid], [])


def test_what_waits_can_be_taken_back(harness: Any) -> None:
    caller = Caller(harness)
    sid, stream = caller.open()
    caller.answer()
    stream.send(b"m", "token")
    caller.peer.send(frames.rst_stream(sid, ErrorCode.CANCEL))
    assert stream.take_back() == ["token"]
    _, (ping,) = caller.read()
    caller.pong(ping)
    caller.answer()  # the stream is gone: nothing waits for anything
    assert caller.read()[1] == []
    assert caller.peer.conn.unsent_bytes == 0
    assert caller.peer.error() is None


def test_a_stream_that_ends_meanwhile_ends_behind_its_message(harness: Any) -> None:
    caller = Caller(harness)
    sid, stream = caller.open()
    caller.answer()
    stream.send(b"m")
    stream.finish()
    _, (ping,) = caller.read()
    caller.pong(ping)
    body, fields = caller.peer.answer(sid)
    assert body == harness.grpc(b"m")
    assert fields["grpc-status"] == "0"


@pytest.mark.parametrize("more", [1, 100, frames.WINDOW_MAX - 10])
def test_the_window_is_what_the_peer_gave(harness: Any, more: int) -> None:
    caller = Caller(harness)
    caller.peer.send(frames.settings({SettingId.INITIAL_WINDOW_SIZE: 10}))
    sid, stream = caller.open()
    caller.answer()
    stream.send(bytes(500))
    caller.peer.send(frames.window_update(sid, more))
    _, (ping,) = caller.read()
    caller.pong(ping)
    body, _ = caller.peer.answer(sid)
    assert len(body) == min(10 + more, 505)
    assert caller.peer.error() is None


def test_pings_that_were_asked_for_are_no_abuse(harness: Any) -> None:
    caller = Caller(harness, TransportLimits(pings_per_interval=3))
    caller.open()
    for _ in range(10):
        caller.answer()
        _, (ping,) = caller.read()
        caller.pong(ping)
    assert caller.peer.error() is None
    for _ in range(5):
        caller.pong(ping)  # nobody asked
    assert caller.peer.error() == ErrorCode.ENHANCE_YOUR_CALM

"""The budget of bytes that wait over all connections: who is closed for it, and that it counts what it says."""

from __future__ import annotations

from typing import Any

import pytest

from syncpoint.wire.transport import frames
from syncpoint.wire.transport.calls import Streaming, Unary
from syncpoint.wire.transport.frames import ErrorCode
from syncpoint.wire.transport.limits import TransportLimits
from syncpoint.wire.transport.server import Server
from syncpoint.wire.transport.unsent import Unsent

WINDOW = frames.WINDOW_DEFAULT


class Room:
    """Connections of one server, with streams that stay open."""

    def __init__(self, harness: Any, limits: TransportLimits, unsent: Unsent | None = None) -> None:
        self.harness, self.calls = harness, []  # type: ignore[var-annotated]
        methods = {b"/t.T/Hold": Unary(lambda call, _: self.calls.append(call)), b"/t.T/Chat": Streaming(self._chat)}
        self.loop = harness.ManualLoop()
        self.server = Server(methods, limits, None, self.loop, unsent)

    def _chat(self, stream: Any) -> None:
        self.calls.append(stream)

    def peer(self) -> Any:
        return self.harness.Peer({}, server=self.server)

    def answer(self, peer: Any, size: int) -> int:
        """Give a new call of a peer an answer of so many bytes; they wait, but for its window."""
        sid: int = peer.call(b"", "/t.T/Hold")
        self.calls[-1].reply(bytes(size))
        return sid


def test_the_largest_goes_first_and_learns_why(harness: Any) -> None:
    room = Room(harness, TransportLimits(unsent_total_bytes=1_000_000))
    small, large, middle = (room.peer() for _ in range(3))
    room.answer(small, 200_000 + WINDOW)
    room.answer(large, 500_000 + WINDOW)
    room.loop.run()
    assert room.server.stats["unsent"] > 700_000
    room.answer(middle, 400_000 + WINDOW)
    room.loop.run()
    assert [peer.conn.closed for peer in (small, large, middle)] == [False, True, False]
    goodbye = [f for f in large.read() if f.kind == frames.GOAWAY]
    assert [int.from_bytes(f.payload[4:8], "big") for f in goodbye] == [ErrorCode.ENHANCE_YOUR_CALM]
    assert b"among the slowest" in goodbye[0].payload
    assert 600_000 < room.server.stats["unsent"] < 600_100


def test_who_goes_on_reading_outlasts_who_does_not(harness: Any) -> None:
    room = Room(harness, TransportLimits(unsent_total_bytes=1_000_000, keepalive_s=0.0))
    reading, stuck, third = (room.peer() for _ in range(3))
    sid = room.answer(reading, 600_000)
    room.answer(stuck, 400_000)
    for _ in range(10):
        reading.send(frames.window_update(0, 10_000) + frames.window_update(sid, 10_000))
        room.loop.advance(1)
    assert reading.conn.held > stuck.conn.held
    room.answer(third, 320_000)
    room.loop.run()
    assert [peer.conn.closed for peer in (reading, stuck, third)] == [False, True, False]


def test_what_the_socket_does_not_take_counts(harness: Any) -> None:
    room = Room(harness, TransportLimits(unsent_total_bytes=100_000))
    peers = [room.peer() for _ in range(3)]
    for peer in peers:
        peer.socket.full = 1000
        room.answer(peer, 40_000)
    room.loop.run()
    assert sum(peer.socket.aborted for peer in peers) == 2  # down to three quarters
    for peer in peers:
        if not peer.conn.closed:
            assert room.server.stats["unsent"] == peer.socket.get_write_buffer_size() == peer.conn.held
            peer.socket.empty()
    assert room.server.stats["unsent"] == 0


def test_a_socket_that_is_just_below_full_counts_from_the_next_look(harness: Any) -> None:
    room = Room(harness, TransportLimits(unsent_total_bytes=100_000, first_request_s=0.0))
    peers = [room.peer() for _ in range(3)]
    for peer in peers:
        peer.socket.full = 1_000_000
        room.answer(peer, 40_000)
    room.loop.run()
    assert not any(peer.conn.closed for peer in peers)
    room.loop.advance(2)
    assert sum(peer.conn.closed for peer in peers) == 2


@pytest.mark.parametrize("end", ["read", "reset", "deadline", "lost"])
def test_nothing_is_left_of_what_went(harness: Any, end: str) -> None:
    room = Room(harness, TransportLimits())
    peer = room.peer()
    sid = peer.open("/t.T/Chat", ("grpc-timeout", "5S"))
    room.calls[0].send(bytes(300_000))
    room.loop.run()
    assert room.server.stats["unsent"] == 300_005 - WINDOW
    if end == "read":
        peer.send(frames.window_update(0, 300_000) + frames.window_update(sid, 300_000))
    elif end == "reset":
        peer.send(frames.rst_stream(sid, ErrorCode.CANCEL))
    elif end == "lost":
        peer.lose()
    room.loop.advance(7)
    assert room.server.stats["unsent"] == 0


def test_servers_of_one_process_share_a_budget(harness: Any) -> None:
    budget = Unsent(300_000)
    rooms = [Room(harness, TransportLimits(), budget) for _ in range(2)]
    peers = [room.peer() for room in rooms]
    for room, peer, size in zip(rooms, peers, (200_000, 280_000), strict=True):
        room.answer(peer, size)
        room.loop.run()
    for room in rooms:
        room.loop.run()
    assert [peer.conn.closed for peer in peers] == [False, True]
    assert [room.server.stats["unsent"] for room in rooms] == [200_005 - WINDOW] * 2


def test_an_application_is_not_called_within_its_own_call(harness: Any) -> None:
    """A connection that is closed for the budget ends in a turn of its own, not within somebody else's `send`."""
    room = Room(harness, TransportLimits(unsent_total_bytes=300_000))
    large, other = room.peer(), room.peer()
    large.open("/t.T/Chat")
    room.calls[0].send(bytes(250_000))
    reported: list[str] = []
    room.calls[0].on_cancel = lambda: reported.append("cancelled")
    other.open("/t.T/Chat")
    room.calls[1].send(bytes(240_000))
    reported.append("sent")
    room.loop.run()
    assert reported == ["sent", "cancelled"]

"""Every limit: what lies below it passes, what lies above is refused, slowed or cut off."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from syncpoint.wire.transport import frames
from syncpoint.wire.transport.frames import ErrorCode, SettingId
from syncpoint.wire.transport.limits import TransportLimits
from tests.unit.wire.transport.echoing import CALM, methods


def test_every_limit_is_tested_and_explained() -> None:
    here = "".join(path.read_text() for path in Path(__file__).parent.glob("test_limits*.py"))
    source = Path(__import__("syncpoint.wire.transport.limits", fromlist=["limits"]).__file__ or "").read_text()
    for field in dataclasses.fields(TransportLimits):
        assert f"{field.name}=" in here, field.name
        after = source.split(f"\n    {field.name}: ", 1)[1].split("\n", 2)[1]
        assert after.startswith('    """'), f"{field.name} has no doc line"


# -- sizes ---------------------------------------------------------------------------------------------------------


def test_message_bytes(harness: Any) -> None:
    peer = harness.Peer(methods(), TransportLimits(message_bytes=1000))
    body, fields = peer.answer(peer.call(bytes(1000)))
    assert len(body) == 1005
    sid = peer.call(bytes(1001))
    got = peer.read()
    fields = peer.answer(sid, got)[1]
    assert fields["grpc-status"] == "8"
    assert "1001 vs. 1000" in fields["grpc-message"]
    assert peer.server.stats["held"] == 0
    assert not peer.conn.streams


def test_message_bytes_is_known_before_the_message(harness: Any) -> None:
    peer = harness.Peer(methods(), TransportLimits(message_bytes=1000))
    sid = peer.open()
    peer.data(sid, b"\0\xff\xff\xff\xff")
    assert peer.answer(sid)[1]["grpc-status"] == "8"
    peer.data(sid, bytes(100))
    assert peer.read() == []


def test_frame_bytes(harness: Any) -> None:
    peer = harness.Peer(methods(), TransportLimits(frame_bytes=16_384))
    peer.send(frames.frame(0xEE, 0, 0, bytes(16_384)))
    assert peer.error() is None
    peer.send(frames.frame(0xEE, 0, 0, bytes(16_385))[:9])
    assert peer.error() == ErrorCode.FRAME_SIZE_ERROR


def test_header_block_bytes(harness: Any) -> None:
    peer = harness.Peer(methods(), TransportLimits(header_block_bytes=2000))
    peer.open(harness.ECHO, ("x", "y" * 1000))
    assert peer.error() is None
    big = peer.block(harness.ECHO, ("x", "\x7f" * 1000))
    peer.send(frames.headers(3, big, end=False, frame_bytes=1000))
    assert peer.error() == CALM


def test_header_list_bytes(harness: Any) -> None:
    peer = harness.Peer(methods(), TransportLimits(header_list_bytes=1000))
    sid = peer.call(b"", harness.ECHO, ("x", "y" * 2000))
    assert peer.answer(sid)[1]["grpc-status"] == "8"
    assert peer.answer(peer.call(b""))[1]["grpc-status"] == "0"


def test_header_list_bytes_hard(harness: Any) -> None:
    peer = harness.Peer(methods(), TransportLimits(header_list_bytes_hard=4000))
    peer.open(harness.ECHO, ("x", "y" * 2000))
    assert peer.error() is None
    peer.send(frames.headers(3, peer.block(harness.ECHO, ("x", "y" * 2000)) + b"\xbe" * 3, end=False, frame_bytes=9999))
    assert peer.error() == CALM


def test_header_cache_blocks(harness: Any) -> None:
    peer = harness.Peer(methods(), TransportLimits(header_cache_blocks=4))
    for i in range(20):
        sid = peer.next_sid
        peer.next_sid += 2
        # Literals that enter no table, so that every block stays good for the cache.
        block = b"".join(
            b"\x00" + bytes((len(n),)) + n + bytes((len(v),)) + v
            for n, v in [
                (b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/t.T/Echo"),
                (b"content-type", b"application/grpc"), (b"x", b"%d" % i),
            ]
        )  # fmt: skip
        peer.send(frames.headers(sid, block, end=False, frame_bytes=16_384))
        peer.data(sid, harness.grpc(b""), end=True)
        assert len(peer.conn._heads) == min(i + 1, 4)


# -- receiving -----------------------------------------------------------------------------------------------------


def test_stream_window_bytes(harness: Any) -> None:
    peer = harness.Peer(methods(), TransportLimits(stream_window_bytes=1000))
    sid = peer.open()
    peer.data(sid, harness.grpc(bytes(995)), end=True)
    assert peer.answer(sid)[1]["grpc-status"] == "0"
    sid = peer.open()
    peer.data(sid, bytes(1001))
    (reset,) = (f for f in peer.read() if f.kind == frames.RST_STREAM)
    assert reset.payload == frames.u32(ErrorCode.FLOW_CONTROL_ERROR)


def test_connection_window_bytes(harness: Any) -> None:
    peer = harness.Peer(methods(), TransportLimits(connection_window_bytes=70_000, frame_bytes=16_384))
    sid = peer.open("/t.T/Chat")
    peer.send(frames.frame(frames.DATA, 0, sid, harness.grpc(bytes(16_000))) * 4)
    assert peer.error() is None
    peer.send(frames.frame(frames.DATA, 0, sid, harness.grpc(bytes(16_000))) * 5)
    assert peer.error() == ErrorCode.FLOW_CONTROL_ERROR


def test_receive_extra_bytes(harness: Any) -> None:
    peer = harness.Peer(methods(), TransportLimits(stream_window_bytes=1000, receive_extra_bytes=6000))
    peer.read()

    def begin(size: int) -> tuple[int, int]:
        sid = peer.open()
        peer.data(sid, harness.grpc(bytes(size))[:100])
        return sid, sum(int.from_bytes(f.payload, "big") for f in peer.read() if f.kind == 8 and f.sid == sid)

    first, given = begin(4995)
    assert given == 4000
    _, given = begin(4995)  # would make 8000
    assert given == 0
    _, given = begin(400)  # needs no extra
    assert given == 0
    peer.data(first, bytes(4900), end=True)
    got = peer.read()
    assert peer.answer(first, got)[1]["grpc-status"] == "0"
    assert any(f.kind == frames.WINDOW_UPDATE and f.sid == first + 2 for f in got)


def test_receive_extra_bytes_lets_in_one_message_of_any_size(harness: Any) -> None:
    peer = harness.Peer(methods(), TransportLimits(stream_window_bytes=1000, receive_extra_bytes=10))
    sid = peer.open()
    peer.data(sid, harness.grpc(bytes(9000))[:1000])
    assert any(f.kind == frames.WINDOW_UPDATE and f.sid == sid for f in peer.read())


def test_held_bytes(harness: Any) -> None:
    peer = harness.Peer(methods(), TransportLimits(held_bytes=10_000))
    sids = [peer.open() for _ in range(4)]
    for sid in sids[:3]:
        peer.data(sid, harness.grpc(bytes(9_000))[:3_005])
    assert peer.server.stats["held"] == 9_000
    peer.data(sids[3], harness.grpc(bytes(9_000))[:3_005])
    assert peer.answer(sids[3])[1]["grpc-status"] == "8"
    assert peer.server.stats["held"] == 9_000
    peer.data(sids[0], bytes(1_000))
    peer.data(sids[0], bytes(5_000), end=True)
    peer.lose()
    assert peer.server.stats["held"] == 0


# -- sending -------------------------------------------------------------------------------------------------------


def test_socket_buffer_bytes(harness: Any) -> None:
    reported: list[int | None] = []
    peer = harness.Peer(methods(), TransportLimits(), greet=False)
    peer.socket.set_write_buffer_limits = lambda high=None, low=None: reported.append(high)
    peer.conn.limits = TransportLimits(socket_buffer_bytes=4711)
    peer.conn.connection_made(peer.socket)
    assert reported == [4711]


def test_unsent_bytes(harness: Any) -> None:
    calls: list[Any] = []
    peer = harness.Peer(methods(calls), TransportLimits(unsent_bytes=100_000))
    for _ in range(4):
        peer.call(b"", "/t.T/Hold")
    for call in calls[:2]:
        call.reply(bytes(80_000))  # 65,535 of these leave, by the window
    peer.loop.run()
    assert peer.error() is None
    calls[2].reply(bytes(80_000))
    peer.loop.run()
    assert peer.error() is not None
    assert peer.socket.aborted


def test_unsent_bytes_counts_answers_to_pings(harness: Any) -> None:
    peer = harness.Peer(methods(), TransportLimits(unsent_bytes=10_000))
    peer.socket.full = 0
    for _ in range(500):
        peer.send(frames.frame(frames.PING, 0, 0, bytes(8)))
    assert peer.socket.written.count(bytes.fromhex("0000080601")) == 500
    for _ in range(500):
        peer.send(frames.frame(frames.PING, 0, 0, bytes(8)))
    assert peer.socket.aborted


def test_unsent_total_bytes(harness: Any) -> None:
    """Over all connections; `test_unsent.py` has who goes first."""
    calls: list[Any] = []
    first = harness.Peer(methods(calls), TransportLimits(unsent_total_bytes=300_000))
    peers = [first, *(harness.Peer(methods(calls), server=first.server) for _ in range(3))]
    for peer in peers:
        peer.call(b"", "/t.T/Hold")
    for call in calls[:3]:
        call.reply(bytes(160_000))  # 65,535 of these leave, by the window
    first.loop.run()
    assert [peer.conn.closed for peer in peers] == [False] * 4
    calls[3].reply(bytes(160_000))
    first.loop.run()
    assert sum(peer.conn.closed for peer in peers) == 2
    assert first.server.stats["shed"] == 2
    assert first.server.stats["unsent"] <= 225_000


def test_stall_of_the_socket(harness: Any) -> None:
    peer = harness.Peer(methods(), TransportLimits(stall_s=30.0, keepalive_s=0.0))
    peer.socket.full = 10
    peer.call(b"")
    peer.loop.advance(29)
    assert not peer.conn.closed
    peer.loop.advance(3)
    assert peer.socket.aborted


def test_stall_of_an_answer(harness: Any) -> None:
    calls: list[Any] = []
    peer = harness.Peer(methods(calls), TransportLimits(stall_s=30.0, keepalive_s=0.0))
    sid = peer.call(b"", "/t.T/Chat")
    calls[0].send(bytes(70_000))
    reported: list[bool] = []
    calls[0].on_cancel = lambda: reported.append(True)
    calls[0].finish()
    peer.loop.advance(28)
    peer.read()
    assert reported == []
    peer.loop.advance(4)
    assert [f.sid for f in peer.read() if f.kind == frames.RST_STREAM] == [sid]
    assert reported == [True]
    assert peer.conn.unsent_bytes == 0


# -- counts --------------------------------------------------------------------------------------------------------


def test_connections(harness: Any) -> None:
    first = harness.Peer(methods(), TransportLimits(connections=2))
    second = harness.Peer(methods(), server=first.server)
    third = harness.Peer(methods(), greet=False, server=first.server)
    assert third.socket.aborted
    second.lose()
    assert harness.Peer(methods(), server=first.server).error() is None
    third.conn.connection_lost(None)
    assert first.server.stats["connections"] == 2


def test_concurrent_streams(harness: Any) -> None:
    calls: list[Any] = []
    peer = harness.Peer(methods(calls), TransportLimits(concurrent_streams=2))
    for _ in range(2):
        peer.call(b"", "/t.T/Hold")
    refused = peer.open("/t.T/Hold")
    (frame,) = (f for f in peer.read() if f.kind == frames.RST_STREAM)
    assert (frame.sid, frame.payload) == (refused, frames.u32(ErrorCode.REFUSED_STREAM))
    peer.data(refused, harness.grpc(b""), end=True)
    assert peer.error() is None
    calls[0].reply(b"")
    assert peer.answer(peer.call(b""))[1]["grpc-status"] == "0"


def flood(harness: Any, limits: TransportLimits, frame: bytes, *, allowed: int) -> None:
    """`allowed` frames per interval pass, again and again; one more ends the connection."""
    peer = harness.Peer(methods(), limits)
    sid = peer.open("/t.T/Chat")
    frame = frame.replace(b"SID!", frames.u32(sid))
    peer.loop.advance(limits.interval_s)
    for _ in range(3):
        peer.send(frame * allowed)
        assert peer.error() is None
        peer.loop.advance(limits.interval_s + 1)
    peer.send(frame * (allowed + 1))
    peer.send(frame * (allowed + 1))
    assert peer.error() == CALM


def test_settings_per_interval(harness: Any) -> None:
    flood(harness, TransportLimits(settings_per_interval=20, interval_s=5.0), frames.settings({}), allowed=19)


def test_pings_per_interval(harness: Any) -> None:
    flood(
        harness,
        TransportLimits(pings_per_interval=20, interval_s=5.0),
        frames.frame(frames.PING, 0, 0, bytes(8)),
        allowed=20,
    )


def test_updates_per_interval(harness: Any) -> None:
    flood(harness, TransportLimits(updates_per_interval=20, interval_s=5.0), frames.window_update(0, 1), allowed=20)


@pytest.mark.parametrize(
    "frame",
    [
        frames.frame(frames.DATA, 0, 0)[:5] + b"SID!",
        frames.frame(frames.PRIORITY, 0, 1, bytes(5)),
        frames.frame(0x77, 0, 0),
        frames.frame(frames.GOAWAY, 0, 0, bytes(8)),
    ],
    ids=["data", "priority", "unknown", "goaway"],
)
def test_empties_per_interval(harness: Any, frame: bytes) -> None:
    flood(harness, TransportLimits(empties_per_interval=20, interval_s=5.0), frame, allowed=20)


def test_resets_per_interval(harness: Any) -> None:
    calls: list[Any] = []
    peer = harness.Peer(methods(calls), TransportLimits(resets_per_interval=50))
    for i in range(51):
        assert peer.error() is None, i
        sid = peer.call(b"", "/t.T/Hold")
        peer.send(frames.rst_stream(sid, ErrorCode.CANCEL))
    assert peer.error() == CALM
    assert len(calls) == 51


def test_resets_per_interval_counts_those_we_are_made_to_send(harness: Any) -> None:
    peer = harness.Peer(methods(), TransportLimits(resets_per_interval=50))
    for _ in range(51):
        sid = peer.open("/t.T/Chat")
        peer.send(frames.window_update(sid, 0))
    assert peer.error() == CALM


def test_continuations_per_block(harness: Any) -> None:
    peer = harness.Peer(methods(), TransportLimits(continuations_per_block=5))
    block = peer.block()
    peer.send(frames.headers(1, block, end=False, frame_bytes=-(-len(block) // 5)))
    assert peer.error() is None
    peer.send(frames.frame(frames.HEADERS, 0, 3, block) + frames.frame(frames.CONTINUATION, 0, 3) * 6)
    assert peer.error() == CALM


def test_pings_every_ten_seconds_are_welcome_for_ever(harness: Any) -> None:
    peer = harness.Peer(methods())
    peer.call(b"")
    for _ in range(1000):
        peer.loop.advance(10)
        peer.send(frames.frame(frames.PING, 0, 0, bytes(8)))
    assert peer.error() is None


def test_settings_that_shrink_to_nothing_hold_answers_back(harness: Any) -> None:
    peer = harness.Peer(methods(), TransportLimits())
    peer.send(frames.settings({SettingId.INITIAL_WINDOW_SIZE: 0}))
    sid = peer.call(b"x")
    assert peer.answer(sid)[0] == b""
    peer.send(frames.settings({SettingId.INITIAL_WINDOW_SIZE: 100}))
    assert peer.answer(sid)[0] == harness.grpc(b"x")

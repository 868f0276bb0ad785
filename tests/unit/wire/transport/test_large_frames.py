"""Messages of megabytes, as data pipelines stream them: whole frames where the peer takes them, nothing copied."""

from __future__ import annotations

from typing import Any

from syncpoint.wire.transport import frames
from syncpoint.wire.transport.calls import Streaming, StreamingCall
from syncpoint.wire.transport.frames import SettingId
from syncpoint.wire.transport.outbox import BURST

MIB = 1 << 20
WINDOW_MAX = (1 << 31) - 1


def opened(harness: Any, *, window: int, frame_bytes: int) -> tuple[Any, int, StreamingCall]:
    """A peer with these settings, and a stream it has opened, at both ends."""
    streams: list[StreamingCall] = []
    peer = harness.Peer({b"/t.T/Read": Streaming(streams.append)}, greet=False)
    reported = {SettingId.INITIAL_WINDOW_SIZE: window, SettingId.MAX_FRAME_SIZE: frame_bytes}
    peer.send(frames.PREFACE + frames.settings(reported) + frames.window_update(0, window - 65_535))
    sid = peer.open("/t.T/Read")
    peer.read()
    return peer, sid, streams[0]


def test_a_list_of_buffers_is_one_frame_where_it_fits(harness: Any) -> None:
    peer, sid, stream = opened(harness, window=WINDOW_MAX, frame_bytes=(1 << 24) - 1)
    parts = [b"head" * 20, bytearray(3 * MIB), memoryview(bytes(MIB)), b"tail"]
    for _ in range(3):
        assert stream.writable
        stream.send(parts)
        peer.loop.run()
    got = [frame for frame in peer.read() if frame.kind == frames.DATA]
    assert [frame.sid for frame in got] == [sid] * 3
    assert all(frame.payload == harness.grpc(b"".join(parts)) for frame in got)


def test_large_buffers_reach_the_socket_as_they_are(harness: Any, monkeypatch: Any) -> None:
    peer, _, stream = opened(harness, window=WINDOW_MAX, frame_bytes=(1 << 24) - 1)
    handed: list[Any] = []
    monkeypatch.setattr(peer.socket, "writelines", handed.extend)
    body = bytearray(4 * MIB)
    stream.send([b"head", body, b"tail"])
    peer.loop.run()
    assert any(buffer is body for buffer in handed)


def test_a_peer_with_small_frames_gets_all_of_it(harness: Any) -> None:
    peer, _, stream = opened(harness, window=64 * MIB, frame_bytes=16_384)
    body = bytes(range(256)) * (5 * MIB // 256)
    stream.send([b"x", body])
    got = [frame.payload for frame in peer.read() if frame.kind == frames.DATA]
    assert max(map(len, got)) == 16_384
    assert b"".join(got) == harness.grpc(b"x" + body)


def test_large_frames_are_cut_where_others_wait_for_their_turn(harness: Any) -> None:
    peer, one, first = opened(harness, window=64 * MIB, frame_bytes=4 * MIB)
    streams: list[StreamingCall] = []
    peer.server.methods[b"/t.T/Read"] = Streaming(streams.append)
    other = peer.open("/t.T/Read")
    peer.read()
    peer.socket.full = 1
    first.send(bytes(MIB))  # the socket is full from here on
    peer.loop.run()
    first.send(bytes(8 * MIB))
    streams[0].send(b"x" * 100_000)
    peer.socket.empty()
    peer.socket.full = None
    got = [(frame.sid, len(frame.payload)) for frame in peer.read() if frame.kind == frames.DATA]
    assert [sid for sid, _ in got].index(other) <= 2
    assert max(size for sid, size in got[1 : got.index((other, 100_005))]) <= BURST
    assert max(size for _, size in got) == 4 * MIB  # nobody else waits any more
    assert sum(size for sid, size in got if sid == one) == 9 * MIB + 10


def test_a_large_frame_is_fed_as_it_comes_and_its_rest_is_passed_over_once_nobody_wants_it(harness: Any) -> None:
    calls: list[StreamingCall] = []
    got: list[bytes] = []

    def collect(stream: StreamingCall) -> None:
        calls.append(stream)
        stream.on_message = got.append

    peer = harness.Peer({b"/t.T/Write": Streaming(collect)})
    sid = peer.open("/t.T/Write")
    frame = frames.frame(frames.DATA, 0, sid, harness.grpc(b"a" * 70_000) + harness.grpc(b"b" * 100_000)[:60_000])
    peer.send(frame[:75_000])
    assert got == [b"a" * 70_000]
    assert not peer.conn._chunks  # nothing is kept beside the stream
    calls[0].finish()
    peer.send(frame[75_000:] + frames.frame(frames.PING, 0, 0, b"12345678"))
    answered = [one for one in peer.read() if one.kind == frames.PING]
    assert [one.payload for one in answered] == [b"12345678"]
    assert peer.error() is None
    assert peer.server.counters.held == 0

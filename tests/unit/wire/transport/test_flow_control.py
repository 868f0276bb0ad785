"""Windows: never overrun, never stuck, whatever the order in which they open and shrink."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from syncpoint.wire.transport import frames
from syncpoint.wire.transport.calls import Streaming, StreamingCall, Unary
from syncpoint.wire.transport.frames import ErrorCode, SettingId
from syncpoint.wire.transport.limits import TransportLimits
from tests.kit.examples import examples

KIB = 1024


class Receiver:
    """A client that keeps account of what it allowed and what came."""

    def __init__(self, harness: Any, methods: dict, window: int, frame_bytes: int = 16_384) -> None:
        self.peer = harness.Peer(methods, greet=False)
        self.initial = window
        self.connection = 65_535
        self.streams: dict[int, int] = {}
        self.bodies: dict[int, bytearray] = {}
        self.frame_bytes = frame_bytes
        start = frames.settings({SettingId.INITIAL_WINDOW_SIZE: window, SettingId.MAX_FRAME_SIZE: frame_bytes})
        self.peer.send(frames.PREFACE + start)

    def open(self, path: str) -> int:
        sid = self.peer.call(b"", path)
        self.streams[sid] = self.initial
        self.bodies[sid] = bytearray()
        return sid

    def check(self) -> None:
        for frame in self.peer.read():
            if frame.kind == frames.DATA:
                assert len(frame.payload) <= self.frame_bytes
                self.connection -= len(frame.payload)
                self.streams[frame.sid] -= len(frame.payload)
                assert self.connection >= 0
                assert self.streams[frame.sid] >= 0 or not frame.payload
                self.bodies[frame.sid] += frame.payload

    def allow(self, sid: int, more: int) -> None:
        if sid == 0:
            self.connection += more
        else:
            self.streams[sid] += more
        self.peer.send(frames.window_update(sid, more))
        self.check()

    def resize(self, window: int) -> None:
        for sid in self.streams:
            self.streams[sid] += window - self.initial
        self.initial = window
        self.peer.send(frames.settings({SettingId.INITIAL_WINDOW_SIZE: window}))
        self.check()


Parts = bytes | Sequence[bytes | memoryview | bytearray]
parts = st.one_of(
    st.integers(0, 40_000).map(bytes),
    st.lists(st.binary(max_size=3000), max_size=4),
    st.lists(st.integers(0, 20_000).map(bytearray), max_size=3),
    st.lists(st.integers(0, 20_000).map(lambda n: memoryview(bytes(n))), min_size=1, max_size=3),
)


@settings(max_examples=examples(120), deadline=None)
@given(
    messages=st.lists(st.lists(parts, max_size=4), min_size=1, max_size=3),
    window=st.integers(0, 30_000),
    frame_bytes=st.sampled_from([16_384, 20_000]),
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("allow"), st.integers(0, 3), st.integers(1, 30_000)),
            st.tuples(st.just("resize"), st.integers(0, 60_000)),
            st.tuples(st.just("full"), st.integers(0, 20_000)),
            st.tuples(st.just("empty")),
        ),
        max_size=15,
    ),
)
def test_sending(harness: Any, messages: list, window: int, frame_bytes: int, steps: list) -> None:
    streams: list[StreamingCall] = []
    receiver = Receiver(harness, {b"/t.T/Get": Streaming(streams.append)}, window, frame_bytes)
    sids = [receiver.open("/t.T/Get") for _ in messages]
    for stream, wanted in zip(streams, messages, strict=True):
        for message in wanted:
            stream.send(message)
        stream.finish()
    receiver.check()
    socket = receiver.peer.socket
    for step in steps:
        match step:
            case ("allow", index, more):
                sid = 0 if index >= len(sids) else sids[index]
                if sid == 0 or sid in receiver.peer.conn.streams:
                    receiver.allow(sid, more)
            case ("resize", size):
                receiver.resize(size)
            case ("full", room):
                socket.full = room
            case ("empty",):
                socket.empty()
                receiver.check()
    socket.full = None
    socket.empty()
    receiver.check()
    receiver.allow(0, 1 << 24)
    receiver.resize(1 << 20)
    assert not receiver.peer.conn.streams
    for sid, wanted in zip(sids, messages, strict=True):
        flat = [bytes(m) if isinstance(m, bytes) else b"".join(bytes(p) for p in m) for m in wanted]
        assert receiver.bodies[sid] == b"".join(harness.grpc(message) for message in flat)
    assert receiver.peer.conn.unsent_bytes == 0
    assert receiver.peer.error() is None


def test_unary_answers_wait_for_windows_too(harness: Any) -> None:
    receiver = Receiver(harness, {b"/t.T/Get": Unary(lambda call, request: call.reply(bytes(1000)))}, 10)
    sid = receiver.open("/t.T/Get")
    receiver.check()
    assert len(receiver.bodies[sid]) == 10
    receiver.resize(0)  # the stream's window is negative now: ten more than allowed have left
    receiver.allow(sid, 10)
    assert len(receiver.bodies[sid]) == 10
    receiver.allow(sid, 5)
    assert len(receiver.bodies[sid]) == 15
    receiver.resize(65_535)
    assert receiver.bodies[sid] == harness.grpc(bytes(1000))
    assert not receiver.peer.conn.streams


def test_writable_and_taken_back(harness: Any) -> None:
    streams: list[StreamingCall] = []
    receiver = Receiver(harness, {b"/t.T/Get": Streaming(streams.append)}, 1000)
    sid = receiver.open("/t.T/Get")
    (stream,) = streams
    reported: list[bool] = []
    stream.on_writable = lambda: reported.append(stream.writable)
    assert stream.writable
    stream.send(bytes(795), "a")
    stream.send(bytes(795), "b")  # 200 bytes of it leave
    stream.send(bytes(795), "c")
    assert not stream.writable
    stream.send(bytes(795))  # nobody asks what becomes of it
    assert stream.take_back() == ["c"]
    assert stream.take_back() == []
    receiver.check()
    receiver.allow(sid, 100)
    assert reported == []
    receiver.allow(sid, 5000)
    assert reported == [True]
    assert len(receiver.bodies[sid]) == 3 * 800
    assert stream.take_back() == []
    receiver.allow(sid, 5000)
    assert reported == [True]
    stream.send(bytes(100_000), "d")
    stream.send(b"e", "e")
    receiver.check()
    receiver.peer.send(frames.rst_stream(sid, ErrorCode.CANCEL))
    assert stream.take_back() == ["e"]
    assert stream.cancelled
    assert receiver.peer.conn.unsent_bytes == 0


def test_a_full_socket_stops_streams(harness: Any) -> None:
    streams: list[StreamingCall] = []
    peer = harness.Peer({b"/t.T/Get": Streaming(streams.append)})
    peer.send(frames.settings({SettingId.INITIAL_WINDOW_SIZE: 1 << 30}) + frames.window_update(0, 1 << 30))
    peer.call(b"", "/t.T/Get")
    (stream,) = streams
    peer.socket.full = 100 * KIB
    sent = 0

    def pump() -> None:
        nonlocal sent
        while stream.writable and sent < 300:
            stream.send(bytes(50 * KIB), sent)
            sent += 1

    stream.on_writable = pump
    pump()
    peer.loop.run()
    assert 2 < sent < 30
    while sent < 300:
        before = sent
        peer.socket.empty()
        peer.loop.run()
        assert before < sent < before + 30
    peer.socket.full = None
    peer.socket.empty()
    body, _ = peer.answer(1)
    assert len(body) == 300 * (50 * KIB + 5)


def test_streams_share_the_connections_window(harness: Any) -> None:
    streams: list[StreamingCall] = []
    receiver = Receiver(harness, {b"/t.T/Get": Streaming(streams.append)}, 1 << 24)
    sids = [receiver.open("/t.T/Get") for _ in range(3)]
    for stream in streams:
        stream.send(bytes(1 << 20))
    receiver.check()
    receiver.allow(0, 1 << 20)
    receiver.allow(0, 1 << 20)
    sizes = [len(receiver.bodies[sid]) for sid in sids]
    assert min(sizes) > 100 * KIB, sizes


@settings(max_examples=examples(120), deadline=None)
@given(
    sizes=st.lists(st.lists(st.integers(0, 3000), max_size=3), min_size=1, max_size=4),
    pad=st.integers(0, 255),
    chunk=st.integers(1, 1500),
    draw=st.randoms(use_true_random=False),
)
def test_receiving(harness: Any, sizes: list[list[int]], pad: int, chunk: int, draw: Any) -> None:
    """A client that sends only what it is allowed to, in any order over its streams, gets everything through."""
    limits = TransportLimits(stream_window_bytes=1000, receive_extra_bytes=2500, message_bytes=4000)
    got: dict[int, list[int]] = {}

    def handler(stream: StreamingCall) -> None:
        mine = got.setdefault(len(got), [])
        stream.on_message = lambda message: mine.append(len(message))

    peer = harness.Peer({b"/t.T/Put": Streaming(handler)}, limits)
    peer.read()
    windows, left = {}, {}
    for wanted in sizes:
        sid = peer.open("/t.T/Put")
        windows[sid] = 1000
        left[sid] = b"".join(harness.grpc(bytes(n)) for n in wanted)
    while any(left.values()):
        able = [sid for sid in left if left[sid] and windows[sid] > 0]
        assert able, "stuck"
        sid = draw.choice(able)
        room = min(pad, windows[sid] - 2)
        k = min(chunk, windows[sid] - max(0, room + 1), len(left[sid]))
        payload = left[sid][:k]
        if room >= 0:
            payload = bytes((room,)) + payload + bytes(room)
        left[sid] = left[sid][k:]
        windows[sid] -= len(payload)
        peer.send(frames.frame(frames.DATA, frames.PADDED if room >= 0 else 0, sid, payload))
        for frame in peer.read():
            assert frame.kind != frames.RST_STREAM
            if frame.kind == frames.WINDOW_UPDATE and frame.sid:
                windows[frame.sid] += int.from_bytes(frame.payload, "big")
        # Each stream its window; beyond it the budget, or one message of any size.
        assert sum(windows.values()) <= len(windows) * (1000 + pad + 1) + max(2500, 4005)
    assert list(got.values()) == sizes
    assert peer.server.stats["held"] == 0
    assert peer.error() is None


def test_no_window_for_what_is_still_to_be_worked_through(harness: Any) -> None:
    streams: list[StreamingCall] = []

    def handler(stream: StreamingCall) -> None:
        streams.append(stream)
        stream.on_message = lambda message: stream.keep(len(message))

    peer = harness.Peer({b"/t.T/Put": Streaming(handler)}, TransportLimits(stream_window_bytes=1000))
    sid = peer.open("/t.T/Put")
    peer.read()

    def given() -> int:
        updates = [frame for frame in peer.read() if frame.kind == frames.WINDOW_UPDATE and frame.sid == sid]
        return sum(int.from_bytes(frame.payload, "big") for frame in updates)

    for _ in range(2):
        peer.send(frames.frame(frames.DATA, 0, sid, harness.grpc(bytes(480))))
        assert given() == 0
    (stream,) = streams
    stream.keep(-2 * 480)
    assert given() == 2 * 485


def test_the_connections_window_is_given_back(harness: Any) -> None:
    limits = TransportLimits(connection_window_bytes=100_000)
    peer = harness.Peer({b"/t.T/Echo": Unary(lambda call, request: call.reply(b""))}, limits)
    back = 0
    for _ in range(20):
        peer.call(bytes(16_000))
        back += sum(int.from_bytes(f.payload, "big") for f in peer.read() if f.kind == 8 and f.sid == 0)
    assert 20 * 16_005 - 25_000 <= back <= 20 * 16_005

"""Frames on a server's connection: the same bytes mean the same however they are cut; calls are answered once."""

from __future__ import annotations

import zlib
from itertools import pairwise
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from syncpoint.base.model.errors import Code, InvalidArgument, SyncpointError
from syncpoint.wire.transport import frame_loop, frames
from syncpoint.wire.transport.calls import Call, Streaming, StreamingCall, Unary
from syncpoint.wire.transport.frames import ErrorCode
from syncpoint.wire.transport.limits import TransportLimits
from tests.kit.examples import examples


def echo_methods(seen: list | None = None) -> dict[bytes, Unary | Streaming]:
    def echo(call: Call, request: bytes) -> None:
        if seen is not None:
            seen.append((call.path, request, dict(call.metadata)))
        call.reply(request)

    def chat(stream: StreamingCall) -> None:
        stream.on_message = stream.send
        stream.on_end = stream.finish

    return {b"/t.T/Echo": Unary(echo), b"/t.T/Chat": Streaming(chat)}


def test_unary(harness: Any) -> None:
    seen: list = []
    peer = harness.Peer(echo_methods(seen))
    for message in (b"", b"hello", bytes(range(256)) * 200):
        sid = peer.call(message, harness.ECHO, ("x-a", "1"), ("grpc-timeout", "5S"))
        body, fields = peer.answer(sid)
        assert body == harness.grpc(message)
        assert fields == {":status": "200", "content-type": "application/grpc", "grpc-status": "0"}
        assert seen.pop() == (b"/t.T/Echo", message, {b"x-a": b"1"})
    assert not peer.conn.streams


ANSWER_BYTES_MAX = 200  # of what follows
operations = st.lists(
    st.one_of(
        st.tuples(st.just("call"), st.binary(max_size=40), st.integers(1, 20), st.booleans()),
        st.tuples(st.just("chat"), st.lists(st.binary(max_size=30), max_size=4), st.integers(1, 20), st.booleans()),
        st.tuples(st.just("reset"), st.integers(1, 20), st.integers(0, 2)),
        st.tuples(st.just("ping"), st.binary(min_size=8, max_size=8)),
        st.tuples(st.just("junk"), st.integers(10, 255), st.binary(max_size=20)),
        st.tuples(st.just("settings"), st.integers(0, 100_000)),
        st.tuples(st.just("priority")),
    ),
    max_size=12,
)


def padded(kind: int, flags: int, sid: int, payload: bytes, pad: int | None) -> bytes:
    if pad is None:
        return frames.frame(kind, flags, sid, payload)
    return frames.frame(kind, flags | frames.PADDED, sid, bytes((pad,)) + payload + bytes(pad))


def recorded(harness: Any, plan: list) -> bytes:
    """What a client doing `plan` writes, cut into frames of odd sizes, with padding and CONTINUATION.

    Its windows only grow, and it resets nothing where an answer may wait for one: what leaves before a window shrinks,
    or before a reset, would depend on where the bytes are cut.
    """
    peer = harness.Peer({})
    window = min((step[1] for step in plan if step[0] == "settings"), default=frames.WINDOW_DEFAULT)
    answers_leave_at_once = window >= ANSWER_BYTES_MAX
    out = bytearray(frames.PREFACE + frames.settings({frames.SettingId.INITIAL_WINDOW_SIZE: window}))
    for step in plan:
        match step:
            case ("call" | "chat" as kind, content, size, pad):
                path = "/t.T/Echo" if kind == "call" else "/t.T/Chat"
                sid, peer.next_sid = peer.next_sid, peer.next_sid + 2
                block = peer.block(path, ("x-n", str(len(out) % 3)))
                if pad:
                    priority = frames.u32(0) + b"\x10"
                    flags = frames.PRIORITIZED | frames.PADDED
                    out += frames.frame(frames.HEADERS, flags, sid, b"\x02" + priority + block[:size] + b"\0\0")
                    out += frames.frame(frames.CONTINUATION, frames.END_HEADERS, sid, block[size:])
                else:
                    out += frames.headers(sid, block, end=False, frame_bytes=size + 10)
                body = harness.grpc(content) if kind == "call" else b"".join(harness.grpc(m) for m in content)
                for at in range(0, len(body), size):
                    out += padded(frames.DATA, 0, sid, body[at : at + size], 3 if pad else None)
                out += padded(frames.DATA, frames.END_STREAM, sid, b"", 0 if pad else None)
            case ("reset", sid, code) if sid % 2 and sid < peer.next_sid and answers_leave_at_once:
                out += frames.rst_stream(sid, ErrorCode(code))
            case ("ping", payload):
                out += frames.frame(frames.PING, 0, 0, payload)
            case ("junk", kind, payload):
                out += frames.frame(kind, 0xFF, 0, payload)
            case ("settings", wider):
                window = max(window, wider)
                out += frames.settings({frames.SettingId.INITIAL_WINDOW_SIZE: window})
            case ("priority",):
                out += frames.frame(frames.PRIORITY, 0, 1, frames.u32(0) + b"\x01")
            case _:
                pass
    return bytes(out)


def outcome(harness: Any, data: bytes, cuts: list[int]) -> tuple[list, dict, dict, int | None]:
    seen: list = []
    peer = harness.Peer(echo_methods(seen), greet=False)
    edges = [0, *sorted(cuts), len(data)]
    for a, b in pairwise(edges):
        if a < b:
            peer.send(data[a:b])
    # How the answers of several streams mix, and where DATA is cut, depends on which windows were open at a turn's end.
    streams: dict[int, list[tuple[int, int, bytes]]] = {}
    bodies: dict[int, bytes] = {}
    for frame in frames.parse(bytes(peer.socket.written)):
        if frame.kind == frames.DATA:
            bodies[frame.sid] = bodies.get(frame.sid, b"") + frame.payload
        elif frame.kind != frames.WINDOW_UPDATE:
            streams.setdefault(frame.sid, []).append((frame.kind, frame.flags, frame.payload))
    return seen, streams, bodies, peer.error()


@settings(max_examples=examples(150), deadline=None)
@given(plan=operations, draw=st.data(), pieces_from=st.sampled_from([1, 500, frame_loop.PIECES_FROM]))
def test_cutting_the_bytes_changes_nothing(harness: Any, plan: list, draw: st.DataObject, pieces_from: int) -> None:
    data = recorded(harness, plan)
    cuts = draw.draw(st.lists(st.integers(0, len(data)), max_size=20))
    whole = outcome(harness, data, [])
    with patch.object(frame_loop, "PIECES_FROM", pieces_from):
        assert outcome(harness, data, cuts) == whole
        assert outcome(harness, data, list(range(len(data)))) == whole
    assert whole[3] is None


def test_one_turn_is_one_write(harness: Any) -> None:
    peer = harness.Peer(echo_methods())
    peer.call(b"warm")
    data = bytearray()
    for i in range(10):
        data += frames.headers(101 + 2 * i, peer.block(), end=False, frame_bytes=16384)
        data += frames.frame(frames.DATA, frames.END_STREAM, 101 + 2 * i, harness.grpc(b"m"))
    writes = peer.socket.writes
    peer.send(bytes(data))
    assert peer.socket.writes == writes + 1

    late: list[Call] = []
    peer = harness.Peer({b"/t.T/Echo": Unary(lambda call, request: late.append(call))})
    for _ in range(5):
        peer.call(b"x")
    writes = peer.socket.writes
    for call in late:
        call.reply(b"y")
    peer.loop.run()
    assert peer.socket.writes == writes + 1


def raising(error: Exception) -> Unary:
    def handler(call: Call, request: bytes) -> None:
        raise error

    return Unary(handler)


def test_failures_become_statuses(harness: Any, caplog: pytest.LogCaptureFixture) -> None:
    methods = {
        b"/t.T/Bad": raising(InvalidArgument("f", "ä", (b"\x0a\x01t",))),
        b"/t.T/Bug": raising(ZeroDivisionError("secret")),
        b"/t.T/Fail": Unary(lambda call, request: call.fail(SyncpointError(Code.NOT_FOUND, "no"))),
    }
    peer = harness.Peer(methods)
    _, fields = peer.answer(peer.call(b"", "/t.T/Bad"))
    assert (fields["grpc-status"], fields["grpc-message"]) == ("3", "f: %C3%A4")
    assert "grpc-status-details-bin" in fields
    _, fields = peer.answer(peer.call(b"", "/t.T/Bug"))
    assert (fields["grpc-status"], fields["grpc-message"]) == ("13", "Internal error.")
    assert "ZeroDivisionError: secret" in caplog.text
    _, fields = peer.answer(peer.call(b"", "/t.T/Fail"))
    assert fields["grpc-status"] == "5"
    _, fields = peer.answer(peer.call(b"", "/t.T/None"))
    assert fields["grpc-status"] == "12"
    assert "/t.T/None" in fields["grpc-message"]
    assert not peer.conn.streams


def test_a_call_is_answered_once(harness: Any) -> None:
    def twice(call: Call, request: bytes) -> None:
        call.reply(b"1")
        call.reply(b"2")
        call.fail(SyncpointError(Code.INTERNAL, "3"))

    peer = harness.Peer({b"/t.T/Echo": Unary(twice)})
    body, fields = peer.answer(peer.call(b""))
    assert body == harness.grpc(b"1")
    assert fields["grpc-status"] == "0"


@pytest.mark.parametrize("body", [b"", b"\0\0\0\0\5ab", b"\0\0\0\0\1a\0\0\0\0\1b", b"\1\0\0\0\1a"])
def test_bodies_that_are_not_one_message(harness: Any, body: bytes) -> None:
    peer = harness.Peer(echo_methods())
    sid = peer.open()
    peer.data(sid, body, end=True)
    assert peer.answer(sid)[1]["grpc-status"] == "13"
    assert peer.error() is None


def test_gzip_requests(harness: Any) -> None:
    peer = harness.Peer(echo_methods())
    sid = peer.open(harness.ECHO, ("grpc-encoding", "gzip"))
    peer.data(sid, harness.grpc(zlib.compress(b"hello" * 100, wbits=31), flag=1), end=True)
    assert peer.answer(sid)[0] == harness.grpc(b"hello" * 100)


class Watch:
    """A call that is never answered, and what it was reported."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.reported = 0

    def unary(self, call: Call, request: bytes) -> None:
        self.stream(call)

    def stream(self, call: Any) -> None:
        self.calls.append(call)
        call.on_cancel = self.cancel

    def cancel(self) -> None:
        self.reported += 1

    def methods(self) -> dict[bytes, Unary | Streaming]:
        return {b"/t.T/Echo": Unary(self.unary), b"/t.T/Chat": Streaming(self.stream)}


@pytest.mark.parametrize("path", ["/t.T/Echo", "/t.T/Chat"])
def test_a_reset_cancels(harness: Any, path: str) -> None:
    watch = Watch()
    peer = harness.Peer(watch.methods())
    sid = peer.call(b"", path)
    peer.send(frames.rst_stream(sid, ErrorCode.CANCEL))
    assert watch.reported == 1
    assert watch.calls[0].cancelled
    peer.read()
    if path.endswith("Echo"):
        watch.calls[0].reply(b"late")
    else:
        watch.calls[0].send(b"late")
        watch.calls[0].finish()
    assert peer.read() == []
    assert not peer.conn.streams


@pytest.mark.parametrize("path", ["/t.T/Echo", "/t.T/Chat"])
def test_a_lost_connection_cancels(harness: Any, path: str) -> None:
    watch = Watch()
    peer = harness.Peer(watch.methods())
    peer.call(b"", path)
    peer.lose()
    assert watch.reported == 1
    assert peer.server.stats["connections"] == 0


@pytest.mark.parametrize("path", ["/t.T/Echo", "/t.T/Chat"])
def test_deadlines(harness: Any, path: str) -> None:
    watch = Watch()
    peer = harness.Peer(watch.methods())
    late = peer.call(b"", path, ("grpc-timeout", "3S"))
    soon = peer.call(b"", path, ("grpc-timeout", "500m"))
    assert watch.calls[0].deadline == pytest.approx(peer.loop.now + 3)
    peer.loop.advance(0.4)
    assert watch.reported == 0
    peer.loop.advance(0.2)
    assert watch.reported == 1
    assert peer.answer(soon)[1]["grpc-status"] == "4"
    peer.loop.advance(3)
    assert watch.reported == 2
    assert peer.answer(late)[1]["grpc-status"] == "4"
    assert not peer.conn.streams


def test_a_deadline_after_the_answer_is_nothing(harness: Any) -> None:
    peer = harness.Peer(echo_methods())
    sid = peer.call(b"x", harness.ECHO, ("grpc-timeout", "1S"))
    assert peer.answer(sid)[1]["grpc-status"] == "0"
    peer.loop.advance(5)
    assert peer.read() == []


def test_a_stream_ended_early_reports_the_client_to_stop(harness: Any) -> None:
    def refuse(stream: StreamingCall) -> None:
        stream.on_message = lambda message: stream.finish(InvalidArgument("", "no"))

    peer = harness.Peer({b"/t.T/Chat": Streaming(refuse)})
    sid = peer.open("/t.T/Chat")
    peer.data(sid, harness.grpc(b"x"))
    got = peer.read()
    assert [f.kind for f in got] == [frames.HEADERS, frames.HEADERS, frames.RST_STREAM]
    assert got[-1].payload == frames.u32(ErrorCode.NO_ERROR)
    peer.data(sid, harness.grpc(b"y"))
    peer.data(sid, b"", end=True)
    assert peer.read() == []
    assert peer.error() is None


def test_requests_that_are_not_grpc(harness: Any) -> None:
    peer = harness.Peer(echo_methods())
    block = peer.encoder.encode([(":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "x")])
    peer.send(frames.headers(1, block, end=True, frame_bytes=16384))
    body, fields = peer.answer(1)
    assert fields[":status"] == "415"
    assert b"gRPC" in body


def test_requests_that_are_not_grpc_go_to_http1_where_tls_offers_it(harness: Any) -> None:
    peer = harness.Peer(echo_methods())
    peer.server.on_fallback = object
    plain = [(":method", "POST"), (":scheme", "https"), (":path", "/v1/x"), (":authority", "x")]
    peer.send(frames.headers(1, peer.encoder.encode(plain), end=True, frame_bytes=16384))
    assert peer.answer(1)[1][":status"] == "415"  # without TLS nobody could have chosen

    peer.socket.get_extra_info = lambda name, default=None: object() if name == "sslcontext" else default
    peer.send(frames.headers(3, peer.encoder.encode(plain), end=False, frame_bytes=16384))
    assert peer.read() == []
    peer.data(3, b"{}", end=True)
    (reset,) = (f for f in peer.read() if f.kind != frames.WINDOW_UPDATE)
    assert (reset.kind, reset.sid, reset.payload) == (frames.RST_STREAM, 3, frames.u32(ErrorCode.HTTP_1_1_REQUIRED))
    assert not peer.conn.streams
    assert not peer.conn.closed


def test_another_protocol_is_handed_over(harness: Any) -> None:
    class Http:
        def __init__(self) -> None:
            self.events: list[Any] = []

        def __getattr__(self, name: str) -> Any:
            return lambda *arguments: self.events.append((name, *arguments))

    peer = harness.Peer(echo_methods(), greet=False)
    http = Http()
    peer.server.on_fallback = lambda: http
    peer.send(b"PR")
    assert http.events == []
    peer.send(b"OPFIND / HTTP/1.1\r\n")
    peer.send(b"more")
    peer.conn.pause_writing()
    peer.conn.resume_writing()
    peer.lose()
    assert http.events == [
        ("connection_made", peer.socket),
        ("data_received", b"PROPFIND / HTTP/1.1\r\n"),
        ("data_received", b"more"),
        ("pause_writing",),
        ("resume_writing",),
        ("connection_lost", None),
    ]
    assert peer.socket.written == b""


def test_without_a_fallback_the_connection_ends(harness: Any) -> None:
    peer = harness.Peer(echo_methods(), greet=False)
    peer.send(b"GET / HTTP/1.1\r\n\r\n")
    assert peer.error() == ErrorCode.PROTOCOL_ERROR


def test_settings_of_the_server(harness: Any) -> None:
    limits = TransportLimits(concurrent_streams=7)
    peer = harness.Peer({}, limits, greet=False)
    peer.send(frames.PREFACE + frames.settings({}))
    values = dict(frames.read_settings(peer.read()[0].payload))
    assert values == {3: 7, 4: limits.stream_window_bytes, 5: limits.frame_bytes, 6: limits.header_list_bytes}


def test_who_says_nothing_is_sent_no_frame(harness: Any) -> None:
    """A browser keeps a connection ready, and reads on it what it takes for an answer of HTTP/1.1."""
    limits = TransportLimits()
    peer = harness.Peer(echo_methods(), limits, greet=False)
    peer.conn.sweep(peer.loop.time() + limits.greeting_s + 1)
    assert peer.socket.written == b""
    assert peer.socket.closed

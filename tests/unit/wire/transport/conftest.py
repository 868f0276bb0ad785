"""A connection without sockets, clocks and tasks: time is a number, the socket a list, frames are written by hand."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any

import pytest
from hpack import Decoder, Encoder

from syncpoint.base.runtime import clock
from syncpoint.wire.transport import frames
from syncpoint.wire.transport.calls import Methods
from syncpoint.wire.transport.limits import TransportLimits
from syncpoint.wire.transport.server import Server
from syncpoint.wire.transport.server_connection import ServerConnection

ECHO = "/t.T/Echo"


class Handle:
    def __init__(self, when: float, call: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        self.when, self.call, self.arguments, self.cancelled = when, call, arguments, False

    def cancel(self) -> None:
        self.cancelled = True

    def __lt__(self, other: Handle) -> bool:
        return self.when < other.when


class ManualLoop:
    """The few things of an event loop that a connection uses. Nothing runs but in `run` and `advance`."""

    def __init__(self) -> None:
        self.now = 1000.0
        self._soon: list[Handle] = []
        self._later: list[Handle] = []

    def time(self) -> float:
        return self.now

    def call_soon(self, call: Callable[..., Any], *arguments: Any) -> Handle:
        handle = Handle(self.now, call, arguments)
        self._soon.append(handle)
        return handle

    def call_at(self, when: float, call: Callable[..., Any], *arguments: Any) -> Handle:
        handle = Handle(when, call, arguments)
        heapq.heappush(self._later, handle)
        return handle

    def call_later(self, delay: float, call: Callable[..., Any], *arguments: Any) -> Handle:
        return self.call_at(self.now + delay, call, *arguments)

    def run(self) -> None:
        while self._soon or (self._later and self._later[0].when <= self.now):
            ready, self._soon = self._soon, []
            while self._later and self._later[0].when <= self.now:
                ready.append(heapq.heappop(self._later))
            for handle in ready:
                if not handle.cancelled:
                    handle.call(*handle.arguments)

    def advance(self, seconds: float) -> None:
        end = self.now + seconds
        self.run()
        while self._later and self._later[0].when <= end:
            self.now = max(self.now, self._later[0].when)
            self.run()
        self.now = end


class FakeSocket:
    """A transport that keeps what is written. `full`: bytes it takes before it says that it is full (None: never)."""

    def __init__(self) -> None:
        self.written = bytearray()
        self.writes = 0
        self.closed = self.aborted = False
        self.full: int | None = None
        self.protocol: Any = None
        self._buffered = 0
        self._paused = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("192.0.2.1", 4711) if name == "peername" else default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return self._buffered

    def is_closing(self) -> bool:
        return self.closed

    def write(self, data: bytes) -> None:
        self.writes += 1
        self.written += data
        if self.full is not None:
            self._buffered += len(data)
            if self._buffered > self.full and not self._paused:
                self._paused = True
                self.protocol.pause_writing()

    def writelines(self, pieces: list[bytes]) -> None:
        self.write(b"".join(pieces))

    def empty(self) -> None:
        """The peer reads everything."""
        self._buffered = 0
        if self._paused:
            self._paused = False
            self.protocol.resume_writing()

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = self.aborted = True


class Peer:
    """A client written by hand, against a server's connection."""

    def __init__(
        self, methods: Methods, limits: TransportLimits | None = None, *, greet: bool = True, server: Any = None
    ) -> None:
        self.loop = server._loop if server else ManualLoop()
        self.server = server or Server(methods, limits or TransportLimits(), None, self.loop)
        self.conn = ServerConnection(self.loop, self.server)
        self.socket = FakeSocket()
        self.socket.protocol = self.conn
        self.encoder = Encoder()
        self._decoder = Decoder()
        self._read = 0
        self.next_sid = 1
        self.conn.connection_made(self.socket)
        if greet:
            self.send(frames.PREFACE + frames.settings({}))
            self.read()

    def send(self, data: bytes) -> None:
        self.conn.data_received(data)
        self.loop.run()

    def read(self) -> list[frames.Frame]:
        """Frames written since the last call."""
        self.loop.run()
        new = bytes(self.socket.written[self._read :])
        got = list(frames.parse(new))
        self._read += sum(9 + len(frame.payload) for frame in got)
        return got

    def block(self, path: str = ECHO, *extra: tuple[str, str]) -> bytes:
        fields = [(":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "x"), ("te", "trailers")]
        return self.encoder.encode([*fields, ("content-type", "application/grpc"), *extra])

    def open(self, path: str = ECHO, *extra: tuple[str, str], end: bool = False) -> int:
        """HEADERS of a new stream; returns its number."""
        sid = self.next_sid
        self.next_sid += 2
        self.send(frames.headers(sid, self.block(path, *extra), end=end, frame_bytes=16384))
        return sid

    def data(self, sid: int, payload: bytes, *, end: bool = False) -> None:
        self.send(frames.frame(frames.DATA, frames.END_STREAM if end else 0, sid, payload))

    def call(self, message: bytes, path: str = ECHO, *extra: tuple[str, str]) -> int:
        """A whole unary request in frames of 16 KiB."""
        sid = self.open(path, *extra)
        body = grpc(message)
        for at in range(0, len(body), 16384):
            self.data(sid, body[at : at + 16384], end=at + 16384 >= len(body))
        return sid

    def answer(self, sid: int, got: list[frames.Frame] | None = None) -> tuple[bytes, dict[str, str]]:
        """Body and fields of the answer on a stream, out of frames read."""
        body, fields = b"", {}
        for frame in self.read() if got is None else got:
            if frame.kind == frames.HEADERS:
                decoded = self._decoder.decode(frame.payload)
                if frame.sid == sid:
                    fields.update(decoded)
            elif frame.kind == frames.DATA and frame.sid == sid:
                body += frame.payload
        return body, fields

    def error(self) -> int | None:
        """Code of the GOAWAY that ended the connection; None when it lives."""
        codes = [int.from_bytes(f.payload[4:8], "big") for f in self.read() if f.kind == frames.GOAWAY]
        if not self.conn.closed:
            return None
        assert self.socket.closed
        return codes[-1] if codes else 0

    def lose(self) -> None:
        """The socket breaks."""
        self.socket.closed = True
        self.conn.connection_lost(None)
        self.loop.run()


def grpc(message: bytes, flag: int = 0) -> bytes:
    """A message with its prefix."""
    return bytes((flag,)) + len(message).to_bytes(4, "big") + message


class Harness:
    """What tests take from here."""

    ManualLoop, FakeSocket, Peer, ECHO = ManualLoop, FakeSocket, Peer, ECHO
    grpc = staticmethod(grpc)


@pytest.fixture(scope="session")
def harness() -> type[Harness]:
    return Harness


@pytest.fixture(autouse=True)
def beats(monkeypatch: pytest.MonkeyPatch) -> None:
    """At whole seconds, whatever the number of this process is."""
    monkeypatch.setattr(clock, "_PHASE_S", 0.0)

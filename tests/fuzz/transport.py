"""Mutated byte streams against both ends of the transport.

    python -m tests.fuzz.transport --inputs 20000 --seed 1     # the same seed gives the same inputs
    python -m tests.fuzz.transport --record                    # record the corpus anew, from gRPC's own Python client
and ours

The corpus is what clients wrote and what our server answered (transport_corpus/*.bin). An input is one of them, or
two spliced, with frames dropped, repeated, moved or changed and bits flipped, fed in random pieces. After every
input, whatever it was: no exception got to the connection, every call has ended once, no byte is still counted as
held or waiting, and a connection that was not closed still answers a PING.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

from syncpoint.base.model.errors import SyncpointError
from syncpoint.wire.transport import frame_loop, frames
from syncpoint.wire.transport.calls import Call, Streaming, StreamingCall, Unary
from syncpoint.wire.transport.client_connection import ClientConnection, ClientStreamState
from syncpoint.wire.transport.limits import TransportLimits
from syncpoint.wire.transport.receive_budget import Counters
from syncpoint.wire.transport.server_connection import ServerConnection
from tests.unit.wire.transport import conftest as harness

CORPUS = Path(__file__).parent / "transport_corpus"
SMALL = TransportLimits(
    message_bytes=30_000,
    frame_bytes=16_384,
    header_block_bytes=4_000,
    header_list_bytes=3_000,
    header_list_bytes_hard=8_000,
    header_cache_blocks=4,
    stream_window_bytes=5_000,
    connection_window_bytes=100_000,
    receive_extra_bytes=20_000,
    held_bytes=60_000,
    unsent_bytes=200_000,
    concurrent_streams=8,
    resets_per_interval=20,
    settings_per_interval=20,
    pings_per_interval=30,
    empties_per_interval=30,
    updates_per_interval=200,
)
"""Limits small enough for mutations to reach them."""
WIDE = TransportLimits(resets_per_interval=200, pings_per_interval=200)
"""Limits under which the corpus was recorded, so that most of an input gets through."""


class Complaints(logging.Handler):
    """Collects what the transport logs as its own failure."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(self.format(record))


class Calls:
    """Methods that note how every call ended."""

    def __init__(self, chance: random.Random) -> None:
        self.open: set[Any] = set()
        self.twice = 0
        self._chance = chance
        self.waiting: list[Call] = []
        self.methods = {
            b"/t.T/Echo": Unary(lambda call, request: call.reply(request)),
            b"/t.T/Slow": Unary(self.slow),
            b"/t.T/Chat": Streaming(self.chat),
            b"/t.T/Flood": Streaming(self.flood),
        }

    def begin(self, call: Any) -> None:
        self.open.add(call)
        call.on_cancel = lambda: self.end(call)

    def end(self, call: Any) -> None:
        if call not in self.open:
            self.twice += 1
        self.open.discard(call)

    def slow(self, call: Call, request: bytes) -> None:
        self.begin(call)
        self.waiting.append(call)

    def answer_some(self) -> None:
        while self.waiting and self._chance.random() < 0.5:
            call = self.waiting.pop()
            if not call.cancelled:
                self.end(call)
                call.reply([b"late", bytes(self._chance.randrange(9_000))])

    def chat(self, stream: StreamingCall) -> None:
        self.begin(stream)

        def finish() -> None:
            # A stream that finished may still be notified that its last bytes did not leave.
            self.end(stream)
            stream.on_cancel = None
            stream.finish()

        stream.on_message = stream.send
        stream.on_end = finish
        stream.on_drain = finish

    def flood(self, stream: StreamingCall) -> None:
        self.begin(stream)
        left = [20]

        def pump() -> None:
            while left[0] and stream.writable:
                stream.send(bytes(self._chance.randrange(6_000)), left[0])
                left[0] -= 1
            if not left[0] and stream in self.open:
                self.end(stream)
                stream.on_cancel = None
                stream.finish()

        stream.on_writable = pump
        pump()


def split(data: bytes) -> list[bytes]:
    """A byte stream as frames, with the preface and a broken rest as pieces of their own."""
    start = len(frames.PREFACE) if data.startswith(frames.PREFACE) else 0
    pieces = [data[:start]] if start else []
    for frame in frames.parse(data[start:]):
        end = start + 9 + len(frame.payload)
        pieces.append(data[start:end])
        start = end
    return pieces + ([data[start:]] if start < len(data) else [])


def mutate(chance: random.Random, corpus: list[bytes]) -> bytes:
    """One input."""
    pieces = split(chance.choice(corpus))
    if chance.random() < 0.3:
        other = split(chance.choice(corpus))
        at = chance.randrange(len(pieces) + 1)
        pieces[at:] = other[chance.randrange(len(other)) :]
    for _ in range(chance.choice((0, 1, 1, 2, 4, 8, 30))):
        if not pieces:
            break
        at = chance.randrange(len(pieces))
        piece = bytearray(pieces[at])
        match chance.randrange(10):
            case 0:
                del pieces[at]
                continue
            case 1:
                pieces[at:at] = [bytes(piece)] * chance.choice((1, 1, 2, 40))
                continue
            case 2:
                pieces.insert(chance.randrange(len(pieces)), pieces.pop(at))
                continue
            case 3 if len(piece) >= 9:
                piece[3] = chance.randrange(11)
            case 4 if len(piece) >= 9:
                piece[4] ^= 1 << chance.randrange(8)
            case 5 if len(piece) >= 9:
                piece[5:9] = chance.choice((0, 1, 2, 3, 5, 7, 9, 0x7FFFFFFF, 0x80000001)).to_bytes(4, "big")
            case 6 if len(piece) > 9:
                del piece[chance.randrange(9, len(piece)) :]
                piece[:3] = (len(piece) - 9).to_bytes(3, "big")
            case 7 if len(piece) >= 9:
                piece += chance.randbytes(chance.choice((1, 5, 300)))
                piece[:3] = (len(piece) - 9).to_bytes(3, "big")
            case 8:
                payload = chance.choice((b"", chance.randbytes(4), chance.randbytes(8), chance.randbytes(60)))
                sid = chance.choice((0, 1, 3, 5))
                pieces.insert(at, frames.frame(chance.randrange(10), chance.randrange(256), sid, payload))
                continue
            case _:
                for _ in range(chance.choice((1, 1, 4))):
                    if piece:
                        piece[chance.randrange(len(piece))] ^= 1 << chance.randrange(8)
        pieces[at] = bytes(piece)
    data = b"".join(pieces)
    return data[: chance.randrange(len(data) + 1)] if chance.random() < 0.1 else data


def feed(chance: random.Random, conn: Any, socket: Any, loop: Any, data: bytes, between: Callable[[], None]) -> None:
    """The input in pieces, with time passing and the socket filling and emptying between them."""
    at = 0
    while at < len(data) and not socket.closed:
        size = chance.choice((1, 9, 50, 1000, 100_000))
        conn.data_received(data[at : at + size])
        at += size
        if chance.random() < 0.2:
            loop.advance(chance.choice((0.0, 0.5, 30.0)))
        if chance.random() < 0.1:
            socket.full = chance.choice((None, 0, 5_000))
        if chance.random() < 0.2:
            socket.empty()
        between()
        loop.run()


def answers_ping(conn: Any, socket: Any, loop: Any) -> bool:
    """Whether a connection that is open and between two frames still answers."""
    socket.full = None
    socket.empty()
    before = len(socket.written)
    conn.data_received(frames.frame(frames.PING, 0, 0, b"are you?"))
    loop.run()
    return conn.closed or frames.frame(frames.PING, frames.ACK, 0, b"are you?") in bytes(socket.written[before:])


def check_server(chance: random.Random, data: bytes) -> None:
    """Feed one input to a server's connection; raises AssertionError when a promise is broken."""
    calls = Calls(chance)
    peer = harness.Peer(calls.methods, chance.choice((SMALL, WIDE)), greet=False)
    conn: ServerConnection = peer.conn
    feed(chance, conn, peer.socket, peer.loop, data, calls.answer_some)
    if chance.random() < 0.3:
        conn.drain()
        peer.loop.run()
    between_frames = (
        conn._preface is None and not conn._chunks and not conn._rest and conn._block is None and not conn.draining
    )
    if not conn.closed and between_frames:
        assert answers_ping(conn, peer.socket, peer.loop), "stuck"
    out = bytes(peer.socket.written)
    assert sum(9 + len(f.payload) for f in frames.parse(out)) == len(out), "we wrote half a frame"
    peer.lose()
    assert not calls.open, "a call was never notified of its end"
    assert calls.twice == 0, "a call was reported twice"
    ended(conn, peer.server.counters)
    assert peer.server.stats["connections"] == 0


def check_client(chance: random.Random, data: bytes) -> None:
    """Feed one input to a client's connection as the server's side of it."""
    loop = harness.ManualLoop()
    loop.create_future = asyncio.Future
    totals = Counters()
    conn = ClientConnection(loop, chance.choice((SMALL, WIDE)), totals, lambda _: None)
    socket = harness.FakeSocket()
    socket.protocol = conn
    conn.connection_made(socket)
    results: list[int] = []

    def call(request: bytes | None) -> None:
        number = len(results)
        results.append(0)

        def finished(error: SyncpointError | None) -> None:
            results[number] += 1

        stream = ClientStreamState(conn, b"\x83\x86\x84", request, lambda payload: None, finished)
        conn.start(stream)
        if request is None and not stream.done and stream.sid:
            stream.send_message(bytes(chance.randrange(9_000)))

    for _ in range(4):
        call(chance.choice((None, b"", b"x" * 20, bytes(20_000))))
    loop.run()
    feed(chance, conn, socket, loop, data, lambda: call(b"") if chance.random() < 0.1 else None)
    if not conn.closed and not conn._chunks and not conn._rest and conn._block is None and conn.usable:
        assert answers_ping(conn, socket, loop), "stuck"
    conn.connection_lost(None)
    loop.run()
    assert set(results) == {1}, "a call did not end once"
    ended(conn, totals)


def ended(conn: Any, totals: Counters) -> None:
    """Nothing is left of a connection that is gone."""
    assert not conn.streams, "a stream is left"
    assert totals.held == 0, "bytes still count as held"
    assert conn.unsent_bytes == 0, "bytes still count as waiting"
    assert conn.incoming.lent == 0, "window still counts as lent"


def run(inputs: int, seed: int) -> int:
    """Check `inputs` inputs; returns how many bytes they were. Raises AssertionError for the first bad one."""
    requests = [path.read_bytes() for path in sorted(CORPUS.glob("client_*.bin"))]
    answers = [path.read_bytes() for path in sorted(CORPUS.glob("server_*.bin"))]
    assert requests
    assert answers
    complaints = Complaints()
    log = logging.getLogger("syncpoint.wire.transport")
    log.addHandler(complaints)
    total = 0
    try:
        asyncio.set_event_loop(asyncio.new_event_loop())
        for number in range(inputs):
            chance = random.Random(f"{seed}.{number}")
            client = number % 3 == 2
            data = mutate(chance, answers if client else requests)
            total += len(data)
            try:
                with patch.object(frame_loop, "PIECES_FROM", chance.choice((1, 100, frame_loop.PIECES_FROM))):
                    (check_client if client else check_server)(chance, data)
                assert not complaints.texts, complaints.texts[0]
            except Exception as error:
                raise AssertionError(f"input {number} of seed {seed} ({len(data)} bytes): {error}") from error
    finally:
        log.removeHandler(complaints)
        asyncio.get_event_loop().close()
        asyncio.set_event_loop(None)
    return total


def record() -> None:
    """Write the corpus: what gRPC's own client and ours say, and what our server answers."""
    import threading

    import grpc

    from syncpoint.wire.transport.client import Channel
    from syncpoint.wire.transport.server import serve

    def calls_of_grpcio(port: int) -> None:
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            echo = channel.unary_unary("/t.T/Echo")
            for i in range(4):
                echo(b"m" * i, timeout=5, metadata=[("x-goog-request-params", "topic=t"), ("x-bin", b"\0\1")])
            echo(b"text" * 300, compression=grpc.Compression.Gzip)
            echo(bytes(20_000))
            list(channel.stream_stream("/t.T/Chat")(iter([b"a", b"", b"b" * 700])))
            list(channel.unary_stream("/t.T/Flood")(b""))
            try:
                channel.unary_unary("/t.T/None")(b"")
            except grpc.RpcError:
                channel.unary_unary("/t.T/Slow").future(b"").cancel()

    async def calls_of_ours(port: int) -> None:
        channel = Channel("127.0.0.1", port)
        await asyncio.gather(*(channel.unary("/t.T/Echo", bytes(i * 900), timeout=5) for i in range(4)))
        stream = channel.stream("/t.T/Chat")
        for size in (0, 5, 12_000):
            await stream.send(bytes(size))
            await stream.receive()
        await stream.end()
        await stream.receive()
        flood = channel.stream("/t.T/Flood")
        while await flood.receive() is not None:
            pass
        stream = channel.stream("/t.T/Chat")
        await stream.send(b"x")
        stream.cancel()
        await channel.close()

    async def main() -> None:
        for name in ("grpcio", "ours"):
            received, said = bytearray(), bytearray()
            server = await serve(Calls(random.Random(1)).methods)
            make = server.make_connection

            def tapped(make: Any = make, received: bytearray = received, said: bytearray = said) -> ServerConnection:
                conn = make()
                receive, write = conn.data_received, conn._write

                def data_received(data: bytes) -> None:
                    received.extend(data)
                    receive(data)

                def _write(out: list, total: int) -> None:
                    said.extend(b"".join(out))
                    write(out, total)

                conn.data_received, conn._write = data_received, _write  # type: ignore[method-assign]
                return conn

            server._listeners[0].close()
            server._listeners = [await asyncio.get_running_loop().create_server(tapped, "127.0.0.1", 0)]
            port = server._listeners[0].sockets[0].getsockname()[1]
            if name == "grpcio":
                thread = threading.Thread(target=calls_of_grpcio, args=(port,))
                thread.start()
                await asyncio.to_thread(thread.join)
            else:
                await calls_of_ours(port)
            await server.close()
            CORPUS.mkdir(exist_ok=True)
            (CORPUS / f"client_{name}.bin").write_bytes(received)
            (CORPUS / f"server_{name}.bin").write_bytes(said)
            print(name, len(received), len(said))

    asyncio.run(main())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--record", action="store_true")
    chosen = parser.parse_args()
    if chosen.record:
        record()
    else:
        print(f"{chosen.inputs} inputs, {run(chosen.inputs, chosen.seed)} bytes: all promises kept")

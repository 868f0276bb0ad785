"""One suite for both channels: over a socket, and in memory. What passes in a simulation must pass in the harness."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import uvloop

from syncpoint.base.model.errors import Code, NotFound, StaleEpoch, SyncpointError, Unavailable, Unprocessed
from syncpoint.base.runtime.random import SeededRandom
from syncpoint.testing.rigs.plain_tests import on_loop, plain_test
from syncpoint.wire.transport.calls import Call, Streaming, StreamingCall, Unary
from syncpoint.wire.transport.client import Channel
from syncpoint.wire.transport.memory import Faults, MemoryChannel
from syncpoint.wire.transport.server import serve
from syncpoint.wire.transport.tasks import unary_async
from tests.kit.errors import failing


class Service:
    """Methods that do one odd thing each."""

    def __init__(self) -> None:
        self.cancelled = 0
        self.metadata: dict[bytes, bytes] = {}
        self.methods = {
            b"/t.T/Echo": Unary(self.echo),
            b"/t.T/Missing": Unary(self.missing),
            b"/t.T/Bug": Unary(lambda call, request: 1 / 0),  # type: ignore[arg-type,return-value]
            b"/t.T/Refuse": Unary(self.refuse),
            b"/t.T/Slow": unary_async(self.slow),
            b"/t.T/Chat": Streaming(self.chat),
            b"/t.T/Count": Streaming(self.count),
        }

    def echo(self, call: Call, request: bytes) -> None:
        self.metadata = call.metadata
        call.reply([request, memoryview(request)])

    def missing(self, call: Call, request: bytes) -> None:
        error = NotFound("projects/p/topics/ä")
        error.details = (b"one", b"two")
        raise error

    def refuse(self, call: Call, request: bytes) -> None:
        raise StaleEpoch("not now") if request == b"epoch" else Unprocessed("somebody else did not begin it")

    async def slow(self, call: Call, request: bytes) -> bytes:
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return b""

    def chat(self, stream: StreamingCall) -> None:
        def message(payload: bytes) -> None:
            if payload == b"fail":
                raise NotFound("x")
            stream.send(payload)

        stream.on_message = message
        stream.on_end = stream.finish
        stream.on_cancel = self.note

    def note(self) -> None:
        self.cancelled += 1

    def count(self, stream: StreamingCall) -> None:
        left = list(range(400))

        def pump() -> None:
            while left and stream.writable:
                stream.send(left.pop(0).to_bytes(2, "big") * 5000)
            if not left:
                stream.finish()

        stream.on_writable = pump
        pump()


Test = Callable[[Any, Service], Awaitable[None]]


def over_socket(test: Test) -> None:
    async def main() -> None:
        service = Service()
        server = await serve(service.methods)
        channel = Channel("127.0.0.1", server.port)
        try:
            await asyncio.wait_for(test(channel, service), 20)
        finally:
            await channel.close()
            await server.drain(5)
        assert server.stats["connections"] == server.stats["faults"] == server.stats["held"] == 0

    uvloop.run(main())


def in_memory(test: Test) -> None:
    async def main() -> None:
        service = Service()
        channel = MemoryChannel(service.methods, Faults(SeededRandom(1), delay_s_max=0.001))
        await asyncio.wait_for(test(channel, service), 20)
        await channel.close()

    asyncio.run(main())


@pytest.fixture(params=[over_socket, in_memory])
def harness_of(request: pytest.FixtureRequest) -> Callable[[Test], None]:
    return request.param


def over(test: Test, *, harness_of: Callable[[Test], None]) -> None:
    harness_of(test)


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.001)


@plain_test(over)
async def test_unary(channel: Any, service: Service) -> None:
    metadata = [(b"x-a", b"1"), (b"t-bin", b"\x00\xff")]
    assert await channel.unary("/t.T/Echo", b"ab", metadata=metadata, timeout=5) == b"abab"
    assert service.metadata == dict(metadata)
    for size in (0, 20_000, 5_000_000):
        assert len(await channel.unary("/t.T/Echo", [bytes(size), b"!"])) == 2 * (size + 1)
    many = await asyncio.gather(*(channel.unary("/t.T/Echo", b"%d" % i) for i in range(300)))
    assert many == [b"%d%d" % (i, i) for i in range(300)]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_failures(harness_of: Callable[[Test], None], caplog: pytest.LogCaptureFixture) -> None:
    async def test(channel: Any, service: Service) -> None:
        error = await failing(channel.unary("/t.T/Missing", b""))
        assert (error.code, error.message) == (Code.NOT_FOUND, "Resource not found (resource=projects/p/topics/ä).")
        assert error.details == (b"one", b"two")
        assert type(await failing(channel.unary("/t.T/Refuse", b"epoch"))) is StaleEpoch
        assert type(await failing(channel.unary("/t.T/Refuse", b""))) is Unavailable, "this call was begun"
        assert (await failing(channel.unary("/t.T/Bug", b""))).code == Code.INTERNAL
        assert (await failing(channel.unary("/t.T/None", b""))).code == Code.UNIMPLEMENTED

    harness_of(test)
    assert "ZeroDivisionError" in caplog.text


@plain_test(over)
async def test_deadlines_and_cancellation(channel: Any, service: Service) -> None:
    assert (await failing(channel.unary("/t.T/Slow", b"", timeout=0.05))).code == Code.DEADLINE_EXCEEDED
    await until(lambda: service.cancelled == 1)
    task = asyncio.create_task(channel.unary("/t.T/Slow", b""))
    await channel.unary("/t.T/Echo", b"")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(lambda: service.cancelled == 2)


@plain_test(over)
async def test_streams(channel: Any, service: Service) -> None:
    stream = channel.stream("/t.T/Chat", timeout=10)
    for i in range(50):
        await stream.send(b"%d" % i * i)
    for i in range(50):
        assert await stream.receive() == b"%d" % i * i
    await stream.end()
    assert await stream.receive() is None
    assert await stream.receive() is None
    assert (await failing(stream.send(b"late"))).code == Code.UNAVAILABLE

    stream = channel.stream("/t.T/Count")
    for i in range(400):
        assert await stream.receive() == i.to_bytes(2, "big") * 5000
    assert await stream.receive() is None


@plain_test(over)
async def test_streams_that_fail(channel: Any, service: Service) -> None:
    stream = channel.stream("/t.T/Chat")
    await stream.send(b"ok")
    await stream.send(b"fail")
    assert await stream.receive() == b"ok"
    assert (await failing(stream.receive())).code == Code.NOT_FOUND
    reported = service.cancelled

    stream = channel.stream("/t.T/Chat")
    await stream.send(b"x")
    await stream.receive()
    stream.cancel()
    assert (await failing(stream.receive())).code == Code.CANCELLED
    await until(lambda: service.cancelled == reported + 1)

    stream = channel.stream("/t.T/Chat", timeout=0.05)
    assert (await failing(stream.receive())).code == Code.DEADLINE_EXCEEDED
    assert (await failing(channel.stream("/t.T/None").receive())).code == Code.UNIMPLEMENTED


@plain_test(over_socket)
async def test_a_reader_that_stops_holds_the_writer_back(channel: Any, service: Service) -> None:
    stream = channel.stream("/t.T/Chat")
    sent = 0

    async def write() -> None:
        nonlocal sent
        while sent < 400:
            await stream.send(bytes(50_000))
            sent += 1
        await stream.end()

    writer = asyncio.create_task(write())
    before = -1
    while sent != before:  # until neither windows nor buffers take more
        before = sent
        await asyncio.sleep(0.1)
    # Our unread window on the way back; the server echoes without asking `writable`, so it holds the rest.
    assert len(stream._inbox) * 50_000 < 600_000
    count = 0
    while await stream.receive() is not None:
        count += 1
    await writer
    assert count == 400


def test_memory_loses_by_seed() -> None:
    async def run(seed: int) -> list[bytes | Code]:
        service = Service()
        channel = MemoryChannel(service.methods, Faults(SeededRandom(seed), delay_s_max=0.0005, loss=0.3))
        out: list[bytes | Code] = []
        for i in range(40):
            try:
                out.append(await channel.unary("/t.T/Echo", b"%d" % i))
            except SyncpointError as error:
                out.append(error.code)
        return out

    first = asyncio.run(run(1))
    assert asyncio.run(run(1)) == first
    assert asyncio.run(run(2)) != first
    assert Code.UNAVAILABLE in first
    assert 5 < first.count(Code.UNAVAILABLE) < 35


@on_loop
async def test_memory_cut_off() -> None:
    faults = Faults(SeededRandom(1))
    service = Service()
    channel = MemoryChannel(service.methods, faults)
    stream = channel.stream("/t.T/Chat")
    await stream.send(b"x")
    assert await stream.receive() == b"x"
    faults.cut = True
    assert (await failing(channel.unary("/t.T/Echo", b""))).code == Code.UNAVAILABLE
    await stream.send(b"y")
    assert (await failing(stream.receive())).code == Code.UNAVAILABLE
    assert service.cancelled == 1
    faults.cut = False
    assert await channel.unary("/t.T/Echo", b"z") == b"zz"


@plain_test(over)
async def test_a_large_message_may_be_taken_as_the_pieces_in_which_it_came(channel: Any, service: Service) -> None:
    stream = channel.stream("/t.T/Chat")
    sent = [b"%07d" % i * 100_000 for i in range(4)]
    for message in sent:
        await stream.send(message)
    await stream.end()
    came = [await stream.receive_parts() for _ in range(3)]
    assert [b"".join(one) if isinstance(one, list) else one for one in came] == sent[:3]
    assert await stream.receive() == sent[3]
    assert await stream.receive_parts() is None

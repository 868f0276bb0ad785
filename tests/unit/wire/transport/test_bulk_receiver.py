"""Large frames over real sockets: whatever is cut off, cancelled or lost, what arrives is what was sent."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import uvloop

from syncpoint.base.kernel.memory import uncleared_buffer
from syncpoint.base.model.errors import Code, SyncpointError
from syncpoint.wire.transport import bulk_receiver, frames
from syncpoint.wire.transport.bulk_receiver import BulkReceiver
from syncpoint.wire.transport.calls import Streaming, StreamingCall, Unary
from syncpoint.wire.transport.client import Channel
from syncpoint.wire.transport.limits import TransportLimits
from syncpoint.wire.transport.server import serve

MIB = 1 << 20
LIMITS = TransportLimits(stream_window_bytes=6 * MIB, frame_bytes=6 * MIB)
Scenario = Callable[[Channel], Awaitable[None]]


def message(size: int, seed: int = 1) -> bytes:
    return (seed.to_bytes(4, "big") + bytes(range(251))) * (size // 255) + bytes(size % 255)


def send_sizes(stream: StreamingCall) -> None:
    """As many messages as the caller asks for, of these sizes."""

    def asked(request: bytes) -> None:
        for seed, size in enumerate(request.decode().split(",")):
            stream.send([b"head", bytearray(message(int(size), seed))])
        stream.finish()

    stream.on_message = asked


def break_off(stream: StreamingCall) -> None:
    """Announce a frame of 5 MiB, send one of them, and hang up."""

    def asked(request: bytes) -> None:
        conn: Any = stream.conn  # type: ignore[attr-defined]
        conn.flush()
        size = 5 * MIB
        conn.transport.write(frames.data_head(size, conn.last_sid) + b"\0" + (size - 5).to_bytes(4, "big") + bytes(MIB))
        conn.transport.close()

    stream.on_message = asked


METHODS = {
    b"/t.T/Read": Streaming(send_sizes),
    b"/t.T/Break": Streaming(break_off),
    b"/t.T/Echo": Unary(lambda call, request: call.reply(request)),
}


@pytest.fixture(params=["uvloop", "asyncio"])
def play(request: pytest.FixtureRequest) -> Callable[[Scenario], None]:
    """Run a scenario with a channel to a server of its own."""
    loops = uvloop.new_event_loop if request.param == "uvloop" else asyncio.new_event_loop

    async def main(scenario: Scenario) -> None:
        server = await serve(METHODS, "127.0.0.1", 0)
        channel = Channel("127.0.0.1", server.port, limits=LIMITS)
        try:
            await scenario(channel)
        finally:
            await channel.close()
            await server.close()

    def run(scenario: Scenario) -> None:
        with asyncio.Runner(loop_factory=loops) as runner:
            runner.run(main(scenario))

    return run


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How much was received where it stays."""
    sizes: list[int] = []
    begin = BulkReceiver.begin

    def note(receiver: BulkReceiver, size: int) -> None:
        sizes.append(size)
        begin(receiver, size)

    monkeypatch.setattr(BulkReceiver, "begin", note)
    return sizes


def test_large_messages_arrive_as_they_were_sent(play: Callable[[Scenario], None], begun: list[int]) -> None:
    sizes = [4 * MIB + 77, 10, 700_000, 5 * MIB, 0, 9 * MIB]

    async def scenario(channel: Channel) -> None:
        stream = channel.stream("/t.T/Read")
        await stream.send(",".join(map(str, sizes)).encode())
        for seed, size in enumerate(sizes):
            parts = await stream.receive_parts()
            assert parts is not None
            assert (parts if isinstance(parts, bytes) else b"".join(parts)) == b"head" + message(size, seed)
        assert await stream.receive() is None
        assert await channel.unary("/t.T/Echo", b"small again") == b"small again"

    play(scenario)
    assert len(begun) >= 3
    assert all(bulk_receiver.FROM_BYTES <= size <= LIMITS.frame_bytes for size in begun)


def test_what_nobody_wants_any_more_is_taken_off_the_socket(play: Callable[[Scenario], None], begun: list[int]) -> None:
    async def scenario(channel: Channel) -> None:
        stream = channel.stream("/t.T/Read")
        await stream.send(b"%d" % (5 * MIB))
        while not begun:
            await asyncio.sleep(0)
        stream.cancel()
        with pytest.raises(SyncpointError):
            await stream.receive()
        assert await channel.unary("/t.T/Echo", message(3 * MIB)) == message(3 * MIB)

    play(scenario)


def test_a_connection_that_is_lost_within_a_frame_fails_its_calls(
    play: Callable[[Scenario], None], begun: list[int]
) -> None:
    async def scenario(channel: Channel) -> None:
        stream = channel.stream("/t.T/Break")
        await stream.send(b"")
        with pytest.raises(SyncpointError) as lost:
            await stream.receive()
        assert lost.value.code is Code.UNAVAILABLE
        assert channel.counters.held == 0
        assert await channel.unary("/t.T/Echo", b"on another connection") == b"on another connection"

    play(scenario)
    assert begun


def test_a_buffer_has_its_size_and_can_be_filled() -> None:
    buffer = uncleared_buffer(100_000)
    assert len(buffer) == 100_000
    memoryview(buffer)[:] = bytes(100_000)
    assert buffer == bytes(100_000)

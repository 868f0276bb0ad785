"""The channel: what is sent again, what is not, and what a server's odd answers become."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from syncpoint.base.model.errors import Code
from syncpoint.testing.rigs.plain_tests import on_loop
from syncpoint.wire.transport import fields, frames
from syncpoint.wire.transport.client import Channel
from syncpoint.wire.transport.frames import ErrorCode, SettingId
from syncpoint.wire.transport.headers import HEAD_BLOCK, OK_BLOCK
from syncpoint.wire.transport.limits import TransportLimits
from tests.kit.errors import failing

Script = Callable[["Scripted", frames.Frame], None]


class Scripted:
    """A server's side of one connection, which calls `script` for every frame of a request."""

    def __init__(self, writer: asyncio.StreamWriter, number: int) -> None:
        self.writer = writer
        self.number = number

    def say(self, *pieces: bytes) -> None:
        self.writer.write(b"".join(pieces))

    def head(self, sid: int, block: bytes = HEAD_BLOCK, *, end: bool = False) -> bytes:
        return frames.headers(sid, block, end=end, frame_bytes=16_384)

    def answer(self, sid: int, message: bytes) -> None:
        body = b"\0" + len(message).to_bytes(4, "big") + message
        self.say(self.head(sid), frames.frame(frames.DATA, 0, sid, body), self.head(sid, OK_BLOCK, end=True))


def with_server(
    script: Script, test: Callable[[Channel], Awaitable[None]], settings: dict[int, int] | None = None
) -> None:
    async def main() -> None:
        connections: list[Scripted] = []

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            me = Scripted(writer, len(connections))
            connections.append(me)
            me.say(frames.settings(settings or {}))
            assert await reader.readexactly(24) == frames.PREFACE
            data = b""
            while chunk := await reader.read(65_536):
                data += chunk
                for frame in frames.parse(data):
                    data = data[9 + len(frame.payload) :]
                    if frame.sid and frame.kind in (frames.HEADERS, frames.DATA, frames.RST_STREAM):
                        script(me, frame)
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        channel = Channel(
            "127.0.0.1", server.sockets[0].getsockname()[1], limits=TransportLimits(message_bytes=100_000)
        )
        try:
            await asyncio.wait_for(test(channel), 20)
        finally:
            await channel.close()
            server.close()
        await server.wait_closed()

    asyncio.run(main())


def is_end(frame: frames.Frame) -> bool:
    return frame.kind == frames.DATA and bool(frame.flags & frames.END_STREAM)


def test_a_refused_stream_is_made_again() -> None:
    tries: list[int] = []

    def script(server: Scripted, frame: frames.Frame) -> None:
        if is_end(frame):
            tries.append(frame.sid)
            if len(tries) < 3:
                server.say(frames.rst_stream(frame.sid, ErrorCode.REFUSED_STREAM))
            else:
                server.answer(frame.sid, b"ok")

    async def test(channel: Channel) -> None:
        assert await channel.unary("/t.T/M", b"x") == b"ok"
        assert tries == [1, 3, 5]

    with_server(script, test)


def test_a_server_that_always_refuses_is_unavailable() -> None:
    def script(server: Scripted, frame: frames.Frame) -> None:
        if is_end(frame):
            server.say(frames.rst_stream(frame.sid, ErrorCode.REFUSED_STREAM))

    async def test(channel: Channel) -> None:
        assert (await failing(channel.unary("/t.T/M", b"x"))).code == Code.UNAVAILABLE

    with_server(script, test)


def test_goaway_moves_new_calls_to_a_new_connection_and_lets_old_ones_end() -> None:
    seen: list[tuple[int, int]] = []

    def script(server: Scripted, frame: frames.Frame) -> None:
        if not is_end(frame):
            return
        seen.append((server.number, frame.sid))
        if server.number:
            server.answer(frame.sid, b"new")
        elif frame.sid == 3:
            # The first call is accepted and answered later, this one was not seen.
            server.say(frames.goaway(1, ErrorCode.NO_ERROR))
            server.answer(1, b"old")

    async def test(channel: Channel) -> None:
        both = await asyncio.gather(channel.unary("/t.T/M", b"1"), channel.unary("/t.T/M", b"2"))
        assert both == [b"old", b"new"]
        assert seen == [(0, 1), (0, 3), (1, 1)]
        assert await channel.unary("/t.T/M", b"3") == b"new"
        assert seen[-1] == (1, 3)

    with_server(script, test)


def test_a_lost_connection_is_unavailable_and_the_next_call_connects_anew() -> None:
    def script(server: Scripted, frame: frames.Frame) -> None:
        if is_end(frame):
            if server.number == 0:
                server.writer.close()
            else:
                server.answer(frame.sid, b"ok")

    async def test(channel: Channel) -> None:
        assert (await failing(channel.unary("/t.T/M", b"x"))).code == Code.UNAVAILABLE
        assert await channel.unary("/t.T/M", b"x") == b"ok"

    with_server(script, test)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (ErrorCode.CANCEL, Code.CANCELLED),
        (ErrorCode.ENHANCE_YOUR_CALM, Code.RESOURCE_EXHAUSTED),
        (ErrorCode.INADEQUATE_SECURITY, Code.PERMISSION_DENIED),
        (ErrorCode.PROTOCOL_ERROR, Code.INTERNAL),
        (77, Code.INTERNAL),
    ],
)
def test_resets(code: int, expected: Code) -> None:
    def script(server: Scripted, frame: frames.Frame) -> None:
        if is_end(frame):
            server.say(frames.frame(frames.RST_STREAM, 0, frame.sid, frames.u32(code)))

    async def test(channel: Channel) -> None:
        assert (await failing(channel.unary("/t.T/M", b"x"))).code == expected

    with_server(script, test)


def odd_answers() -> dict[str, tuple[Code, Script]]:
    def html(server: Scripted, frame: frames.Frame) -> None:
        block = fields.write([(b":status", b"503"), (b"content-type", b"text/html")])
        server.say(server.head(frame.sid, block, end=True))

    def no_status(server: Scripted, frame: frames.Frame) -> None:
        block = fields.write([(b"x", b"y")])
        server.say(server.head(frame.sid), server.head(frame.sid, block, end=True))

    def no_message(server: Scripted, frame: frames.Frame) -> None:
        server.say(server.head(frame.sid), server.head(frame.sid, OK_BLOCK, end=True))

    def data_ends(server: Scripted, frame: frames.Frame) -> None:
        server.say(server.head(frame.sid), frames.frame(frames.DATA, frames.END_STREAM, frame.sid, b"\0\0\0\0\0"))

    def half_a_message(server: Scripted, frame: frames.Frame) -> None:
        half = frames.frame(frames.DATA, 0, frame.sid, b"\0\0\0\0\5ab")
        server.say(server.head(frame.sid), half, server.head(frame.sid, OK_BLOCK, end=True))

    def too_large(server: Scripted, frame: frames.Frame) -> None:
        server.say(server.head(frame.sid), frames.frame(frames.DATA, 0, frame.sid, b"\0\x7f\0\0\0"))

    def two_messages(server: Scripted, frame: frames.Frame) -> None:
        server.say(server.head(frame.sid), frames.frame(frames.DATA, 0, frame.sid, b"\0\0\0\0\0" * 2))

    def push(server: Scripted, frame: frames.Frame) -> None:
        server.say(frames.frame(frames.PUSH_PROMISE, 4, frame.sid, frames.u32(2)))

    return {
        "html": (Code.UNAVAILABLE, html),
        "no-status": (Code.UNKNOWN, no_status),
        "no-message": (Code.INTERNAL, no_message),
        "data-ends": (Code.INTERNAL, data_ends),
        "half-a-message": (Code.INTERNAL, half_a_message),
        "too-large": (Code.RESOURCE_EXHAUSTED, too_large),
        "two-messages": (Code.INTERNAL, two_messages),
        "push": (Code.UNAVAILABLE, push),
    }


@pytest.mark.parametrize("name", odd_answers())
def test_odd_answers(name: str) -> None:
    expected, answer = odd_answers()[name]

    def script(server: Scripted, frame: frames.Frame) -> None:
        if is_end(frame):
            answer(server, frame)

    async def test(channel: Channel) -> None:
        assert (await failing(channel.unary("/t.T/M", b"x"))).code == expected

    with_server(script, test)


def test_a_timeout_resets_the_stream() -> None:
    resets: list[int] = []

    def script(server: Scripted, frame: frames.Frame) -> None:
        if frame.kind == frames.RST_STREAM:
            resets.append(frame.sid)
        elif is_end(frame) and frame.sid > 3:
            server.answer(frame.sid, b"ok")

    async def test(channel: Channel) -> None:
        assert (await failing(channel.unary("/t.T/M", b"x", timeout=0.05))).code == Code.DEADLINE_EXCEEDED
        task = asyncio.create_task(channel.unary("/t.T/M", b"x"))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await channel.unary("/t.T/M", b"x") == b"ok"
        assert resets == [1, 3]

    with_server(script, test)


def test_calls_wait_for_the_servers_number_of_streams() -> None:
    open_now: list[int] = []
    most: list[int] = []

    def script(server: Scripted, frame: frames.Frame) -> None:
        if is_end(frame):
            open_now.append(frame.sid)
            most.append(len(open_now))

            def later() -> None:
                open_now.remove(frame.sid)
                server.answer(frame.sid, b"ok")

            asyncio.get_running_loop().call_later(0.002, later)

    async def test(channel: Channel) -> None:
        await channel.unary("/t.T/M", b"x")
        await asyncio.gather(*(channel.unary("/t.T/M", b"x") for _ in range(20)))
        assert max(most) == 2

    with_server(script, test, {SettingId.MAX_CONCURRENT_STREAMS: 2})


@on_loop
async def test_nobody_listens() -> None:
    server = await asyncio.start_server(lambda r, w: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    channel = Channel("127.0.0.1", port)
    error = await failing(channel.unary("/t.T/M", b"x"))
    assert error.code == Code.UNAVAILABLE
    assert str(port) in error.message
    stream = channel.stream("/t.T/M")
    assert (await failing(stream.receive())).code == Code.UNAVAILABLE
    await channel.close()
    assert (await failing(channel.unary("/t.T/M", b"x"))).code == Code.UNAVAILABLE


def test_a_connection_that_is_given_up_as_it_is_made_writes_nothing() -> None:
    """Its transport is closed, and never says so."""
    made: list[asyncio.Protocol] = []

    class Closed(asyncio.Transport):
        def is_closing(self) -> bool:
            return False

        def get_write_buffer_size(self) -> int:
            return 0

        def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
            pass

        def write(self, data: bytes | bytearray | memoryview) -> None:
            raise RuntimeError("the handler is closed")

    async def main() -> None:
        loop = asyncio.get_running_loop()
        problems: list[dict[str, object]] = []
        loop.set_exception_handler(lambda _, context: problems.append(context))

        async def create(factory: Callable[[], asyncio.Protocol], *where: object, **options: object) -> None:
            made.append(factory())
            made[0].connection_made(Closed())
            raise TimeoutError

        loop.create_connection = create  # type: ignore[assignment, method-assign]
        channel = Channel("127.0.0.1", 1)
        error = await failing(channel.unary("/a/b", b"", timeout=5))
        assert error.code is Code.UNAVAILABLE
        await asyncio.sleep(0)
        assert made[0].closed  # type: ignore[attr-defined]
        assert problems == []
        await channel.close()

    asyncio.run(main())

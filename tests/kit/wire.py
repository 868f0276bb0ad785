"""A wire between a client and a server, at the level of TCP: it carries bytes late, not at all for a time, or refuses.

Its threads are its own. Bytes that come back from the server are counted.
"""

from __future__ import annotations

import asyncio
import contextlib

from tests.kit.in_threads import LoopThread

PASS, BLACK_HOLE, REFUSE = "pass", "black hole", "refuse"
PIECE = 1 << 16


class Wire(LoopThread):
    """See the module. `endpoint` is where clients connect; `delay_s`: each way."""

    def __init__(self, target: str, *, delay_s: float = 0.0) -> None:
        self.mode, self.delay_s, self.bytes_back = PASS, delay_s, 0
        self._host, _, port = target.rpartition(":")
        self._port = int(port)
        super().__init__()
        self._open: set[asyncio.StreamWriter] = set()

    async def opened(self) -> None:
        self._server = await asyncio.start_server(self._carry, "127.0.0.1", 0)
        self.endpoint = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def set(self, mode: str) -> None:
        """From now on. What is refused is cut off, too; a black hole keeps connections
        and carries nothing until it ends."""
        self.mode = mode
        if mode == REFUSE:
            self.run(self._cut())

    async def _cut(self) -> None:
        for writer in self._open:
            writer.transport.abort()

    async def closed(self) -> None:
        self._server.close()
        await self._cut()
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        try:
            if self.mode == REFUSE:
                return
            back, forth = await asyncio.open_connection(self._host, self._port)
            self._open.add(forth)
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._copy(reader, forth, False))
                    group.create_task(self._copy(back, writer, True))
            finally:
                self._open.discard(forth)
                forth.transport.abort()
        except (OSError, ExceptionGroup, asyncio.CancelledError):
            return  # one end is gone, so is the other; or the wire is
        finally:
            self._open.discard(writer)
            writer.transport.abort()

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, backwards: bool) -> None:
        """Bytes in their order, each as late as the wire is long: pieces wait side by side."""
        pieces: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(256)

        async def deliver() -> None:
            while True:
                due, piece = await pieces.get()
                await asyncio.sleep(max(0.0, due - self.loop.time()))
                while self.mode == BLACK_HOLE:  # TCP sends again until something comes through
                    await asyncio.sleep(0.02)
                writer.write(piece)
                await writer.drain()

        async with asyncio.TaskGroup() as group:
            delivering = group.create_task(deliver())
            while piece := await reader.read(PIECE):
                if backwards:
                    self.bytes_back += len(piece)
                await pieces.put((self.loop.time() + self.delay_s, piece))
            while not pieces.empty():
                await asyncio.sleep(0.01)
            await asyncio.sleep(self.delay_s)
            delivering.cancel()
        with contextlib.suppress(OSError):
            writer.write_eof()

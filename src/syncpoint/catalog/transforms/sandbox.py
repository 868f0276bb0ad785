"""Processes that run JavaScript functions for this one, and end when a function takes too long.

Place: the driver of `udf_child`. Promise: a message costs at most `MESSAGE_S` of the processor, whatever its function
does; the process measures it, however much else the machine has to do. One that does not answer for `ANSWER_S`, for
whatever reason, is killed. A function reaches no file, no socket and no other function's values; its heap is bounded.
One that hangs keeps its process from others for that long, so there is more than one, and projects take turns at them,
see `project_turns`. The messages of one request have `RUN_S` and `RESULTS_MAX` together; those left then are not
tried.
"""

from __future__ import annotations

import asyncio
import signal
import struct
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Final, NamedTuple

from syncpoint.base.runtime.project_turns import ProjectTurns
from syncpoint.catalog.transforms.errors import NotTried, SandboxUnavailable, TransformError, TryLater

PROCESSES: Final = 3  # of which one project has two at most
MESSAGE_S: Final = 0.5
ANSWER_S: Final = 20.0
RUN_S: Final = 10.0  # of all messages of a request
RESULTS_MAX: Final = 64 << 20  # characters that a function returns for all messages of a request
START_S: Final = 20.0  # on a busy machine
_HEAD: Final = struct.Struct("<cI")
_CHILD: Final = Path(__file__).with_name("udf_child.py")
_AHEAD_MAX: Final = 32  # messages that are sent before the first is answered
_AHEAD_BYTES: Final = 1 << 20


class Function(NamedTuple):
    """JavaScript code, and the name of the function in it that is called."""

    name: str
    code: str


Result = str | None | TransformError
"""The JSON that a function returned, None where it dropped the message, or why there is neither."""


class Sandbox:
    """All functions of one process of the server. Its processes are started when they are needed first."""

    def __init__(self, processes: int = PROCESSES) -> None:
        self._runners = [_Runner() for _ in range(processes)]
        self.turns = ProjectTurns(processes)

    async def check(self, project: str, function: Function) -> None:
        """Raises `TransformError` when the code does not compile or does not define the function."""
        await self.run(project, function, ())

    async def run(self, project: str, function: Function, messages: Sequence[str]) -> list[Result]:
        """A result for each message, which is JSON text: [message, metadata]. `project`: whose turn it is. Raises
        `TransformError` when the code cannot be loaded, and `SandboxUnavailable`.
        """
        async with self.turns.turn(project) as place:
            return await self._runners[place].run(project, function, messages)

    async def close(self) -> None:
        await asyncio.gather(*(runner.close() for runner in self._runners))


class _Runner:
    """One process, for one request at a time."""

    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None
        self._killed: list[asyncio.subprocess.Process] = []  # and not known to have ended
        self._loaded: tuple[str, Function] | None = None

    async def run(self, project: str, function: Function, messages: Sequence[str]) -> list[Result]:
        try:
            return await self._run(project, function, messages)
        except asyncio.CancelledError:
            self._kill()  # what it answers would be taken for answers to others
            raise

    async def close(self) -> None:
        self._kill()
        while self._killed:
            await self._killed.pop().wait()

    async def _run(self, project: str, function: Function, messages: Sequence[str]) -> list[Result]:
        results: list[Result] = []
        loop, left = asyncio.get_running_loop(), RESULTS_MAX
        ends = loop.time() + RUN_S
        tried_again = -1  # the place of a message at which a process ended before
        while True:
            try:
                process = await self._load(project, function)
                async with aclosing(self._answers(process, messages[len(results) :])) as answers:
                    async for result in answers:
                        left -= len(result) if isinstance(result, str) else 0
                        if left < 0 and results:
                            break
                        results.append(result)
                        if loop.time() > ends:
                            break
            except (TimeoutError, asyncio.IncompleteReadError, ConnectionError) as error:
                slow = isinstance(error, TimeoutError) or await self._ran_too_long()
                self._kill()
                if not slow and tried_again != len(results):
                    tried_again = len(results)  # somebody else may have ended it: the message is tried once more
                    continue
                failed = TransformError(
                    f"it ran longer than {MESSAGE_S} s" if slow else "it ended the process that it ran in"
                )
                if not messages:
                    raise failed from None
                results.append(failed)
            if len(results) == len(messages):
                return results
            if left < 0 or loop.time() > ends:
                self._kill()  # it may be at work on what was sent ahead
                return [*results, *[_not_tried(left)] * (len(messages) - len(results))]

    async def _load(self, project: str, function: Function) -> asyncio.subprocess.Process:
        """Start the process if it does not run, and select the project's function in it."""
        process = self._process
        if process is None or process.returncode is not None:
            process = await self._start()
        if self._loaded != (project, function):
            self._loaded = None
            _send(process, b"L", f"{project}\0{function.name}\0{function.code}")
            kind, text = await _receive(process, ANSWER_S)
            if kind == b"E":
                raise TransformError(text)
            self._loaded = (project, function)
        return process

    async def _answers(self, process: asyncio.subprocess.Process, messages: Sequence[str]) -> AsyncGenerator[Result]:
        sent = received = ahead = 0
        while received < len(messages):
            while sent < len(messages) and (
                sent == received or (sent - received < _AHEAD_MAX and ahead + len(messages[sent]) <= _AHEAD_BYTES)
            ):
                _send(process, b"R", messages[sent])
                ahead += len(messages[sent])
                sent += 1
            kind, text = await _receive(process, ANSWER_S)
            ahead -= len(messages[received])
            received += 1
            yield None if kind == b"N" else text if kind == b"V" else TransformError(text)

    async def _start(self) -> asyncio.subprocess.Process:
        self._loaded = None
        try:
            process = self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-I", str(_CHILD),
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
                env={}, start_new_session=True, limit=1 << 20,
            )  # fmt: skip
            await _receive(process, START_S)
        except (OSError, EOFError, TimeoutError) as error:
            self._kill()
            raise SandboxUnavailable(f"the process that runs functions did not start: {error}") from error
        return process

    async def _ran_too_long(self) -> bool:
        """Whether the process, which has closed its end, ended for the time that a function took."""
        if self._process is None:
            return False
        try:
            async with asyncio.timeout(ANSWER_S):
                return await self._process.wait() == -signal.SIGPROF
        except TimeoutError:
            return False

    def _kill(self) -> None:
        process, self._process, self._loaded = self._process, None, None
        if process is not None and process.returncode is None:
            process.kill()
            self._killed = [one for one in (*self._killed, process) if one.returncode is None]


def _not_tried(left: int) -> NotTried:
    if left < 0:
        return NotTried(f"the function returned more than {RESULTS_MAX >> 20} MiB for its batch of messages")
    return TryLater(f"the function needed more than {RUN_S:g} s for its batch of messages")


def _send(process: asyncio.subprocess.Process, kind: bytes, text: str) -> None:
    assert process.stdin is not None
    body = text.encode()
    process.stdin.write(_HEAD.pack(kind, len(body)) + body)


async def _receive(process: asyncio.subprocess.Process, within_s: float) -> tuple[bytes, str]:
    """A frame. Raises `TimeoutError`. Not by `wait_for`: that of Python 3.11 forgets that its caller gave up where the
    answer comes at the same moment."""
    assert process.stdout is not None
    async with asyncio.timeout(within_s):
        kind, size = _HEAD.unpack(await process.stdout.readexactly(_HEAD.size))
        return kind, (await process.stdout.readexactly(size)).decode()

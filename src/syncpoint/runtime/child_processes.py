"""Plain computations in other processes: what would hold the event loop for longer than others can wait.

Place: handed to whoever has such work, in a simulation in the form of `at_once`. What is run is a picklable callable
without arguments: a `functools.partial` of a function of a module.
Promise: the processes are started when the first work comes, stay within MEMORY_BYTES each, and end with this one,
however it ends. One that ends early fails what it was doing as `Unavailable`, and others take its place.
"""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import resource
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import Connection
from typing import Final, Protocol, TypeVar

from syncpoint.model.errors import Unavailable

PROCESSES: Final = 2
MEMORY_BYTES: Final = 2 << 30
_Result = TypeVar("_Result")


class Apart(Protocol):
    """Do some work without holding the loop."""

    async def __call__(self, work: Callable[[], _Result], /) -> _Result: ...


async def at_once(work: Callable[[], _Result], /) -> _Result:
    """An `Apart` for programs whose event loop nothing else needs: the work is done right here."""
    return work()


class ChildProcesses:
    """See the module."""

    def __init__(self) -> None:
        self._pool: ProcessPoolExecutor | None = None
        self._held: Connection | None = None  # the children live as long as nobody closes it

    async def __call__(self, work: Callable[[], _Result], /) -> _Result:
        """What the work returns or raises."""
        pool = self._pool
        if pool is None:
            self.close()  # what is left of a pool that broke
            context = multiprocessing.get_context("spawn")  # not forked: threads of this process may hold locks
            watched, self._held = context.Pipe(duplex=False)
            pool = self._pool = ProcessPoolExecutor(PROCESSES, context, _begin, (watched,))
        try:
            return await asyncio.get_running_loop().run_in_executor(pool, work)
        except BrokenProcessPool:
            if self._pool is pool:
                self._pool = None
            raise Unavailable("The process that did this has ended. Try again.") from None

    def close(self) -> None:
        """Begin nothing more, and end the processes; what they were doing fails."""
        pool, self._pool = self._pool, None
        held, self._held = self._held, None
        if held is not None:
            held.close()
        if pool is not None:
            pool.shutdown(wait=False, cancel_futures=True)


def _begin(watched: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal: the parent decides
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    threading.Thread(target=_end_with_parent, args=(watched,), daemon=True).start()


def _end_with_parent(watched: Connection) -> None:
    """Nothing is ever sent: it ends when the parent closes its side, or is gone."""
    with contextlib.suppress(OSError):
        watched.poll(None)
    os._exit(1)

"""Work that takes long, kept off the event loop: in other processes, by turns of the projects that ask for it.

Place: handed to whoever has work in proportion to a request, in a simulation in the form of `at_once`. What is run is a
picklable callable without arguments: a `functools.partial` of a function of a module.
Promise: no project has all processes, and of those that wait the one that has used the least goes first
(`project_turns`). What the work costs of a processor is charged to its project, which is refused while it is in
arrears. Work ends after `WORK_S` of a processor. The processes are started when the first work comes, stay within
MEMORY_BYTES each, and end with this one, however it ends. One that ends early fails what it was doing as `Unavailable`,
and others take its place.
What takes only a moment is done on the loop, `here`, as long as this turn of the loop is not `busy` with such work:
many small pieces that come together do not hold it either.
"""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import resource
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import Connection
from typing import Any, Final, Protocol, TypeVar

from syncpoint.base.model.errors import ResourceExhausted, Unavailable
from syncpoint.base.runtime.project_turns import ProjectTurns, ShareOf

PROCESSES: Final = 3  # of which one project has two at most
THREADS: Final = 3  # and so of these
MEMORY_BYTES: Final = 2 << 30
NICE: Final = 5
"""Of the children: where processors are scarce, the event loop goes first."""
TURN_S: Final = 0.004
"""Seconds of one turn of the loop for small pieces of work; what comes beyond is done apart."""
TURNS_WAITED: Final = 5
"""Turns of the loop that small work waits for time on it."""
WORK_S: Final = 20.0
_Result = TypeVar("_Result")


class CpuAccount(Protocol):
    """Who pays for work. Projects are projects/P; "" is nobody's."""

    def check(self, project: str) -> None:
        """Raises `ResourceExhausted` while a project is in arrears."""
        ...

    def charge(self, project: str, seconds: float) -> None:
        """Charge CPU time to a project."""
        ...


class Apart(Protocol):
    """Do some work without holding the loop."""

    @property
    def busy(self) -> bool:
        """Whether small work has taken its share of this turn of the loop."""
        ...

    def here(self, project: str) -> contextlib.AbstractContextManager[None]:
        """Around small work on the loop. Raises `ResourceExhausted`."""
        ...

    async def __call__(self, work: Callable[[], _Result], project: str, /) -> _Result:
        """What the work returns or raises; and `ResourceExhausted`, `Unavailable`."""
        ...

    async def in_thread(self, work: Callable[[], _Result], project: str, /) -> _Result:
        """What the work returns or raises, and `ResourceExhausted`; for work that leaves the interpreter to others, as
        `zlib` does, and whose result is too large to be sent by another process."""
        ...


class _AtOnce:
    busy = False

    def here(self, project: str) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    async def __call__(self, work: Callable[[], _Result], project: str, /) -> _Result:
        return work()

    async def in_thread(self, work: Callable[[], _Result], project: str, /) -> _Result:
        return work()


at_once: Final[Apart] = _AtOnce()
"""For programs whose event loop nothing else needs: the work is done right here."""


async def worked(apart: Apart, project: str, work: Callable[[], _Result], *, large: bool) -> _Result:
    """What the work returns or raises; done on the loop where it is not `large`, in one of its next turns if this one
    is busy. Only where all those are busy, too, it waits for a process, which may have to be started first."""
    for _ in range(0 if large else TURNS_WAITED):
        if not apart.busy:
            with apart.here(project):
                return work()
        await asyncio.sleep(0)
    return await apart(work, project)


class ChildProcesses:
    """Run long work in child processes, so that the event loop stays free.

    `account`: charges processor time to projects; None charges nobody.
    """

    def __init__(self) -> None:
        self.account: CpuAccount | None = None
        self._pool: ProcessPoolExecutor | None = None
        self._held: Connection | None = None  # the children live as long as nobody closes it
        self._turns, self._thread_turns = ProjectTurns(PROCESSES), ProjectTurns(THREADS)
        self._spent_s = 0.0  # of this turn of the loop

    @property
    def busy(self) -> bool:
        return self._spent_s >= TURN_S

    def share(self, share_of: ShareOf) -> None:
        """Let projects have their turns together with those they share them with."""
        self._turns.share_of = self._thread_turns.share_of = share_of

    @contextlib.contextmanager
    def here(self, project: str) -> Iterator[None]:
        self._check(project)
        began = time.thread_time()
        try:
            yield
        finally:
            spent_s = time.thread_time() - began
            if not self._spent_s:
                asyncio.get_running_loop().call_soon(self._next_turn)
            self._spent_s += spent_s
            self._charge(project, spent_s)

    async def __call__(self, work: Callable[[], _Result], project: str, /) -> _Result:
        self._check(project)
        async with self._turns.turn(project):
            self._check(project)  # others of the project went before
            began, used_s = time.perf_counter(), -1.0
            try:
                result, used_s = await self._done(work)
                return result
            finally:
                self._charge(project, used_s if used_s >= 0 else time.perf_counter() - began)

    async def in_thread(self, work: Callable[[], _Result], project: str, /) -> _Result:
        self._check(project)
        async with self._thread_turns.turn(project):
            self._check(project)
            used = [0.0]
            job = asyncio.get_running_loop().run_in_executor(None, _measured_in, used, work)
            try:
                return await asyncio.shield(job)
            except asyncio.CancelledError:
                await asyncio.wait((job,))  # its thread is not free before
                raise
            finally:
                self._charge(project, used[0])

    async def _done(self, work: Callable[[], _Result]) -> tuple[_Result, float]:
        """The result, and what it has cost."""
        pool, others = self._pool, 0
        if pool is None:
            self.close()  # what is left of a pool that broke
            context = multiprocessing.get_context("spawn")  # not forked: threads of this process may hold locks
            watched, self._held = context.Pipe(duplex=False)
            pool = self._pool = ProcessPoolExecutor(PROCESSES, context, _begin, (watched,))
            others = PROCESSES - 1
        job: Future[Any] | None = None
        try:
            job = pool.submit(_measured, work)
            for _ in range(others):  # each is started for one that waits: none of the next work waits for that
                pool.submit(int)
            done: tuple[_Result, float] = await asyncio.wrap_future(job)
            return done
        except (BrokenProcessPool, OSError) as error:  # OSError: the machine starts no more processes now
            if self._pool is pool:
                self._pool = None
            ended = isinstance(error, BrokenProcessPool)
            text = "The process that worked on this has ended" if ended else f"No process could be started: {error}"
            raise Unavailable(f"{text}. Try again.") from None
        except asyncio.CancelledError:
            if job is not None and job.running():  # its process is not free before it ends
                await asyncio.wait((asyncio.wrap_future(job),))
            raise

    def _check(self, project: str) -> None:
        if self.account is not None and project:
            self.account.check(project)

    def _charge(self, project: str, seconds: float) -> None:
        if self.account is not None and project:
            self.account.charge(project, seconds)

    def _next_turn(self) -> None:
        self._spent_s = 0.0

    def close(self) -> None:
        """Begin nothing more, and end the processes; what they were doing fails."""
        pool, self._pool = self._pool, None
        held, self._held = self._held, None
        if held is not None:
            held.close()
        if pool is not None:
            pool.shutdown(wait=False, cancel_futures=True)


def _measured(work: Callable[[], _Result]) -> tuple[_Result, float]:
    """In a child: what the work returns, and what it has used of a processor."""
    began = time.process_time()
    signal.setitimer(signal.ITIMER_PROF, WORK_S)
    try:
        return work(), time.process_time() - began
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)


def _measured_in(used: list[float], work: Callable[[], _Result]) -> _Result:
    """In a thread: what the work returns or raises; `used`: what it has used of a processor."""
    began = time.thread_time()
    try:
        return work()
    finally:
        used[0] = time.thread_time() - began


def _too_long(number: int, frame: object) -> None:
    raise ResourceExhausted(f"The request takes more than {WORK_S:g} s of processor time. Ask for less at once.")


def _begin(watched: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal: the parent decides
    os.nice(NICE)
    signal.signal(signal.SIGPROF, _too_long)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    threading.Thread(target=_end_with_parent, args=(watched,), daemon=True).start()


def _end_with_parent(watched: Connection) -> None:
    """Nothing is ever sent: it ends when the parent closes its side, or is gone."""
    with contextlib.suppress(OSError):
        watched.poll(None)
    os._exit(1)

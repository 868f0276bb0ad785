"""Threads of simulated processes: real ones, of which one runs at a time, and only when the loop lets it.

Place: under `simulated_disks` and `sim_workers`. What production runs in threads (recovery, commits, maintainers) runs
here either in one go on the loop's thread, or on a simulated thread, which may stop in the middle of its work for some
simulated time while everything else goes on.
Promise: the same order on every run. A simulated thread of a crashed process never goes on: `Killed` ends it where it
stands. One of a process that hangs goes on when the process does.
"""

from __future__ import annotations

import asyncio
import errno
import threading
from collections import Counter
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from syncpoint.base.runtime.files import DiskUnreachable
from syncpoint.testing.simulation.loop import ProcessLoop, SimProcess, SimulationStuck

_local = threading.local()
INLINE_TRIES_MAX = 20
TURNS_MAX = 100_000
HURRIES_MAX = 3_000


class Killed(BaseException):
    """The process of this simulated thread is dead."""


class _Body(threading.Thread):
    """An operating system's thread, used by one simulated thread after the other."""

    def __init__(self) -> None:
        super().__init__(daemon=True, name="sim_thread")
        self.go, self.back = threading.Lock(), threading.Lock()
        self.go.acquire()
        self.back.acquire()
        self.sim_thread: SimThread | None = None

    def run(self) -> None:
        while True:
            self.go.acquire()
            sim_thread = self.sim_thread
            if sim_thread is None:
                return
            _local.sim_thread = sim_thread
            try:
                sim_thread.result = sim_thread.context.run(sim_thread.work)
            except BaseException as error:
                sim_thread.error = error
            _local.sim_thread = None
            sim_thread.over = True
            del sim_thread
            self.back.release()


class SimThread:
    """One piece of work that may stop in the middle. Made by `SimThreads.run`."""

    def __init__(self, sim_threads: SimThreads, process: SimProcess, work: Callable[[], Any], body: _Body) -> None:
        self.process, self.work, self.body = process, work, body
        self.context = process.context()
        self.over = self.killed = False
        self.result: Any = None
        self.error: BaseException | None = None
        self.done: Callable[[Any, BaseException | None], None] = lambda result, error: None
        self.waiting_s = 0.0
        self.wants: SimLock | None = None  # the lock it waits for
        self._timer: asyncio.TimerHandle | None = None
        self._sim_threads = sim_threads

    def resume(self) -> None:
        """Let it run until it stops again; on the loop's thread."""
        if self.over:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.body.go.release()
        self.body.back.acquire()
        if self._is_over():
            self._sim_threads.ended(self)
            if not self.killed:
                self.done(self.result, self.error)
        else:
            loop = self._sim_threads.loop
            when = loop.time() + self.waiting_s
            self._timer = loop.call_at(when, self.resume, context=self.process.context())

    def _is_over(self) -> bool:
        return self.over

    def kill(self) -> None:
        """Its process is dead."""
        self.killed = True
        self.resume()

    def stop_for(self, seconds: float) -> None:
        """Stop here for this time; on the simulated thread."""
        self._check()
        self.waiting_s = seconds
        self.body.back.release()
        self.body.go.acquire()
        self._check()

    def _check(self) -> None:
        if self.killed:
            raise Killed


class SimThreads:
    """All simulated threads of one simulation."""

    def __init__(self, loop: ProcessLoop) -> None:
        self.loop = loop
        self.started = 0
        self._free: list[_Body] = []
        self._of: dict[SimProcess, dict[SimThread, None]] = {}

    def run(
        self, process: SimProcess, work: Callable[[], Any], done: Callable[[Any, BaseException | None], None]
    ) -> SimThread:
        """Begin a piece of work now; `done(result, error)` is called on the loop's thread once it is over."""
        if self._free:
            body = self._free.pop()
        else:
            body = _Body()
            body.start()
        sim_thread = body.sim_thread = SimThread(self, process, work, body)
        sim_thread.done = done
        self.started += 1
        if process not in self._of:
            self._of[process] = {}
            process.on_crash.append(lambda: self._crashed(process))
        self._of[process][sim_thread] = None
        sim_thread.resume()
        return sim_thread

    def ended(self, sim_thread: SimThread) -> None:
        """Its body is free for another one."""
        self._of[sim_thread.process].pop(sim_thread, None)
        self._free.append(sim_thread.body)

    def _crashed(self, process: SimProcess) -> None:
        for sim_thread in list(self._of.get(process, ())):
            sim_thread.kill()

    def close(self) -> None:
        """End everything."""
        for process in list(self._of):
            self._crashed(process)
        for body in self._free:
            body.sim_thread = None
            body.go.release()
        for body in self._free:
            body.join(5.0)
        self._free = []


def in_sim_thread() -> bool:
    """Whether the code that runs may stop in the middle."""
    return getattr(_local, "sim_thread", None) is not None


def pause(seconds: float) -> None:
    """Stop for a while, where that is possible; what runs on the loop's thread goes on at once."""
    sim_thread = getattr(_local, "sim_thread", None)
    if sim_thread is not None:
        sim_thread.stop_for(seconds)


class SimLock:
    """A lock, or a condition, between simulated threads; held again and again by the same one."""

    def __init__(self, held: Counter[str], what: str) -> None:
        """`held[what]` counts locks that are held now: whoever cannot wait looks there first."""
        self._held, self._what = held, what
        self._holder: object = None
        self._depth = 0

    def __enter__(self) -> Self:
        sim_thread: SimThread | None = getattr(_local, "sim_thread", None)
        me = sim_thread or self
        turns = 0
        while self._depth and self._holder is not me:
            turns += 1
            if sim_thread is None:
                self._hurry(turns)
                continue
            if turns > TURNS_MAX:
                raise SimulationStuck(f"the lock {self._what!r} is never given back")
            sim_thread.wants = self
            try:
                sim_thread.stop_for(0.001)
            finally:
                sim_thread.wants = None
        self._holder = me
        self._depth += 1
        self._held[self._what] += 1
        return self

    def _hurry(self, turns: int) -> None:
        """Work that was begun in one go waits for a lock: as a thread that blocks its process. No time can pass for it
        alone, so who holds the lock goes on at once instead of after its pauses.
        """
        holder = self._holder
        while isinstance(holder, SimThread) and holder.wants is not None:
            holder = holder.wants._holder
        if not isinstance(holder, SimThread) or turns > HURRIES_MAX:
            raise SimulationStuck(f"work that was begun in one go waits for the lock {self._what!r} without end")
        holder.resume()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._depth -= 1
        self._held[self._what] -= 1
        if not self._depth:
            self._holder = None


class SimCondition:
    """What `threading.Condition` is to those who only look again after a while."""

    def __init__(self) -> None:
        self._turns = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing runs between two pauses but the simulated thread itself."""

    def wait(self, seconds: float) -> bool:
        """Look again after this time. The loop's own thread cannot let time pass: what it asks for is out of reach."""
        if in_sim_thread():
            pause(seconds)
            return True
        self._turns += 1
        if self._turns % INLINE_TRIES_MAX == 0:
            raise DiskUnreachable(errno.ETIMEDOUT, "it does not answer")
        return True

    def notify_all(self) -> None:
        """Those who wait look again by themselves."""

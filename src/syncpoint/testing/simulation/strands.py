"""Threads of simulated processes: real ones, of which one runs at a time, and only when the loop lets it.

Place: under `disks` and `workers`. What production runs in threads (recovery, commits, keepers) runs here either in one
go on the loop's thread, or on a strand, which may stop in the middle of its work for some simulated time while
everything else goes on.
Promise: the same order on every run. A strand of a crashed process never goes on: `Killed` ends it where it stands. One
of a process that hangs goes on when the process does.
"""

from __future__ import annotations

import asyncio
import errno
import threading
from collections import Counter
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from syncpoint.runtime.files import DiskUnreachable
from syncpoint.testing.simulation.loop import ProcessLoop, SimProcess, SimulationStuck

_local = threading.local()
INLINE_TRIES_MAX = 20
TURNS_MAX = 100_000
HURRIES_MAX = 3_000


class Killed(BaseException):
    """The process of this strand is dead."""


class _Body(threading.Thread):
    """An operating system's thread, used by one strand after the other."""

    def __init__(self) -> None:
        super().__init__(daemon=True, name="strand")
        self.go, self.back = threading.Lock(), threading.Lock()
        self.go.acquire()
        self.back.acquire()
        self.strand: Strand | None = None

    def run(self) -> None:
        while True:
            self.go.acquire()
            strand = self.strand
            if strand is None:
                return
            _local.strand = strand
            try:
                strand.result = strand.context.run(strand.work)
            except BaseException as error:
                strand.error = error
            _local.strand = None
            strand.over = True
            del strand
            self.back.release()


class Strand:
    """One piece of work that may stop in the middle. Made by `Strands.run`."""

    def __init__(self, strands: Strands, process: SimProcess, work: Callable[[], Any], body: _Body) -> None:
        self.process, self.work, self.body = process, work, body
        self.context = process.context()
        self.over = self.killed = False
        self.result: Any = None
        self.error: BaseException | None = None
        self.done: Callable[[Any, BaseException | None], None] = lambda result, error: None
        self.waiting_s = 0.0
        self.wants: SimLock | None = None  # the lock it waits for
        self._timer: asyncio.TimerHandle | None = None
        self._strands = strands

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
            self._strands.ended(self)
            if not self.killed:
                self.done(self.result, self.error)
        else:
            loop = self._strands.loop
            when = loop.time() + self.waiting_s
            self._timer = loop.call_at(when, self.resume, context=self.process.context())

    def _is_over(self) -> bool:
        return self.over

    def kill(self) -> None:
        """Its process is dead."""
        self.killed = True
        self.resume()

    def stop_for(self, seconds: float) -> None:
        """Stop here for so long; on the strand."""
        self._check()
        self.waiting_s = seconds
        self.body.back.release()
        self.body.go.acquire()
        self._check()

    def _check(self) -> None:
        if self.killed:
            raise Killed


class Strands:
    """All strands of one world."""

    def __init__(self, loop: ProcessLoop) -> None:
        self.loop = loop
        self.started = 0
        self._free: list[_Body] = []
        self._of: dict[SimProcess, dict[Strand, None]] = {}

    def run(
        self, process: SimProcess, work: Callable[[], Any], done: Callable[[Any, BaseException | None], None]
    ) -> Strand:
        """Begin a piece of work now; `done(result, error)` is called on the loop's thread once it is over."""
        if self._free:
            body = self._free.pop()
        else:
            body = _Body()
            body.start()
        strand = body.strand = Strand(self, process, work, body)
        strand.done = done
        self.started += 1
        if process not in self._of:
            self._of[process] = {}
            process.on_crash.append(lambda: self._crashed(process))
        self._of[process][strand] = None
        strand.resume()
        return strand

    def ended(self, strand: Strand) -> None:
        """Its body is free for another one."""
        self._of[strand.process].pop(strand, None)
        self._free.append(strand.body)

    def _crashed(self, process: SimProcess) -> None:
        for strand in list(self._of.get(process, ())):
            strand.kill()

    def close(self) -> None:
        """End everything."""
        for process in list(self._of):
            self._crashed(process)
        for body in self._free:
            body.strand = None
            body.go.release()
        for body in self._free:
            body.join(5.0)
        self._free = []


def on_strand() -> bool:
    """Whether the code that runs may stop in the middle."""
    return getattr(_local, "strand", None) is not None


def pause(seconds: float) -> None:
    """Stop for a while, where that is possible; what runs on the loop's thread goes on at once."""
    strand = getattr(_local, "strand", None)
    if strand is not None:
        strand.stop_for(seconds)


class SimLock:
    """A lock, or a condition, between strands; held again and again by the same one."""

    def __init__(self, held: Counter[str], what: str) -> None:
        """`held[what]` counts locks that are held now: whoever can not wait looks there first."""
        self._held, self._what = held, what
        self._holder: object = None
        self._depth = 0

    def __enter__(self) -> Self:
        strand: Strand | None = getattr(_local, "strand", None)
        me = strand or self
        turns = 0
        while self._depth and self._holder is not me:
            turns += 1
            if strand is None:
                self._hurry(turns)
                continue
            if turns > TURNS_MAX:
                raise SimulationStuck(f"the lock {self._what!r} is never given back")
            strand.wants = self
            try:
                strand.stop_for(0.001)
            finally:
                strand.wants = None
        self._holder = me
        self._depth += 1
        self._held[self._what] += 1
        return self

    def _hurry(self, turns: int) -> None:
        """Work that was begun in one go waits for a lock: as a thread that blocks its process. No time can pass for it
        alone, so who holds the lock goes on at once instead of after its pauses.
        """
        holder = self._holder
        while isinstance(holder, Strand) and holder.wants is not None:
            holder = holder.wants._holder
        if not isinstance(holder, Strand) or turns > HURRIES_MAX:
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
        """Nothing runs between two pauses but the strand itself."""

    def wait(self, seconds: float) -> bool:
        """Look again after so long. The loop's own thread can not let time pass: what it asks for is out of reach."""
        if on_strand():
            pause(seconds)
            return True
        self._turns += 1
        if self._turns % INLINE_TRIES_MAX == 0:
            raise DiskUnreachable(errno.ETIMEDOUT, "it does not answer")
        return True

    def notify_all(self) -> None:
        """Those who wait look again by themselves."""

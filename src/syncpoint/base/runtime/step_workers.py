"""Threads, kept away from what decides: a worker calls its `step` again and again, and sleeps while there is nothing.

Place: `store` starts one worker per disk for commits, one per disk for keeping, one for reads, and a queue per disk.
Simulations hand in `ManualWorkers` and call the steps themselves, in an order of their choosing.
Promise: `wake` may be called by any thread, costs well under a microsecond while the worker is busy, and no wake is
lost.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Protocol, TypeVar

from syncpoint.base.runtime.call_queues import CallQueue, InlineCalls, ThreadedCalls
from syncpoint.base.runtime.clock import Clock
from syncpoint.base.runtime.files import waits_for_disk

if TYPE_CHECKING:
    import asyncio

log = logging.getLogger(__name__)

Step = Callable[[], float | None]
"""Does a bounded piece of work; returns the seconds until it wants to be called without being woken, None for never."""

Notify = Callable[[Callable[[], None]], None]
"""Called by any thread: has something done on the owner's."""

Result = TypeVar("Result")


def notifier(loop: asyncio.AbstractEventLoop) -> Notify:
    """For an owner that lives in an event loop."""

    def notify(act: Callable[[], None]) -> None:
        try:
            loop.call_soon_threadsafe(act)
        except RuntimeError:
            log.debug("the loop has ended: nothing is left to notify")

    return notify


class Worker(Protocol):
    def wake(self) -> None: ...

    def stop(self, timeout_s: float) -> bool:
        """Ask to end and wait; False when the worker still hangs in a system call afterwards."""
        ...


class Workers(Protocol):
    @property
    def at_once(self) -> bool:
        """Whether steps run at the same time, and so may wait for each other."""
        ...

    def start(self, name: str, step: Step, *, waits: bool = False) -> Worker:
        """`waits`: for a disk that is away, as long as it takes (`runtime.files.waits_for_disk`)."""
        ...

    def call_queue(self, name: str, clock: Clock) -> CallQueue:
        """The way of reads to one disk."""
        ...

    def together(self, calls: Sequence[Callable[[], Result]]) -> list[Result | Exception]:
        """Make all the calls, at once where that saves time; what each returned or raised, in their order."""
        ...


class ThreadWorkers:
    """Workers that are daemon threads."""

    at_once = True

    def start(self, name: str, step: Step, *, waits: bool = False) -> Worker:
        return _Thread(name, step, waits)

    def call_queue(self, name: str, clock: Clock) -> CallQueue:
        return ThreadedCalls(name, clock)

    def together(self, calls: Sequence[Callable[[], Result]]) -> list[Result | Exception]:
        if len(calls) < 2:
            return one_by_one(calls)
        with ThreadPoolExecutor(len(calls), "syncpoint-together") as pool:
            return list(pool.map(_outcome, calls))


def one_by_one(calls: Sequence[Callable[[], Result]]) -> list[Result | Exception]:
    """`Workers.together` for those who want no threads."""
    return [_outcome(call) for call in calls]


def _outcome(call: Callable[[], Result]) -> Result | Exception:
    try:
        return call()
    except Exception as error:  # handed to the one who asked
        return error


class _Thread:
    __slots__ = ("_ended", "_lock", "_signal", "_sleeping", "_step", "_thread", "_waits")

    def __init__(self, name: str, step: Step, waits: bool) -> None:
        self._waits = waits
        self._step = step
        self._lock = threading.Lock()
        self._lock.acquire()
        self._signal = False
        self._sleeping = False
        self._ended = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def wake(self) -> None:
        self._signal = True
        if self._sleeping:
            self._sleeping = False
            try:  # `suppress` costs more than all else here
                self._lock.release()
            except RuntimeError:
                return  # two wakes at once: one is enough

    def stop(self, timeout_s: float) -> bool:
        self._ended = True
        self.wake()
        if self._thread is not threading.current_thread():
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        waits_for_disk.set(self._waits)
        step, lock = self._step, self._lock
        delay: float | None = 0.0
        while not self._ended:
            self._signal = False
            delay = step()
            if delay == 0:
                continue
            self._sleeping = True
            # A wake between the step's last look and here has set the signal.
            if not self._signal and not self._ended:
                lock.acquire(timeout=-1 if delay is None else delay)
            self._sleeping = False


class ManualWorkers:
    """Workers that run only when a test steps them."""

    at_once = False

    def __init__(self) -> None:
        self.steps: dict[str, Step] = {}

    def start(self, name: str, step: Step, *, waits: bool = False) -> Worker:
        self.steps[name] = step
        return _Manual(self, name, step)

    def call_queue(self, name: str, clock: Clock) -> CallQueue:
        return InlineCalls()

    def together(self, calls: Sequence[Callable[[], Result]]) -> list[Result | Exception]:
        return one_by_one(calls)

    def run(self, name: str) -> float | None:
        """One step of the worker called `name`."""
        return self.steps[name]()


class _Manual:
    __slots__ = ("_name", "_step", "_workers")

    def __init__(self, workers: ManualWorkers, name: str, step: Step) -> None:
        self._workers = workers
        self._name = name
        self._step = step

    def wake(self) -> None:
        pass

    def stop(self, timeout_s: float) -> bool:
        if self._workers.steps.get(self._name) == self._step:
            del self._workers.steps[self._name]
        return True

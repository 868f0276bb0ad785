"""The workers of a store in a simulated process: their steps happen at times of the seed's choosing.

Place: what `runtime.step_workers.ThreadWorkers` is in production, and `blocking` beside it.
Promise: no wake is lost. A step runs in one go while the disks are calm, mostly; otherwise on a simulated thread, where
it may stop between any two calls to a disk.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from syncpoint.base.runtime.call_queues import CallQueue, InlineCalls
from syncpoint.base.runtime.child_processes import ChildProcesses
from syncpoint.base.runtime.clock import Clock
from syncpoint.base.runtime.files import waits_for_disk
from syncpoint.base.runtime.random import Random
from syncpoint.base.runtime.step_workers import Result, Step, one_by_one
from syncpoint.base.runtime.tasks import complete
from syncpoint.testing.simulation.loop import here
from syncpoint.testing.simulation.sim_threads import SimThread, SimThreads, in_sim_thread, pause

APART_S = 0.002  # how long another process takes
STARVED_S = 0.02  # between two looks whether a worker gets its turn again


class SimChildProcesses(ChildProcesses):
    """Work in other processes, done by the loop of the seed a moment later; it costs nothing and nobody pays."""

    busy = False

    @contextlib.contextmanager
    def here(self, project: str) -> Iterator[None]:
        yield

    async def __call__(self, work: Callable[[], Any], project: str, /) -> Any:
        await asyncio.sleep(APART_S)
        return work()


class SimWorkers:
    """Workers of one store. `calm(name)`: whether nothing that a worker of that name does has to wait."""

    at_once = False

    def __init__(
        self, sim_threads: SimThreads, random: Random, calm: Callable[[str], bool], *, stops: float = 0.03
    ) -> None:
        process = here()
        assert process is not None, "workers belong to a process"
        self.sim_threads, self.random, self.calm, self.stops, self.process = sim_threads, random, calm, stops, process

    def start(self, name: str, step: Step, *, waits: bool = False) -> SimWorker:
        return SimWorker(self, name, step, waits)

    def call_queue(self, name: str, clock: Clock) -> CallQueue:
        """A disk is read on the simulated thread that asks."""
        return InlineCalls()

    def together(self, calls: Sequence[Callable[[], Result]]) -> list[Result | Exception]:
        """One by one, on the simulated thread that asks."""
        return one_by_one(calls)


class SimWorker:
    """A simulated worker thread."""

    def __init__(self, workers: SimWorkers, name: str, step: Step, waits: bool) -> None:
        self._workers, self._name, self._step, self._waits = workers, name, step, waits
        self._loop = workers.sim_threads.loop
        self._context = workers.process.context()
        self._context.run(waits_for_disk.set, waits)
        self._timer: asyncio.TimerHandle | None = None
        self._sim_thread: SimThread | None = None
        self._running = self._again = self._ended = False
        self._due(0.0)

    def wake(self) -> None:
        if self._running:
            self._again = True
        else:
            self._due(0.0)

    def stop(self, timeout_s: float) -> bool:
        self._ended = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        end = self._loop.time() + timeout_s
        while self._running and in_sim_thread() and self._loop.time() < end:
            pause(0.01)
        return not self._running

    def _due(self, seconds: float) -> None:
        if self._ended:
            return
        when = self._loop.time() + seconds + self._workers.random.random() ** 3 * 0.002
        if self._timer is not None:
            if self._timer.when() <= when:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(when, self._run, context=self._context.copy())

    def _run(self) -> None:
        self._timer = None
        if self._ended or self._running:
            return
        workers, name = self._workers, self._name
        if workers.process.starved and workers.process.starved in name:
            self._due(STARVED_S)
            return
        self._running, self._again = True, False
        if workers.calm(name) and workers.random.random() >= workers.stops:
            self._after(self._step(), None)
        else:

            def work() -> float | None:
                waits_for_disk.set(self._waits)
                return self._step()

            workers.sim_threads.run(workers.process, work, self._after)

    def _after(self, delay: float | None, error: BaseException | None) -> None:
        self._running = False
        if error is not None:
            raise error  # a thread would have died of it
        if self._again or delay == 0:
            self._due(0.0)
        elif delay is not None:
            self._due(delay)


async def run_blocking(sim_threads: SimThreads, work: Callable[[], Any]) -> Any:
    """What `asyncio.to_thread` is in production."""
    process = here()
    assert process is not None, "only processes have threads"
    done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    sim_threads.run(process, work, lambda result, error: complete(done, result if error is None else error))
    return await done

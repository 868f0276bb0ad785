"""Processes inside one event loop: each may crash (nothing of it runs again) or hang (nothing runs until it goes on).

Place: under `simulated_cluster`. Which process a callback belongs to is written in its context, so everything that a
process starts belongs to it without knowing.
Promise: a crashed process runs not even its `finally` blocks, as after SIGKILL; a hung one goes on exactly where it
was, as after SIGSTOP and SIGCONT, and finds that time has passed.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from syncpoint.base.runtime.clock import ManualClock
from syncpoint.testing.rigs.simulated_loop import SimulatedLoop
from syncpoint.wire.transport.fair import FairTurns

_T = TypeVar("_T")
STEPS_MAX = 3_000_000  # twenty times what a long life takes: it goes round in a circle
_HERE: contextvars.ContextVar[SimProcess | None] = contextvars.ContextVar("process", default=None)


class SimulationStuck(SystemExit):
    """A lock of the simulation is waited for without end, or it goes round in a circle. No part of the product may take
    it for an error of its own and go on, so it ends the seed.
    """


def here() -> SimProcess | None:
    """The process whose code is running; None for the simulation's own."""
    return _HERE.get()


def own_turns() -> FairTurns:
    """Turns for calls that cost much belong to a process: one that dies takes none from others."""
    process = here()
    return _OUTSIDE if process is None else process.turns


_OUTSIDE = FairTurns()


class SimProcess:
    """One life of one process."""

    def __init__(self, loop: ProcessLoop, name: str) -> None:
        self.loop, self.name = loop, name
        self.alive, self.hung = True, False
        self.tasks: dict[asyncio.Task[Any], None] = {}
        self.on_crash: list[Callable[[], None]] = []
        self.starved = ""  # workers with this in their name do not get their turn
        self.held: deque[asyncio.Handle] = deque()  # came due while it hung, or while it catches up
        self.turns = FairTurns()
        self._context = contextvars.copy_context()
        self._context.run(_HERE.set, self)

    def __repr__(self) -> str:
        return f"<SimProcess {self.name} {'dead' if not self.alive else 'hung' if self.hung else 'running'}>"

    def context(self) -> contextvars.Context:
        """A context that belongs to this process."""
        return self._context.copy()

    def start(self, work: Coroutine[Any, Any, _T]) -> asyncio.Task[_T]:
        """Run a coroutine in this process."""
        return self.loop.create_task(work, context=self.context())

    def crash(self) -> None:
        """End it at once; what was to run in it never does."""
        self.alive = False
        self.held.clear()
        for end in self.on_crash:
            end()
        self.loop.bury(self)

    def hang(self) -> None:
        """Let nothing of it run until `go_on`."""
        self.hung = True

    def go_on(self) -> None:
        """Run what came due in the meantime, in its order; what is cancelled until its turn does not run."""
        self.hung = False
        self.loop.call_soon(self._catch_up, context=contextvars.Context())

    def _catch_up(self) -> None:
        while self.held and self.alive and not self.hung:
            handle = self.held.popleft()
            if not handle.cancelled():
                handle._run()


class ProcessLoop(SimulatedLoop):
    """The loop under a simulation."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self.set_task_factory(_noted)
        self.steps = 0
        self._graves: list[asyncio.Task[Any]] = []

    def _run_once(self) -> None:
        """What its context says is the process that a callback belongs to: it runs there or, while that one hangs, is
        held.
        """
        if self.steps > STEPS_MAX:
            raise SimulationStuck(f"{self.steps} steps, and no end")
        self._become_due()
        inner: Any = self
        ready = inner._ready
        for _ in range(len(ready)):
            handle = ready.popleft()
            if handle._cancelled:
                continue
            self.steps += 1
            process = handle._context.get(_HERE)
            if process is None or (process.alive and not process.hung and not process.held):
                handle._run()
            elif process.alive:
                process.held.append(handle)

    def bury(self, process: SimProcess) -> None:
        """Keep the tasks of a crashed process from ever being checked, or collected, while the simulation runs."""
        for task in process.tasks:
            inner: Any = task
            inner._log_destroy_pending = False
            asyncio.tasks._unregister_task(task)
            self._graves.append(task)
        process.tasks = {}

    def clear(self) -> None:
        """At the end of the simulation: let go of what crashed."""
        for task in self._graves:
            with contextlib.suppress(BaseException):  # their `finally` blocks run now, when nothing depends on them
                task.get_coro().close()
        self._graves.clear()


def _noted(loop: asyncio.AbstractEventLoop, coro: Any, **options: Any) -> asyncio.Task[Any]:
    context = options.get("context")
    process = context.get(_HERE) if context is not None else _HERE.get()
    task: asyncio.Task[Any] = asyncio.Task(coro, loop=loop, **options)
    if process is not None:
        process.tasks[task] = None
        task.add_done_callback(lambda done: process.tasks.pop(done, None))
    return task


def run_in_loop(clock: ManualClock, work: Callable[[ProcessLoop], Coroutine[Any, Any, _T]]) -> _T:
    """Run a simulation on a loop of its own."""
    loop = ProcessLoop(clock)
    asyncio.set_event_loop(loop)
    try:
        return loop.run_until_complete(work(loop))
    finally:
        for task in asyncio.all_tasks(loop):
            inner: Any = task
            inner._log_destroy_pending = False
        loop.clear()
        asyncio.set_event_loop(None)
        loop.close()

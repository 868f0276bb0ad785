"""Processes inside one event loop: each may crash (nothing of it runs again) or hang (nothing runs until it goes on).

Place: under `world`. Which process a callback belongs to is written in its context, so everything that a process
starts belongs to it without knowing.
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

from syncpoint.runtime.clock import ManualClock
from syncpoint.testing.simulated_loop import SimulatedLoop

_T = TypeVar("_T")
_HERE: contextvars.ContextVar[SimProcess | None] = contextvars.ContextVar("process", default=None)


def here() -> SimProcess | None:
    """The process whose code is running; None for the world's own."""
    return _HERE.get()


class SimProcess:
    """One life of one process."""

    def __init__(self, loop: ProcessLoop, name: str) -> None:
        self.loop, self.name = loop, name
        self.alive, self.hung = True, False
        self.tasks: set[asyncio.Task[Any]] = set()
        self._held: deque[tuple[Callable[..., object], tuple[Any, ...], contextvars.Context]] = deque()
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
        self._held.clear()
        self.loop.bury(self)

    def hang(self) -> None:
        """Let nothing of it run until `go_on`."""
        self.hung = True

    def go_on(self) -> None:
        """Run what came due meanwhile, in its order."""
        self.hung = False
        while self._held and self.alive and not self.hung:
            callback, arguments, context = self._held.popleft()
            self.loop.call_soon(callback, *arguments, context=context)

    def hold(self, callback: Callable[..., object], arguments: tuple[Any, ...], context: contextvars.Context) -> None:
        """Something came due while it hangs."""
        self._held.append((callback, arguments, context))


class ProcessLoop(SimulatedLoop):
    """The loop under a simulated world."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self.set_task_factory(_noted)
        self.steps = 0
        self._graves: list[asyncio.Task[Any]] = []

    def call_soon(  # type: ignore[override]
        self, callback: Any, *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        context = context or contextvars.copy_context()
        return super().call_soon(self._guarded, callback, args, context, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Any, *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        context = context or contextvars.copy_context()
        return super().call_at(when, self._guarded, callback, args, context, context=context)

    def _guarded(self, callback: Callable[..., object], args: tuple[Any, ...], context: contextvars.Context) -> None:
        process = _HERE.get()
        self.steps += 1
        if process is None or (process.alive and not process.hung):
            callback(*args)
        elif process.alive:
            process.hold(callback, args, context)

    def bury(self, process: SimProcess) -> None:
        """Keep the tasks of a crashed process from ever being looked at, or collected, while the world runs."""
        for task in process.tasks:
            inner: Any = task
            inner._log_destroy_pending = False
            asyncio.tasks._unregister_task(task)
            self._graves.append(task)
        process.tasks = set()

    def clear(self) -> None:
        """At the end of the world: let go of what crashed."""
        for task in self._graves:
            with contextlib.suppress(BaseException):  # their `finally` blocks run now, when nothing depends on them
                task.get_coro().close()
        self._graves.clear()


def _noted(loop: asyncio.AbstractEventLoop, coro: Any, **options: Any) -> asyncio.Task[Any]:
    context = options.get("context")
    process = context.get(_HERE) if context is not None else _HERE.get()
    task: asyncio.Task[Any] = asyncio.Task(coro, loop=loop, **options)
    if process is not None:
        process.tasks.add(task)
        task.add_done_callback(process.tasks.discard)
    return task


def run_world(clock: ManualClock, work: Callable[[ProcessLoop], Coroutine[Any, Any, _T]]) -> _T:
    """Run a world on a loop of its own."""
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

"""Tasks that nobody awaits, and futures completed by callbacks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from typing import Any, TypeVar

from syncpoint.base.model.errors import Unavailable

Result = TypeVar("Result")


class Tasks:
    """The tasks of one owner, in the order of their beginning, each until it is done: the loop holds them weakly."""

    def __init__(self) -> None:
        self._held: dict[asyncio.Task[Any], None] = {}

    def __iter__(self) -> Iterator[asyncio.Task[Any]]:
        return iter(list(self._held))

    def __len__(self) -> int:
        return len(self._held)

    def start(self, work: Coroutine[Any, Any, Result]) -> asyncio.Task[Result]:
        """Begin a task. An exception that nobody fetches is logged by the loop."""
        try:
            task = asyncio.get_running_loop().create_task(work)
        except RuntimeError:  # the loop has ended, and a `finally` block runs
            work.close()
            raise
        self._held[task] = None
        task.add_done_callback(self._held.pop)
        return task

    def cancel(self) -> None:
        """Ask all of them to end."""
        for task in self:
            task.cancel()

    async def ended(self) -> None:
        """Wait until those of now are done, however they end."""
        await asyncio.gather(*self, return_exceptions=True)

    async def stop(self) -> None:
        """Cancel all, and wait until they are done."""
        await stop(self)


async def stop(tasks: Iterable[asyncio.Future[Any]]) -> None:
    """Cancel them, and wait until they are done."""
    tasks = list(tasks)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def all_of(works: Iterable[Awaitable[Result]]) -> list[Result]:
    """All results, or the first failure; nothing goes on behind its back."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        return await asyncio.gather(*tasks)
    finally:
        await stop(tasks)


def complete(waiting: asyncio.Future[Result], outcome: Result | BaseException) -> None:
    """Give a future its result or its exception, unless its waiter has gone."""
    if not waiting.done():
        if isinstance(outcome, BaseException):
            waiting.set_exception(outcome)
        else:
            waiting.set_result(outcome)


def outcome_of(what: str) -> tuple[asyncio.Future[None], Callable[[Exception | None], None]]:
    """A future, and what notifies it whether `what` is persisted."""
    persisted: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def on_outcome(error: Exception | None) -> None:
        complete(persisted, error and Unavailable(f"The {what} may or may not be stored: {error}"))

    return persisted, on_outcome

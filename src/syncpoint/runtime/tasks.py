"""Tasks that nobody awaits, and futures completed by callbacks."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from typing import Any, TypeVar

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
        self.cancel()
        await self.ended()


def complete(waiting: asyncio.Future[Result], outcome: Result | BaseException) -> None:
    """Give a future its result or its exception, unless whoever waited for it has gone."""
    if not waiting.done():
        if isinstance(outcome, BaseException):
            waiting.set_exception(outcome)
        else:
            waiting.set_result(outcome)

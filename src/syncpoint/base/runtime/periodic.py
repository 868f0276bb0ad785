"""Work done in rounds, with a pause between two of them.

Place: under whatever cleans, reports, probes or renews now and then.
Promise: a round that fails is logged, and the next one comes; two rounds never overlap.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from syncpoint.base.runtime.random import Random
from syncpoint.base.runtime.tasks import Tasks

log = logging.getLogger(__name__)


class Periodic:
    """`pause_s` is asked before each pause. `expected`: failures that the next round may well not have; they are logged
    behind `failed`. Any other is a fault, logged with its trace. `at_start`: a round comes before the first pause.
    """

    def __init__(
        self,
        work: Callable[[], Awaitable[object]],
        pause_s: Callable[[], float],
        expected: tuple[type[Exception], ...] = (),
        failed: str = "",
        *,
        at_start: bool = False,
    ) -> None:
        self._work, self._pause_s = work, pause_s
        self._expected, self._failed = expected, failed
        self._at_start = at_start
        self._tasks = Tasks()

    @property
    def running(self) -> bool:
        return bool(self._tasks)

    def start(self) -> None:
        """Begin. Needs the event loop."""
        self._tasks.start(self._run())

    async def stop(self) -> None:
        """End, in the middle of a round, too. Nothing happens where it was not started."""
        await self._tasks.stop()

    async def _run(self) -> None:
        if self._at_start:
            await self._round()
        while True:
            await asyncio.sleep(self._pause_s())
            await self._round()

    async def _round(self) -> None:
        try:
            await self._work()
        except self._expected as error:
            log.info("%s: %s", self._failed, error)
        except Exception:
            log.exception("a round failed; the next one comes")


def about(seconds: float, random: Random) -> Callable[[], float]:
    """Pauses around `seconds`, by half of it at most: processes that start together do not stay in step."""
    return lambda: seconds * (0.5 + random.random())

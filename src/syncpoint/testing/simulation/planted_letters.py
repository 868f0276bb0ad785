"""Bugs planted where rules fail and letters are redriven (`redriven`). See `planted_bugs`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AbstractContextManager

from syncpoint.base.model.errors import SyncpointError
from syncpoint.broker.subscribe.expired_letters import ExpiredLetters
from syncpoint.catalog.metadata.records import Subscription, Topic
from syncpoint.front.api.letter_admin import LetterAdmin
from syncpoint.front.api.letter_edits import Found, LetterEdit
from syncpoint.testing.simulation.planted import planted
from syncpoint.testing.simulation.scaled import patched
from syncpoint.testing.simulation.scenario import run_cluster
from syncpoint.testing.simulation.sim_runs import RunResult


def run(seed: int, *, shape: None, kinds: tuple[str, ...], beyond: bool = False) -> RunResult:
    """One seed in which letters are redriven, as `planted_bugs` runs it."""
    return run_cluster(4 * seed + 1, kinds=kinds)


@planted(None, "crash", "restart", seed=0, run=run)
def letters_are_acknowledged_before_they_are_redriven() -> AbstractContextManager[None]:
    """As if they were gathered for a second."""
    right = LetterAdmin._published

    async def late(
        self: LetterAdmin, record: Subscription, target: Topic, part: Sequence[Found], edit: LetterEdit
    ) -> tuple[Sequence[Found], SyncpointError | None]:
        async def publish() -> None:
            await asyncio.sleep(1.0)
            await right(self, record, target, part, edit)

        _late.add(asyncio.ensure_future(publish()))
        return part, None

    return patched(LetterAdmin, _published=late)


_late: set[asyncio.Future[None]] = set()


@planted(None, "crash", "restart", seed=0, run=run)
def what_rules_fail_at_is_passed_over() -> AbstractContextManager[None]:
    """As where no letters are asked for."""
    return patched(ExpiredLetters, takes_failures=False)

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from syncpoint.base.runtime.clock import ManualClock
from syncpoint.testing.rigs.simulated_loop import run_simulated
from syncpoint.watch.metrics import backlogs as room
from syncpoint.watch.metrics.backlogs import Backlogs


def test_disks_that_are_slow_do_not_put_the_next_survey_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the time that a survey takes of the event loop does."""

    async def slow(forwarder: Any, record: Any) -> Any:
        await asyncio.sleep(60)
        return SimpleNamespace(messages=50, oldest_age_s=3.0, mean_bytes=100.0)

    monkeypatch.setattr(room, "AGES_S", 100.0)
    monkeypatch.setattr(room, "backlog", slow)
    monkeypatch.setattr(room, "unacknowledged", lambda forwarder, record: 50)
    record = SimpleNamespace(incarnation=1, name="projects/p/subscriptions/s")
    catalog: Any = SimpleNamespace(subscriptions=lambda: [record], subscription_by_incarnation=lambda number: record)
    chains: Any = {1: object()}

    async def main() -> None:
        surveyed = Backlogs(catalog, lambda: chains)
        await surveyed.count()
        await surveyed.look_up_ages(lambda number: True)
        assert surveyed.known == {1: (50, 3.0, 5000.0)}
        assert surveyed.seconds < 30

    run_simulated(ManualClock(), main())

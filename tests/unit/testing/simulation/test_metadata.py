"""The simulated way to the metadata: what a transaction that was given up does when its time comes."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from syncpoint.base.runtime.clock import ManualClock
from syncpoint.base.runtime.random import SeededRandom
from syncpoint.catalog.metadata.contract import Indeterminate, Put
from syncpoint.catalog.metadata.memory import MemoryStore
from syncpoint.testing.rigs.simulated_loop import run_simulated
from syncpoint.testing.simulation.coverage import Coverage
from syncpoint.testing.simulation.sim_metadata import LATE_S, SimShared

APPLIED_LATE = "a transaction was applied long after it was given up"


class Lots:
    """Chance that gives a transaction up and applies it as late as can be."""

    def __init__(self) -> None:
        self._next = iter([0.0, 0.5])

    def random(self) -> float:
        return next(self._next, 1.0)


@pytest.mark.parametrize("ends", [False, True])
def test_a_late_transaction_is_refused_once_its_lease_has_ended(ends: bool) -> None:
    clock, failed = ManualClock(), list[dict[str, Any]]()
    sim = SimpleNamespace(
        store=MemoryStore(clock=clock, random=SeededRandom(1)),
        clock=clock,
        coverage=Coverage(),
        doubt=1.0,
        random=Lots(),
    )

    async def work() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: failed.append(context))
        shared = SimShared(cast(Any, sim))
        lease = await shared.lease(3.0)
        sim.random = Lots()
        with pytest.raises(Indeterminate):
            await shared.txn([], [Put("key", b"value", lease.id)])
        if ends:
            await lease.revoke()
        await asyncio.sleep(LATE_S + 1.0)
        assert (await shared.get("key") is None) == ends

    run_simulated(clock, work())
    assert failed == []
    assert sim.coverage.happened[APPLIED_LATE] == (0 if ends else 1)

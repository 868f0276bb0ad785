"""The metadata store of a simulation, as each process reaches it: over a network that delays, fails and loses.

Place: what `metadata.etcd` is in production, over one `metadata.memory` for the whole simulation.
What it knows of bad behaviour: a process is cut off; a transaction is answered never, and was applied, or was not, or
is applied seconds later, when whoever asked for it has long done something else: a request that waits in a network
outlives its caller.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Sequence
from typing import Protocol

from syncpoint.base.runtime.clock import ManualClock
from syncpoint.base.runtime.random import SeededRandom
from syncpoint.catalog.metadata.contract import Compare, Indeterminate, Operation, StoreUnavailable, TxnResult
from syncpoint.catalog.metadata.local import LocalShared
from syncpoint.catalog.metadata.memory import MemoryStore
from syncpoint.catalog.metadata.store_client import DEADLINE_S
from syncpoint.testing.simulation.coverage import Coverage

LATE_S = 10.0


class Around(Protocol):
    """What it needs of its simulation. `doubt`: the chance that the outcome of a transaction stays unknown."""

    store: MemoryStore
    clock: ManualClock
    random: SeededRandom
    coverage: Coverage
    doubt: float


class SimShared(LocalShared):
    """One process's way to the metadata."""

    def __init__(self, sim: Around) -> None:
        super().__init__(sim.store, sim.clock)
        self._sim = sim

    async def turn(self) -> None:
        await asyncio.sleep(self._sim.random.random() * 0.003)
        await super().turn()

    async def txn(
        self,
        compares: Sequence[Compare],
        then: Sequence[Operation],
        orelse: Sequence[Operation] = (),
        *,
        deadline_s: float = DEADLINE_S,
    ) -> TxnResult:
        sim = self._sim
        doubtful = bool(sim.doubt) and sim.random.random() < sim.doubt
        kind = sim.random.random() if doubtful else 0.0
        if doubtful and kind < 0.4:
            sim.coverage.sometimes("a transaction of unknown outcome was not applied")
            raise Indeterminate("the answer was lost")
        if doubtful and kind < 0.7:
            await self.turn()
            self._apply_late(compares, then, orelse)
            raise Indeterminate("the answer was lost")
        result = await super().txn(compares, then, orelse, deadline_s=deadline_s)
        if doubtful:
            sim.coverage.sometimes("a transaction of unknown outcome was applied")
            raise Indeterminate("the answer was lost")
        return result

    def _apply_late(self, compares: Sequence[Compare], then: Sequence[Operation], orelse: Sequence[Operation]) -> None:
        sim = self._sim

        def apply() -> None:
            try:
                self.store.txn(compares, then, orelse)
            except (StoreUnavailable, ValueError):  # ValueError: a lease that it writes under has ended in the meantime
                return
            sim.coverage.sometimes("a transaction was applied long after it was given up")

        loop = asyncio.get_running_loop()
        loop.call_later(sim.random.random() ** 2 * LATE_S, apply, context=contextvars.Context())

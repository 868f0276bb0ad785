"""Making chains: each publish forwarder gets one per durability class, on disks that a plan chooses.

Place: beside `ownership_driver` in every publish forwarder process. A chain made here is opened by whoever claims it,
which is its home at first.
Promise: one chain per member name and class, also over restarts: what exists is read from the store itself, and only
the living holder of the name may add to it. A plan below policy is taken only after a while: at the start of a cluster
the missing disks are often about to come.
Leaves to the plan: which disks (see `storage.placement`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from syncpoint.base.model.cluster import ChainRecord, DiskPlace
from syncpoint.base.model.errors import FailedPrecondition, SyncpointError
from syncpoint.base.runtime.tasks import Tasks
from syncpoint.catalog.metadata.contract import Compare, Put, StoreError, StoreUnavailable, absent, unchanged
from syncpoint.catalog.metadata.layout import CHAIN_COUNTER, CHAINS, MEMBERS
from syncpoint.catalog.metadata.store_client import SharedStore, read_all
from syncpoint.cluster.control.membership import Membership

RETRY_S = 0.5
PATIENCE_S = 20.0

log = logging.getLogger(__name__)


class ChainPlan(NamedTuple):
    """Where a chain is to lie: its disks in slot order, its ack rule as plain values, its durability."""

    places: tuple[DiskPlace, ...]
    rule: Mapping[str, Any]
    durability: str
    below_policy: bool = False
    reasons: tuple[str, ...] = ()  # why it is


ChainPlanner = Callable[[str, Sequence[ChainRecord]], ChainPlan]
"""Plans a chain of a durability class beside those that exist. Raises `SyncpointError` when there is no room for it."""


class ChainCreator:
    """Makes what is missing, and tries again until it is there. `done` is set then. `classes` may grow."""

    def __init__(
        self,
        store: SharedStore,
        membership: Membership,
        classes: Collection[str],
        plan: ChainPlanner,
        *,
        universe: int = 0,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._store, self._membership, self._classes, self._plan = store, membership, classes, plan
        self._universe, self._patience_s = universe, patience_s
        self.done = asyncio.Event()
        self._numbers: dict[str, int] = {}  # class -> number of a chain that may be made already
        self._tasks = Tasks()

    def start(self) -> None:
        """Begin. The membership has been started."""
        loop = asyncio.get_running_loop()
        self._tasks.start(self._run(loop.time() + self._patience_s))

    def classes_grew(self) -> None:
        """Make what is missing now."""
        if self.done.is_set():
            self.done.clear()
            self.start()

    async def stop(self) -> None:
        """Make no more."""
        await self._tasks.stop()

    async def _run(self, patient_until: float) -> None:
        loop, logged = asyncio.get_running_loop(), ""
        while not self.done.is_set():
            try:
                made = await self.create_missing(accept_below_policy=loop.time() >= patient_until)
                if {record.klass for record in made}.issuperset(self._classes):
                    self.done.set()
            except (SyncpointError, StoreError) as error:
                if str(error) != logged:
                    logged = str(error)
                    log.warning("%s cannot make its chains yet: %s", self._membership.me.name, error)
                await asyncio.sleep(RETRY_S)

    async def create_missing(self, *, accept_below_policy: bool = True) -> list[ChainRecord]:
        """The chains of this member with the weight it has now, made where there were none. Raises
        `FailedPrecondition` for a plan that is not accepted, and the store's errors.
        """
        classes = tuple(self._classes)
        found, _ = await read_all(self._store, CHAINS)
        known = [ChainRecord.decode(item.value) for item in found]
        me = self._membership.me
        mine = {record.klass: record for record in known if record.home == me.name}
        for item, record in zip(found, known, strict=True):
            if record.home == me.name and record.weight != me.weight:
                mine[record.klass] = replace(record, weight=me.weight)
                put = Put(item.key, mine[record.klass].encode())
                if not (await self._store.txn([unchanged(item.key, item.revision), self._still_me()], [put])).ok:
                    raise StoreUnavailable(
                        f"chain {record.number} was changed by others, or {me.name} is not registered now"
                    )
        for klass in classes:
            if klass not in mine:
                plan = self._plan(klass, known)
                if plan.below_policy and not accept_below_policy:
                    raise FailedPrecondition(f"the disks known so far do not satisfy class {klass}")
                mine[klass] = await self._create(klass, plan)
                known.append(mine[klass])
        return [mine[klass] for klass in classes]

    async def _create(self, klass: str, plan: ChainPlan) -> ChainRecord:
        """A chain under a number that stays the same until it is known to be made: what arrives late of an earlier
        attempt is then this very chain, and not one more.
        """
        me = self._membership.me
        number = self._numbers.get(klass) or await self._store.counter(CHAIN_COUNTER)
        self._numbers[klass] = number
        record = ChainRecord(
            number,
            f"{me.name}/{klass}",
            klass,
            me.region,
            me.name,
            plan.places,
            plan.rule,
            plan.durability,
            plan.below_policy,
            self._universe,
            me.weight,
        )
        key = CHAINS.key(number)
        if not (await self._store.txn([absent(key), self._still_me()], [Put(key, record.encode())])).ok:
            found = await self._store.get(key)
            if found is None:
                raise StoreUnavailable(f"{me.name} is not registered now")
            record = ChainRecord.decode(found.value)  # an earlier attempt was carried out after all
        del self._numbers[klass]
        log.info("chain %d (%s) is made", number, record.name)
        return record

    def _still_me(self) -> Compare:
        me = self._membership.me
        return Compare(MEMBERS.key(me.name), "value", "=", me.encode())

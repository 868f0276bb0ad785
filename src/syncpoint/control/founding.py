"""Making chains: each publish forwarder gets one per durability class, on disks that a plan chooses.

Place: beside `chains` in every publish forwarder process. A chain made here is opened by whoever claims it, which is
its home at first.
Promise: one chain per member name and class, also over restarts: what exists is read from the store itself, and only
the living holder of the name may add to it.
Leaves to the plan: which disks (see `storage.placement`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from syncpoint.control.membership import Membership
from syncpoint.control.view import CHAINS, MEMBERS, chain_key
from syncpoint.metadata.contract import Compare, Indeterminate, Put, Unavailable, absent
from syncpoint.metadata.shared import SharedStore, read_all
from syncpoint.model.cluster import ChainRecord, DiskPlace
from syncpoint.model.errors import SyncpointError

COUNTER = "counter/chain"
RETRY_S = 2.0

log = logging.getLogger(__name__)


class Plan(NamedTuple):
    """Where a chain is to lie: its disks in slot order, its ack rule as plain values, its durability."""

    places: tuple[DiskPlace, ...]
    rule: Mapping[str, Any]
    durability: str
    below_policy: bool = False


Planner = Callable[[str, Sequence[ChainRecord]], Plan]
"""Plans a chain of a durability class beside those that exist. Raises `SyncpointError` when there is no room for it."""


class Founder:
    """Makes what is missing, and tries again until it is there. `done` is set then."""

    def __init__(self, store: SharedStore, membership: Membership, classes: Sequence[str], plan: Planner) -> None:
        self._store, self._membership, self._classes, self._plan = store, membership, classes, plan
        self.done = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin. The membership has been started."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Make no more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while not self.done.is_set():
            try:
                await self.found_missing()
                self.done.set()
            except (SyncpointError, Unavailable, Indeterminate) as error:
                log.warning("%s cannot make its chains yet: %s", self._membership.me.name, error)
                await asyncio.sleep(RETRY_S)

    async def found_missing(self) -> list[ChainRecord]:
        """The chains of this member, made where there were none."""
        found, _ = await read_all(self._store, CHAINS)
        known = [ChainRecord.decode(item.value) for item in found]
        name = self._membership.me.name
        mine = {record.klass: record for record in known if record.home == name}
        for klass in self._classes:
            if klass not in mine:
                mine[klass] = await self._found(klass, known)
                known.append(mine[klass])
        return [mine[klass] for klass in self._classes]

    async def _found(self, klass: str, known: Sequence[ChainRecord]) -> ChainRecord:
        me = self._membership.me
        plan = self._plan(klass, known)
        number = await self._store.counter(COUNTER)
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
        )
        key = CHAINS + chain_key(number)
        still_me = Compare(MEMBERS + me.name, "value", "=", me.encode())
        if not (await self._store.txn([absent(key), still_me], [Put(key, record.encode())])).ok:
            raise Unavailable(f"{me.name} is not registered now")
        log.info("chain %d (%s) is made", number, record.name)
        return record

"""Which disks can be reached from here: storage processes are pinged while chains depend on them.

Place: beside `ownership_driver`, for one question that the claims of a process cannot answer by themselves: an owner
that reaches the metadata and its clients, but too few of its disks, keeps its ownership and serves nobody. What does
not answer for `PATIENCE_S` is out of sight; a chain whose disks in sight cannot acknowledge is better served by
somebody else, if anybody sees more.
Promise: does not judge disks that fail in a process that answers; storage sees to those.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from syncpoint.base.model.cluster import ChainRecord
from syncpoint.catalog.metadata.view import ClusterView
from syncpoint.cluster.control.peer_channels import Reach
from syncpoint.log.storage.quorum import AckRule

PATIENCE_S = 4.0

Ping = Callable[[str], Awaitable[Reach]]


class DiskReachability:
    """Track which disks are reachable from here. `now`: the monotonic clock."""

    def __init__(self, view: ClusterView, ping: Ping, now: Callable[[], float]) -> None:
        self._view, self._ping, self._now = view, ping, now
        self._seen: dict[str, float] = {}  # member -> when it answered last, or was first looked for

    async def check(self, chains: Iterable[ChainRecord]) -> None:
        """Ping all storage processes of these chains, at once; returns when each has answered or has not."""
        names = {place.process for record in chains for place in record.places}
        self._seen = {name: self._seen.get(name, self._now()) for name in names}
        await asyncio.gather(*map(self._check_one, sorted(names)))

    async def _check_one(self, name: str) -> None:
        member = self._view.members.get(name)
        if member is not None and await self._ping(member.address) is Reach.ANSWERED and name in self._seen:
            self._seen[name] = self._now()

    def serves(self, record: ChainRecord) -> bool:
        """Whether the disks in sight could acknowledge what is written to a chain."""
        since = self._now() - PATIENCE_S
        return _enough(record, [self._seen.get(place.process, since) >= since for place in record.places])

    async def could_serve(self, record: ChainRecord) -> bool:
        """Check now whether enough disks of a chain are reachable."""

        async def there(name: str) -> bool:
            member = self._view.members.get(name)
            return member is not None and await self._ping(member.address) is Reach.ANSWERED

        names = sorted({place.process for place in record.places})
        answered = dict(zip(names, await asyncio.gather(*map(there, names)), strict=True))
        return _enough(record, [answered[place.process] for place in record.places])


def _enough(record: ChainRecord, slots: list[bool]) -> bool:
    if not slots:
        return True
    rule = AckRule.from_values(record.rule) if record.rule else AckRule.single(len(slots))
    return rule.can_acknowledge([slot for slot, there in enumerate(slots) if there])

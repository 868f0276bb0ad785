"""Durability classes: how often, where and how firmly messages are kept, by names that topics choose.

Place: read by whoever makes chains, routes to them or lets a topic choose; `syncpoint cluster classes` adds to them.
Promise: the classes of a cluster are those in its metadata, the same for all processes a moment after one was added.
One that is there never changes and never goes: chains lie on disks by its definition when they were made.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass

from syncpoint.base.model.errors import Aborted, Code, InvalidArgument, SyncpointError
from syncpoint.broker.router.location import DEFAULT_CLASS
from syncpoint.catalog.metadata.contract import Put, unchanged
from syncpoint.catalog.metadata.layout import SETTINGS
from syncpoint.catalog.metadata.store_client import SharedStore
from syncpoint.catalog.metadata.view import View
from syncpoint.log.storage.placement import DEGRADE, MODES, Wanted
from syncpoint.log.storage.quorum import ALL, MAJORITY
from syncpoint.log.storage.settings import Durability

CLASSES = "classes"  # their place among the cluster's settings
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,62}")


@dataclass(frozen=True, slots=True)
class DurabilityClass:
    """How often, where and how firmly messages are kept before they are acknowledged."""

    name: str = DEFAULT_CLASS
    clusters: int = 3  # N, odd
    disks: int = 3  # M in each cluster, odd
    within: str = MAJORITY  # of the disks of a cluster; or all
    over: str = MAJORITY  # of the clusters; or all
    durability: str = Durability.SYNC.value
    placement: str = DEGRADE
    racks_min: int = 1  # racks that every acknowledging set spans
    spans_regions: bool = False  # the clusters may lie in several regions; refuses while they are parted

    @property
    def wanted(self) -> Wanted:
        """What it asks of the disks."""
        return Wanted(self.clusters, self.disks, self.within, self.over, self.placement, self.racks_min)

    def check(self) -> None:
        """Raises `InvalidArgument` naming the field."""
        if not _NAME.fullmatch(self.name):
            raise InvalidArgument(
                "name", f"{self.name!r} must be a letter and up to 62 letters, digits, '-', '_' and '.'"
            )
        for field, count in (("clusters", self.clusters), ("disks", self.disks)):
            if count < 1 or count % 2 == 0:
                raise InvalidArgument(field, f"must be odd, so that a majority can decide, not {count}")
        for field, given, known in (
            ("within", self.within, (MAJORITY, ALL)),
            ("over", self.over, (MAJORITY, ALL)),
            ("placement", self.placement, MODES),
            ("durability", self.durability, tuple(one.value for one in Durability)),
        ):
            if given not in known:
                raise InvalidArgument(field, f"must be one of {', '.join(known)}, not {given!r}")
        if self.racks_min < 1:
            raise InvalidArgument("racks_min", f"must be 1 or more, not {self.racks_min}")


class DurabilityClasses(Mapping[str, DurabilityClass]):
    """Those of a cluster, by name, kept by a watch. `spanning`: the names of those whose disks may lie in several
    regions. `listeners` learn of each change. `fixed`: nothing can be added here.
    """

    def __init__(self, store: SharedStore, *, fixed: bool = False) -> None:
        self._store, self.fixed = store, fixed
        self._view: View[Mapping[str, DurabilityClass]] = View(store, SETTINGS, _decode)
        self._view.listeners.append(self._changed)
        self.spanning: set[str] = set()
        self.listeners: list[Callable[[], None]] = []

    def __getitem__(self, name: str) -> DurabilityClass:
        return self._now()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(tuple(self._now()))

    def __len__(self) -> int:
        return len(self._now())

    async def start(self) -> None:
        """Read them, and follow. Raises the store's errors."""
        await self._view.start()

    async def close(self) -> None:
        """They are kept no more."""
        await self._view.close()

    async def refresh(self) -> None:
        """Return with all that were added before this call. Raises the store's errors."""
        await self._view.read_again()

    async def add(self, made: DurabilityClass) -> None:
        """Raises ALREADY_EXISTS, `Aborted` when somebody else adds one now, and the store's errors."""
        known = await self._store.get(SETTINGS)
        assert known is not None, "the first process writes them before it joins"
        content = json.loads(known.value)
        if made.name in content[CLASSES]:
            raise _taken(made.name)
        content[CLASSES][made.name] = asdict(made)
        put = Put(SETTINGS, json.dumps(content, sort_keys=True).encode())
        if not (await self._store.txn([unchanged(SETTINGS, known.revision)], [put])).ok:
            raise Aborted("Another caller is changing the cluster's settings. Try again.")
        await self.refresh()

    def refuse_known(self, name: str) -> None:
        """Raises ALREADY_EXISTS for a class there is."""
        if name in self:
            raise _taken(name)

    def _now(self) -> Mapping[str, DurabilityClass]:
        return self._view.get("") or {}

    def _changed(self, keys: set[str]) -> None:
        self.spanning.clear()
        self.spanning.update(name for name, one in self._now().items() if one.spans_regions)
        for listener in self.listeners:
            listener()


def _taken(name: str) -> SyncpointError:
    text = f"there is a durability class {name!r} already; what it asks for cannot be changed. Choose another name"
    return SyncpointError(Code.ALREADY_EXISTS, text)


def _decode(data: bytes) -> Mapping[str, DurabilityClass]:
    return {name: DurabilityClass(**one) for name, one in json.loads(data)[CLASSES].items()}

"""Snapshots in a world of sites: taken, deleted, and judged by what was held when they were taken.

Place: under `site_runs`; FollowSnapshot is the shipped one, over the catalogs of sites.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from syncpoint.base.runtime.random import Random
from syncpoint.catalog.metadata.records import ACTIVE, CatalogChange, Snapshot
from syncpoint.catalog.metadata.snapshot_marks import mark_of
from syncpoint.testing.simulation.sim_site import TOPIC, SimSite

LIFE_NS = 6 * 86_400 * 10**9
NAMES = 3


class TakenSnapshot(NamedTuple):
    """What a snapshot is to hold, and what it is not, whatever is published later."""

    held: frozenset[bytes]
    acknowledged: frozenset[bytes]


class SiteSnapshots:
    """`violations` are added to, as is `happened`."""

    def __init__(self, sites: Sequence[SimSite], random: Random, happened: Counter[str], violations: list[str]) -> None:
        self.sites, self._random, self._happened, self._violations = sites, random, happened, violations
        self._taken: dict[str, TakenSnapshot] = {}
        self._deleted: set[str] = set()

    def step(self, site: SimSite) -> None:
        """Take one, or delete one."""
        if self._random.random() < 0.7:
            self._take(site)
        else:
            self._delete(site)

    def judge(self) -> None:
        """At the end, when sites have come to rest."""
        for site in self.sites:
            for one in self._whole(site):
                identity, name = _identity(site, one), f"a snapshot of {site.name}"
                state, taken = site.publish.snapshots[one.incarnation], self._taken[identity]
                held = {
                    message.data
                    for message in site.stored()
                    if not state.covers(message.source, message.offset, message.offset + 1)
                }
                if taken.held - held:
                    self._violations.append(f"snapshots agree: {name} lacks {sorted(taken.held - held)}")
                if taken.acknowledged & held:
                    back = sorted(taken.acknowledged & held)
                    self._violations.append(f"snapshots agree: {name} holds {back}, which were acknowledged")
                if identity in self._deleted:
                    self._violations.append(f"snapshots agree: {name} was deleted elsewhere")
                if mark_of(site.publish.catalog, one.incarnation).identity:
                    self._happened["a snapshot is copied"] += 1

    def _take(self, site: SimSite) -> None:
        catalog = site.publish.catalog
        name = f"projects/p/snapshots/nightly-{self._random.randrange(0, NAMES)}"
        known = catalog.snapshot(name)
        if known is not None and known.status == ACTIVE:
            return
        now_ns = site.clock.time_ns()
        record = Snapshot(
            catalog.incarnation + 1, name, 1, TOPIC, created_ns=now_ns, expire_ns=now_ns + LIFE_NS,
            subscription=11, generation=site.record.generation,
        )  # fmt: skip
        site.rest()
        site.change(*([] if known is None else [CatalogChange.delete(known)]), CatalogChange.put(record))
        held = frozenset(one.data for one in site.waiting())
        stored = frozenset(one.data for one in site.stored())
        self._taken[_identity(site, record)] = TakenSnapshot(held, stored - held)
        self._happened["a snapshot is taken"] += 1

    def _delete(self, site: SimSite) -> None:
        for one in self._whole(site)[:1]:
            identity = _identity(site, one)
            site.change(CatalogChange.delete(one))
            place = f"{site.universe:x}/11"
            marks = [
                mark_of(other.publish.catalog, copy.incarnation).known_at
                for other in self.sites
                for copy in self._whole(other)
                if _identity(other, copy) == identity
            ]
            if all(place in known_at for known_at in marks):  # else nobody knows yet that it was here
                self._deleted.add(identity)
            self._happened["a snapshot is deleted"] += 1

    def _whole(self, site: SimSite) -> list[Snapshot]:
        return [one for one in site.publish.catalog.snapshots() if one.status == ACTIVE]


def _identity(site: SimSite, one: Snapshot) -> str:
    return mark_of(site.publish.catalog, one.incarnation).identity or f"{site.universe:x}/{one.incarnation}"

"""Which snapshots are one, at several sites: a setting for each snapshot that is a copy, or has been copied.

Place: written by FollowSnapshot together with the record; reported beside acknowledged offsets, to a program that
compares two sites (`programs.federation.acks`).
"""

from __future__ import annotations

import json
from typing import NamedTuple

from syncpoint.catalog.metadata.catalog import Catalog
from syncpoint.catalog.metadata.records import CatalogChange, Setting

PREFIX = "snapshot-sites/"
SITES_MAX = 100
WAS_DELETED = "was deleted here"
GONE_MAX = 1_000  # marks of snapshots that were deleted: each is read where one is begun


class SnapshotMark(NamedTuple):
    """`identity`: UNIVERSE/INCARNATION of the one that was taken, "" where that is this one. `known_at`: places
    (UNIVERSE/INCARNATION of the subscription) that have it, or had it: one that lacks it now has deleted it, or was
    restored to an earlier state. `checked`: of a copy that is not whole. `whole`: it was here, and is known elsewhere,
    so that without a record it was deleted.
    """

    identity: str = ""
    known_at: tuple[str, ...] = ()
    checked: bool = False
    whole: bool = False

    def known(self, places: tuple[str, ...]) -> SnapshotMark:
        """Return the mark with more places; of too many the newest."""
        return self._replace(known_at=tuple(dict.fromkeys((*self.known_at, *places)))[-SITES_MAX:])


def mark_of(catalog: Catalog, snapshot: int) -> SnapshotMark:
    """What is known of a snapshot, by incarnation."""
    stored = catalog.setting(f"{PREFIX}{snapshot}")
    if stored is None:
        return SnapshotMark()
    identity, known_at, checked, whole = json.loads(stored)
    return SnapshotMark(identity, tuple(known_at), checked, whole)


def was_deleted(catalog: Catalog, identity: str) -> bool:
    """Whether a snapshot has been here, and was deleted."""
    marks = (mark_of(catalog, one) for one in _gone(catalog))
    return any(one.whole and one.identity == identity for one in marks)


def put_mark(catalog: Catalog, snapshot: int, mark: SnapshotMark) -> list[CatalogChange]:
    """The changes that write it, and take out the oldest of snapshots that are gone."""
    name = f"{PREFIX}{snapshot}"
    gone = [CatalogChange.delete(Setting(f"{PREFIX}{one}")) for one in sorted(_gone(catalog))[:-GONE_MAX]]
    return [*gone, CatalogChange.put(Setting(name, json.dumps(mark).encode()))]


def _gone(catalog: Catalog) -> list[int]:
    found = (int(one.removeprefix(PREFIX)) for one in catalog.settings_named(PREFIX))
    return [one for one in found if catalog.snapshot_by_incarnation(one) is None]

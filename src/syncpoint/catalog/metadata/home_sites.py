"""Which site delivers a subscription that several sites have: a setting for each subscription that has a home, and
another one where its ordering keys have homes of their own.

Place: written by SetHome together with the options that suspend delivery elsewhere; reported beside acknowledged
offsets, to a program that compares two sites (`programs.federation.acks`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, NamedTuple

from syncpoint.base.model.key_homes import BY_KEY, SLOTS, KeyRange, SlotHome, Slots, ranges_of, slots_of
from syncpoint.base.model.key_homes import elsewhere as slots_elsewhere
from syncpoint.catalog.metadata.catalog import Catalog
from syncpoint.catalog.metadata.records import CatalogChange, Setting

PREFIX = "homes/"
KEYS_PREFIX = "key-homes/"  # the ranges, where the home is `BY_KEY`: earlier versions read the other setting
_ALL = (1 << SLOTS) - 1


class HomeSite(NamedTuple):
    """Subscriptions are delivered at `home`; a later decision has a higher `epoch`. `site`: the name of this one;
    `suspended`: whether receiving was suspended here when another site became the home. `keys`: where ordering keys
    have homes of their own, the ranges of all slots; `home` is `BY_KEY` then.
    """

    site: str
    home: str
    epoch: int
    suspended: bool = False
    keys: tuple[KeyRange, ...] = ()

    @property
    def elsewhere(self) -> bool:
        """Whether another site delivers all of it."""
        return self.mask == _ALL

    @property
    def mask(self) -> int:
        """A bit for each slot that another site delivers."""
        return slots_elsewhere(self.slots, self.site)

    @property
    def slots(self) -> Slots:
        """The home of each slot."""
        return slots_of(self.keys or [KeyRange(0, SLOTS - 1, SlotHome(self.epoch, self.home))])


def home_of_slots(site: str, slots: Slots) -> HomeSite:
    """One home where all slots have the same, else one for each range."""
    ranges = tuple(ranges_of(slots))
    if len(ranges) == 1 and not ranges[0].at.taken_from:
        return HomeSite(site, ranges[0].at.home, ranges[0].at.epoch)
    return HomeSite(site, BY_KEY, max(one.epoch for one in slots), keys=ranges)


def home_of(catalog: Catalog, subscription: int) -> HomeSite | None:
    """The home of a subscription, by incarnation; None: every site delivers it."""
    stored = catalog.setting(f"{PREFIX}{subscription}")
    if stored is None:
        return None
    found: list[Any] = json.loads(stored)
    ranges = found[4] if len(found) > 4 else []
    if found[1] == BY_KEY and (kept := catalog.setting(f"{KEYS_PREFIX}{subscription}")) is not None:
        ranges = json.loads(kept)
    keys = tuple(KeyRange(first, last, SlotHome(*at)) for first, last, at in ranges)
    return HomeSite(*found[:4])._replace(keys=keys)


def put_home(catalog: Catalog, subscription: int, one: HomeSite) -> list[CatalogChange]:
    """The changes that write it, and take out those of subscriptions that are gone."""
    changes = [
        CatalogChange.delete(Setting(other))
        for prefix in (PREFIX, KEYS_PREFIX)
        for other in catalog.settings_named(prefix)
        if catalog.subscription_by_incarnation(int(other.removeprefix(prefix))) is None
    ]
    keys = f"{KEYS_PREFIX}{subscription}"
    if one.keys:
        changes.append(CatalogChange.put(Setting(keys, json.dumps(one.keys).encode())))
    elif catalog.setting(keys) is not None:
        changes.append(CatalogChange.delete(Setting(keys)))
    return [*changes, CatalogChange.put(Setting(f"{PREFIX}{subscription}", json.dumps(one[:4]).encode()))]


def fill_home(answer: Any, one: HomeSite | None) -> None:
    """Write a home into a pipeline.v1.AckChangesResponse."""
    if one is not None:
        answer.home, answer.home_epoch = one.home, one.epoch
        fill_ranges(answer.keys, one.keys)


def fill_ranges(stored: Any, ranges: Iterable[KeyRange]) -> None:
    """Write ranges into a repeated field of pipeline.v1.KeyRange."""
    for first, last, at in ranges:
        stored.add(first=first, last=last, home=at.home, epoch=at.epoch, taken_from=at.taken_from)


def ranges_in(stored: Iterable[Any]) -> list[KeyRange]:
    """Read such a field."""
    return [KeyRange(one.first, one.last, SlotHome(one.epoch, one.home, one.taken_from)) for one in stored]

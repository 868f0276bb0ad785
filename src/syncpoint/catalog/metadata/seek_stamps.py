"""Seeks that were followed from another site: a setting for each subscription that has followed one.

Place: written by FollowSeek together with the new generation; reported beside acknowledged offsets, to a program that
compares two sites (`programs.federation.acks`).
"""

from __future__ import annotations

import json
from typing import NamedTuple

from syncpoint.catalog.metadata.catalog import Catalog
from syncpoint.catalog.metadata.records import CatalogChange, Setting

PREFIX = "seeks/"


class SeekStamp(NamedTuple):
    """Which seek a generation stands for. A later seek has a higher stamp, of whichever site it is."""

    number: int = 0
    site: str = ""


class StampedGeneration(NamedTuple):
    """The newest followed seek of a subscription, and the generation it made here."""

    generation: int = 0
    stamp: SeekStamp = SeekStamp()


NEVER = StampedGeneration()


def stamped(catalog: Catalog, subscription: int) -> StampedGeneration:
    """What a subscription, by incarnation, has followed last."""
    stored = catalog.setting(f"{PREFIX}{subscription}")
    if stored is None:
        return NEVER
    generation, number, site = json.loads(stored)
    return StampedGeneration(generation, SeekStamp(number, site))


def put_stamp(catalog: Catalog, subscription: int, one: StampedGeneration) -> list[CatalogChange]:
    """The changes that write it, and take out those of subscriptions that are gone."""
    name = f"{PREFIX}{subscription}"
    gone = [
        CatalogChange.delete(Setting(other))
        for other in catalog.settings_named(PREFIX)
        if other != name and catalog.subscription_by_incarnation(int(other.removeprefix(PREFIX))) is None
    ]
    value = json.dumps([one.generation, one.stamp.number, one.stamp.site]).encode()
    return [*gone, CatalogChange.put(Setting(name, value))]

"""Which site delivers a subscription that several sites have: a setting for each subscription that has a home.

Place: written by SetHome together with the option that suspends delivery elsewhere; reported beside acknowledged
offsets, to a program that compares two sites (`programs.federation.acks`).
"""

from __future__ import annotations

import json
from typing import NamedTuple

from syncpoint.catalog.metadata.catalog import Catalog
from syncpoint.catalog.metadata.records import CatalogChange, Setting

PREFIX = "homes/"


class HomeSite(NamedTuple):
    """Subscriptions are delivered at `home`; a later decision has a higher `epoch`. `site`: the name of this one;
    `suspended`: whether receiving was suspended here when another site became the home.
    """

    site: str
    home: str
    epoch: int
    suspended: bool = False

    @property
    def elsewhere(self) -> bool:
        """Whether another site delivers."""
        return self.home != self.site


def home_of(catalog: Catalog, subscription: int) -> HomeSite | None:
    """The home of a subscription, by incarnation; None: every site delivers it."""
    stored = catalog.setting(f"{PREFIX}{subscription}")
    return None if stored is None else HomeSite(*json.loads(stored))


def put_home(catalog: Catalog, subscription: int, one: HomeSite) -> list[CatalogChange]:
    """The changes that write it, and take out those of subscriptions that are gone."""
    name = f"{PREFIX}{subscription}"
    gone = [
        CatalogChange.delete(Setting(other))
        for other in catalog.settings_named(PREFIX)
        if other != name and catalog.subscription_by_incarnation(int(other.removeprefix(PREFIX))) is None
    ]
    return [*gone, CatalogChange.put(Setting(name, json.dumps(one).encode()))]

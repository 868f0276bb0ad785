"""Which subscriptions have an exclusive reader according to the catalog: a setting for each of them.

Place: written by those who serve readers (`pipeline.exclusive_readers`, `proxy.exclusive_readers`); checked by
subscribe forwarders before anybody may consume, and by chains before they grant anything.
Promise: a hold is over at its time, by the clock of the process that looks. Until it is *confirmed* nobody is refused
for good: it keeps new consumers waiting while those that are there already are looked for.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from syncpoint.base.model.errors import FailedPrecondition, InvalidArgument, Unavailable
from syncpoint.catalog.metadata.catalog import Catalog
from syncpoint.catalog.metadata.records import CatalogChange, Setting, Subscription

PREFIX = "readers/"
SECONDS_DEFAULT = 60.0
SECONDS_MAX = 3600.0
WRITTEN = 1.5  # times what is asked for: so a hold is written anew once in half of that, not with every call


class ReaderHold(NamedTuple):
    """A reader has a subscription alone until then."""

    reader: str
    until_ns: int
    confirmed: bool

    def lasts(self, seconds: float, now_ns: int) -> bool:
        """Whether it need not be written again for a reader that asks for this long."""
        return self.confirmed and self.until_ns - now_ns >= wanted_s(seconds) * 1e9


def wanted_s(seconds: float) -> float:
    """For how long at least a request holds its subscription. Raises `InvalidArgument`."""
    if not 0 <= seconds <= SECONDS_MAX:
        raise InvalidArgument("exclusive_seconds", f"must be between 0 (the default) and {SECONDS_MAX:.0f}")
    return seconds or SECONDS_DEFAULT


def new_hold(reader: str, seconds: float, now_ns: int, *, confirmed: bool = True) -> ReaderHold:
    """The hold of a request made now. Raises `InvalidArgument`."""
    return ReaderHold(reader, now_ns + round(WRITTEN * wanted_s(seconds) * 1e9), confirmed)


def written_hold(catalog: Catalog, subscription: int) -> ReaderHold | None:
    """The newest hold in the catalog on a subscription, by incarnation, over or not."""
    stored = catalog.setting(f"{PREFIX}{subscription}")
    return None if stored is None else ReaderHold(*json.loads(stored))


def hold_of(catalog: Catalog, subscription: int, now_ns: int) -> ReaderHold | None:
    """Who has a subscription alone now."""
    found = written_hold(catalog, subscription)
    return found if found is not None and now_ns < found.until_ns else None


def check_free(catalog: Catalog, record: Subscription, now_ns: int) -> None:
    """For everybody who wants to consume. Raises `FailedPrecondition`, naming the reader, or `Unavailable` while it is
    not sure yet that it gets the subscription.
    """
    found = hold_of(catalog, record.incarnation, now_ns)
    if found is None:
        return
    if not found.confirmed:
        raise Unavailable(
            f"The stream {found.reader} is about to become the exclusive reader of {record.name}. Try again."
        )
    raise FailedPrecondition(
        f"The subscription {record.name} has an exclusive reader, the stream {found.reader}. Stop that stream, or"
        " create"
        " another subscription."
    )


def put_hold(catalog: Catalog, subscription: int, hold: ReaderHold, now_ns: int) -> list[CatalogChange]:
    """The changes that write a hold, and take out those that are over."""
    name = f"{PREFIX}{subscription}"
    over = [
        CatalogChange.delete(Setting(other))
        for other in catalog.settings_named(PREFIX)
        if other != name and hold_of(catalog, int(other.removeprefix(PREFIX)), now_ns) is None
    ]
    return [*over, CatalogChange.put(Setting(name, json.dumps(hold).encode()))]


def drop_hold(subscription: int) -> CatalogChange:
    """The change that takes a hold out."""
    return CatalogChange.delete(Setting(f"{PREFIX}{subscription}"))

"""Which site delivers which ordering keys of a subscription that several sites have.

Place: written by AckExchange.SetHome (`catalog.metadata.home_sites`), read by subscribe forwarders, compared and moved
by `programs.federation.owned_keys`. Keys fall into `SLOTS` slots by their hash, the same at every site. A subscription
with one home is the case in which all slots have the same one.
Promise: of two decisions about a slot the one with the higher generation holds, of equal ones that with the later name,
so that sites that learn of decisions in any order come to the same (`later`).
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple

SLOTS = 256
BY_KEY = "(by key)"
"""The home of a subscription whose slots have several; no site can have this name."""
MOVING = "(moving)"
"""The home while nobody delivers; a mover may add its own mark."""


class SlotHome(NamedTuple):
    """Who delivers the keys of a slot, since which generation (0: every site delivers). `taken_from`: the site that
    delivered before, which could not be asked to stop, and may not know yet.
    """

    epoch: int = 0
    home: str = ""
    taken_from: str = ""

    @property
    def moving(self) -> bool:
        """Whether nobody delivers."""
        return self.home.startswith(MOVING)


class KeyRange(NamedTuple):
    """Slots from `first` to `last`, and who delivers them."""

    first: int
    last: int
    at: SlotHome


Slots = Sequence[SlotHome]
"""The home of each slot."""
NOWHERE: Slots = (SlotHome(),) * SLOTS


def slot_of(key: bytes) -> int:
    """The slot of an ordering key; of a message without one, that of its id."""
    return zlib.crc32(key) % SLOTS


def ranges_of(slots: Slots) -> list[KeyRange]:
    """Neighbors with the same home as one range."""
    found: list[KeyRange] = []
    for slot, at in enumerate(slots):
        if found and found[-1].at == at:
            found[-1] = found[-1]._replace(last=slot)
        else:
            found.append(KeyRange(slot, slot, at))
    return found


def slots_of(ranges: Iterable[KeyRange]) -> list[SlotHome]:
    """What ranges say of each slot; of a slot in none of them nothing was decided."""
    slots = list(NOWHERE)
    for first, last, at in ranges:
        slots[first : last + 1] = [at] * (last + 1 - first)
    return slots


def later(one: Slots, other: Slots) -> list[SlotHome]:
    """The decision that holds, of each slot."""
    return [max(pair) for pair in zip(one, other, strict=True)]


def elsewhere(slots: Slots, site: str) -> int:
    """A bit for each slot that is not delivered at a site."""
    return sum(1 << slot for slot, at in enumerate(slots) if at.home not in ("", site))

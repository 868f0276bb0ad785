"""Machine: which messages the home has done with, though this gateway saw no acknowledgement confirmed.

Place: beside `dual_identities`. A message that became a letter, or whose acknowledgement's answer was lost, does not
come again, and nothing would ever acknowledge the other site's copy. The home knows which offsets of which sources are
acknowledged, and the message id that it delivered names both.
Promise: a message counts as done with only after the home reported it twice, in one generation, and after every letter
that it had by the first time is at the other site, too. What copies letters is older than the letter in doubt: none is
lacking to it, or it was there when the home delivered the message last. A site that lost its disks has another
universe, and proves nothing of what it delivered before.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from itertools import islice
from typing import Any, Final, NamedTuple

from syncpoint.base.model.errors import InvalidArgument
from syncpoint.base.model.identity import parse_message_id

ORIGINS_MAX: Final = 100_000
LOOKED_AT_MAX: Final = 10_000
"""Messages that one look judges, the ones delivered longest ago: the event loop serves everybody."""

log = logging.getLogger(__name__)


class HandedOut(NamedTuple):
    """A message as a site delivered it, the `number`-th delivery of this gateway."""

    message_id: str
    published_s: float
    number: int


class HomeAnswer(NamedTuple):
    """What the home reported. `done`: identities; `letters`: where its letters ended, by source; None: not known."""

    tag: str
    era: tuple[int, int]
    done: frozenset[str]
    letters: dict[int, int] | None


class HomeProof:
    """One subscription."""

    def __init__(self) -> None:
        self._origins: dict[str, OrderedDict[str, HandedOut]] = {}  # by tag of a site and identity; the oldest go
        self._seen: frozenset[str] = frozenset()
        self._before: HomeAnswer | None = None
        self._delivered = 0
        self._lettered: dict[str, tuple[str, int, int]] = {}  # by tag: how letters are copied, and after which delivery

    def __len__(self) -> int:
        return sum(map(len, self._origins.values()))

    def clear(self) -> None:
        """Know nothing: a seek."""
        self._origins.clear()
        self._before = None

    def delivered(self, tag: str, identity: str, message_id: str, published_s: float) -> None:
        """A site delivered a message."""
        origins = self._origins.setdefault(tag, OrderedDict())
        self._delivered += 1
        origins[identity] = HandedOut(message_id, published_s, self._delivered)
        origins.move_to_end(identity)
        if len(origins) > ORIGINS_MAX:
            origins.popitem(last=False)

    def done_with(self, identity: str) -> None:
        """A message is acknowledged: nothing is to be proven."""
        for origins in self._origins.values():
            origins.pop(identity, None)

    def to_ask(self, tag: str) -> bool:
        """Whether the home is to be asked: something was under way already when this was last called, or it is not
        known how its letters are copied.
        """
        before, self._seen = self._seen, frozenset(islice(self._origins.get(tag, ()), LOOKED_AT_MAX))
        return tag not in self._lettered or not before.isdisjoint(self._seen)

    def looked(self, tag: str, state: Any, letters: Any) -> list[tuple[str, float]]:
        """Messages, with their publish times, that the home certainly has done with. `state`: what it reports of the
        subscription; `letters`: and of the one by which its letters are copied, asked after that; None: letters stay
        at their site.
        """
        sources: dict[tuple[int, int], list[Any]] = {}
        for one in state.sources:
            sources.setdefault((one.universe, one.source), []).append(one)
        copied_by = (letters.subscription, letters.incarnation) if letters is not None else ("", 0)
        if self._lettered.get(tag, ())[:2] != copied_by:
            self._lettered[tag] = (*copied_by, 0 if _copies_all(letters) else self._delivered)
            log.info("%s at %s: letters are copied by %r", state.subscription, tag, copied_by[0])
        since, origins = self._lettered[tag][2], self._origins.get(tag, OrderedDict())
        done = frozenset(
            identity
            for identity, origin in islice(origins.items(), LOOKED_AT_MAX)
            if origin.number > since and _is_acknowledged(origin.message_id, sources)
        )
        era = (state.incarnation, state.generation)
        before, self._before = self._before, HomeAnswer(tag, era, done, _ends(letters))
        if before is None or (before.tag, before.era) != (tag, era) or not _copied(before.letters, letters):
            return []
        return [(one, origins[one].published_s) for one in before.done & done]


def _is_acknowledged(message_id: str, sources: dict[tuple[int, int], list[Any]]) -> bool:
    try:
        universe, number, offset = parse_message_id(message_id)
    except InvalidArgument:
        return False
    found = sources.get((universe, number), ())
    return bool(found) and all(_covers(one, offset) for one in found)


def _covers(source: Any, offset: int) -> bool:
    """Whether an offset was acknowledged after the subscription began."""
    if not source.start_offset <= offset < source.next_offset:
        return False
    ranges = source.acked if source.copies == 1 else ()  # else they are of one of several copies
    return offset < source.first_unacked_offset or any(one.begin <= offset < one.end for one in ranges)


def _copies_all(letters: Any) -> bool:
    """Whether there was never a letter before there was what copies them."""
    return letters is not None and not letters.unknown and not any(one.start_offset for one in letters.sources)


def _ends(letters: Any) -> dict[int, int] | None:
    if letters is None:
        return {}
    return None if letters.unknown else {one.source: one.next_offset for one in letters.sources}


def _copied(ends: dict[int, int] | None, letters: Any) -> bool:
    """Whether all letters before these ends are at the other site."""
    if ends is None:
        return False
    copied: dict[int, int] = {}
    for one in letters.sources if letters is not None else ():
        copied[one.source] = min(one.first_unacked_offset, copied.get(one.source, one.first_unacked_offset))
    return all(copied.get(source, -1) >= end for source, end in ends.items())

"""Moving ordering keys from site to site: held, acknowledgements brought, copied, and then delivered at the next site.

Place: under `syncpoint federation keys`. What `acks.home_move` does with a subscription, with slots of its keys; the
other keys are delivered on.
Promise: nothing of a key is lent at its next site before the one before has stopped, and all that its consumers
acknowledged, and all that was published before it stopped, is there. Where that is not so in time, the keys go back,
under a new generation. A move that breaks off leaves its keys held until one is made again; of two at a time one stops.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from syncpoint.base.model.errors import FailedPrecondition
from syncpoint.base.model.key_homes import MOVING, SlotHome, Slots
from syncpoint.programs.federation.acks.ack_rounds import AckRounds
from syncpoint.programs.federation.acks.copied_tail import CopiedTail, Heads
from syncpoint.programs.federation.owned_keys.key_sites import KeySites, KnownKeys

LOOK_S = 0.1
NEARLY = 1000  # messages: copied within a moment


@dataclass(frozen=True, slots=True)
class MovedKeys:
    """What a move came to. `held_s`: how long nobody delivered the keys. `lent`: messages that consumers of the sites
    before still had, and `lacking`: those that the next sites lacked, where it was forced.
    """

    slots: int
    epoch: int
    held_s: float = 0.0
    lent: int = 0
    lacking: int = 0


class KeyMove:
    """Moves keys of one subscription."""

    def __init__(
        self,
        sites: KeySites,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._sites, self._clock, self._sleep = sites, clock, sleep
        self._mark = f"{MOVING} {uuid.uuid4().hex[:8]}"

    def move(self, wanted: Mapping[int, str], drain_s: float, *, force: bool = False) -> MovedKeys:
        """Give slots to sites. Waits up to `drain_s` for consumers and copies; `force`: goes on then all the same, and
        without sites that do not answer. Raises `SyncpointError`.
        """
        sites = self._sites
        sites.check(wanted.values())
        known = sites.known()
        newest = known.newest
        moved = {slot: site for slot, site in wanted.items() if newest[slot].home != site}
        epoch = 1 + max(one.epoch for one in newest)
        if not moved:
            return MovedKeys(0, epoch - 1)
        before = self._owners(moved, known, force=force)
        targets = set(moved.values())
        tails = {site: self._tail(site, known) for site in targets}
        end = self._clock() + drain_s
        while not force and (lacking := _lacking(tails)) > NEARLY:
            if self._clock() >= end:
                raise _refused(_shortfall(0, lacking), targets)
            self._sleep(LOOK_S)
        began = self._clock()
        held = {slot: SlotHome(epoch, self._mark, newest[slot].taken_from) for slot in moved}
        for site in known.at:
            sites.notify(site, held)
        lent, lacking = self._drained(before, known.at.keys(), tails, began + drain_s)
        if (lent or lacking) and not force:
            self._back(moved, newest, epoch + 1, known.at)
            raise _refused(_shortfall(lent, lacking), targets)
        decided = {slot: SlotHome(epoch + 1, site, newest[slot].taken_from) for slot, site in moved.items()}
        self._notify_all(decided, [*targets, *(one for one in known.at if one not in targets)])
        return MovedKeys(len(moved), epoch + 1, self._clock() - began, max(0, lent), lacking)

    def _owners(self, moved: Mapping[int, str], known: KnownKeys, *, force: bool) -> list[str]:
        """The sites that may deliver some of the slots now. Raises `FailedPrecondition` where one must be asked that
        does not answer.
        """
        if (back := known.back) and not force:  # a move exchanges acknowledgements: nobody could tell them apart then
            raise FailedPrecondition(
                f"{', '.join(back)} has come back, and `syncpoint federation run` finds out what it delivered."
                " Run the command again in a while."
            )
        homes = {known.newest[slot].home for slot in moved}
        everybody = any(not home or home.startswith(MOVING) for home in homes)
        owners = set(self._sites.ends) if everybody else homes
        needed = set(moved.values()) | (set() if force else owners)
        if silent := sorted(needed & known.silent.keys()):
            raise FailedPrecondition(
                f"{', '.join(silent)} does not answer: what it delivers now is unknown, so its keys stay where they"
                " are. With --force they move anyway, and what it still delivers may be delivered twice."
            )
        return sorted(owners & known.at.keys())

    def _tail(self, site: str, known: KnownKeys) -> CopiedTail:
        sites = self._sites
        links = [one for one in sites.links if one.source.name in known.at]
        return CopiedTail(sites.servers, links, sites.ends[site])

    def _drained(
        self, before: Iterable[str], answering: Collection[str], tails: Mapping[str, CopiedTail], end: float
    ) -> tuple[int, int]:
        """Wait until consumers have nothing of the keys, all is copied, and a round has begun and ended after that;
        what consumers have (-1: unknown), and what is not copied.
        """
        sites = self._sites
        rounds = AckRounds(sites.links, sites.servers, among=answering)
        heads: dict[str, Heads] = {site: tail.heads() for site, tail in tails.items()}
        while True:
            counts = [sites.lent(site) for site in before]
            lent = -1 if None in counts else sum(one or 0 for one in counts)
            lacking = _lacking(tails, heads)
            if sites.known().back:  # since this began, too
                return -1, lacking
            for _ in sites.ends:  # as many as there may be sites between two
                rounds.hurry()
                rounds.step()
            done = not lent and not lacking and rounds.completed(sites.subscription, answering)
            if done or self._clock() >= end:
                return lent if lent or lacking or done else -1, lacking
            self._sleep(LOOK_S)

    def _back(self, moved: Iterable[int], before: Slots, epoch: int, answering: Iterable[str]) -> None:
        """Give keys back to the sites that delivered them; those of no site stay held."""
        back = {slot: SlotHome(epoch, at.home, at.taken_from) for slot in moved if _is_site(at := before[slot])}
        self._notify_all(back, answering)

    def _notify_all(self, decided: Mapping[int, SlotHome], names: Iterable[str]) -> None:
        for site in names if decided else ():
            self._sites.notify(site, decided, self._mark)


def _is_site(at: SlotHome) -> bool:
    return bool(at.home) and not at.moving


def _lacking(tails: Mapping[str, CopiedTail], heads: Mapping[str, Heads] | None = None) -> int:
    return sum(tail.left(tail.heads() if heads is None else heads[site]) for site, tail in tails.items())


def _shortfall(lent: int, lacking: int) -> str:
    if lacking:
        return f"lack {lacking:,} messages that other sites have"
    if lent > 0:
        return f"repeat {lent:,} messages that consumers still have"
    return "not know all that was acknowledged elsewhere"


def _refused(why: str, targets: Iterable[str]) -> FailedPrecondition:
    return FailedPrecondition(
        f"The keys stay where they were: {', '.join(sorted(targets))} would {why}."
        " Wait, or give a longer --drain; with --force they move anyway."
    )

"""At risk: what a failure of disks, or of the process that writes the log, would do to each entry, decided beforehand.

Place: beside `receipts`; `Store.holdings` takes the facts in one turn of the owner's thread, `publish.chain_risk` asks
about failures and reads the indexes of those segments that `FailureJudgement.touches` names.
Promise: pure, and exact for the moment of the facts. An entry is lost only if no disk that is left has it; it is away
while only disks have it that do not answer, or come back later. What a disk that nobody has seen since the opening may
have is not counted: it is named in `StoreHoldings.unseen`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from syncpoint.log.storage.damage import SegmentPart
from syncpoint.log.storage.disk.maintenance import DiskMaintainer
from syncpoint.log.storage.disk.segment_catalog import Segment, SegmentCatalog
from syncpoint.log.storage.index import IndexRecord
from syncpoint.log.storage.log import Log
from syncpoint.log.storage.quorum import AckRule

NOT_SERVED = "too few disks would remain to acknowledge messages"
NOT_OPENED = "too few disks would remain to open it"
NOT_WHOLE = "it cannot open while persisted data is missing on every disk that answers"


class EntryFate(IntEnum):
    """What becomes of an entry, best first."""

    HELD = 0
    AWAY = 1  # only disks have it that may come back
    LOST = 2


class DiskFailure(NamedTuple):
    """What happens at one moment, by slot. `gone`: with all they hold; `silent`: out of reach, and back later as they
    are. `owner`: the process that writes the log is killed; what it has handed to disks stays.
    """

    gone: frozenset[int] = frozenset()
    silent: frozenset[int] = frozenset()
    owner: bool = False


class SegmentHolding(NamedTuple):
    """Who holds one segment, as far as it is promised. `whole`: the disks that hold all of it, where no other one holds
    a part, or will; None otherwise. `upto`: by slot, the last position that is there; `growing`:
    disks to which the owner still writes all of it; `bad`: by slot, where frames are damaged on every disk.
    """

    id: int
    log: int
    first_position: int
    last_position: int
    upto: Mapping[int, int]
    growing: frozenset[int]
    bad: Mapping[int, frozenset[int]]
    whole: frozenset[int] | None = None


class HeaderHolding(NamedTuple):
    """A fragment whose first header the old members must know: by whose rule, who has it, and who can still get it."""

    rule: AckRule
    held: frozenset[int]
    live: frozenset[int]


class FragmentHolding(NamedTuple):
    """One that recovery may find to be the newest. `known`: slots whose disk has its first header; `named`: members
    whose disk still has the name it had; `never`: slots that were away when it began.
    """

    rule: AckRule
    known: frozenset[int]
    named: frozenset[int]
    never: frozenset[int]


class StoreHoldings(NamedTuple):
    """All facts, as of one turn. `answering`: disks that work and answer, or stand by; `returning`: those that failed
    or do not answer, and are not known to be empty. `floor`: log and position from which on facts would have to be
    replayed.
    """

    answering: frozenset[int]
    returning: frozenset[int]
    unseen: frozenset[int]
    live: frozenset[int]  # slots that the newest fragment writes to
    segments: Sequence[SegmentHolding]
    fragments: Sequence[FragmentHolding]  # oldest first
    headers: Sequence[HeaderHolding]
    floor: tuple[int, int]
    ended: str  # why nothing is acknowledged any more already


class FailureJudgement:
    """What one failure would do. `stops`: why the chain would not be served, "" where it would; what is not lost is
    unavailable then.
    """

    def __init__(self, holdings: StoreHoldings, failure: DiskFailure) -> None:
        self._failure, self._segments = failure, holdings.segments
        self._fates: dict[frozenset[int], EntryFate] = {}  # of disks that hold the same
        self._here = holdings.answering - failure.gone - failure.silent
        self._later = (holdings.answering | holdings.returning) - failure.gone - self._here
        self._touched = {one.id for one in holdings.segments if one.bad or self._worst(one) is not EntryFate.HELD}
        self.stops = holdings.ended or (
            self._opening(holdings) if failure.owner else "" if self._goes_on(holdings) else NOT_SERVED
        )

    def touches(self, segment: SegmentHolding) -> bool:
        """Whether something of the segment may be lost or away."""
        return segment.id in self._touched

    def entries(self) -> tuple[int, int]:
        """How many promised entries, of any kind, would be lost, and how many unavailable."""
        lost = away = total = 0
        for segment in self._segments:
            if segment.whole is not None:
                count, fate = segment.last_position - segment.first_position + 1, self._fate(segment.whole)
                lost += count if fate is EntryFate.LOST else 0
                away += count if fate is EntryFate.AWAY else 0
                total += count
                continue
            slots = {*segment.upto, *segment.growing}
            ends = sorted({min(self._reach(segment, slot), segment.last_position) for slot in slots})
            begin = segment.first_position
            for end in [*ends, segment.last_position]:
                count = max(0, end - begin + 1)
                fate = self._fate(slot for slot in slots if self._reach(segment, slot) >= end)
                lost += count if fate is EntryFate.LOST else 0
                away += count if fate is EntryFate.AWAY else 0
                total += count
                begin = max(begin, end + 1)
        return lost, total - lost if self.stops else away

    def fate(self, segment: SegmentHolding, record: IndexRecord) -> EntryFate:
        """What becomes of one entry of it."""
        position = segment.first_position + record.ordinal
        if position > segment.last_position:
            return EntryFate.HELD  # promised to nobody
        return self._fate(
            slot
            for slot in {*segment.upto, *segment.growing}
            if self._reach(segment, slot) >= position and record.offset not in segment.bad.get(slot, ())
        )

    def _reach(self, segment: SegmentHolding, slot: int) -> int:
        """Up to where a disk has the segment in the end, or will once the owner has written what waits for it."""
        if slot in segment.growing and not self._failure.owner:
            return segment.last_position
        return segment.upto.get(slot, 0)

    def _fate(self, slots: Iterable[int]) -> EntryFate:
        held = frozenset(slots)
        known = self._fates.get(held)
        if known is None:
            known = EntryFate.HELD if held & self._here else EntryFate.AWAY if held & self._later else EntryFate.LOST
            self._fates[held] = known
        return known

    def _worst(self, segment: SegmentHolding) -> EntryFate:
        """Return the fate of a segment's last entry: a disk that has it has all entries before it."""
        if segment.last_position < segment.first_position:
            return EntryFate.HELD
        if segment.whole is not None:
            return self._fate(segment.whole)
        last = segment.last_position
        return self._fate(slot for slot in {*segment.upto, *segment.growing} if self._reach(segment, slot) >= last)

    def _goes_on(self, holdings: StoreHoldings) -> bool:
        newest = holdings.fragments[-1]
        return newest.rule.can_acknowledge(holdings.live & self._here) and all(
            header.rule.can_acknowledge(header.held | (header.live & self._here)) for header in holdings.headers
        )

    def _opening(self, holdings: StoreHoldings) -> str:
        """As `recovery.members` decides, by the newest fragment that is found; and as `recovery.decide_tails` does."""
        found = [one for one in holdings.fragments if one.known & self._here]
        if not found:
            return NOT_OPENED
        newest = found[-1]
        present = newest.named & self._here
        if not newest.rule.is_read_set(present | newest.never) or not newest.rule.can_acknowledge(present):
            return NOT_OPENED
        if any(self._worst(one) is not EntryFate.HELD for one in holdings.segments):
            return NOT_WHOLE
        return ""


def holdings(
    log: Log,
    catalog: SegmentCatalog,
    maintainers: Sequence[DiskMaintainer],
    floor: tuple[int, int],
    failure: Exception | None,
    confirmed_late: bool,
) -> StoreHoldings:
    """Take the facts; owner's thread. Indexes are not read. `confirmed_late`: what a disk was given is known to be
    there only once it is synced, as with disks of other processes under durability `sync`.
    """
    failed = frozenset(one.slot for one in maintainers if not one.ok)
    answering = frozenset(one.slot for one in maintainers if (one.ok and one.answers) or one.stands_by)
    unseen = frozenset(one.slot for one in maintainers if one.writer is None)
    every = frozenset(range(len(maintainers)))
    fragments = []
    for fragment in log.fragments:
        pairs = list(zip(fragment.writers, maintainers, strict=True))
        mine = frozenset(m.slot for w, m in pairs if w is not None and w is m.writer)
        fragments.append(
            FragmentHolding(
                fragment.rule,
                frozenset(m.slot for w, m in pairs if w is not None and w.opened >= fragment.first_seq),
                mine,
                frozenset(m.slot for w, m in pairs if w is None),
            )
        )
    headers = []
    for fragment in log.fragments:
        if fragment.previous is not None and not fragment.header_held():
            old = fragment.previous
            held = (slot for slot, w in enumerate(old.writers) if w is not None and w.opened >= fragment.first_seq)
            headers.append(HeaderHolding(old.rule, frozenset(held), frozenset(old.live)))
    return StoreHoldings(
        answering,
        every - answering - unseen,
        unseen,
        frozenset(log.fragment.live),
        [_segment(one, log, maintainers, failed, confirmed_late) for one in catalog if not one.removed],
        fragments,
        headers,
        floor,
        "" if failure is None else str(failure),
    )


def _segment(
    segment: Segment, log: Log, maintainers: Sequence[DiskMaintainer], failed: frozenset[int], confirmed_late: bool
) -> SegmentHolding:
    current = segment.log == log.counter
    last = min(segment.last_position, log.persisted) if current else segment.last_position
    upto, growing = {}, set()
    for slot, copy in segment.copies.copy().items():
        whole = any(place.part is SegmentPart.FILE for place in segment.unreadable.get(slot, ()))
        if not whole:
            upto[slot] = segment.last_position if copy.sealed else min(copy.written, segment.last_position)
    for maintainer in maintainers if current else ():
        writer, slot = maintainer.writer, maintainer.slot
        if writer is None or writer.first_seq > segment.seq:
            continue
        if confirmed_late and slot in upto and not segment.copies[slot].sealed:
            upto[slot] = min(upto[slot], writer.synced)
        if slot in failed:
            # What it had of the segment that was open stays on it, also when the others have sealed that without it.
            if slot not in segment.copies and writer.opened == segment.seq:
                there = writer.synced if confirmed_late else writer.written
                upto[slot] = min(there, segment.last_position)
        elif slot not in upto or not segment.copies[slot].sealed:
            growing.add(slot)
    bad = {
        slot: frozenset(place.offset for place in places if place.part is SegmentPart.FRAME)
        for slot, places in segment.unreadable.copy().items()
    }
    return SegmentHolding(
        segment.id,
        segment.log,
        segment.first_position,
        last,
        upto,
        frozenset(growing),
        {slot: offsets for slot, offsets in bad.items() if offsets},
        frozenset(upto) if not growing and all(end >= last for end in upto.values()) and last > 0 else None,
    )


class SegmentRows(NamedTuple):
    """Promised entries of one segment in the order of positions; `payloads`: of the kinds that were wanted."""

    records: Sequence[IndexRecord]
    payloads: Mapping[int, bytes]  # by ordinal


RowsReply = Callable[[SegmentRows | Exception | None], None]
"""None: the segment is deleted."""

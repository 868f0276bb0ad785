"""Find the tail: which entries a log has, decided from everything found on any disk. Pure; changes nothing.

Place: between `scan` and `repair`.
Rules: anything found anywhere in good order and without a gap is kept. What is missing above every mark of sync was
never promised to anyone and is cut; what is missing at or below such a mark was promised, and is *lost* unless
another disk has it. A segment that has a successor is complete up to it. A *final* seal ends a log: segments after
it, on a disk that was away when it was made, are void; of two seals the one by the higher log counter holds, because
every recovery reserves its counter on an acknowledging set before it seals.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from syncpoint.log.storage.index import ActiveIndex
from syncpoint.log.storage.recovery.scan import FoundCopy, FrameTable, Scanned
from syncpoint.log.storage.segment import DATA_START, Trailer


@dataclass(slots=True)
class SegmentTail:
    """What recovery decided about one segment."""

    log: int
    seq: int
    first_position: int
    last_position: int
    copies: dict[int, FoundCopy]  # by slot
    trailer: Trailer | None  # None: it has to be sealed
    complete: set[int]  # slots whose copy holds all entries in their places
    index: ActiveIndex | None = None  # from the scan, for segments without a trailer
    data_end: int = DATA_START
    lost: list[int] = field(default_factory=list)  # positions promised and on no disk
    cut: dict[int, int] = field(default_factory=dict)  # slot -> frames above the accepted end


@dataclass(slots=True)
class LogTail:
    """What recovery decided about one log."""

    log: int
    segments: list[SegmentTail] = field(default_factory=list)
    void: list[FoundCopy] = field(default_factory=list)
    missing: list[int] = field(default_factory=list)  # numbers of segments that must exist and are nowhere


ScanFrames = Callable[[Sequence[FoundCopy]], Sequence[FrameTable]]
"""Reads through all of these copies."""


def find_tail(
    log: int,
    copies: Sequence[FoundCopy],
    removed: Callable[[int], bool],
    promised: Callable[[int], bool],
    scan: ScanFrames,
    rescan: frozenset[int],
) -> LogTail:
    """Decide the fate of every segment of one log.

    `promised`: segments that an earlier opening has sealed on enough disks. `rescan`: segments whose index is damaged
    on every disk.
    """
    tail = LogTail(log)
    by_seq: dict[int, dict[int, FoundCopy]] = {}
    for copy in copies:
        by_seq.setdefault(copy.header.seq, {})[copy.slot] = copy
    finals = [copy for copy in copies if copy.trailer is not None and copy.trailer.final]
    end_seq = max(by_seq)
    if finals:
        decisive = max(finals, key=lambda copy: copy.trailer.sealed_by if copy.trailer else 0)
        end_seq = decisive.header.seq
        tail.void = [copy for copy in copies if copy.header.seq > end_seq]
    numbers = sorted(seq for seq in by_seq if seq <= end_seq)
    # A header on an acknowledging set proves that all segments before it were whole there. On fewer disks it proves
    # only that one disk believed so, which may have lied: then the log simply ends before the gap.
    proven = max((seq for seq in numbers if acknowledged(by_seq[seq].values())), default=0)
    gaps = [seq for seq in range(1, end_seq) if seq not in by_seq and not removed(seq)]
    tail.missing = [seq for seq in gaps if seq < proven]
    unproven = min((seq for seq in gaps if seq >= proven), default=None)
    if unproven is not None:
        numbers = _end_before(tail, by_seq, numbers, unproven)
    unsettled = {
        seq for seq in numbers if seq in rescan or _needs_scan(by_seq[seq], ended=seq < proven or promised(seq))
    }
    open_ones = [copy for seq in numbers if seq in unsettled for copy in by_seq[seq].values()]
    tables = {copy.path: table for copy, table in zip(open_ones, scan(open_ones), strict=True)}
    marks = [copy.marked for seq in numbers for copy in by_seq[seq].values()]
    synced = max([0, *marks, *(table.synced for table in tables.values())])
    for at, seq in enumerate(numbers):
        found = by_seq[seq]
        following = by_seq[numbers[at + 1]] if at + 1 < len(numbers) and numbers[at + 1] == seq + 1 else None
        must_end = _any(following).header.first_position - 1 if following else None
        seal = max(
            (copy.trailer for copy in found.values() if copy.trailer is not None),
            key=lambda trailer: trailer.sealed_by,
            default=None,
        )
        if seal is not None and seq not in unsettled:
            tail.segments.append(_sealed(log, seq, found, seal))
        else:
            if seal is not None:
                must_end = seal.last_position
            mine = {slot: tables[copy.path] for slot, copy in found.items()}
            sealed = [copy for copy in found.values() if copy.trailer is not None]
            sure = seq < proven or len(sealed) == len(found) or acknowledged(sealed)
            proof = must_end if must_end is not None and sure else synced
            segment = _scanned(log, seq, found, mine, must_end, proof)
            tail.segments.append(segment)
            if must_end is not None and segment.last_position < must_end and not segment.lost:
                _end_before(tail, by_seq, numbers, seq + 1)
                break
    return tail


def _needs_scan(copies: Mapping[int, FoundCopy], ended: bool) -> bool:
    """Whether a segment's frames must be read, to be written and sealed on enough disks.

    It is not sealed, or sealed on so few disks that unsealed copies count, or that nobody has promised it yet.
    """
    sealed = [copy for copy in copies.values() if copy.trailer is not None]
    return not sealed or (not acknowledged(sealed) and (len(sealed) < len(copies) or not ended))


def acknowledged(copies: Iterable[FoundCopy]) -> bool:
    """Whether what these copies of one segment hold is on an acknowledging set of its fragment.

    A copy made later, on a disk that was no member, stands for a member whose slot it has; where all members are alike,
    for any.
    """
    slots: set[int] = set()
    later: list[int] = []
    rule = None
    for copy in copies:
        header = copy.header
        rule = header.rule
        if header.disk in header.members:
            slots.add(header.members.index(header.disk))
        else:
            later.append(copy.slot)
    if rule is None:
        return False
    for slot in later:
        if rule.plain and (slot in slots or slot >= len(rule)):
            slot = next((other for other in range(len(rule)) if other not in slots), slot)
        slots.add(slot)
    return rule.can_acknowledge(slots)


def _any(copies: Mapping[int, FoundCopy]) -> FoundCopy:
    return next(iter(copies.values()))


def _end_before(
    tail: LogTail, by_seq: Mapping[int, Mapping[int, FoundCopy]], numbers: Sequence[int], end: int
) -> list[int]:
    """What lies at or after segment `end` is void; returns the numbers before it."""
    tail.void += [copy for seq in numbers if seq >= end for copy in by_seq[seq].values()]
    return [seq for seq in numbers if seq < end]


def _sealed(log: int, seq: int, found: Mapping[int, FoundCopy], seal: Trailer) -> SegmentTail:
    complete = {slot for slot, copy in found.items() if copy.trailer == seal}
    first = next(iter(found.values())).header.first_position
    return SegmentTail(log, seq, first, seal.last_position, dict(found), seal, complete, data_end=seal.data_end)


def _scanned(
    log: int,
    seq: int,
    found: Mapping[int, FoundCopy],
    tables: Mapping[int, FrameTable],
    must_end: int | None,
    synced: int,
) -> SegmentTail:
    """Join what the copies hold. Layout is the same on all disks, so an entry counts only at its own offset."""
    first = next(iter(found.values())).header.first_position
    tail = SegmentTail(log, seq, first, first - 1, dict(found), None, set(found), ActiveIndex())
    limit = synced if must_end is None else min(synced, must_end)
    position, offset = first, DATA_START
    broken = False
    highest = max((max(table.frames, default=0) for table in tables.values()), default=0)
    while position <= max(highest, limit):
        scanned = _at(tables, position, None if broken else offset)
        if scanned is None:
            if position > limit:
                break
            tail.lost.append(position)
            broken = True  # after a hole only the frames themselves know where they lie
            position += 1
            continue
        if must_end is not None and position > must_end:
            break
        header = scanned.header
        tail.index.add(  # type: ignore[union-attr]
            header.kind,
            header.source,
            header.first_offset,
            header.count,
            header.time_ns,
            scanned.offset,
            header.length,
            position - first,
        )
        for slot, table in tables.items():
            mine = table.frames.get(position)
            if mine is None or mine.offset != scanned.offset:
                tail.complete.discard(slot)
        offset = scanned.offset + 64 + header.length
        broken = False
        tail.last_position = position
        tail.data_end = offset
        position += 1
    if tail.lost:
        tail.last_position = max(tail.last_position, tail.lost[-1])
    for slot, table in tables.items():
        above = sum(1 for other in table.frames if other > tail.last_position)
        if above:
            tail.cut[slot] = above
    return tail


def _at(tables: Mapping[int, FrameTable], position: int, offset: int | None) -> Scanned | None:
    for table in tables.values():
        scanned = table.frames.get(position)
        if scanned is not None and (offset is None or scanned.offset == offset):
            return scanned
    return None

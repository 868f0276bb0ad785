"""Recover: open the disks, decide, and only then change anything.

Place: called once by `Store.open`. The order is the safety argument:
1. read identities, marks and segments of all disks; refuse unless enough of the newest fragment's members are here,
by the ack rule that its header names;
2. find the tail of every log; refuse when something promised is on no disk;
3. reserve the next log counter on all disks: of two interrupted recoveries the later one has the higher counter;
4. rewrite, seal and sync every unsealed tail on an acknowledging set; what other disks lack is completed in the
background.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from syncpoint.runtime.files import DiskFenced, Files
from syncpoint.runtime.random import Random
from syncpoint.storage.copy_reader import CopyReader
from syncpoint.storage.damage import Damage
from syncpoint.storage.disk.disk_identity import (
    DiskIdentity,
    Marks,
    encode_marks,
    merge_marks,
    read_identity,
    write_identity,
    write_marks,
)
from syncpoint.storage.disk.segment_catalog import Segment, SegmentCatalog, SegmentCopy
from syncpoint.storage.disk.step_workers import one_by_one
from syncpoint.storage.errors import (
    CopiesChanged,
    CounterTaken,
    DisksMissing,
    Fenced,
    ForeignDisk,
    StorageDamaged,
)
from syncpoint.storage.index import DamagedIndex, IndexRecord
from syncpoint.storage.layout import DISK_FILE, LOCK_FILE, logs_dir
from syncpoint.storage.quorum import AckRule
from syncpoint.storage.recovery.find_tail import LogTail, SegmentTail, find_tail
from syncpoint.storage.recovery.repair import broken_records, rebuild, seal_again, settle
from syncpoint.storage.recovery.scan import DiskScan, FoundCopy, FrameTable, newest_header, scan_disk, scan_frames
from syncpoint.storage.recovery.tidy import tidy
from syncpoint.storage.segment import NOBODY, SegmentHeader
from syncpoint.storage.settings import OPENINGS_MAX, StorageSettings

Together = Callable[[Sequence[Callable[[], Any]]], list[Any]]
"""See `Workers.together`."""
OnCopy = Callable[[Files, str, SegmentHeader, Segment], None]

_COUNTERS_UNKNOWN = 10_000  # left out where absent disks may know later logs: their message ids must not come again


class _DiskLeft(CopiesChanged):
    """A disk that others decided by is not there any more; without it is to be decided anew."""


@dataclass(slots=True)
class Recovered:
    """What opening found and did; plain values for the log and for tools."""

    universe: int = 0
    log_counter: int = 0
    disks: list[str] = field(default_factory=list)  # incarnation of each disk, "" for a failed one
    logs: dict[int, int] = field(default_factory=dict)  # log -> last position
    scanned: list[str] = field(default_factory=list)  # segments whose frames had to be read
    cut: list[str] = field(default_factory=list)  # tails nobody was promised
    lost: list[str] = field(default_factory=list)  # promised entries that are nowhere, accepted by setting
    incomplete: list[str] = field(default_factory=list)  # copies to be completed in the background
    notes: list[str] = field(default_factory=list)


@dataclass(slots=True)
class DiskState:
    """One disk as recovery leaves it."""

    slot: int
    root: str
    identity: DiskIdentity | None = None
    error: Exception | None = None
    lock: int | None = None
    scan: DiskScan | None = None
    fresh: bool = False  # a new incarnation: holds nothing yet
    restarts: int = 0  # of its machine, when it was read


class Recovery:
    """The steps of opening; `catalog`, `disks`, `marks` and `recovered` are what they leave."""

    def __init__(
        self,
        roots: Sequence[str],
        rule: AckRule,
        settings: StorageSettings,
        files: Files,
        random: Random,
        together: Together = one_by_one,
    ) -> None:
        self.rule = rule
        self.disks = [DiskState(slot, root) for slot, root in enumerate(roots)]
        self.recovered = Recovered()
        self.marks = Marks()
        self.counter = 0
        self.universe = 0
        self.old_members: tuple[bytes, ...] = ()  # of the newest fragment found, with its rule
        self.old_rule: AckRule | None = None
        self.absent: list[str] = []  # members without which nobody knows what was acknowledged; the loss is accepted
        self._cut_off = False  # old members that cannot be told of the new log are given up
        self.gone: list[tuple[int, int]] = []  # (log, segment) that must exist and are on no disk
        self.holes: dict[
            tuple[int, int], list[IndexRecord]
        ] = {}  # of sealed segments: what their index knows and no disk has
        self._settings = settings
        self._files = files
        self._random = random
        self._together = together
        self._tails: list[LogTail] = []

    def run(
        self, counter_floor: int, universe: int | None, known_disks: Collection[str], counter: int | None = None
    ) -> None:
        """All steps. Raises `DisksMissing`, `StorageDamaged`, `ForeignDisk`, `Fenced`, `CounterTaken`."""
        try:
            self._read_disks(universe)
            self._find_tails(known_disks)
            self._reserve(counter_floor, counter)
            self._tidy()
            self._load()
            self._settle_tails()
            for disk in self.good:
                self._refuse_restarted(disk)
        except BaseException:
            self.release()
            raise

    def look(self) -> None:
        """Read and decide as `run` does, and change nothing. Raises the same; `release` is left to the caller."""
        self._read_disks(None)
        self._find_tails(())
        self._load()

    def release(self) -> None:
        """Give the disks' locks back."""
        for disk in self.disks:
            if disk.lock is not None:
                lock, disk.lock = disk.lock, None
                with suppress(OSError):  # the disk may be out of reach
                    self._files.close(lock)

    @property
    def good(self) -> list[DiskState]:
        return [disk for disk in self.disks if disk.error is None]

    def _fail(self, disk: DiskState, error: Exception) -> None:
        disk.error = error
        self.recovered.notes.append(f"disk {disk.root} failed while opening: {error}")
        if isinstance(error, DiskFenced):
            raise Fenced(f"disk {disk.root} has another writer: {error}", disks=[disk.root]) from error
        if not self.rule.can_acknowledge([one.slot for one in self.good]):
            raise DisksMissing(
                f"{len(self.good)} of {len(self.disks)} disks are usable, which cannot acknowledge;"
                f" failed: {', '.join(f'{d.root} ({d.error})' for d in self.disks if d.error)}",
                disks=[one.root for one in self.disks if one.error],
            ) from error

    def names(self) -> list[bytes]:
        """The disk of every slot, also of those that cannot be used now; NOBODY where it is not known.

        A member that is away is named: it never held what is written now, and it is one of those that can be told of
        the log after this one. So any acknowledging set of the slots is enough for the next opening.
        """
        here = {disk.identity.incarnation for disk in self.disks if disk.identity is not None}
        old = self.old_members if len(self.old_members) == len(self.disks) and self.old_rule is not None else ()
        names = []
        for disk in self.disks:
            name = disk.identity.incarnation if disk.identity is not None else old[disk.slot] if old else NOBODY
            names.append(NOBODY if disk.identity is None and name in here else name)
        return names

    def known_to_old(self, holders: Collection[bytes]) -> bool:
        """Whether every set that is enough to read the newest fragment found has one of `holders` in it."""
        if self._cut_off:
            return True  # what cannot be had any more was given up by the operator
        return self.old_rule is None or self.old_rule.can_acknowledge(slots_of(self.old_members, holders))

    def _on(self, disks: Sequence[DiskState], act: Callable[[DiskState], None]) -> None:
        """Do something on these disks at once; those on which it fails are given up. A fence is told first."""
        outcomes = zip(disks, self._together([partial(act, disk) for disk in disks]), strict=True)
        for disk, outcome in sorted(outcomes, key=lambda one: not isinstance(one[1], DiskFenced)):
            if isinstance(outcome, OSError):
                self._fail(disk, outcome)
            elif isinstance(outcome, Exception):
                raise outcome

    def _lock_disk(self, disk: DiskState) -> None:
        try:
            self._files.let_go(disk.root)
            self._files.mkdir(disk.root)
            self._files.hold(disk.root)
            disk.lock = self._files.open(f"{disk.root}/{LOCK_FILE}", create=True)
            self._files.lock(disk.lock)
        except BlockingIOError as error:
            raise ForeignDisk(f"disk {disk.root} is in use by another process") from error

    def _read_disk(self, disk: DiskState) -> None:
        if disk.lock is None:
            self._lock_disk(disk)
        try:
            disk.restarts = self._files.restarts(disk.root)
            disk.scan = scan_disk(self._files, disk.root, disk.slot)
        except ValueError as error:
            raise ForeignDisk(f"disk {disk.root}: {error}") from error
        disk.identity = disk.scan.identity

    def _read_disks(self, universe: int | None) -> None:
        waiting = list(self.disks)
        while waiting and all(disk.lock is None for disk in self.good):
            self._on([waiting.pop(0)], self._lock_disk)  # of two processes one has the first lock; the other ends there
        self._on(self.good, self._read_disk)
        universes: dict[int, list[str]] = {} if universe is None else {universe: ["the one wanted"]}
        for disk in self.good:
            if disk.identity is not None:
                universes.setdefault(disk.identity.universe, []).append(disk.root)
        if len(universes) > 1:
            text = "; ".join(f"{number}: {', '.join(names)}" for number, names in sorted(universes.items()))
            raise ForeignDisk(f"disks of different universes: {text}", universes=sorted(universes))
        self.universe = next(iter(universes)) if universes else self._random.randrange(10**12, 10**13)
        for disk in self.good:
            assert disk.scan is not None
            foreign = [copy for copy in disk.scan.copies if copy.header.universe != self.universe]
            disk.scan.copies = [copy for copy in disk.scan.copies if copy.header.universe == self.universe]
            self.recovered.notes += [f"{copy.path} belongs to another universe; left alone" for copy in foreign]
        self.marks = merge_marks(d.scan.marks for d in self.good if d.scan is not None and d.scan.marks is not None)

    def _copies(self) -> list[FoundCopy]:
        """All copies, misplaced ones first, so that one in its place wins."""
        found = [copy for disk in self.good if disk.scan is not None for copy in disk.scan.copies]
        return sorted(found, key=lambda copy: not copy.misplaced)

    def _find_rolled_back(self, copies: Sequence[FoundCopy]) -> None:
        """A member of a log had reserved its counter; a disk that does not know the counter was put back in time."""
        for disk in self.good:
            assert disk.scan is not None
            if disk.identity is None or disk.scan.marks is None:
                continue
            mine = disk.identity.incarnation
            headers = [copy.header for copy in copies if mine in copy.header.members]
            newest = max((one.log for one in headers if one.members.index(mine) in one.writing), default=0)
            if disk.scan.marks.reserved < newest:
                self.recovered.notes.append(
                    f"disk {disk.root} was a member of log {newest} and does not know it: an old state was restored;"
                    " it joins as a new disk"
                )
                disk.identity = None

    def _check_members(self, known_disks: Collection[str]) -> None:
        copies = self._copies()
        self._find_rolled_back(copies)
        present = {disk.identity.incarnation for disk in self.good if disk.identity is not None}
        newest = newest_header(copies)
        if newest is None:
            known = [bytes.fromhex(text) for text in known_disks]
            if known and len(present.intersection(known)) < len(known) // 2 + 1:
                absent = sorted(one.hex() for one in known if one not in present)
                text = f"the disks known to this store are missing: {', '.join(absent)}"
                self._miss(absent, text + self._strangers(known), missing=absent)
            self.old_members = tuple(sorted(present))
            return
        self.old_members, self.old_rule = newest.members, newest.rule
        slots = slots_of(newest.members, present)
        absent = [one.hex() for one in newest.members if one not in present and one != NOBODY]
        text = f"segment {newest.seq} of log {newest.log} "
        facts = {"missing": absent, "log": newest.log, "segment": newest.seq}
        # What was away never had anything, so nothing is there that only it could tell.
        if not newest.rule.is_read_set(
            [*slots, *(at for at in range(len(newest.members)) if at not in newest.writing)]
        ):
            text += f"needs more of its {len(newest.members)} disks, at least {newest.rule.smallest}; missing are "
            self._miss(absent, text + ", ".join(absent) + self._strangers(newest.members), **facts)
        elif not newest.rule.can_acknowledge(slots):
            text += "can be read; by its ack rule, though, disks that would not hear of the new log suffice to read it"
            self._miss([], f"{text}, too: {', '.join(absent)}", **facts)

    def _strangers(self, members: Collection[bytes]) -> str:
        """The folders that were given and are of no use, in words; identities alone tell nobody which these are."""
        told = []
        for disk in self.disks:
            if disk.error is not None:
                told.append(f"{disk.root} (failed: {disk.error})")
            elif disk.identity is None:
                told.append(f"{disk.root} (empty, or not mounted: it holds no {DISK_FILE})")
            elif disk.identity.incarnation not in members:
                told.append(f"{disk.root} (another disk: {disk.identity.incarnation.hex()})")
        return f"; of the folders given, these have nothing of them: {', '.join(told)}" if told else ""

    def _miss(self, absent: list[str], message: str, **facts: object) -> None:
        """Without `absent` nobody knows what was acknowledged. Only the operator may go on without them."""
        if not self._settings.accept_loss:
            raise DisksMissing(message, **facts)
        self.absent, self._cut_off = absent, True
        self.recovered.lost.append(message)

    def _find_tails(self, known_disks: Collection[str]) -> None:
        """Decide by what enough disks say; where one leaves while it is read, without it."""
        while True:
            self._check_members(known_disks)
            try:
                self._decide()
            except _DiskLeft:
                continue
            self._refuse_losses()
            return

    def _decide(self, rescan: frozenset[tuple[int, int]] = frozenset()) -> None:
        by_log: dict[int, list[FoundCopy]] = {}
        self._tails = []
        for copy in self._copies():
            if not self.marks.is_removed(copy.header.log, copy.header.seq):
                by_log.setdefault(copy.header.log, []).append(copy)
        for log in sorted(by_log):

            def removed(seq: int, log: int = log) -> bool:
                return self.marks.need_not_be_there(log, seq)

            def promised(seq: int, log: int = log) -> bool:
                return self.marks.is_live(log, seq)

            segments = frozenset(seq for one, seq in rescan if one == log)
            self._tails.append(find_tail(log, by_log[log], removed, promised, self._scan_frames, segments))

    def _scan_frames(self, copies: Sequence[FoundCopy]) -> list[FrameTable]:
        """All disks at once, the copies of one disk one after the other."""
        by_slot: dict[int, list[FoundCopy]] = {}
        for copy in copies:
            by_slot.setdefault(copy.slot, []).append(copy)
        tables: dict[str, FrameTable] = {}

        def scan(mine: Sequence[FoundCopy]) -> None:
            for copy in mine:
                tables[copy.path] = scan_frames(self._files, copy)

        left = None
        outcomes = self._together([partial(scan, mine) for mine in by_slot.values()])
        for slot, outcome in zip(by_slot, outcomes, strict=True):
            if isinstance(outcome, OSError):
                self._fail(self.disks[slot], outcome)
                left = _DiskLeft(f"disk {self.disks[slot].root} failed while its frames were read: {outcome}")
            elif isinstance(outcome, Exception):
                raise outcome
        if left is not None:
            raise left
        return [tables[copy.path] for copy in copies]

    def _refuse_losses(self) -> None:
        found = {tail.log: [s.seq for s in tail.segments] + [c.header.seq for c in tail.void] for tail in self._tails}
        missing = set(self.marks.missing(found)) | {(tail.log, seq) for tail in self._tails for seq in tail.missing}
        self.gone = sorted(missing)
        lost = [f"segment {seq} of log {log} is on no disk" for log, seq in self.gone]
        for tail in self._tails:
            for segment in tail.segments:
                if segment.lost:
                    paths = ", ".join(copy.path for copy in segment.copies.values())
                    spans = _spans_text(segment.lost)
                    lost.append(f"positions {spans} of log {tail.log} were acknowledged and are damaged in {paths}")
        away = self._away() if lost else []
        if away and not self._settings.accept_loss:
            raise DisksMissing(
                f"{'; '.join(lost)}, as far as the disks that are here know. Not here are {', '.join(away)}, which may"
                " have it. Nothing was changed. Bring them back; where they are gone for good, accept the loss"
                " explicitly.",
                missing=away,
                lost=lost,
            )
        if lost and not self._settings.accept_loss:
            raise StorageDamaged(
                "refusing to open: " + "; ".join(lost) + ". Nothing was changed. Bring back disks that may have them,"
                " or accept the loss explicitly.",
                lost=lost,
            )
        known = self.recovered.lost
        self.recovered.lost = [*known, *(one for one in lost if one not in known)]

    def _away(self) -> list[str]:
        """Disks that are known and have said nothing: what is not found may be there."""
        failed = [disk for disk in self.disks if disk.error is not None]
        here = {disk.identity.incarnation for disk in self.good if disk.identity is not None}
        here |= {disk.identity.incarnation for disk in failed if disk.identity is not None}
        unknown = [one.hex() for one in self.old_members if one not in here and one != NOBODY]
        return [f"{disk.root} ({disk.error})" for disk in failed] + ([] if failed else unknown)

    def _reserve(self, counter_floor: int, counter: int | None) -> None:
        seen = max((copy.header.log for copy in self._copies()), default=0)
        highest = max(seen, self.marks.reserved, counter_floor)
        if self.absent and counter is None:
            highest += _COUNTERS_UNKNOWN
        if counter is not None and counter <= highest:
            raise CounterTaken(f"log counter {counter} was handed in, the disks know {highest}", highest=highest)
        self.counter = highest + 1 if counter is None else counter
        self.marks.reserved = self.counter
        for log, seq in self.gone:
            self.marks.give_up(log, seq)
        self.marks.version += 1
        content = encode_marks(self.marks)
        for disk in self.good:
            if disk.identity is None:
                disk.identity = DiskIdentity(self.universe, self._random.token(16))
                disk.fresh = True

        def reserve(disk: DiskState) -> None:
            assert disk.identity is not None
            self._claim_identity(disk)
            write_marks(self._files, disk.root, content)
            self._files.mkdir(logs_dir(disk.root))
            self._files.sync_dir(disk.root)

        self._on(self.good, reserve)
        present = {disk.identity.incarnation for disk in self.good if disk.identity is not None}
        if not self.known_to_old(present):
            raise DisksMissing("the next log could not be reserved on enough of the disks")
        self.recovered.universe, self.recovered.log_counter = self.universe, self.counter

    def _claim_identity(self, disk: DiskState) -> None:
        """Write who the disk is where that is new; where it was read, it has to be there still.

        A disk whose machine stopped may have lost what it had not synced. Its server takes the name from it, and
        nobody gives it back.
        """
        assert disk.identity is not None
        assert disk.scan is not None
        found = read_identity(self._files, disk.root)
        self._refuse_restarted(disk)
        if disk.fresh or not disk.scan.named:
            write_identity(self._files, disk.root, disk.identity)
        elif found == disk.identity:
            self._files.anchor(disk.root, DISK_FILE)
        else:
            raise CopiesChanged(f"disk {disk.root} is not the one that was read a moment ago", disks=[disk.root])

    def _refuse_restarted(self, disk: DiskState) -> None:
        if self._files.restarts(disk.root) != disk.restarts:
            raise CopiesChanged(f"the machine of disk {disk.root} was restarted during the opening", disks=[disk.root])

    def _tidy(self) -> None:
        void = {copy.path for tail in self._tails for copy in tail.void}
        for disk in self.good:
            assert disk.scan is not None
            try:
                tidy(self._files, disk.scan, self.marks, void, self.recovered.notes)
            except OSError as error:
                self._fail(disk, error)

    def _load(self) -> None:
        """The catalog, and proof that every index can be read; segments whose index is gone are scanned.

        A seal is believed without reading what it covers. Where losses are accepted it is read, and a segment lacking
        some of it is scanned and sealed anew: otherwise no later opening could get past the hole.
        """
        rescanned: set[tuple[int, int]] = set()
        for _ in range(2):
            damaged: set[tuple[int, int]] = set()
            self.catalog = SegmentCatalog(self.universe, self._settings.index_cache_bytes)
            self.access = CopyReader(self._files, lambda segment: sorted(segment.copies), self._note_damage)
            self.catalog.load = self.access.page
            self.segments: list[tuple[Segment, SegmentTail]] = []
            self.summaries: dict[int, list[tuple[int, int, int]]] = {}
            for tail in self._tails:
                for found in tail.segments:
                    segment = self._segment(found)
                    self.segments.append((segment, found))
                    try:
                        rows = []
                        for summary in self.catalog.index(segment).summaries():
                            rows.append((summary.source, summary.first_offset, summary.end_offset))
                            segment.bytes += summary.payload_bytes
                        self.summaries[segment.id] = rows
                        if self._settings.accept_loss and found.trailer is not None:
                            self._find_holes(segment)
                    except (DamagedIndex, OSError):
                        damaged.add((segment.log, segment.seq))
            damaged |= {place for place in self.holes if place not in rescanned}
            rescanned |= damaged
            if not damaged:
                return
            self._decide(frozenset(rescanned))
            self._refuse_losses()

    def _find_holes(self, segment: Segment) -> None:
        holes = broken_records(self.catalog, self.access, segment)
        if holes:
            self.holes[segment.log, segment.seq] = holes

    def _segment(self, found: SegmentTail) -> Segment:
        segment = self.catalog.add(found.log, found.seq, found.first_position, found.index)
        header = next(iter(found.copies.values())).header
        segment.members, segment.rule, segment.away = header.members, header.rule, header.away
        if found.trailer is not None:
            segment.seal(found.trailer)
        else:
            segment.last_position = found.last_position
            segment.data_end = found.data_end
            self.recovered.scanned.append(f"{found.log}/{found.seq}")
        for slot, above in found.cut.items():
            self.recovered.cut.append(f"{above} frames above {found.last_position} in {found.copies[slot].path}")
        for slot, copy in found.copies.items():
            # While nothing is sealed even an incomplete copy is a source; see `_settle_tails`.
            if found.trailer is None or slot in found.complete:
                sealed = found.trailer is not None
                segment.copies[slot] = SegmentCopy(copy.header.incarnation, copy.header.seed, copy.path, sealed)
        return segment

    def _note_damage(self, segment: Segment, slot: int, damage: Damage) -> None:
        self.recovered.notes.append(f"segment {segment.log}/{segment.seq} on {self.disks[slot].root}: {damage}")

    def _settle_tails(self) -> None:
        last = {segment.log: segment for segment, _ in self.segments}
        final = {log: any(_is_final(t) for s, t in self.segments if s.log == log) for log in last}
        for segment, found in self.segments:
            ends = last[segment.log] is segment
            self.recovered.logs[segment.log] = segment.last_position
            if found.trailer is None:
                segment.sealed_by, segment.final = self.counter, ends
                self._seal_on_enough(segment, found)
            elif ends and not final[segment.log]:
                segment.sealed_by, segment.final = self.counter, True
                self._on_copies(list(segment.copies), segment, found, seal_again)
            lacking = [d.slot for d in self.good if d.slot not in segment.copies]
            self.recovered.incomplete += [f"{segment.log}/{segment.seq} on {self.disks[s].root}" for s in lacking]

    def _on_copies(self, slots: Sequence[int], segment: Segment, found: SegmentTail, act: OnCopy) -> list[int]:
        """Change copies of a segment, at once; the slots on which it succeeded. The other disks are given up."""
        copies = [found.copies[slot] for slot in slots]
        done = []
        calls = [partial(act, self._files, copy.path, copy.header, segment) for copy in copies]
        for slot, outcome in zip(slots, self._together(calls), strict=True):
            if isinstance(outcome, OSError):
                segment.copies.pop(slot, None)
                self._fail(self.disks[slot], outcome)
            elif isinstance(outcome, Exception):
                raise outcome
            else:
                done.append(slot)
        return done

    def _seal_on_enough(self, segment: Segment, found: SegmentTail) -> None:
        done: dict[int, SegmentCopy] = {}
        slots = [slot for slot in sorted(found.complete) if self.disks[slot].error is None]
        sources = segment.copies.copy()
        for slot in self._on_copies(slots, segment, found, settle):
            done[slot] = segment.copies[slot]
            done[slot].sealed = True
        segment.copies.update(sources)  # what cannot be written, of a full disk perhaps, can still be read
        segment.footer()
        for disk in self.good:
            if self.rule.can_acknowledge(done):
                break
            if disk.slot in done or disk.identity is None:
                continue
            try:
                copy, _ = rebuild(
                    self._files,
                    self._random,
                    self.catalog,
                    self.access,
                    segment,
                    disk.slot,
                    disk.root,
                    disk.identity.incarnation,
                    whole=not found.lost,
                )
            except OSError as error:
                self._fail(disk, error)
                continue
            # It took the place of a copy that may have been the only one to hold some entry.
            done[disk.slot] = segment.copies[disk.slot] = copy
        if not self.rule.can_acknowledge(done):
            raise DisksMissing(f"segment {segment.seq} of log {segment.log} could not be sealed on enough of the disks")
        segment.copies.clear()
        segment.copies.update(done)
        segment.forget_active()


def recover(
    roots: Sequence[str],
    rule: AckRule,
    settings: StorageSettings,
    files: Files,
    random: Random,
    together: Together,
    *,
    counter_floor: int,
    universe: int | None,
    known_disks: Collection[str],
    counter: int | None,
) -> Recovery:
    """Run a recovery; from its beginning again where a disk changed meanwhile, a few times. Raises as `Recovery.run`.

    Not with a counter that was handed in: the attempt that failed has used it up, and of two that seal with the same
    one nobody could tell the later.
    """
    left = 1 if counter is not None else OPENINGS_MAX
    changed: list[str] = []
    while True:
        left -= 1
        recovery = Recovery(roots, rule, settings, files, random, together)
        try:
            recovery.run(counter_floor, universe, known_disks, counter)
        except CopiesChanged as error:
            if not left:
                raise
            changed.append(f"decided anew: {error}")
            continue
        recovery.recovered.notes[:0] = changed
        return recovery


def slots_of(members: Sequence[bytes], holders: Collection[bytes]) -> list[int]:
    """The slots that `holders` had as members of a fragment."""
    return [slot for slot, member in enumerate(members) if member in holders]


def _is_final(found: SegmentTail) -> bool:
    return found.trailer is not None and found.trailer.final


def _spans_text(positions: Sequence[int]) -> str:
    return str(positions[0]) if len(positions) == 1 else f"{positions[0]}-{positions[-1]} ({len(positions)})"

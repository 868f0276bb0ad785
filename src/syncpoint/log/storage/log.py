"""One log over M disks: positions, rolling, fragments, and what is persisted.

Place: `store` appends here on the owner's thread; every live disk gets the same entries in the same segments; writers
report back how far they are.
Promise: a position is persisted once an acknowledging set of its fragment's members (see `quorum`) hold it and all
before it, and, where the members changed, once an acknowledging set of the *old* members have the new segment's header
durable: whatever is enough to read either fragment then leads a recovery to the new segment, so a stale set of disks
can never pass for the whole log.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence

from syncpoint.base.runtime.files import Buffer
from syncpoint.log.storage.checksum import crc32c, crc32c_of
from syncpoint.log.storage.disk.disk_writer import DiskWriter, LogProgress, Roll
from syncpoint.log.storage.disk.segment_catalog import Segment, SegmentCatalog
from syncpoint.log.storage.index import ActiveIndex
from syncpoint.log.storage.quorum import AckRule
from syncpoint.log.storage.record import HEADER_BYTES, MESSAGE_KINDS, Queued
from syncpoint.log.storage.segment import DATA_START, NOBODY, PAGE
from syncpoint.log.storage.settings import Durability, StorageSettings

_INDEX_BYTES_ENTRY = 45  # a record, and its share of a page
_INDEX_BYTES_SOURCE = 49
_INDEX_BYTES_FIXED = 6 * PAGE


class Fragment:
    """Positions from `first_position` on are held by these writers (None: absent when the fragment began).

    `names`: the disk of every slot, also of an absent one, which holds nothing of the fragment and can all the same
    learn of the next one; NOBODY where the disk is not known.
    """

    __slots__ = ("first_position", "first_seq", "members", "passed", "previous", "rule", "writers")

    def __init__(
        self,
        first_position: int,
        first_seq: int,
        writers: Sequence[DiskWriter | None],
        names: Sequence[bytes],
        rule: AckRule,
        previous: Fragment | None,
    ) -> None:
        self.first_position = first_position
        self.first_seq = first_seq
        self.writers = tuple(writers)
        self.members = tuple(
            name if writer is None else writer.incarnation for writer, name in zip(writers, names, strict=True)
        )
        self.rule = rule
        self.previous = previous
        self.passed = previous is None

    @property
    def away(self) -> int:
        """As in `SegmentHeader`."""
        return sum(1 << slot for slot, one in enumerate(self.writers) if one is None and self.members[slot] != NOBODY)

    @property
    def live(self) -> list[int]:
        """Slots of the writers that have not failed."""
        return [slot for slot, writer in enumerate(self.writers) if writer is not None and writer.ok]

    def header_held(self) -> bool:
        """Whether an acknowledging set of the previous fragment has this fragment's first header durable."""
        if not self.passed and self.previous is not None:
            self.passed = self.previous.rule.can_acknowledge(self._held(self.previous))
        return self.passed

    def header_reachable(self, slots: Collection[int]) -> bool:
        """Whether that is so already, or can still come about with those of `slots` that are live."""
        if self.header_held() or self.previous is None:
            return True
        live = [slot for slot in self.previous.live if slot in slots]
        return self.previous.rule.can_acknowledge([*self._held(self.previous), *live])

    def _held(self, previous: Fragment) -> list[int]:
        return [
            slot
            for slot, writer in enumerate(previous.writers)
            if writer is not None and writer.opened >= self.first_seq
        ]


class Log:
    """The log this store writes. All methods are for the owner's thread."""

    def __init__(
        self,
        counter: int,
        settings: StorageSettings,
        catalog: SegmentCatalog,
        writers: Sequence[DiskWriter | None],
        names: Sequence[bytes],
        rule: AckRule,
        at_once: bool,
        progress: LogProgress,
        retired: Callable[[Segment], None],
    ) -> None:
        self.counter = counter
        self.appended = 0
        self.persisted = 0
        self.appended_bytes = 0
        self.unpersisted: deque[Queued] = deque()
        self.fragments = [Fragment(1, 1, writers, names, rule, None)]
        self._settings = settings
        self._sync = settings.durability == Durability.SYNC
        self._at_once = at_once  # what is appended counts before any disk has it
        self._catalog = catalog
        self._progress = progress
        self._retired = retired
        self._sealing: list[Segment] = []
        self._seq = 0
        self._offset = DATA_START
        self._limit = settings.segment_bytes  # where the segment ends, which has room for its index then
        self._index = ActiveIndex()
        self._live = [writer for writer in writers if writer is not None]
        self.held: list[tuple[Fragment, DiskWriter]] = []  # joined, but the old members do not know of them yet
        self.segment = self._next_segment()
        self._name_members(self.segment, self.fragment)

    @property
    def fragment(self) -> Fragment:
        """The one that is written now."""
        return self.fragments[-1]

    @property
    def room_in_segment(self) -> int:
        return max(0, self._limit - self._offset)

    def append(
        self, kind: int, buffers: tuple[Buffer, ...], source: int, first_offset: int, count: int, time_ns: int
    ) -> Queued:
        """Give the entry the next position and queue it for every live disk."""
        if len(buffers) == 1:
            length, crc = len(buffers[0]), crc32c(buffers[0])
        else:
            length, crc = sum(map(len, buffers)), crc32c_of(buffers)
        size = HEADER_BYTES + length
        index, entries = self._index, len(self._index)
        if (
            self._offset + size + _INDEX_BYTES_ENTRY * entries + _INDEX_BYTES_SOURCE * index.sources
            > self._limit - _INDEX_BYTES_FIXED
            or entries >= self._settings.segment_entries_max
        ) and entries:
            self.roll()
            index = self._index
        position = self.appended = self.appended + 1
        entry = Queued(kind, position, source, first_offset, count, time_ns, length, crc, buffers)
        segment = self.segment
        index.add(kind, source, first_offset, count, time_ns, self._offset, length, position - segment.first_position)
        self._offset += size
        self.appended_bytes += size
        segment.data_end = self._offset
        segment.last_position = position
        if kind in MESSAGE_KINDS:
            segment.bytes += length
        for writer in self._live:
            writer.put(entry)
        self.unpersisted.append(entry)
        return entry

    def fit(self) -> None:
        """Have the segment end where the smallest of its files does, as far as they are known."""
        for writer in self._live:
            if writer.opened == self._seq and writer.file_bytes < self._limit:
                self._limit = writer.file_bytes

    def roll(self, final: bool = False) -> None:
        """Seal the segment on all disks; open the next, unless the log ends."""
        done = self.segment
        done.sealed_by, done.final = self.counter, final
        self._sealing.append(done)
        fragment = self.fragment
        following = None if final else self._next_segment()
        if following is not None:
            self._name_members(following, fragment)
        for writer in self._live:
            writer.roll(Roll(done, following, fragment.members, fragment.rule, fragment.away))
        if following is not None:
            self.segment = following

    def join(self, slot: int, joining: DiskWriter) -> None:
        """Let a re-admitted disk in: the segment is sealed, and the next one names the new members."""
        done = self.segment
        done.sealed_by = self.counter
        self._sealing.append(done)
        old = self.fragment
        writers: list[DiskWriter | None] = [w if w is not None and w.ok else None for w in old.writers]
        writers[slot] = joining
        following = self._next_segment()
        fragment = Fragment(following.first_position, following.seq, writers, old.members, old.rule, old)
        self.fragments.append(fragment)
        self._name_members(following, fragment)
        for writer in self._live:
            writer.roll(Roll(done, following, fragment.members, fragment.rule, fragment.away))
        joining.written = joining.synced = done.last_position
        joining.first_seq = following.seq
        joining.roll(Roll(None, following, fragment.members, fragment.rule, fragment.away))
        self._live.append(joining)
        self.held.append((fragment, joining))
        self.segment = following

    def dropped(self, writer: DiskWriter) -> bool:
        """A writer failed; False when the rest can no longer acknowledge."""
        self._live = [other for other in self._live if other is not writer]
        self.held = [(fragment, other) for fragment, other in self.held if other is not writer]
        return self.goes_on(range(len(self.fragment.writers)))

    def goes_on(self, slots: Collection[int]) -> bool:
        """Whether entries can still be acknowledged once only `slots`, of those that are live, are left; any thread."""
        return self.fragment.rule.can_acknowledge([slot for slot in self.fragment.live if slot in slots]) and all(
            fragment.header_reachable(slots) for fragment in self.fragments[:]
        )

    @property
    def live(self) -> list[DiskWriter]:
        return self._live

    def reached(self, synced: bool) -> int:
        """The highest position held, as written or as synced, by an acknowledging set in every fragment up to it."""
        reached = 0
        fragments = self.fragments
        for number, fragment in enumerate(fragments):
            if not fragment.header_held():
                break
            positions = [
                0 if writer is None else (writer.synced if synced else writer.written) for writer in fragment.writers
            ]
            position = fragment.rule.persisted(positions)
            last = fragments[number + 1].first_position - 1 if number + 1 < len(fragments) else self.appended
            reached = min(position, last)
            if reached < last:
                break
        return reached

    def advance(self) -> bool:
        """Look how far the disks are; True when `persisted` grew."""
        self._progress.synced = max(self._progress.synced, self.reached(synced=True))
        self.fit()
        if self._at_once:
            reached = self.appended
        elif self._sync:
            reached = self._progress.synced
        else:
            reached = self.reached(synced=False)
        while len(self.fragments) > 1 and self.fragments[1].header_held():
            del self.fragments[0]  # a writer has sealed, and so synced, all of it before it opens the next
            self.fragments[0].previous = None
        if self._sealing:
            self._retire_sealed()
        if reached <= self.persisted:
            return False
        waiting = self.unpersisted
        assert waiting[0].position == self.persisted + 1, (waiting[0].position, self.persisted)
        assert reached <= self.appended, (reached, self.appended)
        self.persisted = reached
        while waiting and waiting[0].position <= reached:
            waiting.popleft()
        return True

    def ready_writers(self) -> list[DiskWriter]:
        """Joined disks that may start writing, because enough of the old members know of them."""
        ready = [writer for fragment, writer in self.held if fragment.header_held()]
        if ready:
            self.held = [(fragment, writer) for fragment, writer in self.held if writer not in ready]
        return ready

    def _retire_sealed(self) -> None:
        for segment in self._sealing[:]:
            # A live disk that lags may not even have opened it; it will need the index to seal it.
            sealed = {slot for slot, copy in list(segment.copies.items()) if copy.sealed}
            waiting = any(w.slot not in sealed and w.first_seq <= segment.seq for w in self._live)
            if sealed and not waiting:
                self._sealing.remove(segment)
                segment.forget_active()
                self._retired(segment)

    def _next_segment(self) -> Segment:
        self._seq += 1
        self._index = ActiveIndex()
        self._offset = DATA_START
        self._limit = self._settings.segment_bytes
        segment = self._catalog.add(self.counter, self._seq, self.appended + 1, self._index)
        segment.data_end = DATA_START
        return segment

    def _name_members(self, segment: Segment, fragment: Fragment) -> None:
        segment.members, segment.rule, segment.away = fragment.members, fragment.rule, fragment.away

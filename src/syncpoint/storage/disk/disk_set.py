"""The disks of a store, and the log over them: who is live, who failed, who comes back, what each lacks.

Place: between `store`, which knows messages, and `log`, `disk_writer` and `maintenance`, which know one thing each. It
is what the maintainers ask and tell.
Promise: a failed disk leaves at once and the others go on while they can acknowledge; once they cannot, `failed` is
called once, nothing is appended any more, and no folder is touched again. A disk that is only slow or out of reach is
given up where the others suffice without it, and waited for where they do not. One disk that knows a later writer ends
it all.
Threads: owner's thread, but for what says otherwise.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from syncpoint.runtime.clock import Clock
from syncpoint.runtime.files import DiskFenced, Files
from syncpoint.runtime.random import Random
from syncpoint.storage.copy_reader import CopyReader
from syncpoint.storage.damage import Damage, SegmentPart, SegmentPlace
from syncpoint.storage.disk.disk_identity import encode_marks, to_spans
from syncpoint.storage.disk.disk_writer import DiskWriter, LogProgress
from syncpoint.storage.disk.maintenance import DiskMaintainer
from syncpoint.storage.disk.segment_catalog import Segment, SegmentCopy
from syncpoint.storage.disk.segment_pool import SegmentPool
from syncpoint.storage.disk.step_workers import Notify, Worker, Workers
from syncpoint.storage.errors import DisksFailed, DisksMissing, Fenced
from syncpoint.storage.index import IndexRecord
from syncpoint.storage.log import Log
from syncpoint.storage.recovery.recover import Recovery
from syncpoint.storage.recovery.reindex import Reindexing
from syncpoint.storage.settings import Durability, StorageSettings

UNREADABLE_MAX = 1000  # places remembered of one copy


class DiskSet:
    """All disks of one store, from opening to closing."""

    def __init__(
        self,
        recovery: Recovery,
        settings: StorageSettings,
        files: Files,
        clock: Clock,
        random: Random,
        notify: Notify,
        workers: Workers,
        persisted: Callable[[int], None],
        failed: Callable[[Exception], None],
        local: bool,
    ) -> None:
        self.universe = recovery.disks.universe
        self.catalog = recovery.loaded.catalog
        self.failure: Exception | None = None
        self.closed = False
        self.marks = recovery.disks.marks
        self._marks_content = encode_marks(self.marks)
        self.progress = LogProgress()
        self.maintainers: list[DiskMaintainer] = []
        self._queues = [workers.call_queue(f"syncpoint-read-{disk.slot}", clock) for disk in recovery.disks.all]
        self.access = CopyReader(
            files,
            self._preference,
            self.damaged,
            self._late,
            self._answers,
            self._queues,
            settings.read_patience_s,
        )
        self.reindexing = Reindexing(files, self.access.page, self._answers, clock)
        self.catalog.load = self.reindexing.page
        self._settings = settings
        self._files = files
        self._clock = clock
        self._random = random
        self._notify = notify
        self._turn = threading.RLock()  # held by whatever changes the log for the threads, and while it is said who may
        self._ended = False  # and nobody is in `close` any more
        self._deferred: list[Callable[[], None]] = []  # what came while the disks were being closed
        self._workers = workers
        self._persisted = persisted
        self._failed = failed
        self._local = local
        self._at_once = local and settings.durability == Durability.MEMORY
        self._reported = False
        self._writer_workers: dict[DiskWriter, Worker] = {}
        self._maintainer_workers: list[Worker] = []
        self._stale: list[DiskWriter] = []
        writers = self._open_disks(recovery)
        self.log = Log(
            recovery.counter,
            settings,
            self.catalog,
            writers,
            recovery.members.names(),
            recovery.disks.rule,
            self._at_once,
            self.progress,
            self._retired,
        )
        self._begin_log(recovery, writers)
        self.room_changed()

    def _open_disks(self, recovery: Recovery) -> list[DiskWriter | None]:
        """A maintainer for every disk, a writer for those that can be used."""
        maintainers = [self._keep(recovery, slot) for slot in range(len(recovery.disks.all))]

        def look(maintainer: DiskMaintainer) -> None:
            maintainer.pool.open()
            maintainer.refresh()
            maintainer.note_identity()

        usable = [disk.slot for disk in recovery.disks.all if disk.error is None and disk.identity is not None]
        outcomes = self._workers.together([partial(look, maintainers[slot]) for slot in usable])
        for slot, error in zip(usable, outcomes, strict=True):
            disk, maintainer = recovery.disks.all[slot], maintainers[slot]
            if isinstance(error, OSError):
                _refuse_fenced(disk.root, error)
                disk.error = error
            elif error is not None:
                raise error
            elif disk.identity is not None:
                copies = [] if disk.scan is None else disk.scan.copies
                maintainer.disks = {disk.identity.incarnation, *(copy.header.disk for copy in copies)}
                maintainer.writer = self.make_writer(slot, disk.identity.incarnation, maintainer.pool)
        return [maintainer.writer for maintainer in maintainers]

    def _keep(self, recovery: Recovery, slot: int) -> DiskMaintainer:
        disk = recovery.disks.all[slot]
        pool = SegmentPool(self._files, disk.root, self._settings.segment_bytes, self._settings.bytes_max)
        maintainer = DiskMaintainer(
            slot,
            disk.root,
            self,
            self._settings,
            self._files,
            self._clock,
            self._random,
            None,
            pool,
            disk.lock,
        )
        self.maintainers.append(maintainer)
        return maintainer

    def _begin_log(self, recovery: Recovery, writers: Sequence[DiskWriter | None]) -> None:
        """Write the first header, once it is sure that the log could acknowledge, and would be known to whoever reads
        the old one. A disk that fails now stays a member, as one that may come back."""
        fragment, segment = self.log.fragment, self.log.segment
        opened = [writer for writer in writers if writer is not None]
        self._refuse_few(recovery, opened)
        answered_at = self._clock.monotonic()

        def begin(writer: DiskWriter) -> None:
            writer.open_now(segment, fragment.members, fragment.rule, fragment.away)
            writer.answered_at = answered_at

        outcomes = self._workers.together([partial(begin, writer) for writer in opened])
        failed = [(writer, error) for writer, error in zip(opened, outcomes, strict=True) if error is not None]
        for writer, error in sorted(failed, key=lambda one: not isinstance(one[1], DiskFenced)):
            if not isinstance(error, OSError):
                self._release(writers)
                raise error
            opened.remove(writer)
            writer.error = error
            writer.given_up = True
            self.log.dropped(writer)
            if isinstance(error, DiskFenced):
                self._release(writers)
            _refuse_fenced(writer.root, error)
        try:
            self._refuse_few(recovery, opened)
        except DisksMissing:
            self._release(writers)
            raise
        self.log.fit()
        recovery.disks.recovered.disks = ["" if w is None or w.error else w.incarnation.hex() for w in writers]

    def _refuse_few(self, recovery: Recovery, writers: Sequence[DiskWriter]) -> None:
        rule = self.log.fragment.rule
        held = {writer.incarnation for writer in writers}
        if not rule.can_acknowledge([writer.slot for writer in writers]) or not recovery.members.known_to_old(held):
            raise DisksMissing(
                "the new log cannot be begun on enough of the disks; failed:"
                f" {', '.join(f'{one.root} ({one.error})' for one in recovery.disks.all if one.error) or 'none'}",
                log=self.log.counter,
            )

    def _release(self, writers: Sequence[DiskWriter | None]) -> None:
        for writer in writers:
            if writer is not None:
                writer.release()

    def start(self) -> None:
        """Let the threads run."""
        for writer in self.log.live:
            self._start_writer(writer)
        self.list_live()
        self._maintainer_workers = [
            self._workers.start(f"syncpoint-keep-{maintainer.slot}", maintainer.step) for maintainer in self.maintainers
        ]

    def _start_writer(self, writer: DiskWriter) -> None:
        self._writer_workers[writer] = self._workers.start(f"syncpoint-write-{writer.slot}", writer.step, waits=True)

    def begin_close(self) -> None:
        """Take nothing more, and seal the log; from now on whoever is in `close` alone changes the log. Idempotent."""
        with self._turn:
            if self.closed:
                return
            self.closed = True
            if self.failure is None:
                self.log.roll(final=True)

    def close(self, timeout_s: float) -> None:
        """Seal the log on all live disks, stop the threads, give the disks back. Any thread, after `begin_close` on the
        owner's."""
        self.begin_close()
        end = self._clock.monotonic() + timeout_s
        for worker in self._maintainer_workers:
            worker.stop(self._left(end))
        for writer, worker in list(self._writer_workers.items()):  # the owner goes on burying meanwhile
            if not worker.stop(self._left(end)):
                self._files.abandon(writer.root)  # it hangs: what it holds is left to the next opening
            else:
                writer.drain()  # whatever was still queued, on this thread
                writer.release()
        self._run_deferred()
        self._advance()
        self.list_live()
        for lane in self._queues:
            lane.stop()
        for maintainer in self.maintainers:
            maintainer.close()
        while not self._ended:
            self._run_deferred()
            with self._turn:
                self._ended = not self._deferred

    def _run_deferred(self) -> None:
        while self._deferred:
            self._deferred.pop(0)()

    def _left(self, end: float) -> float:
        """Seconds to wait for a thread; those behind a hanging one get some, too."""
        return max(1.0, end - self._clock.monotonic())

    @property
    def wants_spares(self) -> bool:
        """Whether the log will soon need another segment: a log of which little is written takes no room for it."""
        return self.log.segment.seq > 1 or self.log.room_in_segment < self._settings.segment_bytes // 2

    @property
    def accepting(self) -> bool:
        """Whether entries are taken: not closed, and enough disks are left. Any thread."""
        return self.failure is None and not self.closed

    def wake(self) -> None:
        """Let the writers take what is queued; a disk far behind is let go."""
        if self.closed:
            return
        for writer in self.log.live:
            worker = self._writer_workers.get(writer)
            if worker is not None and not (writer.resting and writer.lag_bytes < self._settings.commit_full_bytes):
                worker.wake()
        self._shed_those_far_behind()
        if self._at_once and not self._reported:
            self._reported = True
            self.notify(self._advance)

    def _shed_those_far_behind(self) -> None:
        """Asked when more is queued, and when a disk is done with some: the others may suffice only then."""
        for writer in self.log.live:
            if writer.lag_bytes > self._settings.lag_bytes_max:
                self._shed(writer)

    def _shed(self, writer: DiskWriter) -> None:
        """A disk that lags far behind leaves the live stream, if the others can acknowledge without it."""
        limit = self._settings.lag_bytes_max // 2
        if self.log.goes_on([one.slot for one in self.log.live if one is not writer and one.lag_bytes < limit]):
            writer.fail(OSError(errno.ETIMEDOUT, f"more than {self._settings.lag_bytes_max} bytes behind"))

    def hung(self, writer: DiskWriter) -> None:
        """A maintainer saw a commit that does not end, or cannot reach the disk. It is given up if the others suffice.

        Where they do not, because some of them hang as well, all are waited for: each may come back as itself.
        """
        others = [one.slot for one in self.log.live if one is not writer and self.maintainers[one.slot].answers]
        if writer.ok and self.maintainers[writer.slot].hangs and self.log.goes_on(others):
            writer.fail(OSError(errno.ETIMEDOUT, f"no answer for longer than {self._settings.hung_s} s"))

    def spares(self, slot: int, since: float) -> bool:
        """Whether the others can do without the name of this failed disk, as seen after `since`; any thread.

        Until the old members know of the new name, a disk that gave up its old one is one of them that is lost,
        although its folder is whole. Without others that answer nobody would hear of the new name anyway; if one of
        them turned out to be destroyed, what is left could not be read. Writes alone prove nothing: a file of a folder
        that was emptied still takes them.
        """
        others = [
            one.slot
            for one in self.maintainers
            if one.slot != slot and one.ok and one.answers and one.answered_at > since
        ]
        return self.log.goes_on(others)

    def fenced(self, error: Exception) -> None:
        """A disk knows a later writer: this store ends, whatever the other disks say."""
        if self.failure is None:
            self.failure = Fenced(f"another writer has taken over: {error}")
            self._failed(self.failure)
            for writer in self.log.live[:]:
                writer.fail(error)

    def broken(self, error: Exception) -> None:
        """An entry was appended by half: what is in memory may not be what the disks get. This store ends, and seals
        nothing.
        """
        if self.failure is None:
            self.failure = DisksFailed(f"an entry could not be appended: {error!r}")
            self._failed(self.failure)

    def room_changed(self) -> None:
        """A maintainer counted the room again."""
        self._room, self._room_at = self.count_room(), self.log.appended_bytes

    @property
    def room(self) -> int:
        """Bytes that an acknowledging set can still take, as counted last, less what was appended since."""
        return self._room - (self.log.appended_bytes - self._room_at)

    def count_room(self) -> int:
        return self.log.fragment.rule.persisted([self._room_on(one) if one.ok else 0 for one in self.maintainers])

    def _room_on(self, maintainer: DiskMaintainer) -> int:
        return maintainer.free + len(maintainer.pool) * self._settings.segment_bytes + self.log.room_in_segment

    @property
    def full(self) -> bool:
        """Whether, where there is no room, disks that work lack it: a failed one has none, however empty it is."""
        reserve = self._settings.reserve
        return self.room < reserve and any(one.ok and self._room_on(one) < reserve for one in self.maintainers)

    def notify(self, act: Callable[[], None]) -> None:
        """Run `act` on the owner's thread, or on the one that is closing the disks; any thread."""
        with self._turn:
            if self.closed and not self._ended:
                self._deferred.append(act)
                return
        self._notify(partial(self._act, act))

    def _act(self, act: Callable[[], None]) -> None:
        with self._turn:
            if self.closed and not self._ended:
                self._deferred.append(act)
            else:
                act()

    def make_writer(self, slot: int, incarnation: bytes, pool: SegmentPool) -> DiskWriter:
        return DiskWriter(
            slot,
            pool.root,
            incarnation,
            self.universe,
            self._settings,
            self._files,
            self._clock,
            self._random,
            pool,
            self.progress,
            self._report,
            self._writer_failed,
        )

    def _report(self, writer: DiskWriter) -> None:
        if not self._reported:
            self._reported = True
            self.notify(self._advance)

    def _advance(self) -> None:
        self._reported = False
        if self.log.advance():
            self._persisted(self.log.persisted)
        if not self.closed:
            self._shed_those_far_behind()
        if self.log.held:
            for writer in self.log.ready_writers():
                self._start_writer(writer)

    def _writer_failed(self, writer: DiskWriter, error: Exception) -> None:
        self.notify(lambda: self._drop_writer(writer, error))

    def _drop_writer(self, writer: DiskWriter, error: Exception) -> None:
        enough = self.log.dropped(writer)
        self._stale.append(writer)
        self._files.abandon(writer.root)
        writer.given_up = True
        if isinstance(error, DiskFenced):
            self.fenced(error)
        if not enough and self.failure is None:
            advice = "; repair the disks, then start the server again" if self._local else ""
            self.failure = DisksFailed(
                f"too few disks are left to acknowledge: {error}{advice}",
                disks=[maintainer.root for maintainer in self.maintainers if not maintainer.ok],
            )
            self._failed(self.failure)
        self._advance()
        self.bury()

    def bury(self) -> None:
        """Close the files of failed writers whose thread has ended."""
        for writer in self._stale[:]:
            worker = self._writer_workers.get(writer)
            if worker is None or worker.stop(0.0):
                self._stale.remove(writer)
                self._writer_workers.pop(writer, None)
                writer.release()

    def joined(self, slot: int, writer: DiskWriter, kept: Mapping[tuple[int, int], SegmentCopy]) -> None:
        """A failed disk is usable again: from the next segment on it is a member, under a new incarnation.

        `kept`: copies of its earlier incarnation that stay where they are: whole ones, and parts of segments that no
        disk has whole yet.
        """
        if not self.accepting:
            return
        for segment in self.catalog:
            copy = kept.get((segment.log, segment.seq))
            if copy is not None and (copy.sealed or segment.active is not None):
                segment.copies[slot] = copy
                segment.unreadable.clear()  # what no disk had it may have
            elif slot in segment.copies and (len(segment.copies) > 1 or segment.active is not None):
                del segment.copies[slot]
                segment.unreadable.pop(slot, None)
        maintainer = self.maintainers[slot]
        maintainer.put_marks(self.marks_content())
        for place, copy in kept.items():
            if self.catalog.at(*place) is None:
                maintainer.put_drop(copy.path)
        if self._queues[slot].hangs(self._settings.read_patience_s):  # a call that will perhaps never return
            self._queues[slot].stop()
            self._queues[slot] = self._workers.call_queue(f"syncpoint-read-{slot}", self._clock)
        self.log.join(slot, writer)
        self.bury()
        self.wake()

    def completed(self, slot: int, segment: Segment, copy: SegmentCopy, lost: Sequence[IndexRecord]) -> None:
        """A maintainer copied a segment."""
        maintainer = self.maintainers[slot]
        if segment.removed or self.catalog.get(segment.id) is not segment:
            maintainer.put_drop(copy.path)
            return
        segment.copies[slot] = copy
        segment.unreadable.pop(slot, None)
        if not lost:
            self.sound(segment)
        for record in lost:
            position = segment.first_position + record.ordinal
            maintainer.damaged.append(f"entry {position} of log {segment.log} is on no disk in good order")
            _note_unreadable(segment, slot, SegmentPlace(SegmentPart.FRAME, record.offset))

    def sound(self, segment: Segment) -> None:
        """All of some copy is what was written: whoever has another one that is not can write it anew."""
        segment.unreadable.clear()

    def marks_content(self) -> bytes:
        """The newest marks; any thread."""
        return self._marks_content

    def _retired(self, segment: Segment) -> None:
        """A segment is sealed on all live disks; failed ones do not hold it whole."""
        for slot, copy in list(segment.copies.items()):
            if not copy.sealed:
                del segment.copies[slot]
        for worker in self._maintainer_workers:
            worker.wake()

    def _late(self, segment: Segment, position: int) -> bool:
        """Whether a live disk still has this entry in its queue; any thread."""
        return segment.log == self.log.counter and any(
            writer.written < position and writer.first_seq <= segment.seq for writer in self.log.live[:]
        )

    def _answers(self, slot: int) -> bool:
        return self.maintainers[slot].ok

    def _preference(self, segment: Segment) -> list[int]:
        """Copies on disks that answer come first; any thread."""
        maintainers, patience_s = self.maintainers, self._settings.read_patience_s

        def trouble(slot: int) -> tuple[bool, bool]:
            maintainer = maintainers[slot]
            return not maintainer.ok, not maintainer.answers or self._queues[slot].hangs(patience_s)

        return sorted(segment.copies.copy(), key=trouble)

    def damaged(self, segment: Segment, slot: int, damage: Damage) -> None:
        """A copy is not what was written; any thread."""
        self.notify(lambda: self._note_damage(segment, slot, damage))

    def _note_damage(self, segment: Segment, slot: int, damage: Damage) -> None:
        """Forget a bad copy where another one is left; it is then written anew. Not for a place that no disk had
        when this copy was written: it would be as it is.
        """
        maintainer = self.maintainers[slot]
        if maintainer.writer is not None and not maintainer.ok:
            return  # the disk was given up, and with it what was open there
        found = f"segment {segment.log}/{segment.seq}: {damage}"
        if found not in maintainer.damaged:
            maintainer.damaged.append(found)
            del maintainer.damaged[:-100]
        place = damage.place
        if slot not in segment.copies or place in segment.unreadable.get(slot, ()):
            return
        if len(segment.copies) == 1:
            _note_unreadable(segment, slot, place)
        elif segment.active is None:
            del segment.copies[slot]
            segment.unreadable.pop(slot, None)

    def answered_at(self) -> float:
        """As of when (monotonic seconds) an acknowledging set of the disks has obeyed this writer: a later one shuts
        out so many that no such set was left when it began.
        """
        fragment = self.log.fragment
        times = [
            0 if writer is None or not writer.ok else round(1000 * max(writer.answered_at, maintainer.answered_at))
            for writer, maintainer in zip(fragment.writers, self.maintainers, strict=True)
        ]
        return fragment.rule.persisted(times) / 1000

    def list_live(self) -> None:
        """Have every disk note which sealed segments there are, so that one missing later is noticed."""
        live: dict[int, list[int]] = {}
        for segment in self.catalog:
            if self._promised(segment):
                live.setdefault(segment.log, []).append(segment.seq)
        self.marks.live = {log: to_spans(seqs) for log, seqs in live.items()}
        self.marks.version += 1
        content = self._marks_content = encode_marks(self.marks)
        for maintainer in self.maintainers:
            maintainer.put_marks(content)

    def _promised(self, segment: Segment) -> bool:
        """Whether the segment must be found at every later opening.

        What recovery found it has settled. Of this log a segment that is full in memory may be on no disk at all: it
        counts once an acknowledging set has sealed it, and while the log is written its own headers tell of it.
        """
        if segment.log != self.log.counter:
            return segment.sealed_by > 0
        sealed = [slot for slot, copy in segment.copies.copy().items() if copy.sealed]
        return self.closed and segment.sealed_by > 0 and segment.rule.can_acknowledge(sealed)

    def delete(self, segments: Sequence[Segment]) -> list[int]:
        """Tombstones first, then the files, on every disk by its maintainer; returns the logs that are gone whole."""
        for segment in segments:
            self.catalog.remove(segment)
            self.marks.remove(segment.log, segment.seq, final=segment.final)
        left = {segment.log for segment in self.catalog}
        gone = sorted({segment.log for segment in segments} - left - {self.log.counter})
        for log in gone:
            self.marks.remove_log(log)
        self.list_live()
        for segment in segments:
            for slot, copy in segment.copies.items():
                self.maintainers[slot].put_drop(copy.path)
        for worker in self._maintainer_workers:
            worker.wake()
        return gone


def _note_unreadable(segment: Segment, slot: int, place: SegmentPlace) -> None:
    places = segment.unreadable.setdefault(slot, set())
    if len(places) < UNREADABLE_MAX:
        places.add(place)


def _refuse_fenced(root: str, error: OSError) -> None:
    if isinstance(error, DiskFenced):
        raise Fenced(f"disk {root} has another writer: {error}", disks=[root]) from error

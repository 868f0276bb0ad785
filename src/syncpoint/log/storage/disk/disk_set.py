"""The disks of a store, and the log over them: who is live, who failed, who comes back, what each lacks.

Place: between `store`, which knows messages, and `log`, `disk_writer` and `maintenance`, which know one thing each.
`copies`, `listed` and `room` are what it knows of segments and bytes.
Promise: a failed disk leaves at once and the others go on while they can acknowledge; once they cannot, `failed` is
called once, nothing is appended any more, and no folder is touched again. A disk that is only slow or out of reach is
given up where the others suffice without it, and waited for where they do not. One disk that knows a later writer ends
it all.
Threads: owner's thread, but for what says otherwise.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from syncpoint.base.runtime.call_queues import CallQueue
from syncpoint.base.runtime.environment import Environment
from syncpoint.base.runtime.files import DiskFenced
from syncpoint.base.runtime.step_workers import Worker, Workers
from syncpoint.log.storage.copy_reader import CopyReader
from syncpoint.log.storage.damage import Damage
from syncpoint.log.storage.disk.begin_log import begin_log, open_disks
from syncpoint.log.storage.disk.disk_copies import DiskCopies
from syncpoint.log.storage.disk.disk_identity import DiskIdentity
from syncpoint.log.storage.disk.disk_room import DiskRoom
from syncpoint.log.storage.disk.disk_writer import DiskWriter, LogProgress
from syncpoint.log.storage.disk.listed_segments import ListedSegments
from syncpoint.log.storage.disk.maintenance import DiskMaintainer
from syncpoint.log.storage.disk.owner_turn import OwnerTurn
from syncpoint.log.storage.disk.paced_files import DiskTurns, paced
from syncpoint.log.storage.disk.segment_catalog import Segment, SegmentCopy
from syncpoint.log.storage.disk.segment_pool import SegmentPool
from syncpoint.log.storage.disk_counts import DiskCounts
from syncpoint.log.storage.entries_at_risk import DiskFailure, FailureJudgement, holdings
from syncpoint.log.storage.errors import DisksFailed, Fenced
from syncpoint.log.storage.log import Log
from syncpoint.log.storage.recovery.opening_disks import DiskState
from syncpoint.log.storage.recovery.recover import Recovery
from syncpoint.log.storage.recovery.reindex import Reindexing
from syncpoint.log.storage.settings import Durability, StorageSettings


class LogListener(Protocol):
    """Who appends; both come on its thread."""

    def note_persisted(self, position: int) -> None: ...
    def note_failed(self, error: Exception) -> None: ...


class DiskSet:
    """All disks of one store, from opening to closing."""

    def __init__(
        self,
        recovery: Recovery,
        settings: StorageSettings,
        environment: Environment,
        workers: Workers,
        owner: LogListener,
        local: bool,
    ) -> None:
        clock = environment.clock
        takes_turns = local and workers.at_once
        self.counts = [DiskCounts(DiskTurns(clock) if takes_turns else None) for _ in recovery.disks.all]  # by slot
        turns = {disk.root: self.counts[disk.slot].turns for disk in recovery.disks.all}
        files = paced(environment.files, {root: of for root, of in turns.items() if of is not None})
        self.universe = recovery.disks.universe
        self.catalog = recovery.loaded.catalog
        self.failure: Exception | None = None
        self.progress = LogProgress()
        self._settings = settings
        self._files = files
        self._clock = clock
        self._environment = environment
        self._workers = workers
        self._owner = owner
        self._local = local
        self._at_once = local and settings.durability == Durability.MEMORY
        self._turn = OwnerTurn(environment.notifier())
        self.notify = self._turn.notify
        self._reported = False
        self._writer_workers: dict[DiskWriter, Worker] = {}
        self._maintainer_workers: list[Worker] = []
        self._stale: list[DiskWriter] = []
        self.maintainers = [self._maintainer(disk) for disk in recovery.disks.all]
        slots = range(len(recovery.disks.all))
        self._queues, self._page_queues = (
            [self._call_queue(kind, slot) for slot in slots] for kind in ("read", "page")
        )
        self.copies = DiskCopies(self.catalog, self.maintainers, self._queues, settings.read_patience_s, self.counts)
        self.listed = ListedSegments(recovery.disks.marks, self.catalog, recovery.counter, self.maintainers)
        self.access = CopyReader(
            files,
            self.copies.preference,
            self.damaged,
            self._late,
            self.copies.answers,
            self._queues,
            settings.read_patience_s,
            self._page_queues,
        )
        self.reindexing = Reindexing(files, self.access.page, self.copies.answers, clock)
        self.catalog.load = self.reindexing.page
        writers = open_disks(recovery, self.maintainers, self.make_writer, workers)
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
        begin_log(self.log, recovery, writers, workers, clock)
        self.room = DiskRoom(self.log, self.maintainers, settings)

    def _maintainer(self, disk: DiskState) -> DiskMaintainer:
        environment = replace(self._environment, files=self._files)
        return DiskMaintainer(disk.slot, disk.root, disk.lock, self, self._settings, environment)

    def _call_queue(self, kind: str, slot: int) -> CallQueue:
        return self._workers.call_queue(f"syncpoint-{kind}-{slot}", self._clock)

    def start(self) -> None:
        """Let the threads run."""
        for writer in self.log.live:
            self._start_writer(writer)
        self.listed.write(closed=self.closed)
        self._maintainer_workers = [
            self._workers.start(f"syncpoint-keep-{maintainer.slot}", maintainer.step) for maintainer in self.maintainers
        ]

    def _start_writer(self, writer: DiskWriter) -> None:
        self._writer_workers[writer] = self._workers.start(f"syncpoint-write-{writer.slot}", writer.step, waits=True)

    @property
    def confirmed_late(self) -> bool:
        """Whether a disk's word that it has what was written comes only with its sync; see `remote_files`."""
        return not self._local and self._settings.durability == Durability.SYNC

    @property
    def closed(self) -> bool:
        return self._turn.closed

    def begin_close(self) -> None:
        """Take nothing more, and seal the log; from now on whoever is in `close` alone changes the log. Idempotent."""
        self._turn.close(lambda: self.log.roll(final=True) if self.failure is None else None)

    def close(self, timeout_s: float) -> None:
        """Seal the log on all live disks, stop the threads, give the disks back. Any thread, after `begin_close` on the
        owner's."""
        self.begin_close()
        end = self._clock.monotonic() + timeout_s
        for worker in self._maintainer_workers:
            worker.stop(self._left(end))
        for writer, worker in list(self._writer_workers.items()):  # the owner goes on reaping in the meantime
            if not worker.stop(self._left(end)):
                self._files.abandon(writer.root)  # it hangs: what it holds is left to the next opening
            else:
                writer.drain()  # whatever was still queued, on this thread
                writer.release()
        self._turn.run_deferred()
        self._advance()
        self.listed.write(closed=True)
        for queue in (*self._queues, *self._page_queues):
            queue.stop()
        for maintainer in self.maintainers:
            maintainer.close()
        self._turn.finish()

    def _left(self, end: float) -> float:
        """Seconds to wait for a thread; those after a hanging one get some, too."""
        return max(1.0, end - self._clock.monotonic())

    @property
    def wants_spares(self) -> bool:
        """Whether the log will soon need another segment: a log of which little is written takes no room for it."""
        return self.log.segment.seq > 1 or self.log.room_in_segment < self._settings.segment_bytes // 2

    @property
    def accepting(self) -> bool:
        """Whether entries are taken: not closed, and enough disks are left. Any thread."""
        return self.failure is None and not self._turn.closed

    def wake(self) -> None:
        """Let the writers take what is queued; a disk that lags too much is let go."""
        if self._turn.closed:
            return
        for writer in self.log.live:
            worker = self._writer_workers.get(writer)
            if worker is None or not writer.queued:
                continue  # a writer that has nothing to write wakes by itself when something is due
            if not (writer.resting and writer.lag_bytes < self._settings.commit_full_bytes):
                worker.wake()
        self._drop_lagging()
        if self._at_once and not self._reported:
            self._reported = True
            self.notify(self._advance)

    def _drop_lagging(self) -> None:
        """Asked when more is queued, and when a disk is done with some: the others may suffice only then."""
        for writer in self.log.live:
            if writer.queued_bytes - writer.done_bytes > self._settings.lag_bytes_max:  # `lag_bytes`, at every commit
                self._drop_if_enough(writer)

    def _drop_if_enough(self, writer: DiskWriter) -> None:
        """A disk that lags too much leaves the live stream, if the others can acknowledge without it."""
        limit = self._settings.lag_bytes_max // 2
        if self.log.goes_on([one.slot for one in self.log.live if one is not writer and one.lag_bytes < limit]):
            writer.fail(OSError(errno.ETIMEDOUT, f"lags by more than {self._settings.lag_bytes_max} bytes"))

    def hung(self, writer: DiskWriter) -> None:
        """A maintainer saw a commit that does not end, or cannot reach the disk. It is given up if the others suffice.

        Where they do not, because some of them hang as well, all are waited for: each may come back as itself. Unless
        the next opening would go on without them: then all that hang are given up, and this log with them.
        """
        if not writer.ok or not self.maintainers[writer.slot].hangs:
            return
        others = [one.slot for one in self.log.live if one is not writer and self.maintainers[one.slot].answers]
        if self.log.goes_on(others):
            given_up = [writer]
        elif not self._local and self._goes_on_anew():
            given_up = [one for one in self.log.live if self.maintainers[one.slot].hangs]
        else:
            return
        for one in given_up:
            one.fail(OSError(errno.ETIMEDOUT, f"no answer for {self._settings.hung_s} s"))

    def _goes_on_anew(self) -> bool:
        """Whether a new opening would find all that was promised on the disks that answer or stand by, and go on with
        them.
        """
        facts = holdings(self.log, self.catalog, self.maintainers, (0, 0), self.failure, self.confirmed_late)
        return not FailureJudgement(facts, DiskFailure(frozenset(), frozenset(), owner=True)).stops

    def spares(self, slot: int, since: float) -> bool:
        """Whether the others can do without the name of this failed disk, as seen after `since`; any thread.

        Until the old members know of the new name, a disk that gave up its old one is one of them that is lost,
        although its folder is whole. Without others that answer the new name would be known to nobody anyway; if one of
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
            self._owner.note_failed(self.failure)
            for writer in self.log.live[:]:
                writer.fail(error)

    def broken(self, error: Exception) -> None:
        """An entry was appended by half: what is in memory may not be what the disks get. This store ends, and seals
        nothing.
        """
        if self.failure is None:
            self.failure = DisksFailed(f"appending an entry failed: {error!r}")
            self._owner.note_failed(self.failure)

    def make_writer(self, slot: int, incarnation: bytes, pool: SegmentPool) -> DiskWriter:
        return DiskWriter(
            slot,
            DiskIdentity(self.universe, incarnation),
            self._settings,
            self._environment,
            pool,
            self.progress,
            self._report,
            self._writer_failed,
            self.counts[slot],
        )

    def _report(self, writer: DiskWriter) -> None:
        if not self._reported:
            self._reported = True
            self.notify(self._advance)

    def _advance(self) -> None:
        self._reported = False
        if self.log.advance():
            self._owner.note_persisted(self.log.persisted)
        if not self._turn.closed:
            self._drop_lagging()
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
            advice = ". Repair the disks, then restart the server." if self._local else ""
            self.failure = DisksFailed(
                f"too few working disks to acknowledge messages: {error}{advice}",
                disks=[maintainer.root for maintainer in self.maintainers if not maintainer.ok],
            )
            self._owner.note_failed(self.failure)
        self._advance()
        self.reap()

    def reap(self) -> None:
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
        self.maintainers[slot].jobs.put_marks(self.listed.content())  # what is dropped waits for them
        self.copies.rejoined(slot, kept)
        for kind, queues in (("read", self._queues), ("page", self._page_queues)):
            if queues[slot].hangs(self._settings.read_patience_s):  # a call that will perhaps never return
                queues[slot].stop()
                queues[slot] = self._call_queue(kind, slot)
        self.log.join(slot, writer)
        self.reap()
        self.wake()

    def _retired(self, segment: Segment) -> None:
        self.copies.sealed(segment)
        for worker in self._maintainer_workers:
            worker.wake()

    def _late(self, segment: Segment, position: int) -> bool:
        """Whether a live disk still has this entry in its queue; any thread."""
        return segment.log == self.log.counter and any(
            writer.written < position and writer.first_seq <= segment.seq for writer in self.log.live[:]
        )

    def damaged(self, segment: Segment, slot: int, damage: Damage) -> None:
        """A copy is not what was written; any thread."""
        self.notify(lambda: self.copies.note_damage(segment, slot, damage))

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

    def delete(self, segments: Sequence[Segment]) -> list[int]:
        """Delete segments on every disk; returns the logs that are gone whole."""
        gone = self.listed.delete(segments, closed=self.closed)
        for worker in self._maintainer_workers:
            worker.wake()
        return gone

"""Trim: asynchronous deletion, one bounded step at a time.

Place: `Store.collect` calls `step` with the publish side's judgement of what is still needed. A segment goes when
none of its messages is live and its other entries lie before the newest complete checkpoint. One of which little is
live is copied forward (same source, offsets and time, in index order, hence grouped by source), and goes once the
copies are synced on an acknowledging set. So one slow subscription pins its messages, never the disk, and a thousand
restarts leave no thousand small logs behind, however short each life is: segments of few entries are judged first, and
what an earlier life copied before it ended needs not be copied again.
Only a whole judgement counts: a look that an exception ends, of whatever kind and wherever, is dropped, and one that
has not seen every message of its segment finds nothing. The segment stays, and is checked again next round.
Nor does a judgement count, whole or not, once something may be needed that was not: it is made anew then, of the
sources that this concerns.
Nor does one count before the facts it rests on are synced, which are all that were appended up to its end: a crash that
loses an acknowledgement has then deleted nothing that is needed without it.
Leaves to `maintenance`: tombstones first, then the files.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field

from syncpoint.log.storage.copy_reader import CopyReader, Gone
from syncpoint.log.storage.disk.segment_catalog import Segment, SegmentCatalog
from syncpoint.log.storage.errors import CopiesUnreachable
from syncpoint.log.storage.index import DamagedIndex, IndexRecord
from syncpoint.log.storage.record import Header
from syncpoint.log.storage.recovery.look import Look, Move
from syncpoint.log.storage.settings import StorageSettings

Live = Callable[[int, int, int, int], bool]
More = Callable[[int], Collection[int] | None]
_HASTE_MAX = 16  # times the usual share of a step, where judgements are dropped again and again
_NEWER_SEGMENTS = 4  # a segment is copied forward only when it is no longer among the newest: it may die by itself


@dataclass(slots=True)
class CollectReport:
    """What one step did."""

    looked_at: int = 0  # entries judged
    removed: list[tuple[int, int]] = field(default_factory=list)  # (log, segment)
    removed_logs: list[int] = field(default_factory=list)
    copied_entries: int = 0
    copied_bytes: int = 0
    busy: bool = False  # a copy forward is under way: another step soon is worth while


class Trim:
    """The collector of one store; owner's thread."""

    def __init__(
        self,
        settings: StorageSettings,
        catalog: SegmentCatalog,
        access: CopyReader,
        copy: Callable[[Header, bytes], int],
        appended: Callable[[], int],
        synced: Callable[[], int],
        in_thread: Callable[[Callable[[], None]], None],
        removable: Callable[[Segment], bool],
        copied: Callable[[Segment, IndexRecord], Iterable[Segment]],
        holds: Callable[[Segment, int], bool],
    ) -> None:
        """`copied`: the segments of ended lives, newer than this one, that hold the same entry once more. `holds`:
        whether a segment has anything of a source.
        """
        self._settings = settings
        self._catalog = catalog
        self._access = access
        self._copy = copy
        self._appended = appended
        self._synced = synced
        self._in_thread = in_thread
        self._removable = removable
        self._basis = 0
        self._haste = 1
        self._copied = copied
        self._holds = holds
        self._doubted: dict[Segment, Look] = {}  # that had come to an end, and go on before anything else is judged
        self._round: list[Segment] | None = None  # still to be checked, the next one last
        self._look: Look | None = None
        self._worth_moving: Look | None = None  # of this round: what is copied forward with the least effort
        self._move: Move | None = None
        self._dying: dict[Segment, int] = {}  # judged; to the position of the last fact that the judgement may rest on

    def step(self, live: Live, report: CollectReport, basis: int, more: More) -> list[Segment]:
        """Judge some entries, move some; returns the segments that may be deleted now. `basis` and `more`: see
        `Store.collect`.
        """
        dead: list[Segment] = []
        if basis != self._basis:
            sources = more(self._basis)
            if sources is None:
                self._judge_anew()
            else:
                self._doubt(sources)
            self._basis = basis
        budget = self._settings.collect_entries_step * self._haste
        if self._move is not None:
            try:
                self._go_on_moving(report, dead)
                budget -= self._look_again(live, budget)
            except BaseException:
                self._move = None  # the original stays, and so may some copies: reads take each offset once
                raise
        while budget > 0:
            look = self._look or self._next_look()
            if look is None:
                break
            self._look = look
            try:
                used, finished = self._judge(look, live, budget)
            except (DamagedIndex, CopiesUnreachable, Gone, OSError):
                self._look = None
                continue  # the index will be there again after repair, or once it is built anew
            except BaseException:  # what it was about to say is not known
                self._look = None
                raise
            budget -= used + 1
            report.looked_at += used
            if finished:
                self._look, self._haste = None, 1
                if look.live_bytes or look.seen == look.segment.messages:
                    self._classify(look)
        synced = self._synced()
        for segment, position in list(self._dying.items()):
            if segment.removed or position <= synced:
                del self._dying[segment]
                if not segment.removed:
                    dead.append(segment)
        self._begin_move()  # the best of what this step has seen: to wait for the best of all would free one a round
        report.busy = self._move is not None
        return dead

    def _judge_anew(self) -> None:
        """More may be needed: what was judged is judged again, next; with more haste where a look was not finished."""
        again = [*self._dying, *self._doubted]
        if self._worth_moving is not None:
            again.append(self._worth_moving.segment)
        if self._look is not None:
            again.append(self._look.segment)
            self._haste = min(2 * self._haste, _HASTE_MAX)
        if self._round is not None:
            self._round += again
        self._look = self._worth_moving = None
        self._dying.clear()
        self._doubted.clear()
        if self._move is not None:
            self._move.doubt(None)

    def _doubt(self, sources: Collection[int]) -> None:
        """More may be needed of these sources: what was judged of them is judged again."""

        def concerned(segment: Segment) -> list[int]:
            return [source for source in sources if self._holds(segment, source)]

        for segment in list(self._dying):
            if again := concerned(segment):
                self._doubted[segment] = Look(segment, self._catalog.index_soon(segment), again)
                del self._dying[segment]
        worth = self._worth_moving
        if worth is not None and worth.doubt(concerned(worth.segment)):
            worth.go_on(self._catalog.index_soon(worth.segment))
            self._doubted[worth.segment] = worth
            self._worth_moving = None
        for look in self._doubted.values():
            look.doubt(concerned(look.segment))
        if self._look is not None and self._look.doubt(concerned(self._look.segment)):
            self._haste = min(2 * self._haste, _HASTE_MAX)
        if self._move is not None:
            self._move.doubt(concerned(self._move.segment))

    def _next_look(self) -> Look | None:
        """What was doubted, then the next segment of this round; None at its end, which is once a call at most."""
        while self._doubted:
            segment, look = self._doubted.popitem()
            if not segment.removed:
                return look
        if self._round is None:
            sealed = [segment for segment in self._catalog if segment.active is None and segment.sealed_by]
            # What is judged soonest comes first, or a life too short for a large one would delete nothing at all.
            self._round = sorted(sealed, key=lambda one: (one.messages, one.log, one.seq), reverse=True)
        while self._round:
            segment = self._round.pop()
            if segment.removed or segment in self._dying or not segment.copies or not self._removable(segment):
                continue
            if self._move is not None and self._move.segment is segment:
                continue
            return Look(segment, self._catalog.index_soon(segment))
        self._round = None
        return None

    def _judge(self, look: Look, live: Live, budget: int) -> tuple[int, bool]:
        limit = self._settings.copy_live_share_max * max(look.segment.bytes, self._settings.segment_bytes)
        used = 0
        for record in look.records:
            used += 1
            if live(record.source, record.first_offset, record.count, record.time_ns) and not self._kept_by_copy(
                look.segment, record
            ):
                look.keep(record)
                if look.live_bytes > limit:
                    look.too_much = True
                    return used, True
            if used >= budget:
                return used, False
        return used, True

    def _kept_by_copy(self, segment: Segment, record: IndexRecord) -> bool:
        """Whether a needed entry is also in a newer segment, which is going to stay for it: a life that copied it
        forward ended before it deleted the original.
        """
        for one in self._copied(segment, record):
            if one in self._dying or one in self._doubted or (self._move is not None and self._move.segment is one):
                continue
            if self._look is not None and self._look.segment is one:
                continue
            if self._worth_moving is not None and self._worth_moving.segment is one:
                self._worth_moving = None  # its judgement may be older
            return True
        return False

    def _classify(self, look: Look) -> None:
        segment = look.segment
        if segment.removed:
            return
        if not look.live:
            self._dying[segment] = self._appended()
            return
        limit = self._settings.copy_live_share_max * max(segment.bytes, self._settings.segment_bytes)
        newer = sum(1 for other in self._catalog if (other.log, other.seq) > (segment.log, segment.seq))
        best = self._worth_moving
        if look.live_bytes <= limit and newer >= _NEWER_SEGMENTS and (best is None or len(look.live) < len(best.live)):
            self._worth_moving = look

    def _begin_move(self) -> None:
        """Copy forward what was found worth it, unless something else is being copied."""
        found = self._worth_moving
        if found is not None and self._move is None:
            self._worth_moving = None
            if not found.segment.removed:
                self._move = Move(found.segment, found.live)

    def _go_on_moving(self, report: CollectReport, dead: list[Segment]) -> None:
        move = self._move
        assert move is not None
        if move.segment.removed or isinstance(move.frames, Exception):
            self._move = None  # damaged or gone: it is checked again next round
            return
        if move.frames is not None:
            for header, payload in move.frames:
                move.last_copy = self._copy(header, payload)
                report.copied_entries += 1
                report.copied_bytes += len(payload)
            move.frames = None
            move.fetching = False
        if move.rest and not move.fetching:
            self._fetch(move)
        elif not move.rest and not move.fetching and not move.stale and self._synced() >= move.last_copy:
            dead.append(move.segment)
            self._move = None

    def _look_again(self, live: Live, budget: int) -> int:
        """Look for further entries of a segment to copy, after the first copies; returns the number of entries judged.

        Restarting from the beginning could write copies without end while entries keep becoming needed.
        """
        move = self._move
        if move is None or not move.stale or move.rest or move.fetching:
            return 0
        try:
            if move.look is None:
                move.begin_look(self._catalog.index_soon(move.segment))
            look = move.look
            assert look is not None
            used, finished = self._judge(look, live, budget)
        except (DamagedIndex, CopiesUnreachable, Gone, OSError):
            self._move = None
            return 0
        if finished and (look.too_much or look.seen != move.segment.messages):
            self._move = None  # too much of it is needed
        elif finished:
            move.end_look(look)
            move.last_copy = max(move.last_copy, self._appended())  # what this rests on is synced then, too
        return used

    def _fetch(self, move: Move) -> None:
        size = number = 0
        settings = self._settings
        most = min(len(move.rest), settings.copy_entries_step)
        while number < most and (not number or size < settings.copy_bytes_step):
            size += move.rest[number].length
            number += 1
        part, move.rest = move.rest[:number], move.rest[number:]
        move.fetching = True

        def fetch() -> None:
            try:
                move.frames = self._access.frames(move.segment, part)
            except Exception as error:  # the thread goes on to serve reads
                move.frames = error

        self._in_thread(fetch)

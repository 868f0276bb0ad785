"""Applying: a decided epoch goes from the staging source into its topics.

Place: between the machine of epochs and the publish forwarder; `writing` begins one for each decision, `recovery` for
each that a crash left undone. About 1 MiB is read, named in a fact and appended in one turn of the loop, so other work
goes on in between, and a small epoch becomes visible at one instant.
Promises: a place is named in the log right before the messages that take it, so after a crash it is known, place by
place, what is there; nothing is stored twice and nothing left out. A topic that was deleted in the meantime gets
nothing.
"""

import logging
from collections.abc import Callable, Iterable, Sequence

from syncpoint.base.kernel import stamps
from syncpoint.base.model.errors import SyncpointError
from syncpoint.broker.pipeline.epoch_commits import Work, work_of
from syncpoint.broker.pipeline.epochs import EpochState, block_of
from syncpoint.broker.pipeline.home import Home
from syncpoint.broker.pipeline.records import EpochDecision, EpochPlace
from syncpoint.broker.publish.facts import records
from syncpoint.broker.publish.facts.records import ExtensionNumber
from syncpoint.broker.publish.intake.forwarder import PublishForwarder
from syncpoint.log.storage.errors import StorageDamaged
from syncpoint.log.storage.record import EntryKind
from syncpoint.log.storage.store import StoredBatch
from syncpoint.wire.protobuf.messages import pipeline

log = logging.getLogger(__name__)

TURN_BYTES = 1 << 20
UNPERSISTED_BYTES_MAX = 8 << 20  # above it the disks come first
AGAIN_S = 1.0  # until a read that failed is tried again
DAMAGED_TRIES = 30  # in all, of pieces that no disk gives in good order: a disk that fails for a while says the same
NUMBER = ExtensionNumber.EPOCHS

OnPersisted = Callable[[Exception | None], None]


class EpochApply:
    """One decision on its way; its topics are pinned. `on_persisted` is called once all is persisted,
    or the log fails.
    """

    def __init__(
        self,
        publish: PublishForwarder,
        home: Home,
        state: EpochState,
        decision: EpochDecision,
        soon: Callable[[Callable[[], None]], object],
        later: Callable[[float, Callable[[], None]], object],
        on_persisted: OnPersisted,
    ) -> None:
        self.publish, self.home, self.state, self.decision = publish, home, state, decision
        self._soon, self._later, self._on_persisted = soon, later, on_persisted
        self._work = [work for work in work_of(decision) if work.number not in decision.places]
        self._next = 0
        self._gathered: list[tuple[Work, bytes]] = []
        self._gathered_bytes = 0
        # By source and first offset: a server that restarted while an epoch was staged has its stages in two sources.
        self._ahead: dict[tuple[int, int], StoredBatch] = {}
        self._answered: list[Sequence[StoredBatch] | Exception] = []
        self._asking = False
        self._damaged = 0  # how often a piece could not be read in good order
        self._unpersisted = 0
        self._paused = self._over = False
        self._lowest: dict[int, int] = {}  # source -> first offset of what is stored there
        self._stored(decision.places.values())

    def _stored(self, places: Iterable[EpochPlace]) -> None:
        for place in places:
            if place.count:
                self._lowest[place.source] = min(place.first_offset, self._lowest.get(place.source, place.first_offset))

    def holds(self, source: int, end: int) -> bool:
        """Whether messages of a source below `end` are needed, so that after a crash they are found."""
        return source in self._lowest and self._lowest[source] < end

    def begin(self) -> None:
        """Go on as far as one turn goes."""
        try:
            self._gather()
        except SyncpointError as error:
            self._end(error)
        except Exception as error:  # callers that wait must learn of it, too
            self._end(error)
            raise

    # -- reading what is staged --------------------------------------------------------------------------------------

    def _gather(self) -> None:
        while self._next < len(self._work) and self._gathered_bytes < TURN_BYTES and not self._over:
            work = self._work[self._next]
            payload = b""
            if work.skip < work.piece.count and self._topic_exists(work):
                found = self._ahead.pop((work.stage.staging, work.piece.first_offset), None)
                if found is None:
                    if not self._read(work):
                        return
                    continue
                payload = found.payload
            self._gathered.append((work, payload))
            self._gathered_bytes += len(payload)
            self._next += 1
        if not self._over:
            self._write()

    def _topic_exists(self, work: Work) -> bool:
        return self.publish.catalog.topic_by_incarnation(work.piece.topic) is not None

    def _read(self, work: Work) -> bool:
        """Ask for a piece and what follows it. False: the answer comes later."""
        self._asking = True
        self.publish.store.read(work.stage.staging, work.piece.first_offset, TURN_BYTES, self._read_answered)
        self._asking = False
        return bool(self._answered) and self._take(work, self._answered.pop())

    def _read_answered(self, answer: Sequence[StoredBatch] | Exception) -> None:
        if self._asking:
            self._answered.append(answer)
        elif not self._over and self._take(self._work[self._next], answer):
            self.begin()

    def _take(self, work: Work, answer: Sequence[StoredBatch] | Exception) -> bool:
        """Enter what was read. False: it must be read again later."""
        if isinstance(answer, Exception) and not isinstance(answer, StorageDamaged):
            log.warning(
                "epoch %d of query %s waits for its disks: %s", self.decision.epoch, self.decision.query, answer
            )
            self._later(AGAIN_S, self.begin)
            return False
        batches = [] if isinstance(answer, Exception) else answer
        found = {(batch.source, batch.first_offset): batch for batch in batches}
        piece, place = work.piece, (work.stage.staging, work.piece.first_offset)
        if place not in found or found[place].count != piece.count:
            self._damaged += 1
            if self._damaged < DAMAGED_TRIES:
                self._later(AGAIN_S, self.begin)
                return False
            log.error(
                "%d messages of epoch %d of query %s are lost: their staged copy cannot be read (%s)",
                piece.count - work.skip, self.decision.epoch, self.decision.query, answer,
            )  # fmt: skip
            found[place] = StoredBatch(*place, piece.count, 0, b"")
        self._ahead = found
        return True

    # -- writing it into the topics ----------------------------------------------------------------------------------

    def _write(self) -> None:
        """Append everything gathered in this turn after the fact that names its places."""
        gathered, self._gathered, self._gathered_bytes = self._gathered, [], 0
        self._ahead = {}
        ends: dict[int, int] = {}
        places, payloads = [], []
        seconds, nanos = self.publish.commit.turn_time()
        for work, staged in gathered:
            if not staged:
                places.append(EpochPlace(0, 0, 0))
                continue
            source = self.home.open_source(work.piece.topic)
            first = ends.get(source.number, source.end)
            if work.piece.complete and not work.skip:
                count, payload = work.piece.count, staged
            else:
                count, payload = stamps.stamp(staged, source.prefix, first, seconds, nanos, work.skip)
            ends[source.number] = first + count
            places.append(EpochPlace(source.number, first, count))
            payloads.append((source, payload, count))
            self.home.note_load(source.topic, count, len(payload))
        self._stored(places)
        if places:
            self._append_fact(self.state.applied(self.decision, gathered[0][0].number, places))
        for source, payload, count in payloads:
            self._unpersisted += len(payload)
            self.publish.commit.append_batch(source, payload, count, self._persisted(len(payload)))
        if self.state.on_copied is not None:  # before anybody can see them
            for (work, _), place in zip(gathered, places, strict=True):
                block = block_of(self.decision, work, place)
                if block is not None:
                    self.state.on_copied(block)
        if self._next == len(self._work):
            self._append_fact(self.state.done(self.decision, self._result()), self._end)
        elif self._unpersisted > UNPERSISTED_BYTES_MAX:
            self._paused = True
        else:
            self._soon(self.begin)

    def _append_fact(self, fact: bytes, done: OnPersisted | None = None) -> None:
        self.publish.commit.append_fact(EntryKind.LEDGER, records.encode_extension(NUMBER, fact), done)

    def _persisted(self, size: int) -> OnPersisted:
        def persisted(error: Exception | None) -> None:
            self._unpersisted -= size
            if error is not None:
                self._end(error)
            elif self._paused and self._unpersisted <= UNPERSISTED_BYTES_MAX >> 1:
                self._paused = False
                self._soon(self.begin)

        return persisted

    def _result(self) -> bytes:
        """The answer: where everything lies, neighbours as one."""
        result = pipeline.EpochResult()
        for work in work_of(self.decision):
            place = self.decision.places[work.number]
            result.rows += place.count
            result.duplicates_dropped += work.skip
            last = result.stored[-1] if result.stored else None
            if last is not None and (last.source, last.end) == (place.source, place.first_offset):
                last.end += place.count
            elif place.count:
                end = place.first_offset + place.count
                topic = work.stage.topics[work.piece.topic]
                result.stored.add(topic=topic, source=place.source, begin=place.first_offset, end=end)
        encoded: bytes = result.SerializeToString()
        return encoded

    def _end(self, error: Exception | None) -> None:
        if not self._over:
            self._over = True
            self._on_persisted(error)

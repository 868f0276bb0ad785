"""The service EpochWriter: topics written by epochs, exactly once.

Place: beside the servicers of `api`; it drives the machine in `epochs` over one publish forwarder, in whose log its
facts lie (as an `Extension`). Everything runs on the event loop.
Promises, in this order: a stage is answered when it is persisted; an epoch is decided by one fact; its messages follow
that fact in the log, each piece after the fact that names its place; then the fact that it is done; then the answer.
A crash anywhere leaves either nothing of an epoch, or a decision that is finished before anything is served again.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from google.protobuf.message import Message

from syncpoint.base.model.errors import (
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    SyncpointError,
    Unavailable,
    suspended,
)
from syncpoint.base.runtime.child_processes import Apart, at_once
from syncpoint.base.runtime.tasks import complete, outcome_of
from syncpoint.broker.pipeline.epoch_apply import NUMBER, EpochApply
from syncpoint.broker.pipeline.epoch_commits import CommitRequest, Decided, Dropped, GapRefused, Repeated
from syncpoint.broker.pipeline.epochs import EpochState
from syncpoint.broker.pipeline.home import Home
from syncpoint.broker.pipeline.links import LinkState, PlannedRange
from syncpoint.broker.pipeline.records import EpochDecision, QueryRun, Stage
from syncpoint.broker.pipeline.recovery import finish, read_back
from syncpoint.broker.pipeline.staged_schemas import StagedSchemas, changed
from syncpoint.broker.pipeline.staging import STAGED_BYTES_MAX, StageStream, StagingArea
from syncpoint.broker.publish.facts import records
from syncpoint.broker.publish.facts.source import Source
from syncpoint.broker.publish.intake.forwarder import PublishForwarder
from syncpoint.catalog.metadata.entity_options import HERE
from syncpoint.log.storage.record import EntryKind
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import pipeline
from syncpoint.wire.protobuf.methods import Method
from syncpoint.wire.protobuf.serving import served
from syncpoint.wire.transport.calls import Methods, Streaming, StreamingCall

log = logging.getLogger(__name__)

BACKFILL = ".backfill."
"""In the name of a link that brings a closed range of what was published before: no second writer."""
MAPPINGS_MAX = 10_000  # ranges in one answer of MapOffsets


class EpochWriter:
    """The service. Made before anything is served: it registers itself with the forwarder; then await `recover`."""

    number = NUMBER

    def __init__(
        self,
        publish: PublishForwarder,
        soon: Callable[[Callable[[], None]], object],
        later: Callable[[float, Callable[[], None]], object],
        home: Home,
        staged_bytes_max: int = STAGED_BYTES_MAX,
        apart: Apart = at_once,
    ) -> None:
        """`home`: what is around the log. `apart`: where rows are checked against schemas."""
        self._schemas = StagedSchemas(publish.catalog, apart)
        self.publish, self.catalog, self.clock = publish, publish.catalog, publish.clock
        self.home = home
        self.leaving: set[str] = set()  # queries that are about to be forgotten: nobody may use them now
        self._stages: list[StageStream] = []
        self._soon, self._later = soon, later
        self.area = StagingArea(publish, staged_bytes_max)
        self.state: EpochState = read_back(publish, self.area)
        self.applying: dict[int, EpochApply] = {}  # by decision; until all of it is persisted
        self.holding = self.applying  # see `publish.forwarder.HoldingExtension`
        self._waiting: dict[int, list[asyncio.Future[None]]] = {}
        publish.extensions.append(self)
        publish.holding_extensions += (self.area, self)

    def methods(self) -> Methods:
        """The method table of this service."""
        return {**served(self.unary()), methods.EPOCH_WRITER.Stage.encode(): Streaming(self.stage)}

    def unary(self) -> dict[Method, Callable[[Any], Awaitable[Message]]]:
        """What answers the unary methods."""
        return {
            methods.EPOCH_WRITER.CommitEpoch: self.commit_epoch,
            methods.EPOCH_WRITER.AbortEpoch: self.abort_epoch,
            methods.EPOCH_WRITER.ListLinks: self.list_links,
            methods.EPOCH_WRITER.AcceptGap: self.accept_gap,
            methods.EPOCH_WRITER.MapOffsets: self.map_offsets,
        }

    async def finish_decided(self) -> None:
        """Finish what was decided before a crash. Nothing may be served before this returns. Raises `Unavailable` when
        the log fails.
        """
        await finish(self.state, self.home, self._apply, self._finished)

    def stage(self, stream: StreamingCall) -> None:
        """Stage."""
        self._stages = [one for one in self._stages if not one.over]
        self._stages.append(
            StageStream(stream, self.area, self.state, self.home, self._on_run, self._write, self._schemas)
        )

    def close(self, error: SyncpointError) -> None:
        """End the calls that are open. What waits for the log is answered by the log."""
        for stage in self._stages:
            stage.end(error)
        self._stages = []

    # -- commits -----------------------------------------------------------------------------------------------------

    async def commit_epoch(self, asked: pipeline.CommitEpochRequest) -> pipeline.EpochResult:
        """CommitEpoch."""
        ask = _ask(asked)
        await self.home.admit(ask.run.query, ask.link)
        pinned: set[int] = set()
        try:
            await self._prepare(ask, pinned)
            self._check_writer(ask)
            outcome = self.state.decide(ask, self.clock.time_ns(), self._exists, self._check_settings)
            if isinstance(outcome, Decided):
                pinned -= outcome.decision.topics  # given back when it is done
        finally:
            self.home.unpin(pinned)
        if isinstance(outcome, GapRefused):
            await self._written(Dropped((), outcome.facts))
            raise outcome.error
        if isinstance(outcome, Repeated):
            await self._written(Dropped(outcome.released, outcome.facts))
            result = pipeline.EpochResult.FromString(outcome.result)
            result.repeated_epoch = True
            return result
        decision = outcome.decision
        self._write(Dropped(outcome.released, outcome.facts), lambda error: None)
        finished = self._finished(decision)
        self._apply(decision)
        await finished
        return pipeline.EpochResult.FromString(self.state.queries[decision.query].results[decision.epoch])

    async def _prepare(self, ask: CommitRequest, pinned: set[int]) -> None:
        """Return when the epoch can be decided at once: none of the query is under way, and its topics are `pinned`."""
        while True:
            self._on_run(ask.run)
            if self._under_way(ask.run.query):
                await self._finished(self._under_way(ask.run.query)[0])
                continue
            topics = {topic for topic in self.state.topics_of(ask) if self._exists(topic)} - pinned
            if not topics:
                return
            await self.home.pin(topics)
            pinned |= topics

    def _check_writer(self, ask: CommitRequest) -> None:
        """Raises `FailedPrecondition` for an epoch that would make a second writer of a topic."""
        for incarnation in self.state.topics_of(ask):
            topic = self.catalog.topic_by_incarnation(incarnation)
            if topic is None:
                continue
            if not ask.link and topic.options.written_elsewhere:
                raise suspended(topic.name, elsewhere=True)
            if ask.link and topic.options.writer == HERE and BACKFILL not in ask.link:
                raise FailedPrecondition(
                    f"Link {ask.link} would be a second writer of {topic.name}: its project has the class billing, and"
                    " publishes are taken here. If the other site takes them now, declare that with `syncpoint projects"
                    " set-class PROJECT billing --writer elsewhere`; to bring what it had left, with --writer"
                    " recovering."
                )

    def _check_settings(self, stage: Stage) -> None:
        """Raises `FailedPrecondition` for rows that were not checked by the schema and transforms of their topics now,
        which is not known of a stage from before a restart.
        """
        for incarnation in stage.topics:
            topic = self.catalog.topic_by_incarnation(incarnation)
            if topic is not None and topic.stamp and stage.stamps.get(incarnation) != topic.stamp:
                raise changed(topic)

    def _exists(self, topic: int) -> bool:
        return self.catalog.topic_by_incarnation(topic) is not None

    def _under_way(self, query: str) -> list[EpochDecision]:
        return [one.decision for one in self.applying.values() if one.decision.query == query]

    def _finished(self, decision: EpochDecision) -> "asyncio.Future[None]":
        """Done when a decision is persisted as a whole. Raises `Unavailable` where that is unknown."""
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(decision.id, []).append(waiting)
        return waiting

    def _apply(self, decision: EpochDecision) -> None:
        def on_persisted(error: Exception | None) -> None:
            del self.applying[decision.id]
            self.home.unpin(decision.topics)
            if error is None:
                self._release(decision.stages)
            for waiting in self._waiting.pop(decision.id, ()):
                complete(
                    waiting, error and Unavailable(f"the epoch may or may not be committed: {error}; commit again")
                )

        applying = self.applying[decision.id] = EpochApply(
            self.publish, self.home, self.state, decision, self._soon, self._later, on_persisted
        )
        applying.begin()

    async def abort_epoch(self, asked: pipeline.AbortEpochRequest) -> pipeline.AbortEpochResponse:
        """AbortEpoch."""
        run = QueryRun(asked.run.query, asked.run.run)
        await self.home.admit(run.query, "")
        self._on_run(run)
        await self._written(self.state.abort(run, asked.epoch))
        return pipeline.AbortEpochResponse()

    # -- links -------------------------------------------------------------------------------------------------------

    async def list_links(self, asked: pipeline.ListLinksRequest) -> pipeline.ListLinksResponse:
        """ListLinks."""
        found = [link for name, link in sorted(self.state.links.items()) if asked.name in ("", name)]
        answer = pipeline.ListLinksResponse(links=map(_described, found))
        await persisted(self.publish)
        return answer

    async def accept_gap(self, asked: pipeline.AcceptGapRequest) -> pipeline.Link:
        """AcceptGap."""
        facts = self.state.accept_gap(asked.link)
        await self._written(Dropped((), facts))
        return _described(self.state.links[asked.link])

    async def map_offsets(self, asked: pipeline.MapOffsetsRequest) -> pipeline.MapOffsetsResponse:
        """MapOffsets."""
        if asked.link not in self.state.links:
            raise NotFound(asked.link, f"Link not found (resource={asked.link}).")
        if not 0 <= asked.begin <= asked.end:
            raise InvalidArgument("begin", "must be 0 or more and not greater than end")
        self._prune()
        found = self.state.copies.find(asked.link, asked.source, asked.begin, asked.end, MAPPINGS_MAX + 1)
        answer = pipeline.MapOffsetsResponse(next_offset=asked.end)
        if len(found) > MAPPINGS_MAX:
            answer.next_offset = found.pop().begin
        for one in found:
            mapping = answer.mappings.add()
            getattr(mapping, "from").source = asked.source
            getattr(mapping, "from").begin, getattr(mapping, "from").end = one.begin, one.begin + one.count
            mapping.to.add(topic=one.topic, source=one.source, begin=one.first, end=one.first + one.count)
        await persisted(self.publish)
        return answer

    # -- the log -----------------------------------------------------------------------------------------------------

    def _on_run(self, run: QueryRun) -> None:
        if run.query in self.leaving:
            raise Unavailable(f"Query {run.query} was unused for a month and is being removed. Try again.")
        registered = self.state.on_run(run, self.clock.time_ns())
        if registered.facts:
            self._write(registered, lambda error: None)

    def _write(self, dropped: Dropped, done: Callable[[Exception | None], None]) -> None:
        """Write facts in their order. What was dropped with them is free once they are persisted."""

        def on_persisted(error: Exception | None) -> None:
            if error is None:
                self._release(dropped.stages)
            done(error)

        for fact in dropped.facts[:-1]:
            self.publish.commit.append_fact(EntryKind.LEDGER, records.encode_extension(NUMBER, fact))
        for fact in dropped.facts[-1:]:
            self.publish.commit.append_fact(EntryKind.LEDGER, records.encode_extension(NUMBER, fact), on_persisted)

    async def _written(self, dropped: Dropped) -> None:
        """Write facts and wait until they, and everything written before, are persisted; answers depend on both."""
        self._write(dropped, lambda error: None)
        await persisted(self.publish)

    def _release(self, stages: tuple[Stage, ...]) -> None:
        for stage in stages:
            for piece in stage.pieces:
                self.area.release(stage.staging, piece.first_offset)

    def tidy(self, may_forget: Callable[[str], bool] = lambda query: True) -> None:
        """Now and then: drop stages nobody will commit, forget queries nobody uses."""
        if self.publish.commit.failed is None:
            self._write(self.state.tidy(self.clock.sure_ns(), may_forget), lambda error: None)

    # -- the Extension of the forwarder --------------------------------------------------------------------------------

    def facts(self) -> Iterator[bytes]:
        self._prune()
        yield from self.state.facts()

    def holds(self, source: Source, first_offset: int, end: int, time_ns: int) -> bool:
        """What an epoch under way has stored is kept, so that after a crash it is found, and not stored again."""
        return any(one.holds(source.number, end) for one in self.applying.values())

    def forgotten(self, source: Source) -> None:
        self.state.copies.forget(source.number)

    def _prune(self) -> None:
        def first_stored(source: int) -> int | None:
            bounds = self.publish.store.bounds(source)
            return None if bounds is None else bounds[0]

        self.state.copies.prune(first_stored)


def _ask(asked: pipeline.CommitEpochRequest) -> CommitRequest:
    return CommitRequest(
        QueryRun(asked.run.query, asked.run.run),
        asked.epoch,
        tuple((stage.partition, stage.attempt) for stage in asked.stages),
        asked.link,
        asked.source_topic,
        tuple(PlannedRange(one.source, one.begin, one.end, one.chain) for one in asked.planned),
        asked.accept_gaps,
    )


def _described(link: LinkState) -> pipeline.Link:
    answer = pipeline.Link(
        name=link.name,
        source_topic=link.source_topic,
        rows=link.rows,
        bytes=link.bytes,
        epochs=link.epochs,
        duplicates_dropped=link.duplicates,
        gaps_refused=link.gaps_refused,
    )
    for source, one in sorted(link.intervals.items()):
        answer.base.add(source=source, chain=one.chain, begin=one.base, end=one.base)
        answer.committed.add(source=source, chain=one.chain, begin=one.begin, end=one.end)
    for gap in link.refused:
        answer.refused.add(**gap._asdict())
    for gap in link.skipped:
        answer.skipped.add(**gap._asdict())
    answer.committed_at.FromNanoseconds(link.committed_ns)
    return answer


async def persisted(publish: PublishForwarder) -> None:
    """Return once everything that the log was given is persisted: only then may be answered what follows from it.
    Raises `Unavailable` where that is unknown, as it is of a log that has failed.
    """
    publish.commit.check_writable()
    if publish.store.persisted >= publish.store.appended:
        return
    waiting, on_outcome = outcome_of("answer to what was asked")
    publish.commit.when_acks_persisted(on_outcome)
    await waiting

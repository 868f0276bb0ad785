"""A simulated Spark: jobs whose drivers die, come back and go on as zombies, over the shipped plans of the data source.

Place: what Spark and the processes of `pyspark_pubsub` are in production: `offsets` of that package plans batches here,
too; the calls are those its source and sink make.
"""

from __future__ import annotations

import asyncio
import zlib
from typing import Any

from pyspark_pubsub import offsets as plans
from pyspark_pubsub.errors import DataLossError
from pyspark_pubsub.offsets import Listing, Offsets, SourceOffsets, SourceRange
from syncpoint.base.model.errors import Code, ResetBySeek, SyncpointError
from syncpoint.testing.simulation.pipeline_calls import AWAY, GapFound, frames_of
from syncpoint.testing.simulation.pipeline_history import (
    CommitCall,
    EpochAttempt,
    ReaderHistory,
    Row,
    SourcePlace,
    Spoken,
)
from syncpoint.testing.simulation.simulated_jobs import ALONE, LINK
from syncpoint.testing.simulation.spark_jobs import (
    SOURCE,
    SUBSCRIPTION,
    TARGETS,
    Concurrent,
    JobFailed,
    QueryFenced,
    SimCheckpoint,
    SimJob,
)
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import pipeline

ROWS_MAX = 40  # of a batch
EXCLUSIVE_S = 4.0
IDLE_S = 0.3
LOST_TASK, LOST_EXECUTOR, GIVEN_UP = 0.06, 0.05, 0.04


class Driver:
    """One driver of a job."""

    def __init__(self, job: SimJob, checkpoint: SimCheckpoint, run: str) -> None:
        self.job, self.checkpoint, self.run = job, checkpoint, run
        self.sim, self.calls, self.random = job.sim, job.calls, job.random
        self.kind, self.query = job.kind, checkpoint.query

    async def step(self) -> bool:
        """Run a batch; False: there is nothing to read."""
        checkpoint = self.checkpoint
        number = checkpoint.next
        planned = checkpoint.offsets.get(number)
        if planned is None:
            planned = await self._plan(number)
            if planned is None:
                return False
            self.job.idle_since = None
            await self._pause()
        await self._batch(number, planned)
        await self._pause()
        checkpoint.over(number, planned)
        self.sim.coverage.sometimes("a batch is committed")
        return True

    async def _pause(self) -> None:
        """Between two steps; now and then long enough for anything to happen."""
        if self.random.random() < 0.15:
            await asyncio.sleep(self.random.random() ** 2 * 1.5)

    # -- planning ----------------------------------------------------------------------------------------------------

    async def _plan(self, number: int) -> Offsets | None:
        checkpoint, stamp = self.checkpoint, self.sim.history.stamp()
        before = checkpoint.offsets[number - 1] if number else checkpoint.initial
        if before is None:
            before = checkpoint.initial = await self._initial()
            checkpoint.began = self.sim.history.stamp()
        listing, lost = await self._ask(processed=before)
        if number != checkpoint.next or number in checkpoint.offsets:
            raise Concurrent  # so far another driver has come in the meantime
        try:
            plans.check_same(before, listing)
            lost = lost or plans.lost_before(before, listing, kept=True)
        except DataLossError as error:
            self.sim.coverage.always("no reader is notified of a loss", False, f"{self.query}: {error}")
            raise JobFailed from error
        if lost:
            self._report_lost(lost)
        after = plans.plan(before, listing, ROWS_MAX)
        if after is before:
            return None
        checkpoint.plan(number, after, stamp)
        self.job.note(f"{self.run} plans batch {number}: {after.ranges()}")
        return after

    def _report_lost(self, lost: list[SourceRange]) -> None:
        """After a checkpoint was set back, what it processed before may be gone."""
        processed = self.job.processed(self.checkpoint)
        passed = all(one.end is not None and one.end <= processed.get(one.source, 0) for one in lost)
        self.sim.coverage.sometimes("a reader that was set back is notified of a gap")
        self.sim.coverage.always("what a cursor has not passed is kept", passed, f"{self.query} lost {lost}")

    async def _initial(self) -> Offsets:
        reader = f"reader{self.sim.random.randrange(0, 1 << 30)}" if self.kind == ALONE else ""
        listing, _ = await self._ask(first=True, reader=reader)
        found = plans.initial(listing, reader)
        if reader:
            self.sim.pipelines.readers.append(ReaderHistory(self.query, found.generation))
        self.job.note(f"begins at {dict(found.sources)}, generation {found.generation}")
        return found

    async def _ask(
        self, *, processed: Offsets | None = None, first: bool = False, reader: str = ""
    ) -> tuple[Listing, list[SourceRange]]:
        """As the source asks on the driver. Raises `JobFailed` where others read the subscription, or it was reset."""
        fields: dict[str, Any] = {}
        reader = processed.reader if processed is not None else reader
        if self.kind == ALONE:
            fields.update(subscription=SUBSCRIPTION, exclusive_reader=reader, exclusive_seconds=EXCLUSIVE_S)
            if first:
                fields["backlog"] = True
        else:
            fields.update(topic=SOURCE, cursor=pipeline.Cursor(name=self.kind), first=first)
            if first and self.job.latest:
                fields["latest"] = True
                self.job.latest = False
        if processed is not None:
            fields["topic_incarnation"] = processed.incarnation
            fields["generation"] = processed.generation
            chains = processed.chains
            fields["processed"] = [
                pipeline.SourceRange(source=one, end=end, chain=chains[one]) for one, end in processed.sources.items()
            ]
            reported = self.job.processed(self.checkpoint)
            reported.update((one, max(end, reported.get(one, 0))) for one, end in processed.sources.items())
        try:
            answer = await self.calls.positions(**fields)
        except SyncpointError as error:
            if error.code is Code.FAILED_PRECONDITION and self.kind == ALONE:
                self._refused(error)
            raise
        sources = [
            SourceOffsets(s.source, s.epoch, s.chain, s.begin, s.end, s.sealed, s.start, s.mean_bytes)
            for s in answer.sources
        ]
        listing = Listing(answer.topic, answer.topic_incarnation, answer.universe, tuple(sources), answer.generation)
        self.sim.coverage.sometimes("what everybody has read is deleted", any(one.begin for one in sources))
        self.sim.coverage.sometimes("a topic lies in several chains", len({one.chain for one in sources}) > 1)
        return listing, [SourceRange(one.source, one.begin, one.end) for one in answer.lost]

    def _refused(self, error: SyncpointError) -> None:
        if isinstance(error, ResetBySeek):
            self.sim.coverage.sometimes("a reader is notified of a seek")
            if self.job.checkpoint is self.checkpoint:
                self.job.fresh()  # as the text says
        else:
            self.sim.coverage.sometimes("a reader waits until a subscription is free")
        raise JobFailed(error.message) from None

    # -- a batch -----------------------------------------------------------------------------------------------------

    async def _batch(self, number: int, planned: Offsets) -> None:
        pieces = plans.split(planned.ranges(), {}, 0, 1 + self.random.randrange(0, 3))
        tasks = [
            self.sim.client.start(self._task(number, partition, piece, planned))
            for partition, piece in enumerate(pieces)
        ]
        try:
            named = await asyncio.gather(*tasks)
        except BaseException:
            for task in tasks:
                task.cancel()
            raise
        attempts = [(partition, attempt) for partition, attempt in enumerate(named) if attempt]
        await self._pause()
        if self.random.random() < GIVEN_UP:
            await self._abort(number)
            raise JobFailed("given up")
        await self._commit(number, planned, attempts)

    async def _task(self, epoch: int, partition: int, piece: SourceRange, planned: Offsets) -> str:
        """The attempt that counts; "" has no rows."""
        for _ in range(4):
            rows = await self._rows(epoch, piece, planned)
            attempt = f"{self.run}-{self.sim.random.randrange(0, 1 << 40):x}"
            lots = self.random.random()
            frames = list(frames_of(self._divided(epoch, attempt, piece, rows), self._of_link(piece)))
            if not frames:
                return ""
            die_after = self.random.randrange(0, len(frames)) if lots < LOST_TASK else None
            if await self._stage(epoch, partition, attempt, frames, die_after):
                if lots > 1 - LOST_EXECUTOR:
                    self.sim.coverage.sometimes("an executor is lost with what it staged")
                    continue
                return attempt
            await self.calls.pause()
        raise JobFailed("a task failed four times")

    def _of_link(self, piece: SourceRange) -> int:
        return piece.source if self.kind == LINK else 0

    async def _rows(self, epoch: int, piece: SourceRange, planned: Offsets) -> list[Any]:
        """What is stored of a range; what was processed before may be gone."""
        skip = SUBSCRIPTION if self.kind == ALONE else ""
        assert piece.end is not None
        chain = planned.chains[piece.source]
        rows: list[Any] = []
        at = piece.begin
        while at < piece.end:
            try:
                return rows + await self.calls.read(
                    planned.topic, planned.incarnation, piece.source, at, piece.end, skip, chain
                )
            except GapFound as gap:
                rows += gap.found
                self.job.note(f"{piece}: {gap}")
                self._gap(epoch, piece, gap)
                at = await self._behind_gap(piece, planned, gap)
        return rows

    async def _behind_gap(self, piece: SourceRange, planned: Offsets, gap: GapFound) -> int:
        """The next offset that is stored, as the data source finds it."""
        assert piece.end is not None
        if gap.following is not None and gap.following > gap.at:
            self.sim.coverage.sometimes("a range goes on after a gap in the middle", gap.following < piece.end)
            return min(piece.end, gap.following)
        answer = await self.calls.positions(topic=planned.topic, topic_incarnation=planned.incarnation)
        begins = [one.begin for one in answer.sources if one.source == piece.source]
        begin = min(piece.end, begins[0]) if begins else piece.end
        if begin <= gap.at:
            raise JobFailed(f"{piece} has a gap at {gap.at}, but is stored from {begin} on")
        return begin

    def _gap(self, epoch: int, piece: SourceRange, gap: GapFound) -> None:
        """A range of a plan is not there any more: only where it was processed before, or its subscription was reset by
        a seek since the batch was planned.
        """
        if epoch in self.checkpoint.commits:
            raise Concurrent  # another driver has run this batch in the meantime
        processed = gap.at < self.job.processed(self.checkpoint).get(piece.source, 0)
        planned = self.checkpoint.planned.get(epoch, 0)
        was_reset = self.kind == ALONE and self.sim.pipelines.was_reset_since(planned)
        self.sim.coverage.sometimes("a range has a gap")
        self.sim.coverage.sometimes("a range has a gap after a seek", was_reset and not processed)
        self.sim.coverage.always(
            "what a reader has not processed is kept", processed or was_reset, f"{self.query} {piece}: {gap}"
        )

    def _divided(self, epoch: int, attempt: str, piece: SourceRange, rows: list[Any]) -> dict[str, list[Row]]:
        """What a task makes of its rows: some are left out by a link, each goes to one of the targets."""
        found: dict[str, list[Row]] = {topic: [] for topic in TARGETS}
        for offset, body in rows:
            place = SourcePlace(piece.source, offset)
            self.sim.pipelines.data[place] = body
            if self.kind != LINK or passes(body):
                found[TARGETS[zlib.crc32(body) % 2]].append(Row(self.query, epoch, attempt, place))
        self.sim.pipelines.attempts[attempt] = EpochAttempt(attempt, self.query, self.run, epoch, found)
        return {topic: mine for topic, mine in found.items() if mine}

    def _speaks(self, method: str) -> Spoken:
        spoken = Spoken(self.query, self.run, method, self.sim.history.stamp())
        self.sim.pipelines.spoken.append(spoken)
        return spoken

    async def _stage(self, epoch: int, partition: int, attempt: str, frames: list[Any], die_after: int | None) -> bool:
        run = pipeline.Run(query=self.query, run=self.run)
        header = pipeline.StageHeader(
            run=run, epoch=epoch, partition=partition, attempt=attempt, link=LINK if self.kind == LINK else ""
        )
        spoken = self._speaks("Stage")
        try:
            answer = await self.calls.stage(header, frames, die_after=die_after)
        except SyncpointError as error:
            self._answered(error)
            return False
        if answer is None:
            self.sim.coverage.sometimes("a task dies in the middle")
            return False
        spoken.ended = self.sim.history.stamp()
        wanted = sum(len(rows) for rows in self.sim.pipelines.attempts[attempt].rows.values())
        self.sim.coverage.always("a stage has all rows", answer.rows == wanted, f"{attempt}: {answer.rows}, {wanted}")
        return True

    def _answered(self, error: SyncpointError, *also: Code) -> None:
        if error.code is Code.ABORTED:
            self.sim.coverage.sometimes("a run is fenced")
            raise QueryFenced(error.message) from None
        known = (*AWAY, Code.RESOURCE_EXHAUSTED, *also)
        self.sim.coverage.always("answers are as expected", error.code in known, f"{error.code.name}: {error.message}")

    async def _abort(self, epoch: int) -> None:
        spoken = self._speaks("AbortEpoch")
        request = pipeline.AbortEpochRequest(run=pipeline.Run(query=self.query, run=self.run), epoch=epoch)
        try:
            await self.calls.unary(methods.EPOCH_WRITER.AbortEpoch, request)
        except SyncpointError as error:
            self._answered(error)
            return
        spoken.ended = self.sim.history.stamp()
        self.sim.coverage.sometimes("an epoch is aborted")

    async def _commit(self, epoch: int, planned: Offsets, attempts: list[tuple[int, str]]) -> None:
        request = pipeline.CommitEpochRequest(run=pipeline.Run(query=self.query, run=self.run), epoch=epoch)
        request.topic = TARGETS[0]
        for partition, attempt in attempts:
            request.stages.add(partition=partition, attempt=attempt)
        ranges: tuple[tuple[int, int, int], ...] = ()
        if self.kind == LINK:
            request.link, request.source_topic = LINK, f"{planned.universe}/{planned.incarnation}"
            for source, begin in planned.begins.items():
                request.planned.add(
                    source=source, begin=begin, end=planned.sources[source], chain=planned.places[source][1]
                )
            ranges = tuple((source, begin, planned.sources[source]) for source, begin in planned.begins.items())
        end = self.sim.loop.time() + self.calls.patience_s
        names = tuple(attempt for _, attempt in attempts)
        while True:
            commit = CommitCall(
                self.query, self.run, "CommitEpoch", self.sim.history.stamp(), 0, epoch, names, request.link, ranges
            )
            self.sim.pipelines.commits.append(commit)
            self.sim.pipelines.spoken.append(commit)
            if self.sim.on_commit is not None:
                self.sim.on_commit()
            try:
                result = await self.calls.unary(methods.EPOCH_WRITER.CommitEpoch, request)
            except SyncpointError as error:
                self._answered(error, Code.FAILED_PRECONDITION, Code.OUT_OF_RANGE)
                await self._not_committed(error)
                if self.sim.loop.time() > end:
                    raise JobFailed(error.message) from None
                await self.calls.pause()
                continue
            commit.ended, commit.result = self.sim.history.stamp(), result
            self.sim.coverage.sometimes("an epoch is reported as repeated", result.repeated_epoch)
            self.sim.coverage.sometimes("rows of a link are dropped as duplicates", result.duplicates_dropped)
            self.job.note(f"epoch {epoch} of {self.run} committed, {result.rows} rows, {result.repeated_epoch=}")
            return

    async def _not_committed(self, error: SyncpointError) -> None:
        if error.code is Code.FAILED_PRECONDITION:
            self.sim.coverage.sometimes("a stage is gone")
            raise JobFailed(error.message) from None
        if error.code is Code.OUT_OF_RANGE:
            self.sim.coverage.sometimes("a gap is refused")
            self.job.note(f"{self.run} is refused: {error.message}")
            self.sim.coverage.always(
                "only a reader that began behind it leaves a gap", self.sim.pipelines.gaps_begun, error.message
            )
            await self._accept()
            raise JobFailed(error.message) from None

    async def _accept(self) -> None:
        """An operator takes the gap as lost."""
        request = pipeline.AcceptGapRequest(link=LINK)
        try:
            await self.calls.patiently(methods.EPOCH_WRITER.AcceptGap, request)
        except SyncpointError as error:
            self._answered(error, Code.FAILED_PRECONDITION)


def passes(body: bytes) -> bool:
    """What a link copies."""
    return zlib.crc32(body) % 5 != 0


async def drive(job: SimJob, run: str) -> None:
    """One driver of a job, as long as it lives. Raises `QueryFenced`, `JobFailed`, `Concurrent`, `SyncpointError`."""
    checkpoint = job.checkpoint
    driver = Driver(job, checkpoint, run)
    job.note(f"{run} begins at batch {checkpoint.next}")
    while True:
        if not await driver.step():
            if job.idle_since is None and checkpoint is job.checkpoint:
                job.idle_since = job.sim.now
            await asyncio.sleep(IDLE_S * (0.5 + job.random.random()))

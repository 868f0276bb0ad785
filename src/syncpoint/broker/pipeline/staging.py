"""Staging: what an attempt of a partition sends becomes messages in the log that nobody sees yet.

Place: the method EpochWriter.Stage, and the memory of what is staged. Rows become stored messages in one pass of the
kernel; they go into a *staging source*, a source of a topic that no catalog knows, so they are as durable as any
message, survive `kill -9`, and are copied forward and deleted like all others.
Promises: what is refused has stored nothing of the frame that was refused; a stage counts once a fact names it, and is
answered when that is persisted. Memory is bounded: while too much waits for the disks callers get no window.
"""

import asyncio
from collections import deque
from collections.abc import Callable

from syncpoint.base.kernel import rows
from syncpoint.base.kernel.errors import Invalid, Malformed
from syncpoint.base.model.errors import (
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    ResourceExhausted,
    SyncpointError,
    Unavailable,
    suspended,
)
from syncpoint.base.model.names import parse_topic
from syncpoint.broker.pipeline import columns
from syncpoint.broker.pipeline.epoch_commits import NAME_BYTES_MAX, Dropped
from syncpoint.broker.pipeline.epochs import EpochState
from syncpoint.broker.pipeline.home import Home
from syncpoint.broker.pipeline.records import Piece, QueryRun, Stage
from syncpoint.broker.pipeline.staged_schemas import StagedSchemas, changed, sealed
from syncpoint.broker.publish.facts.source import STAGING_TOPIC, Source
from syncpoint.broker.publish.intake.forwarder import PublishForwarder
from syncpoint.catalog.metadata.records import Topic
from syncpoint.wire.protobuf.arrow import decode_batch
from syncpoint.wire.protobuf.messages import pipeline
from syncpoint.wire.protobuf.serving import parsed
from syncpoint.wire.transport.calls import StreamingCall

STAGED_BYTES_MAX = 4 << 30  # staged and not yet committed, of all queries together
UNPERSISTED_BYTES_MAX = 32 << 20  # staged and not yet on the disks; above it callers wait
PIECE_BYTES = 256 << 10  # approximate size of one entry of the log

Write = Callable[[Dropped, Callable[[Exception | None], None]], None]
"""Write facts, and give free what was dropped; then the function is called, with an error if that is unknown."""
Pieces = list[tuple[bytes, int, bytes, bool]]
"""What the kernel makes of a frame: messages as they are stored, how many, the runs of their offsets, and whether
these are all."""
OnRun = Callable[[QueryRun], None]
"""Somebody speaks for a run. Raises `SyncpointError` when it may not write."""


class StagingArea:
    """All that is staged in this log, and who waits to stage more."""

    def __init__(self, publish: PublishForwarder, bytes_max: int = STAGED_BYTES_MAX) -> None:
        self.publish, self.bytes_max = publish, bytes_max
        self.bytes = 0
        self.unpersisted = 0
        self._held: dict[tuple[int, int], int] = {}  # (source, first offset) of a piece -> bytes
        self.holding = self._held  # see `publish.forwarder.HoldingExtension`
        self._waiting: deque[Callable[[], None]] = deque()

    def hold(self, stage: Stage) -> None:
        """A stage found in the log."""
        for piece in stage.pieces:
            self._enter(stage.staging, piece.first_offset, piece.size)

    def _enter(self, source: int, first_offset: int, size: int) -> None:
        if (source, first_offset) not in self._held:
            self._held[source, first_offset] = size
            self.bytes += size

    def holds(self, source: Source, first_offset: int, end: int, time_ns: int) -> bool:
        """Staged messages stay until their epoch is done or dropped. An entry of a staging source is one piece, also
        when it was copied forward.
        """
        return (source.number, first_offset) in self._held

    def release(self, source: int, first_offset: int) -> None:
        """Nobody needs a piece any more."""
        self.bytes -= self._held.pop((source, first_offset), 0)

    @property
    def busy(self) -> bool:
        """Whether too much waits for the disks to accept more."""
        return self.unpersisted >= UNPERSISTED_BYTES_MAX

    def wait(self, go_on: Callable[[], None]) -> None:
        """Call back when there is room."""
        self._waiting.append(go_on)

    def admit(self, size: int) -> None:
        """Raises `ResourceExhausted` if the disks lack room for it twice, until the commit is done."""
        if self.bytes + size > self.bytes_max:
            raise ResourceExhausted(
                f"{self.bytes} of at most {self.bytes_max} bytes are already staged, and this frame does not fit."
                " Commit"
                " or abort other epochs, or use smaller epochs. Nothing of this frame was stored."
            )
        self.publish.store.admit(2 * size)

    def put(self, payload: bytes, count: int, done: Callable[[Exception | None], None]) -> tuple[int, int]:
        """Store a piece; returns its source and first offset. `done` is called once it is persisted, or lost."""
        size = len(payload)
        source = self.publish.open_source(STAGING_TOPIC)

        def on_persisted(error: Exception | None) -> None:
            self.unpersisted -= size
            done(error)
            while self._waiting and not self.busy:
                self._waiting.popleft()()

        first = self.publish.commit.append_batch(source, payload, count, on_persisted)
        self.unpersisted += size
        self._enter(source.number, first, size)
        return source.number, first


class StageStream:
    """One call of Stage: a header, frames, then the answer."""

    def __init__(
        self,
        stream: StreamingCall,
        area: StagingArea,
        state: EpochState,
        home: Home,
        on_run: OnRun,
        write: Write,
        schemas: StagedSchemas,
    ) -> None:
        self._schemas = schemas
        self.stream, self.area, self.state, self._write = stream, area, state, write
        self._home, self._on_run = home, on_run
        self._admitting: asyncio.Task[None] | None = None
        self.publish = area.publish
        self.header: pipeline.StageHeader | None = None
        self.pieces: list[Piece] = []
        self.topics: dict[int, str] = {}
        self.stamps: dict[int, int] = {}
        self.staging = 0
        self.dropped = 0
        self._frames = 0
        self._queue: deque[bytes] = deque()
        self._ended = self._over = self._booked = False
        stream.on_message = self._message
        stream.on_end = self._half_closed
        stream.on_cancel = self._give_up
        stream.on_drain = lambda: self._fail(Unavailable("The server is stopping; stage again."))

    def _message(self, request: bytes) -> None:
        self.stream.keep(len(request))
        self._queue.append(request)
        if len(self._queue) == 1:
            self._go_on()

    def _half_closed(self) -> None:
        self._ended = True
        if not self._queue:
            self._go_on()

    def _go_on(self) -> None:
        """Work through what came, as far as the disks keep up."""
        try:
            while self._queue and not self._over and self._admitting is None:
                if self.area.busy:
                    self.area.wait(self._go_on)
                    return
                request = self._queue[0]
                self._take(request)
                self._queue.popleft()
                self.stream.keep(-len(request))
            if self._ended and not self._over and not self._booked and self._admitting is None:
                self._finish()
        except SyncpointError as error:
            self._fail(error)

    def _take(self, request: bytes) -> None:
        asked = parsed(pipeline.StageRequest, request)
        if self.header is None:
            if not asked.HasField("header"):
                raise InvalidArgument("header", "the first message must be the header")
            self._begin(asked.header)
        elif asked.HasField("header"):
            raise InvalidArgument("header", "may only be set in the first message")
        elif asked.HasField("frame"):
            self._fence()
            try:
                self._frame(asked.frame)
            except InvalidArgument as bad:
                raise InvalidArgument(f"frame {self._frames}: {bad.field}", bad.problem) from None
            self._frames += 1

    def _begin(self, header: pipeline.StageHeader) -> None:
        for field in ("via", "here"):
            if len(getattr(header, field).encode()) > rows.NAME_MAX:
                raise InvalidArgument(f"header.{field}", f"must not be longer than {rows.NAME_MAX} bytes")
        if len(header.attempt.encode()) > NAME_BYTES_MAX:
            raise InvalidArgument("header.attempt", f"must not be longer than {NAME_BYTES_MAX} bytes")
        if header.epoch < 0:
            raise InvalidArgument("header.epoch", "must not be negative")
        self.header = header
        if self._home.knows(header.run.query, header.link):
            self._fence()
        else:
            self._admitting = asyncio.get_running_loop().create_task(self._admit())

    @property
    def _header(self) -> pipeline.StageHeader:
        """The header, once it has come."""
        assert self.header is not None
        return self.header

    async def _admit(self) -> None:
        """The query must be at home in this log; what comes in the meantime waits."""
        try:
            await self._home.admit(self._header.run.query, self._header.link)
            self._fence()
        except SyncpointError as error:
            self._fail(error)
        finally:
            self._admitting = None
        self._go_on()

    def _fence(self) -> None:
        """The run must be the latest of its query, from the first message to the last."""
        self._on_run(QueryRun(self._header.run.query, self._header.run.run))

    def _frame(self, frame: pipeline.StageFrame) -> None:
        topic = self.publish.catalog.topic(frame.topic)
        if topic is None:
            raise NotFound(parse_topic(frame.topic))
        if frame.topic_incarnation not in (0, topic.incarnation):
            raise FailedPrecondition(f"{frame.topic} was deleted and created again. Stage again.")
        if topic.schema is not None and frame.topic_incarnation:
            raise sealed(topic)
        if topic.options.send_suspended and not topic.options.written_elsewhere:
            raise suspended(frame.topic)
        if topic.transforms:
            raise FailedPrecondition(
                f"{frame.topic} has message transforms, which pipelines do not apply. Publish with a client, or"
                " remove them."
            )
        numbers = columns.named(frame.columns)
        names = {column.name for column in numbers}
        for name in ("data", *(("offset",) if frame.source else ())):
            if name not in names:
                raise InvalidArgument("columns", f"column {name} is missing")
        batch = frame.batch  # each look at the field is a copy of it
        try:
            count, nodes, buffers, body = decode_batch(batch)
            located = _located(numbers, nodes, buffers, body)
            if not frame.source:
                located.pop("offset", None)
            header = self._header
            pieces, dropped = rows.frame(
                frame.batch,
                count,
                located,
                header.via.encode(),
                header.here.encode(),
                header.keep_identity,
                PIECE_BYTES,
            )
        except Invalid as bad:
            raise InvalidArgument(bad.field, bad.problem) from None
        except ValueError as bad:  # Malformed among them
            raise InvalidArgument("batch", str(bad)) from None
        if topic.schema is None:
            self._store(topic, frame.source, pieces, dropped)
            return
        check = self._check(topic, frame.source, pieces, dropped, self._frames)
        self._admitting = asyncio.get_running_loop().create_task(check)

    async def _check(self, topic: Topic, source: int, pieces: Pieces, dropped: int, number: int) -> None:
        """Store what fits the topic's schema; what comes in the meantime waits."""
        try:
            await self._schemas.check(topic, [payload for payload, *_ in pieces])
            now = self.publish.catalog.topic(topic.name)
            if now is None or (now.incarnation, now.stamp) != (topic.incarnation, topic.stamp):
                raise changed(topic)
            if not self._over:
                self._fence()
                self._store(topic, source, pieces, dropped)
        except InvalidArgument as bad:
            self._fail(InvalidArgument(f"frame {number}: {bad.field}", bad.problem))
        except SyncpointError as error:
            self._fail(error)
        finally:
            self._admitting = None
        self._go_on()

    def _store(self, topic: Topic, source: int, pieces: Pieces, dropped: int) -> None:
        if self.stamps.setdefault(topic.incarnation, topic.stamp) != topic.stamp:
            raise changed(topic)
        self.area.admit(sum(len(piece[0]) for piece in pieces))
        self.dropped += dropped
        for payload, messages, runs, complete in pieces:
            self.staging, first = self.area.put(payload, messages, self._persisted)
            self.pieces.append(Piece(topic.incarnation, first, messages, len(payload), source, runs, complete))
            self.topics[topic.incarnation] = topic.name

    @property
    def over(self) -> bool:
        """Whether it was answered, or its caller is gone."""
        return self._over

    def end(self, error: SyncpointError) -> None:
        """The log cannot be written any more."""
        self._fail(error)

    def _persisted(self, error: Exception | None) -> None:
        if error is not None:
            self._fail(Unavailable(f"the stage is lost: {error}; stage again"))

    def _finish(self) -> None:
        """All has come: from the fact on the stage exists."""
        if self.header is None:
            raise InvalidArgument("header", "the first message must be the header")
        self._fence()
        header, self._booked = self.header, True
        stage = Stage(
            self.state.new_id(), header.run.query, header.run.run, header.epoch, header.partition, header.attempt,
            self.publish.clock.time_ns(), self.staging, self.topics, tuple(self.pieces), self.dropped, self.stamps,
        )  # fmt: skip
        answer = pipeline.StageResponse(rows=stage.rows, bytes=stage.bytes, dropped=stage.dropped).SerializeToString()

        def on_persisted(error: Exception | None) -> None:
            if error is not None:
                self._fail(Unavailable(f"the stage may or may not be stored: {error}; stage again"))
            elif not self._over:
                self._over = True
                self.stream.send(answer)
                self.stream.finish()

        self._write(self.state.stage(stage), on_persisted)

    def _fail(self, error: SyncpointError) -> None:
        if not self._over:
            self._give_up()
            self.stream.finish(error)

    def _give_up(self) -> None:
        """Nobody will commit what came of this stage, unless it is complete."""
        self._over = True
        self._queue.clear()
        if not self._booked:
            for piece in self.pieces:
                self.area.release(self.staging, piece.first_offset)


def _located(
    numbers: list[columns.Column], nodes: list[tuple[int, int]], buffers: list[tuple[int, int]], body: int
) -> dict[str, tuple[list[tuple[int, int]], list[tuple[int, int]]]]:
    """Nodes of each column, and the places of its buffers in the whole message. Raises Malformed."""
    if len(nodes) != sum(column.nodes for column in numbers) or len(buffers) != sum(
        len(column.buffers) for column in numbers
    ):
        raise Malformed("the batch has other columns or types than the field columns names")
    found, node, buffer = {}, 0, 0
    for column in numbers:
        places = [(body + at, size) for at, size in buffers[buffer : buffer + len(column.buffers)]]
        found[column.name] = (nodes[node : node + column.nodes], places)
        node, buffer = node + column.nodes, buffer + len(column.buffers)
    return found

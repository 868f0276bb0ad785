"""The two services of data pipelines in memory, on the project's own transport: what a server promises, without one.

It keeps the contract of pipeline.proto: positions and ranges, stages and epochs, runs in order of appearance, committed
intervals of links. Nothing is persisted. It runs in a thread of its own, so that a blocking client can call it.
"""

import asyncio
import ssl
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from pyspark_pubsub.rpc import pb
from syncpoint.base.model.errors import Code, SyncpointError
from syncpoint.wire.protobuf import methods
from syncpoint.wire.transport.calls import Call, Streaming, StreamingCall, Unary
from syncpoint.wire.transport.server import Server, serve
from tests.kit.in_threads import LoopThread

UNIVERSE = "00ff"
TOPIC = "projects/p/topics/t"
TYPES = {
    1: ("message_id", pa.string()),
    2: ("offset", pa.int64()),
    3: ("publish_time", pa.timestamp("us", tz="UTC")),
    4: ("data", pa.binary()),
    5: ("attributes", pa.map_(pa.string(), pa.string())),
    6: ("ordering_key", pa.string()),
    7: ("origin", pa.string()),
    8: ("visited", pa.list_(pa.string())),
    9: ("size", pa.int32()),
}


def failure(code: Code, text: str) -> SyncpointError:
    """An answer that is no answer."""
    return SyncpointError(code, text)


def message(data: bytes, micros: int = 0, **others: Any) -> dict[str, Any]:
    """One stored message."""
    row = {"data": data, "attributes": [], "ordering_key": "", "origin": "", "visited": [], "message_id": ""}
    return row | {"publish_time": micros, "size": len(data)} | others


@dataclass
class TwinSource:
    """One source: its rows from `begin` on."""

    number: int
    epoch: int = 1
    chain: int = 0
    begin: int = 0
    rows: list[dict[str, Any]] = field(default_factory=list)
    sealed: bool = False

    @property
    def end(self) -> int:
        return self.begin + len(self.rows)

    def delete_below(self, offset: int) -> None:
        """What retention does."""
        del self.rows[: offset - self.begin]
        self.begin = offset


@dataclass
class TwinTopic:
    """One topic."""

    name: str = TOPIC
    incarnation: int = 1
    sources: dict[int, TwinSource] = field(default_factory=dict)

    def ordered(self) -> list[TwinSource]:
        """The sources in the order of keys."""
        return sorted(self.sources.values(), key=lambda source: (source.epoch, source.chain, source.number))


class Twin:
    """Topics, and what was called. `before_frame` runs before each frame that is sent, and may raise."""

    def __init__(self) -> None:
        self.topics: dict[str, TwinTopic] = {}
        self.calls: Counter[str] = Counter()
        self.generation = 0  # of every subscription: how often it was reset by a seek
        self.asked: list[Any] = []
        self.stages: dict[tuple[str, int, int, str], list[tuple[str, int, dict[str, Any]]]] = {}
        self.runs: dict[str, list[str]] = defaultdict(list)
        self.committed: dict[str, dict[int, Any]] = defaultdict(dict)
        self.links: dict[str, dict[int, int]] = {}
        self.metadata: list[dict[bytes, bytes]] = []
        self.before_frame: Callable[[int], None] | None = None
        self.failures: list[SyncpointError] = []
        self.cursors: dict[tuple[str, str], dict[int, int]] = {}  # by topic and name: positions by source

    def topic(self, name: str = TOPIC, *sources: TwinSource) -> TwinTopic:
        """A topic with these sources (none: one, numbered 1)."""
        found = TwinTopic(name)
        for source in sources or (TwinSource(1),):
            found.sources[source.number] = source
        self.topics[name] = found
        return found

    def fill(self, count: int, *, name: str = TOPIC, source: int = 1, size: int = 100, keys: int = 7) -> None:
        """Add so many messages."""
        rows = self.topics[name].sources[source].rows
        for i in range(len(rows), len(rows) + count):
            text = f"{source}:{i}:".encode()
            row = message(text + b"x" * max(0, size - len(text)), 10**15 + i, message_id=f"m{source}-{i}")
            rows.append(row | {"attributes": [("n", str(i))], "ordering_key": f"k{i % keys}"})

    def methods(self) -> dict[bytes, Unary | Streaming]:
        """For `serve`."""
        unary = {
            methods.LOG_READER.GetPositions: (pb.GetPositionsRequest, self.get_positions),
            methods.LOG_READER.ListCursors: (pb.ListCursorsRequest, self.list_cursors),
            methods.LOG_READER.ReleaseSubscription: (pb.ReleaseSubscriptionRequest, self.release),
            methods.EPOCH_WRITER.CommitEpoch: (pb.CommitEpochRequest, self.commit),
            methods.EPOCH_WRITER.AbortEpoch: (pb.AbortEpochRequest, self.abort),
        }
        found: dict[bytes, Unary | Streaming] = {
            path.encode(): Unary(self._unary(path, kind, handler)) for path, (kind, handler) in unary.items()
        }
        found[(methods.LOG_READER.ReadRange).encode()] = Streaming(self._read)
        found[(methods.EPOCH_WRITER.Stage).encode()] = Streaming(self._stage)
        return found

    def _unary(self, path: str, kind: Any, handler: Callable[[Any], Any]) -> Callable[[Call, bytes], None]:
        def run(call: Call, payload: bytes) -> None:
            name = path.rpartition("/")[2]
            self.calls[name] += 1
            self.metadata.append(dict(call.metadata))
            request = kind.FromString(payload)
            self.asked.append(request)
            try:
                if self.failures:
                    raise self.failures.pop(0)
                call.reply(handler(request).SerializeToString())
            except SyncpointError as error:
                call.fail(error)

        return run

    # ---------------------------------------------------------------------------------------------------- reading

    def _topic(self, name: str, incarnation: int) -> TwinTopic:
        found = self.topics.get(name)
        if found is None:
            raise failure(Code.NOT_FOUND, f"There is no topic {name}.")
        if incarnation not in (0, found.incarnation):
            raise failure(Code.FAILED_PRECONDITION, f"{name} was deleted and created again.")
        return found

    def get_positions(self, request: Any) -> Any:
        """See the proto."""
        topic = self._topic(request.topic or request.subscription.replace("subscriptions", "topics"), 0)
        if request.subscription and request.processed and request.generation != self.generation:
            raise failure(
                Code.FAILED_PRECONDITION, "The subscription was reset by a seek: begin with a new checkpoint."
            )
        answer = pb.Positions(topic=topic.name, topic_incarnation=topic.incarnation, universe=UNIVERSE)
        answer.generation = self.generation if request.subscription else 0
        starting = request.WhichOneof("starting")
        for source in topic.ordered():
            start = source.begin
            if starting == "latest":
                start = source.end
            elif starting == "time":
                early = [row for row in source.rows if row["publish_time"] < request.time.ToMicroseconds()]
                start = source.begin + len(early)
            answer.sources.add(
                source=source.number, epoch=source.epoch, chain=source.chain, begin=source.begin, end=source.end,
                sealed=source.sealed, start=start, mean_bytes=source.rows[0]["size"] if source.rows else 0,
            )  # fmt: skip
        if request.HasField("cursor"):
            moved = {one.source: one.end for one in request.processed}
            if request.first:
                moved = {one.source: one.start for one in answer.sources}
            self.cursors.setdefault((topic.name, request.cursor.name), {}).update(moved)
        return answer

    def list_cursors(self, request: Any) -> Any:
        """See the proto; of a whole project."""
        answer = pb.ListCursorsResponse()
        for (name, cursor), at in self.cursors.items():
            if name in self.topics:
                lag = sum(one.end - at.get(one.number, 0) for one in self.topics[name].ordered())
                answer.cursors.add(topic=name, name=cursor, lag_messages=lag)
        return answer

    def release(self, request: Any) -> Any:
        """See the proto."""
        return pb.ReleaseSubscriptionResponse()

    def _read(self, stream: StreamingCall) -> None:
        self.calls["ReadRange"] += 1
        asyncio.get_running_loop()

        def take(payload: bytes) -> None:
            request = pb.ReadRangeRequest.FromString(payload)
            self.asked.append(request)
            try:
                frames = self.frames(request)
            except SyncpointError as error:
                stream.finish(error)
                return
            self._send(stream, frames)

        stream.on_message = take

    def _send(self, stream: StreamingCall, frames: list[bytes]) -> None:
        while frames:
            if not stream.writable:
                stream.on_writable = lambda: self._send(stream, frames)
                return
            if self.before_frame is not None:
                try:
                    self.before_frame(len(frames))
                except SyncpointError as error:
                    stream.finish(error)
                    return
            stream.send(frames.pop(0))
        stream.finish()

    def frames(self, request: Any) -> list[bytes]:
        """All frames of a range, serialised."""
        topic = self._topic(request.topic, request.topic_incarnation)
        source = topic.sources[request.source]
        if request.begin < source.begin or request.end > source.end:
            raise failure(Code.OUT_OF_RANGE, f"source {source.number} has {source.begin} to {source.end}")
        rows = source.rows[request.begin - source.begin : request.end - source.begin]
        step = max(1, (request.frame_bytes or 1 << 20) // max(1, rows[0]["size"] if rows else 1))
        out = []
        for at in range(0, len(rows), step):
            some = [row | {"offset": request.begin + at + i} for i, row in enumerate(rows[at : at + step])]
            some = [row for row in some if not request.origins or row["origin"] in request.origins]
            some = [row for row in some if not request.not_visited or request.not_visited not in row["visited"]]
            frame = pb.ReadFrame(rows=len(some), next_offset=min(request.end, request.begin + at + step))
            if some:
                arrays = [pa.array([row[TYPES[c][0]] for row in some], TYPES[c][1]) for c in request.columns]
                names = [TYPES[c][0] for c in request.columns]
                if arrays:
                    frame.batch = pa.RecordBatch.from_arrays(arrays, names=names).serialize().to_pybytes()
            out.append(frame.SerializeToString())
        return out

    # ---------------------------------------------------------------------------------------------------- writing

    def _check_run(self, run: Any) -> None:
        known = self.runs[run.query]
        if run.run not in known:
            known.append(run.run)
        if known[-1] != run.run:
            raise failure(Code.ABORTED, f"run {run.run} of query {run.query} is superseded")

    def _stage(self, stream: StreamingCall) -> None:
        self.calls["Stage"] += 1
        state: dict[str, Any] = {"rows": []}

        def take(payload: bytes) -> None:
            request = pb.StageRequest.FromString(payload)
            try:
                if request.WhichOneof("what") == "header":
                    self._check_run(request.header.run)
                    state["header"] = request.header
                else:
                    state["rows"] += self._rows(request.frame, state["header"])
            except SyncpointError as error:
                stream.finish(error)

        def end() -> None:
            header, rows = state["header"], state["rows"]
            kept = [row for row in rows if not header.here or header.here not in row[2]["visited"]]
            self.stages[header.run.query, header.epoch, header.partition, header.attempt] = kept
            size = sum(len(row["data"]) for _, _, row in kept)
            answer = pb.StageResponse(rows=len(kept), bytes=size, dropped=len(rows) - len(kept))
            stream.send(answer.SerializeToString())
            stream.finish()

        stream.on_message, stream.on_end = take, end

    def _rows(self, frame: Any, header: Any) -> list[tuple[str, int, dict[str, Any]]]:
        self._topic(frame.topic, 0)
        names = [TYPES[column][0] for column in frame.columns]
        schema = pa.schema([pa.field(TYPES[column][0], TYPES[column][1]) for column in frame.columns])
        batch = pa.ipc.read_record_batch(pa.py_buffer(frame.batch), schema)
        batch.validate(full=True)
        found = []
        for values in batch.to_pylist():
            row = message(values["data"] or b"")
            row |= {name: values[name] for name in names if values[name] is not None}
            if not header.keep_identity:
                row["message_id"] = "new"
            if header.via:
                row["origin"] = row["origin"] or header.via
                row["visited"] = [*row["visited"], header.via]
            found.append((frame.topic, frame.source, row))
        return found

    def commit(self, request: Any) -> Any:
        """See the proto."""
        self._check_run(request.run)
        done = self.committed[request.run.query]
        if request.epoch in done:
            return pb.EpochResult(repeated_epoch=True, rows=done[request.epoch].rows)
        rows = [
            row
            for name in request.stages
            for row in self.stages[request.run.query, request.epoch, name.partition, name.attempt]
        ]
        result = pb.EpochResult()
        if request.link:
            ends = self.links.setdefault(request.link, {})
            for planned in request.planned:
                end = ends.get(planned.source, planned.begin)
                if planned.begin > end and not request.accept_gaps:
                    raise failure(Code.OUT_OF_RANGE, f"source {planned.source} is committed up to {end}.")
            before = dict(ends)
            for planned in request.planned:
                ends[planned.source] = max(ends.get(planned.source, 0), planned.end)
            kept = [(t, s, row) for t, s, row in rows if row["offset"] >= before.get(s, 0)]
            result.duplicates_dropped = len(rows) - len(kept)
            rows = kept
        for topic, _, row in rows:
            self.topics[topic].sources[max(self.topics[topic].sources)].rows.append(row)
        result.rows = len(rows)
        done[request.epoch] = result
        return result

    def abort(self, request: Any) -> Any:
        """See the proto."""
        for key in [key for key in self.stages if key[:2] == (request.run.query, request.epoch)]:
            del self.stages[key]
        return pb.AbortEpochResponse()


class Running(LoopThread):
    """A twin behind a port, in a thread. `endpoint`: host:port."""

    def __init__(self, twin: Twin, port: int = 0, tls: ssl.SSLContext | None = None) -> None:
        self.twin, self._port, self._tls = twin, port, tls
        super().__init__()
        self._server: Server | None = None

    async def opened(self) -> None:
        self._server = await serve(self.twin.methods(), port=self._port, tls=self._tls)
        self._port = self._server.port

    async def closed(self) -> None:
        if self._server is not None:
            await self._server.close()
            self._server = None

    @property
    def endpoint(self) -> str:
        return f"127.0.0.1:{self._port}"

    def stop(self) -> None:
        """Close the port and all connections, as a crash does."""
        self.run(self.closed())

    def again(self) -> None:
        """Serve on the same port again."""
        self.run(self.opened())


def positions(topic: str, sources: Sequence[TwinSource]) -> TwinTopic:
    """A topic of these sources, without a server."""
    return TwinTopic(topic, 1, {source.number: source for source in sources})

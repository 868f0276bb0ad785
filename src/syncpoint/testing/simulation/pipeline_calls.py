"""Calls of `syncpoint.pipeline.v1` in a simulation, with record batches as pyarrow makes and reads them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from syncpoint.base.model.errors import Code, SyncpointError
from syncpoint.broker.pipeline.columns import DATA, OFFSET
from syncpoint.testing.simulation.pipeline_history import Row, SourcePlace
from syncpoint.testing.simulation.simulated_jobs import SimulatedJobs
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import pipeline
from syncpoint.wire.protobuf.status import next_stored

AWAY = (Code.UNAVAILABLE, Code.DEADLINE_EXCEEDED)  # ask again: nobody knows what became of it
FRAME_BYTES = 600
ROWS = pa.schema([("offset", pa.int64()), ("data", pa.binary())])


class GapFound(Exception):
    """Messages from `at` on are not stored any more; `found`: what was read before them; `following`: the next
    offset that is stored, if the server gives it.
    """

    def __init__(self, message: str, at: int, found: list[tuple[int, bytes]], following: int | None = None) -> None:
        super().__init__(message)
        self.at, self.found, self.following = at, found, following


class PipelineCalls:
    """What a job's driver and tasks ask of whoever serves. `patience_s`: how long they ask again while it is away."""

    def __init__(self, sim: SimulatedJobs, patience_s: float = 4.0) -> None:
        self.sim, self.patience_s = sim, patience_s

    async def unary(self, method: methods.Method, request: Any) -> Any:
        """Raises `SyncpointError`."""
        return method.response.FromString(await self.sim.call(method, request, 2.0))

    async def patiently(self, method: methods.Method, request: Any) -> Any:
        """Call a method, and retry while the node is unreachable."""
        end = self.sim.loop.time() + self.patience_s
        while True:
            try:
                return await self.unary(method, request)
            except SyncpointError as error:
                if error.code not in AWAY or self.sim.loop.time() > end:
                    raise
                await self.pause()

    async def pause(self) -> None:
        """Before asking again."""
        await asyncio.sleep(0.05 + 0.3 * self.sim.random.random())

    async def positions(self, **fields: Any) -> Any:
        """GetPositions."""
        return await self.patiently(methods.LOG_READER.GetPositions, pipeline.GetPositionsRequest(**fields))

    async def read(
        self, topic: str, incarnation: int, source: int, begin: int, end: int, skip: str = "", chain: int = 0
    ) -> list[tuple[int, bytes]]:
        """All messages of a range, or `GapFound`. With `skip`, less what that subscription acknowledged."""
        found: list[tuple[int, bytes]] = []
        at, until = begin, self.sim.loop.time() + self.patience_s
        while at < end:
            try:
                async for offsets, bodies, following in self._frames(topic, incarnation, source, at, end, skip, chain):
                    whole = offsets == list(range(at, following)) or skip
                    rising = offsets == sorted(set(offsets)) and set(offsets) <= set(range(at, following))
                    what = f"[{at}, {following}) of {source} came as {offsets}"
                    self.sim.coverage.always("a range is read as it is asked for", whole and rising, what)
                    self.sim.coverage.sometimes("acknowledged messages are left out", len(offsets) < following - at)
                    for offset, body in zip(offsets, bodies, strict=True):
                        self.sim.pipelines.saw(topic, SourcePlace(source, offset), body)
                    found += zip(offsets, bodies, strict=True)
                    at = following
                self.sim.coverage.always(
                    "a range is read to its end", at == end, f"[{begin}, {end}) of {source} ended at {at}"
                )
                if at != end:
                    break
            except SyncpointError as error:
                if error.code is Code.OUT_OF_RANGE:
                    raise GapFound(error.message, at, found, next_stored(error.details)) from None
                if error.code not in AWAY or self.sim.loop.time() > until:
                    raise
                await self.pause()
        return found

    async def _frames(
        self, topic: str, incarnation: int, source: int, begin: int, end: int, skip: str, chain: int
    ) -> AsyncIterator[tuple[list[int], list[bytes], int]]:
        request = pipeline.ReadRangeRequest(
            topic=topic, topic_incarnation=incarnation, source=source, begin=begin, end=end, columns=[OFFSET, DATA],
            skip_subscription=skip, frame_bytes=FRAME_BYTES, chain=chain,
        )  # fmt: skip
        stream = self.sim.network.channel(self.sim.endpoint()).stream(methods.LOG_READER.ReadRange, timeout=5.0)
        try:
            await stream.send(request.SerializeToString())
            await stream.end()
            while (answer := await stream.receive()) is not None:
                frame = pipeline.ReadFrame.FromString(answer)
                columns: dict[str, list[Any]] = {"offset": [], "data": []}
                if frame.rows:
                    columns = pa.ipc.read_record_batch(pa.py_buffer(frame.batch), ROWS).to_pydict()
                yield columns["offset"], columns["data"], frame.next_offset
        except asyncio.CancelledError:
            stream.cancel()
            raise

    async def stage(self, header: Any, frames: Iterable[Any], *, die_after: int | None = None) -> Any:
        """Stage; `die_after` so many frames the task is gone."""
        stream = self.sim.network.channel(self.sim.endpoint()).stream(methods.EPOCH_WRITER.Stage, timeout=4.0)
        try:
            await stream.send(pipeline.StageRequest(header=header).SerializeToString())
            for number, one in enumerate(frames):
                if number == die_after:
                    stream.cancel()
                    return None
                await stream.send(pipeline.StageRequest(frame=one).SerializeToString())
                if self.sim.random.random() < 0.3:
                    await asyncio.sleep(0.05 * self.sim.random.random())
            await stream.end()
            answer = await stream.receive()
            if answer is None:
                raise SyncpointError(Code.INTERNAL, "The call ended without an answer.")
            return pipeline.StageResponse.FromString(answer)
        except asyncio.CancelledError:
            stream.cancel()
            raise


def frames_of(rows: dict[str, list[Row]], source: int) -> Iterator[Any]:
    """Frames of a few rows, topic by topic; `source`: of a link."""
    for topic, mine in rows.items():
        for at in range(0, len(mine), 4):
            yield _frame(topic, mine[at : at + 4], source)


def _frame(topic: str, rows: Sequence[Row], source: int) -> Any:
    columns: dict[str, pa.Array] = {"data": pa.array([row.encode() for row in rows], pa.binary())}
    numbers = [DATA]
    if source:
        columns["offset"] = pa.array([row.place.offset for row in rows], pa.int64())
        numbers.append(OFFSET)
    batch = pa.RecordBatch.from_pydict(columns).serialize().to_pybytes()
    return pipeline.StageFrame(topic=topic, columns=numbers, batch=batch, source=source)

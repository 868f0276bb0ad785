"""The harness of the reading tests: both forwarders over a log in memory, and the service as its callers see it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pyarrow as pa
import pytest

from syncpoint.base.model.errors import SyncpointError
from syncpoint.broker.pipeline import columns
from syncpoint.broker.pipeline.exclusive_readers import NodeReaders
from syncpoint.broker.pipeline.reading import LogReader
from syncpoint.broker.publish.keep.retention import forget_empty_sources, is_needed
from syncpoint.catalog.metadata.records import CatalogChange
from syncpoint.testing.rigs.forwarder_harness import SUB, TOPIC, ForwarderHarness
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import pipeline
from syncpoint.wire.transport.memory import MemoryChannel

TYPES = {
    columns.MESSAGE_ID: pa.string(),
    columns.OFFSET: pa.int64(),
    columns.PUBLISH_TIME: pa.timestamp("us", tz="UTC"),
    columns.DATA: pa.binary(),
    columns.ATTRIBUTES: pa.map_(pa.string(), pa.string()),
    columns.ORDERING_KEY: pa.string(),
    columns.ORIGIN: pa.string(),
    columns.VISITED: pa.list_(pa.string()),
    columns.SIZE: pa.int32(),
}


class ReadingHarness(ForwarderHarness):
    """A harness with the service. `retention_s`: of the topic, so that it keeps what nobody has acknowledged."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.serve()

    def serve(self) -> None:
        async def commit(changes: Sequence[CatalogChange]) -> None:
            self.commit(*changes)

        self.reader = LogReader(self.publish, NodeReaders(self.publish, self.subscribe, commit), self.run_soon)

    def restart(self) -> None:
        super().restart()
        self.serve()

    def call(self, method: str, /, **fields: Any) -> Any:
        """A unary call. Raises what the service answers."""
        path = methods.LOG_READER[method]

        async def run() -> Any:
            channel = MemoryChannel(self.reader.methods())
            return path.response.FromString(await channel.unary(path, path.request(**fields).SerializeToString()))

        return self.drive(run)

    def positions(self, **fields: Any) -> Any:
        if "subscription" not in fields:
            fields.setdefault("topic", TOPIC)
        return self.call("GetPositions", **fields)

    def frames(self, **fields: Any) -> tuple[list[Any], SyncpointError | None]:
        """The frames of a ReadRange, and how it failed."""
        request = pipeline.ReadRangeRequest(**{"topic": TOPIC, **fields})

        async def run() -> tuple[list[Any], SyncpointError | None]:
            stream = MemoryChannel(self.reader.methods()).stream(methods.LOG_READER.ReadRange)
            await stream.send(request.SerializeToString())
            await stream.end()
            found: list[Any] = []
            try:
                while (frame := await stream.receive()) is not None:
                    found.append(pipeline.ReadFrame.FromString(frame))
            except SyncpointError as error:
                return found, error
            return found, None

        return self.drive(run)

    def rows(self, numbers: tuple[int, ...] = (columns.OFFSET, columns.DATA), **fields: Any) -> list[dict[str, Any]]:
        """The rows of a ReadRange that succeeds."""
        found, error = self.frames(columns=numbers, **fields)
        assert error is None, error
        schema = pa.schema([(columns.COLUMNS[number].name, TYPES[number]) for number in numbers])
        rows: list[dict[str, Any]] = []
        for frame in found:
            batch = pa.ipc.read_record_batch(pa.py_buffer(frame.batch), schema)
            batch.validate(full=True)
            assert batch.num_rows == frame.rows
            rows += batch.to_pylist()
        assert not found or found[-1].next_offset == fields["end"]
        return rows

    def drive(self, function: Callable[[], Awaitable[Any]]) -> Any:
        """Run a coroutine while the harness comes to rest again and again."""

        async def run() -> Any:
            task = asyncio.ensure_future(function())
            for _ in range(10_000):
                await asyncio.sleep(0)
                if task.done():
                    return task.result()
                self.quiesce()
            task.cancel()
            raise AssertionError("the call has no end")

        return asyncio.run(run())

    def collect(self) -> None:
        """Delete what nobody needs, sources included. A checkpoint comes first: what came last waits for it."""
        self.checkpoint()
        self.store.collect(lambda *entry: is_needed(self.publish, *entry))
        forget_empty_sources(self.publish)

    def acknowledge_all(self) -> None:
        """The subscription needs nothing of what is there."""
        ledger = self.publish.ledgers[self.record.incarnation]
        for source in self.publish.sources.of_topic(1):
            if source.end:
                ledger.of(source.number).add(0, source.end)


SNAPSHOT = "projects/p/snapshots/then"


def refusal(call: Any, *arguments: Any, **fields: Any) -> SyncpointError:
    with pytest.raises(SyncpointError) as caught:
        call(*arguments, **fields)
    return caught.value


def only_source(harness: ReadingHarness) -> Any:
    (source,) = harness.positions().sources
    return source


__all__ = ["SUB", "TOPIC", "ReadingHarness"]

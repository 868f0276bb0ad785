"""One node's writing side over disks in memory: no threads, crashes where a test wants them, and a client for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from syncpoint.base.runtime.clock import ManualClock
from syncpoint.base.runtime.random import SeededRandom
from syncpoint.broker.pipeline.columns import COLUMNS
from syncpoint.broker.pipeline.staging import STAGED_BYTES_MAX, STAGING_TOPIC
from syncpoint.catalog.metadata.records import CatalogChange, Subscription, Topic
from syncpoint.log.storage.settings import StorageSettings
from syncpoint.testing.simulation.sim_log import SimLog
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import pipeline

ONE, TWO = "projects/p/topics/one", "projects/p/topics/two"
NUMBERS = {column.name: column.number for column in COLUMNS.values()}
TYPES = {
    "message_id": pa.utf8(), "offset": pa.int64(), "publish_time": pa.timestamp("us", "UTC"), "data": pa.binary(),
    "attributes": pa.map_(pa.utf8(), pa.utf8()), "ordering_key": pa.utf8(), "origin": pa.utf8(),
    "visited": pa.list_(pa.utf8()),
}  # fmt: skip


class Died(BaseException):
    """The process ended in the middle of a call."""


class DieAt:
    """A fault: the nth writing call from now on is the last one."""

    def __init__(self, calls: int) -> None:
        self.calls = calls

    def __call__(self, operation: str, path: str) -> None:
        if operation in ("pwritev", "fdatasync", "sync_dir", "rename", "allocate"):
            self.calls -= 1
            if self.calls < 0:
                raise Died


def frame(topic: str, source: int = 0, **columns: Sequence[Any]) -> Any:
    """A StageFrame of these columns."""
    arrays = [pa.array(values, TYPES[name]) for name, values in columns.items()]
    batch = pa.RecordBatch.from_arrays(arrays, names=list(columns)).serialize().to_pybytes()
    return pipeline.StageFrame(topic=topic, columns=[NUMBERS[name] for name in columns], batch=batch, source=source)


class Harness(SimLog):
    """Two topics, and a client."""

    def __init__(self, seed: int = 1, staged_bytes_max: int = STAGED_BYTES_MAX, **settings: Any) -> None:
        plain = {"segment_bytes": 128 * 1024, "cache_bytes": 1 << 20, "pool_segments": 1, "reserve_bytes": 0}
        super().__init__(SeededRandom(seed), ManualClock(), StorageSettings(**{**plain, **settings}), staged_bytes_max)
        self.change(CatalogChange.put(Topic(1, ONE)), CatalogChange.put(Topic(2, TWO)))

    def subscribe(self, topic: int, name: str, incarnation: int) -> None:
        """So that messages of a topic are kept."""
        self.change(
            CatalogChange.put(
                Subscription(
                    incarnation,
                    f"projects/p/subscriptions/{name}",
                    topic,
                    ONE if topic == 1 else TWO,
                    created_revision=self.publish.catalog.revision + 1,
                )
            )
        )

    # -- the client --------------------------------------------------------------------------------------------------

    def stage(self, run: str, epoch: int, partition: int, attempt: str, *given: Any, **more: Any) -> Any:
        header = pipeline.StageHeader(
            run=pipeline.Run(query="q", run=run), epoch=epoch, partition=partition, attempt=attempt, **more
        )
        return self.run(self.staging(header, given))

    def call(self, name: str, request: Any) -> Any:
        path = methods.EPOCH_WRITER[name]
        return path.response.FromString(self.run(self.channel.unary(path, request.SerializeToString())))

    def commit_epoch(self, run: str, epoch: int, *stages: tuple[int, str], **more: Any) -> Any:
        request = pipeline.CommitEpochRequest(
            run=pipeline.Run(query="q", run=run),
            epoch=epoch,
            stages=[pipeline.StageName(partition=one, attempt=two) for one, two in stages],
            **more,
        )
        return self.call("CommitEpoch", request)

    # -- the judge ---------------------------------------------------------------------------------------------------

    def stored(self, topic: int) -> list[Any]:
        return [message for _, _, message in self.messages(topic)]

    def data(self, topic: int) -> list[bytes]:
        return [message.data for message in self.stored(topic)]

    @property
    def staged_sources(self) -> list[int]:
        return [source.number for source in self.publish.sources.of_topic(STAGING_TOPIC)]

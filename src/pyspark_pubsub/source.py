"""The readers that Spark asks on the driver: what there is, where to begin, how far a batch goes, its partitions.

Place: made by `DefaultSource`; Spark keeps the stream reader in a process of its own and sends copies of both to tasks.
Promise: making a reader costs no call. A stream advances its cursor (or acknowledges a subscription's messages) from
the `start` of each `latestOffset`, which Spark calls with what it has processed for good, so nothing hangs on `commit`.
Leaves to `offsets`: the plan. To `reading`: the rows.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSourceReader,
    DataSourceStreamReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from pyspark_pubsub import offsets as plans
from pyspark_pubsub.errors import CallError, DataLossError, OptionError
from pyspark_pubsub.gc_pause import spare_collections
from pyspark_pubsub.offsets import Listing, Offsets, SourceRange
from pyspark_pubsub.options import Options
from pyspark_pubsub.positions import LATEST, SNAPSHOT, Position, Positions, losses, parse_position
from pyspark_pubsub.reporting import explained, explaining
from pyspark_pubsub.slices import Slice, SliceGroup

if TYPE_CHECKING:
    import pyarrow

log = logging.getLogger("pyspark_pubsub")
ORIGINAL = "original"


def slices(
    options: Options, schema: StructType, listing: Listing | Offsets, ranges: Iterable[SourceRange], **more: str
) -> list[Slice]:
    """What tasks are given to read these ranges. `more`: further fields of a slice."""
    chains = listing.chains
    return [
        Slice(
            access=options.access,
            topic=listing.topic,
            incarnation=listing.incarnation,
            source=found.source,
            begin=found.begin,
            end=found.end if found.end is not None else found.begin,
            schema=schema,
            filter=options["filter"],
            origins=tuple("" if name == ORIGINAL else name for name in options["origins"]),
            not_visited=options["notVisited"],
            frame_bytes=options["fetchBytes"],
            prefetch=options["prefetch"],
            fail_on_data_loss=options["failOnDataLoss"],
            chain=chains.get(found.source, 0),
            json_fields=options["jsonFields"],
            json_without=options["jsonWithout"],
            typed=options["typed"],
            **more,
        )
        for found in ranges
    ]


def rows_of(partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
    """The record batches of a partition."""
    from pyspark_pubsub.reading import read

    with explained():
        for part in partition.slices if isinstance(partition, SliceGroup) else [partition]:
            if isinstance(part, Slice):
                yield from read(part)
    spare_collections()


class BatchReader(DataSourceReader):
    """Everything from the starting position to the ending position, in the order of keys over the partitions."""

    def __init__(self, options: Options, schema: StructType) -> None:
        for name in ("maxRowsPerTrigger", "maxBytesPerTrigger", "minRowsPerTrigger", "cursor"):
            if options.given(name):
                raise OptionError(f"The option {name} is for streams; a batch reads all there is.")
        self._options, self._schema = options, schema
        self._starting = parse_position(options, "startingPosition")
        self._ending = parse_position(options, "endingPosition")

    @explaining
    def partitions(self) -> Sequence[InputPartition]:
        """Ask the server, then split what there is."""
        asks = Positions(self._options)
        begins, _ = asks.ask(self._starting)
        ends = {source.number: source.end for source in begins.sources}
        if self._ending.kind != LATEST:
            listing, _ = asks.ask(self._ending)
            ends = {source.number: source.start for source in listing.sources}
        ranges = [
            found
            for source in begins.sources
            for found in self._cut(
                SourceRange(source.number, source.start, min(source.end, ends.get(source.number, 0)))
            )
        ]
        means = {source.number: source.mean_bytes for source in begins.sources}
        pieces = plans.split(ranges, means, self._options["maxRowsPerPartition"], self._options["minPartitions"])
        skip = {"skip_subscription": self._options["subscription"], "skip_snapshot": self._starting.snapshot}
        return list(slices(self._options, self._schema, begins, pieces, **skip))

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The batches of a partition."""
        return rows_of(partition)

    def _cut(self, found: SourceRange) -> list[SourceRange]:
        return [found] if found.end is not None and found.begin < found.end else []


class FilteredBatchReader(BatchReader):
    """A batch reader that lets limits on source and offset shorten the ranges. Spark refuses a reader with
    `pushFilters` unless it is configured for it, so it is used only when the option asks for it.
    """

    def __init__(self, options: Options, schema: StructType) -> None:
        super().__init__(options, schema)
        self._sources: set[int] | None = None
        self._least, self._end = 0, (1 << 63) - 1

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Take the filters on `source` and `offset`; the others are Spark's to apply."""
        for found in filters:
            if not self._taken(found):
                yield found

    def _taken(self, found: Filter) -> bool:
        column = getattr(found, "attribute", None)
        value = getattr(found, "value", None)
        if column == ("source",) and isinstance(found, EqualTo) and isinstance(value, int):
            self._sources = {value} if self._sources is None else self._sources & {value}
            return True
        if column != ("offset",) or not isinstance(value, int):
            return False
        if isinstance(found, EqualTo | GreaterThanOrEqual | GreaterThan):
            self._least = max(self._least, value + isinstance(found, GreaterThan))
        if isinstance(found, EqualTo | LessThanOrEqual | LessThan):
            self._end = min(self._end, value + (not isinstance(found, LessThan)))
        return isinstance(found, EqualTo | GreaterThanOrEqual | GreaterThan | LessThanOrEqual | LessThan)

    def _cut(self, found: SourceRange) -> list[SourceRange]:
        if found.end is None or (self._sources is not None and found.source not in self._sources):
            return []
        return super()._cut(SourceRange(found.source, max(found.begin, self._least), min(found.end, self._end)))


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A topic, or a subscription's topic, batch after batch."""

    def __init__(self, options: Options, schema: StructType) -> None:
        for name in ("endingPosition", "pushFilters"):
            if options.given(name):
                raise OptionError(f"The option {name} is for batches; a stream goes on.")
        if options["cursor"] and options["subscription"]:
            raise OptionError("A subscription keeps what is not read by itself; the option cursor is for topics.")
        self._options, self._schema = options, schema
        self._starting = parse_position(options, "startingPosition")
        if self._starting.kind == SNAPSHOT and options["subscription"]:
            raise OptionError("Seek the subscription to the snapshot, then read it from `earliest`, its backlog.")
        self._initial: Offsets | None = None
        self._target: Listing | None = None
        self._seen: Listing | None = None
        self._planned_to: Offsets | None = None  # where the batch planned last ends
        self._waiting_since: float | None = None
        self._keep_alive: SubscriptionKeepAlive | None = None

    @explaining
    def initialOffset(self) -> dict[str, Any]:
        """Where the very first batch begins: resolved once, since Spark asks twice."""
        if self._initial is None:
            reader = uuid.uuid4().hex if self._options["subscription"] else ""
            listing, _ = self._positions().ask(self._starting, first=True, reader=reader)
            self._initial = plans.initial(listing, reader)
        return self._initial.to_json()

    @explaining
    def prepareForTriggerAvailableNow(self) -> None:
        """Nothing that comes after this call is read in this run."""
        self._target, _ = self._positions().ask()

    def getDefaultReadLimit(self) -> ReadLimit:
        """What the options say; `latestOffset` looks at both of them."""
        if self._options["maxRowsPerTrigger"]:
            return ReadMaxRows(self._options["maxRowsPerTrigger"])
        if self._options["maxBytesPerTrigger"]:
            return ReadMaxBytes(self._options["maxBytesPerTrigger"])
        return ReadAllAvailable()

    @explaining
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """The end of the next batch; `start` again when there is nothing to read. Raises DataLossError, CallError."""
        before = Offsets.from_json(start)
        listing, lost = self._positions().ask(processed=before, reader=before.reader)
        self._seen = listing
        plans.check_same(before, listing)
        self._report_lost(listing.topic, lost or plans.lost_before(before, listing, kept=self._kept))
        if before.reader and self._keep_alive is None:
            self._keep_alive = SubscriptionKeepAlive(self._positions(), before.reader, self._options["exclusiveTime"])
        if self._target is not None:
            listing = self._target
        after = self._planned_to = self._planned(before, listing, limit)
        if after is before and self._target is not None and before.reader:
            self.stop()
        return start if after is before else after.to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """For the query's progress: where the sources ended when last seen, and how many messages follow the batch
        planned then. Spark takes no metrics from sources in Python, but it shows this.
        """
        if self._seen is None or self._planned_to is None:
            return None
        return {
            "topic": self._seen.topic,
            "sources": {str(s.number): s.end for s in self._seen.sources},
            "messagesBehind": plans.available(self._planned_to, self._seen),
        }

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """What the batch that ends at `end` reads; the offsets alone say it."""
        after = Offsets.from_json(end)
        means = {s.number: s.mean_bytes for s in self._seen.sources} if self._seen else {}
        pieces = plans.split(
            after.ranges(), means, self._options["maxRowsPerPartition"], self._options["minPartitions"]
        )
        return list(slices(self._options, self._schema, after, pieces, skip_subscription=self._options["subscription"]))

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The batches of a partition."""
        return rows_of(partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing: Spark calls this late, and after the last batch never."""

    def stop(self) -> None:
        """Give a subscription free."""
        keep_alive, self._keep_alive = self._keep_alive, None
        if keep_alive is not None:
            keep_alive.stop()

    @property
    def _kept(self) -> bool:
        return bool(self._options["cursor"] or self._options["subscription"])

    def _positions(self) -> Positions:
        return Positions(self._options)

    def _report_lost(self, topic: str, lost: list[SourceRange]) -> None:
        if lost and self._options["failOnDataLoss"]:
            raise DataLossError(
                f"{losses(topic, lost)} Set failOnDataLoss=false to skip them; to keep messages until they are"
                " read, give the topic a retention, or name this reader with the option cursor."
            )
        if lost:
            log.warning("%s Continuing after them.", losses(topic, lost))

    def _planned(self, before: Offsets, listing: Listing, limit: ReadLimit) -> Offsets:
        if isinstance(limit, ReadAllAvailable):
            rows = size = 0
        else:
            rows, size = self._options["maxRowsPerTrigger"], self._options["maxBytesPerTrigger"]
        least = self._options["minRowsPerTrigger"]
        if least and self._target is None and plans.available(before, listing) < least:
            now = time.monotonic()
            self._waiting_since = self._waiting_since or now
            if now - self._waiting_since < self._options["maxTriggerDelay"]:
                return before
        self._waiting_since = None
        return plans.plan(before, listing, rows, size)


class SubscriptionKeepAlive:
    """Keeps a subscription for its reader while long batches run, by a call now and then from a thread."""

    def __init__(self, positions: Positions, reader: str, seconds: float) -> None:
        self._positions, self._reader, self._seconds = positions, reader, seconds
        self._over = threading.Event()
        threading.Thread(target=self._run, name="pubsub-keep-alive", daemon=True).start()

    def stop(self) -> None:
        """Let go. A server that does not answer lets go by itself in time."""
        self._over.set()
        try:
            self._positions.release(self._reader)
        except CallError as error:
            log.warning("The subscription is free only after exclusiveTime: %s", error)

    def _run(self) -> None:
        while not self._over.wait(self._seconds / 3):
            try:
                self._positions.ask(Position(LATEST), reader=self._reader)
            except CallError as error:
                log.warning("Could not keep the subscription this time: %s", error)

"""What runs in a task: the messages of one range as record batches.

Place: in Spark's Python workers, between the server's frames and Spark's reader of Arrow.
Promise: a message's bytes are copied once, from the socket into the buffer that becomes the batch (its data once more
to be looked into, where that is asked for). A broken connection
is resumed after the last whole frame, within patience; nothing is read twice.
Leaves to `rpc`: connections. To Spark: the batches.
"""

from __future__ import annotations

import logging
import queue
import struct
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.types import StructField, StructType

from pyspark_pubsub.errors import OUT_OF_RANGE, UNAVAILABLE, CallError, DataLossError
from pyspark_pubsub.rpc import PAUSE_FIRST_S, PAUSE_MAX_S, BlockingChannel, details_of, pb
from pyspark_pubsub.schema import CONSTANT, FOUND, MADE, TYPES, arrow_schema, wire_columns
from pyspark_pubsub.slices import Slice
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.status import next_stored

if TYPE_CHECKING:
    from pyspark_pubsub.json_columns import JsonColumns
    from pyspark_pubsub.typed_reading import ValueColumns

log = logging.getLogger("pyspark_pubsub")
ALIGN = 64
_BATCH_TAG = 0x0A  # ReadFrame.batch: field 1, length-delimited


@dataclass(frozen=True)
class RangeFrame:
    """A frame of the server: a view of an encapsulated record batch (None: no rows), its rows, and what comes next."""

    batch: pa.Buffer | None
    rows: int
    next_offset: int


def read(part: Slice) -> Generator[pa.RecordBatch, None, None]:
    """The record batches of a partition, with the schema that Spark expects. Raises CallError, DataLossError."""
    schema = arrow_schema(part.schema)
    names = part.schema.fieldNames()
    wanted = [*names, *(name for name in _needed(part) if name not in names)]
    asked = _asked(schema, [name for name in wanted if name not in (*CONSTANT, *MADE)])
    look, typed = _look_into(part, schema), _typed(part, schema)
    constants = _Constants({"source": part.source, "topic": part.topic, "flow": part.flow}, schema, names)
    source = frames(part, wire_columns(wanted))
    found = prefetched(source, part.prefetch) if part.prefetch else source
    with closing(found), closing(typed) if typed is not None else nullcontext():
        for frame in found:
            if frame.rows and "block" in names:
                yield constants.joined(_block(frame), 1)
            elif frame.rows and asked.names == names:
                yield pa.ipc.read_record_batch(frame.batch, schema)
            elif frame.rows:
                columns, rows = _columns(frame, asked), frame.rows
                if look is not None:
                    columns |= look.of(columns["data"])
                if typed is not None:
                    columns, rows = typed.of(columns)
                if rows:
                    yield constants.joined(columns, rows)


def _look_into(part: Slice, schema: pa.Schema) -> JsonColumns | None:
    if not set(FOUND) & set(schema.names):
        return None
    from pyspark_pubsub.json_columns import JsonColumns  # few readers want them

    return JsonColumns(part.json_fields, part.json_without, schema)


def _asked(schema: pa.Schema, names: list[str]) -> pa.Schema:
    """The columns that come from the server."""
    more = arrow_schema(StructType([StructField(name, TYPES[name]) for name in names if name not in schema.names]))
    return pa.schema([(schema if name in schema.names else more).field(name) for name in names])


def _needed(part: Slice) -> tuple[str, ...]:
    """Columns that are read for what is made of them."""
    return () if part.typed is None else ("data", "attributes", "offset")


def _typed(part: Slice, schema: pa.Schema) -> ValueColumns | None:
    if part.typed is None:
        return None
    from pyspark_pubsub.typed_reading import ValueColumns  # as above

    return ValueColumns(part, schema)


def _columns(frame: RangeFrame, asked: pa.Schema) -> dict[str, pa.Array]:
    if not len(asked):
        return {}
    batch = pa.ipc.read_record_batch(frame.batch, asked)
    return dict(zip(asked.names, batch.columns, strict=True))


def _block(frame: RangeFrame) -> dict[str, pa.Array]:
    """One row that holds the whole frame: the server's record batch as it came."""
    assert frame.batch is not None
    offsets = pa.py_buffer(struct.pack("<ii", 0, frame.batch.size))
    block = pa.Array.from_buffers(pa.binary(), 1, [None, offsets, frame.batch])
    return {"block": block, "rows": pa.array([frame.rows], pa.int32())}


class _Constants:
    """Columns that are the same in all rows: built once for the largest batch so far, and sliced."""

    def __init__(self, values: dict[str, Any], schema: pa.Schema, names: list[str]) -> None:
        self._schema, self._names = schema, names
        self._values = {name: value for name, value in values.items() if name in names}
        self._built: dict[str, pa.Array] = {}
        self._rows = 0

    def joined(self, columns: dict[str, pa.Array], rows: int) -> pa.RecordBatch:
        """The batch with all columns in their order."""
        if rows > self._rows:
            self._rows = rows + rows // 4
            self._built = {
                name: pa.repeat(pa.scalar(value, self._schema.field(name).type), self._rows)
                for name, value in self._values.items()
            }
        arrays = [columns[name] if name in columns else self._built[name].slice(0, rows) for name in self._names]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def frames(part: Slice, columns: list[int]) -> Generator[RangeFrame, None, None]:
    """The server's frames from `begin` to `end`; taken up again where a connection broke."""
    request = pb.ReadRangeRequest(
        topic=part.topic,
        topic_incarnation=part.incarnation,
        source=part.source,
        end=part.end,
        columns=columns,
        filter=part.filter,
        origins=part.origins,
        not_visited=part.not_visited,
        skip_subscription=part.skip_subscription,
        skip_snapshot=part.skip_snapshot,
        frame_bytes=part.frame_bytes,
        chain=part.chain,
    )
    channel = BlockingChannel(part.access)
    at, pause, patience_end = part.begin, PAUSE_FIRST_S, 0.0
    while at < part.end:
        request.begin = at
        buffers = _Buffers()
        try:
            with closing(channel.frames(methods.LOG_READER.ReadRange, request, buffers.allocate)) as messages:
                for message in messages:
                    frame = parse_frame(message, buffers.last)
                    at, pause, patience_end = frame.next_offset, PAUSE_FIRST_S, 0.0
                    yield frame
            if at < part.end:
                where = f"Source {part.source} of {part.topic}"
                raise DataLossError(f"{where} was to be read up to {part.end}, but the server ended at {at}.")
        except CallError as error:
            if error.code == OUT_OF_RANGE:
                at = _behind_gap(part, channel, at, error)
                continue
            patience_end = patience_end or time.monotonic() + part.access.patience_seconds
            if error.code != UNAVAILABLE or time.monotonic() + pause > patience_end:
                raise
            time.sleep(pause)
            pause = min(pause * 2, PAUSE_MAX_S)


def _behind_gap(part: Slice, channel: BlockingChannel, at: int, error: CallError) -> int:
    """Messages from `at` on are gone: the next offset that is stored, when the options allow to go on."""
    where = f"Source {part.source} of {part.topic} cannot be read from offset {at} to {part.end}: {error.text}"
    if part.fail_on_data_loss:
        raise DataLossError(
            f"{where} Set failOnDataLoss=false to continue after the gap, or keep messages longer: by the topic's"
            " retention, or by naming this reader with the option cursor."
        ) from error
    following = next_stored(details_of(error))
    if following is not None and following > at:  # in the middle: what nobody needs is not deleted from the front
        log.warning("%s Going on at %d.", where, following)
        return min(part.end, following)
    request = pb.GetPositionsRequest(topic=part.topic, topic_incarnation=part.incarnation)
    answer = pb.Positions.FromString(channel.call(methods.LOG_READER.GetPositions, request))
    begins = [source.begin for source in answer.sources if source.source == part.source]
    begin = min(part.end, begins[0]) if begins else part.end
    if begin <= at:
        raise DataLossError(f"{where} (stored from {begin} on).") from error
    log.warning("%s Going on at %d.", where, begin)
    return begin


class _Buffers:
    """Memory for one message after the other, from Arrow's pool, which gives it again once its batch is gone."""

    def __init__(self) -> None:
        self.last: pa.Buffer | None = None

    def allocate(self, size: int) -> memoryview:
        """A view into a new buffer such that the batch after tag and length begins at a multiple of `ALIGN`."""
        lead = ALIGN - 1 - _varint_bytes(size)
        self.last = pa.allocate_buffer(lead + size)
        return memoryview(self.last).cast("B")[lead:]


def _varint_bytes(value: int) -> int:
    return max(1, -(-value.bit_length() // 7))


def parse_frame(message: memoryview, buffer: pa.Buffer | None) -> RangeFrame:
    """A ReadFrame; its batch stays where it is in `buffer`, of which `message` is the end. Raises ValueError."""
    if not len(message) or message[0] != _BATCH_TAG or buffer is None:
        parsed = pb.ReadFrame.FromString(bytes(message))
        batch = pa.py_buffer(parsed.batch) if parsed.batch else None
        return RangeFrame(batch, parsed.rows, parsed.next_offset)
    at, size, shift = 1, 0, 0
    while True:
        byte = message[at]
        size |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            break
    if at + size > len(message):
        raise ValueError("a frame is shorter than its record batch")
    rest = pb.ReadFrame.FromString(bytes(message[at + size :]))
    return RangeFrame(buffer.slice(buffer.size - len(message) + at, size), rest.rows, rest.next_offset)


def prefetched(source: Iterator[Any], ahead: int) -> Generator[Any, None, None]:
    """Yield the items, while a thread reads up to `ahead` of them in advance. Closing it ends the thread."""
    items: queue.Queue[tuple[str, Any]] = queue.Queue(ahead)
    stop = threading.Event()

    def put(kind: str, item: Any) -> bool:
        while not stop.is_set():
            try:
                items.put((kind, item), timeout=0.5)
                return True
            except queue.Full:
                continue
        return False

    def run() -> None:
        try:
            with closing(source) as found:  # type: ignore[type-var]
                for item in found:
                    if not put("item", item):
                        return
            put("end", None)
        except BaseException as error:  # passed to the consumer, which raises it
            put("error", error)

    thread = threading.Thread(target=run, name="pubsub-prefetch", daemon=True)
    thread.start()
    take: Callable[[], tuple[str, Any]] = items.get
    try:
        while True:
            kind, item = take()
            if kind == "end":
                return
            if kind == "error":
                raise item
            yield item
    finally:
        stop.set()

"""What runs in a task of the sink: Spark's record batches become frames staged at the server.

Place: in Spark's Python workers, between Spark's Arrow and the server's `Stage`.
Promise: nothing is visible before the epoch is committed; rows keep their order for every topic and source. A batch is
split by topic and source only where these vary in it.
Leaves to `sink`: the commit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from pyspark_pubsub.errors import SchemaError
from pyspark_pubsub.fault_points import pause
from pyspark_pubsub.options import ServerAccess
from pyspark_pubsub.rpc import BlockingChannel, Upload, pb
from pyspark_pubsub.schema import IN_BLOCK, NUMBERS
from syncpoint.wire.protobuf import methods

STANDARD: dict[str, pa.DataType] = {
    "message_id": pa.string(),
    "offset": pa.int64(),
    "publish_time": pa.timestamp("us", tz="UTC"),
    "data": pa.binary(),
    "attributes": pa.map_(pa.string(), pa.string()),
    "ordering_key": pa.string(),
    "origin": pa.string(),
    "visited": pa.list_(pa.string()),
}
BLOCK_MAX = 12 << 20  # bytes of a frame that the server takes for sure, see the option stageBytes
_HEADER, _FRAME = 1, 2  # fields of StageRequest
_BATCH_TAG = b"\x1a"  # StageFrame.batch: field 3, length-delimited


@dataclass(frozen=True)
class SinkTarget:
    """What a writer needs to know in every task."""

    access: ServerAccess
    topic: str = ""
    columns: tuple[str, ...] = ("data",)
    split_source: bool = False
    via: str = ""
    here: str = ""
    keep_identity: bool = False
    frame_bytes: int = 2 << 20
    link: str = ""


@dataclass(frozen=True)
class StagedPart:
    """One attempt of one partition of one epoch."""

    query: str
    run: str
    epoch: int
    partition: int
    attempt: str


@dataclass
class Counts:
    """What a stage holds."""

    rows: int = 0
    bytes: int = 0
    dropped: int = 0
    staged: bool = field(default=False)


def stage(target: SinkTarget, part: StagedPart, batches: Iterator[pa.RecordBatch]) -> Counts:
    """Stage all rows; without any, nothing is asked of the server. Raises CallError, SchemaError."""
    upload: Upload | None = None
    try:
        for batch in batches:
            for request in requests(target, batch):
                if upload is None:
                    upload = BlockingChannel(target.access).upload(methods.EPOCH_WRITER.Stage)
                    upload.send([header(target, part)])
                upload.send(request)
                pause("staging")
        if upload is None:
            return Counts()
        answer = pb.StageResponse.FromString(upload.finish())
        pause("staged")
        return Counts(answer.rows, answer.bytes, answer.dropped, staged=True)
    finally:
        if upload is not None:
            upload.close()


def header(target: SinkTarget, part: StagedPart) -> bytes:
    """The first message of a stage."""
    head = pb.StageHeader(
        run=pb.Run(query=part.query, run=part.run),
        epoch=part.epoch,
        partition=part.partition,
        attempt=part.attempt,
        via=target.via,
        here=target.here,
        keep_identity=target.keep_identity,
        link=target.link,
    )
    encoded: bytes = pb.StageRequest(header=head).SerializeToString()
    return encoded


def requests(target: SinkTarget, batch: pa.RecordBatch) -> Iterator[list[Any]]:
    """The frames that a batch of rows becomes, each as `frame` gives it. Raises SchemaError."""
    blocks = "block" in batch.schema.names
    columns = list(IN_BLOCK) if blocks else [name for name in target.columns if name in STANDARD]
    for topic, source, rows in divided(target, batch):
        if blocks:
            for block in rows.column("block"):
                yield from _copied(target, topic, source, columns, block)
        else:
            for piece in pieces(standardised(rows, columns), target.frame_bytes):
                yield frame(topic, source, columns, piece.serialize())


def _copied(target: SinkTarget, topic: str, source: int, columns: list[str], block: pa.Scalar) -> Iterator[list[Any]]:
    """A block as it is, unless the server would refuse it for its size."""
    body = block.as_buffer()
    if body is None:
        raise SchemaError("A row has no block: the column block is null.")
    if body.size <= BLOCK_MAX:
        yield frame(topic, source, columns, body)
        return
    schema = pa.schema([(name, STANDARD[name]) for name in columns])
    try:
        batch = pa.ipc.read_record_batch(body, schema)
    except (pa.ArrowInvalid, OSError) as error:
        raise SchemaError(f"The column block has a value that is no block of messages: {error}") from None
    for piece in pieces(batch, target.frame_bytes):
        yield frame(topic, source, columns, piece.serialize())


def frame(topic: str, source: int, columns: list[str], body: pa.Buffer) -> list[Any]:
    """A StageRequest with a frame, in buffers that follow each other: the record batch is not copied to its head."""
    inner: bytes = pb.StageFrame(
        topic=topic, columns=[NUMBERS[name] for name in columns], source=source
    ).SerializeToString()
    head = inner + _BATCH_TAG + varint(body.size)
    return [bytes((_FRAME << 3 | 2,)) + varint(len(head) + body.size) + head, memoryview(body)]


def varint(value: int) -> bytes:
    """A number as protobuf writes it."""
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def standardised(batch: pa.RecordBatch, names: list[str]) -> pa.RecordBatch:
    """The named columns with the types that travel: no large types, no views, no dictionaries, microseconds."""
    arrays = []
    for name in names:
        column, wanted = batch.column(name), STANDARD[name]
        if pa.types.is_map(wanted) or not column.type.equals(wanted):
            column = _cast(name, column, wanted)
        arrays.append(column)
    return pa.RecordBatch.from_arrays(arrays, names=names)


def _cast(name: str, column: pa.Array, wanted: pa.DataType) -> pa.Array:
    if pa.types.is_map(wanted) and pa.types.is_map(column.type):
        same = column.type.key_type == wanted.key_type and column.type.item_type == wanted.item_type
        if same:
            return column
    if pa.types.is_timestamp(wanted) and pa.types.is_timestamp(column.type) and column.type.unit == "us":
        return column.view(wanted)
    try:
        return column.cast(wanted)
    except pa.ArrowInvalid as error:
        raise SchemaError(f"The column {name} has a value that no message can have: {error}") from None


def divided(target: SinkTarget, batch: pa.RecordBatch) -> Iterator[tuple[str, int, pa.RecordBatch]]:
    """Rows by topic and source, in their order. Raises SchemaError when a row names no topic."""
    if not batch.num_rows:
        return
    own = "target_topic" in batch.schema.names
    if own:
        batch = _with_targets(batch, target.topic)
    keys = ["topic"] if own or not target.topic else []
    keys += ["source"] if target.split_source else []
    pending: list[tuple[dict[str, Any], pa.RecordBatch]] = [({}, batch)]
    for key in keys:
        pending = [({**values, key: value}, rows) for values, some in pending for value, rows in by_column(some, key)]
    for values, rows in pending:
        topic = values.get("topic", target.topic)
        if not topic:
            raise SchemaError("A row has no topic: the column topic is null or empty, and the option topic is not set.")
        yield topic, values.get("source", 0), rows


def _with_targets(batch: pa.RecordBatch, topic: str) -> pa.RecordBatch:
    """The batch with one column `topic`, the target of each row: its own `target_topic`, if it has one."""
    import pyarrow.compute as pc  # as below

    own = batch.column("target_topic").cast(pa.string())
    own = pc.if_else(pc.equal(own, ""), pa.scalar(None, pa.string()), own)
    names = batch.schema.names
    if topic or "topic" not in names:
        others: Any = pa.scalar(topic or None, pa.string())
    else:
        others = batch.column("topic").cast(pa.string())
    kept = [name for name in names if name not in ("topic", "target_topic")]
    columns = [*(batch.column(name) for name in kept), pc.coalesce(own, others)]
    return pa.RecordBatch.from_arrays(columns, names=[*kept, "topic"])


def by_column(batch: pa.RecordBatch, name: str) -> Iterator[tuple[Any, pa.RecordBatch]]:
    """(value, rows) by the values of one column; the batch as it is when there is only one value."""
    import pyarrow.compute as pc  # slow to import, and not needed for most batches

    column = batch.column(name)
    first = column[0]
    if column.null_count == 0 and pc.all(pc.equal(column, first)).as_py():
        yield first.as_py(), batch
        return
    for value in pc.unique(column):
        mask = pc.equal(column, value) if value.is_valid else pc.is_null(column)
        yield value.as_py(), batch.filter(pc.fill_null(mask, False))


def pieces(batch: pa.RecordBatch, most: int) -> Iterator[pa.RecordBatch]:
    """Slices of at most about `most` bytes each, by the mean size of a row; at least one row each."""
    size = batch.nbytes
    rows = batch.num_rows
    count = min(rows, -(-size // most)) or 1
    for i in range(count):
        begin, end = rows * i // count, rows * (i + 1) // count
        piece = batch.slice(begin, end - begin) if count > 1 else batch
        if end - begin > 1 and piece.nbytes > 2 * most:
            yield from pieces(piece, most)
        else:
            yield piece

"""The metadata of record batches against Arrow's own library, both ways, and against lies."""

from __future__ import annotations

import struct
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncpoint.wire.protobuf.arrow import decode_batch, encode_batch, padded

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("offset", pa.int64()),
        ("time", pa.timestamp("us", tz="UTC")),
        ("data", pa.binary()),
        ("attributes", pa.map_(pa.string(), pa.string())),
        ("visited", pa.list_(pa.string())),
        ("size", pa.int32()),
    ]
)
texts = st.text(max_size=12)
rows = st.fixed_dictionaries(
    {
        "id": st.none() | texts,
        "offset": st.integers(0, 1 << 62),
        "time": st.integers(0, 1 << 50),
        "data": st.none() | st.binary(max_size=30),
        "attributes": st.dictionaries(texts, texts, max_size=3).map(lambda entries: list(entries.items())),
        "visited": st.none() | st.lists(texts, max_size=3),
        "size": st.integers(0, 1 << 30),
    }
)
batches = st.lists(rows, max_size=8).map(lambda given_: pa.RecordBatch.from_pylist(given_, SCHEMA))


def buffers_of(array: Any) -> list[Any]:
    return [pa.py_buffer(b"") if buffer is None else buffer for buffer in array.buffers()]


def nodes_of(array: Any) -> list[tuple[int, int]]:
    """(length, nulls) of an array and of the arrays inside it."""
    inner = []
    if pa.types.is_map(array.type):
        entries = pa.StructArray.from_arrays([array.keys, array.items], ["key", "value"])
        inner = [(len(entries), 0), *nodes_of(array.keys), *nodes_of(array.items)]
    elif pa.types.is_list(array.type):
        inner = nodes_of(array.values)
    return [(len(array), array.null_count), *inner]


@given(batches)
def test_what_arrow_writes_is_read(batch: Any) -> None:
    message = batch.serialize().to_pybytes()
    count, nodes, buffers, body = decode_batch(message)
    assert count == batch.num_rows
    assert nodes == [node for column in batch.columns for node in nodes_of(column)]
    assert len(buffers) == sum(len(column.buffers()) for column in batch.columns)
    assert body % 8 == 0
    size_at, size_length = buffers[-1]
    held = message[body + size_at : body + size_at + size_length]
    assert list(struct.unpack(f"<{count}i", held[: 4 * count])) == batch.column("size").to_pylist()


@given(batches)
def test_what_is_written_is_read_by_arrow(batch: Any) -> None:
    batch = pa.RecordBatch.from_pylist(batch.to_pylist(), SCHEMA)
    nodes = [node for column in batch.columns for node in nodes_of(column)]
    buffers = [buffer.to_pybytes() for column in batch.columns for buffer in buffers_of(column)]
    body = b"".join(buffer + bytes(-len(buffer) % 8) for buffer in buffers)
    head = encode_batch(batch.num_rows, nodes, [len(buffer) for buffer in buffers], len(body))
    assert len(head) % 8 == 0
    read = pa.ipc.read_record_batch(pa.py_buffer(head + body), SCHEMA)
    read.validate(full=True)
    assert read.equals(batch)


@given(
    st.integers(0, 1 << 40),
    st.lists(st.integers(0, 1 << 40).map(lambda length: (length, length // 2)), max_size=9),
    st.lists(st.integers(0, 300), max_size=30),
)
def test_what_is_written_is_read(count: int, nodes: list[tuple[int, int]], lengths: list[int]) -> None:
    total = sum(map(padded, lengths))
    head = encode_batch(count, nodes, lengths, total)
    assert decode_batch(head + bytes(total))[:2] == (count, nodes)
    places, at = [], 0
    for length in lengths:
        places.append((at, length))
        at += padded(length)
    assert decode_batch(memoryview(head + bytes(total)))[2:] == (places, len(head))


def test_buffers_must_fill_the_body() -> None:
    with pytest.raises(ValueError, match="16 bytes, not 9"):
        encode_batch(1, [(1, 0)], [0, 9], 9)


@given(batches, st.data())
def test_a_torn_message_is_refused(batch: Any, data: st.DataObject) -> None:
    message = batch.serialize().to_pybytes()
    _, _, _, body = decode_batch(message)
    with pytest.raises(ValueError):
        decode_batch(message[: data.draw(st.integers(0, max(body - 1, len(message) - 1)))])


def held(message: bytes) -> tuple[int, list[tuple[int, int]]]:
    """What a decoded message claims is inside of it."""
    _, nodes, buffers, body = decode_batch(message)
    assert all(0 <= nulls <= length for length, nulls in nodes)
    assert all(at >= 0 and length >= 0 and body + at + length <= len(message) for at, length in buffers)
    return body, buffers


@given(batches, st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.binary(min_size=1, max_size=4)), max_size=4))
def test_a_lying_message_is_refused_or_keeps_inside(batch: Any, lies: list[tuple[float, bytes]]) -> None:
    message = bytearray(batch.serialize().to_pybytes())
    _, _, _, body = decode_batch(message)
    for place, value in lies:
        at = int(place * body)
        message[at : at + len(value)] = value
    try:
        held(bytes(message))
    except ValueError:
        return


@given(st.binary(max_size=400))
def test_any_bytes_are_a_batch_or_refused(noise: bytes) -> None:
    noise += bytes(-len(noise) % 8)
    try:
        held(struct.pack("<II", 0xFFFFFFFF, len(noise)) + noise)
    except ValueError:
        return


def test_other_messages_are_refused() -> None:
    batch = pa.RecordBatch.from_pylist([{"data": b"abc" * 100}], pa.schema([("data", pa.binary())]))
    refused = {
        "no record batch": batch.schema.serialize().to_pybytes(),
        "not an encapsulated": b"{}",
        "does not fit": batch.serialize().to_pybytes()[:16],
        "the body of": batch.serialize().to_pybytes()[:-8],
    }
    if pa.Codec.is_available("lz4"):
        compressed = pa.ipc.IpcWriteOptions(compression="lz4")
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema, options=compressed) as writer:
            writer.write_batch(batch)
        stream = sink.getvalue().to_pybytes()
        refused["compressed"] = stream[len(batch.schema.serialize()) :]
    views = pa.array(["a view of more than twelve bytes"], pa.string_view())
    refused["views"] = pa.RecordBatch.from_arrays([views], ["text"]).serialize().to_pybytes()
    for text, message in refused.items():
        with pytest.raises(ValueError, match=text):
            decode_batch(message)

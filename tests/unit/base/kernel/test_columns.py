"""Columns of stored messages against protobuf's own parser and Arrow's own reader, compiled and not."""

from __future__ import annotations

import struct
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from google.pubsub_v1 import types
from hypothesis import given, settings
from hypothesis import strategies as st

from syncpoint.base.kernel import columns, publish
from syncpoint.base.kernel.errors import Malformed
from syncpoint.base.model import varint
from syncpoint.base.rules import pubsub_filter
from syncpoint.wire.protobuf.arrow import encode_batch
from tests.kit.examples import examples

Message = types.PubsubMessage.pb()
TEXT = pa.string()
SCHEMA = [
    pa.field("message_id", TEXT),
    pa.field("offset", pa.int64()),
    pa.field("publish_time", pa.timestamp("us", tz="UTC")),
    pa.field("data", pa.binary()),
    pa.field("attributes", pa.map_(TEXT, TEXT)),
    pa.field("ordering_key", TEXT),
    pa.field("origin", TEXT),
    pa.field("visited", pa.list_(TEXT)),
    pa.field("size", pa.int32()),
]
ALL = tuple(range(1, 10))


def field(number: int, value: bytes) -> bytes:
    return varint.encode(number << 3 | 2) + varint.encode(len(value)) + value


texts = st.text(max_size=9)
pieces = st.one_of(
    st.binary(max_size=40).map(lambda data: field(1, data)),
    st.builds(lambda key, value: field(2, field(1, key.encode()) + field(2, value.encode())), texts, texts),
    texts.map(lambda key: field(2, field(1, key.encode()))),
    texts.map(lambda value: field(2, field(2, value.encode()) + field(2, value.encode() + b"x"))),
    texts.map(lambda name: field(3, name.encode())),
    texts.map(lambda key: field(5, key.encode())),
    st.sampled_from([b"", b"a", b"b", b"not utf-8 \xff"]).map(lambda name: field(1001, name)),
    st.sampled_from([b"", b"a", b"b", b"not utf-8 \xff"]).map(lambda name: field(1002, name)),
    st.integers(-(1 << 33), 1 << 33).map(lambda s: field(4, b"\x08" + varint.encode(s % (1 << 64)))),
    st.integers(0, 999_999_999).map(lambda nanos: field(4, b"\x10" + varint.encode(nanos))),
    st.integers(0, 1 << 40).map(lambda value: varint.encode(7 << 3) + varint.encode(value)),
)
bodies = st.lists(st.lists(pieces, max_size=8).map(b"".join), max_size=12)


def payload_of(messages: list[bytes]) -> bytes:
    return b"".join(struct.pack("<I", len(body)) + body for body in messages)


def parsed(body: bytes, offset: int) -> dict[str, Any]:
    """The row of a message, as protobuf reads it."""
    message = Message.FromString(body)
    entries, origin, visited = [], "", []
    for number, value in varint.fields(body):
        if number == 2:
            entry = dict(varint.fields(value))
            entries.append((entry.get(1, b"").decode(), entry.get(2, b"").decode()))
        elif number in (1001, 1002):
            try:
                text = value.decode()
            except UnicodeDecodeError:
                continue
            if number == 1001:
                origin = text
            else:
                visited.append(text)
    assert dict(entries) == dict(message.attributes)
    return {
        "message_id": message.message_id,
        "offset": offset,
        "publish_time": message.publish_time.seconds * 1_000_000 + message.publish_time.nanos // 1000,
        "data": message.data,
        "attributes": entries,
        "ordering_key": message.ordering_key,
        "origin": origin,
        "visited": visited,
        "size": len(body),
    }


def table(gathering: Any, numbers: tuple[int, ...]) -> list[dict[str, Any]]:
    """What Arrow finds in what was gathered."""
    rows, nodes, lengths, body = gathering.finish()
    assert all(len(buffer) % 8 == 0 for buffer in body)
    joined = b"".join(body)
    head = encode_batch(rows, nodes, lengths, len(joined))
    schema = pa.schema([SCHEMA[number - 1] for number in numbers])
    batch = pa.ipc.read_record_batch(pa.py_buffer(head + joined), schema)
    batch.validate(full=True)
    if 3 in numbers:
        at = numbers.index(3)
        batch = batch.set_column(at, "publish_time", batch.column(at).cast(pa.int64()))
    return batch.to_pylist() if numbers else [{}] * rows


@pytest.fixture(params=["in use", "from sources"])
def kernel(request: pytest.FixtureRequest, pure: SimpleNamespace) -> Any:
    return columns if request.param == "in use" else pure.columns


@given(bodies, st.permutations(ALL), st.integers(0, 9), st.integers(0, 1 << 40))
@settings(max_examples=examples(150))
def test_all_columns_are_what_parsers_find(
    pure: SimpleNamespace, messages: list[bytes], order: list[int], wanted: int, first: int
) -> None:
    numbers = tuple(order[:wanted])
    expected = [parsed(body, first + index) for index, body in enumerate(messages)]
    names = [SCHEMA[number - 1].name for number in numbers]
    for kind in (columns, pure.columns):
        gathering = kind.Gathering(numbers, 100)
        assert gathering.take(payload_of(messages), first, first, first + len(messages)) == first + len(messages)
        assert gathering.rows == len(messages)
        assert gathering.size == len(payload_of(messages))
        assert table(gathering, numbers) == [{name: row[name] for name in names} for row in expected]


@given(bodies, st.data())
@settings(max_examples=examples(150))
def test_parts_of_batches(pure: SimpleNamespace, messages: list[bytes], data: st.DataObject) -> None:
    first = 1000
    begin = data.draw(st.integers(0, len(messages)), "begin")
    end = data.draw(st.integers(begin, len(messages)), "end")
    skip = data.draw(st.none() | st.binary(max_size=3), "skip")
    origins = data.draw(st.none() | st.lists(st.sampled_from(["", "a", "b"]), max_size=2), "origins")
    here = data.draw(st.sampled_from(["", "a", "b"]), "here")
    step = data.draw(st.integers(1, 200), "step")
    expected = []
    for index in range(begin, end):
        row = parsed(messages[index], first + index)
        acknowledged = skip is not None and index < 8 * len(skip) and skip[index >> 3] >> (index & 7) & 1
        if (
            not acknowledged
            and (origins is None or row["origin"] in origins)
            and (not here or here not in row["visited"])
        ):
            expected.append(row)
    for kind in (columns, pure.columns):
        found, at = [], first + begin
        while at < first + end:
            chosen = None if origins is None else [name.encode() for name in origins]
            gathering = kind.Gathering(ALL, 0, b"", chosen, here.encode())
            reached = gathering.take(payload_of(messages), first, at, first + end, skip, step)
            assert reached > at
            assert gathering.size < step or gathering.size - step < max(len(body) + 4 for body in messages)
            at = reached
            found += table(gathering, ALL)
        assert found == expected


def test_filters(kernel: Any) -> None:
    messages = [Message(data=b"%d" % n, attributes={"k": "v" if n % 3 else "w"}).SerializeToString() for n in range(9)]
    gathering = kernel.Gathering((2,), 0, pubsub_filter.compile('attributes.k = "v"'))
    gathering.take(payload_of(messages), 0, 1, 8)
    assert table(gathering, (2,)) == [{"offset": n} for n in (1, 2, 4, 5, 7)]


def test_many_batches_in_one_gathering_with_large_values(kernel: Any) -> None:
    gathering = kernel.Gathering(ALL, 10)
    expected = []
    for number in range(40):
        message = Message(data=bytes([number]) * (number * 300), ordering_key="k" * number * 25)
        for key in range(number):
            message.attributes[f"key {key} " + "x" * 100] = "value" * number
        body = message.SerializeToString()
        gathering.take(payload_of([body]), number, number, number + 1)
        expected.append(parsed(body, number))
    found = table(gathering, ALL)
    assert found == expected


def test_what_publish_writes(kernel: Any) -> None:
    request = types.PublishRequest.pb()(topic="projects/p/topics/t")
    request.messages.add(data=b"x", message_id="made up", publish_time={"seconds": 5, "nanos": 999_999_999})
    count, payload, *_ = publish.scan(request.SerializeToString(), b"prefix", 7, 1_700_000_000, 1_234_567)
    gathering = kernel.Gathering((1, 3))
    gathering.take(payload, 7, 7, 7 + count)
    assert table(gathering, (1, 3)) == [{"message_id": "prefix000000000007", "publish_time": 1_700_000_000_001_234}]


def test_times_that_are_none(kernel: Any) -> None:
    body = field(4, b"\x08" + varint.encode((1 << 64) - 1) + b"\x10" + varint.encode((1 << 64) - 5))
    gathering = kernel.Gathering((3,))
    gathering.take(payload_of([body, field(4, b"\x08" + varint.encode(1 << 63))]), 0, 0, 2)
    _, _, lengths, body_ = gathering.finish()
    assert lengths == [0, 16]
    assert struct.unpack("<q", body_[0][:8]) == (-1_000_000,)


def test_nothing(kernel: Any) -> None:
    gathering = kernel.Gathering(ALL)
    assert gathering.take(b"", 5, 5, 5) == 5
    assert table(gathering, ALL) == []


def test_refusals(kernel: Any) -> None:
    for number in (0, 10, -1):
        with pytest.raises(ValueError, match="not a column"):
            kernel.Gathering((1, number))
    gathering = kernel.Gathering(ALL)
    with pytest.raises(ValueError, match="before the batch"):
        gathering.take(b"", 5, 4, 6)
    for payload, end in (
        (payload_of([b""]), 2),
        (payload_of([b"abc"])[:-1], 1),
        (payload_of([b"\xff\xff"]), 1),
        (payload_of([field(2, b"\xff")]), 1),
        (payload_of([field(4, b"\xff")]), 1),
    ):
        with pytest.raises(Exception, match=r"middle of a message|not a PubsubMessage") as caught:
            gathering.take(payload, 0, 0, end)
        assert type(caught.value).__name__ == Malformed.__name__


@given(st.binary(max_size=80), st.integers(0, 4))
def test_any_bytes_are_taken_or_malformed_alike(pure: SimpleNamespace, noise: bytes, count: int) -> None:
    payload = struct.pack("<I", min(len(noise), 60)) + noise
    outcomes = []
    for kind in (columns, pure.columns):
        gathering = kind.Gathering(ALL)
        try:
            gathering.take(payload, 0, 0, count)
        except Exception as error:
            outcomes.append((type(error).__name__, error.args))
        outcomes.append(gathering.finish())
    assert outcomes[: len(outcomes) // 2] == outcomes[len(outcomes) // 2 :]

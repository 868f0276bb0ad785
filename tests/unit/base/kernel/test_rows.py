"""Rows of record batches as messages: against pyarrow, which wrote them, and protobuf, which reads them."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from google.pubsub_v1 import types
from hypothesis import given, settings
from hypothesis import strategies as st

from syncpoint.base import kernel
from syncpoint.base.kernel import columns as kernel_columns
from syncpoint.base.kernel import frames, rows, stamps
from syncpoint.base.kernel.errors import Invalid, Malformed
from syncpoint.base.model import varint
from syncpoint.broker.pipeline import offset_runs
from syncpoint.broker.pipeline.columns import COLUMNS
from syncpoint.wire.protobuf.arrow import decode_batch, encode_batch
from tests.kit.examples import examples

pytestmark = pytest.mark.shows("kernel")

Message = types.PubsubMessage.pb()
PREFIX = b"123456789012316777216"
TYPES = {
    "message_id": pa.utf8(),
    "offset": pa.int64(),
    "publish_time": pa.timestamp("us", "UTC"),
    "data": pa.binary(),
    "attributes": pa.map_(pa.utf8(), pa.utf8()),
    "ordering_key": pa.utf8(),
    "origin": pa.utf8(),
    "visited": pa.list_(pa.utf8()),
}
NUMBERS = {column.name: column for column in COLUMNS.values()}


Located = tuple[bytes, int, dict[str, Any]]


def encapsulated(columns: dict[str, list[Any]], cut: tuple[int, int] | None = None) -> Located:
    """A record batch as bytes, its rows, and where its columns lie."""
    arrays = [pa.array(values, TYPES[name]) for name, values in columns.items()]
    batch = pa.RecordBatch.from_arrays(arrays, names=list(columns))
    if cut is not None:
        batch = batch.slice(*cut)
    return located(batch.serialize().to_pybytes(), list(columns))


def located(data: bytes, names: list[str]) -> Located:
    count, nodes, buffers, body = decode_batch(data)
    found, node, buffer = {}, 0, 0
    for name in names:
        column = NUMBERS[name]
        places = [(body + at, size) for at, size in buffers[buffer : buffer + len(column.buffers)]]
        found[name] = (nodes[node : node + column.nodes], places)
        node, buffer = node + column.nodes, buffer + len(column.buffers)
    return data, count, found


def framed(columns: dict[str, list[Any]], via: bytes = b"", here: bytes = b"", keep: bool = False, room: int = 1 << 20):  # type: ignore[no-untyped-def]
    data, count, places = encapsulated(columns)
    return rows.frame(data, count, places, via, here, keep, room)


def messages(payload: bytes) -> list[Any]:
    return [Message.FromString(frames.message_at(payload, i)) for i in range(frames.count(payload))]


def hidden(message: Any) -> tuple[list[bytes], list[bytes]]:
    """Fields 1001 and 1002 of a message."""
    found = list(varint.fields(message.SerializeToString()))
    first, second = ([content for number, content in found if number == wanted] for wanted in (1001, 1002))
    return first, second


texts = st.text(st.characters(codec="utf-8"), max_size=12)
names = st.one_of(st.none(), st.sampled_from(["", "eu", "us", "asia"]))
keys = texts.filter(lambda key: key != "" and (not key.startswith("goog") or key.startswith("googclient_")))
one_row = st.fixed_dictionaries(
    {
        "data": st.one_of(st.none(), st.binary(max_size=200)),
        "attributes": st.one_of(st.none(), st.dictionaries(keys, st.one_of(st.none(), texts), max_size=4)),
        "ordering_key": st.one_of(st.none(), texts),
        "message_id": st.one_of(st.none(), texts),
        "publish_time": st.one_of(st.none(), st.integers(0, 253_402_300_799_999_999)),
        "origin": names,
        "visited": st.one_of(st.none(), st.lists(st.sampled_from(["eu", "us", "asia"]), max_size=4)),
        "gap": st.integers(1, 3),
    }
).filter(lambda row: row["data"] or row["attributes"])
tables = st.lists(one_row, max_size=12)


@given(tables, st.sets(st.sampled_from(["attributes", "ordering_key", "message_id", "publish_time", "offset", "origin",
       "visited"])), st.sampled_from([b"", b"eu", b"far"]), st.sampled_from([b"", b"us"]), st.booleans(),
       st.sampled_from([1, 300, 1 << 20]), st.randoms(use_true_random=False))  # fmt: skip
@settings(max_examples=examples(150 if kernel.COMPILED else 60))
def test_messages_are_what_the_columns_say(
    table: list[dict[str, Any]],
    present: set[str],
    via: bytes,
    here: bytes,
    keep: bool,
    room: int,
    chance: random.Random,
) -> None:
    offset = 5
    for row in table:
        offset += row["gap"]
        row["offset"] = offset
    order = ["data", *sorted(present)]
    chance.shuffle(order)
    columns = {
        name: [
            list(row[name].items()) if name == "attributes" and row[name] is not None else row[name] for row in table
        ]
        for name in order
    }
    if "attributes" not in present:
        table = [{**row, "data": row["data"] or b"!"} for row in table]
        columns["data"] = [row["data"] for row in table]
    pieces, dropped = framed(columns, via, here, keep, room)
    kept = [
        row
        for row in table
        if not here
        or not (
            ("origin" in present and row["origin"] == here.decode())
            or ("visited" in present and here.decode() in (row["visited"] or []))
        )
    ]
    assert dropped == len(table) - len(kept)
    got = [message for piece in pieces for message in messages(piece[0])]
    assert [piece[1] for piece in pieces] == [frames.count(piece[0]) for piece in pieces]
    assert len(got) == len(kept)
    for message, row in zip(got, kept, strict=True):
        assert message.data == (row["data"] or b"")
        wanted = (
            {key: value or "" for key, value in (row["attributes"] or {}).items()} if "attributes" in present else {}
        )
        assert dict(message.attributes) == wanted
        assert message.ordering_key == ((row["ordering_key"] or "") if "ordering_key" in present else "")
        has_id = keep and "message_id" in present
        assert message.message_id == ((row["message_id"] or "") if has_id else "")
        has_time = keep and "publish_time" in present and row["publish_time"] is not None
        assert message.HasField("publish_time") == has_time
        if has_time:
            assert message.publish_time.seconds * 10**6 + message.publish_time.nanos // 1000 == row["publish_time"]
        origin = ((row["origin"] or "") if "origin" in present else "").encode() or via
        visited = [name.encode() for name in row["visited"] or []] if "visited" in present else []
        assert hidden(message) == ([origin] if origin else [], visited + ([via] if via else []))
    if "offset" in present:
        found = [
            n for piece in pieces for begin, size in offset_runs.decode(piece[2]) for n in range(begin, begin + size)
        ]
        assert found == [row["offset"] for row in kept]
    for payload, _, _, complete in pieces:
        assert complete == (
            keep
            and {"message_id", "publish_time"} <= present
            and all(one.message_id and one.HasField("publish_time") for one in messages(payload))
        )
    if room == 1:
        assert all(piece[1] == 1 for piece in pieces)


@given(tables.filter(len))
def test_a_link_reads_what_it_wrote(table: list[dict[str, Any]]) -> None:
    """What one server's rows become is what the next server's columns say, hop by hop."""
    order = ["message_id", "publish_time", "data", "attributes", "ordering_key", "origin", "visited"]
    columns = {name: [row[name] for row in table] for name in order}
    columns["attributes"] = [list((row["attributes"] or {}).items()) for row in table]
    data, count, places = encapsulated(columns)
    for via in (b"eu", b"us"):
        pieces, _ = rows.frame(data, count, places, via, b"", True, 1 << 20)
        gathering = kernel_columns.Gathering([NUMBERS[name].number for name in order])
        for payload, messages_in, _, _ in pieces:
            gathering.take(payload, 0, 0, messages_in)
        count, nodes, lengths, buffers = gathering.finish()
        body = b"".join(buffers)
        data, count, places = located(encode_batch(count, nodes, lengths, len(body)) + body, order)
    schema = pa.schema([(name, TYPES[name]) for name in order])
    read = pa.ipc.read_record_batch(pa.py_buffer(data), schema)
    read = read.set_column(1, "publish_time", read.column(1).cast(pa.int64())).to_pylist()
    for row, found in zip(table, read, strict=True):
        assert found["data"] == (row["data"] or b"")
        assert dict(found["attributes"]) == {key: value or "" for key, value in (row["attributes"] or {}).items()}
        assert found["ordering_key"] == (row["ordering_key"] or "")
        assert found["message_id"] == (row["message_id"] or "")
        assert found["publish_time"] == (row["publish_time"] or 0)
        assert found["origin"] == (row["origin"] or "eu")
        assert found["visited"] == [*(row["visited"] or []), "eu", "us"]


@given(tables.filter(len), st.integers(0, 12), st.integers(0, 12))
def test_a_slice_of_a_batch_is_its_rows(table: list[dict[str, Any]], start: int, size: int) -> None:
    columns = {name: [row[name] for row in table] for name in ("data", "ordering_key", "visited")}
    columns["data"] = [data or b"!" for data in columns["data"]]
    data, count, places = encapsulated(columns, (min(start, len(table)), size))
    pieces, _ = rows.frame(data, count, places, b"", b"", False, 1 << 20)
    got = [message.data for piece in pieces for message in messages(piece[0])]
    assert got == columns["data"][start : start + size]


LONG = "x" * 1025
REFUSED = [
    ({"data": [b"a", None]}, r"rows[1].data: Some messages are empty"),
    ({"data": [b"a", b""], "attributes": [[], []]}, r"rows[1].data"),
    ({"data": [b"a"], "attributes": [[("", "v")]]}, r"rows[0].attributes: keys must not be empty"),
    (
        {"data": [b"a"], "attributes": [[("k" * 257, "v")]]},
        r"rows[0].attributes: keys must not be longer than 256",
    ),
    ({"data": [b"a"], "attributes": [[("k", LONG)]]}, r"rows[0].attributes: values must not be longer than 1024 bytes"),
    ({"data": [b"a"], "attributes": [[("google", "v")]]}, r"rows[0].attributes: keys must not begin with goog"),
    (
        {"data": [b"a"], "attributes": [[(f"k{i}", "") for i in range(101)]]},
        r"rows[0].attributes: must not have more than 100",
    ),
    ({"data": [b"a", b"b"], "ordering_key": ["", LONG]}, r"rows[1].ordering_key: must not be longer than 1024 bytes"),
    ({"data": [b"a"], "message_id": ["x" * 257]}, r"rows[0].message_id: must not be longer"),
    ({"data": [b"a"], "publish_time": [-1]}, r"rows[0].publish_time"),
    ({"data": [b"a"], "publish_time": [253_402_300_800_000_000]}, r"rows[0].publish_time"),
    ({"data": [b"a"], "origin": ["x" * 257]}, r"rows[0].origin"),
    ({"data": [b"a"], "visited": [[""]]}, r"rows[0].visited: names must be"),
    ({"data": [b"a"], "visited": [[None]]}, r"rows[0].visited: names must be"),
    ({"data": [b"a"], "visited": [["eu"] * 100]}, r"rows[0].visited: must not have more than 100"),
    ({"data": [b"a", b"b"], "offset": [7, 7]}, r"rows[1].offset"),
    ({"data": [b"a"], "offset": [-1]}, r"rows[0].offset"),
    ({"data": [b"x" * 10_000_001]}, r"rows[0]: must not be larger than 10000000 bytes"),
]


@pytest.mark.parametrize(("columns", "text"), REFUSED, ids=[text for _, text in REFUSED])
def test_what_no_message_may_have_names_row_and_field(columns: dict[str, list[Any]], text: str) -> None:
    with pytest.raises(Invalid) as refused:
        framed(columns, keep=True)
    assert str(refused.value).startswith(text)


def test_limits_are_reached_exactly() -> None:
    columns = {
        "data": [b"a"],
        "attributes": [[("k" * 255 + str(i % 10) if i < 10 else f"googclient_{i}", "v" * 1024) for i in range(100)]],
        "ordering_key": ["x" * 1024],
        "visited": [["x" * 256] * 99],
    }
    ((payload, count, _, _),), _ = framed(columns)
    assert count == 1
    assert len(messages(payload)[0].attributes) == 100
    size = rows.frame(*encapsulated({"data": [b"x" * 9_999_995]}), b"", b"", False, 1)[0][0][0]
    assert len(size) == 10_000_004


@pytest.mark.parametrize("name", ["ordering_key", "message_id", "origin", "visited", "attributes"])
def test_strings_are_utf8(name: str) -> None:
    value: Any = {"visited": ["zzzz"], "attributes": [("zzzz", "")]}.get(name, "zzzz")
    data, count, places = encapsulated({"data": [b"a"], name: [value]})
    bad = data.replace(b"zzzz", b"zz\xffz")
    assert bad != data
    with pytest.raises(Invalid, match=rf"rows\[0\]\.{name}"):
        rows.frame(bad, count, places, b"", b"", True, 1)


def test_columns_that_contradict_the_batch() -> None:
    data, count, places = encapsulated({"data": [b"a", b"b"]})
    with pytest.raises(Malformed, match="data must have 3 values, not 2"):
        rows.frame(data, 3, places, b"", b"", False, 1)
    with pytest.raises(Malformed, match="column data is missing"):
        rows.frame(data, 2, {}, b"", b"", False, 1)
    with pytest.raises(Malformed, match="negative"):
        rows.frame(data, -1, places, b"", b"", False, 1)
    with pytest.raises(Malformed, match="nulls"):
        framed({"data": [b"a"], "offset": [None]})
    with pytest.raises(Malformed, match="outside the batch"):
        rows.frame(data[:-8], count, places, b"", b"", False, 1)


@given(tables.filter(len), st.randoms(use_true_random=False), st.integers(1, 8))
@settings(max_examples=examples(250 if kernel.COMPILED else 80))
def test_spoilt_batches_are_refused_or_read_within_their_bounds(
    table: list[dict[str, Any]], chance: random.Random, changes: int
) -> None:
    columns = {
        name: [row[name] for row in table] for name in ("data", "ordering_key", "message_id", "visited", "origin")
    }
    columns["attributes"] = [list((row["attributes"] or {}).items()) for row in table]
    columns["offset"] = list(range(len(table)))
    data, count, places = encapsulated(columns)
    raw = bytearray(data)
    for _ in range(changes):
        raw[chance.randrange(len(raw))] = chance.choice([0, 1, 255, chance.randrange(256)])
    if chance.random() < 0.5:
        name = chance.choice(list(places))
        buffers = places[name][1]
        at = chance.randrange(len(buffers))
        buffers[at] = (buffers[at][0] + chance.randrange(-9, 9), max(0, buffers[at][1] + chance.randrange(-9, 9)))
    if chance.random() < 0.2:
        del raw[-chance.randrange(1, 60) :]
    try:
        pieces, dropped = rows.frame(bytes(raw), count, places, b"via", b"us", True, 500)
    except (Invalid, Malformed):
        return
    assert sum(len(messages(piece[0])) for piece in pieces) + dropped == count


@given(tables, st.booleans(), st.integers(0, 10**12 - 20), st.integers(0, 14), st.integers(0, 2**33),
       st.integers(0, 999_999_999))  # fmt: skip
def test_stamped_messages_have_ids_and_times(
    table: list[dict[str, Any]], keep: bool, first: int, skip: int, seconds: int, nanos: int
) -> None:
    columns = {name: [row[name] for row in table] for name in ("data", "message_id", "publish_time")}
    columns["data"] = [data or b"!" for data in columns["data"]]
    pieces, _ = framed(columns, keep=keep)
    payload = b"".join(piece[0] for piece in pieces)
    count, stamped = stamps.stamp(payload, PREFIX, first, seconds, nanos, skip)
    before, after = messages(payload)[skip:], messages(stamped)
    assert count == len(after) == len(before)
    for index, (old, new) in enumerate(zip(before, after, strict=True)):
        assert new.message_id == (old.message_id or f"{PREFIX.decode()}{first + index:012d}")
        if not old.HasField("publish_time"):
            old.publish_time.seconds, old.publish_time.nanos = seconds, nanos
            assert new.HasField("publish_time")
        assert new.publish_time == old.publish_time
        assert new.data == old.data
    assert stamps.stamp(stamped, b"other", 0, 1, 1)[1] == stamped  # nothing to do


@pytest.mark.parametrize(
    "arguments",
    [(b"p", -1, 0, 0), (b"p", 10**12 + 1, 0, 0), (b"p" * 65, 0, 0, 0), (b"p", 0, -1, 0), (b"p", 0, 0, 10**9)],
)
def test_stamps_out_of_range(arguments: tuple[Any, ...]) -> None:
    with pytest.raises(ValueError):
        stamps.stamp(b"", *arguments)


@given(st.binary(max_size=60))
def test_a_payload_that_is_none(raw: bytes) -> None:
    try:
        stamps.stamp(raw, PREFIX, 0, 1, 1)
    except Malformed:
        return
    assert frames.count(raw) >= 0


@pytest.mark.skipif(not kernel.COMPILED, reason="nothing is compiled")
@given(table=tables, chance=st.randoms(use_true_random=False), spoilt=st.booleans())
@settings(max_examples=60)
def test_compiled_and_uncompiled_are_the_same(
    pure: SimpleNamespace, table: list[dict[str, Any]], chance: random.Random, spoilt: bool
) -> None:
    columns = {name: [row[name] for row in table] for name in TYPES if name not in ("offset", "attributes")}
    columns["attributes"] = [list((row["attributes"] or {}).items()) for row in table]
    columns["offset"] = list(range(len(table)))
    data, count, places = encapsulated(columns)
    raw = bytearray(data)
    if spoilt:
        raw[chance.randrange(len(raw))] = chance.randrange(256)
    arguments = (bytes(raw), count, places, b"far", b"us", True, 700)

    def outcome(module: Any) -> Any:
        try:
            pieces, dropped = module.rows.frame(*arguments)
            return pieces, dropped, [module.stamps.stamp(piece[0], PREFIX, 98, 7, 8, 1) for piece in pieces]
        except Exception as error:
            return type(error).__name__, error.args

    assert outcome(SimpleNamespace(rows=rows, stamps=stamps)) == outcome(pure)

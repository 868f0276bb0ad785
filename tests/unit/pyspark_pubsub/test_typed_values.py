"""Values of Avro and Protocol Buffers as columns, and back."""

import json
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from pyspark.sql.types import DoubleType, MapType, StringType, StructType

from pyspark_pubsub.chosen_schemas import _compile
from pyspark_pubsub.errors import SchemaError
from pyspark_pubsub.schema import arrow_schema, source_schema
from pyspark_pubsub.typed_values import (
    AVRO,
    PROTOCOL_BUFFER,
    DataMismatch,
    SchemaRevision,
    check_writable,
    readable,
    schema_of,
)
from syncpoint.catalog.schemas.validators import Encoding

pytestmark = pytest.mark.shows("spark")
NAME = "projects/p/schemas/s"
RICH = [
    {"name": "id", "type": "long"},
    {"name": "any", "type": ["null", "boolean", "long", "string", {"type": "enum", "name": "E", "symbols": ["A"]},
                             {"type": "record", "name": "Q", "fields": [{"name": "a", "type": "int"}]}],
     "default": None},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
    {"name": "day", "type": ["null", {"type": "int", "logicalType": "date"}]},
    {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}},
    {"name": "tags", "type": {"type": "map", "values": ["null", "bytes"]}},
    {"name": "lines", "type": {"type": "array", "items": "Q"}},
    {"name": "uuid", "type": {"type": "string", "logicalType": "uuid"}},
    {"name": "wide", "type": ["float", "double"]},
]  # fmt: skip
PROTO = """
syntax = "proto3"; package shop;
message Order {
  message Line { int32 count = 1; string item = 2; }
  enum Kind { UNKNOWN = 0; REFUND = 1; }
  int64 id = 1; optional uint64 total = 2; repeated Line lines = 3; map<string, Line> by_name = 4; Kind kind = 5;
  bytes raw = 6; Line first = 7; oneof who { string name = 8; sint32 number = 9; } repeated double rates = 10;
}"""


def avro(fields, revision="r1", name="R"):
    definition = {"type": "record", "name": name, "namespace": "x", "fields": fields}
    return schema_of(SchemaRevision(NAME, revision, AVRO, json.dumps(definition).encode()))


def proto(text, revision="p1"):
    return schema_of(SchemaRevision(NAME, revision, PROTOCOL_BUFFER, _compile(text)))


def through_arrow(schema, value):
    """What Spark has of a value, and what it gives back to be written."""
    columns = arrow_schema(source_schema(["value"], readable(schema.kind.type)))
    return pa.array([value], columns.field("value").type).to_pylist()[0]


@pytest.mark.parametrize("encoding", Encoding)
@pytest.mark.parametrize(
    "chosen",
    [{"member0": True}, {"member1": 7}, {"member2": "A"}, {"member3": "A"}, {"member4": {"a": 3}}, None],
    ids=str,
)
def test_avro_is_the_same_after_a_round_trip(encoding, chosen):
    schema = avro(RICH)
    value = {
        "id": 1 << 40, "any": chosen, "at": datetime(2026, 1, 31, 12, 0, 0, 7, tzinfo=UTC), "day": date(2026, 1, 31),
        "price": Decimal("2.50"), "tags": [("k", b"\xff"), ("none", None)], "lines": [{"a": 1}, {"a": 2}],
        "uuid": "u", "wide": 0.5,
    }  # fmt: skip
    data = schema.encoded(through_arrow(schema, value), encoding)
    found = through_arrow(schema, schema.decoded(data, encoding, schema))
    if chosen is not None:
        found["any"] = {name: one for name, one in found["any"].items() if one is not None}
    assert found == value


@pytest.mark.parametrize("encoding", Encoding)
def test_avro_is_read_by_another_revision_than_it_was_written_by(encoding):
    old = avro([{"name": "id", "type": "int"}, {"name": "gone", "type": "string", "default": ""}])
    new = avro([{"name": "id", "type": "long"}, {"name": "kind", "type": "string", "default": "order"}], "r2")
    data = old.encoded({"id": 5, "gone": "x"}, encoding)
    assert new.decoded(data, encoding, old) == {"id": 5, "kind": "order"}
    assert new.kind.type.simpleString() == "struct<id:bigint,kind:string>"


@pytest.mark.parametrize("encoding", Encoding)
@pytest.mark.parametrize("data", [b"", b"\xff\xff", b"\x02", b"[1]", b'{"id": "x"}'])
def test_what_is_no_value_is_a_mismatch_and_nothing_else(encoding, data):
    with pytest.raises(DataMismatch):
        avro([{"name": "id", "type": "long"}, {"name": "kind", "type": "string"}]).decoded(
            data, encoding, avro([{"name": "id", "type": "long"}, {"name": "kind", "type": "string"}])
        )


@pytest.mark.parametrize("encoding", Encoding)
def test_protocol_buffers_are_the_same_after_a_round_trip(encoding):
    schema = proto(PROTO)
    value = {
        "id": -1, "total": Decimal(2**64 - 1), "lines": [{"count": 1, "item": "a"}, {"count": 0, "item": ""}],
        "by_name": [("k", {"count": 2, "item": "b"})], "kind": "REFUND", "raw": b"\xff", "first": None, "name": None,
        "number": -7, "rates": [0.5],
    }  # fmt: skip
    data = schema.encoded(through_arrow(schema, value), encoding)
    assert through_arrow(schema, schema.decoded(data, encoding, schema)) == value


@pytest.mark.parametrize("encoding", Encoding)
def test_fields_that_came_and_went_in_protocol_buffers(encoding):
    old = proto('syntax = "proto3"; message M { int32 a = 1; string gone = 2; }')
    new = proto('syntax = "proto3"; message M { int32 a = 1; optional string b = 3; int64 c = 4; }', "p2")
    data = old.encoded({"a": 5, "gone": "x"}, encoding)
    assert new.decoded(data, encoding, old) == {"a": 5, "b": None, "c": 0}
    with pytest.raises(DataMismatch):
        new.decoded(b"\x0a\xff", encoding, new)


def test_types_that_spark_does_not_have_are_named():
    with pytest.raises(SchemaError, match=r"value\.next of .*s@r1 is within itself \(x\.R\)"):
        avro([{"name": "next", "type": ["null", "R"]}])
    with pytest.raises(SchemaError, match=r"value\.next of .* is within itself \(M\)"):
        proto('syntax = "proto3"; message M { M next = 1; }')


def test_a_value_that_the_schema_does_not_allow_is_named():
    schema = avro([{"name": "kind", "type": "string"}, {"name": "n", "type": "int", "default": 4}])
    with pytest.raises(DataMismatch, match=r"value\.kind is null"):
        schema.encoded({"kind": None, "n": None}, Encoding.JSON)
    assert json.loads(schema.encoded({"kind": "x", "n": None}, Encoding.JSON)) == {"kind": "x", "n": 4}
    with pytest.raises(DataMismatch, match=r"value\.kind is 'X', which is no value of shop\.Order\.Kind"):
        proto(PROTO).encoded({"kind": "X"}, Encoding.BINARY)


WANTED = avro(
    [{"name": "id", "type": "long"}, {"name": "note", "type": ["null", "string"]}, {"name": "n", "type": "int"},
     {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}},
     {"name": "m", "type": {"type": "map", "values": "double"}}]
).kind.type  # fmt: skip


FITS = {"id": "long", "n": "integer", "price": "decimal(6,2)", "m": MapType(StringType(), DoubleType())}


def struct(columns):
    made = StructType()
    for name, kind in columns.items():
        made = made.add(name, kind)
    return made


@pytest.mark.parametrize(
    "given", [{}, {"note": "string"}, {"id": "integer", "n": "short", "price": "decimal(5,1)"}], ids=str
)
def test_columns_that_can_be_written(given):
    check_writable(struct(FITS | given), WANTED, "value")


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"id": "string"}, "value.id is string, and the schema wants bigint"),
        ({"n": "long"}, "value.n is bigint, and the schema wants int"),
        ({"price": "decimal(7,2)"}, r"value.price is decimal\(7,2\)"),
        ({"m": MapType(StringType(), StringType())}, r"value.m \(values\) is string"),
        ({"more": "integer"}, "value.more is not in the schema, which has id, note, n, price, m"),
    ],
)
def test_columns_that_can_not_be_written_are_named(given, says):
    with pytest.raises(SchemaError, match=says):
        check_writable(struct(FITS | given), WANTED, "value")


def test_a_field_without_a_default_must_be_there():
    with pytest.raises(SchemaError, match=r"value\.price is missing"):
        check_writable(struct({name: kind for name, kind in FITS.items() if name != "price"}), WANTED, "value")

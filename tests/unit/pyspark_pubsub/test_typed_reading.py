"""Data as typed columns, by what messages say of themselves; and what becomes of those that do not fit."""

import json
import logging
from dataclasses import replace

import pyarrow as pa
import pytest
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from pyspark_pubsub import chosen_schemas
from pyspark_pubsub.chosen_schemas import Typed
from pyspark_pubsub.errors import OptionError, SchemaError
from pyspark_pubsub.options import READ, Options, ServerAccess
from pyspark_pubsub.schema import arrow_schema, check_sink_schema, source_schema
from pyspark_pubsub.slices import Slice
from pyspark_pubsub.typed_reading import ValueColumns
from pyspark_pubsub.typed_values import AVRO, SchemaRevision, readable, schema_of
from pyspark_pubsub.typed_writing import encoded
from syncpoint.catalog.schemas.validators import Encoding

pytestmark = pytest.mark.shows("spark")
TOPIC, NAME = "projects/p/topics/t", "projects/p/schemas/s"
ACCESS = ServerAccess(("127.0.0.1:1",))


def revision(name, *fields):
    definition = {"type": "record", "name": "R", "fields": list(fields)}
    return SchemaRevision(NAME, name, AVRO, json.dumps(definition).encode())


N = {"name": "n", "type": "int"}
OLD, NEW = revision("old", N), revision("new", N, {"name": "kind", "type": "string", "default": "order"})
TYPED = Typed(NEW, Encoding.JSON)
MARKS = {"googclient_schemaname": NAME, "googclient_schemarevisionid": "old", "googclient_schemaencoding": "BINARY"}


@pytest.fixture(autouse=True)
def _known():
    """The older revision, as it was asked for before."""
    chosen_schemas._revisions[ACCESS, f"{NAME}@old"] = OLD
    chosen_schemas._revisions[ACCESS, f"{NAME}@gone"] = None
    yield
    chosen_schemas._revisions.clear()


def decoded(messages, errors="fail", typed=TYPED):
    """Rows of `value` and `decode_error` of messages: (data, attributes)."""
    columns = ["value", "decode_error", "offset"]
    schema = source_schema(columns, readable(schema_of(typed.revision).kind.type))
    part = Slice(ACCESS, TOPIC, 1, 7, 10, 10 + len(messages), schema, typed=replace(typed, errors=errors))
    made = ValueColumns(part, arrow_schema(schema))
    batch = {
        "data": pa.array([data for data, _ in messages], pa.binary()),
        "attributes": pa.array([attributes for _, attributes in messages], pa.map_(pa.string(), pa.string())),
        "offset": pa.array(range(10, 10 + len(messages)), pa.int64()),
    }
    found, rows = made.of(batch)
    made.close()
    assert all(len(column) == rows for column in found.values())
    return [tuple(found[name][i].as_py() for name in columns) for i in range(rows)]


GOOD = (b'{"n": 1, "kind": "x"}', {})
BAD = (b"{", {})


def test_each_message_is_read_by_the_revision_and_encoding_it_names():
    assert decoded([GOOD, (b"\x04", MARKS)]) == [
        ({"n": 1, "kind": "x"}, None, 10),
        ({"n": 2, "kind": "order"}, None, 11),
    ]


def test_marks_of_another_schema_do_not_count():
    other = MARKS | {"googclient_schemaname": "projects/q/schemas/s"}
    assert decoded([(GOOD[0], other)]) == [({"n": 1, "kind": "x"}, None, 10)]


def test_a_message_of_a_deleted_revision_is_not_guessed():
    ((value, error, _),) = decoded([(b"\x04", MARKS | {"googclient_schemarevisionid": "gone"})], "null")
    assert value is None
    assert error == "it was written by revision gone, which is deleted"


def test_what_does_not_fit_fails_with_its_place_and_the_way_out():
    with pytest.raises(SchemaError, match=r"offset 11 of source 7 of .*/t does not fit .*s@new: .*decodeErrors=null"):
        decoded([GOOD, BAD])


def test_what_does_not_fit_is_null_beside_its_error():
    (_, one), (value, two) = [row[:2] for row in decoded([GOOD, BAD], "null")]
    assert (one, value) == (None, None)
    assert "not JSON" in two


def test_what_does_not_fit_is_left_out_and_counted(caplog):
    with caplog.at_level(logging.WARNING, "pyspark_pubsub"):
        assert [row[2] for row in decoded([BAD, GOOD, BAD, GOOD], "drop")] == [11, 13]
    assert "2 of the messages of source 7 of projects/p/topics/t, from offset 10 to 13, left out" in caplog.text


def test_a_value_beyond_the_type_of_its_column_is_an_error_of_its_row_only():
    """A decimal of more digits than the schema says: nothing in Avro forbids it."""
    wide = {"name": "n", "type": {"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 0}}
    typed = Typed(revision("d", wide), Encoding.BINARY)
    (one, none), (value, error) = [
        row[:2] for row in decoded([(b"\x02\x05", {}), (b"\x04\x7f\xff", {})], "null", typed)
    ]
    assert (int(one["n"]), none, value) == (5, None, None)
    assert error


def test_rows_become_data_with_the_marks_of_their_revision():
    value = pa.array([{"n": 3, "kind": "a"}], pa.struct([("n", pa.int32()), ("kind", pa.string())]))
    own = pa.array([{"k": "v", "googclient_schemarevisionid": "claimed"}], pa.map_(pa.string(), pa.string()))
    batch = pa.RecordBatch.from_arrays([own, value], names=["attributes", "value"])
    (made,) = encoded(TYPED, iter([batch]))
    assert json.loads(made.column("data")[0].as_py()) == {"n": 3, "kind": "a"}
    marks = {"googclient_schemaname": NAME, "googclient_schemarevisionid": "new", "googclient_schemaencoding": "JSON"}
    assert dict(made.column("attributes")[0].as_py()) == {"k": "v"} | marks


def test_a_row_that_can_not_be_encoded_fails_by_its_field():
    batch = pa.RecordBatch.from_arrays([pa.array([{"n": None}], pa.struct([("n", pa.int32())]))], names=["value"])
    with pytest.raises(SchemaError, match=r"does not fit .*s@new: value\.n is null"):
        list(encoded(TYPED, iter([batch])))


def test_columns_and_options_that_do_not_go_together():
    value = IntegerType()
    assert source_schema((), value).fieldNames()[4] == "value"
    assert source_schema((), value, errors=True).fieldNames()[-1] == "decode_error"
    for columns, kind, says in (
        (["value"], None, "needs the option decode"),
        (["data"], value, "the option columns has neither"),
    ):
        with pytest.raises(SchemaError, match=says):
            source_schema(columns, kind)
    rows = StructType([StructField("value", StringType())])
    with pytest.raises(SchemaError, match="set encode=topic"):
        check_sink_schema(rows, topic=True, link=False)
    with pytest.raises(SchemaError, match="and no column data"):
        check_sink_schema(rows.add("data", "string"), topic=True, link=False, encode=True)
    check_sink_schema(StructType([StructField("value", value)]), topic=True, link=False, encode=True)
    given = Options({"endpoint": "a:1", "topic": TOPIC, "decode": "topic", "decodeErrors": "skip"}, READ)
    with pytest.raises(OptionError, match="decodeErrors is fail or null or drop, not 'skip'"):
        chosen_schemas.decoding(given)

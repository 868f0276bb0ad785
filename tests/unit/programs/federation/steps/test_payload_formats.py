"""Formats: equal contents become equal records, whatever they are written in; nothing that is said shows a value."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncpoint.base.model.errors import InvalidArgument
from syncpoint.catalog.schemas.compiler import compile_proto
from syncpoint.programs.federation.steps.normalising import UNREADABLE, Normal, rewriter
from syncpoint.programs.federation.steps.payload_formats import BadPayload, InputFormat, RecordSchema, decoder, encoder
from syncpoint.programs.federation.steps.validating import AVRO, PROTOBUF, SchemaText

AVSC = json.dumps(
    {
        "type": "record",
        "name": "R",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "name", "type": "string"},
            {"name": "real", "type": "double"},
            {"name": "yes", "type": "boolean"},
            {"name": "note", "type": ["null", "string"], "default": None},
        ],
    }
)
PROTO = "message R { int64 id = 1; string name = 2; double real = 3; bool yes = 4; optional string note = 5; }"
SCHEMA = RecordSchema(AVSC)
COLUMNS = ("id", "name", "real", "yes", "note")


@pytest.fixture(scope="module")
def proto() -> SchemaText:
    text = f'syntax = "proto3"; {PROTO}'
    return SchemaText(PROTOBUF, text, compiled=compile_proto(text))


records = st.fixed_dictionaries(
    {
        "id": st.integers(-(1 << 63), (1 << 63) - 1),
        "name": st.text(st.characters(codec="utf-8", exclude_characters="\0\r\n"), min_size=1),
        "real": st.floats(allow_nan=False, allow_infinity=False),
        "yes": st.booleans(),
        "note": st.none() | st.text(st.characters(codec="utf-8", exclude_characters="\0\r\n"), min_size=1),
    }
)


def written(record: dict[str, Any], proto: SchemaText) -> dict[str, tuple[InputFormat, bytes]]:
    """The record in each format."""
    out = io.StringIO()
    values = ["" if record[name] is None else str(record[name]) for name in COLUMNS]
    csv.writer(out, lineterminator="").writerow(values)
    avro = io.BytesIO()
    fastavro.schemaless_writer(avro, fastavro.parse_schema(json.loads(AVSC)), record)
    return {
        "csv": (InputFormat("csv", columns=COLUMNS), out.getvalue().encode()),
        "json": (InputFormat("json"), json.dumps(record).encode()),
        AVRO: (InputFormat(AVRO, definition=SchemaText(AVRO, AVSC)), avro.getvalue()),
        PROTOBUF: (InputFormat(PROTOBUF, definition=proto), encoder(PROTOBUF, AVSC, proto)(record)),
    }


@given(record=records)
def test_one_record_whatever_it_came_in(record: dict[str, Any], proto: SchemaText) -> None:
    record = {name: record[name] for name in COLUMNS}
    for kind, (given_format, data) in written(record, proto).items():
        assert SCHEMA.record(decoder(given_format)(data), {}) == record, kind
        for output in ("json", AVRO, PROTOBUF):
            normal = Normal(AVSC, (("one", given_format),), output, output_definition=proto)
            made, attributes, reason, detail = rewriter(normal)(data, {"a": "b"})
            assert (reason, detail) == (None, None)
            assert made == encoder(output, AVSC, proto)(record), (kind, output)
            assert attributes["a"] == "b"


@given(data=st.binary(max_size=60))
def test_nothing_but_what_is_said_comes_of_any_bytes(data: bytes, proto: SchemaText) -> None:
    for given_format, _ in written({"id": 1, "name": "n", "real": 1.0, "yes": True, "note": None}, proto).values():
        made, attributes, reason, _ = rewriter(Normal(AVSC, (("one", given_format),), "json"))(data, {"a": "b"})
        assert reason is None or (reason, made, attributes) == (UNREADABLE, data, {"a": "b"})


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ([1], "not a record"),
        ({"name": "n"}, "the field id is missing"),
        ({"id": "4111-1111"}, "the field id is not of type long"),
        ({"id": 1 << 63}, "the field id is not of type long"),
        ({"id": 1.5}, "the field id is not of type long"),
        ({"id": True}, "the field id is not of type long"),
        ({"id": 1, "name": 4111}, "the field name is not of type string"),
        ({"id": 1, "name": "n", "real": "4111x"}, "the field real is not of type double"),
        ({"id": 1, "name": "n", "real": "nan"}, "the field real is not of type double"),
        ({"id": 1, "name": "n", "real": 1, "yes": "4111"}, "the field yes is not of type boolean"),
    ],
)
def test_what_does_not_fit_is_named_and_not_shown(value: Any, says: str) -> None:
    with pytest.raises(BadPayload) as error:
        SCHEMA.record(value, {})
    assert str(error.value) == says
    assert "4111" not in str(error.value)


def test_fields_are_found_where_the_task_says() -> None:
    found = SCHEMA.record({"a": {"b": "7"}, "name": "n", "real": 1, "yes": "false"}, {"id": "a.b"})
    assert found == {"id": 7, "name": "n", "real": 1.0, "yes": False, "note": None}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('"string"', "not a record"),
        ('{"type":"record","name":"R","fields":[{"name":"a","type":["string","long"]}]}', "the field a must be"),
        ('{"type":"record","name":"R","fields":[{"name":"a","type":{"type":"array","items":"int"}}]}', "the field a"),
    ],
)
def test_a_schema_that_is_not_plain_is_refused(text: str, says: str) -> None:
    with pytest.raises(InvalidArgument, match=says):
        RecordSchema(text)

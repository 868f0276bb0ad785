"""Schemas: what is read equals what Spark expects, what is written is checked with words that help."""

import itertools

import pytest
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructField, StructType

from pyspark_pubsub.errors import SchemaError
from pyspark_pubsub.rpc import pb
from pyspark_pubsub.schema import (
    CONSTANT,
    DEFAULT,
    IN_BLOCK,
    NUMBERS,
    TYPES,
    arrow_schema,
    check_sink_schema,
    check_source_schema,
    source_schema,
    wire_columns,
)


def test_numbers_are_those_of_the_interface():
    assert {name.upper(): number for name, number in NUMBERS.items()} == {
        name: number for number in range(1, 10) for name in [pb.Column.Name(number)]
    }
    assert set(TYPES) == set(NUMBERS) | set(CONSTANT) | {"block", "rows", "json_fields", "json_end"}
    assert set(IN_BLOCK) == set(NUMBERS) - {"size"}


def test_the_default_is_the_documented_schema():
    assert source_schema().fieldNames() == list(DEFAULT)
    assert source_schema().simpleString() == (
        "struct<message_id:string,source:bigint,offset:bigint,publish_time:timestamp,data:binary,"
        "attributes:map<string,string>,ordering_key:string,topic:string>"
    )


def test_columns_are_chosen_in_any_order():
    for chosen in itertools.permutations((*NUMBERS, *CONSTANT), 3):
        schema = source_schema(chosen)
        assert schema.fieldNames() == list(chosen)
        assert arrow_schema(schema).names == list(chosen)
        assert wire_columns(chosen) == [NUMBERS[name] for name in chosen if name in NUMBERS]


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        (("date",), "no column 'date'"),
        (("data", "data"), "twice"),
        (("source", "rows"), "Rows of the column `block`"),
        (("block", "data"), "no columns of single messages"),
    ],
)
def test_bad_columns(columns, says):
    with pytest.raises(SchemaError, match=says):
        source_schema(columns)


def test_a_block_holds_all_that_a_copy_keeps():
    assert arrow_schema(source_schema(("source", "rows", "block"))).names == ["source", "rows", "block"]
    assert wire_columns(("block", "source", "topic")) == [NUMBERS[name] for name in IN_BLOCK]


def test_a_users_schema_is_checked():
    check_source_schema(StructType([StructField("ordering_key", StringType(), False)]))
    with pytest.raises(SchemaError, match="data of messages is binary, not string"):
        check_source_schema(StructType([StructField("data", StringType())]))
    with pytest.raises(SchemaError, match="no column 'x'"):
        check_source_schema(StructType([StructField("x", StringType())]))


@pytest.mark.parametrize(
    ("fields", "topic", "link", "says"),
    [
        ([("id", IntegerType())], True, False, "no column `data`"),
        ([("data", IntegerType())], True, False, "must be string or binary, not int"),
        ([("data", StringType()), ("tier", StringType())], True, False, "tier cannot be published"),
        ([("data", StringType())], False, False, "Set the option topic"),
        ([("data", StringType())], True, True, "source and offset"),
        ([("data", StringType()), ("attributes", StringType())], True, False, "map<string,string>"),
        ([("block", BinaryType())], True, False, "Set the option link"),
        ([("block", BinaryType())], True, True, "source and block"),
        ([("block", BinaryType()), ("source", LongType()), ("data", StringType())], True, True, "single messages"),
    ],
)
def test_what_cannot_be_published_is_said(fields, topic, link, says):
    with pytest.raises(SchemaError, match=says):
        check_sink_schema(StructType([StructField(*field) for field in fields]), topic=topic, link=link)


def test_just_data_is_enough_and_what_was_read_can_be_written():
    check_sink_schema(StructType([StructField("data", StringType())]), topic=True, link=False)
    check_sink_schema(source_schema((*NUMBERS, *CONSTANT)), topic=False, link=True)
    check_sink_schema(source_schema(("block", "rows", "topic", "source")), topic=False, link=True)

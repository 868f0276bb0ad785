"""The columns of messages: their names in Spark, their types there and in Arrow, their numbers on the wire.

Place: between Spark's schema and what the server is asked for.
Promise: `arrow_schema` is what Spark compares the first batch with, for every choice of columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pyspark_pubsub.errors import SchemaError

if TYPE_CHECKING:
    import pyarrow

#: Column of the wire (syncpoint.pipeline.v1.Column) by name; those of `CONSTANT` are the same in a whole
#: partition and are not asked for.
NUMBERS = {
    "message_id": 1,
    "offset": 2,
    "publish_time": 3,
    "data": 4,
    "attributes": 5,
    "ordering_key": 6,
    "origin": 7,
    "visited": 8,
    "size": 9,
}
CONSTANT = ("source", "topic", "flow")
#: What a task finds in `data` before Spark has rows of it; they are not asked for either.
JSON_FIELDS, JSON_END = "json_fields", "json_end"
FOUND = (JSON_FIELDS, JSON_END)
#: What a task makes of `data` by a schema: typed columns, and why there are none.
VALUE, DECODE_ERROR = "value", "decode_error"
MADE = (*FOUND, VALUE, DECODE_ERROR)
#: What a block carries, in this order: all that a copy of a message keeps.
IN_BLOCK = ("message_id", "offset", "publish_time", "data", "attributes", "ordering_key", "origin", "visited")
WITH_BLOCK = ("block", "rows", *CONSTANT)

TYPES: dict[str, DataType] = {
    "message_id": StringType(),
    "source": LongType(),
    "offset": LongType(),
    "publish_time": TimestampType(),
    "data": BinaryType(),
    "attributes": MapType(StringType(), StringType()),
    "ordering_key": StringType(),
    "topic": StringType(),
    "origin": StringType(),
    "visited": ArrayType(StringType()),
    "size": IntegerType(),
    "block": BinaryType(),
    "rows": IntegerType(),
    "flow": StringType(),
    JSON_FIELDS: MapType(StringType(), StringType()),
    JSON_END: IntegerType(),
}
DEFAULT = ("message_id", "source", "offset", "publish_time", "data", "attributes", "ordering_key", "topic")


def source_schema(columns: Sequence[str] = (), value: DataType | None = None, *, errors: bool = False) -> StructType:
    """What is read: the columns chosen, in their order; none: `DEFAULT`. `value`: the type of data by their schema,
    which stands in place of them by default; `errors`: with their errors. Raises SchemaError.
    """
    types: dict[str, DataType] = TYPES
    default: tuple[str, ...] = DEFAULT
    if value is not None:
        types = {**TYPES, VALUE: value, DECODE_ERROR: StringType()}
        default = tuple(VALUE if name == "data" else name for name in DEFAULT) + ((DECODE_ERROR,) if errors else ())
    chosen = tuple(columns) or default
    for name in chosen:
        if name in (VALUE, DECODE_ERROR) and value is None:
            raise SchemaError(f"The column {name} needs the option decode, which names its schema: decode=topic.")
        if name not in types:
            raise SchemaError(f"Messages have no column {name!r}; the option columns takes {', '.join(types)}.")
    if value is not None and not {VALUE, DECODE_ERROR} & set(chosen):
        raise SchemaError("The option decode makes the columns value and decode_error; the option columns has neither.")
    if len(set(chosen)) < len(chosen):
        raise SchemaError("The option columns names a column twice.")
    _check_read(chosen)
    return StructType([StructField(name, types[name]) for name in chosen])


def check_source_schema(schema: StructType, *, decode: bool = False) -> None:
    """A schema that the user gave: columns of messages, with their types. `decode`: `value` may have any type here.
    Raises SchemaError.
    """
    for field in schema.fields:
        if decode and field.name in (VALUE, DECODE_ERROR):
            continue
        wanted = TYPES.get(field.name)
        if wanted is None:
            raise SchemaError(f"Messages have no column {field.name!r}, but {', '.join(TYPES)}.")
        if field.dataType.simpleString() != wanted.simpleString():
            got = field.dataType.simpleString()
            raise SchemaError(f"The column {field.name} of messages is {wanted.simpleString()}, not {got}.")
    _check_read(schema.fieldNames())


def _check_read(names: Sequence[str]) -> None:
    """Columns that belong together."""
    _check_block(names)
    for name in FOUND:
        if name in names and "data" not in names:
            raise SchemaError(f"The column {name} is what is found in data: choose the column data, too.")


def _check_block(names: Sequence[str]) -> None:
    """A row is a message, or a block of them."""
    if "block" not in names and "rows" not in names:
        return
    beside = [name for name in names if name not in (*WITH_BLOCK, "target_topic")]
    if "block" not in names or beside:
        raise SchemaError(
            f"Rows of the column `block` hold many messages each: beside it there may be {', '.join(WITH_BLOCK[1:])},"
            " and no columns of single messages."
        )


def arrow_schema(schema: StructType) -> pyarrow.Schema:
    """The Arrow schema that Spark expects of batches read with this schema."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(schema, timezone="UTC")


def wire_columns(names: Iterable[str]) -> list[int]:
    """The numbers of the columns that the server fills, in their order."""
    chosen = tuple(names)
    return [NUMBERS[name] for name in (IN_BLOCK if "block" in chosen else chosen) if name not in (*CONSTANT, *MADE)]


# ------------------------------------------------------------------------------------------------------------- writing

#: What the sink takes beside `data`; `size` says nothing about a new message and is passed over.
WRITABLE: dict[str, tuple[str, ...]] = {
    "data": ("string", "binary"),
    "attributes": ("map<string,string>",),
    "ordering_key": ("string",),
    "topic": ("string",),
    "target_topic": ("string",),
    "message_id": ("string",),
    "publish_time": ("timestamp",),
    "source": ("bigint", "int"),
    "offset": ("bigint", "int"),
    "origin": ("string",),
    "visited": ("array<string>",),
    "size": ("int", "bigint"),
    "flow": ("string",),
}


def _with_data(schema: StructType, encode: bool) -> StructType:
    """The rows as they are once `value` is encoded. Raises SchemaError."""
    names = schema.fieldNames()
    if not encode:
        if VALUE in names:
            raise SchemaError(
                "The rows have a column value, and no option names the schema to encode it by: set encode=topic, or"
                " leave the column out."
            )
        return schema
    if VALUE not in names or "data" in names:
        raise SchemaError(
            "With the option encode, rows have a column value, of the schema's fields, and no column data. For example"
            " .selectExpr('struct(*) AS value')"
        )
    return StructType([StructField("data", BinaryType()) if one.name == VALUE else one for one in schema.fields])


_OF_BLOCKS = {"block": ("binary",), "rows": ("int", "bigint")}


def check_sink_schema(schema: StructType, *, topic: bool, link: bool, encode: bool = False) -> None:
    """Whether rows of this schema can become messages. `topic`: the option is set; `encode`: they have a `value`, whose
    type is checked elsewhere. Raises SchemaError.
    """
    schema = _with_data(schema, encode)
    names = {field.name for field in schema.fields}
    writable = WRITABLE
    if "block" in names:
        _check_block(schema.fieldNames())
        writable = WRITABLE | _OF_BLOCKS
    if not names & {"data", "block"}:
        found = ", ".join(sorted(names)) or "nothing"
        raise SchemaError(
            f"The rows have no column `data` (string or binary) to publish, but {found}. For example"
            " .selectExpr('to_json(struct(*)) AS data')"
        )
    for field in schema.fields:
        kinds = writable.get(field.name)
        got = field.dataType.simpleString()
        if kinds is None:
            raise SchemaError(
                f"The column {field.name} cannot be published. A message has {', '.join(WRITABLE)}: drop the column, or"
                " put its value into data or attributes."
            )
        if got not in kinds and not (got.startswith(("char", "varchar")) and "string" in kinds):
            raise SchemaError(f"The column {field.name} must be {' or '.join(kinds)}, not {got}.")
    if not topic and not names & {"topic", "target_topic"}:
        raise SchemaError(
            "Where do the rows go? Set the option topic, or give the rows a column topic or target_topic."
        )
    if "block" in names and not link:
        raise SchemaError("Blocks of messages are copied as they are: that is for links. Set the option link.")
    if link and not {"source", "block" if "block" in names else "offset"} <= names:
        raise SchemaError(
            "A link needs the columns source and offset (or source and block) as they were read, to know what is copied"
            " already."
        )

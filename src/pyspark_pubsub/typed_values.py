"""Between values of a schema and columns of Spark: what both kinds of schemas share.

Place: under `typed_reading` and `typed_writing`, in Spark's planning and in its tasks. `typed_avro` and `typed_proto`
make a `ValueKind` for each type of a schema.
Promise: a revision means the same columns wherever it is read. Definitions are checked when they are made, and messages
by the code that checks them when they are published, so that no message costs more than its size explains.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

from pyspark.sql.types import ArrayType, DataType, DecimalType, MapType, StructField, StructType

from pyspark_pubsub.errors import SchemaError
from syncpoint.catalog.schemas.validators import Encoding

AVRO, PROTOCOL_BUFFER = 2, 1  # of google.pubsub.v1.Schema.Type
Convert = Callable[[Any], Any]


class DataMismatch(ValueError):
    """Data are no value of the schema, or a value is none that the schema allows."""


@dataclass(frozen=True)
class SchemaRevision:
    """One revision as tasks get it. `definition`: the text of Avro, or the descriptors of Protocol Buffers."""

    name: str
    id: str
    kind: int
    definition: bytes
    root: str = ""

    @property
    def full_name(self) -> str:
        """As the service names a revision."""
        return f"{self.name}@{self.id}"


@dataclass(frozen=True)
class ValueKind:
    """A type of a schema in Spark. A field of a struct that may be missing or null is `nullable` in `type`.

    `read`: from the value of the schema's library to that of Arrow; `write`: back. None: they are the same.
    """

    type: DataType
    read: Convert | None = None
    write: Convert | None = None
    optional: bool = False


class TypedSchema(Protocol):
    """A revision, ready for use."""

    kind: ValueKind

    def decoded(self, data: bytes, encoding: Encoding, writer: Any) -> Any:
        """The value as Arrow takes it; `writer`: the revision it was written by. Raises `DataMismatch`."""
        ...

    def encoded(self, value: Any, encoding: Encoding) -> bytes:
        """The data of a message. Raises `DataMismatch`."""
        ...


@lru_cache(64)
def schema_of(revision: SchemaRevision) -> TypedSchema:
    """The revision, ready for use. Raises `SchemaError` where Spark has no type for one of its own."""
    if revision.kind == AVRO:
        from pyspark_pubsub.typed_avro import AvroSchema

        return AvroSchema(revision)
    from pyspark_pubsub.typed_proto import ProtoSchema

    return ProtoSchema(revision)


def readable(kind: DataType) -> DataType:
    """The type of a column that is read: everything in it may be null, as Arrow's own types may."""
    if isinstance(kind, StructType):
        return StructType([StructField(field.name, readable(field.dataType)) for field in kind.fields])
    if isinstance(kind, ArrayType):
        return ArrayType(readable(kind.elementType))
    if isinstance(kind, MapType):
        return MapType(readable(kind.keyType), readable(kind.valueType))
    return kind


_WIDER = {
    "int": ("tinyint", "smallint"),
    "bigint": ("tinyint", "smallint", "int"),
    "double": ("float", "tinyint", "smallint", "int"),
    "float": ("tinyint", "smallint"),
}


def check_writable(given: DataType, wanted: DataType, path: str) -> None:
    """Whether a column can be written as the schema wants it. Raises `SchemaError`, naming the field."""
    if isinstance(wanted, StructType) and isinstance(given, StructType):
        known, found = {field.name: field for field in wanted.fields}, {field.name for field in given.fields}
        for field in given.fields:
            if field.name not in known:
                raise SchemaError(f"{path}.{field.name} is not in the schema, which has {', '.join(known)}.")
            check_writable(field.dataType, known[field.name].dataType, f"{path}.{field.name}")
        for name, field in known.items():
            if name not in found and not field.nullable:
                raise SchemaError(f"{path}.{name} is missing, and the schema has no default for it.")
        return None
    if isinstance(wanted, ArrayType) and isinstance(given, ArrayType):
        return check_writable(given.elementType, wanted.elementType, f"{path}[]")
    if isinstance(wanted, MapType) and isinstance(given, MapType):
        check_writable(given.keyType, wanted.keyType, f"{path} (keys)")
        return check_writable(given.valueType, wanted.valueType, f"{path} (values)")
    got, needed = given.simpleString(), wanted.simpleString()
    if isinstance(wanted, DecimalType) and isinstance(given, DecimalType):
        room = wanted.precision - wanted.scale
        if given.scale <= wanted.scale and given.precision - given.scale <= room:
            return None
    elif got == needed or got in _WIDER.get(needed, ()) or (needed == "string" and got.startswith(("char", "varchar"))):
        return None
    raise SchemaError(f"{path} is {got}, and the schema wants {needed}.")

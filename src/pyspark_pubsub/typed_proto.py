"""Protocol Buffers: its types as Spark's, and messages as columns.

Place: under `typed_values`. Fields that a message has and the revision does not are left out, fields that it lacks have
their default, or are null where one can say that they are not set.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from google.protobuf import json_format
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pyspark_pubsub.errors import SchemaError
from pyspark_pubsub.typed_values import Convert, DataMismatch, SchemaRevision, ValueKind
from syncpoint.catalog.schemas.errors import BadDefinition
from syncpoint.catalog.schemas.limits import NESTING_MAX
from syncpoint.catalog.schemas.proto import ProtoDefinition
from syncpoint.catalog.schemas.validators import Encoding

_F = FieldDescriptor
_TIMESTAMP = "google.protobuf.Timestamp"
_TYPES: dict[int, DataType] = {
    **dict.fromkeys((_F.TYPE_INT32, _F.TYPE_SINT32, _F.TYPE_SFIXED32), IntegerType()),
    **dict.fromkeys((_F.TYPE_INT64, _F.TYPE_SINT64, _F.TYPE_SFIXED64), LongType()),
    **dict.fromkeys((_F.TYPE_UINT32, _F.TYPE_FIXED32), LongType()),
    **dict.fromkeys((_F.TYPE_UINT64, _F.TYPE_FIXED64), DecimalType(20, 0)),
    _F.TYPE_FLOAT: FloatType(),
    _F.TYPE_DOUBLE: DoubleType(),
    _F.TYPE_BOOL: BooleanType(),
    _F.TYPE_STRING: StringType(),
    _F.TYPE_BYTES: BinaryType(),
}
_UINT64 = (_F.TYPE_UINT64, _F.TYPE_FIXED64)
_NESTED = (_F.TYPE_MESSAGE, _F.TYPE_GROUP)
Fill = Callable[[Any, Any], None]
"""Set the fields of a message from a value."""


class ProtoSchema:
    """A revision in Protocol Buffers."""

    def __init__(self, revision: SchemaRevision) -> None:
        """Raises `SchemaError`."""
        try:
            self._definition = ProtoDefinition(revision.definition, revision.root)
        except BadDefinition as error:
            raise SchemaError(f"The definition of {revision.full_name} cannot be used: {error}.") from None
        struct, self._read, self._fill = _Messages(revision.full_name).of(
            self._definition.message.DESCRIPTOR, "value", ()
        )
        self.kind = ValueKind(struct)

    def decoded(self, data: bytes, encoding: Encoding, writer: ProtoSchema) -> Any:
        """The value as Arrow takes it; by whom it was written makes no difference. Raises `DataMismatch`."""
        try:
            if encoding is Encoding.JSON:
                message = self._definition.message()
                json_format.Parse(
                    data.decode(),
                    message,
                    ignore_unknown_fields=True,
                    descriptor_pool=self._definition.pool,
                    max_recursion_depth=NESTING_MAX,
                )
            else:
                message = self._definition.message.FromString(data)
            return self._read(message)
        except DecodeError:
            raise DataMismatch(f"it is not a message {self._definition.root}") from None
        except (json_format.ParseError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise DataMismatch(str(error) or repr(error)) from None

    def encoded(self, value: Any, encoding: Encoding) -> bytes:
        """The data of a message. Raises `DataMismatch`."""
        message = self._definition.message()
        try:
            self._fill(message, value)
            if not message.IsInitialized():
                missing = ", ".join(message.FindInitializationErrors())
                raise DataMismatch(f"required fields are null: {missing}")
            if encoding is Encoding.JSON:
                text: str = json_format.MessageToJson(
                    message, indent=None, preserving_proto_field_name=True, descriptor_pool=self._definition.pool
                )
                return text.encode()
            encoded: bytes = message.SerializeToString()
            return encoded
        except (ValueError, TypeError, KeyError, OverflowError) as error:
            raise error if isinstance(error, DataMismatch) else DataMismatch(str(error) or repr(error)) from None


class _Messages:
    def __init__(self, name: str) -> None:
        self._name = name

    def of(self, message: Any, path: str, around: tuple[str, ...]) -> tuple[DataType, Convert, Fill]:
        """`around`: the messages that this one is within. Raises `SchemaError`."""
        if message.full_name == _TIMESTAMP:
            return (
                TimestampType(),
                lambda found: found.ToDatetime(UTC),
                lambda made, value: made.FromDatetime(_utc(value)),
            )
        if message.full_name in around:
            raise SchemaError(
                f"{path} of {self._name} is within itself ({message.full_name}), for which Spark has no type. Read the"
                " column data, and decode it in a function of your own."
            )
        inner = (*around, message.full_name)
        fields = {one.name: self._field(one, f"{path}.{one.name}", inner) for one in message.fields}
        struct = StructType(
            [StructField(one.name, fields[one.name][0], not _is_required(one)) for one in message.fields]
        )

        def read(found: Any) -> Any:
            return {name: get(found) for name, (_, get, _) in fields.items()}

        def fill(made: Any, value: Any) -> None:
            for name, (_, _, put) in fields.items():
                if (found := value.get(name)) is not None:
                    put(made, found)

        return struct, read, fill

    def _field(self, field: Any, path: str, around: tuple[str, ...]) -> tuple[DataType, Convert, Fill]:
        name = field.name
        entry = field.message_type
        if entry is not None and entry.GetOptions().map_entry:
            return self._map(field, path, around)
        kind, read, fill = self._single(field, path, around)
        nested = field.type in _NESTED
        if _is_repeated(field):

            def put_all(made: Any, value: Any) -> None:
                items = getattr(made, name)
                for one in value:
                    if nested:
                        fill(items.add(), one)
                    else:
                        items.append(fill(None, one))

            return ArrayType(kind), lambda found: [read(one) for one in getattr(found, name)], put_all

        def get(found: Any) -> Any:
            if field.has_presence and not found.HasField(name):
                return None
            return read(getattr(found, name))

        def put(made: Any, value: Any) -> None:
            if nested:
                getattr(made, name).SetInParent()
                fill(getattr(made, name), value)
            else:
                setattr(made, name, fill(None, value))

        return kind, get, put

    def _map(self, field: Any, path: str, around: tuple[str, ...]) -> tuple[DataType, Convert, Fill]:
        name, entry = field.name, field.message_type.fields_by_name
        key_kind, read_key, fill_key = self._single(entry["key"], f"{path} (keys)", around)
        kind, read, fill = self._single(entry["value"], f"{path} (values)", around)
        nested = entry["value"].type in _NESTED

        def get(found: Any) -> Any:
            return [(read_key(key), read(value)) for key, value in getattr(found, name).items()]

        def put(made: Any, value: Any) -> None:
            items = getattr(made, name)
            for key, one in dict(value).items():
                if nested:
                    fill(items[fill_key(None, key)], one)
                else:
                    items[fill_key(None, key)] = fill(None, one)

        return MapType(key_kind, kind), get, put

    def _single(
        self, field: Any, path: str, around: tuple[str, ...]
    ) -> tuple[DataType, Convert, Callable[[Any, Any], Any]]:
        """One value; the last function sets those of messages, and of others returns what is to be set."""
        if field.type in _NESTED:
            return self.of(field.message_type, path, around)
        if field.type == _F.TYPE_ENUM:
            numbers, names = field.enum_type.values_by_number, field.enum_type.values_by_name

            def named(number: int) -> str:
                return names_of[number] if number in names_of else str(number)

            def numbered(_: Any, value: str) -> int:
                if value not in names:
                    raise DataMismatch(f"{path} is {value!r}, which is no value of {field.enum_type.full_name}")
                return int(names[value].number)

            names_of = {number: value.name for number, value in numbers.items()}
            return StringType(), named, numbered
        if field.type in _UINT64:
            return _TYPES[field.type], Decimal, lambda _, value: int(value)
        return _TYPES[field.type], lambda value: value, lambda _, value: value


def _is_repeated(field: Any) -> bool:
    found = getattr(field, "is_repeated", None)
    return bool(field.label == _F.LABEL_REPEATED if found is None else found)


def _is_required(field: Any) -> bool:
    found = getattr(field, "is_required", None)
    return bool(field.label == _F.LABEL_REQUIRED if found is None else found)


def _utc(value: datetime) -> datetime:
    return value.astimezone(UTC).replace(tzinfo=None)

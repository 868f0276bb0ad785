"""Avro: its types as Spark's, and messages by the revision they were written with, read as another one has it.

Place: under `typed_values`.
Promise: fastavro reads only data that `AvroChecker` has found to be one value and nothing else.
"""

from __future__ import annotations

import io
import json
from dataclasses import replace
from datetime import date
from decimal import Decimal
from typing import Any

import fastavro
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from pyspark_pubsub.errors import SchemaError
from pyspark_pubsub.typed_values import Convert, DataMismatch, SchemaRevision, ValueKind
from syncpoint.catalog.schemas import avro
from syncpoint.catalog.schemas.errors import BadDefinition, Mismatch
from syncpoint.catalog.schemas.validators import Encoding

_PRIMITIVES: dict[str, DataType] = {
    "null": StringType(),  # there is no value of it
    "boolean": BooleanType(),
    "int": IntegerType(),
    "long": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "bytes": BinaryType(),
    "string": StringType(),
}
_LOGICAL: dict[tuple[str, str], DataType] = {
    ("int", "date"): DateType(),
    ("long", "timestamp-millis"): TimestampType(),
    ("long", "timestamp-micros"): TimestampType(),
    ("long", "local-timestamp-millis"): TimestampNTZType(),
    ("long", "local-timestamp-micros"): TimestampNTZType(),
}
_VALUES: dict[str, tuple[type, ...]] = {
    "boolean": (bool,),
    "int": (int, date, Decimal),
    "long": (int, date, Decimal),  # a datetime is a date
    "float": (float,),
    "double": (float,),
    "bytes": (bytes, Decimal),
    "fixed": (bytes, Decimal),
    "string": (str,),
    "enum": (str,),
    "array": (list,),
    "map": (dict,),
    "record": (dict,),
    "error": (dict,),
}
_DECIMAL_MAX = 38


class AvroSchema:
    """A revision in Avro."""

    def __init__(self, revision: SchemaRevision) -> None:
        """Raises `SchemaError`."""
        text = revision.definition.decode()
        try:
            self._checker = avro.AvroChecker(avro.parse(text))
            self._named: dict[str, Any] = {}
            self._parsed = fastavro.parse_schema(_known(json.loads(text)), named_schemas=self._named)
        except BadDefinition as error:
            raise SchemaError(f"The definition of {revision.full_name} cannot be used: {error}.") from None
        self.kind = _Kinds(self._named, revision.full_name).of(self._parsed, "value", ())

    def decoded(self, data: bytes, encoding: Encoding, writer: AvroSchema) -> Any:
        """The value as Arrow takes it. Raises `DataMismatch`."""
        try:
            if encoding is Encoding.JSON:
                writer._checker.check_json(data)
                source = io.BytesIO()
                fastavro.schemaless_writer(source, writer._parsed, writer._native(writer._parsed, json.loads(data)))
                source.seek(0)
            else:
                writer._checker.check_binary(data)
                source = io.BytesIO(data)
            wanted = None if writer is self else self._parsed
            value = fastavro.schemaless_reader(source, writer._parsed, wanted, return_named_type=True)
            return self.kind.read(value) if self.kind.read is not None else value
        except Mismatch as error:
            raise DataMismatch(str(error)) from None
        except Exception as error:  # fastavro raises many kinds for what does not resolve
            raise DataMismatch(str(error) or repr(error)) from None

    def encoded(self, value: Any, encoding: Encoding) -> bytes:
        """The data of a message. Raises `DataMismatch`."""
        try:
            native = self.kind.write(value) if self.kind.write is not None else value
            if encoding is Encoding.JSON:
                text = io.StringIO()
                fastavro.json_writer(text, self._parsed, [native])
                return text.getvalue().encode()
            out = io.BytesIO()
            fastavro.schemaless_writer(out, self._parsed, native)
            return out.getvalue()
        except DataMismatch:
            raise
        except Exception as error:  # as above
            raise DataMismatch(str(error) or repr(error)) from None

    def _native(self, schema: Any, value: Any) -> Any:
        """What fastavro writes for a value in Avro's JSON, with the branches of unions named."""
        if isinstance(schema, list):
            if value is None:
                return None
            ((name, inner),) = value.items()
            branch = next(one for one in schema if avro.name_of(one) == name)
            return name, self._native(branch, inner)
        if isinstance(schema, str) and schema not in _PRIMITIVES:
            schema = self._named[schema]
        kind = schema if isinstance(schema, str) else schema["type"]
        if kind in avro.RECORDS:
            return {one["name"]: self._native(one["type"], value[one["name"]]) for one in schema["fields"]}
        if kind == "array":
            return [self._native(schema["items"], one) for one in value]
        if kind == "map":
            return {key: self._native(schema["values"], one) for key, one in value.items()}
        return value.encode("iso-8859-1") if kind in ("bytes", "fixed") else value


def _known(raw: Any) -> Any:
    """A definition without the logical types that Spark has no type for: their values are those beneath."""
    if isinstance(raw, list):
        return [_known(one) for one in raw]
    if not isinstance(raw, dict):
        return raw
    made = {key: _known(value) if key in ("type", "items", "values", "fields") else value for key, value in raw.items()}
    if "logicalType" in made and _logical(made) is None:
        del made["logicalType"]
    return made


def _logical(schema: Any) -> DataType | None:
    """The type of a schema's logical type; None: it has none that is known."""
    kind, logical = schema.get("type"), schema.get("logicalType")
    if logical == "decimal" and kind in ("bytes", "fixed"):
        precision, scale = schema.get("precision"), schema.get("scale", 0)
        if isinstance(precision, int) and isinstance(scale, int) and 0 <= scale <= precision <= _DECIMAL_MAX:
            return DecimalType(precision, scale) if precision else None
        return None
    return _LOGICAL.get((kind, logical)) if isinstance(kind, str) and isinstance(logical, str) else None


def _bare(value: Any) -> Any:
    """A value without the name of its type, which fastavro adds where a union chose it."""
    return value[1] if isinstance(value, tuple) else value


class _Kinds:
    def __init__(self, named: dict[str, Any], name: str) -> None:
        self._named, self._name = named, name

    def of(self, schema: Any, path: str, around: tuple[str, ...]) -> ValueKind:
        """`around`: the records that this one is within. Raises `SchemaError`."""
        if isinstance(schema, list):
            return self._union(schema, path, around)
        if isinstance(schema, str):
            if schema in _PRIMITIVES:
                return ValueKind(_PRIMITIVES[schema], optional=schema == "null")
            schema = self._named[schema]
        kind = schema["type"]
        if kind in avro.RECORDS:
            return self._record(schema, path, around)
        if kind in ("enum", "fixed"):
            plain: DataType = StringType() if kind == "enum" else BinaryType()
            return ValueKind(_logical(schema) or plain, read=_bare)
        if kind == "array":
            return _listed(self.of(schema["items"], f"{path}[]", around))
        if kind == "map":
            return _mapped(self.of(schema["values"], f"{path}{{}}", around))
        return ValueKind(_logical(schema) or _PRIMITIVES[kind], optional=kind == "null")

    def _record(self, schema: Any, path: str, around: tuple[str, ...]) -> ValueKind:
        name = schema["name"]
        if name in around:
            raise SchemaError(
                f"{path} of {self._name} is within itself ({name}), for which Spark has no type. Read the column data,"
                " and decode it in a function of your own."
            )
        fields = {
            one["name"]: self.of(one["type"], f"{path}.{one['name']}", (*around, name)) for one in schema["fields"]
        }
        defaults = {one["name"] for one in schema["fields"] if "default" in one}
        struct = StructType(
            [StructField(one, kind.type, kind.optional or one in defaults) for one, kind in fields.items()]
        )
        reads = [(one, kind.read) for one, kind in fields.items() if kind.read is not None]

        def read(value: Any) -> Any:
            value = _bare(value)
            for one, convert in reads:
                if (found := value[one]) is not None:
                    value[one] = convert(found)
            return value

        def write(value: Any) -> Any:
            made = {}
            for one, kind in fields.items():
                found = value.get(one)
                if found is not None:
                    made[one] = kind.write(found) if kind.write is not None else found
                elif one not in defaults and not kind.optional:
                    raise DataMismatch(f"{path}.{one} is null, which the schema does not allow")
            return made

        return ValueKind(struct, read, write)

    def _union(self, schema: list[Any], path: str, around: tuple[str, ...]) -> ValueKind:
        branches = [one for one in schema if avro.name_of(one) != "null"]
        kinds = [self.of(one, path, around) for one in branches]
        optional = len(branches) < len(schema)
        plain = {one for one in branches if isinstance(one, str)}
        if not branches:
            return ValueKind(StringType(), optional=True)
        if len(branches) == 1:
            return replace(kinds[0], optional=optional)
        if plain == {"int", "long"} and len(branches) == 2:
            return ValueKind(LongType(), optional=optional)
        if plain == {"float", "double"} and len(branches) == 2:
            return ValueKind(DoubleType(), optional=optional)
        return self._members(branches, kinds, path, optional)

    def _members(self, branches: list[Any], kinds: list[ValueKind], path: str, optional: bool) -> ValueKind:
        """A struct with a field for each branch, of which one is set: as Spark's own `from_avro` has it."""
        names = [avro.name_of(one) for one in branches]
        accepted = [_VALUES[self._base(one)] for one in branches]
        struct = StructType([StructField(f"member{i}", kind.type) for i, kind in enumerate(kinds)])

        def read(value: Any) -> Any:
            if isinstance(value, tuple):
                chosen = names.index(value[0])
            else:
                chosen = next(i for i, one in enumerate(accepted) if isinstance(value, one) and _fits(value, one))
            convert = kinds[chosen].read
            return {f"member{chosen}": _bare(value) if convert is None else convert(value)}

        def write(value: Any) -> Any:
            found = [i for i in range(len(names)) if value.get(f"member{i}") is not None]
            if len(found) != 1:
                raise DataMismatch(f"{path} must have one member that is not null, not {len(found)}")
            inner, convert = value[f"member{found[0]}"], kinds[found[0]].write
            return names[found[0]], inner if convert is None else convert(inner)

        return ValueKind(struct, read, write, optional)

    def _base(self, schema: Any) -> str:
        if isinstance(schema, str) and schema not in _PRIMITIVES:
            schema = self._named[schema]
        return schema if isinstance(schema, str) else str(schema["type"])


def _fits(value: Any, accepted: tuple[type, ...]) -> bool:
    return not isinstance(value, bool) or bool in accepted  # True is an int, too


def _listed(item: ValueKind) -> ValueKind:
    return ValueKind(ArrayType(item.type), _each(item.read), _each(item.write))


def _each(convert: Convert | None) -> Convert | None:
    if convert is None:
        return None
    return lambda value: [None if one is None else convert(one) for one in value]


def _mapped(item: ValueKind) -> ValueKind:
    read, write = item.read, item.write

    def written(value: Any) -> Any:
        return {key: one if one is None or write is None else write(one) for key, one in dict(value).items()}

    def found(value: Any) -> Any:
        return {key: None if one is None or read is None else read(one) for key, one in value.items()}

    return ValueKind(MapType(StringType(), item.type), None if read is None else found, written)

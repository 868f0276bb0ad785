"""Formats of payloads: CSV, JSON, Avro and Protocol Buffers to values by field, and values to one of them.

Place: under `normalising`, in Spark's Python workers. The one schema that everything becomes is an Avro record of plain
fields. Promise: equal contents become equal bytes, whatever they came in. What does not fit raises `BadPayload`, which
names fields and never shows a value: the data may be secret.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import fastavro
from google.protobuf import json_format

from syncpoint.base.model.errors import InvalidArgument
from syncpoint.catalog.schemas import avro
from syncpoint.catalog.schemas.errors import Mismatch
from syncpoint.catalog.schemas.proto import ProtoChecker, ProtoDefinition
from syncpoint.programs.federation.steps.validating import AVRO, PROTOBUF, SchemaText

MEDIA = {"json": "application/json", AVRO: "avro/binary", PROTOBUF: "application/x-protobuf"}
_RANGE = {"int": 1 << 31, "long": 1 << 63}
_PLAIN = ("string", "int", "long", "float", "double", "boolean")
_BOOLEANS = {"true": True, "false": False, "1": True, "0": False}


class BadPayload(ValueError):
    """Data that do not fit, without a value of theirs."""


@dataclass(frozen=True, slots=True)
class InputFormat:
    """How one kind of message is written. `fields`: where a field of the schema is found, if not under its own name."""

    kind: str
    fields: tuple[tuple[str, str], ...] = ()
    columns: tuple[str, ...] = ()  # of CSV
    delimiter: str = ","
    definition: SchemaText | None = None  # of Avro and Protocol Buffers


def decoder(given: InputFormat) -> Callable[[bytes], Any]:
    """From data to a value of maps and lists. What it returns raises `BadPayload`."""
    if given.kind == "csv":
        return lambda data: _csv(data, given)
    if given.kind == "json":
        return _json
    assert given.definition is not None
    return _avro(given.definition.text) if given.kind == AVRO else _protobuf(given.definition)


def _csv(data: bytes, given: InputFormat) -> dict[str, str]:
    try:
        rows = list(csv.reader(io.StringIO(data.decode()), delimiter=given.delimiter, strict=True))
    except (UnicodeDecodeError, csv.Error):
        raise BadPayload("not valid CSV") from None
    if len(rows) != 1 or len(rows[0]) != len(given.columns):
        raise BadPayload(f"not a single line of {len(given.columns)} values")
    return {name: value for name, value in zip(given.columns, rows[0], strict=True) if value}


def _json(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        raise BadPayload("not valid JSON") from None


def _avro(text: str) -> Callable[[bytes], Any]:
    definition = avro.parse(text)
    checker, parsed = avro.AvroChecker(definition), fastavro.parse_schema(json.loads(text))

    def decode(data: bytes) -> Any:
        try:
            checker.check_binary(data)
        except Mismatch:
            raise BadPayload("does not match its Avro schema") from None
        return fastavro.schemaless_reader(io.BytesIO(data), parsed, None)

    return decode


def _protobuf(definition: SchemaText) -> Callable[[bytes], Any]:
    known = ProtoDefinition(definition.compiled, definition.message)
    checker = ProtoChecker(known)

    def decode(data: bytes) -> Any:
        try:
            checker.check_binary(data)
        except Mismatch:
            raise BadPayload("does not match its Protocol Buffers schema") from None
        return json_format.MessageToDict(
            known.message.FromString(data),
            preserving_proto_field_name=True,
            always_print_fields_with_no_presence=True,
            descriptor_pool=known.pool,
        )

    return decode


class RecordSchema:
    """The one schema: an Avro record whose fields are plain, or plain or null."""

    def __init__(self, text: str) -> None:
        """Raises `BadDefinition`, and `InvalidArgument` for one that is not so simple."""
        self.definition = avro.parse(text)
        root = self.definition.root
        if not isinstance(root, dict) or root.get("type") != "record":
            raise InvalidArgument("", "the schema is not a record")
        self.fields = [_Field.of(one) for one in root["fields"]]

    def record(self, value: Any, places: Mapping[str, str]) -> dict[str, Any]:
        """The fields of a decoded value, with the schema's types. Raises `BadPayload`."""
        if not isinstance(value, dict):
            raise BadPayload("not a record")
        return {one.name: one.value(_at(value, places.get(one.name, one.name))) for one in self.fields}


def encoder(kind: str, schema_text: str, definition: SchemaText | None) -> Callable[[dict[str, Any]], bytes]:
    """From a record to data. What it returns raises `BadPayload`."""
    if kind == "json":
        return lambda record: json.dumps(record, separators=(",", ":"), ensure_ascii=False).encode()
    if kind == AVRO:
        parsed = fastavro.parse_schema(json.loads(schema_text))

        def to_avro(record: dict[str, Any]) -> bytes:
            out = io.BytesIO()
            fastavro.schemaless_writer(out, parsed, record)
            return out.getvalue()

        return to_avro
    assert definition is not None
    known = ProtoDefinition(definition.compiled, definition.message)

    def to_protobuf(record: dict[str, Any]) -> bytes:
        present = {name: value for name, value in record.items() if value is not None}
        try:
            made = json_format.ParseDict(present, known.message(), descriptor_pool=known.pool)
        except json_format.ParseError:
            raise BadPayload("does not match the Protocol Buffers schema of the output") from None
        encoded: bytes = made.SerializeToString(deterministic=True)
        return encoded

    return to_protobuf


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    kind: str
    nullable: bool
    default: Any
    has_default: bool

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> _Field:
        kinds = given["type"] if isinstance(given["type"], list) else [given["type"]]
        plain = [one["type"] if isinstance(one, dict) else one for one in kinds if one != "null"]
        if len(plain) != 1 or plain[0] not in _PLAIN:
            raise InvalidArgument(
                "",
                f"the field {given['name']} must be of type {', '.join(_PLAIN)}, or its union with null",
            )
        return cls(given["name"], plain[0], "null" in kinds, given.get("default"), "default" in given)

    def value(self, found: Any) -> Any:
        if found is None:
            if self.has_default:
                return self.default
            if self.nullable:
                return None
            raise BadPayload(f"the field {self.name} is missing")
        try:
            return self._typed(found)
        except (ValueError, TypeError, OverflowError):
            raise BadPayload(f"the field {self.name} is not of type {self.kind}") from None

    def _typed(self, found: Any) -> Any:
        if self.kind == "string":
            if not isinstance(found, str):
                raise TypeError
            return found
        if self.kind == "boolean":
            return found if isinstance(found, bool) else _boolean(found)
        if isinstance(found, bool):
            raise TypeError
        if self.kind in _RANGE:
            number = int(found) if isinstance(found, str) else found
            if not isinstance(number, int) or not -_RANGE[self.kind] <= number < _RANGE[self.kind]:
                raise ValueError
            return number
        real = float(found)
        if not math.isfinite(real):
            raise ValueError
        return real


def _boolean(found: Any) -> bool:
    if not isinstance(found, str) or found.lower() not in _BOOLEANS:
        raise ValueError
    return _BOOLEANS[found.lower()]


def _at(value: Any, path: str) -> Any:
    for name in path.split("."):
        if not isinstance(value, dict):
            return None
        value = value.get(name)
    return value

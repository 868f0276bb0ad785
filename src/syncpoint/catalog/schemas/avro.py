"""Avro: definitions parsed by fastavro, messages checked in place, without a decoded copy.

Place: under `validators`.
Promise: a check is bounded by the message's bytes and by `limits`, whatever the definition is. fastavro's own readers
are not used on messages: they follow a recursive schema as deep as the message wants, in C, and take counts of items
without bytes as they come. The tests compare both on values that fastavro writes.
Source: Apache Avro specification 1.12, "Data Serialization and Deserialization".
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any, Final, NamedTuple

import fastavro

from syncpoint.catalog.schemas.errors import BadDefinition, Mismatch
from syncpoint.catalog.schemas.limits import NESTING_MAX, STEPS_MAX, STEPS_PER_BYTE_MAX

RECORDS: Final = frozenset({"record", "error"})
_SHORT_NAME: Final = re.compile("[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_NAME: Final = re.compile(rf"{_SHORT_NAME.pattern}(\.{_SHORT_NAME.pattern})*", re.ASCII)


class AvroDefinition(NamedTuple):
    """A parsed definition: names are full ones, references are names, of which `named` has the types."""

    root: Any
    named: Mapping[str, Any]


def parse(text: str) -> AvroDefinition:
    """Raises `BadDefinition`."""
    try:
        raw = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadDefinition(f"it is not JSON: {error}") from None
    _check_nesting(raw)
    named: dict[str, Any] = {}
    try:
        root = fastavro.parse_schema(raw, named_schemas=named, _write_hint=False)
    except fastavro.schema.UnknownType as error:
        raise BadDefinition(f"{error.name!r} is not an Avro type and is not defined") from None
    except fastavro.schema.SchemaParseException as error:
        raise BadDefinition(str(error)) from None
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise BadDefinition(f"it does not follow the Avro specification: {error!r}") from None
    definition = AvroDefinition(root, named)
    AvroChecker(definition)  # what fastavro lets pass and nothing can be checked against is refused here
    return definition


def decoded(text: str, data: bytes) -> Any:
    """The value that binary data hold, for people to look at. Raises `BadDefinition`, and `Mismatch`."""
    AvroChecker(parse(text)).check_binary(data)
    return fastavro.schemaless_reader(io.BytesIO(data), fastavro.parse_schema(json.loads(text)), None)


def _check_nesting(raw: Any) -> None:
    level = [raw]
    for _ in range(2 * NESTING_MAX):  # a level of types is two of JSON
        level = [
            inner
            for value in level
            if isinstance(value, dict | list)
            for inner in (value.values() if isinstance(value, dict) else value)
        ]
        if not level:
            return
    raise BadDefinition(f"types are nested more than {NESTING_MAX} levels deep")


def name_of(schema: Any) -> str:
    """What a type is called in a union: its full name where it has one, else the type."""
    if isinstance(schema, str):
        return schema
    if isinstance(schema, dict):
        return str(schema["name"] if "name" in schema else schema["type"])
    return "union"


def _check_names(holder: str, names: Sequence[Any]) -> None:
    for name in names:
        if not isinstance(name, str) or _SHORT_NAME.fullmatch(name) is None:
            raise BadDefinition(f"{holder} has an invalid name: {name!r}")
    if len(set(names)) != len(names):
        raise BadDefinition(f"{holder} defines a name twice")


def _check_union(branches: Sequence[Any]) -> None:
    names = [name_of(branch) for branch in branches]
    if any(isinstance(branch, list) for branch in branches):
        raise BadDefinition("a union must not be a branch of another")
    if len(set(names)) != len(names):
        raise BadDefinition("a union must not have two branches of the same type")


class _Cursor:
    """A message on its way through a check."""

    __slots__ = ("at", "data", "depth", "steps")

    def __init__(self, data: bytes) -> None:
        self.data, self.at, self.depth = data, 0, 0
        self.steps = STEPS_MAX + STEPS_PER_BYTE_MAX * len(data)

    def take(self, size: int) -> bytes:
        at = self.at
        end = at + size
        if size < 0 or end > len(self.data):
            raise Mismatch("the data ends too early")
        self.at = end
        return self.data[at:end]

    def number(self, bits: int) -> int:
        data, at, found, shift = self.data, self.at, 0, 0
        while True:
            if at >= len(data):
                raise Mismatch("the data ends too early")
            byte = data[at]
            at += 1
            found |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift > 63:
                raise Mismatch("a number is too long")
        self.at = at
        if found >> bits:
            raise Mismatch("a number is too large")
        return (found >> 1) ^ -(found & 1)

    def step(self, count: int) -> None:
        self.steps -= count
        if self.steps < 0:
            raise Mismatch("the data has too many values for its size")


Read = Callable[[_Cursor], None]
Look = Callable[[Any, _Cursor], None]


class AvroChecker:
    """Checks messages against a definition. Raises `BadDefinition` for one with a type that is none of Avro's."""

    def __init__(self, definition: AvroDefinition) -> None:
        self._named = definition.named
        self._reads: dict[str, Read] = {}
        self._looks: dict[str, Look] = {}
        self._read = self._reader(definition.root)
        self._look = self._looker(definition.root)

    def check_binary(self, data: bytes) -> None:
        """Raises `Mismatch` unless the bytes are one value and nothing else."""
        cursor = _Cursor(data)
        self._read(cursor)
        if cursor.at != len(data):
            raise Mismatch(f"the value is followed by {len(data) - cursor.at} bytes")

    def check_json(self, data: bytes) -> None:
        """Raises `Mismatch` unless the text is one value in Avro's encoding in JSON."""
        try:
            value = json.loads(data.decode(), parse_constant=_no_constant)
        except (ValueError, RecursionError) as error:
            raise Mismatch(f"it is not JSON: {error}") from None
        self._look(value, _Cursor(data))

    # -- binary ------------------------------------------------------------------------------------------------------

    def _reader(self, schema: Any) -> Read:
        if isinstance(schema, list):
            _check_union(schema)
            return self._union_reader([self._reader(branch) for branch in schema])
        kind = schema if isinstance(schema, str) else schema["type"]
        if kind in _PRIMITIVE_READS:
            return _PRIMITIVE_READS[kind]
        if isinstance(schema, str):
            return self._named_reader(schema)
        if "name" in schema:
            return self._defined_reader(schema)
        if kind == "array":
            return self._items_reader(self._reader(schema["items"]))
        if kind == "map":
            values = self._reader(schema["values"])

            def entry(cursor: _Cursor) -> None:
                _read_string(cursor)
                values(cursor)

            return self._items_reader(entry)
        raise BadDefinition(f"{kind!r} is not an Avro type")

    def _named_reader(self, name: str) -> Read:
        if name not in self._reads:
            if name not in self._named:
                raise BadDefinition(f"{name!r} is not an Avro type and is not defined")
            self._defined_reader(self._named[name])
        reads = self._reads

        def read(cursor: _Cursor) -> None:
            reads[name](cursor)

        return read

    def _defined_reader(self, schema: Any) -> Read:
        name, kind = schema["name"], schema["type"]
        if _NAME.fullmatch(name) is None:
            raise BadDefinition(f"{name!r} is not a valid name")
        if kind == "fixed":
            size = schema["size"]
            if not isinstance(size, int) or isinstance(size, bool) or size < 0:
                raise BadDefinition(f"the size of {name} must be an integer of 0 or more")

            def read(cursor: _Cursor) -> None:
                cursor.take(size)

        elif kind == "enum":
            _check_names(name, schema["symbols"])
            symbols = len(schema["symbols"])

            def read(cursor: _Cursor) -> None:
                if not 0 <= cursor.number(32) < symbols:
                    raise Mismatch(f"the enum {name} has no symbol with this number")

        elif kind in RECORDS:
            _check_names(name, [field["name"] for field in schema["fields"]])
            fields: list[tuple[str, Read]] = []
            steps = 1 + len(schema["fields"])

            def read(cursor: _Cursor) -> None:
                cursor.step(steps)
                if cursor.depth >= NESTING_MAX:
                    raise Mismatch(f"values are nested more than {NESTING_MAX} levels deep")
                cursor.depth += 1
                for field, inner in fields:
                    try:
                        inner(cursor)
                    except Mismatch as error:
                        raise error.within(field) from None
                cursor.depth -= 1

            self._reads[name] = read
            fields += [(field["name"], self._reader(field["type"])) for field in schema["fields"]]
        else:
            raise BadDefinition(f"{kind!r} is not an Avro type")
        self._reads[name] = read
        return read

    def _union_reader(self, branches: list[Read]) -> Read:
        def read(cursor: _Cursor) -> None:
            chosen = cursor.number(32)
            if not 0 <= chosen < len(branches):
                raise Mismatch(f"the union has no branch {chosen}")
            branches[chosen](cursor)

        return read

    def _items_reader(self, item: Read) -> Read:
        def read(cursor: _Cursor) -> None:
            if cursor.depth >= NESTING_MAX:
                raise Mismatch(f"values are nested more than {NESTING_MAX} levels deep")
            cursor.depth += 1
            while count := cursor.number(64):
                if count < 0:
                    count = -count
                    if cursor.number(64) < 0:
                        raise Mismatch("a block has a negative size")
                cursor.step(count)
                for _ in range(count):
                    item(cursor)
            cursor.depth -= 1

        return read

    # -- JSON --------------------------------------------------------------------------------------------------------

    def _looker(self, schema: Any) -> Look:
        if isinstance(schema, list):
            return self._union_looker(schema)
        kind = schema if isinstance(schema, str) else schema["type"]
        if kind in _PRIMITIVE_LOOKS:
            return _PRIMITIVE_LOOKS[kind]
        if isinstance(schema, str):
            looks = self._looks
            if schema not in looks:
                self._defined_looker(self._named[schema])
            return lambda value, cursor: looks[schema](value, cursor)
        if "name" in schema:
            return self._defined_looker(schema)
        if kind == "array":
            return self._items_looker(list, self._looker(schema["items"]))
        return self._items_looker(dict, self._looker(schema["values"]))

    def _defined_looker(self, schema: Any) -> Look:
        name, kind = schema["name"], schema["type"]
        if kind == "fixed":
            size = schema["size"]

            def look(value: Any, cursor: _Cursor) -> None:
                _look_bytes(value, cursor)
                if len(value) != size:
                    raise Mismatch(f"must have {size} bytes ({name})")

        elif kind == "enum":
            symbols = frozenset(schema["symbols"])

            def look(value: Any, cursor: _Cursor) -> None:
                if not isinstance(value, str) or value not in symbols:
                    raise Mismatch(f"must be a symbol of the enum {name}")

        else:
            fields: dict[str, Look] = {}

            def look(value: Any, cursor: _Cursor) -> None:
                cursor.step(1 + len(fields))
                if not isinstance(value, dict):
                    raise Mismatch(f"must be a JSON object (record {name})")
                if cursor.depth >= NESTING_MAX:
                    raise Mismatch(f"values are nested more than {NESTING_MAX} levels deep")
                if len(value) != len(fields) or value.keys() != fields.keys():
                    raise _other_fields(name, value.keys(), fields.keys())
                cursor.depth += 1
                for field, inner in fields.items():
                    try:
                        inner(value[field], cursor)
                    except Mismatch as error:
                        raise error.within(field) from None
                cursor.depth -= 1

            self._looks[name] = look
            for field in schema["fields"]:
                fields[field["name"]] = self._looker(field["type"])
        self._looks[name] = look
        return look

    def _union_looker(self, branches: list[Any]) -> Look:
        by_name = {name_of(branch): self._looker(branch) for branch in branches}
        nullable = by_name.pop("null", None) is not None

        def look(value: Any, cursor: _Cursor) -> None:
            if value is None and nullable:
                return
            if not isinstance(value, dict) or len(value) != 1:
                raise Mismatch(f"must be a JSON object that names one branch of the union: {', '.join(by_name)}")
            ((name, inner),) = value.items()
            branch = by_name.get(name)
            if branch is None:
                raise Mismatch(f"must name a branch of the union: {', '.join(by_name)}")
            branch(inner, cursor)

        return look

    def _items_looker(self, kind: type[list[Any]] | type[dict[str, Any]], item: Look) -> Look:
        def look(value: Any, cursor: _Cursor) -> None:
            if not isinstance(value, kind):
                raise Mismatch(f"must be a JSON {'array' if kind is list else 'object'}")
            if cursor.depth >= NESTING_MAX:
                raise Mismatch(f"values are nested more than {NESTING_MAX} levels deep")
            cursor.depth += 1
            cursor.step(len(value))
            for inner in value.values() if isinstance(value, dict) else value:
                item(inner, cursor)
            cursor.depth -= 1

        return look


def _other_fields(record: str, given: Set[str], wanted: Set[str]) -> Mismatch:
    """For an object that lacks fields of its record, or has others."""
    if missing := sorted(wanted - given):
        return Mismatch(f"the record {record} lacks the field {missing[0]}")
    return Mismatch(f"the record {record} has no field {min(given - wanted)[:100]}")


# -- primitive types ---------------------------------------------------------------------------------------------------


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is not a JSON number")


def _read_number(bits: int) -> Read:
    def read(cursor: _Cursor) -> None:
        cursor.number(bits)

    return read


def _read_size(size: int) -> Read:
    def read(cursor: _Cursor) -> None:
        cursor.take(size)

    return read


def _read_boolean(cursor: _Cursor) -> None:
    if cursor.take(1) not in (b"\0", b"\1"):
        raise Mismatch("a boolean must be 0 or 1")


def _read_bytes(cursor: _Cursor) -> None:
    cursor.take(cursor.number(64))


def _read_string(cursor: _Cursor) -> None:
    try:
        cursor.take(cursor.number(64)).decode()
    except UnicodeDecodeError:
        raise Mismatch("a string is not valid UTF-8") from None


_PRIMITIVE_READS: Final[dict[str, Read]] = {
    "null": lambda cursor: None,
    "boolean": _read_boolean,
    "int": _read_number(32),
    "long": _read_number(64),
    "float": _read_size(4),
    "double": _read_size(8),
    "bytes": _read_bytes,
    "string": _read_string,
}


def _look_null(value: Any, cursor: _Cursor) -> None:
    if value is not None:
        raise Mismatch("must be null")


def _look_boolean(value: Any, cursor: _Cursor) -> None:
    if not isinstance(value, bool):
        raise Mismatch("must be true or false")


def _look_integer(bits: int) -> Look:
    bound = 1 << (bits - 1)

    def look(value: Any, cursor: _Cursor) -> None:
        if not isinstance(value, int) or isinstance(value, bool) or not -bound <= value < bound:
            raise Mismatch(f"must be an integer of {bits} bits")

    return look


def _look_float(value: Any, cursor: _Cursor) -> None:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise Mismatch("must be a number")


def _look_string(value: Any, cursor: _Cursor) -> None:
    if not isinstance(value, str):
        raise Mismatch("must be a string")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise Mismatch("must not contain an unpaired surrogate") from None


def _look_bytes(value: Any, cursor: _Cursor) -> None:
    if not isinstance(value, str) or (value and max(value) > "\xff"):
        raise Mismatch("must be a string of characters up to U+00FF")


_PRIMITIVE_LOOKS: Final[dict[str, Look]] = {
    "null": _look_null,
    "boolean": _look_boolean,
    "int": _look_integer(32),
    "long": _look_integer(64),
    "float": _look_float,
    "double": _look_float,
    "bytes": _look_bytes,
    "string": _look_string,
}

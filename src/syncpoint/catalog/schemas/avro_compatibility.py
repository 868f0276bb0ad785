"""Whether what was written with one Avro definition can be read with another.

Place: asked when a revision is committed, in both directions.
Source: Apache Avro specification 1.12, "Schema Resolution".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from syncpoint.catalog.schemas.avro import RECORDS, AvroDefinition, name_of
from syncpoint.catalog.schemas.errors import Incompatible

_PROMOTIONS: Final = {
    "int": {"long", "float", "double"},
    "long": {"float", "double"},
    "float": {"double"},
    "string": {"bytes"},
    "bytes": {"string"},
}


def check(new: AvroDefinition, old: AvroDefinition) -> None:
    """Raise `Incompatible` unless each can read what the other writes."""
    _Resolution(new, old).check(new.root, old.root, "")
    _Resolution(old, new).check(old.root, new.root, "")


class _Resolution:
    """Check whether one reader schema can read one writer schema.

    Each pair of named types is checked once, so that recursive types terminate.
    """

    def __init__(self, reader: AvroDefinition, writer: AvroDefinition) -> None:
        self._reader, self._writer = reader, writer
        self._seen: dict[tuple[str, str], Incompatible | None] = {}

    def check(self, reader: Any, writer: Any, path: str) -> None:
        reader = self._reader.named.get(reader, reader) if isinstance(reader, str) else reader
        writer = self._writer.named.get(writer, writer) if isinstance(writer, str) else writer
        if isinstance(writer, list):
            for branch in writer:
                self.check(reader, branch, path)
            return
        if isinstance(reader, list):
            if not any(self._fits(branch, writer, path) for branch in reader):
                raise Incompatible(f"{path or 'the value'}: no branch of the union can read {name_of(writer)}")
            return
        read, written = _kind(reader), _kind(writer)
        if read != written and not (read in RECORDS and written in RECORDS):
            if read not in _PROMOTIONS.get(written, ()):
                raise Incompatible(f"{path or 'the value'}: {written} cannot be read as {read}")
            return
        compare = self._COMPARE.get(read)
        if compare is None:
            return
        if "name" not in reader:
            compare(self, reader, writer, path)
            return
        pair = reader["name"], writer["name"]
        if pair not in self._seen:
            self._seen[pair] = None
            try:
                compare(self, reader, writer, path)
            except Incompatible as error:
                self._seen[pair] = error
                raise
        elif (known := self._seen[pair]) is not None:
            raise known

    def _fits(self, reader: Any, writer: Any, path: str) -> bool:
        try:
            self.check(reader, writer, path)
        except Incompatible:
            return False
        return True

    def _records(self, reader: Any, writer: Any, path: str) -> None:
        _same_name(reader, writer, path)
        written = {field["name"]: field for field in writer["fields"]}
        for field in reader["fields"]:
            names = (field["name"], *field.get("aliases", ()))
            found = next((written[name] for name in names if name in written), None)
            where = f"{path}.{field['name']}" if path else field["name"]
            if found is not None:
                self.check(field["type"], found["type"], where)
            elif "default" not in field:
                raise Incompatible(f"{where}: the field has no default and is missing in the other revision")

    def _enums(self, reader: Any, writer: Any, path: str) -> None:
        _same_name(reader, writer, path)
        missing = [symbol for symbol in writer["symbols"] if symbol not in reader["symbols"]]
        if missing and "default" not in reader:
            raise Incompatible(f"{path or 'the value'}: the enum has neither the symbol {missing[0]} nor a default")

    def _fixed(self, reader: Any, writer: Any, path: str) -> None:
        _same_name(reader, writer, path)
        if reader["size"] != writer["size"]:
            raise Incompatible(f"{path or 'the value'}: the sizes of {reader['name']} differ")

    def _arrays(self, reader: Any, writer: Any, path: str) -> None:
        self.check(reader["items"], writer["items"], f"{path}[]")

    def _maps(self, reader: Any, writer: Any, path: str) -> None:
        self.check(reader["values"], writer["values"], f"{path}{{}}")

    _COMPARE: Final[dict[str, Callable[[_Resolution, Any, Any, str], None]]] = {
        "record": _records,
        "error": _records,
        "enum": _enums,
        "fixed": _fixed,
        "array": _arrays,
        "map": _maps,
    }


def _kind(schema: Any) -> str:
    return schema if isinstance(schema, str) else str(schema["type"])


def _same_name(reader: Any, writer: Any, path: str) -> None:
    """Full names need not be the same: the specification asks for the unqualified one, or an alias of the reader."""
    short = writer["name"].rpartition(".")[2]
    names = {reader["name"].rpartition(".")[2], *(alias.rpartition(".")[2] for alias in reader.get("aliases", ()))}
    if short not in names:
        raise Incompatible(f"{path or 'the value'}: {writer['name']} cannot be read as {reader['name']}")

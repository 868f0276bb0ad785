"""normalise: one way, and messages of several formats become one, encrypted anew for another audience if asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from syncpoint.base.model.errors import InvalidArgument
from syncpoint.catalog.schemas.errors import BadDefinition
from syncpoint.programs.federation.flow_plan import FederationLink
from syncpoint.programs.federation.patterns import by_message, replicate
from syncpoint.programs.federation.patterns.pattern import Pattern
from syncpoint.programs.federation.spec import Federation, Task
from syncpoint.programs.federation.steps.normalising import Normal, Normalise, rewriter
from syncpoint.programs.federation.steps.payload_formats import InputFormat, RecordSchema, encoder
from syncpoint.programs.federation.steps.payload_keys import KeyringPlace
from syncpoint.programs.federation.steps.step import StepChain
from syncpoint.programs.federation.steps.validating import AVRO, PROTOBUF, SchemaText, read_schema

_FORMAT = {"enum": ["csv", "json", AVRO, PROTOBUF]}
_FILE = {"type": "string", "description": "Avro or Protocol Buffers definition."}
_KEYRING = {"$ref": "#/$defs/secret"}
_KEYS: dict[str, Any] = {
    **replicate.PATTERN.keys,
    "schema": {**_FILE, "description": "Avro record of plain fields that every message is converted to."},
    "by": {"type": "string", "minLength": 1, "description": "Attribute with the name of a message's input."},
    "inputs": {
        "type": "object",
        "minProperties": 1,
        "additionalProperties": {
            "type": "object",
            "required": ["format"],
            "additionalProperties": False,
            "properties": {
                "format": _FORMAT,
                "columns": {"type": "array", "minItems": 1, "uniqueItems": True, "items": {"type": "string"}},
                "delimiter": {"type": "string", "minLength": 1, "maxLength": 1},
                "file": _FILE,
                "message": {"type": "string"},
                "fields": {"type": "object", "additionalProperties": {"type": "string", "minLength": 1}},
            },
        },
    },
    "output": {
        "type": "object",
        "required": ["format"],
        "additionalProperties": False,
        "properties": {"format": {"enum": ["json", AVRO, PROTOBUF]}, "file": _FILE, "message": {"type": "string"}},
    },
    "decrypt": {"type": "object", "required": ["keys"], "additionalProperties": False, "properties": {"keys":
    _KEYRING}}, "encrypt": {
        "type": "object",
        "required": ["keys", "key"],
        "additionalProperties": False,
        "properties": {"keys": _KEYRING, "key": {"type": "string", "minLength": 1}},
    },
    "invalid": by_message.INVALID,
}  # fmt: skip


def links(task: Task, federation: Federation) -> list[FederationLink]:
    """The link of `replicate` with the one step."""
    PATTERN.check(task)
    place, keys = task.place, task.keys
    if len(keys["inputs"]) > 1 and "by" not in keys:
        raise InvalidArgument(
            f"{place}.by", "required with several inputs: the attribute that names the input of a message"
        )
    schema = _text(federation.base, keys["schema"], f"{place}.schema")
    inputs = tuple(
        (name, _input(one, federation.base, f"{place}.inputs.{name}")) for name, one in keys["inputs"].items()
    )
    output = keys["output"]
    definition = None
    if output["format"] == PROTOBUF:
        definition = _definition(PROTOBUF, output, federation.base, f"{place}.output")
    normal = Normal(
        schema,
        inputs,
        output["format"],
        keys.get("by", ""),
        definition,
        _keyring(keys.get("decrypt"), federation.base),
        _keyring(keys.get("encrypt"), federation.base),
        keys.get("encrypt", {}).get("key", ""),
    )
    _check(normal, place)
    (link,) = replicate.links_of(task, federation)
    return [replace(link, steps=StepChain((Normalise(normal),), by_message.topic_of(keys["invalid"], place)))]


def _input(keys: Mapping[str, Any], base: Path, place: str) -> InputFormat:
    kind = keys["format"]
    if kind == "csv" and "columns" not in keys:
        raise InvalidArgument(f"{place}.columns", "list the columns of a line")
    definition = _definition(kind, keys, base, place) if kind in (AVRO, PROTOBUF) else None
    fields = tuple(keys.get("fields", {}).items())
    return InputFormat(kind, fields, tuple(keys.get("columns", ())), keys.get("delimiter", ","), definition)


def _definition(kind: str, keys: Mapping[str, Any], base: Path, place: str) -> SchemaText:
    if "file" not in keys:
        raise InvalidArgument(f"{place}.file", f"set the {kind} definition")
    given = {"type": kind, "file": keys["file"]} | ({"message": keys["message"]} if "message" in keys else {})
    return read_schema(given, base, place)


def _keyring(keys: Mapping[str, Any] | None, base: Path) -> KeyringPlace | None:
    if keys is None:
        return None
    found = keys["keys"]
    return KeyringPlace(env=found["env"]) if "env" in found else KeyringPlace(file=str(base / found["file"]))


def _text(base: Path, file: str, place: str) -> str:
    try:
        return (base / file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidArgument(place, f"{file} cannot be read: {error}") from None


def _check(normal: Normal, place: str) -> None:
    """Build everything once, here, so that a mistake is seen before anything runs."""
    try:
        schema = RecordSchema(normal.schema)
        encoder(normal.output, normal.schema, normal.output_definition)
        rewriter(normal)
    except (BadDefinition, InvalidArgument) as error:
        raise InvalidArgument(f"{place}.schema", str(error)) from None
    known = {one.name for one in schema.fields}
    for name, one in normal.inputs:
        for field, _ in one.fields:
            if field not in known:
                raise InvalidArgument(
                    f"{place}.inputs.{name}.fields",
                    f"the schema has no field {field!r}, but {', '.join(sorted(known))}",
                )


PATTERN = Pattern("normalise", _KEYS, ("from", "to", "schema", "inputs", "output", "invalid"), links)

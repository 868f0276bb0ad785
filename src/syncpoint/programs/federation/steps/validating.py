"""Validation: what does not fit a schema is refused, with the reason of the checker.

Place: a step; the checks run in Spark's Python workers, a batch of Arrow at a time. JSON Schema is checked by the
package jsonschema, Avro and Protocol Buffers by the checkers that a server uses for its topics, which follow no message
deeper or longer than its size explains.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import jsonschema

from syncpoint.base.model.errors import InvalidArgument, Unavailable
from syncpoint.catalog.schemas.compiler import compile_proto
from syncpoint.catalog.schemas.errors import BadDefinition, Mismatch
from syncpoint.catalog.schemas.validators import Encoding, Validator
from syncpoint.programs.federation.steps.step import refuse
from syncpoint.wire.protobuf.messages import pubsub

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

REFUSED = "ValidationFailed"
JSON_SCHEMA, AVRO, PROTOBUF = "json-schema", "avro", "protobuf"
KEYS: dict[str, Any] = {
    "type": "object",
    "required": ["type", "file"],
    "additionalProperties": False,
    "properties": {
        "type": {"enum": [JSON_SCHEMA, AVRO, PROTOBUF]},
        "file": {"type": "string", "description": "File with the definition."},
        "encoding": {
            "enum": ["json", "binary"],
            "description": "Encoding of Avro and Protocol Buffers data; default binary.",
        },
        "message": {"type": "string", "description": "(protobuf) Full name of the root message."},
    },
}


@dataclass(frozen=True, slots=True)
class SchemaText:
    """A definition as it travels to the workers. `compiled`: descriptors of Protocol Buffers."""

    kind: str
    text: str
    encoding: str = "binary"
    compiled: bytes = b""
    message: str = ""


@dataclass(frozen=True, slots=True)
class Validate:
    """The step."""

    file: str
    schema: SchemaText
    topics: tuple[str, ...] = ()
    repeatable: ClassVar = True
    look: ClassVar = None

    @property
    def summary(self) -> str:
        return f"validate with {self.schema.kind} {self.file}"

    def apply(self, frame: DataFrame) -> DataFrame:
        """Refuse what does not fit."""
        from pyspark.sql.functions import col

        from syncpoint.programs.federation.steps.arrow_functions import text_of

        return refuse(frame, REFUSED, text_of(partial(checker, self.schema), col("data")))


def read_schema(keys: dict[str, Any], base: Path, place: str) -> SchemaText:
    """The definition that a task names; it is tried once, here. Raises `InvalidArgument` naming the key."""
    kind, encoding = keys["type"], keys.get("encoding", "binary")
    try:
        text = (base / keys["file"]).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"{place}.file", f"{keys['file']} cannot be read: {error}") from None
    if kind == JSON_SCHEMA and "encoding" in keys:
        raise InvalidArgument(f"{place}.encoding", "JSON Schema applies only to JSON")
    compiled = b""
    try:
        if kind == PROTOBUF:
            compiled = compile_proto(text)
        made = SchemaText(kind, text, encoding, compiled, keys.get("message", ""))
        checker(made)
    except (BadDefinition, InvalidArgument, Unavailable) as error:
        raise InvalidArgument(f"{place}.file", f"{keys['file']}: {error}") from None
    return made


@cache
def checker(schema: SchemaText) -> Callable[[bytes], str | None]:
    """A function from data to what is wrong with them, None: nothing. Raises `BadDefinition`, `InvalidArgument`."""
    if schema.kind == JSON_SCHEMA:
        return _json_checker(schema.text)
    if schema.kind == AVRO:
        definition = pubsub.Schema(type=pubsub.Schema.AVRO, definition=schema.text)
    else:
        definition = pubsub.Schema(type=pubsub.Schema.PROTOCOL_BUFFER)
        definition.compiled_proto_schema.compiled_bytes = schema.compiled
        definition.compiled_proto_schema.root_message = schema.message or _only_message(schema.compiled)
    validator = Validator(definition)
    encoding = Encoding.JSON if schema.encoding == "json" else Encoding.BINARY

    def check(data: bytes) -> str | None:
        try:
            validator.check(data, encoding)
        except Mismatch as error:
            return str(error)
        return None

    return check


def _json_checker(text: str) -> Callable[[bytes], str | None]:
    try:
        definition = json.loads(text)
        kind = jsonschema.validators.validator_for(definition, jsonschema.Draft202012Validator)
        kind.check_schema(definition)
    except (ValueError, jsonschema.SchemaError) as error:
        raise BadDefinition(f"not a JSON Schema: {str(error).splitlines()[0]}") from None
    validator = kind(definition)

    def check(data: bytes) -> str | None:
        try:
            value = json.loads(data.decode(), parse_constant=_no_number)
        except (ValueError, RecursionError) as error:
            return f"not valid JSON: {error}"
        try:
            worst = jsonschema.exceptions.best_match(validator.iter_errors(value))
        except RecursionError:
            return "nested too deeply"
        if worst is None:
            return None
        path = ".".join(str(part) for part in worst.absolute_path)
        return f"{path}: {worst.message}" if path else str(worst.message)

    return check


def _no_number(name: str) -> None:
    """JSON has no NaN and no Infinity, which Python reads."""
    raise ValueError(f"{name} is not a number")


def _only_message(compiled: bytes) -> str:
    from syncpoint.catalog.schemas.proto import ProtoDefinition

    return ProtoDefinition(compiled).root

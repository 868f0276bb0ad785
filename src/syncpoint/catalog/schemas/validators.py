"""One definition, of either type: checked when it comes in, compared with the one before, and what messages fit it.

Place: above `avro` and `proto`; used by the api for definitions and by `publishing` for messages.
"""

from __future__ import annotations

import enum
from typing import Any, Protocol

from syncpoint.base.model.errors import InvalidArgument
from syncpoint.catalog.schemas import avro, avro_compatibility, proto
from syncpoint.catalog.schemas.errors import BadDefinition, Incompatible
from syncpoint.catalog.schemas.limits import DEFINITION_BYTES_MAX
from syncpoint.wire.protobuf.messages import pubsub


class Encoding(enum.IntEnum):
    """How messages are written, with the numbers of google.pubsub.v1.Encoding."""

    JSON = 1
    BINARY = 2


class MessageChecker(Protocol):
    """Both raise `errors.Mismatch` for a message that does not fit."""

    def check_binary(self, data: bytes) -> None: ...
    def check_json(self, data: bytes) -> None: ...


def decoded(schema: pubsub.Schema, compiled: bytes, data: bytes) -> Any:
    """The value that binary data of a legal definition hold, for people to look at. Raises `errors.Mismatch`."""
    if schema.type == pubsub.Schema.AVRO:
        return avro.decoded(schema.definition, data)
    given = schema.compiled_proto_schema
    own = proto.ProtoDefinition(given.compiled_bytes, given.root_message) if given.compiled_bytes else None
    return proto.decoded(own or proto.ProtoDefinition(compiled), data)


class Validator:
    """A legal definition."""

    def __init__(self, schema: pubsub.Schema, compiled: bytes = b"") -> None:
        """`compiled`: of a Protocol Buffers definition that is text. Raises `InvalidArgument`."""
        self._avro: avro.AvroDefinition | None = None
        self._proto: proto.ProtoDefinition | None = None
        self._checker: MessageChecker
        try:
            if schema.type == pubsub.Schema.AVRO:
                self._avro = avro.parse(schema.definition)
                self._checker = avro.AvroChecker(self._avro)
            elif schema.HasField("compiled_proto_schema"):
                given = schema.compiled_proto_schema
                if not given.root_message:
                    raise BadDefinition("compiled_proto_schema.root_message must be set")
                self._proto = proto.ProtoDefinition(given.compiled_bytes, given.root_message)
                self._checker = proto.ProtoChecker(self._proto)
            else:
                self._proto = proto.ProtoDefinition(compiled)
                self._checker = proto.ProtoChecker(self._proto)
        except BadDefinition as error:
            raise invalid_definition(error) from None

    def check(self, data: bytes, encoding: Encoding) -> None:
        """Raises `errors.Mismatch` for a message that does not fit."""
        if encoding is Encoding.JSON:
            self._checker.check_json(data)
        else:
            self._checker.check_binary(data)

    def check_follows(self, older: Validator) -> None:
        """Whether it may be the revision after `older`. Raises `InvalidArgument`."""
        try:
            if self._avro is not None and older._avro is not None:
                avro_compatibility.check(self._avro, older._avro)
            elif self._proto is not None and older._proto is not None:
                proto.check_compatible(self._proto, older._proto)
            else:
                raise Incompatible("the type of a schema cannot be changed")
        except Incompatible as error:
            raise InvalidArgument(
                "", f"Invalid schema: the definition is not compatible with the previous revision: {error}."
            ) from None


def check_shape(schema: pubsub.Schema) -> None:
    """Check a Schema in a request without reading its definition. Raises `InvalidArgument`."""
    if schema.type not in (pubsub.Schema.AVRO, pubsub.Schema.PROTOCOL_BUFFER):
        raise InvalidArgument("", "Invalid schema type provided. Use AVRO or PROTOCOL_BUFFER.")
    size = len(schema.definition.encode())
    if schema.HasField("compiled_proto_schema"):
        if schema.type != pubsub.Schema.PROTOCOL_BUFFER:
            raise InvalidArgument("", "Invalid schema: compiled_proto_schema needs the type PROTOCOL_BUFFER.")
        if schema.definition:
            raise InvalidArgument("", "Invalid schema: at most one of definition and compiled_proto_schema may be set.")
        size = len(schema.compiled_proto_schema.compiled_bytes)
    if not size:
        raise InvalidArgument("", "Invalid schema definition: it is empty.")
    if size > DEFINITION_BYTES_MAX:
        raise InvalidArgument(
            "", f"Invalid schema definition: it has {size} bytes; the maximum is {DEFINITION_BYTES_MAX}."
        )


def needs_compiler(schema: pubsub.Schema) -> bool:
    """Whether the definition is text of Protocol Buffers."""
    return bool(schema.type == pubsub.Schema.PROTOCOL_BUFFER and not schema.HasField("compiled_proto_schema"))


def invalid_definition(error: BadDefinition) -> InvalidArgument:
    """A definition that is not legal, as users see it."""
    return InvalidArgument("", f"Invalid schema definition: {error}.")


def encoding_of(value: Any) -> Encoding:
    """Raises `InvalidArgument` for an encoding that is not set or not known."""
    try:
        return Encoding(value)
    except ValueError:
        raise InvalidArgument("", "Invalid schema encoding provided. Use JSON or BINARY.") from None

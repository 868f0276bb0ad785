"""Protocol Buffers: descriptors in a pool of their own, messages checked by protobuf's own parsers.

Place: under `validators`. Definitions come compiled, see `compiler`.
Promise: a message fits when it is of the root message, has every required field, and nothing that the definition does
not know: the real service refuses unknown fields, too. Nesting is bounded by the parsers.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
from google.protobuf.message import DecodeError, EncodeError

from syncpoint.catalog.schemas.errors import BadDefinition, Incompatible, Mismatch
from syncpoint.catalog.schemas.limits import COMPILED_BYTES_MAX, FIELDS_MAX, NESTING_MAX

_Field = descriptor_pb2.FieldDescriptorProto
_Message = descriptor_pb2.DescriptorProto
_REQUIRED: Final = _Field.LABEL_REQUIRED


class ProtoDefinition:
    """A compiled definition and its root message."""

    def __init__(self, compiled: bytes, root: str = "") -> None:
        """`compiled`: a FileDescriptorSet in which every file follows what it imports. `root`: full name of the root
        message; "": the only one of the only file. Raises `BadDefinition`.
        """
        if len(compiled) > COMPILED_BYTES_MAX:
            raise BadDefinition(f"it has more than {COMPILED_BYTES_MAX} bytes when compiled")
        try:
            self.files = descriptor_pb2.FileDescriptorSet.FromString(compiled)
        except DecodeError:
            raise BadDefinition("it is not a FileDescriptorSet") from None
        self.messages = {
            name: message
            for file in self.files.file
            for name, message in _messages(file.message_type, f"{file.package}." if file.package else "")
        }
        self.enums = {
            name: enum
            for file in self.files.file
            for name, enum in _enums(file, f"{file.package}." if file.package else "")
        }
        if sum(len(message.field) for message in self.messages.values()) > FIELDS_MAX:
            raise BadDefinition(f"it has more than {FIELDS_MAX} fields")
        self.pool = descriptor_pool.DescriptorPool()
        try:
            for file in self.files.file:
                self.pool.AddSerializedFile(file.SerializeToString())
        except (TypeError, ValueError, KeyError) as error:
            raise BadDefinition(str(error)) from None
        self.root = root.removeprefix(".") or self._only_root()
        if self.root not in self.messages:
            raise BadDefinition(f"it does not define the root message {self.root}")
        self.message: Any = message_factory.GetMessageClass(self.pool.FindMessageTypeByName(self.root))

    def _only_root(self) -> str:
        if len(self.files.file) != 1 or self.files.file[0].dependency:
            raise BadDefinition("import statements are not supported")
        (file,) = self.files.file
        if len(file.message_type) != 1:
            raise BadDefinition(f"there must be exactly one top-level message, not {len(file.message_type)}")
        name = file.message_type[0].name
        return f"{file.package}.{name}" if file.package else name


def _messages(found: Any, prefix: str) -> Iterator[tuple[str, _Message]]:
    for message in found:
        yield prefix + message.name, message
        yield from _messages(message.nested_type, f"{prefix}{message.name}.")


def _enums(holder: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    for enum in holder.enum_type:
        yield prefix + enum.name, enum
    inner = holder.message_type if isinstance(holder, descriptor_pb2.FileDescriptorProto) else holder.nested_type
    for message in inner:
        yield from _enums(message, f"{prefix}{message.name}.")


def decoded(definition: ProtoDefinition, data: bytes) -> dict[str, Any]:
    """The fields that binary data hold, for people to look at, named as in the definition. Raises `Mismatch`."""
    ProtoChecker(definition).check_binary(data)
    found: dict[str, Any] = json_format.MessageToDict(
        definition.message.FromString(data), preserving_proto_field_name=True, descriptor_pool=definition.pool
    )
    return found


class ProtoChecker:
    """Checks messages against a definition."""

    def __init__(self, definition: ProtoDefinition) -> None:
        self._definition = definition

    def check_binary(self, data: bytes) -> None:
        """Raises `Mismatch` unless the bytes are a root message."""
        try:
            message = self._definition.message.FromString(data)
        except DecodeError:
            raise Mismatch(f"the data is not a message {self._definition.root}") from None
        self._check(message)

    def check_json(self, data: bytes) -> None:
        """Raises `Mismatch` unless the text is a root message in ProtoJSON."""
        message = self._definition.message()
        try:
            text = data.decode()
            if not isinstance(json.loads(text), dict):  # protobuf takes an empty list for an empty message
                raise Mismatch("must be a JSON object")
            json_format.Parse(text, message, descriptor_pool=self._definition.pool, max_recursion_depth=NESTING_MAX)
        except Mismatch:
            raise
        except (json_format.ParseError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise Mismatch(str(error)) from None
        self._check(message)

    def _check(self, message: Any) -> None:
        if not message.IsInitialized():
            raise Mismatch(f"required fields are missing: {', '.join(message.FindInitializationErrors())}")
        try:
            size = message.ByteSize()
            message.DiscardUnknownFields()
            if message.ByteSize() != size:
                raise Mismatch("it has fields that the schema does not define")
        except EncodeError as error:
            raise Mismatch(str(error)) from None


def check_compatible(new: ProtoDefinition, old: ProtoDefinition) -> None:
    """Raise `Incompatible` unless only fields that are not required were added or removed."""
    if new.root != old.root:
        raise Incompatible(f"the root message must stay {old.root}, not {new.root}")
    todo, seen = [new.root], {new.root}
    while todo:
        name = todo.pop()
        fresh, known = new.messages.get(name), old.messages.get(name)
        if fresh is None or known is None:
            continue  # the fields that named it were added or removed, too
        for kept in _check_message(name, fresh, known):
            if kept.type in (_Field.TYPE_MESSAGE, _Field.TYPE_GROUP):
                inner = kept.type_name.removeprefix(".")
                if inner not in seen:
                    seen.add(inner)
                    todo.append(inner)
            elif kept.type == _Field.TYPE_ENUM:
                _check_enum(kept.type_name.removeprefix("."), new, old)


def _check_message(name: str, new: _Message, old: _Message) -> list[_Field]:
    """The fields that both have."""
    fresh, known = ({field.number: field for field in message.field} for message in (new, old))
    names = {field.name: field.number for field in old.field}
    for number, field in fresh.items():
        if names.get(field.name, number) != number:
            raise Incompatible(f"{name}.{field.name}: the number of the field has changed")
    kept = []
    for number in sorted({*fresh, *known}):
        one, other = fresh.get(number), known.get(number)
        if one is None or other is None:
            field = known[number] if one is None else one
            if field.label == _REQUIRED:
                change = "added" if other is None else "removed"
                raise Incompatible(f"{name}.{field.name}: a required field must not be {change}")
            continue
        if (one.name, one.label, one.type, one.type_name) != (other.name, other.label, other.type, other.type_name):
            raise Incompatible(f"{name}.{other.name}: the field has changed its name or its type")
        kept.append(one)
    return kept


def _check_enum(name: str, new: ProtoDefinition, old: ProtoDefinition) -> None:
    fresh, known = new.enums.get(name), old.enums.get(name)
    if fresh is None or known is None:
        return
    numbers = {value.name: value.number for value in fresh.value}
    for value in known.value:
        if numbers.get(value.name, value.number) != value.number:
            raise Incompatible(f"{name}.{value.name}: the number of the value has changed")

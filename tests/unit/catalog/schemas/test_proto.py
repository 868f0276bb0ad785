"""Protocol Buffers: which definitions are legal, what fits them, which may follow each other."""

from __future__ import annotations

import contextlib
from functools import cache
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, json_format
from hypothesis import given, settings
from hypothesis import strategies as st

from syncpoint.catalog.metadata.contract import TXN_BYTES_MAX
from syncpoint.catalog.schemas import compiler, proto, stored
from syncpoint.catalog.schemas.errors import BadDefinition, Incompatible, Mismatch
from syncpoint.catalog.schemas.limits import COMPILED_BYTES_MAX, DEFINITION_BYTES_MAX
from syncpoint.wire.protobuf.messages import pubsub
from tests.kit.examples import examples

compiled = cache(compiler.compile_proto)


def definition(text: str) -> proto.ProtoDefinition:
    return proto.ProtoDefinition(compiled(text))


def checker(text: str) -> proto.ProtoChecker:
    return proto.ProtoChecker(definition(text))


ORDER = """
syntax = "proto3";
package shop;
message Order {
  message Item { string name = 1; sint64 count = 2; }
  enum State { NEW = 0; PAID = 1; }
  string id = 1;
  repeated Item items = 2;
  State state = 3;
  map<string, double> prices = 4;
  bytes blob = 5;
  Order parent = 6;
  optional int32 number = 7;
}
"""
STRICT = 'syntax = "proto2"; message M { required int32 a = 1; optional string b = 2; }'

_ITEMS = st.fixed_dictionaries({"name": st.text(max_size=8), "count": st.integers(-(1 << 63), (1 << 63) - 1)})
_ORDERS = st.fixed_dictionaries(
    {},
    optional={
        "id": st.text(max_size=8),
        "items": st.lists(_ITEMS, max_size=3),
        "state": st.sampled_from(["NEW", "PAID"]),
        "prices": st.dictionaries(st.text(max_size=4), st.floats(allow_nan=False, allow_infinity=False), max_size=3),
        "blob": st.binary(max_size=8),
        "number": st.integers(-(1 << 31), (1 << 31) - 1),
    },
)


@settings(max_examples=60, deadline=None)
@given(_ORDERS)
def test_what_protobuf_writes_fits(values: dict[str, Any]) -> None:
    made = definition(ORDER)
    message = made.message(**values)
    proto.ProtoChecker(made).check_binary(message.SerializeToString())
    proto.ProtoChecker(made).check_json(json_format.MessageToJson(message).encode())


@settings(max_examples=examples(100), deadline=None)
@given(st.binary(max_size=40) | st.text(max_size=40).map(str.encode))
def test_any_bytes_fit_or_do_not(data: bytes) -> None:
    made = checker(ORDER)
    for check in (made.check_binary, made.check_json):
        try:
            check(data)
        except Mismatch:
            continue


@settings(max_examples=examples(100), deadline=None)
@given(st.binary(max_size=60))
def test_any_compiled_bytes_are_a_definition_or_are_not(data: bytes) -> None:
    with contextlib.suppress(BadDefinition):
        proto.ProtoDefinition(data, "M")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("nonsense", "Expected top-level statement"),
        ('syntax = "proto3"; message A { string a = 1;', "end of input"),
        ('syntax = "proto3"; message A { B b = 1; }', '"B" is not defined'),
        ('syntax = "proto3"; import "google/protobuf/timestamp.proto"; message A {}', "was not found"),
        ('syntax = "proto3"; import "schema.proto"; message A {}', "recursively imports"),
        ('syntax = "proto3"; message A {} message B {}', "exactly one top-level message"),
        ('syntax = "proto3"; enum E { A = 0; }', "exactly one top-level message"),
        ('syntax = "proto3"; ' + "message A {" * 5_000, "recursion limit"),
    ],
)
def test_a_text_that_is_no_definition(text: str, says: str) -> None:
    with pytest.raises(BadDefinition, match=says):
        definition(text)


def test_a_text_that_becomes_too_large_when_compiled() -> None:
    fields = " ".join(f"E f{number}={number};" for number in range(1, 5_000))
    text = f'syntax = "proto3"; package {"p" * 200}; message M {{ enum E {{ A = 0; }} {fields} }}'
    assert len(text) < DEFINITION_BYTES_MAX
    with pytest.raises(BadDefinition, match="when compiled"):
        definition(text)


def test_the_largest_definition_fits_a_transaction_of_the_metadata() -> None:
    schema = pubsub.Schema(definition="x" * DEFINITION_BYTES_MAX)
    setting = stored.definition_setting("projects/p/schemas/s", "0" * 8, schema, b"x" * COMPILED_BYTES_MAX)
    assert len(setting.value) < TXN_BYTES_MAX - 64 * 1024


def test_a_compiled_definition_with_what_it_imports() -> None:
    files = descriptor_pb2.FileDescriptorSet()
    base = files.file.add(name="base.proto", package="b", syntax="proto3")
    base.message_type.add(name="Base").field.add(name="x", number=1, type=5, label=1)
    file = files.file.add(name="main.proto", package="m", syntax="proto3", dependency=["base.proto"])
    file.message_type.add(name="Main").field.add(name="base", number=1, type=11, label=1, type_name=".b.Base")
    made = proto.ProtoChecker(proto.ProtoDefinition(files.SerializeToString(), "m.Main"))
    made.check_json(b'{"base": {"x": 1}}')
    with pytest.raises(Mismatch):
        made.check_json(b'{"x": 1}')
    with pytest.raises(BadDefinition, match=r"root message m\.Other"):
        proto.ProtoDefinition(files.SerializeToString(), "m.Other")
    del files.file[0]
    with pytest.raises(BadDefinition):
        proto.ProtoDefinition(files.SerializeToString(), "m.Main")


@pytest.mark.parametrize(
    "data",
    [b"\x08", b"\x0a\1\xff", b"\x80\x01\x01", b"\x12\x02\x18\x01", b"\x32\x03\x32\x01"],
    ids=["cut", "not UTF-8", "unknown field", "unknown field inside", "cut inside"],
)
def test_binary_that_does_not_fit(data: bytes) -> None:
    with pytest.raises(Mismatch):
        checker(ORDER).check_binary(data)


@pytest.mark.parametrize(
    "text",
    ["", "[]", '{"other": 1}', '{"id": 1}', '{"state": "GONE"}', '{"number": 2147483648}', "\xff"],
)
def test_json_that_does_not_fit(text: str) -> None:
    with pytest.raises(Mismatch):
        checker(ORDER).check_json(text.encode("latin-1"))


def test_required_fields() -> None:
    made = checker(STRICT)
    made.check_binary(b"\x08\1")
    made.check_json(b'{"a": 1}')
    for check in (made.check_binary, made.check_json):
        with pytest.raises(Mismatch, match="required"):
            check(b"{}" if check == made.check_json else b"\x12\1a")


def test_values_nested_without_end() -> None:
    data = b""
    while len(data) < 1 << 14:
        size = len(data)
        prefix = b"\x32"
        while size >= 0x80:
            prefix += bytes((size & 0x7F | 0x80,))
            size >>= 7
        data = prefix + bytes((size,)) + data
    with pytest.raises(Mismatch):
        checker(ORDER).check_binary(data)
    for text in (b'{"parent":' * 50_000, b'{"parent":' * 150 + b"{}" + b"}" * 150):
        with pytest.raises(Mismatch):
            checker(ORDER).check_json(text)


@pytest.mark.parametrize(
    "fields",
    [
        "required int32 a = 1; optional string b = 2; optional int64 c = 3;",
        "required int32 a = 1;",
        "required int32 a = 1; optional string b = 2; repeated int64 c = 3;",
    ],
)
def test_compatible(fields: str) -> None:
    proto.check_compatible(definition(f'syntax = "proto2"; message M {{ {fields} }}'), definition(STRICT))


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ("optional string b = 2;", "required field must not be removed"),
        ("required int32 a = 1; required int32 c = 3; optional string b = 2;", "required field must not be added"),
        ("required int64 a = 1; optional string b = 2;", "changed its name or its type"),
        ("required int32 a = 1; optional string c = 2;", "changed its name or its type"),
        ("required int32 a = 1; optional string b = 3;", "number of the field has changed"),
        ("required int32 a = 1; repeated string b = 2;", "changed its name or its type"),
    ],
)
def test_not_compatible(fields: str, says: str) -> None:
    with pytest.raises(Incompatible, match=says):
        proto.check_compatible(definition(f'syntax = "proto2"; message M {{ {fields} }}'), definition(STRICT))


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("PAID = 1;", "PAID = 2;", "number of the value has changed"),
        ("sint64 count = 2;", "int64 count = 2;", "shop.Order.Item.count"),
        ("package shop;", "package store;", "root message must stay shop.Order"),
    ],
)
def test_what_lies_deeper_is_compared(old: str, new: str, says: str) -> None:
    with pytest.raises(Incompatible, match=says):
        proto.check_compatible(definition(ORDER.replace(old, new)), definition(ORDER))


def test_a_compiler_that_is_killed_has_not_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "_CHILD", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    with pytest.raises(BadDefinition, match="too complex"):
        compiler.compile_proto("any")

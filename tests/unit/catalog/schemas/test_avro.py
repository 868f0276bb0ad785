"""Avro: which definitions are legal, what fits them; fastavro's writers as the oracle."""

from __future__ import annotations

import contextlib
import io
import json
from typing import Any

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from syncpoint.catalog.schemas import avro, avro_compatibility
from syncpoint.catalog.schemas.errors import BadDefinition, Incompatible, Mismatch
from tests.kit.examples import examples

pytestmark = pytest.mark.shows("schemas")


def checker(definition: Any) -> avro.AvroChecker:
    return avro.AvroChecker(avro.parse(json.dumps(definition)))


def record(*fields: Any, name: str = "R", **more: Any) -> Any:
    made = [field if isinstance(field, dict) else {"name": field[0], "type": field[1]} for field in fields]
    return {"type": "record", "name": name, "fields": made, **more}


# -- random definitions with values ------------------------------------------------------------------------------------

_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "null": st.none(),
    "boolean": st.booleans(),
    "int": st.integers(-(1 << 31), (1 << 31) - 1),
    "long": st.integers(-(1 << 63), (1 << 63) - 1),
    "float": st.floats(width=32, allow_nan=False, allow_infinity=False),
    "double": st.floats(allow_nan=False, allow_infinity=False),
    "bytes": st.binary(max_size=20),
    "string": st.text(max_size=20),
}


class _Names:
    def __init__(self) -> None:
        self.count = 0

    def next(self) -> str:
        self.count += 1
        return f"n.T{self.count}"


@st.composite
def _types(draw: st.DrawFn, names: _Names, depth: int) -> tuple[Any, st.SearchStrategy[Any]]:
    kinds = ["primitive", "enum", "fixed"] + (["record", "array", "map", "union"] if depth else [])
    match draw(st.sampled_from(kinds)):
        case "enum":
            symbols = ["A", "B", "C"]
            return {"type": "enum", "name": names.next(), "symbols": symbols}, st.sampled_from(symbols)
        case "fixed":
            size = draw(st.integers(0, 5))
            made = {"type": "fixed", "name": names.next(), "size": size}
            return made, st.binary(min_size=size, max_size=size)
        case "record":
            name = names.next()
            fields = {f"f{index}": draw(_types(names, depth - 1)) for index in range(draw(st.integers(1, 3)))}
            made = record(*((field, kind) for field, (kind, _) in fields.items()), name=name)
            return made, st.fixed_dictionaries({field: values for field, (_, values) in fields.items()})
        case "array":
            kind, values = draw(_types(names, depth - 1))
            return {"type": "array", "items": kind}, st.lists(values, max_size=3)
        case "map":
            kind, values = draw(_types(names, depth - 1))
            return {"type": "map", "values": kind}, st.dictionaries(st.text(min_size=1, max_size=5), values, max_size=3)
        case "union":
            kind, values = draw(_types(names, 0))
            if kind == "null":
                return ["null"], values
            return ["null", kind], st.none() | values
    name = draw(st.sampled_from(sorted(_VALUES)))
    return name, _VALUES[name]


@st.composite
def definitions_with_values(draw: st.DrawFn) -> tuple[Any, Any]:
    kind, values = draw(_types(_Names(), 3))
    return kind, draw(values)


def binary(kind: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(kind), value)
    return out.getvalue()


def in_json(kind: Any, value: Any) -> bytes:
    out = io.StringIO()
    fastavro.json_writer(out, fastavro.parse_schema(kind), [value])
    return out.getvalue().encode()


@settings(max_examples=70, deadline=None)
@given(definitions_with_values())
def test_what_fastavro_writes_fits(case: tuple[Any, Any]) -> None:
    kind, value = case
    made = checker(kind)
    data = binary(kind, value)
    made.check_binary(data)
    made.check_json(in_json(kind, value))
    with pytest.raises(Mismatch):
        made.check_binary(data + b"\0")
    if data:
        with pytest.raises(Mismatch):
            made.check_binary(data[:-1])


@settings(max_examples=70, deadline=None)
@given(definitions_with_values(), st.binary(max_size=40))
def test_what_fits_is_read_by_fastavro(case: tuple[Any, Any], data: bytes) -> None:
    kind, _ = case
    try:
        checker(kind).check_binary(data)
    except Mismatch:
        return
    stream = io.BytesIO(data)
    fastavro.schemaless_reader(stream, fastavro.parse_schema(kind), None)
    assert stream.tell() == len(data)


@settings(max_examples=50, deadline=None)
@given(definitions_with_values(), st.binary(max_size=40) | st.text(max_size=40).map(str.encode))
def test_any_bytes_fit_or_do_not(case: tuple[Any, Any], data: bytes) -> None:
    made = checker(case[0])
    for check in (made.check_binary, made.check_json):
        try:
            check(data)
        except Mismatch:
            continue


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from(["record", "R", "int", "array", "", "type"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "name", "fields", "items", "values", "symbols", "size", "default", "aliases"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@settings(max_examples=examples(150), deadline=None)
@given(_JSON)
def test_any_definition_is_legal_or_is_not(definition: Any) -> None:
    with contextlib.suppress(BadDefinition):
        avro.AvroChecker(avro.parse(json.dumps(definition)))


# -- definitions -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "definition",
    [
        "nothing",
        5,
        None,
        {"type": "array"},
        {"type": {"type": "string"}},
        {"type": "error_union"},
        ["null", "null"],
        ["null", ["int"]],
        {"type": "fixed", "name": "F", "size": -1},
        {"type": "fixed", "name": "F", "size": "3"},
        {"type": "enum", "name": "E", "symbols": ["A", "A"]},
        {"type": "enum", "name": "E", "symbols": ["1"]},
        {"type": "enum", "name": "E"},
        record(("x", "int"), ("x", "int")),
        record(("1x", "int")),
        record(("x", "Other")),
        record({"name": "x", "type": "int", "default": "text"}),
        {"type": "record", "name": "R x", "fields": []},
    ],
)
def test_a_definition_that_is_not_legal(definition: Any) -> None:
    with pytest.raises(BadDefinition):
        avro.parse(json.dumps(definition))


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, '{"type":"array","items":' * 5_000, "NaN"])
def test_a_text_that_is_no_definition(text: str) -> None:
    with pytest.raises(BadDefinition):
        avro.parse(text)


def test_types_are_nested_to_a_bound() -> None:
    kind: Any = "int"
    for _ in range(250):
        kind = {"type": "array", "items": kind}
    with pytest.raises(BadDefinition, match="nested"):
        avro.parse(json.dumps(kind))


# -- messages ----------------------------------------------------------------------------------------------------------

_LIST = record(("next", ["null", "R"]))


def test_a_recursive_definition() -> None:
    made = checker(_LIST)
    made.check_binary(b"\2\2\0")
    made.check_json(b'{"next": {"R": {"next": null}}}')
    with pytest.raises(Mismatch):
        made.check_json(b'{"next": {"other": {"next": null}}}')


def test_a_value_nested_without_end() -> None:
    made = checker(_LIST)
    with pytest.raises(Mismatch, match="nested"):
        made.check_binary(b"\2" * 1_000_000 + b"\0")
    with pytest.raises(Mismatch):
        made.check_json(b'{"next": {"R": ' * 90_000)
    with pytest.raises(Mismatch, match="nested"):
        made.check_json(b'{"next": {"R": ' * 110 + b'{"next": null}' + b"}}" * 110)


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ({"n": "1", "c": {"zip": "9"}}, "n: must be an integer of 32 bits"),
        ({"n": 1, "c": {"zip": 9}}, "c.zip: must be a string"),
        ({"n": 1, "c": []}, r"c: must be a JSON object (record C)"),
        ({"n": 1}, "the record R lacks the field c"),
        ({"n": 1, "c": {"zip": "9", "city": ""}}, "c: the record C has no field city"),
    ],
)
def test_a_mismatch_names_the_field(value: Any, problem: str) -> None:
    made = checker(record(("n", "int"), ("c", record(("zip", "string"), name="C"))))
    with pytest.raises(Mismatch) as caught:
        made.check_json(json.dumps(value).encode())
    assert str(caught.value) == problem
    with pytest.raises(Mismatch, match=r"^c\.zip: the data ends too early$"):
        made.check_binary(b"\2\x0aab")


def test_the_path_of_a_field_is_bounded() -> None:
    made = checker(record(("next", ["null", "R"])))
    with pytest.raises(Mismatch, match="too early") as caught:
        made.check_binary(b"\2" * 90)
    assert 100 < len(str(caught.value)) < 500


def test_an_array_of_any_number_of_nothing() -> None:
    many = b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f"
    for items in ("null", record(name="E"), {"type": "fixed", "name": "F", "size": 0}):
        with pytest.raises(Mismatch, match="too many values"):
            checker({"type": "array", "items": items}).check_binary(many + b"\0")


def test_records_of_records_of_nothing() -> None:
    kind: Any = record(name="R0")
    levels = [kind]
    for level in range(1, 8):
        previous = f"R{level - 1}"
        fields = [("f0", levels[-1] if level == 1 else previous), *((f"f{at}", previous) for at in range(1, 10))]
        levels.append(record(*fields, name=f"R{level}"))
    root = levels[1]
    for level in levels[2:]:
        level["fields"][0]["type"] = root
        root = level
    with pytest.raises(Mismatch, match="too many values"):
        checker(root).check_binary(b"")


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("int", b"\xff\xff\xff\xff\x1f"),  # 33 bits
        ("int", b"\xff" * 11),
        ("boolean", b"\2"),
        ("string", b"\2\xff"),
        ("string", b"\1"),  # -1 bytes
        ("string", b"\4a"),
        (["null", "int"], b"\4"),
        (["null", "int"], b"\1"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, b"\2"),
        ({"type": "array", "items": "int"}, b"\2\2"),
    ],
)
def test_binary_that_does_not_fit(kind: Any, data: bytes) -> None:
    with pytest.raises(Mismatch):
        checker(kind).check_binary(data)


def test_an_array_in_blocks_with_sizes() -> None:
    made = checker({"type": "array", "items": "int"})
    made.check_binary(b"\3\4\2\4\2\6\0")  # two items in two bytes, then one
    with pytest.raises(Mismatch):
        made.check_binary(b"\3\3\2\4\0")


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("int", "2147483648"),
        ("int", "true"),
        ("int", "1.5"),
        ("long", '"1"'),
        ("double", "NaN"),
        ("bytes", '"\\u0100"'),
        ("string", '"\\ud800"'),
        (["null", "int"], "1"),
        (["null", "int"], '{"int": 1, "null": null}'),
        (["int"], "null"),
        ({"type": "fixed", "name": "F", "size": 2}, '"a"'),
        ({"type": "map", "values": "int"}, "[]"),
        (record(("x", "int")), "{}"),
        (record(("x", "int")), '{"x": 1, "y": 2}'),
        ("null", ""),
    ],
)
def test_json_that_does_not_fit(kind: Any, text: str) -> None:
    with pytest.raises(Mismatch):
        checker(kind).check_json(text.encode())


# -- compatibility -----------------------------------------------------------------------------------------------------

_BASE = record(("x", "int"))


@pytest.mark.parametrize(
    "newer",
    [
        record(("x", "int"), {"name": "y", "type": "string", "default": ""}),
        record(("x", "int"), doc="more"),
        record(("x", "int"), name="other.R"),
        record(("x", ["int"])),
    ],
)
def test_compatible(newer: Any) -> None:
    old, new = avro.parse(json.dumps(_BASE)), avro.parse(json.dumps(newer))
    avro_compatibility.check(new, old)
    avro_compatibility.check(old, new)


@pytest.mark.parametrize(
    ("newer", "says"),
    [
        (record(("x", "int"), ("y", "string")), "y: the field has no default"),
        (record(), "x: the field has no default"),
        (record(("x", "string")), "x: "),
        (record(("x", "long")), "x: long cannot be read as int"),
        (record(("x", "int"), name="S"), "cannot be read as"),
        (record(("x", ["null", "int"])), "x: "),
        ("int", "cannot be read as"),
    ],
)
def test_not_compatible(newer: Any, says: str) -> None:
    old, new = avro.parse(json.dumps(_BASE)), avro.parse(json.dumps(newer))
    with pytest.raises(Incompatible, match=says):
        avro_compatibility.check(new, old)


def test_enums_need_a_default_for_symbols_that_others_have() -> None:
    def enum(*symbols: str, **more: str) -> avro.AvroDefinition:
        return avro.parse(json.dumps({"type": "enum", "name": "E", "symbols": symbols, **more}))

    with pytest.raises(Incompatible, match="neither the symbol B nor a default"):
        avro_compatibility.check(enum("A", "B"), enum("A"))
    avro_compatibility.check(enum("A", "B", default="A"), enum("A", default="A"))


@settings(max_examples=40, deadline=None)
@given(definitions_with_values())
def test_a_definition_is_compatible_with_itself(case: tuple[Any, Any]) -> None:
    made = avro.parse(json.dumps(case[0]))
    avro_compatibility.check(made, made)


def test_recursive_definitions_are_compared() -> None:
    made = avro.parse(json.dumps(_LIST))
    avro_compatibility.check(made, made)
    other = avro.parse(json.dumps(record(("next", ["null", "R"]), ("x", "int"))))
    with pytest.raises(Incompatible):
        avro_compatibility.check(other, made)

"""Fields of data in JSON: whatever is called plain is what a parser makes of it, and ordinary data are plain."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from syncpoint.base.kernel.errors import Malformed
from syncpoint.base.kernel.json_fields import PATHS_MAX, FieldFinder
from tests.kit.examples import examples

PATHS = [["id"], ["deep", "id"], ["deep", "er", "x"]]
WITHOUT = ["new", "other"]


def column(rows: list[bytes]) -> tuple[bytes, bytes]:
    ends = [0]
    for one in rows:
        ends.append(ends[-1] + len(one))
    return b"".join(rows), struct.pack(f"<{len(ends)}I", *ends)


def found(rows: list[bytes], first: int = 0, count: int | None = None) -> list[dict[str, str] | None]:
    """What the buffers say: fields by their paths, or None for data that are not plain."""
    count = len(rows) - first if count is None else count
    finder = FieldFinder([[name.encode() for name in path] for path in PATHS], [name.encode() for name in WITHOUT])
    valid, row_ends, key_ends, keys, value_ends, values, brackets = finder.find(*column(rows), first, count)
    at_rows, at_keys, at_values = (struct.unpack(f"<{len(one) // 4}I", one) for one in (row_ends, key_ends, value_ends))
    fields = [
        (keys[at_keys[i] : at_keys[i + 1]].decode(), values[at_values[i] : at_values[i + 1]].decode())
        for i in range(len(at_keys) - 1)
    ]
    assert (len(at_rows), at_rows[0], at_rows[-1], at_keys[-1]) == (count + 1, 0, len(fields), len(keys))
    for i, at in enumerate(struct.unpack(f"<{count}I", brackets)):
        if valid[i // 8] >> i % 8 & 1:
            data = rows[first + i]
            assert (data[at : at + 1], data[at + 1 :].strip(b" \t\r\n")) == (b"}", b"")
    return [dict(fields[at_rows[i] : at_rows[i + 1]]) if valid[i // 8] >> i % 8 & 1 else None for i in range(count)]


class NotPlain(Exception):
    pass


def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) < len(pairs):
        raise NotPlain
    return dict(pairs)


def no_constant(text: str) -> None:
    raise NotPlain


def parsed(data: bytes) -> dict[str, str] | None:
    """The same by a parser."""
    try:
        value = json.loads(data.decode(errors="replace"), object_pairs_hook=once, parse_constant=no_constant)
    except (ValueError, NotPlain, RecursionError):
        return None
    if not isinstance(value, dict) or not value or any(name in value for name in WITHOUT):
        return None
    fields = {}
    for path in PATHS:
        inner: Any = value
        for name in path:
            inner = inner.get(name) if isinstance(inner, dict) else None
        if inner is not None:
            fields[".".join(path)] = inner if isinstance(inner, str) else json.dumps(inner)
    return fields


names = st.sampled_from(["id", "deep", "er", "x", "new", "a", "", "b c"])
scalars = st.one_of(
    st.none(), st.booleans(), st.integers(-(10**20), 10**20), st.floats(allow_nan=False), st.text(max_size=12),
    st.text("abcdefgh ~", min_size=5, max_size=40),
)  # fmt: skip
values = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(names, inner, max_size=4)),
    max_leaves=12,
)
objects = st.dictionaries(names, values, max_size=5)
texts = st.builds(
    lambda value, ascii, indent: json.dumps(value, ensure_ascii=ascii, indent=indent).encode(),
    objects,
    st.booleans(),
    st.sampled_from([None, 1]),
)


@st.composite
def spoiled(draw: st.DrawFn) -> bytes:
    """Text with bytes left out, put in or in another's place."""
    text = bytearray(draw(texts))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(text)))
        text[at : at + draw(st.integers(0, 2))] = draw(
            st.one_of(
                st.binary(max_size=2), st.sampled_from([b'"', b"{", b"}", b"[", b"]", b",", b":", b"0", b"\\u0041"])
            )
        )
    return bytes(text)


@given(st.lists(st.one_of(texts, spoiled(), st.binary(max_size=12)), max_size=6))
@settings(max_examples=examples(500))
@example([b'{"a":1]', b'{"a":1}x', b'{"a":1}{"b":2}', b'{"a":01}', b'{"a":-}', b'{"a":1.}', b'{"a":.5}', b'{"a":1e}'])
@example([b'{"id":1,"id":2}', b'{"a":{"x":1,"x":1}}', b'{"new":1}', b'{"n\\u0065w":1}', b"{}", b"[1]", b"", b'{"a"'])
@example([b'{"a":"\x01"}', b'{"a":"\\', b'{"a":"\\x"}', b'{"a":tru}', b'{"a":nul', b'{"a":1,}', b"\xef\xbb\xbf{}"])
def test_what_is_plain_is_what_a_parser_finds(rows: list[bytes]) -> None:
    for data, fields in zip(rows, found(rows), strict=True):
        assert fields is None or fields == parsed(data), data


plain = st.dictionaries(
    st.sampled_from(["id", "a", "name", ""]),
    st.recursive(
        st.one_of(st.none(), st.booleans(), st.integers(1 - 10**17, 10**17), st.text('ab "\\/\n~0', max_size=30)),
        lambda inner: st.one_of(
            st.lists(st.one_of(inner, st.floats(allow_nan=False, allow_infinity=False)), max_size=3),
            st.dictionaries(st.sampled_from(["x", "y"]), inner, max_size=2),
        ),
        max_leaves=8,
    ),
    min_size=1,
).filter(lambda value: not isinstance(value.get("id"), dict | list) and not set('"\\/\n') & set(str(value.get("id"))))


@given(plain, st.sampled_from([None, 2]))
@settings(max_examples=examples(200))
def test_ordinary_data_are_plain(value: dict[str, Any], indent: int | None) -> None:
    data = b" \n" + json.dumps(value, indent=indent).encode() + b"\r\n\t "
    assert found([data]) == [parsed(data)] != [None]


@pytest.mark.parametrize(
    "data",
    [
        b'{"id":1.5}', b'{"id":"\\n"}', '{"id":"ü"}'.encode(), '{"ü":1}'.encode(), b'{"id":-0}', b'{"id":[1]}',
        b'{"id":{}}', b'{"id":1234567890123456789}', b'{"a":"\\u0041"}', b'{"a":' + b"[" * 17 + b"]" * 17 + b"}",
        b"{" + b",".join(b'"%d":0' % n for n in range(257)) + b"}", b'{"a":"' + b"x" * (1 << 20) + b'"}',
        b'{"a":' + b"1" * 65 + b"}",
        b'{"' + b"n" * 1025 + b'":1}',
    ],
)  # fmt: skip
def test_what_is_left_to_a_parser(data: bytes) -> None:
    assert parsed(data) is not None
    assert found([data]) == [None]


def test_values_in_the_middle_of_a_column() -> None:
    rows = [b'{"id":1}', b"?", b'{"id":"two","deep":{"er":{"x":true},"id":null}}', b'{"a":"\xff"}', b'{"id":4}']
    assert found(rows) == [{"id": "1"}, None, {"id": "two", "deep.er.x": "true"}, {}, {"id": "4"}]
    assert found(rows, 1, 2) == [None, {"id": "two", "deep.er.x": "true"}]
    assert found(rows * 5)[5:10] == found(rows)


def test_what_no_column_has() -> None:
    data, ends = column([b'{"id":1}'])
    finder = FieldFinder([])
    for first, rows in ((0, 2), (-1, 1), (2, 0), (0, -1)):
        with pytest.raises(Malformed):
            finder.find(data, ends, first, rows)
    for wrong in ((0, 99), (9, 3)):
        with pytest.raises(Malformed):
            finder.find(data, struct.pack("<2I", *wrong), 0, 1)
    with pytest.raises(ValueError, match=r"at most 32 paths \(33 given\)"):
        FieldFinder([[b"x"]] * (PATHS_MAX + 1))

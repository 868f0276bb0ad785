"""A mistake in a document is named with its place, and with what would be right."""

from __future__ import annotations

from typing import Any

import pytest

from syncpoint.base.model.documents import check_document
from syncpoint.base.model.errors import InvalidArgument

SCHEMA: dict[str, Any] = {
    "$defs": {
        "base": {"properties": {"where": {"type": "string"}}},
        "wait": {"type": "string", "pattern": "^[0-9]+s$", "examples": ["5s", "60s"]},
    },
    "allOf": [{"$ref": "#/$defs/base"}],
    "required": ["kind"],
    "unevaluatedProperties": False,
    "properties": {
        "kind": {"enum": ["a", "b"]},
        "wait": {"$ref": "#/$defs/wait"},
        "code": {"pattern": "^x$"},
        "options": {"type": "object", "additionalProperties": False, "properties": {"from": {}, "to": {}}},
        "nothing": {"type": "object", "additionalProperties": False},
        "either": {"oneOf": [{"type": "integer"}, {"type": "object", "required": ["n"]}]},
    },
}


@pytest.mark.parametrize(
    ("content", "place", "words"),
    [
        ({}, "f.yaml", "'kind' is a required property"),
        ({"kind": "c"}, "f.yaml: kind", "'c' is not one of ['a', 'b']"),
        ({"kin": "a"}, "f.yaml", "'kin' was unexpected; did you mean 'kind'?"),
        ({"kind": "a", True: 1}, "f.yaml", "True was unexpected; there are code"),
        ({"kind": "a", "wher": ""}, "f.yaml", "'wher' was unexpected; did you mean 'where'?"),
        ({"kind": "a", "zzz": ""}, "f.yaml", "there are code, either, kind, nothing, options, wait, where"),
        ({"kind": "a", "wait": "5 secs"}, "f.yaml: wait", "'5 secs' does not match; it is written like 5s, 60s"),
        ({"kind": "a", "code": "y"}, "f.yaml: code", "'y' does not match '^x$'"),
        ({"kind": "a", "options": {"form": 1}}, "f.yaml: options", "'form' was unexpected; did you mean 'from'?"),
        ({"kind": "a", "nothing": {"n": 1}}, "f.yaml: nothing", "('n' was unexpected)"),
        ({"kind": "a", "either": {"m": 1}}, "f.yaml: either", "'n' is a required property"),
    ],
)
def test_what_is_wrong_and_what_would_be_right(content: Any, place: str, words: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        check_document(content, SCHEMA, "f.yaml", within="{place}: {path}")
    assert caught.value.field == place
    assert words in caught.value.problem


def test_what_is_allowed() -> None:
    check_document({"kind": "a", "where": "x", "wait": "5s", "options": {"to": 1}, "either": 1}, SCHEMA, "f.yaml")


@pytest.mark.parametrize(
    "part", [{"patternProperties": {"^x": {}}}, {"anyOf": [{"properties": {"b": {}}}]}, {"allOf": [True]}]
)
def test_no_hint_where_names_are_not_all(part: dict[str, Any]) -> None:
    schema = {**part, "properties": {"a": {}}, "additionalProperties": False}
    with pytest.raises(InvalidArgument, match=r"'c' (was unexpected\)|does not match any)"):
        check_document({"c": 1}, schema, "f.yaml")

"""Why a filter selects a message or not: the value of each part of it.

Place: for people who try a rule on a message; never on a message's path.
Promise: the parts are evaluated as the whole is, by the same functions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import NamedTuple

from syncpoint.base.rules import sql_tree as tree
from syncpoint.base.rules.sql_compile import NewIds, compile_expression, compile_filter
from syncpoint.base.rules.sql_values import RuleError, Value, text_of
from syncpoint.base.rules.system_properties import RuleMessage


class Part(NamedTuple):
    """A part of a filter. `depth`: in how many others it stands; `result`: its value, in words."""

    depth: int
    text: str
    result: str


def explain(
    text: str, node: tree.Predicate, message: RuleMessage, ids: NewIds, parameters: Mapping[str, Value] | None = None
) -> list[Part]:
    """The whole filter `text`, whose tree is `node`, then its parts, each followed by its own."""
    return [
        Part(depth, text[slice(*part.at)], _result(part, message, ids, parameters)) for depth, part in _parts(node, 0)
    ]


def _parts(node: tree.SqlNode, depth: int) -> Iterator[tuple[int, tree.SqlNode]]:
    if isinstance(node, tree.Constant):
        return
    yield depth, node
    for one in fields(node):
        found = getattr(node, one.name)
        for child in found if isinstance(found, tuple) else (found,):
            if isinstance(child, tree.SqlNode):
                yield from _parts(child, depth + 1)


def _result(node: tree.SqlNode, message: RuleMessage, ids: NewIds, parameters: Mapping[str, Value] | None) -> str:
    try:
        if isinstance(node, tree.Predicate):
            truth = compile_filter(node, parameters)(message, ids)
            return "unknown" if truth is None else "true" if truth else "false"
        assert isinstance(node, tree.Expression)
        value = compile_expression(node, parameters)(message, ids)
        return "not there" if value is None else repr(value) if isinstance(value, str) else text_of(value)
    except RuleError as error:
        return f"fails: {error}"

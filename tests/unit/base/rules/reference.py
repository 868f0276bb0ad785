"""What SQL filters mean, in plain words: a second evaluator, which shares nothing with the first.

A condition is a nested tuple, its text is made by `text`. A message is a dictionary of texts. Unknown is None; a filter
that fails on a message raises `Fails`.
"""

from __future__ import annotations

import re
import struct
from typing import Any as Anything

Tree = tuple[Anything, ...]


class Fails(Exception):
    """The filter has no result for this message."""


# -- text --------------------------------------------------------------------------------------------------------------

_STRENGTH = {"or": 1, "and": 2, "not": 3, "+": 5, "-": 5, "*": 6, "/": 6, "%": 6, "negative": 7}


def text(tree: Tree) -> str:
    """The SQL of a tree, with parentheses only where its meaning would be another one without."""
    return _text(tree)


def _text(tree: Tree, least: int = 0) -> str:
    op, *rest = tree
    strength = _STRENGTH.get(op, 4)
    match op:
        case "constant":
            return _literal(rest[0])
        case "property":
            return str(rest[0])
        case "or" | "and" | "+" | "-" | "*" | "/" | "%":
            found = f"{_text(rest[0], strength)} {op.upper()} {_text(rest[1], strength + 1)}"
        case "not":
            found = f"NOT {_text(rest[0], 3)}"
        case "negative":
            found = f"-{_text(rest[0], 7)}"
        case "in" | "not in":
            found = f"{_text(rest[0], 5)} {op.upper()} ({', '.join(_text(one, 5) for one in rest[1])})"
        case "like" | "not like":
            escape = f" ESCAPE {_text(rest[2], 5)}" if rest[2] else ""
            found = f"{_text(rest[0], 5)} {op.upper()} {_text(rest[1], 5)}{escape}"
        case "is null" | "is not null":
            found = f"{rest[0]} {op.upper()}"
        case "exists":
            found = f"EXISTS({rest[0]})"
        case _:
            found = f"{_text(rest[0], 5)} {op} {_text(rest[1], 5)}"
    return f"({found})" if strength < least else found


def _literal(value: object) -> str:
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return (
        {None: "NULL", True: "TRUE", False: "FALSE"}[value]
        if value is None or value is True or value is False
        else repr(value)
    )


# -- conditions --------------------------------------------------------------------------------------------------------


def holds(tree: Tree, message: dict[str, str]) -> bool | None:
    """Whether the message fits."""
    op, *rest = tree
    if op == "or":
        one, other = holds(rest[0], message), None
        if one is True:
            return True
        other = holds(rest[1], message)
        return True if other is True else None if one is None or other is None else False
    if op == "and":
        one = holds(rest[0], message)
        if one is False:
            return False
        other = holds(rest[1], message)
        return False if other is False else None if one is None or other is None else True
    if op == "not":
        return opposite(holds(rest[0], message))
    if op in ("is null", "is not null", "exists"):
        there = look(rest[0], message) is not None
        return not there if op == "is null" else there
    if op.startswith("not "):
        return opposite(holds((op[4:], *rest), message))
    if op == "in":
        left = value(rest[0], message)
        if left is None:
            return None
        found: bool | None = False
        for choice in rest[1]:
            same = compared("=", left, value(choice, message))
            if same is True:
                return True
            if same is None:
                found = None
        return found
    if op == "like":
        subject, pattern = value(rest[0], message), value(rest[1], message)
        escape = value(rest[2], message) if rest[2] else ""
        if not isinstance(subject, str) or not isinstance(pattern, str) or not isinstance(escape, str):
            return None
        if len(escape) > 1:
            raise Fails
        return like(subject, symbols(pattern, escape))
    return compared(op, value(rest[0], message), value(rest[1], message))


def opposite(truth: bool | None) -> bool | None:
    """NOT."""
    return None if truth is None else not truth


def symbols(pattern: str, escape: str) -> list[str]:
    """The pattern: `%` and `_` as they are, all others with a mark before them."""
    found, at = [], 0
    while at < len(pattern):
        if escape and pattern[at] == escape:
            if at + 1 == len(pattern):
                raise Fails
            at += 1
            found.append("=" + pattern[at])
        else:
            found.append(pattern[at] if pattern[at] in "%_" else "=" + pattern[at])
        at += 1
    return found


def like(subject: str, pattern: list[str]) -> bool:
    """By the definition: `%` is any text, the empty one too."""
    if not pattern:
        return not subject
    if pattern[0] == "%":
        return any(like(subject[at:], pattern[1:]) for at in range(len(subject) + 1))
    return bool(subject) and pattern[0] in ("_", "=" + subject[0]) and like(subject[1:], pattern[1:])


def compared(op: str, left: object, right: object) -> bool | None:
    """A comparison; a text beside a number or a boolean is read as one, as a whole."""
    if isinstance(left, str) and not isinstance(right, str):
        left = read(left, right)
    elif isinstance(right, str) and not isinstance(left, str):
        right = read(right, left)
    if left is None or right is None:
        return None
    kinds = {str if isinstance(one, str) else bool if isinstance(one, bool) else float for one in (left, right)}
    if len(kinds) > 1 or (kinds == {bool} and op not in ("=", "<>")):
        return None
    one: Anything = left
    other: Anything = right
    if isinstance(one, float) or isinstance(other, float):
        one, other = float(one), float(other)
    order = (one > other) - (one < other)
    return {"=": order == 0, "<>": order != 0, "<": order < 0, "<=": order <= 0, ">": order > 0, ">=": order >= 0}[op]


# -- values ------------------------------------------------------------------------------------------------------------


def look(name: str, message: dict[str, str]) -> str | None:
    """An attribute, whatever the case of its name: the one written so, else the least of those that fit."""
    if name in message:
        return message[name]
    fitting = sorted(key for key in message if key.lower() == name.lower())
    return message[fitting[0]] if fitting else None


def value(tree: Tree, message: dict[str, str]) -> object:
    """The value of an expression; None is NULL, and what is not there."""
    op, *rest = tree
    if op == "constant":
        return rest[0]
    if op == "property":
        return look(rest[0], message)
    if op == "negative":
        number = value(rest[0], message)
        if isinstance(number, str):
            number = read(number, 0)
        if number is None or isinstance(number, bool):
            return None
        assert isinstance(number, int | float)
        return fitting_number(-number)
    left, right = value(rest[0], message), value(rest[1], message)
    if isinstance(left, str) and isinstance(right, str) and op == "+":
        return left + right
    left = read(left, 0) if isinstance(left, str) else left
    right = read(right, 0) if isinstance(right, str) else right
    if left is None or right is None or isinstance(left, bool) or isinstance(right, bool):
        return None
    assert isinstance(left, int | float)
    assert isinstance(right, int | float)
    return arithmetic(op, left, right)


def arithmetic(op: str, left: float, right: float) -> float:
    """Integers stay integers, and are divided toward zero; a double beside an integer makes it a double."""
    whole = isinstance(left, int) and isinstance(right, int)
    if op in "/%" and right == 0:
        raise Fails
    try:
        if op in "+-*":
            result = left + right if op == "+" else left - right if op == "-" else left * right
        elif whole:
            quotient = abs(int(left)) // abs(int(right)) * (1 if (left < 0) == (right < 0) else -1)
            result = quotient if op == "/" else left - quotient * right
        elif op == "/":
            result = left / right
        else:
            result = abs(left) % abs(right)
            result = -result if left < 0 else result
    except OverflowError:
        raise Fails from None
    return fitting_number(result)


def fitting_number(number: float) -> float:
    """The number, if it is one of the language."""
    if isinstance(number, int):
        if not -(2**63) <= number < 2**63:
            raise Fails
    elif number - number != 0:
        raise Fails
    return number


def read(literal: str, beside: object) -> object:
    """A text as a literal of the kind of `beside`; None if it is none."""
    if isinstance(beside, bool):
        return {"true": True, "false": False}.get(literal.lower())
    if not isinstance(beside, int | float) or len(literal) > 64:
        return None
    if re.fullmatch("[+-]?[0-9]+", literal):
        try:
            struct.pack("q", int(literal))
        except struct.error:
            return None
        return int(literal)
    if re.fullmatch(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?", literal):
        number = float(literal)
        return None if number in (float("inf"), float("-inf")) else number
    return None

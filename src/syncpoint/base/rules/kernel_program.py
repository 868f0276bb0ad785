"""SQL rules as programs of the kernel: which of them the kernel can evaluate, and their bytes.

Place: beside `sql_compile`, from the same tree; `kernel.filters` runs the programs, on whole batches.
Promise: a program matches exactly the messages for which the closure of the same filter is true. A filter for which
there is none (it has arithmetic with properties, times, spans, names beyond ASCII, names or patterns that are worked
out, `newid()`, or patterns with long parts, for which the kernel would need text times part steps) has none at all, and
is evaluated by its closure.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from syncpoint.base.rules import sql_tree as tree
from syncpoint.base.rules.correlation import CorrelationFilter
from syncpoint.base.rules.sql_compile import TURNED, compile_expression, compile_filter, is_time_or_span
from syncpoint.base.rules.sql_values import RuleError, Value, pattern_symbols
from syncpoint.base.rules.system_properties import PREFIX, TABLE, Origin, RuleMessage

MATCH_ALL = b""
_NOT, _AND, _OR = b"\x05", b"\x06", b"\x07"  # operations of kernel.filters
_COMPARE, _IN, _LIKE, _EXISTS, _CONSTANT = range(8, 13)
_RELATIONS = {"<": 1, "=": 2, "<=": 3, ">": 4, "<>": 5, ">=": 6}
_FALSE, _TRUE, _UNKNOWN = range(3)
_DEPTH_MAX = 60  # operands that wait, of the 64 that the kernel has room for
_PART_MAX = 32  # symbols of a pattern between two `%`
_SIZE_MAX = (1 << 16) - 1  # bytes of an operation


class _NoProgram(Exception):
    """The kernel has no words for it."""


def program_of(node: tree.Predicate, parameters: Mapping[str, Value] | None = None) -> bytes | None:
    """The program of a filter, None if there is none. Raises `InvalidArgument` for a parameter that is not given."""
    compile_filter(node, parameters)
    try:
        program, depth = _predicate(node, parameters or {})
    except _NoProgram:
        return None
    return program if depth <= _DEPTH_MAX else None


def correlation_program(wanted: CorrelationFilter) -> bytes | None:
    """The program of a correlation filter, None if there is none."""
    pairs = [(tree.Property((0, 0), name, True), text) for name, text in wanted.system.items()]
    pairs += [(tree.Property((0, 0), name), text) for name, text in wanted.user.items()]
    parts = []
    for named, text in pairs:
        place = _place(named)
        if place is None or len(text) > _SIZE_MAX // 8:
            return None
        equal = bytes([_RELATIONS["="]]) + _operand(text)
        parts.append(_operation(_COMPARE, place + equal))
        before = _older(named)
        if before is not None:
            there = _operation(_EXISTS, place)
            parts[-1] = there + parts[-1] + _AND + there + _NOT
            parts[-1] += _operation(_COMPARE, _sure_place(before) + equal) + _AND + _OR
    return _chain(parts, _AND)


def any_of(programs: Sequence[bytes], also: bytes = MATCH_ALL) -> bytes:
    """The program that matches what one of them matches, at least, and `also` matches, too."""
    if not programs:
        return _operation(_CONSTANT, bytes([_FALSE]))
    if MATCH_ALL in programs:
        return also
    whole = _chain(programs, _OR)
    return also + whole + _AND if also else whole


def _chain(parts: Sequence[bytes], join: bytes) -> bytes:
    """Joined one by one, so that a long chain never needs more than two places on the stack."""
    first, *rest = parts
    return first + b"".join(part + join for part in rest)


def _operation(code: int, body: bytes) -> bytes:
    if len(body) > _SIZE_MAX:
        raise _NoProgram
    return struct.pack("<BH", code, len(body)) + body


def _predicate(node: tree.Predicate, given: Mapping[str, Value]) -> tuple[bytes, int]:
    """The program, and how many places on the stack it needs."""
    for part in (getattr(node, one.name) for one in fields(node)):
        for named in part if isinstance(part, tuple) else (part,):
            before = _older(named)
            if before is not None:
                return _predicate(_by_names(node, named, before), given)
    match node:
        case tree.Negation(_, operand):
            program, depth = _predicate(operand, given)
            return program + _NOT, depth
        case tree.Conjunction(_, operands) | tree.Disjunction(_, operands):
            found = [_predicate(one, given) for one in operands]
            join = _AND if isinstance(node, tree.Conjunction) else _OR
            depths = [depth + (index > 0) for index, (_, depth) in enumerate(found)]
            return _chain([program for program, _ in found], join), max(depths)
        case tree.Comparison(_, op, left, right):
            return _comparison(op, left, right, given), 1
        case tree.In(_, operand, choices, negated):
            return _in(operand, choices, given) + (_NOT if negated else b""), 2
        case tree.Like(_, text, pattern, escape, negated):
            return _like(text, pattern, escape, given) + (_NOT if negated else b""), 1
        case tree.IsNull(_, operand, negated):
            return _operation(_EXISTS, _sure_place(operand)) + (b"" if negated else _NOT), 1
        case tree.Exists(_, operand):
            return _operation(_EXISTS, _sure_place(operand)), 1
    raise _NoProgram


def _older(node: object) -> tree.Property | None:
    """The attribute that holds a property of the system under its older name, where it has one."""
    if isinstance(node, tree.Property) and node.system and TABLE[node.name].older:
        return tree.Property(node.at, TABLE[node.name].attributes[1])
    return None


def _by_names(node: tree.Predicate, named: tree.Property, before: tree.Property) -> tree.Predicate:
    """A condition on a property with an older name, as conditions on the two attributes that may hold it."""
    now = tree.Property(named.at, TABLE[named.name].attributes[0])
    there = tree.Exists(node.at, now)

    def on(attribute: tree.Property) -> tree.Predicate:
        def changed(one: Any) -> Any:
            return attribute if isinstance(one, tree.Property) and one.system and one.name == named.name else one

        found: dict[str, Any] = {one.name: getattr(node, one.name) for one in fields(node)}
        return replace(
            node,
            **{name: tuple(map(changed, part)) if name == "choices" else changed(part) for name, part in found.items()},
        )

    held = tree.Conjunction(node.at, (there, on(now)))
    return tree.Disjunction(node.at, (held, tree.Conjunction(node.at, (tree.Negation(node.at, there), on(before)))))


def _comparison(op: str, left: tree.Expression, right: tree.Expression, given: Mapping[str, Value]) -> bytes:
    if _is_constant(left):
        if _is_constant(right):
            return _known(tree.Comparison((0, 0), op, left, right), given)
        op, left, right = TURNED.get(op, op), right, left
    return _operation(_COMPARE, _sure_place(left) + bytes([_RELATIONS[op]]) + _side(right, given))


def _in(operand: tree.Expression, choices: Sequence[tree.Expression], given: Mapping[str, Value]) -> bytes:
    if not _is_constant(operand):
        return _operation(_IN, _sure_place(operand) + b"".join(_side(one, given) for one in choices))
    if all(map(_is_constant, choices)):
        return _known(tree.In((0, 0), operand, tuple(choices), False), given)
    return _chain([_comparison("=", operand, one, given) for one in choices], _OR)


def _like(
    text: tree.Expression, pattern: tree.Expression, escape: tree.Expression | None, given: Mapping[str, Value]
) -> bytes:
    if not _is_constant(pattern) or not (escape is None or _is_constant(escape)):
        raise _NoProgram
    if _is_constant(text):
        return _known(tree.Like((0, 0), text, pattern, escape, False), given)
    wanted, by = _value(pattern, given), "" if escape is None else _value(escape, given)
    place = _sure_place(text)
    if not isinstance(wanted, str) or not isinstance(by, str):
        return _operation(_CONSTANT, bytes([_UNKNOWN]))
    try:
        symbols = pattern_symbols(wanted, by)
    except RuleError:
        raise _NoProgram from None
    if max(map(len, "".join(one[:1] for one in symbols).split("%"))) > _PART_MAX:
        raise _NoProgram
    return _operation(_LIKE, place + b"".join(_SYMBOLS.get(one) or one[1:].encode() for one in symbols))


_SYMBOLS = {"%": b"\xff", "_": b"\xfe"}  # bytes that UTF-8 has not


def _is_constant(node: tree.Expression) -> bool:
    """Whether its value is the same for each message."""
    match node:
        case tree.Constant() | tree.Parameter():
            return True
        case tree.Negative(_, operand):
            return _is_constant(operand)
        case tree.Arithmetic(_, _, left, right):
            return _is_constant(left) and _is_constant(right)
    return False


def _value(node: tree.Expression, given: Mapping[str, Value]) -> Value:
    try:
        return compile_expression(node, given)(_NO_MESSAGE, str)
    except RuleError:
        raise _NoProgram from None


def _known(node: tree.Predicate, given: Mapping[str, Value]) -> bytes:
    """The program of what is the same for each message."""
    try:
        truth = compile_filter(node, given)(_NO_MESSAGE, str)
    except RuleError:
        raise _NoProgram from None
    return _operation(_CONSTANT, bytes([_UNKNOWN if truth is None else _TRUE if truth else _FALSE]))


_NO_MESSAGE = RuleMessage({})


def _side(node: tree.Expression, given: Mapping[str, Value]) -> bytes:
    """An operand: a constant, or another property. The kernel knows no times and spans."""
    if is_time_or_span(node):
        raise _NoProgram
    return _operand(_value(node, given)) if _is_constant(node) else b"\x05" + _sure_place(node)


def _operand(value: Value) -> bytes:
    match value:
        case None:
            return b"\x00"
        case str():
            text = value.encode()
            return b"\x01" + len(text).to_bytes(2, "little") + text
        case bool():
            return bytes([4, value])
        case int():
            return struct.pack("<Bq", 2, value)
        case float():
            return struct.pack("<Bd", 3, value)
    raise _NoProgram


def _sure_place(node: tree.Expression) -> bytes:
    place = _place(node)
    if place is None:
        raise _NoProgram
    return place


def _place(node: tree.Expression) -> bytes | None:
    """Where the kernel finds the text of a property; None for what is no text, and for names beyond ASCII."""
    kind = 0
    match node:
        case tree.PropertyNamed(_, tree.Constant(_, str(name))):
            pass
        case tree.Property(_, name, True):
            known = TABLE[name]
            if known.origin is Origin.ORDERING_KEY:
                return struct.pack("<BH", 2, 0)
            if known.origin not in _ATTRIBUTES or known.read is not str:
                return None
            kind, name = int(known.origin is Origin.MESSAGE_ID), PREFIX + name
        case tree.Property(_, name):
            pass
        case _:
            return None
    return struct.pack("<BH", kind, len(name)) + name.encode() if name.isascii() else None


_ATTRIBUTES = (Origin.ATTRIBUTE, Origin.SERVER_ATTRIBUTE, Origin.MESSAGE_ID)

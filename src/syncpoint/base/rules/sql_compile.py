"""SQL rules as functions: a tree becomes closures once, which are called for each message.

Place: after `sql_parser`; called where a subscription's rules are tried on a message.
Promise: a filter selects a message only if it is true, not if it is unknown. An action sees a message as it came and as
its own earlier statements left it, and returns a new set of attributes; the message itself is never changed, and what
only the server writes stays as it is, however an action spells it. With the
same message, `new_id` and parameters the result is the same, always.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from syncpoint.base.model.errors import InvalidArgument
from syncpoint.base.model.reserved import keep
from syncpoint.base.rules import sql_tree as tree
from syncpoint.base.rules.sql_values import (
    RuleError,
    Value,
    calculate,
    compare,
    compare_with,
    like,
    literal_of,
    negative,
    text_of,
)
from syncpoint.base.rules.system_properties import SERVER_WRITTEN, TABLE, RuleMessage, folded

Truth = bool | None
NewIds = Callable[[int], str]
"""The id that the n-th `newid()` of a rule stands for, for the message at hand."""
Filter = Callable[[RuleMessage, NewIds], Truth]
Action = Callable[[RuleMessage, NewIds], dict[str, str]]
Valued = Callable[[RuleMessage, NewIds], Value]


def compile_filter(node: tree.Predicate, parameters: Mapping[str, Value] | None = None) -> Filter:
    """A function that returns whether a message matches: true, false, or unknown (None). It raises `RuleError`.

    Raises `InvalidArgument` for a parameter that is not given.
    """
    return _predicate(node, _given(parameters))


def compile_expression(node: tree.Expression, parameters: Mapping[str, Value] | None = None) -> Valued:
    """A function that gives the value of an expression, as `compile_filter`."""
    return _expression(node, _given(parameters))


def compile_action(statements: Sequence[tree.Statement], parameters: Mapping[str, Value] | None = None) -> Action:
    """A function that gives a message's attributes as the action leaves them. It raises `RuleError`.

    Raises `InvalidArgument` for a parameter that is not given, and for a property that cannot be set.
    """
    given = _given(parameters)
    steps = [_statement(one, given) for one in statements]

    def act(message: RuleMessage, new_ids: NewIds) -> dict[str, str]:
        attributes = dict(message.attributes)
        seen = replace(message, attributes=attributes)
        for step in steps:
            step(seen, new_ids, attributes)
            seen.changed(attributes)
        keep(SERVER_WRITTEN, message.attributes, attributes)
        return attributes

    return act


def check_targets(statements: Sequence[tree.Statement], field: str = "rule.action") -> None:
    """Raises `InvalidArgument` for an action that names an attribute which only the server writes. Such a one that was
    stored by an earlier version leaves it as it is.
    """
    written = {folded(name) for name in SERVER_WRITTEN}
    for one in statements:
        if not one.property.system and folded(one.property.name) in written:
            raise InvalidArgument(field, f"{one.property.name} is written by the server, and cannot be changed")


def _given(parameters: Mapping[str, Value] | None) -> dict[str, Value]:
    return {name.lower(): value for name, value in (parameters or {}).items()}


def _statement(
    one: tree.Statement, given: Mapping[str, Value]
) -> Callable[[RuleMessage, NewIds, dict[str, str]], None]:
    target = one.property
    if target.system and not TABLE[target.name].settable:
        raise InvalidArgument(
            "rule.action", f"sys.{target.name} is {TABLE[target.name].origin.value}, and cannot be changed"
        )
    names = TABLE[target.name].attributes if target.system else (target.name,)
    wanted = {folded(name) for name in names}
    value = _expression(one.value, given) if isinstance(one, tree.Set) else None

    def step(message: RuleMessage, new_ids: NewIds, attributes: dict[str, str]) -> None:
        found = None if value is None else value(message, new_ids)
        written = None if found is None else text_of(found)
        if target.system and written is not None and TABLE[target.name].read(written) is None:
            raise RuleError(f"sys.{target.name} cannot be {written!r}")
        name = next((one for one in names if message.user(one) is not None), names[0])
        kept = (
            name
            if name in attributes
            else min((key for key in attributes if folded(key) == folded(name)), default=name)
        )
        for key in [key for key in attributes if folded(key) in wanted]:
            del attributes[key]
        if written is not None:
            attributes[kept] = written

    return step


def _predicate(node: tree.Predicate, given: Mapping[str, Value]) -> Filter:
    match node:
        case tree.Comparison(_, op, left, right):
            return _comparison(op, left, right, given)
        case tree.Like(_, text, pattern, escape, negated):
            subject, wanted = _expression(text, given), _expression(pattern, given)
            by = None if escape is None else _expression(escape, given)
            return _negated(
                negated,
                lambda message, ids: like(
                    subject(message, ids), wanted(message, ids), "" if by is None else by(message, ids)
                ),
            )
        case tree.In(_, operand, choices, negated):
            return _negated(negated, _in(operand, choices, given))
        case tree.IsNull(_, operand, negated):
            value = _expression(operand, given)
            return lambda message, ids: (value(message, ids) is None) is not negated
        case tree.Exists(_, operand):
            value = _expression(operand, given)
            return lambda message, ids: value(message, ids) is not None
        case tree.Negation(_, operand):
            return _negated(True, _predicate(operand, given))
        case tree.Conjunction(_, operands):
            return _joined([_predicate(one, given) for one in operands], False)
        case tree.Disjunction(_, operands):
            return _joined([_predicate(one, given) for one in operands], True)
    raise AssertionError(node)


def _negated(negated: bool, inner: Filter) -> Filter:
    if not negated:
        return inner

    def negation(message: RuleMessage, ids: NewIds) -> Truth:
        found = inner(message, ids)
        return None if found is None else not found

    return negation


def _comparison(op: str, left: tree.Expression, right: tree.Expression, given: Mapping[str, Value]) -> Filter:
    if is_time_or_span(left) and not is_time_or_span(right):
        op, left, right = TURNED.get(op, op), right, left
    one, beside = _expression(left, given), _beside(op, right, given)
    return lambda message, ids: beside(one(message, ids), message, ids)


def _beside(
    op: str, right: tree.Expression, given: Mapping[str, Value]
) -> Callable[[Value, RuleMessage, NewIds], Truth]:
    """(value, message, new ids): how the value compares with an expression."""
    match right:
        case tree.Constant(_, str(text)) if (literal := literal_of(text)) is not None:
            return lambda value, message, ids: compare_with(op, value, text, literal)
    other = _expression(right, given)
    return lambda value, message, ids: compare(op, value, other(message, ids))


def is_time_or_span(node: tree.Expression) -> bool:
    """Whether it is a text in the rule that stands for one."""
    return isinstance(node, tree.Constant) and isinstance(node.value, str) and literal_of(node.value) is not None


TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
"""The comparison with its sides changed over, where that is another one."""


def _in(operand: tree.Expression, choices: Sequence[tree.Expression], given: Mapping[str, Value]) -> Filter:
    wanted, same = _expression(operand, given), [_beside("=", one, given) for one in choices]

    def among(message: RuleMessage, ids: NewIds) -> Truth:
        value, unknown = wanted(message, ids), False
        if value is None:
            return None
        for equal in same:
            found = equal(value, message, ids)
            if found:
                return True
            unknown = unknown or found is None
        return None if unknown else False

    return among


def _joined(operands: Sequence[Filter], decisive: bool) -> Filter:
    """OR where true decides, AND where false does; unknown, if nothing decides and something is unknown."""

    def joined(message: RuleMessage, ids: NewIds) -> Truth:
        unknown = False
        for operand in operands:
            found = operand(message, ids)
            if found is decisive:
                return decisive
            unknown = unknown or found is None
        return None if unknown else not decisive

    return joined


def _expression(node: tree.Expression, given: Mapping[str, Value]) -> Valued:
    match node:
        case tree.Constant(_, value):
            return lambda message, ids: value
        case tree.Property(_, name, True):
            return lambda message, ids: message.system(name)
        case tree.BodyField(_, path):
            return lambda message, ids: message.field(path)
        case tree.Property(_, name):
            return lambda message, ids: message.user(name)
        case tree.PropertyNamed(_, expression):
            return _named(_expression(expression, given))
        case tree.Parameter(_, name):
            if name.lower() not in given:
                raise InvalidArgument("rule.parameters", f"@{name} has no value; set it in the rule's parameters")
            bound = given[name.lower()]
            return lambda message, ids: bound
        case tree.NewId(_, number):
            return lambda message, ids: ids(number)
        case tree.Negative(_, operand):
            inner = _expression(operand, given)
            return lambda message, ids: negative(inner(message, ids))
        case tree.Arithmetic(_, op, left, right):
            one, other = _expression(left, given), _expression(right, given)
            return lambda message, ids: calculate(op, one(message, ids), other(message, ids))
    raise AssertionError(node)


def _named(name: Valued) -> Valued:
    def value(message: RuleMessage, ids: NewIds) -> Value:
        found = name(message, ids)
        if found is None:
            return None
        if not isinstance(found, str):
            raise RuleError(f"property({text_of(found)}) needs a name")
        return message.user(found)

    return value

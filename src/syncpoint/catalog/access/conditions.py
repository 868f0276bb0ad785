"""Conditions of bindings, in the Common Expression Language.

Place: compiled by `policy` when a policy is read, evaluated when a grant depends on one.
Promise: an expression that is accepted takes some microseconds, however it is written: its length and its depth are
bounded and, when a policy is set, its logical operators, as Google bounds them, and the terms of all its conditions.
What cannot be evaluated grants nothing.
Leaves to `cel`: the language.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final, NamedTuple

from syncpoint.base.model.errors import InvalidArgument
from syncpoint.catalog.access import cel
from syncpoint.catalog.access.cel_values import CelError

EXPRESSION_CHARS_MAX: Final = 1000
OPERATORS_MAX: Final = 12
"""Logical operators (`&&`, `||`, `!`) of one expression; those that stand may have more."""
TERMS_MAX: Final = 8_000
"""Names, literals and signs of the conditions of one policy, as they are set: 20 ms to read, 8 ms to evaluate."""
_SERVICE = "pubsub.googleapis.com"
_TYPES: Final = {"topics": "Topic", "subscriptions": "Subscription", "snapshots": "Snapshot", "schemas": "Schema"}


class Context(NamedTuple):
    """What conditions may look at. `now_s`: seconds since the epoch."""

    resource: str
    now_s: float


class Condition:
    """One compiled expression. `terms`: its names, literals and signs, in proportion to which it costs; `logical`: how
    many of them are logical operators."""

    __slots__ = ("_value", "expression", "logical", "terms")

    def __init__(self, expression: str, found: cel.ConditionExpression) -> None:
        self.expression, self._value, self.terms, self.logical = expression, found.value, found.terms, found.logical

    def holds(self, variables: cel.Variables) -> bool:
        """Whether the condition is true of `variables` (see `variables_of`); one that fails is not."""
        try:
            return self._value(variables) is True
        except CelError:
            return False


def check(expressions: Iterable[str]) -> None:
    """Raise `InvalidArgument` for expressions that a policy must not have from now on."""
    terms = 0
    for expression in expressions:
        condition = compiled(expression)
        if condition.logical > OPERATORS_MAX:
            raise InvalidArgument(
                "policy.bindings.condition.expression",
                f"must not have more than {OPERATORS_MAX} logical operators (&&, ||, !)",
            )
        terms += condition.terms
        if terms > TERMS_MAX:
            raise InvalidArgument(
                "policy.bindings.condition.expression",
                f"the conditions of a policy must not have more than {TERMS_MAX} names, literals and operators in"
                " total",
            )


@lru_cache(maxsize=512)  # 0.5 MB each at most
def compiled(expression: str) -> Condition:
    """The expression, ready to be evaluated. Raises `InvalidArgument`."""
    if not expression:
        raise InvalidArgument("policy.bindings.condition.expression", "must not be empty")
    if len(expression) > EXPRESSION_CHARS_MAX:
        raise InvalidArgument(
            "policy.bindings.condition.expression", f"must not be longer than {EXPRESSION_CHARS_MAX} characters"
        )
    try:
        made = cel.compiled(expression)
        # One evaluation shows what compiling does not: names that nothing has, a value that is not true or false.
        found = made.value(variables_of(Context("projects/p/topics/trial", 0.0)))
    except CelError as error:
        raise InvalidArgument("policy.bindings.condition.expression", f"cannot be evaluated: {error}") from None
    if not isinstance(found, bool):
        raise InvalidArgument("policy.bindings.condition.expression", "must evaluate to true or false")
    return Condition(expression, made)


def variables_of(context: Context) -> dict[str, Any]:
    """What the names in conditions stand for."""
    parts = context.resource.split("/")
    if len(parts) == 4:
        kind, service = f"{_SERVICE}/{_TYPES.get(parts[2], '')}", _SERVICE
    else:
        kind, service = "cloudresourcemanager.googleapis.com/Project", "cloudresourcemanager.googleapis.com"
    now = datetime.datetime.fromtimestamp(context.now_s, datetime.UTC)
    return {"resource": {"name": context.resource, "type": kind, "service": service}, "request": {"time": now}}

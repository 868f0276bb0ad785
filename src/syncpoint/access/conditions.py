"""Conditions of bindings, in the Common Expression Language.

Place: compiled by `policy` when a policy is read, evaluated when a grant depends on one.
Promise: an expression that is accepted takes some microseconds, however it is written: its length and its depth are
bounded and, when a policy is set, its logical operators, as Google bounds them. What cannot be evaluated grants
nothing.
Leaves to `cel`: the language.
"""

from __future__ import annotations

import datetime
from functools import lru_cache
from typing import Any, Final, NamedTuple

from syncpoint.access import cel
from syncpoint.model.errors import InvalidArgument

EXPRESSION_CHARS_MAX: Final = 1000
OPERATORS_MAX: Final = 12
"""Logical operators (`&&`, `||`, `!`) of one expression; those that stand may have more."""
_SERVICE = "pubsub.googleapis.com"
_TYPES: Final = {"topics": "Topic", "subscriptions": "Subscription", "snapshots": "Snapshot", "schemas": "Schema"}


class Context(NamedTuple):
    """What conditions may look at. `now_s`: seconds since the epoch."""

    resource: str
    now_s: float


class Condition:
    """One compiled expression."""

    __slots__ = ("_value", "expression")

    def __init__(self, expression: str, value: cel.Valued) -> None:
        self.expression, self._value = expression, value

    def holds(self, variables: cel.Variables) -> bool:
        """Whether the condition is true of `variables` (see `variables_of`); one that fails is not."""
        try:
            return self._value(variables) is True
        except cel.CelError:
            return False


def check(expression: str) -> None:
    """Raise `InvalidArgument` for an expression that a binding must not have from now on."""
    compiled(expression)
    if cel.logical_operators(expression) > OPERATORS_MAX:
        raise InvalidArgument(
            "policy.bindings.condition.expression", f"has more than {OPERATORS_MAX} logical operators (&&, ||, !)"
        )


@lru_cache(maxsize=4096)
def compiled(expression: str) -> Condition:
    """The expression, ready to be evaluated. Raises `InvalidArgument`."""
    if not expression:
        raise InvalidArgument("policy.bindings.condition.expression", "is empty")
    if len(expression) > EXPRESSION_CHARS_MAX:
        raise InvalidArgument(
            "policy.bindings.condition.expression", f"is longer than {EXPRESSION_CHARS_MAX} characters"
        )
    try:
        value = cel.compiled(expression)
        # One evaluation shows what compiling does not: names that nothing has, a value that is not true or false.
        found = value(variables_of(Context("projects/p/topics/trial", 0.0)))
    except cel.CelError as error:
        raise InvalidArgument("policy.bindings.condition.expression", f"cannot be evaluated: {error}") from None
    if not isinstance(found, bool):
        raise InvalidArgument("policy.bindings.condition.expression", "is neither true nor false")
    return Condition(expression, value)


def variables_of(context: Context) -> dict[str, Any]:
    """What the names in conditions stand for."""
    parts = context.resource.split("/")
    if len(parts) == 4:
        kind, service = f"{_SERVICE}/{_TYPES.get(parts[2], '')}", _SERVICE
    else:
        kind, service = "cloudresourcemanager.googleapis.com/Project", "cloudresourcemanager.googleapis.com"
    now = datetime.datetime.fromtimestamp(context.now_s, datetime.UTC)
    return {"resource": {"name": context.resource, "type": kind, "service": service}, "request": {"time": now}}

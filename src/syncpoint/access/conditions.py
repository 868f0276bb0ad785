"""Conditions of bindings, in the Common Expression Language.

Place: compiled by `policy` when a policy is read, evaluated when a grant depends on one.
Promise: an expression that is accepted ends in bounded time: macros over lists are refused, and its length is bounded.
What cannot be evaluated grants nothing. Without the package `cel-python` (the extra `conditions`) every condition is
refused.
"""

from __future__ import annotations

import datetime
import re
from functools import lru_cache
from typing import Any, Final, NamedTuple

from syncpoint.model.errors import InvalidArgument

EXPRESSION_CHARS_MAX: Final = 1000
DEPTH_MAX: Final = 20
_MACRO = re.compile(r"\.\s*(all|exists|exists_one|map|filter|reduce|min)\s*\(|\bmatches\s*\(")
_SERVICE = "pubsub.googleapis.com"
_TYPES: Final = {"topics": "Topic", "subscriptions": "Subscription", "snapshots": "Snapshot", "schemas": "Schema"}


class Context(NamedTuple):
    """What conditions may look at. `now_s`: seconds since the epoch."""

    resource: str
    now_s: float


class Condition:
    """One compiled expression."""

    __slots__ = ("_program", "expression")

    def __init__(self, expression: str, program: Any) -> None:
        self.expression, self._program = expression, program

    def holds(self, context: Context) -> bool:
        """Whether it is true; what fails is not."""
        try:
            return bool(self._program.evaluate(_activation(context)))
        except Exception:  # the library has no base class of what an evaluation may raise
            return False


@lru_cache(maxsize=1024)
def compiled(expression: str) -> Condition:
    """The expression, ready to be evaluated. Raises `InvalidArgument`."""
    try:
        import celpy
    except ModuleNotFoundError:
        raise InvalidArgument(
            "policy.bindings.condition", "this server evaluates no conditions; install syncpoint[conditions] for that"
        ) from None
    if not expression:
        raise InvalidArgument("policy.bindings.condition.expression", "is empty")
    if len(expression) > EXPRESSION_CHARS_MAX:
        raise InvalidArgument(
            "policy.bindings.condition.expression", f"is longer than {EXPRESSION_CHARS_MAX} characters"
        )
    if _MACRO.search(expression):
        raise InvalidArgument("policy.bindings.condition.expression", "macros and `matches` are not supported")
    if max(_depths(expression)) > DEPTH_MAX:
        raise InvalidArgument("policy.bindings.condition.expression", f"is nested deeper than {DEPTH_MAX}")
    try:
        environment = celpy.Environment()
        program = environment.program(environment.compile(expression))
        # One evaluation shows what compiling does not: names that nothing has, a value that is not true or false.
        value = program.evaluate(_activation(Context("projects/p/topics/trial", 0.0)))
    except Exception as error:
        raise InvalidArgument("policy.bindings.condition.expression", f"cannot be evaluated: {error}") from None
    if not isinstance(value, celpy.celtypes.BoolType | bool):
        raise InvalidArgument("policy.bindings.condition.expression", "is neither true nor false")
    return Condition(expression, program)


def _depths(expression: str) -> list[int]:
    depths, depth = [0], 0
    for char in expression:
        depth += (char in "([{") - (char in ")]}")
        depths.append(depth)
    return depths


def _activation(context: Context) -> dict[str, Any]:
    import celpy

    text, mapping = celpy.celtypes.StringType, celpy.celtypes.MapType
    parts = context.resource.split("/")
    if len(parts) == 4:
        kind, service = f"{_SERVICE}/{_TYPES.get(parts[2], '')}", _SERVICE
    else:
        kind, service = "cloudresourcemanager.googleapis.com/Project", "cloudresourcemanager.googleapis.com"
    now = datetime.datetime.fromtimestamp(context.now_s, datetime.UTC)
    resource = {"name": context.resource, "type": kind, "service": service}
    return {
        "resource": mapping({text(key): text(value) for key, value in resource.items()}),
        "request": mapping({text("time"): celpy.celtypes.TimestampType(now)}),
    }

"""Rules before they are kept, and tried on one message: whether one means something, and what it would do.

Place: for the admin service, which makes and tries rules, and for the command line, which tries them without a server;
never on a message's path. Loads the parser.
Promise: a rule that passes `check_rule` can be compiled. A trial comes to what the server would do with the message.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from syncpoint.base.model.errors import InvalidArgument
from syncpoint.base.model.limits import ATTRIBUTE_KEY_BYTES_MAX, ATTRIBUTE_VALUE_BYTES_MAX
from syncpoint.base.rules.correlation import check_texts, correlation
from syncpoint.base.rules.explain import Part, explain
from syncpoint.base.rules.sql_compile import Action, Filter, check_targets, compile_action, compile_filter
from syncpoint.base.rules.sql_parser import parse_action, parse_filter
from syncpoint.base.rules.sql_values import INT_MAX, INT_MIN, RuleError
from syncpoint.base.rules.system_properties import RULE_NAME, RuleMessage

PARAMETERS_MAX = 32
_NAME = re.compile(r"[\w$.\-]{1,50}", re.ASCII)
_PARAMETER = re.compile(r"[^\W\d_]\w*")


class RuleText(Protocol):
    """A rule as it is written. Without `sql` and `correlation` it selects all messages."""

    @property
    def name(self) -> str: ...
    @property
    def sql(self) -> str: ...
    @property
    def correlation(self) -> Sequence[tuple[str, str]]: ...
    @property
    def action(self) -> str: ...
    @property
    def parameters(self) -> Sequence[tuple[str, Any]]: ...


class RuleTrial(NamedTuple):
    """What became of a message. `outcome`: true, false, unknown, or "fails: " and why. `attributes`: of the copy that a
    rule with an action makes; `failure`: why there is none. `parts`: what each part of the filter came to.
    """

    outcome: str
    parts: list[Part]
    attributes: dict[str, str] | None = None
    failure: str = ""

    @property
    def selected(self) -> bool:
        """Whether the message is for the rule, and its action works."""
        return self.outcome == "true" and not self.failure


def check_rule(rule: RuleText, *, body: bool = False) -> None:
    """Raises `InvalidArgument` for a rule that has no name or no meaning. `body`: it may name fields of the data."""
    if not _NAME.fullmatch(rule.name):
        raise InvalidArgument("rule.name", f"{rule.name!r} must have 1 to 50 letters, digits and characters of _ - . $")
    if len(rule.parameters) > PARAMETERS_MAX:
        raise InvalidArgument("rule.parameters", f"must not have more than {PARAMETERS_MAX} entries")
    lower = {name.lower() for name, _ in rule.parameters}
    for name, value in rule.parameters:
        if not _PARAMETER.fullmatch(name) or len(lower) < len(rule.parameters):
            raise InvalidArgument(
                "rule.parameters", f"{name!r} must consist of letters, digits and _ and be unique regardless of case"
            )
        if isinstance(value, int) and not isinstance(value, bool) and not INT_MIN <= value <= INT_MAX:
            raise InvalidArgument("rule.parameters", f"{name} must be an integer of 64 bits")
        if isinstance(value, float) and value - value != 0:
            raise InvalidArgument("rule.parameters", f"{name} must be a finite number")
        if isinstance(value, str) and len(value.encode()) > ATTRIBUTE_VALUE_BYTES_MAX:
            raise InvalidArgument(
                "rule.parameters", f"{name} must not be longer than {ATTRIBUTE_VALUE_BYTES_MAX} bytes"
            )
    if rule.correlation and rule.sql:
        raise InvalidArgument("rule.filter", "at most one of sql and correlation may be set")
    for name, text in rule.correlation:
        if not 0 < len(name.encode()) <= ATTRIBUTE_KEY_BYTES_MAX or len(text.encode()) > ATTRIBUTE_VALUE_BYTES_MAX:
            raise InvalidArgument(
                "rule.correlation",
                f"{name!r} must have 1 to {ATTRIBUTE_KEY_BYTES_MAX} bytes and a value of at most"
                f" {ATTRIBUTE_VALUE_BYTES_MAX}",
            )
    if rule.correlation:
        correlation(dict(rule.correlation))
        check_texts(dict(rule.correlation))
    _filter(rule, body=body)
    _action(rule)
    check_targets(parse_action(rule.action, "rule.action") if rule.action else ())


def try_rule(rule: RuleText, message: RuleMessage) -> RuleTrial:
    """What a rule makes of a message; with its body, if it has one. Raises `InvalidArgument` as `check_rule`."""
    if rule.correlation:
        wanted = correlation(dict(rule.correlation))
        outcome = _word(wanted.matches(message))
        parts = [Part(0, "all of these", outcome)]
        for name, text in wanted.system.items():
            parts.append(Part(1, f"sys.{name} = {text!r}", _word(message.system(name) == text)))
        for name, text in wanted.user.items():
            parts.append(Part(1, f"{name} = {text!r}", _word(message.user(name) == text)))
    else:
        text = rule.sql or "1=1"
        evaluate = _filter(rule, body=message.body is not None)
        parts = explain(text, parse_filter(text, body=message.body is not None), message, _no_id, dict(rule.parameters))
        try:
            outcome = _word(evaluate(message, _no_id))
        except RuleError as error:
            outcome = f"fails: {error}"
    act = _action(rule)
    if outcome != "true" or act is None:
        return RuleTrial(outcome, parts)
    try:
        return RuleTrial(outcome, parts, act(message, _no_id) | {RULE_NAME: rule.name})
    except RuleError as error:
        return RuleTrial(outcome, parts, failure=str(error))


def json_fields(data: bytes) -> Mapping[str, object] | None:
    """The fields of a message's data that is an object of JSON; None for other data."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _filter(rule: RuleText, *, body: bool) -> Filter:
    return compile_filter(parse_filter(rule.sql or "1=1", "rule.sql", body=body), dict(rule.parameters))


def _action(rule: RuleText) -> Action | None:
    if not rule.action:
        return None
    return compile_action(parse_action(rule.action, "rule.action"), dict(rule.parameters))


def _word(truth: bool | None) -> str:
    return "unknown" if truth is None else "true" if truth else "false"


def _no_id(number: int) -> str:
    """An id that looks like those of `newid()`, and that everybody sees to be none."""
    return f"00000000-0000-0000-0000-{number:012}"

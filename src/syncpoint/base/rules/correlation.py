"""Correlation filters: properties of a message that must be equal to given texts, all of them.

Place: beside SQL filters, for the same rules; much cheaper, since equality of texts is all there is.
Promise: names are found in any case, values are compared as they are written, case included.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from syncpoint.base.model.errors import InvalidArgument
from syncpoint.base.rules import sql_tree as tree
from syncpoint.base.rules.system_properties import PREFIX, RuleMessage, system_name

SYSTEM = frozenset(
    ("ContentType", "CorrelationId", "Subject", "MessageId", "ReplyTo", "ReplyToSessionId", "SessionId", "To")
)
"""Properties of the system that a correlation filter may name."""


@dataclass(frozen=True, slots=True)
class CorrelationFilter:
    """`system`, `user`: what each named property must be."""

    system: Mapping[str, str]
    user: Mapping[str, str]

    def matches(self, message: RuleMessage) -> bool:
        """Whether all of them are."""
        return all(message.system(name) == text for name, text in self.system.items()) and all(
            message.user(name) == text for name, text in self.user.items()
        )

    def predicate(self) -> tree.Predicate:
        """The SQL filter that selects the same messages, for who has no other reading of rules."""
        pairs = [(name, text, True) for name, text in self.system.items()]
        pairs += [(name, text, False) for name, text in self.user.items()]
        nowhere = (0, 0)
        return tree.Conjunction(
            nowhere,
            tuple(
                tree.Comparison(nowhere, "=", tree.Property(nowhere, name, system), tree.Constant(nowhere, text))
                for name, text, system in pairs
            ),
        )


def correlation(properties: Mapping[str, str]) -> CorrelationFilter:
    """The filter for properties by name, those of the system with `sys.` before it. Raises `InvalidArgument`."""
    system, user = dict[str, str](), dict[str, str]()
    for name, text in properties.items():
        if not name.lower().startswith(PREFIX):
            user[name] = text
            continue
        known = system_name(name[len(PREFIX) :])
        if known not in SYSTEM:
            raise InvalidArgument(
                "rule.correlation",
                f"{name} is not a system property; use {', '.join(PREFIX + one for one in sorted(SYSTEM))}",
            )
        system[known] = text
    if not properties:
        raise InvalidArgument(
            "rule.correlation", "must name a property; to match every message, use the SQL filter 1=1"
        )
    return CorrelationFilter(system, user)


def check_texts(properties: Mapping[str, str]) -> None:
    """Raises `InvalidArgument` where two texts are asked for of one property, under two of its names. A filter that was
    stored by an earlier version asks for the last of them.
    """
    asked = dict[str, str]()
    for name, text in properties.items():
        known = system_name(name[len(PREFIX) :]) if name.lower().startswith(PREFIX) else None
        if known is not None and asked.setdefault(known, text) != text:
            raise InvalidArgument("rule.correlation", f"names {PREFIX}{known} twice, under two names or spellings")

"""Options of topics and subscriptions as they are stored, and parameters of rules as messages have them.

Place: beside `entity_options`, under `records`; parameters are read and written by the admin service, too.
Promise: what is written is read back as the same value, of the same kind. Lanes that have much together name their
rules in one table, so that a rule takes its bytes once, whatever lanes have it.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from operator import attrgetter
from typing import Any, Final

from syncpoint.catalog.metadata.entity_options import (
    MessageRule,
    ParameterValue,
    RuleLane,
    SubscriptionOptions,
    TopicOptions,
)
from syncpoint.wire.protobuf.messages import catalog

INLINE_BYTES_MAX: Final = 256 * 1024
"""Of rules written lane by lane, as versions without the table read them."""


def fill_topic_options(stored: Any, options: TopicOptions) -> None:
    """Write them into a catalog.v1.TopicOptions."""
    for name, value in options._asdict().items():
        setattr(stored, name, value)


def topic_options_of(stored: Any) -> TopicOptions:
    """Read a catalog.v1.TopicOptions."""
    return TopicOptions(**{name: getattr(stored, name) for name in TopicOptions._fields})


def fill_subscription_options(stored: Any, options: SubscriptionOptions) -> None:
    """Write them into a catalog.v1.SubscriptionOptions."""
    for name in _PLAIN_FIELDS:
        setattr(stored, name, getattr(options, name))
    stored.drained.extend(chain.from_iterable(options.drained))
    rules: dict[int, Any] = {}  # by identity: lanes share most of them
    for rule in chain.from_iterable(lane.rules for lane in options.lanes):
        if id(rule) not in rules:
            rules[id(rule)] = _stored_rule(rule)
    sizes = {key: one.ByteSize() for key, one in rules.items()}
    inline = sum(sizes[id(rule)] for lane in options.lanes for rule in lane.rules) <= INLINE_BYTES_MAX
    places = {} if inline else _places(rules, stored)
    for lane in options.lanes:
        added = stored.lanes.add(
            number=lane.number,
            revision=lane.revision,
            stopped=lane.stopped,
            dropped=lane.dropped,
            copy_of=lane.copy_of,
        )
        if inline:
            added.rules.extend(rules[id(rule)] for rule in lane.rules)
        else:
            added.places.extend(_runs([places[id(rule)] for rule in lane.rules]))


def _stored_rule(rule: MessageRule) -> Any:
    written = catalog.MessageRule(name=rule.name, sql=rule.sql, action=rule.action)
    for name, text in rule.correlation:
        written.correlation.add(name=name, text=text)
    for name, value in rule.parameters:
        fill_parameter(written.parameters.add(name=name), value)
    return written


def _places(rules: dict[int, Any], stored: Any) -> dict[int, int]:
    """Write each rule once, by name as lanes have them; where each stands."""
    places: dict[bytes, int] = {}
    for one in sorted(rules.values(), key=attrgetter("name")):
        if places.setdefault(one.SerializeToString(), len(places)) == len(stored.rules):
            stored.rules.append(one)
    return {key: places[one.SerializeToString()] for key, one in rules.items()}


def _runs(places: Iterable[int]) -> list[int]:
    """Begin, count, begin, count... of what follows one another."""
    runs: list[int] = []
    for place in places:
        if runs and place == runs[-2] + runs[-1]:
            runs[-1] += 1
        else:
            runs += (place, 1)
    return runs


def subscription_options_of(stored: Any) -> SubscriptionOptions:
    """Read a catalog.v1.SubscriptionOptions."""
    rules = tuple(map(_rule_of, stored.rules))
    return SubscriptionOptions(
        **{name: getattr(stored, name) for name in _PLAIN_FIELDS},
        lanes=tuple(
            RuleLane(
                lane.number,
                _rules_of(lane, rules),
                lane.revision,
                lane.stopped,
                lane.dropped,
                tuple(lane.copy_of),
            )
            for lane in stored.lanes
        ),
        drained=tuple(zip(stored.drained[::2], stored.drained[1::2], strict=True)),
    )


_PLAIN_FIELDS = tuple(name for name in SubscriptionOptions._fields if name not in ("lanes", "drained"))


def _rules_of(lane: Any, rules: tuple[MessageRule, ...]) -> tuple[MessageRule, ...]:
    runs = zip(lane.places[::2], lane.places[1::2], strict=True)
    return (*map(_rule_of, lane.rules), *chain.from_iterable(rules[begin : begin + count] for begin, count in runs))


def _rule_of(stored: Any) -> MessageRule:
    return MessageRule(
        stored.name,
        stored.sql,
        tuple((pair.name, pair.text) for pair in stored.correlation),
        stored.action,
        tuple((one.name, parameter_of(one)) for one in stored.parameters),
    )


def fill_parameter(stored: Any, value: ParameterValue) -> None:
    """Write it into a RuleParameter, that of catalog.v1 or that of admin.v1."""
    match value:
        case bool():
            stored.truth = value
        case int():
            stored.integer = value
        case float():
            stored.number = value
        case str():
            stored.text = value


def parameter_of(stored: Any) -> ParameterValue:
    """Read a RuleParameter, that of catalog.v1 or that of admin.v1."""
    kind = stored.WhichOneof("value")
    found: ParameterValue = None if kind is None else getattr(stored, kind)
    return found

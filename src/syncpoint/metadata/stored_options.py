"""Options of topics and subscriptions as they are stored, and parameters of rules as messages have them.

Place: beside `entity_options`, under `records`; parameters are read and written by the admin service, too.
Promise: what is written is read back as the same value, of the same kind.
"""

from __future__ import annotations

from itertools import chain
from typing import Any

from syncpoint.metadata.entity_options import (
    MessageRule,
    ParameterValue,
    RuleLane,
    SubscriptionOptions,
    TopicOptions,
)


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
    for lane in options.lanes:
        added = stored.lanes.add(
            number=lane.number,
            revision=lane.revision,
            stopped=lane.stopped,
            dropped=lane.dropped,
            copy_of=lane.copy_of,
        )
        for rule in lane.rules:
            written = added.rules.add(name=rule.name, sql=rule.sql, action=rule.action)
            for name, text in rule.correlation:
                written.correlation.add(name=name, text=text)
            for name, value in rule.parameters:
                fill_parameter(written.parameters.add(name=name), value)


def subscription_options_of(stored: Any) -> SubscriptionOptions:
    """Read a catalog.v1.SubscriptionOptions."""
    return SubscriptionOptions(
        **{name: getattr(stored, name) for name in _PLAIN_FIELDS},
        lanes=tuple(
            RuleLane(
                lane.number,
                tuple(map(_rule_of, lane.rules)),
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

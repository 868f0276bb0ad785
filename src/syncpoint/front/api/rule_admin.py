"""Rules of subscriptions: made, changed, listed, deleted, and tried on a message.

Place: a part of syncpoint.admin.v1, for a node and a cluster alike; mounted by `server_admin`. What rules make of
messages is decided by `rules` and, when they are delivered, in `subscribe`.
Promise: a rule without meaning is refused. A change is persisted before the answer, and every chain that holds messages
of the topic knows by then where it begins. A trial changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from syncpoint.base.model.errors import (
    AlreadyExists,
    Conflict,
    NotFound,
    ResourceExhausted,
    Unavailable,
    detached,
)
from syncpoint.base.model.names import project_of
from syncpoint.base.rules import pubsub_filter
from syncpoint.base.rules.system_properties import RuleMessage
from syncpoint.base.runtime.child_processes import Apart, at_once, worked
from syncpoint.catalog.metadata.commit_size import fits
from syncpoint.catalog.metadata.entity_options import (
    DEFAULT_RULE,
    MessageRule,
    RuleChange,
    changed_rules,
    rules_of,
    stopped_lanes,
    too_many_lanes,
    without_dropped,
)
from syncpoint.catalog.metadata.records import CatalogChange, Subscription
from syncpoint.catalog.metadata.stored_options import fill_parameter, parameter_of
from syncpoint.catalog.schemas.errors import Mismatch
from syncpoint.catalog.schemas.stored import definition_of, definition_value, find_schema
from syncpoint.catalog.schemas.validators import Encoding, decoded
from syncpoint.cluster.control.plane import ControlPlane
from syncpoint.front.api.options_admin import Handlers, OptionsAdmin, admin_table
from syncpoint.front.api.validate import nanoseconds_of, refused
from syncpoint.wire.protobuf.messages import admin, pubsub
from syncpoint.wire.transport.calls import Methods

RULES_MAX = 2000
"""Of all subscriptions of a topic together."""
RULES_BYTES_MAX = 256 * 1024
"""Texts of one subscription's rules: they are read and written together."""
TRIED_AT_ONCE_BYTES = 2048
"""Bytes of a request and of the rules it tries, beyond which another process tries them."""
CHECKED_AT_ONCE_BYTES = 512
"""Bytes of a request with a rule, beyond which another process reads it: 30 us a byte."""
FORGET_AT = 16
"""Stopped lanes at which a change of rules looks for some that can go, and does not leave it to upkeep."""

_SCOPES = tuple(map(admin.RuleScope.Value, ("RULE_SCOPE_UNSPECIFIED", "NEW_MESSAGES", "ALL_MESSAGES")))


class RuleAdmin:
    """These methods on messages; `methods()` serves them on bytes. `options` finds records; `apart` runs long work."""

    def __init__(self, control: ControlPlane, options: OptionsAdmin, apart: Apart = at_once) -> None:
        self._control, self._options, self._apart = control, options, apart

    def methods(self) -> Methods:
        """The method table."""
        table: Handlers = {
            "CreateRule": self.create_rule,
            "UpdateRule": self.update_rule,
            "ListRules": self.list_rules,
            "DeleteRule": self.delete_rule,
            "TestRule": self.test_rule,
        }
        return admin_table(self._control, table)

    async def create_rule(self, request: admin.CreateRuleRequest) -> admin.Rule:
        """CreateRule."""
        rule = await self._checked(request)
        record = self._attached(request.subscription)
        if any(one.name == rule.name for one in rules_of(record.options)):
            await self._control.confirm(record)
            raise AlreadyExists(f"{record.name}/rules/{rule.name}")
        await self._change(record, RuleChange((rule,), to_all=_counts_for_all(request)))
        return rule_message(rule)

    async def update_rule(self, request: admin.UpdateRuleRequest) -> admin.Rule:
        """UpdateRule."""
        rule = await self._checked(request)
        record = self._attached(request.subscription)
        await self._check_known(record, rule.name)
        await self._change(record, RuleChange((rule,), to_all=_counts_for_all(request)))
        return rule_message(rule)

    async def list_rules(self, request: admin.ListRulesRequest) -> admin.ListRulesResponse:
        """ListRules."""
        record = self._options.subscription(request.subscription)
        return admin.ListRulesResponse(rules=map(rule_message, rules_of(record.options)))

    async def delete_rule(self, request: admin.DeleteRuleRequest) -> admin.DeleteRuleResponse:
        """DeleteRule."""
        record = self._attached(request.subscription)
        await self._check_known(record, request.name)
        await self._change(record, RuleChange(delete=(request.name,), to_all=_counts_for_all(request)))
        return admin.DeleteRuleResponse()

    async def test_rule(self, request: admin.TestRuleRequest) -> admin.TestRuleResponse:
        """TestRule."""
        record = self._options.subscription(request.subscription)
        work = partial(
            trial,
            request.rule.SerializeToString() if request.HasField("rule") else None,
            () if request.HasField("rule") else tuple(rules_of(record.options)),
            record.filter_text,
            request.message.SerializeToString(),
            self._definitions(record),
            explain=request.explain,
        )
        cost = request.ByteSize() + sum(len(one.sql) + len(one.action) for one in rules_of(record.options))
        made = await worked(self._apart, project_of(record.name), work, large=cost > TRIED_AT_ONCE_BYTES)
        return admin.TestRuleResponse.FromString(made)

    # -- shared ------------------------------------------------------------------------------------------------------

    async def _checked(self, request: admin.CreateRuleRequest | admin.UpdateRuleRequest) -> MessageRule:
        """The rule of a request for a subscription that can have it. Raises `InvalidArgument`."""
        record = self._attached(request.subscription)
        large = request.ByteSize() > CHECKED_AT_ONCE_BYTES
        work = partial(checked_bytes, request.rule.SerializeToString())
        return await worked(self._apart, project_of(record.name), work, large=large)

    def _attached(self, name: str) -> Subscription:
        record = self._options.subscription(name)
        if record.detached:
            raise detached(record.name)
        return record

    async def _check_known(self, record: Subscription, name: str) -> None:
        if all(one.name != name for one in rules_of(record.options)):
            await self._control.confirm(record)
            raise NotFound(f"{record.name}/rules/{name}")

    async def _change(self, record: Subscription, change: RuleChange) -> None:
        catalog = self._control.catalog
        revision = catalog.revision + 1
        try:
            changed = replace(record, options=changed_rules(record.options, change, revision))
            self._check_bounds(changed, change)
        except ResourceExhausted:
            if await self._control.forget_lanes(record.incarnation):
                raise Conflict("Lanes were removed in the meantime. Try again.") from None
            raise
        await self._control.commit([CatalogChange.put(changed)])
        known = catalog.subscription_by_incarnation(record.incarnation)
        if known is None:
            return
        # Every chain has learned of what was dropped: nobody has to know any more.
        rest = without_dropped(known.options, revision)
        with suppress(Conflict, Unavailable):  # it is changed; the next change of rules, or upkeep, removes them, too
            if rest != known.options:
                await self._control.commit([CatalogChange.put(replace(known, options=rest))])
            if len(stopped_lanes(rest)) >= FORGET_AT:
                await self._control.forget_lanes(record.incarnation)

    def _check_bounds(self, changed: Subscription, change: RuleChange) -> None:
        rules = rules_of(changed.options)
        others = self._control.catalog.subscriptions_of(changed.topic_incarnation)
        count = sum(len(rules_of(one.options)) for one in others if one.name != changed.name)
        if change.put and len(rules) + count > RULES_MAX:
            raise ResourceExhausted(
                f"The subscriptions of a topic can have at most {RULES_MAX} rules in total. Delete some first."
            )
        if change.put and sum(rule_message(one).ByteSize() for one in rules) > RULES_BYTES_MAX:
            raise ResourceExhausted(
                f"The rules of a subscription can have at most {RULES_BYTES_MAX} bytes in total. Shorten or delete"
                " some."
            )
        if not fits(changed):
            raise too_many_lanes()

    def _definitions(self, record: Subscription) -> tuple[bytes, ...]:
        """The schema's revisions that binary messages of the topic may fit."""
        topic = self._control.catalog.topic_of(record)
        if topic is not None and topic.schema is not None and topic.schema.encoding == Encoding.BINARY:
            schema = find_schema(self._control.catalog, topic.schema.name)
            revisions = schema.within(topic.schema) if schema is not None else ()
            return tuple(definition_value(self._control.catalog, topic.schema.name, one.id) for one in revisions)
        return ()


def trial(
    given: bytes | None,
    rules: Sequence[MessageRule],
    filter_text: str,
    message_bytes: bytes,
    definitions: Sequence[bytes],
    *,
    explain: bool,
) -> bytes:
    """The TestRuleResponse for a message. `given`: a Rule to be tried in place of `rules`; `definitions`: those that
    its data may fit. Raises `InvalidArgument`."""
    message = pubsub.PubsubMessage.FromString(message_bytes)
    passes = not filter_text or pubsub_filter.evaluate(pubsub_filter.parse(filter_text), dict(message.attributes))
    tested = rules if given is None else (checked(admin.Rule.FromString(given), body=True),)
    answer = tried(tested, message, _fields(definitions, message.data), passes=passes, explain=explain)
    encoded: bytes = answer.SerializeToString()
    return encoded


def _fields(definitions: Sequence[bytes], data: bytes) -> Mapping[str, object]:
    """Fields of a message's data, by the first of the definitions that they fit, else if they are JSON."""
    from syncpoint.base.rules.trial import json_fields

    for value in definitions:
        try:
            found = decoded(*definition_of(value), data)
        except Mismatch:
            continue
        return found if isinstance(found, dict) else {}
    return json_fields(data) or {}


def checked_bytes(data: bytes) -> MessageRule:
    """As `checked`, for a serialised Rule; to be called in any process."""
    return checked(admin.Rule.FromString(data))


def checked(message: admin.Rule, *, body: bool = False) -> MessageRule:
    """The rule of a request. Raises `InvalidArgument`."""
    from syncpoint.base.rules.trial import check_rule

    if message.HasField("correlation") and not message.correlation.properties:
        raise refused(
            "rule.correlation", "rule.correlation must name a property; to match every message, use the SQL filter 1=1"
        )
    if message.HasField("sql") and not message.sql:
        raise refused("rule.sql", "rule.sql must not be empty; to match every message, use the filter 1=1")
    rule = MessageRule(
        message.name or ("tried" if body else ""),
        message.sql or ("" if message.HasField("correlation") else DEFAULT_RULE.sql),
        tuple(sorted(message.correlation.properties.items())),
        message.action,
        tuple((name, parameter_of(one)) for name, one in sorted(message.parameters.items())),
    )
    check_rule(rule, body=body)
    return rule


def tried(
    rules: Iterable[MessageRule],
    message: pubsub.PubsubMessage,
    body: Mapping[str, object],
    *,
    passes: bool = True,
    explain: bool = False,
) -> admin.TestRuleResponse:
    """What rules make of a message. `passes`: it passes the filter that stands before all rules."""
    from syncpoint.base.rules.trial import try_rule

    answer = admin.TestRuleResponse()
    seen = RuleMessage(
        dict(message.attributes),
        message.message_id,
        message.ordering_key,
        nanoseconds_of(message, "publish_time"),
        body=body,
    )
    if not passes:
        answer.parts.add(rule="", depth=0, text="the filter of the subscription", result="false")
    plain = False
    for rule in rules:
        trial = try_rule(rule, seen)
        for part in trial.parts if explain else trial.parts[:1]:
            answer.parts.add(rule=rule.name, **part._asdict())
        if trial.failure:
            answer.parts.add(rule=rule.name, depth=0, text=rule.action, result=f"fails: {trial.failure}")
        if not trial.selected or not passes:
            continue
        if trial.attributes is None:
            plain = True
            continue
        copy = answer.copies.add()
        copy.CopyFrom(message)
        copy.attributes.clear()
        copy.attributes.update(trial.attributes)
    if plain:
        answer.copies.insert(0, message)
    answer.selected = bool(answer.copies)
    return answer


def rule_message(rule: MessageRule) -> admin.Rule:
    """A rule as the admin API shows it."""
    message = admin.Rule(name=rule.name, action=rule.action)
    if rule.correlation:
        message.correlation.properties.update(rule.correlation)
    else:
        message.sql = rule.sql or DEFAULT_RULE.sql
    for name, value in rule.parameters:
        fill_parameter(message.parameters[name], value)
    return message


def _counts_for_all(request: Any) -> bool:
    if request.scope not in _SCOPES:
        raise refused("scope", f"Unknown scope {request.scope}; use NEW_MESSAGES or ALL_MESSAGES")
    return bool(request.scope == _SCOPES[-1])

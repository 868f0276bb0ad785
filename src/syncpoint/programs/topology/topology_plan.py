"""From what a file wants and what there is to the calls that make the one of the other.

Place: between `topology_file` and `topology_live`; plain functions over values, nothing here asks a server.
Promise: what the file does not say stays as it is; nothing is deleted unless `prune` is asked for. A plan that was
carried out leaves nothing to do. One that was broken off is carried on by planning again: an entity is made before
what refers to it, and what it is to refer to is set only once all are there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from google.protobuf import json_format

from syncpoint.base.model.errors import FailedPrecondition
from syncpoint.base.model.names import project_of, short_id
from syncpoint.programs.topology.topology_file import WantedEntity, WantedGrant, WantedTopology
from syncpoint.wire.protobuf.messages import POOL, admin, iam, pubsub

_FIXED = {"topic": "its topic", "filter": "its filter", "enable_message_ordering": "its message ordering"}
_ALL, _NEW = admin.RuleScope.Value("ALL_MESSAGES"), admin.RuleScope.Value("NEW_MESSAGES")
_FIRST_RULE = admin.Rule(name="$Default", sql="1=1")


class ServerCall(NamedTuple):
    """A method, such as `Publisher.CreateTopic`, and its request."""

    method: str
    request: Any


class FieldDifference(NamedTuple):
    """What a field is and what it is to be, as JSON has it; None: nothing."""

    name: str
    old: Any
    new: Any


@dataclass(frozen=True, slots=True)
class PlanStep:
    """One entity. `sign`: + it is made, ~ changed, - deleted. `calls` are made step by step, `later` once those of all
    steps are, `last` when all of these are, too."""

    sign: str
    kind: str
    name: str
    differences: tuple[FieldDifference, ...] = ()
    calls: tuple[ServerCall, ...] = ()
    later: tuple[ServerCall, ...] = ()
    last: tuple[ServerCall, ...] = ()

    @property
    def phases(self) -> tuple[tuple[ServerCall, ...], ...]:
        """All its calls, in order."""
        return self.calls, self.later, self.last


@dataclass(slots=True)
class LiveTopology:
    """What there is of the projects of a file. Options, rules and policies of what the file names alone."""

    schemas: dict[str, Any] = field(default_factory=dict)
    topics: dict[str, Any] = field(default_factory=dict)
    subscriptions: dict[str, Any] = field(default_factory=dict)
    queues: set[str] = field(default_factory=set)  # names of topics
    topic_options: dict[str, Any] = field(default_factory=dict)
    subscription_options: dict[str, Any] = field(default_factory=dict)
    rules: dict[str, dict[str, Any]] = field(default_factory=dict)  # by subscription, by name
    policies: dict[str, Any] = field(default_factory=dict)  # by resource


def plan(wanted: WantedTopology, live: LiveTopology, *, prune: bool = False) -> list[PlanStep]:
    """The steps, in order. Raises `FailedPrecondition` for what cannot be changed."""
    steps = [step for one in wanted.schemas.values() for step in _schema(one, live)]
    plain = [one for one in wanted.topics.values() if not one.queue]
    steps += [step for one in plain for step in _topic(one, live)]
    for name in _letters_first(wanted):
        steps += _queue(wanted.topics[name], wanted.subscriptions[_own(name)], live)
    regular = [one for one in wanted.subscriptions.values() if not one.queue]
    steps += [step for one in regular for step in _subscription(one, live)]
    by_resource: dict[str, list[WantedGrant]] = {}
    for grant in wanted.grants:
        by_resource.setdefault(grant.resource, []).append(grant)
    for resource, grants in by_resource.items():
        steps += _grants(resource, grants, live.policies.get(resource) or iam.Policy(), prune=prune)
    return [*steps, *(_deletions(wanted, live) if prune else ())]


# -- entities ----------------------------------------------------------------------------------------------------------


def _schema(wanted: WantedEntity, live: LiveTopology) -> Iterator[PlanStep]:
    known = live.schemas.get(wanted.name)
    if known is None:
        project, schema_id = project_of(wanted.name), short_id(wanted.name)
        request = pubsub.CreateSchemaRequest(parent=project, schema=wanted.message, schema_id=schema_id)
        made = ServerCall("SchemaService.CreateSchema", request)
        yield PlanStep("+", "schema", wanted.name, _given(wanted.message, wanted.fields), (made,))
        return
    different = _different(wanted.message, known, wanted.fields)
    if any(one.name == "type" for one in different):
        raise FailedPrecondition(
            f"{wanted.place}: {wanted.name} has another type, which cannot be changed. Use another name."
        )
    if different:
        revision = pubsub.CommitSchemaRequest(name=wanted.name, schema=laid_over(known, wanted.message, wanted.fields))
        for output in ("revision_id", "revision_create_time"):
            revision.schema.ClearField(output)
        yield PlanStep("~", "schema", wanted.name, different, (ServerCall("SchemaService.CommitSchema", revision),))


def _topic(wanted: WantedEntity, live: LiveTopology) -> Iterator[PlanStep]:
    known = live.topics.get(wanted.name)
    if known is None:
        made = ServerCall("Publisher.CreateTopic", wanted.message)
        differences = _given(wanted.message, wanted.fields) + _given(wanted.options, wanted.option_fields)
        yield _with_options(PlanStep("+", "topic", wanted.name, differences, (made,)), wanted, admin.TopicOptions())
        return
    if wanted.name in live.queues and not wanted.queue:
        raise FailedPrecondition(f"{wanted.place}: {wanted.name} is a queue. List it under `queues`.")
    different = _different(wanted.message, known, wanted.fields)
    options = live.topic_options.get(wanted.name) or admin.TopicOptions()
    more = _different(wanted.options, options, wanted.option_fields)
    if not different and not more:
        return
    calls: tuple[ServerCall, ...] = ()
    if different:
        request = pubsub.UpdateTopicRequest(topic=laid_over(known, wanted.message, wanted.fields))
        request.update_mask.paths.extend(one.name for one in different)
        calls = (ServerCall("Publisher.UpdateTopic", request),)
    yield _with_options(PlanStep("~", "topic", wanted.name, different + more, calls), wanted, options)


def _queue(topic: WantedEntity, wanted: WantedEntity, live: LiveTopology) -> Iterator[PlanStep]:
    if topic.name in live.topics:
        if topic.name not in live.queues:
            raise FailedPrecondition(f"{topic.place}: {topic.name} is a topic, not a queue. Use another name.")
        yield from _topic(topic, live)
        yield from _subscription(wanted, live)
        return
    request = admin.CreateQueueRequest(topic=topic.message, subscription=wanted.message)
    for left_to_the_server in ("name", "topic"):
        request.subscription.ClearField(left_to_the_server)
    differences = (
        *_given(topic.message, topic.fields),
        *_given(topic.options, topic.option_fields),
        *_given(wanted.message, [one for one in wanted.fields if one != "topic"]),
        *_given(wanted.options, wanted.option_fields),
    )
    later = _subscription_options(wanted, admin.SubscriptionOptions())
    made = ServerCall("Admin.CreateQueue", request)
    step = _with_options(PlanStep("+", "queue", topic.name, differences, (made,), later), topic, admin.TopicOptions())
    yield from _with_rules(step, wanted, {_FIRST_RULE.name: _FIRST_RULE}, _ALL)


def _subscription(wanted: WantedEntity, live: LiveTopology) -> Iterator[PlanStep]:
    known = live.subscriptions.get(wanted.name)
    if known is None:
        made = ServerCall("Subscriber.CreateSubscription", wanted.message)
        differences = _given(wanted.message, wanted.fields) + _given(wanted.options, wanted.option_fields)
        later = _subscription_options(wanted, admin.SubscriptionOptions())
        step = PlanStep("+", "subscription", wanted.name, differences, (made,), later)
        yield from _with_rules(step, wanted, {_FIRST_RULE.name: _FIRST_RULE}, _ALL)
        return
    different = _different(wanted.message, known, wanted.fields)
    for one in different:
        if one.name in _FIXED:
            raise FailedPrecondition(
                f"{wanted.place}.{one.name}: {_FIXED[one.name]} cannot be changed; it is {_quoted(one.old)}. Use"
                f" another name, or delete {wanted.name} first, which deletes its undelivered messages."
            )
    options = live.subscription_options.get(wanted.name) or admin.SubscriptionOptions()
    more = _different(wanted.options, options, wanted.option_fields)
    calls: tuple[ServerCall, ...] = ()
    if different:
        request = pubsub.UpdateSubscriptionRequest(subscription=laid_over(known, wanted.message, wanted.fields))
        request.update_mask.paths.extend(one.name for one in different)
        calls = (ServerCall("Subscriber.UpdateSubscription", request),)
    later = _subscription_options(wanted, options)
    step = PlanStep("~", "subscription", wanted.name, different + more, calls, later)
    yield from _with_rules(step, wanted, live.rules.get(wanted.name, {}), _NEW)


def _with_rules(step: PlanStep, wanted: WantedEntity, known: Mapping[str, Any], scope: int) -> Iterator[PlanStep]:
    """The step of a subscription or queue, if it changes anything, and those of its rules. What forwards begins to when
    its rules are there: what they leave out reaches no target.
    """
    if wanted.options.forward_to:
        step = replace(step, later=(), last=step.later + step.last)
    if step.differences or step.sign == "+":
        yield step
    yield from _rules(wanted, known, scope)


def _with_options(step: PlanStep, wanted: WantedEntity, known: Any) -> PlanStep:
    """With the call for a topic's options. What takes records is never recorded itself: first topics cease to be
    recorded, then they are recorded elsewhere, and only then they begin to be.
    """
    calls = _topic_options(wanted, known)
    if "records_topic" in wanted.option_fields and wanted.options.records_topic != known.records_topic:
        if not wanted.options.records_topic:
            return replace(step, calls=step.calls + calls)
        if not known.records_topic:
            return replace(step, last=step.last + calls)
    return replace(step, later=calls + step.later)


def _topic_options(wanted: WantedEntity, known: Any) -> tuple[ServerCall, ...]:
    paths = [one.name for one in _different(wanted.options, known, wanted.option_fields)]
    if not paths:
        return ()
    request = admin.UpdateTopicOptionsRequest(options=wanted.options)
    request.options.topic = wanted.name
    request.update_mask.paths.extend(paths)
    return (ServerCall("Admin.UpdateTopicOptions", request),)


def _subscription_options(wanted: WantedEntity, known: Any) -> tuple[ServerCall, ...]:
    paths = [one.name for one in _different(wanted.options, known, wanted.option_fields)]
    if not paths:
        return ()
    request = admin.UpdateSubscriptionOptionsRequest(options=wanted.options)
    request.options.subscription = wanted.name
    request.update_mask.paths.extend(paths)
    return (ServerCall("Admin.UpdateSubscriptionOptions", request),)


def _rules(wanted: WantedEntity, known: Mapping[str, Any], scope: int) -> Iterator[PlanStep]:
    """Exactly those that are given, if any are: new ones before others are deleted, so that there is always one."""
    if wanted.rules is None:
        return
    gone = [
        ServerCall("Admin.DeleteRule", admin.DeleteRuleRequest(subscription=wanted.name, name=name, scope=scope))
        for name in known
        if name not in wanted.rules
    ]
    steps = list(_put_rules(wanted.name, wanted.rules, known, scope))
    if scope == _ALL and steps:  # the first rule of a new subscription goes with the last that is made
        steps[-1] = replace(steps[-1], later=(*steps[-1].later, *gone))
        gone = []
    yield from steps
    for call in gone:
        yield PlanStep("-", "rule", f"{wanted.name}/rules/{call.request.name}", later=(call,))


def _put_rules(
    subscription: str, wanted: Mapping[str, Any], known: Mapping[str, Any], scope: int
) -> Iterator[PlanStep]:
    for name, rule in wanted.items():
        before = known.get(name)
        if before == rule:
            continue
        old, new = ({} if one is None else _of_rule(one) for one in (before, rule))
        differences = tuple(
            FieldDifference(key, old.get(key), new.get(key)) for key in {**old, **new} if old.get(key) != new.get(key)
        )
        where = {"subscription": subscription, "rule": rule, "scope": scope}
        sign, call = (
            ("+", ServerCall("Admin.CreateRule", admin.CreateRuleRequest(**where)))
            if before is None
            else ("~", ServerCall("Admin.UpdateRule", admin.UpdateRuleRequest(**where)))
        )
        yield PlanStep(sign, "rule", f"{subscription}/rules/{name}", differences, later=(call,))


def _of_rule(rule: Any) -> dict[str, Any]:
    """A rule as the file would have it."""
    found: dict[str, Any] = {"filter": rule.sql} if rule.sql else {"correlation": dict(rule.correlation.properties)}
    if rule.action:
        found["action"] = rule.action
    if rule.parameters:
        values = ((key, one.WhichOneof("value"), one) for key, one in sorted(rule.parameters.items()))
        found["parameters"] = {key: kind and getattr(one, kind) for key, kind, one in values}
    return found


def _grants(resource: str, grants: Iterable[WantedGrant], known: Any, *, prune: bool) -> Iterator[PlanStep]:
    """Bindings with conditions are left alone."""
    wanted = {one.role: one.members for one in grants}
    policy = iam.Policy(etag=known.etag, version=known.version)
    plain: dict[str, list[str]] = {}
    for binding in known.bindings:
        if binding.HasField("condition"):
            policy.bindings.add().CopyFrom(binding)
        else:
            plain.setdefault(binding.role, []).extend(binding.members)
    differences = []
    for role in {**plain, **wanted}:
        before = sorted(plain.get(role, ()))
        after = sorted(wanted.get(role, () if prune else before))
        if after:
            policy.bindings.add(role=role, members=after)
        if before != after:
            differences.append(FieldDifference(role, before or None, after or None))
    if differences:
        call = ServerCall("IAMPolicy.SetIamPolicy", iam.SetIamPolicyRequest(resource=resource, policy=policy))
        yield PlanStep("~", "grants", resource, tuple(differences), later=(call,))


def _deletions(wanted: WantedTopology, live: LiveTopology) -> Iterator[PlanStep]:
    for name in live.subscriptions:
        if name not in wanted.subscriptions and _topic_of_queue(name) not in live.queues:
            request = pubsub.DeleteSubscriptionRequest(subscription=name)
            yield PlanStep("-", "subscription", name, later=(ServerCall("Subscriber.DeleteSubscription", request),))
    for name in live.topics:
        if name not in wanted.topics and name in live.queues:
            gone = ServerCall("Admin.DeleteQueue", admin.DeleteQueueRequest(topic=name))
            yield PlanStep("-", "queue", name, later=(gone,))
        elif name not in wanted.topics:
            gone = ServerCall("Publisher.DeleteTopic", pubsub.DeleteTopicRequest(topic=name))
            yield PlanStep("-", "topic", name, later=(gone,))
    for name in live.schemas:
        if name not in wanted.schemas:
            gone = ServerCall("SchemaService.DeleteSchema", pubsub.DeleteSchemaRequest(name=name))
            yield PlanStep("-", "schema", name, later=(gone,))


def _own(queue: str) -> str:
    """The subscription of a queue."""
    return f"{project_of(queue)}/subscriptions/{short_id(queue)}"


def _topic_of_queue(subscription: str) -> str:
    return f"{project_of(subscription)}/topics/{short_id(subscription)}"


def _letters_first(wanted: WantedTopology) -> list[str]:
    """Queues, each after the one that its dead letters go to, unless those go round."""
    found: dict[str, None] = {}

    def visit(name: str, seen: tuple[str, ...]) -> None:
        own = wanted.subscriptions[_own(name)]
        letters = own.message.dead_letter_policy.dead_letter_topic
        if letters in wanted.topics and wanted.topics[letters].queue and letters not in seen:
            visit(letters, (*seen, letters))
        found.setdefault(name)

    for one in wanted.topics.values():
        if one.queue:
            visit(one.name, (one.name,))
    return list(found)


# -- fields ------------------------------------------------------------------------------------------------------------


def _given(message: Any, fields: Iterable[str]) -> tuple[FieldDifference, ...]:
    return tuple(FieldDifference(name, None, _value(message, name)) for name in fields)


def _different(wanted: Any, known: Any, fields: Iterable[str]) -> tuple[FieldDifference, ...]:
    """Return the given fields whose current values differ."""
    return tuple(
        FieldDifference(name, _value(known, name), _value(wanted, name))
        for name in fields
        if not _covers(known, wanted, wanted.DESCRIPTOR.fields_by_name[name])
    )


def _covers(known: Any, wanted: Any, described: Any) -> bool:
    """Whether all that a field is to be it is. Of a message what is not given may be anything: it is the server's."""
    have, want = getattr(known, described.name), getattr(wanted, described.name)
    if not _is_message(described):
        return bool(have == want)
    if known.HasField(described.name) != wanted.HasField(described.name):
        return False
    given = [one for one, _ in want.ListFields()]
    return all(_covers(have, want, one) for one in given) if given else not have.ListFields()


def laid_over(known: Any, wanted: Any, fields: Iterable[str]) -> Any:
    """A copy of what there is, with the given fields over it."""
    made = type(known).FromString(known.SerializeToString())
    for name in fields:
        _lay(made, wanted, wanted.DESCRIPTOR.fields_by_name[name])
    return made


def _lay(made: Any, wanted: Any, described: Any) -> None:
    name = described.name
    given = [one for one, _ in getattr(wanted, name).ListFields()] if _is_message(described) else []
    if given:
        for one in given:
            _lay(getattr(made, name), getattr(wanted, name), one)
        return
    made.ClearField(name)
    if _is_message(described):
        getattr(made, name).SetInParent()
    elif hasattr(getattr(wanted, name), "MergeFrom"):
        getattr(made, name).MergeFrom(getattr(wanted, name))
    else:
        setattr(made, name, getattr(wanted, name))


def _is_message(described: Any) -> bool:
    """Whether a field holds one message: neither a value, nor several."""
    return described.message_type is not None and not described.is_repeated


def _value(message: Any, name: str) -> Any:
    """A field as JSON has it; None: nothing."""
    part = type(message)()
    described = message.DESCRIPTOR.fields_by_name[name]
    if _is_message(described):
        if not message.HasField(name):
            return None
        getattr(part, name).CopyFrom(getattr(message, name))
    elif hasattr(getattr(message, name), "MergeFrom"):
        getattr(part, name).MergeFrom(getattr(message, name))
    else:
        setattr(part, name, getattr(message, name))
    found: dict[str, Any] = json_format.MessageToDict(part, descriptor_pool=POOL)
    shown = found.get(described.json_name)
    return "never" if name == "expiration_policy" and shown == {} else shown


def _quoted(value: Any) -> str:
    return "not set" if value in (None, "") else str(value)

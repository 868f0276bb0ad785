"""Plans: what they do to a model of a server, whatever was there, and wherever they were broken off."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from syncpoint.base.model.errors import FailedPrecondition
from syncpoint.programs.topology.topology_file import WantedTopology, parse
from syncpoint.programs.topology.topology_plan import LiveTopology, PlanStep, ServerCall, plan
from syncpoint.wire.protobuf.messages import admin, iam
from tests.kit.examples import examples

pytestmark = pytest.mark.shows("topologies")


class ModelServer:
    """What calls of plans make of a server that fills in what it likes to."""

    def __init__(self) -> None:
        self.live = LiveTopology()
        self.begins: set[str] = set()  # subscriptions that this plan lets forward

    def carry_out(self, calls: list[ServerCall]) -> None:
        self.begins.clear()
        for call in calls:
            self.call(call)

    def call(self, call: ServerCall) -> None:
        getattr(self, call.method.partition(".")[2])(call.request)

    def CreateTopic(self, request: Any) -> None:
        assert request.name not in self.live.topics
        self.live.topics[request.name] = copied(request)
        self.live.topic_options[request.name] = admin.TopicOptions(topic=request.name)

    def CreateQueue(self, request: Any) -> None:
        self.CreateTopic(request.topic)
        self.live.queues.add(request.topic.name)
        own = copied(request.subscription)
        own.topic, own.name = request.topic.name, request.topic.name.replace("/topics/", "/subscriptions/")
        own.expiration_policy.SetInParent()
        self.CreateSubscription(own)

    def CreateSubscription(self, request: Any) -> None:
        assert request.topic in self.live.topics, "it is made behind its topic"
        letters = request.dead_letter_policy.dead_letter_topic
        assert not letters or letters in self.live.topics, "it is made behind the topic of its letters"
        made = self.live.subscriptions[request.name] = copied(request)
        made.ack_deadline_seconds = made.ack_deadline_seconds or 10
        if letters and not made.dead_letter_policy.max_delivery_attempts:
            made.dead_letter_policy.max_delivery_attempts = 5
        self.live.subscription_options[request.name] = admin.SubscriptionOptions(subscription=request.name)
        self.live.rules[request.name] = {"$Default": admin.Rule(name="$Default", sql="1=1")}

    def UpdateTopic(self, request: Any) -> None:
        over(self.live.topics[request.topic.name], request.topic, request.update_mask.paths)

    def UpdateSubscription(self, request: Any) -> None:
        assert not {"topic", "filter", "enable_message_ordering"} & set(request.update_mask.paths)
        over(self.live.subscriptions[request.subscription.name], request.subscription, request.update_mask.paths)

    def UpdateTopicOptions(self, request: Any) -> None:
        recorded, target = request.options.topic, request.options.records_topic
        if "records_topic" in request.update_mask.paths and target:
            assert self.live.topics[target].message_retention_duration.seconds, "what takes records keeps them"
            assert not self.live.topic_options[target].records_topic, "it is not recorded itself"
            taking = {one.records_topic for one in self.live.topic_options.values()}
            assert recorded not in taking, "it takes no records itself"
        over(self.live.topic_options[request.options.topic], request.options, request.update_mask.paths)

    def UpdateSubscriptionOptions(self, request: Any) -> None:
        target = request.options.forward_to
        assert not target or target in self.live.topics, "it is set once the target is there"
        if target:
            self.begins.add(request.options.subscription)
        over(self.live.subscription_options[request.options.subscription], request.options, request.update_mask.paths)

    def CreateRule(self, request: Any) -> None:
        self.check_rule(request)
        assert request.rule.name not in self.live.rules[request.subscription]
        self.live.rules[request.subscription][request.rule.name] = copied(request.rule)

    def check_rule(self, request: Any) -> None:
        assert request.subscription not in self.begins, "it forwards only what its rules select"

    def UpdateRule(self, request: Any) -> None:
        self.check_rule(request)
        self.live.rules[request.subscription][request.rule.name] = copied(request.rule)

    def DeleteRule(self, request: Any) -> None:
        self.check_rule(request)
        del self.live.rules[request.subscription][request.name]

    def SetIamPolicy(self, request: Any) -> None:
        self.live.policies[request.resource] = copied(request.policy)

    def DeleteSubscription(self, request: Any) -> None:
        for known in (self.live.subscriptions, self.live.subscription_options, self.live.rules):
            del known[request.subscription]

    def DeleteTopic(self, request: Any) -> None:
        assert request.topic not in self.live.queues
        del self.live.topics[request.topic], self.live.topic_options[request.topic]

    def DeleteQueue(self, request: Any) -> None:
        self.live.queues.remove(request.topic)
        del self.live.topics[request.topic], self.live.topic_options[request.topic]
        own = request.topic.replace("/topics/", "/subscriptions/")
        for known in (self.live.subscriptions, self.live.subscription_options, self.live.rules):
            del known[own]


def copied(message: Any) -> Any:
    return type(message).FromString(message.SerializeToString())


def over(known: Any, wanted: Any, paths: Any) -> None:
    for path in paths:
        known.ClearField(path)
        part = type(known)()
        for described, value in wanted.ListFields():
            if described.name == path:
                if hasattr(value, "MergeFrom"):
                    getattr(part, path).MergeFrom(value)
                    if hasattr(value, "SetInParent"):
                        getattr(part, path).SetInParent()
                else:
                    setattr(part, path, value)
        known.MergeFrom(part)


def calls_of(steps: list[PlanStep]) -> list[ServerCall]:
    return [call for phase in ("calls", "later", "last") for step in steps for call in getattr(step, phase)]


def wanted_of(text: str) -> WantedTopology:
    return parse(yaml.safe_load(text), "p")


NAMES = ("aaa", "bbb", "ccc")
LETTERS = st.sampled_from(["aaa", "qqq", "rrr"])


@st.composite
def topologies(draw: st.DrawFn) -> WantedTopology:
    """Topics aaa (always), bbb and ccc, queues qqq (always) and rrr, and what is on them."""
    topics = {
        name: draw(
            st.fixed_dictionaries(
                {},
                optional={
                    "labels": st.dictionaries(st.sampled_from("xy"), st.sampled_from("12"), max_size=2),
                    "message_retention_duration": st.sampled_from(["1d", "2d"]),
                    "default_ttl": st.sampled_from(["1h", "2h"]),
                    "send_suspended": st.booleans(),
                },
            )
        )
        for name in ("aaa", *draw(st.sets(st.sampled_from(["bbb", "ccc"]))))
    }
    received = {
        "ack_deadline_seconds": st.sampled_from([20, 60]),
        "dead_letter_policy": LETTERS.map(lambda name: {"dead_letter_topic": name if name != "rrr" else "aaa"}),
        "retry_policy": st.fixed_dictionaries({}, optional={"minimum_backoff": st.sampled_from(["1s", "2s"])}),
        "forward_to": st.sampled_from(["aaa", "qqq"]),
        "ttl": st.sampled_from(["1m", "2m"]),
        "rules": st.dictionaries(st.sampled_from(["$Default", "one", "two"]), st.sampled_from(["a = 1", "1=1"])),
    }
    subscriptions = {
        f"{topic}-{name}": {
            "topic": topic,
            **draw(st.fixed_dictionaries({}, optional={**received, "expiration_policy": st.just("never")})),
        }
        for topic in topics
        for name in draw(st.sets(st.sampled_from("de")))
    }
    queues = {
        name: draw(st.fixed_dictionaries({}, optional={**received, "receive_suspended": st.booleans()}))
        for name in ("qqq", *draw(st.sets(st.just("rrr"))))
    }
    grants = draw(
        st.dictionaries(
            st.sampled_from(["topics/aaa", "project"]),
            st.dictionaries(st.sampled_from(["r1", "r2"]), st.lists(st.sampled_from(["user:a", "user:b"]), max_size=2)),
        )
    )
    content = {"topics": topics, "queues": queues, "subscriptions": subscriptions, "grants": grants}
    return parse(content, "p")


@given(topologies(), topologies(), st.integers(0, 30), st.booleans())
@settings(max_examples=examples(150), deadline=None)
def test_a_plan_that_was_carried_out_leaves_nothing_to_do(
    first: WantedTopology, second: WantedTopology, broken_off: int, prune: bool
) -> None:
    server = ModelServer()
    for wanted in (first, second):
        server.carry_out(calls_of(plan(wanted, server.live, prune=prune))[:broken_off])
        server.carry_out(calls_of(plan(wanted, server.live, prune=prune)))
        assert plan(wanted, server.live, prune=prune) == []
    if prune:
        assert server.live.topics.keys() == second.topics.keys()
        assert server.live.subscriptions.keys() == second.subscriptions.keys()


RECORDED = ("aaa", "bbb", "ccc", "qqq")


@st.composite
def recordings(draw: st.DrawFn) -> WantedTopology:
    """Which of the topics, and of the queue qqq, take records of the others. All are there, in any order."""
    taking = draw(st.sets(st.sampled_from(RECORDED[:3])))
    found: dict[str, dict[str, Any]] = {"topics": {}, "queues": {}}
    for name in draw(st.permutations(RECORDED)):
        target = "" if name in taking or not taking else draw(st.sampled_from(["", *sorted(taking)]))
        keys: dict[str, Any] = {"records_topic": target}
        if name in taking:
            keys["message_retention_duration"] = draw(st.sampled_from(["1d", "2d"]))
        found["queues" if name == "qqq" else "topics"][name] = keys
    return parse(found, "p")


@given(st.lists(recordings(), min_size=2, max_size=3), st.integers(0, 12))
@settings(max_examples=examples(150), deadline=None)
def test_what_takes_records_and_what_is_recorded_change_places(files: list[WantedTopology], broken_off: int) -> None:
    server = ModelServer()
    for wanted in files:
        server.carry_out(calls_of(plan(wanted, server.live))[:broken_off])
        server.carry_out(calls_of(plan(wanted, server.live)))
        assert plan(wanted, server.live) == []


def test_a_topic_is_recorded_into_one_that_was_recorded_until_then() -> None:
    server = ModelServer()
    kept = "message_retention_duration: 1d"
    for recorded, records in (("one", "two"), ("two", "one")):
        for text in (
            f"topics: {{log: {{{kept}}}, {recorded}: {{records_topic: log}}, {records}: {{records_topic: log}}}}",
            f"topics: {{{recorded}: {{records_topic: {records}}}, {records}: {{{kept}, records_topic: ''}}}}",
        ):
            server.carry_out(calls_of(plan(wanted_of(text), server.live)))
            assert plan(wanted_of(text), server.live) == []


def test_what_the_file_does_not_say_stays() -> None:
    server = ModelServer()
    server.carry_out(calls_of(plan(wanted_of("topics: {abc: {labels: {a: b}}, other: {}}"), server.live)))
    policy = iam.Policy()
    policy.bindings.add(role="r0", members=["user:x"])
    policy.bindings.add(role="r1", members=["user:y"]).condition.expression = "true"
    server.live.policies["projects/p/topics/abc"] = policy
    wanted = wanted_of("topics: {abc: {default_ttl: 1h}}\ngrants: {topics/abc: {r1: ['user:z']}}")
    server.carry_out(calls_of(plan(wanted, server.live)))
    assert dict(server.live.topics["projects/p/topics/abc"].labels) == {"a": "b"}
    assert "projects/p/topics/other" in server.live.topics
    found = server.live.policies["projects/p/topics/abc"].bindings
    assert {(one.role, *one.members, one.condition.expression) for one in found} == {
        ("r0", "user:x", ""),
        ("r1", "user:y", "true"),
        ("r1", "user:z", ""),
    }


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("subscriptions: {sub: {topic: other}}", "subscriptions.sub.topic: its topic cannot be changed"),
        ("subscriptions: {sub: {topic: abc, filter: 'attributes:x'}}", "its filter cannot be changed; it is not set"),
        ("topics: {jobs: {}}", "topics.jobs: projects/p/topics/jobs is a queue"),
        ("queues: {abc: {}}", "queues.abc: projects/p/topics/abc is a topic, not a queue"),
    ],
)
def test_what_is_for_good_is_refused(change: str, words: str) -> None:
    server = ModelServer()
    made = "topics: {abc: {}, other: {}}\nqueues: {jobs: {}}\nsubscriptions: {sub: {topic: abc}}"
    server.carry_out(calls_of(plan(wanted_of(made), server.live)))
    with pytest.raises(FailedPrecondition, match=words):
        plan(wanted_of(change), server.live)


def test_steps_say_what_changes() -> None:
    server = ModelServer()
    made = "topics: {abc: {}}\nsubscriptions: {sub: {topic: abc, ttl: 1h, rules: {one: a = 1}}}"
    steps = plan(wanted_of(made), server.live)
    assert [(step.sign, step.kind) for step in steps] == [("+", "topic"), ("+", "subscription"), ("+", "rule")]
    server.carry_out(calls_of(steps))
    changed = "subscriptions: {sub: {topic: abc, ttl: 2h, ack_deadline_seconds: 30, rules: {one: a = 2, two: b = 1}}}"
    steps = plan(wanted_of(changed), server.live)
    assert [(step.sign, step.kind, *step.differences) for step in steps] == [
        ("~", "subscription", ("ack_deadline_seconds", 10, 30), ("ttl", "3600s", "7200s")),
        ("~", "rule", ("filter", "a = 1", "a = 2")),
        ("+", "rule", ("filter", None, "b = 1")),
    ]

"""Rules of subscriptions by syncpoint.admin.v1: what can be made, what counts from when, and what a trial shows."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import pytest

from syncpoint.base.model.errors import (
    AlreadyExists,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    ResourceExhausted,
)
from syncpoint.front.api.rule_admin import RULES_BYTES_MAX, RuleAdmin
from syncpoint.testing.rigs.forwarder_harness import SUB, TOPIC
from syncpoint.testing.rigs.servicer_harness import ServicerHarness, simulated
from syncpoint.wire.protobuf.messages import admin
from tests.kit.working_apart import WorkingApart

pytestmark = pytest.mark.shows("rules")

ALL = admin.RuleScope.Value("ALL_MESSAGES")
BIG = {"name": "big", "sql": "size > 10"}
MARKED = {"name": "marked", "sql": "replicated IS NULL OR replicated <> 1", "action": "SET replicated = 1"}


async def make(harness: ServicerHarness, rule: dict[str, Any], **fields: Any) -> admin.Rule:
    made: admin.Rule = await harness.call("CreateRule", subscription=SUB, rule=rule, **fields)
    return made


async def named(harness: ServicerHarness) -> list[str]:
    return [one.name for one in (await harness.call("ListRules", subscription=SUB)).rules]


async def publish(harness: ServicerHarness, *messages: dict[str, str]) -> None:
    sent = [{"data": b"x", "attributes": attributes} for attributes in messages]
    await harness.call("Publish", topic=TOPIC, messages=sent)


async def received(harness: ServicerHarness) -> list[dict[str, str]]:
    return sorted((dict(one.message.attributes) for one in await harness.pull()), key=lambda one: sorted(one.items()))


@simulated()
async def test_rules_are_made_changed_listed_and_deleted(harness: ServicerHarness) -> None:
    assert [one.sql for one in (await harness.call("ListRules", subscription=SUB)).rules] == ["1=1"]
    parameters = {"a": {"integer": 3}, "b": {"number": 0.5}, "c": {"text": "x"}, "d": {"truth": True}, "e": {}}
    every = {"name": "all", "sql": "n IN (@a, @b, @c, @d, @e)", "parameters": parameters}
    made = [
        await make(harness, BIG),
        await make(harness, MARKED),
        await make(harness, {"name": "by", "correlation": {"properties": {"sys.Label": "x", "colour": "red"}}}),
        await make(harness, every),
        await make(harness, {"name": "bare"}),
    ]
    assert made[-1].sql == "1=1"
    await harness.crash()
    listed = (await harness.call("ListRules", subscription=SUB)).rules
    assert [one.name for one in listed] == ["$Default", "all", "bare", "big", "by", "marked"]
    assert all(one in listed for one in made)
    changed = await harness.call("UpdateRule", subscription=SUB, rule=BIG | {"sql": "size > 20"})
    assert changed in (await harness.call("ListRules", subscription=SUB)).rules
    await harness.call("DeleteRule", subscription=SUB, name="$Default")
    assert "$Default" not in await named(harness)


@simulated()
async def test_what_is_no_rule_is_refused(harness: ServicerHarness) -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"name": "", "sql": "1=1"}, "rule.name"),
        ({"name": "a b", "sql": "1=1"}, "rule.name"),
        ({"name": "a" * 51, "sql": "1=1"}, "rule.name"),
        ({"name": "a", "sql": "a ="}, "ends too early"),
        ({"name": "a", "sql": ""}, "rule.sql must not be empty"),
        ({"name": "a", "sql": "a = @b"}, "@b has no value"),
        ({"name": "a", "sql": "body.a = 1"}, "rules cannot read"),
        ({"name": "a", "sql": "1=1", "action": "SET sys.SessionId = 'x'"}, "cannot be changed"),
        ({"name": "a", "correlation": {}}, "must name a property"),
        ({"name": "a", "correlation": {"properties": {"sys.TimeToLive": "1"}}}, "is not a system property"),
        ({"name": "a", "correlation": {"properties": {"b": "x" * 1025}}}, "must have 1 to"),
        ({"name": "a", "sql": "1=1", "parameters": {"b c": {"integer": 1}}}, "rule.parameters"),
        ({"name": "a", "sql": "1=1", "parameters": {"b": {"integer": 1}, "B": {}}}, "be unique regardless of case"),
        ({"name": "a", "sql": "1=1", "parameters": {"b": {"number": float("inf")}}}, "must be a finite number"),
    ]
    for rule, why in wrong:
        with pytest.raises(InvalidArgument, match=why):
            await make(harness, rule)
    with pytest.raises(AlreadyExists):
        await make(harness, {"name": "$Default"})
    for method, fields in (("UpdateRule", {"rule": BIG}), ("DeleteRule", {"name": "big"})):
        with pytest.raises(NotFound):
            await harness.call(method, subscription=SUB, **fields)
    with pytest.raises(NotFound):
        await harness.call("ListRules", subscription=SUB + "-gone")
    with pytest.raises(InvalidArgument, match="Unknown scope 9"):
        await make(harness, BIG, scope=9)
    assert await named(harness) == ["$Default"]
    await harness.call("DetachSubscription", subscription=SUB)
    with pytest.raises(FailedPrecondition, match="detached"):
        await make(harness, BIG)


@simulated()
async def test_long_rules_are_read_by_other_processes(harness: ServicerHarness) -> None:
    apart = WorkingApart()
    rules = RuleAdmin(harness.control, harness.admin.options, apart)
    long = " OR ".join(["size > 10"] * 60)
    for rule in (BIG, BIG | {"name": "long", "sql": long}):
        await rules.create_rule(admin.CreateRuleRequest(subscription=SUB, rule=rule))
    assert (apart.at_once, apart.apart) == (["projects/p"], ["projects/p"])
    with pytest.raises(InvalidArgument, match=r"rule\.sql"):
        await rules.update_rule(admin.UpdateRuleRequest(subscription=SUB, rule=BIG | {"sql": long + " OR"}))
    assert len(apart.apart) == 2
    assert await named(harness) == ["$Default", "big", "long"]


@simulated()
async def test_rules_have_bounds(harness: ServicerHarness) -> None:
    await harness.call("CreateSubscription", name=SUB + "-2", topic=TOPIC)
    await make(harness, BIG)
    with pytest.MonkeyPatch.context() as bounds:
        bounds.setattr("syncpoint.front.api.rule_admin.RULES_MAX", 3)
        with pytest.raises(ResourceExhausted, match="at most 3 rules"):
            await make(harness, MARKED)
        await harness.call("DeleteRule", subscription=SUB + "-2", name="$Default")
        await make(harness, MARKED)
        bounds.setattr("syncpoint.front.api.rule_admin.RULES_BYTES_MAX", 150)
        with pytest.raises(ResourceExhausted, match="150 bytes"):
            await harness.call("UpdateRule", subscription=SUB, rule=BIG | {"sql": "size > 10 OR " * 9 + "1=1"})


@simulated()
async def test_a_changed_rule_counts_for_new_messages_or_for_all(harness: ServicerHarness) -> None:
    await publish(harness, {"size": "5"}, {"size": "15"})
    await make(harness, BIG)
    await harness.call("DeleteRule", subscription=SUB, name="$Default")
    await publish(harness, {"size": "6"}, {"size": "16"})
    assert await received(harness) == [{"size": "15"}, {"size": "16"}, {"size": "5"}]
    await harness.crash()
    await harness.call("UpdateRule", subscription=SUB, rule=BIG | {"sql": "size = 5 OR size = 16"}, scope=ALL)
    assert await received(harness) == [{"size": "16"}, {"size": "5"}]


@simulated()
async def test_copies_are_made_by_rules_with_actions(harness: ServicerHarness) -> None:
    await make(harness, MARKED)
    await publish(harness, {"a": "1"}, {"a": "2", "replicated": "1"})
    copy = {"a": "1", "replicated": "1", "RuleName": "marked"}
    assert await received(harness) == [copy, {"a": "1"}, {"a": "2", "replicated": "1"}]
    await harness.call("DeleteRule", subscription=SUB, name="marked", scope=ALL)
    await publish(harness, {"a": "3"})
    await harness.crash()
    assert await received(harness) == [{"a": "1"}, {"a": "2", "replicated": "1"}, {"a": "3"}]


@simulated()
async def test_two_rules_with_actions_and_three_without_make_three_messages(harness: ServicerHarness) -> None:
    for name, action in (("p1", ""), ("p2", ""), ("p3", ""), ("a1", "SET by = 1"), ("a2", "SET by = 2")):
        await make(harness, {"name": name, "sql": "n = 1", "action": action})
    await make(harness, {"name": "by", "correlation": {"properties": {"kind": "Cold"}}, "action": "SET by = 3"})
    await harness.call("DeleteRule", subscription=SUB, name="$Default")
    await publish(harness, {"n": "1", "kind": "cold"}, {"n": "2", "kind": "Cold"}, {"n": "2"})
    assert await received(harness) == [
        {"n": "1", "kind": "cold", "by": "1", "RuleName": "a1"},
        {"n": "1", "kind": "cold", "by": "2", "RuleName": "a2"},
        {"n": "2", "kind": "Cold", "by": "3", "RuleName": "by"},
        {"n": "1", "kind": "cold"},
    ]


@simulated()
async def test_rules_can_be_changed_as_often_as_one_likes(harness: ServicerHarness) -> None:
    """A message of each time is acknowledged in between, and one waits all the time."""
    await publish(harness, {"first": "yes"})
    await harness.pull()
    for number in range(400):
        rule = {"name": "$Default", "sql": f"n = {number}"} | ({"action": "SET x = 1"} if number % 7 == 0 else {})
        await harness.call("UpdateRule", subscription=SUB, rule=rule)
        if number % 100 == 0:
            await publish(harness, {"n": str(number)}, {"n": "-1"})
            came: list[Any] = []
            while not came:  # the first one comes again and again
                came = [one for one in await harness.pull() if one.message.attributes["n"] == str(number)]
            await harness.call("Acknowledge", subscription=SUB, ack_ids=[came[0].ack_id])
    await harness.crash()
    record = harness.control.catalog.subscription(SUB)
    assert record is not None
    assert len(record.options.lanes) < 32
    assert await received(harness) == [{"first": "yes"}]


@simulated()
async def test_too_many_changes_are_refused_as_long_as_what_they_left_waits(harness: ServicerHarness) -> None:
    with pytest.MonkeyPatch.context() as bounds:
        bounds.setattr("syncpoint.catalog.metadata.entity_options.LANES_MAX", 20)
        for number in range(20):
            await publish(harness, {"n": str(number)})
            change = harness.call("UpdateRule", subscription=SUB, rule={"name": "$Default", "sql": f"n >= {number}"})
            if number < 19:
                await change
        with pytest.raises(ResourceExhausted, match="Acknowledge the backlog"):
            await change
        for one in await harness.pull():
            await harness.call("Acknowledge", subscription=SUB, ack_ids=[one.ack_id])
        await harness.call("UpdateRule", subscription=SUB, rule={"name": "$Default", "sql": "n >= 30"})
        record = harness.control.catalog.subscription(SUB)
        assert record is not None
        assert len(record.options.lanes) <= 2


@pytest.mark.parametrize("waiting", [False, True], ids=["nothing waits", "something waits"])
def test_as_many_rules_as_are_promised_can_be_added_changed_and_deleted(waiting: bool) -> None:
    @simulated()
    async def run(harness: ServicerHarness) -> None:
        def rule(number: int, text: str) -> dict[str, Any]:
            return {"name": f"r{number * 7 % 400:03}", "correlation": {"properties": {f"a{number:03}": text * 1000}}}

        if waiting:
            await publish(harness, {"a": "1"})
        first = admin.Rule(name="$Default", sql="1=1").ByteSize()
        count = 240 if waiting else (RULES_BYTES_MAX - first) // admin.Rule(**rule(1, "x")).ByteSize()
        for number in range(1, count + 1):
            await make(harness, rule(number, "x"))
        if not waiting:
            with pytest.raises(ResourceExhausted, match=f"{RULES_BYTES_MAX} bytes"):
                await make(harness, rule(count + 1, "x"))
        for one in await harness.pull() if waiting else ():
            await harness.call("Acknowledge", subscription=SUB, ack_ids=[one.ack_id])
        await harness.call("DeleteRule", subscription=SUB, name="$Default")
        for number in range(1, count, 9):
            await harness.call("UpdateRule", subscription=SUB, rule=rule(number, "y"))
        await harness.crash()
        assert len(await named(harness)) == count
        for number in range(1, count + 1):
            await harness.call("DeleteRule", subscription=SUB, name=rule(number, "y")["name"])
        assert await named(harness) == []

    run()


# -- trials ------------------------------------------------------------------------------------------------------------


async def trial(harness: ServicerHarness, **fields: Any) -> admin.TestRuleResponse:
    answer: admin.TestRuleResponse = await harness.call("TestRule", **fields)
    return answer


def results(answer: admin.TestRuleResponse) -> dict[str, str]:
    return {part.text: part.result for part in answer.parts}


@simulated()
async def test_a_trial_shows_what_each_rule_makes_of_a_message(harness: ServicerHarness) -> None:
    await make(harness, MARKED)
    await make(harness, {"name": "fails", "sql": "1 / n = 1", "action": "SET a = 1"})
    await make(harness, {"name": "late", "sql": "n = 0", "action": "SET sys.TimeToLive = a"})
    message = {"attributes": {"n": "0", "a": "x"}, "data": b"hello"}
    answer = await trial(harness, subscription=SUB, message=message)
    assert [dict(one.attributes) for one in answer.copies] == [
        {"n": "0", "a": "x"},
        {"n": "0", "a": "x", "replicated": "1", "RuleName": "marked"},
    ]
    assert results(answer) == {
        "1=1": "true", MARKED["sql"]: "true", "1 / n = 1": "fails: 1 / 0 divides by zero", "n = 0": "true",
        "SET sys.TimeToLive = a": "fails: sys.TimeToLive cannot be 'x'",
    }  # fmt: skip
    explained = await trial(harness, subscription=SUB, message=message, explain=True)
    assert results(explained)["replicated"] == "not there"
    assert results(explained)["replicated <> 1"] == "unknown"


@simulated()
async def test_a_trial_refuses_a_publish_time_that_is_none(harness: ServicerHarness) -> None:
    for moment in ({"nanos": -1}, {"seconds": 2**60}):
        with pytest.raises(InvalidArgument, match="publish_time is not a valid time"):
            await trial(harness, subscription=SUB, message={"publish_time": moment})


@simulated()
async def test_the_filter_of_the_subscription_stands_before_all_rules(harness: ServicerHarness) -> None:
    name = SUB + "-eu"
    await harness.call("CreateSubscription", name=name, topic=TOPIC, filter='attributes.region = "eu"')
    for region, selected in (("eu", True), ("us", False)):
        answer = await trial(harness, subscription=name, message={"attributes": {"region": region}})
        assert (answer.selected, "the filter of the subscription" in results(answer)) == (selected, not selected)


@simulated()
async def test_a_rule_alone_is_tried_on_fields_of_the_data(harness: ServicerHarness) -> None:
    rule = {"sql": "body.order.total > 100 AND body.gone IS NULL"}
    for total in (99, 101):
        data = json.dumps({"order": {"total": total}}).encode()
        assert (await trial(harness, subscription=SUB, rule=rule, message={"data": data})).selected is (total > 100)
    answer = await trial(harness, subscription=SUB, rule=rule, message={"data": b"no json"})
    assert results(answer) == {rule["sql"]: "unknown"}
    with pytest.raises(InvalidArgument):
        await trial(harness, subscription=SUB, rule={"sql": "body.a ="}, message={})
    with pytest.raises(InvalidArgument):
        await trial(harness, rule=rule, message={})


@simulated()
async def test_data_of_a_topic_with_an_avro_schema_are_read_by_it(harness: ServicerHarness) -> None:
    text = '{"type": "record", "name": "Order", "fields": [{"name": "total", "type": "double"}]}'
    schema = await harness.call(
        "CreateSchema", parent="projects/p", schema_id="order", schema={"type": 2, "definition": text}
    )
    settings = {"schema": schema.name, "encoding": 2}
    await harness.call("CreateTopic", name=TOPIC + "-avro", schema_settings=settings)
    await harness.call("CreateSubscription", name=SUB + "-avro", topic=TOPIC + "-avro")
    data = io.BytesIO()
    fastavro.schemaless_writer(data, json.loads(text), {"total": 120.5})
    rule = {"sql": "body.total = 120.5"}
    assert (await trial(harness, subscription=SUB + "-avro", rule=rule, message={"data": data.getvalue()})).selected
    assert not (await trial(harness, subscription=SUB + "-avro", rule=rule, message={"data": b"x"})).selected


@simulated()
async def test_fields_within_fields_of_binary_data_can_be_asked_for(harness: ServicerHarness) -> None:
    inner = {"type": "record", "name": "Line", "fields": [{"name": "sku", "type": "string"}]}
    avro = {"type": "record", "name": "Order", "fields": [{"name": "first", "type": inner}]}
    written = io.BytesIO()
    fastavro.schemaless_writer(written, avro, {"first": {"sku": "x"}})
    proto = 'syntax = "proto3"; message Order { message Line { string sku = 1; int64 of = 2; } Line first = 1; }'
    for kind, text, data, wanted in (
        (2, json.dumps(avro), written.getvalue(), "body.first.sku = 'x'"),
        (1, proto, b"\n\x05\n\x01x\x10\x09", "body.first.sku = 'x' AND body.first.of > 8"),
    ):
        name = f"nested-{kind}"
        asked = {"parent": "projects/p", "schema_id": name, "schema": {"type": kind, "definition": text}}
        schema = await harness.call("CreateSchema", **asked)
        settings = {"schema": schema.name, "encoding": 2}
        await harness.call("CreateTopic", name=f"{TOPIC}-{name}", schema_settings=settings)
        await harness.call("CreateSubscription", name=f"{SUB}-{name}", topic=f"{TOPIC}-{name}")
        for found, selected in ((data, True), (b"\xff", False)):
            rule, message = {"sql": wanted}, {"data": found}
            answer = await trial(harness, subscription=f"{SUB}-{name}", rule=rule, message=message, explain=True)
            assert answer.selected is selected
            assert results(answer)["body.first.sku"] == ("'x'" if selected else "not there")

"""Rules of a subscription on the way to its subscribers: which copies come, and that each is a message by itself."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from syncpoint.base.model.errors import ResourceExhausted
from syncpoint.base.model.lanes import in_lane, lane_of
from syncpoint.base.runtime.child_processes import at_once
from syncpoint.broker.subscribe import lane_rules, rule_batches, rule_work
from syncpoint.broker.subscribe.lane_rules import judged_by, kernel_program
from syncpoint.broker.subscribe.rule_work import Judged, Judging, RuleWork
from syncpoint.broker.subscribe.subscribe_forwarder import SubscribeForwarder
from syncpoint.catalog.metadata.entity_options import MessageRule, RuleChange, changed_rules
from syncpoint.catalog.metadata.records import CatalogChange, DeadLetter, Subscription, Topic
from syncpoint.testing.rigs.forwarder_harness import ForwarderHarness, Subscriber
from syncpoint.wire.protobuf.messages import pubsub

pytestmark = pytest.mark.shows("rules")

RED = MessageRule("red", "colour = 'red'", action="SET mark = 'r'")
BIG = MessageRule("big", "size > 10", action="SET mark = 'b'; SET id = newid(); REMOVE colour")
DEFAULT = MessageRule("$Default", "1=1")


class Elsewhere(RuleWork):
    """Judges whatever it can as other processes would, but at once."""

    def __init__(self) -> None:
        super().__init__(at_once)
        self.judged = 0

    def start(self, judging: Judging, then: Any) -> None:
        assert judging.project == "projects/p"
        outcomes: dict[tuple[int, int], Any] = {}
        for piece in judging.pieces:
            work, asked = pickle.loads(pickle.dumps(piece))
            found = pickle.loads(pickle.dumps(judged_by(work, asked, judging.room)))
            outcomes.update(zip(((source, place) for source, place, _ in asked), found, strict=False))
        self.judged += len(outcomes)
        then(Judged(judging.rules, outcomes))

    def prepare(self, project: str, work: Any, then: Any) -> None:
        program = kernel_program(pickle.loads(pickle.dumps(work)))
        if program is not None and len(program) % 2:  # of others nobody learns: they are judged elsewhere for good
            then(program)


@pytest.fixture(params=["here", "elsewhere", "read elsewhere"], autouse=True)
def judging(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Elsewhere | None:
    """Where messages are judged that the kernel does not judge: what comes of it is the same."""
    if request.param == "here":
        return None
    work, made = Elsewhere(), SubscribeForwarder.__init__
    monkeypatch.setattr(rule_work, "AT_ONCE_CHARS", -1)
    if request.param == "read elsewhere":
        monkeypatch.setattr(lane_rules, "LAZY_CHARS", -1)

    def make(forwarder: SubscribeForwarder, *arguments: Any, **options: Any) -> None:
        made(forwarder, *arguments, **options)
        forwarder.work = work

    monkeypatch.setattr(SubscribeForwarder, "__init__", make)
    return work


def change(harness: ForwarderHarness, *rules: MessageRule, delete: tuple[str, ...] = (), to_all: bool = False) -> None:
    known = harness.publish.catalog.subscription(harness.record.name)
    assert known is not None
    revision = harness.publish.catalog.revision + 1
    options = changed_rules(known.options, RuleChange(rules, delete, to_all), revision)
    harness.record = replace(known, options=options)
    harness.commit(CatalogChange.put(harness.record))
    harness.quiesce()


def ruled(*rules: MessageRule, delete: tuple[str, ...] = ("$Default",), **options: Any) -> ForwarderHarness:
    harness = ForwarderHarness(**options)
    change(harness, *rules, delete=delete)
    return harness


def copies(subscriber: Subscriber) -> list[tuple[str, str]]:
    """Data and rule of everything received."""
    return sorted((one.message.data.decode(), one.message.attributes["RuleName"]) for one in subscriber.received)


def ids(subscriber: Subscriber, rule: str) -> list[str]:
    return [one.ack_id for one in subscriber.received if one.message.attributes["RuleName"] == rule]


def ledger_has(harness: ForwarderHarness, lane: int, offset: int) -> bool:
    (source,) = harness.publish.sources.of_topic(harness.record.topic_incarnation)
    place = in_lane(lane, offset)
    return harness.publish.ledgers[harness.record.incarnation].of(source.number).covers(place, place + 1)


def test_each_rule_with_an_action_makes_a_copy_of_what_it_selects() -> None:
    harness = ruled(RED, BIG)
    subscriber = Subscriber(harness)
    harness.send("a", colour="red", size="20")
    harness.send("b", colour="red", size="5")
    harness.send("c", colour="blue")
    assert copies(subscriber) == [("a", "big"), ("a", "red"), ("b", "red")]
    found = {one.message.attributes["RuleName"]: one.message for one in subscriber.received if one.message.data == b"a"}
    assert found["red"].message_id == found["big"].message_id
    assert dict(found["red"].attributes) == {"colour": "red", "size": "20", "mark": "r", "RuleName": "red"}
    assert "colour" not in found["big"].attributes


def test_one_that_is_refused_comes_again_whatever_is_read_behind_it() -> None:
    harness = ruled(RED)
    subscriber = Subscriber(harness)
    for number in range(30):  # each is a batch of its own, and smaller than what is read for one
        harness.send(str(number), colour="red")
    subscriber.nack(subscriber.received[0].ack_id)
    harness.quiesce()
    assert [one.message.data.decode() for one in subscriber.received] == [*map(str, range(30)), "0"]


def test_plain_rules_together_make_one_copy() -> None:
    harness = ruled(MessageRule("one", "a = 1"), MessageRule("two", "b = 1 OR a = 1"), MessageRule("x", "1/0 = a"))
    subscriber = Subscriber(harness)
    harness.send("a", a="1", b="1")
    harness.send("b", a="2")
    assert copies(subscriber) == [("a", "")]


def test_without_any_rule_nothing_comes_and_nothing_is_kept() -> None:
    harness = ruled()
    subscriber = Subscriber(harness)
    harness.send("a")
    harness.quiesce()
    assert subscriber.received == []
    (source,) = harness.publish.sources.of_topic(harness.record.topic_incarnation)
    assert harness.publish.ledgers[harness.record.incarnation].covers(source.number, 0, 1)


def test_the_filter_of_the_subscription_comes_first() -> None:
    harness = ruled(RED, DEFAULT, delete=(), filter_text='attributes.kind = "k"')
    subscriber = Subscriber(harness)
    harness.send("a", colour="red", kind="k")
    harness.send("b", colour="red")
    assert copies(subscriber) == [("a", ""), ("a", "red")]


def test_an_acknowledged_copy_leaves_the_others() -> None:
    harness = ruled(RED, DEFAULT, delete=())
    subscriber = Subscriber(harness)
    harness.send("a", colour="red")
    subscriber.ack(*ids(subscriber, "red"))
    harness.restart()
    harness.advance(1)
    again = Subscriber(harness)
    harness.quiesce()
    assert copies(again) == [("a", "")]


@pytest.mark.parametrize("exactly_once", [False, True])
def test_a_copy_that_comes_back_is_the_same(exactly_once: bool) -> None:
    harness = ruled(BIG, exactly_once=exactly_once)
    subscriber = Subscriber(harness)
    harness.send("a", size="11", colour="red")
    subscriber.nack(*subscriber.held)
    first, second = (one.message for one in subscriber.received)
    assert first == second
    assert first.attributes["id"]
    assert subscriber.ack(subscriber.received[-1].ack_id) == []
    assert ledger_has(harness, 1, 0) == (harness.record.options.lanes[1].number == 1)


def test_exactly_once_ids_are_of_one_copy() -> None:
    harness = ruled(RED, BIG, exactly_once=True)
    subscriber = Subscriber(harness)
    harness.send("a", colour="red", size="20")
    (red,), (big,) = ids(subscriber, "red"), ids(subscriber, "big")
    assert subscriber.ack(red) == []
    assert subscriber.ack(red) == [red.encode()]
    assert subscriber.ack(big) == []


def test_keys_are_in_order_in_each_lane() -> None:
    harness = ruled(RED, DEFAULT, delete=(), ordered=True)
    subscriber = Subscriber(harness, max_messages=3)
    for data in "abcdef":
        harness.send(data, key="k", colour="red")
    for _ in range(20):
        if subscriber.held:
            subscriber.ack()
        harness.advance(0.2)
    for rule in ("", "red"):
        found = [one.message.data.decode() for one in subscriber.received if one.message.attributes["RuleName"] == rule]
        assert found == list("abcdef")


def test_a_key_whose_copy_comes_back_goes_on_in_order() -> None:
    harness = ruled(RED, ordered=True)
    subscriber = Subscriber(harness)
    for data in "abc":
        harness.send(data, key="k", colour="red")
    subscriber.nack(subscriber.received[0].ack_id)
    harness.advance(0.2)
    assert subscriber.data[-3:] == ["a", "b", "c"]
    assert {one.message.attributes["mark"] for one in subscriber.received} == {"r"}


def test_keys_stay_in_order_when_plain_rules_change() -> None:
    harness = ForwarderHarness(ordered=True)
    for data in "abc":
        harness.send(data, key="k")
    change(harness, MessageRule("n", "n = 1"))
    for data in "def":
        harness.send(data, key="k")
    change(harness, delete=("n",))
    for data in "ghi":
        harness.send(data, key="k")
    subscriber = Subscriber(harness, max_messages=2)
    harness.advance(0.2)
    subscriber.nack(subscriber.received[1].ack_id)
    for _ in range(20):
        if subscriber.held:
            subscriber.ack()
        harness.advance(0.2)
    assert subscriber.data[-8:] == list("bcdefghi")
    change(harness, MessageRule("n", "n = 1"))
    for data in "jkl":
        harness.send(data, key="k")
        harness.advance(0.2)
        subscriber.ack()
    assert subscriber.data[-3:] == list("jkl")


def test_a_rule_is_for_what_comes_after_it() -> None:
    harness = ForwarderHarness()
    subscriber = Subscriber(harness)
    harness.send("a", colour="red")
    change(harness, RED)
    harness.advance(0.2)
    harness.send("b", colour="red")
    assert copies(subscriber) == [("a", ""), ("b", ""), ("b", "red")]
    assert len(subscriber.held) == 3, "what was lent stays lent"


def test_a_rule_for_all_is_for_what_is_left() -> None:
    harness = ForwarderHarness()
    subscriber = Subscriber(harness)
    harness.send("a", colour="red")
    subscriber.ack()
    harness.send("b", colour="red")
    change(harness, RED, to_all=True)
    harness.advance(0.2)
    assert copies(subscriber) == [("a", ""), ("b", ""), ("b", "red")]


def test_who_has_not_learned_of_new_rules_changes_nothing_for_others() -> None:
    """A subscriber inside the process acknowledges by the record that it has joined with."""
    harness = ForwarderHarness()
    subscriber, before = Subscriber(harness), harness.record
    harness.send("a", colour="red")
    change(harness, RED, delete=("$Default",), to_all=True)
    harness.advance(1)
    ack_ids = ids(subscriber, "red")
    assert len(ack_ids) == 1
    request = pubsub.AcknowledgeRequest(subscription=before.name, ack_ids=ack_ids).SerializeToString()
    harness.subscribe.acknowledge(before, request, 2, None)
    harness.send("b", colour="red")
    harness.send("c", colour="blue")
    assert copies(subscriber) == [("a", ""), ("a", "red"), ("b", "red")]


def test_other_plain_rules_take_up_where_the_old_ones_stop() -> None:
    harness = ForwarderHarness()
    harness.send("a", n="1")
    change(harness, MessageRule("$Default", "n > 1"))
    harness.send("b", n="1")
    harness.send("c", n="2")
    subscriber = Subscriber(harness)
    harness.quiesce()
    assert sorted(subscriber.data) == ["a", "c"]


def test_other_plain_rules_for_all_judge_what_is_left_anew() -> None:
    harness = ForwarderHarness()
    subscriber = Subscriber(harness, max_messages=1)
    harness.send("a", n="1")
    harness.send("b", n="1")
    harness.send("c", n="2")
    change(harness, MessageRule("$Default", "n > 1"), to_all=True)
    harness.advance(0.3)
    assert subscriber.data == ["a", "c"]


def test_what_a_deleted_rule_has_made_is_delivered_or_dropped() -> None:
    harness = ruled(RED)
    harness.send("a", colour="red")
    change(harness, delete=("red",))
    harness.send("b", colour="red")
    subscriber = Subscriber(harness)
    harness.quiesce()
    assert copies(subscriber) == [("a", "red")]
    harness = ruled(RED)
    harness.send("a", colour="red")
    subscriber = Subscriber(harness)
    harness.quiesce()
    (held,) = subscriber.held
    change(harness, delete=("red",), to_all=True)
    harness.advance(0.3)
    assert subscriber.ack(held) == []
    harness.restart()
    harness.advance(1)
    again = Subscriber(harness)
    harness.quiesce()
    assert again.received == []


def test_a_dead_letter_is_the_copy() -> None:
    harness = ForwarderHarness(dead_letter=DeadLetter("projects/p/topics/dead", 5))
    harness.commit(
        CatalogChange.put(Topic(7, "projects/p/topics/dead")),
        CatalogChange.put(Subscription(8, "projects/p/subscriptions/dead", 7, "projects/p/topics/dead")),
    )
    change(harness, RED, delete=("$Default",))
    subscriber = Subscriber(harness)
    harness.send("a", colour="red")
    for _ in range(5):
        subscriber.nack(*subscriber.held)
    assert [one.delivery_attempt for one in subscriber.received] == [1, 2, 3, 4, 5]
    harness.record = harness.publish.catalog.subscription("projects/p/subscriptions/dead")  # type: ignore[assignment]
    dead = Subscriber(harness)
    harness.quiesce()
    (letter,) = dead.received
    assert (letter.message.attributes["RuleName"], letter.message.attributes["mark"]) == ("red", "r")


@pytest.mark.parametrize(("name", "value"), [("JUDGED_BYTES", 100), ("JUDGED_S", -1.0)])
def test_copies_are_made_some_at_a_time(
    name: str, value: float, monkeypatch: pytest.MonkeyPatch, judging: Elsewhere | None
) -> None:
    if judging is not None:  # a piece of work is bounded by what its rules cost
        monkeypatch.setattr(rule_work, "PIECE_CHARS", 1)
    monkeypatch.setattr(rule_batches, name, value)
    harness = ruled(RED)
    for data in "abcdefghij":
        harness.send(data, colour="red")
    subscriber = Subscriber(harness, max_messages=1)
    harness.advance(0.2)
    assert len(subscriber.received) == 1
    delivery = harness.subscribe.delivery(harness.record)
    waiting = [batch for one in delivery.reader.sources.cursors() for batch in one.batches]
    assert sum(one.end - one.begin for one in waiting if lane_of(one.begin) > 1) <= 4
    for _ in range(20):
        subscriber.ack()
        harness.advance(0.2)
    assert subscriber.data == list("abcdefghij")


def test_an_action_that_cannot_be_carried_out_makes_no_copy() -> None:
    long = MessageRule("long", "1=1", action="SET a = b + b")
    harness = ruled(long, MessageRule("bad", "1=1", action="SET a = 1/n"))
    subscriber = Subscriber(harness)
    harness.send("a", b="x" * 600, n="0")
    harness.send("b", b="x", n="1")
    assert copies(subscriber) == [("b", "bad"), ("b", "long")]


@pytest.mark.parametrize("letters", [False, True])
@pytest.mark.parametrize("room", [1, 1000])
def test_an_action_may_let_a_copy_live_shorter(letters: bool, room: int) -> None:
    brief = MessageRule("brief", "1=1", action="set sys.TimeToLive = '0:0:2'")
    lasting = MessageRule("lasting", "1=1", action="SET mark = 'l'")
    dead = "projects/p/topics/dead"
    harness = ruled(brief, lasting, dead_letter=DeadLetter(dead, 5) if letters else None, retention_s=86_400)
    if letters:
        harness.commit(CatalogChange.put(Topic(7, dead)))
        options = harness.record.options._replace(dead_letter_expired=True)
        harness.commit(CatalogChange.put(replace(harness.record, options=options)))
    reader = Subscriber(harness, max_messages=room) if room == 1 else None
    for data in "abc":
        harness.send(data)
    harness.advance(3)
    subscriber = reader or Subscriber(harness, max_messages=room)
    for _ in range(8):
        harness.advance(1)
        subscriber.ack()
    late = [("a", "brief")] if ("a", "brief") in copies(subscriber) else []  # lent in time, and acknowledged
    assert copies(subscriber) == sorted([*late, *((data, "lasting") for data in "abc")])
    assert bool(late) is (room == 1 and subscriber.received[0].message.attributes["RuleName"] == "brief")
    harness.advance(3)
    (source,) = harness.publish.sources.of_topic(1)
    assert harness.publish.ledgers[harness.record.incarnation].covers(source.number, 0, 3), "nothing of it waits"
    stored = harness.publish.sources.of_topic(7)
    assert sum(one.end for one in stored) == (3 - len(late) if letters else 0)


def held_back(
    judging: Elsewhere | None, monkeypatch: pytest.MonkeyPatch
) -> tuple[Elsewhere, list[Any], Callable[..., None]]:
    """Whoever judges elsewhere begins nothing from now on: what it was asked for, and what begins it."""
    if judging is None:
        pytest.skip("what is judged here is judged at once")
    kept: list[Any] = []
    start = judging.start
    monkeypatch.setattr(judging, "start", lambda *arguments: kept.append(arguments))
    return judging, kept, start


def test_what_was_judged_by_earlier_rules_is_judged_anew(
    judging: Elsewhere | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = ruled(RED)
    judging, kept, start = held_back(judging, monkeypatch)
    subscriber = Subscriber(harness)
    harness.send("a", colour="red", size="20")
    harness.quiesce()
    assert subscriber.received == [], "it is being judged"
    monkeypatch.setattr(judging, "start", start)
    change(harness, BIG, delete=("red",))
    for one in kept:
        start(*one)
    harness.advance(1)
    harness.send("b", colour="red", size="20")
    assert ("b", "big") in copies(subscriber)
    assert not [rule for data, rule in copies(subscriber) if data == "b" and rule != "big"]
    assert judging.judged


def test_where_nobody_judges_now_it_is_tried_again(judging: Elsewhere | None, monkeypatch: pytest.MonkeyPatch) -> None:
    if judging is None:
        pytest.skip("what is judged here is judged at once")
    harness, start = ruled(RED), judging.start
    monkeypatch.setattr(judging, "start", lambda judging, then: then(ResourceExhausted("later")))
    subscriber = Subscriber(harness)
    harness.send("a", colour="red")
    harness.advance(1)
    assert subscriber.received == []
    monkeypatch.setattr(judging, "start", start)
    harness.advance(2)
    assert copies(subscriber) == [("a", "red")]


def test_what_is_judged_after_a_pull_has_ended_is_there_for_the_next_one(
    judging: Elsewhere | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = ruled(RED)
    judging, kept, start = held_back(judging, monkeypatch)
    harness.send("a", colour="red")
    pulls = []
    for _ in range(3):
        pull = Subscriber(harness, single=True)
        harness.advance(2)
        harness.subscribe.leave(harness.record, pull.consumer)
        harness.advance(5)
        pulls.append(len(kept))
    assert pulls[0] == pulls[-1] > 0, "it is judged once, however often it is asked for in the meantime"
    for one in kept:
        start(*one)
    harness.advance(30)
    pull = Subscriber(harness, single=True)
    harness.quiesce()
    assert copies(pull) == [("a", "red")]
    pull.ack()
    harness.subscribe.leave(harness.record, pull.consumer)
    harness.advance(2 * rule_batches.KEPT_S)
    assert not harness.subscribe.deliveries, "and is not kept without end"

"""Messages given up for another reason than too many deliveries: rules that fail, and subscribers that say so."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from syncpoint.base.kernel.errors import BadAckId
from syncpoint.base.model.errors import FailedPrecondition
from syncpoint.base.model.names import DEAD_LETTERS_REFUSED
from syncpoint.broker.subscribe import expired_letters
from syncpoint.broker.subscribe.shared_state import Reason
from syncpoint.catalog.metadata.entity_options import MessageRule, RuleChange, SubscriptionOptions, changed_rules
from syncpoint.catalog.metadata.records import CatalogChange, DeadLetter, Subscription, Topic
from syncpoint.testing.rigs.forwarder_harness import SUB, ForwarderHarness, Subscriber
from syncpoint.wire.protobuf.messages import pubsub

pytestmark = pytest.mark.shows("dead-letters")

DEAD = "projects/p/topics/dead"
LETTERS = Subscription(21, "projects/p/subscriptions/dead", 20, DEAD)
FAILS = MessageRule("share", "100 / n > 10")
GROWS = MessageRule("grows", "EXISTS(text)", action="SET text = text + text")
ACTS = MessageRule("acts", "EXISTS(m)", action="SET share = 100 / m")


def ruled(*rules: MessageRule, moved: bool = True, **options: Any) -> ForwarderHarness:
    """A subscription with these rules alone, with a dead-letter policy, whose rules' failures are `moved`."""
    base = SubscriptionOptions(dead_letter_rule_errors=moved)
    changed = changed_rules(base, RuleChange(rules, ("$Default",)), 3)
    options.setdefault("dead_letter", DeadLetter(DEAD, 5))
    harness = ForwarderHarness(options=changed, **options)
    harness.commit(CatalogChange.put(Topic(20, DEAD)), CatalogChange.put(LETTERS))
    return harness


def letters(harness: ForwarderHarness) -> list[pubsub.PubsubMessage]:
    """All letters there are."""
    before, harness.record = harness.record, LETTERS
    reader = Subscriber(harness, max_messages=1000)
    harness.advance(1)
    harness.record = before
    return [one.message for one in reader.received]


def test_what_a_filter_fails_at_is_a_letter_that_says_which_and_why() -> None:
    harness = ruled(FAILS)
    subscriber = Subscriber(harness)
    ids = [harness.send(f"n{n}", key="k", n=str(n)).ids[0] for n in (0, 5, 50)]
    assert subscriber.data == ["n5"]
    (letter,) = letters(harness)
    assert (letter.data, letter.ordering_key, letter.attributes["n"]) == (b"n0", "k", "0")
    assert letter.attributes["sys.DeadLetterReason"] == "FilterEvaluationException"
    assert (
        letter.attributes["sys.DeadLetterErrorDescription"]
        == "The filter of rule share failed: 100 / 0 divides by zero."
    )
    assert letter.attributes["sys.DeadLetterSource"] == SUB
    assert letter.attributes["sys.DeadLetterMessageId"] == ids[0]
    assert letter.attributes["CloudPubSubDeadLetterSourceDeliveryCount"] == "0"
    harness.restart()
    again = Subscriber(harness)
    harness.advance(1)
    assert again.data == ["n5"]
    assert len(letters(harness)) == 1, "its letter was persisted, and then it was acknowledged"


def test_without_the_option_or_a_policy_it_is_not_selected() -> None:
    for harness in (ruled(FAILS, moved=False), ruled(FAILS, dead_letter=None)):
        subscriber = Subscriber(harness)
        harness.send("a", n="0")
        harness.send("b", n="5")
        assert subscriber.data == ["b"]
        assert letters(harness) == []


def test_another_rule_that_selects_it_delivers_it() -> None:
    harness = ruled(FAILS, MessageRule("other", "0 - n = 0"))
    subscriber = Subscriber(harness)
    harness.send("a", n="0")
    assert subscriber.data == ["a"]
    assert letters(harness) == []


def test_what_an_action_fails_at_or_makes_too_large_is_the_message_as_it_came() -> None:
    harness = ruled(ACTS, GROWS)
    subscriber = Subscriber(harness)
    harness.send("acts", m="0")
    harness.send("grows", text="x" * 700)
    harness.send("good", m="4", text="x")
    found = {one.data.decode(): one for one in letters(harness)}
    assert {data: one.attributes["sys.DeadLetterReason"] for data, one in found.items()} == {
        "acts": "RuleActionException",
        "grows": "HeaderSizeExceeded",
    }
    assert found["grows"].attributes["text"] == "x" * 700
    assert "RuleName" not in found["grows"].attributes
    assert found["grows"].attributes["sys.DeadLetterErrorDescription"] == (
        "The action of rule grows exceeded the limits of a message: text with 1400 bytes."
    )
    assert Counter(subscriber.data) == {"good": 2}


def test_the_limit_of_what_waits_holds_reading_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expired_letters, "WAITING_MAX", 3)
    monkeypatch.setattr(expired_letters, "MOVED_AT_ONCE", 2)
    harness = ruled(FAILS)
    for number in range(40):
        harness.send(str(number), n="0")
    Subscriber(harness)
    harness.advance(20)
    assert len(letters(harness)) == 40


def test_a_key_goes_on_behind_what_its_rule_fails_at() -> None:
    harness = ruled(FAILS, ordered=True)
    subscriber = Subscriber(harness)
    for number, n in enumerate((5, 0, 4, 0, 3)):
        harness.send(str(number), key="k", n=str(n))
    for _ in range(10):
        subscriber.ack()
        harness.advance(0.2)
    assert subscriber.data == ["0", "2", "4"]
    assert [one.data for one in letters(harness)] == [b"1", b"3"]


def test_nothing_is_lost_where_letters_cannot_be_published() -> None:
    harness = ruled(FAILS, dead_letter=DeadLetter("projects/p/topics/late", 5))
    subscriber = Subscriber(harness)
    harness.send("a", n="0")
    harness.advance(5)
    assert subscriber.received == []
    late = Subscription(31, "projects/p/subscriptions/late", 30, "projects/p/topics/late")
    harness.commit(CatalogChange.put(Topic(30, "projects/p/topics/late")), CatalogChange.put(late))
    harness.advance(3)
    before, harness.record = harness.record, late
    reader = Subscriber(harness)
    harness.advance(1)
    harness.record = before
    assert reader.data == ["a"]


# -- by their subscribers ----------------------------------------------------------------------------------------------


def give_up(harness: ForwarderHarness, *ack_ids: str, text: str = "why") -> tuple[list[Exception | None], list[bytes]]:
    """What became of each message, and the ids that did not count."""
    outcomes: list[Exception | None] = []
    request = pubsub.ModifyAckDeadlineRequest(ack_ids=ack_ids).SerializeToString()
    reason = Reason("NotOurs", text)
    _, invalid = harness.subscribe.give_up(harness.record, request, 4, reason, lambda message: outcomes.append)
    harness.quiesce()
    return outcomes, invalid


@pytest.mark.parametrize("exactly_once", [False, True])
def test_a_subscriber_gives_up_what_it_has(exactly_once: bool) -> None:
    harness = ruled(MessageRule("all", "1=1"), exactly_once=exactly_once)
    subscriber = Subscriber(harness)
    harness.send("a", colour="red")
    harness.send("b")
    first = subscriber.received[0].ack_id
    assert give_up(harness, first) == ([None], [])
    assert give_up(harness, first) == ([], [first.encode()])
    (letter,) = letters(harness)
    assert (letter.data, letter.attributes["colour"]) == (b"a", "red")
    assert letter.attributes["sys.DeadLetterReason"] == "NotOurs"
    assert letter.attributes["sys.DeadLetterErrorDescription"] == "why"
    assert letter.attributes["CloudPubSubDeadLetterSourceDeliveryCount"] == "1"
    harness.advance(20)
    assert subscriber.data.count("a") == 1
    harness.restart()
    again = Subscriber(harness)
    harness.advance(1)
    assert again.data == ["b"], "what is given up stays so over a restart"


def test_an_id_counts_while_its_lease_lasts() -> None:
    harness = ruled(MessageRule("all", "1=1"))
    subscriber = Subscriber(harness)
    harness.send("a")
    old = subscriber.received[0].ack_id
    harness.advance(11)
    assert subscriber.data == ["a", "a"]
    assert give_up(harness, old) == ([], [old.encode()])
    with pytest.raises(BadAckId):
        give_up(harness, "bm9uZQ==")
    assert letters(harness) == []


def test_a_long_description_is_cut() -> None:
    harness = ruled(MessageRule("all", "1=1"))
    subscriber = Subscriber(harness)
    harness.send("a")
    assert give_up(harness, subscriber.received[0].ack_id, text="ü" * 800) == ([None], [])
    (letter,) = letters(harness)
    assert letter.attributes["sys.DeadLetterErrorDescription"] == "ü" * 512


def test_what_cannot_be_moved_comes_again() -> None:
    harness = ruled(MessageRule("all", "1=1"), dead_letter=DeadLetter("projects/p/topics/nowhere", 5))
    subscriber = Subscriber(harness)
    harness.send("a")
    (error,), invalid = give_up(harness, subscriber.received[0].ack_id)
    assert "nowhere" in str(error)
    assert not invalid
    harness.advance(2)
    assert subscriber.data == ["a", "a"]


def test_giving_up_needs_a_policy_and_a_grant() -> None:
    harness = ruled(MessageRule("all", "1=1"), dead_letter=None)
    subscriber = Subscriber(harness)
    harness.send("a")
    with pytest.raises(FailedPrecondition, match="no dead-letter policy"):
        give_up(harness, subscriber.received[0].ack_id)
    harness = ruled(MessageRule("all", "1=1"))
    subscriber = Subscriber(harness)
    harness.send("a")
    harness.subscribe.letter_refusal = lambda record: DEAD_LETTERS_REFUSED
    with pytest.raises(FailedPrecondition, match="own identity"):
        give_up(harness, subscriber.received[0].ack_id)
    assert list(subscriber.held.values()) == ["a"], "nothing was done"


def test_a_key_goes_on_behind_what_is_given_up() -> None:
    harness = ruled(MessageRule("all", "1=1"), ordered=True)
    subscriber = Subscriber(harness)
    for data in "abc":
        harness.send(data, key="k")
    give_up(harness, next(ack_id for ack_id, data in subscriber.held.items() if data == "a"))
    harness.advance(1)
    assert subscriber.data == ["a", "b", "c", "b", "c"]


# -- any mix -----------------------------------------------------------------------------------------------------------

ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.sampled_from(["0", "5", "50", "x", ""]), st.sampled_from(["", "k"])),
        st.tuples(st.just("ack"), st.integers(0, 9), st.none()),
        st.tuples(st.just("nack"), st.integers(0, 9), st.none()),
        st.tuples(st.just("give up"), st.integers(0, 9), st.none()),
        st.tuples(st.just("wait"), st.sampled_from([0.5, 3.0, 15.0]), st.none()),
        st.tuples(st.just("restart"), st.none(), st.none()),
    ),
    min_size=1,
    max_size=30,
)


@settings(max_examples=60, deadline=None)
@given(steps=ACTIONS, ordered=st.booleans(), exactly_once=st.booleans(), seed=st.integers(0, 99))
def test_each_message_ends_acknowledged_or_as_a_letter_with_the_right_reason(
    steps: list[tuple[str, Any, Any]], ordered: bool, exactly_once: bool, seed: int
) -> None:
    """By a filter of its own: `0` fails, `5` is selected, others are not."""
    harness = ruled(FAILS, ordered=ordered, exactly_once=exactly_once, seed=seed)
    subscriber = Subscriber(harness)
    sent: dict[str, str] = {}
    acked: set[str] = set()
    given: set[str] = set()
    for kind, value, key in steps:
        held = sorted(subscriber.held.items(), key=lambda one: one[1])
        if kind == "send":
            name = f"m{len(sent)}"
            sent[name] = value
            harness.send(name, key=key, **({"n": value} if value else {}))
        elif kind == "wait":
            harness.advance(value)
        elif kind == "restart":
            harness.restart()
            subscriber = Subscriber(harness)
            harness.quiesce()
        elif held:
            ack_id, data = held[value % len(held)]
            if kind == "ack":
                subscriber.ack(ack_id)
                acked.add(data)
            elif kind == "nack":
                subscriber.nack(ack_id)
            else:
                outcomes, _ = give_up(harness, ack_id)
                given |= {data} if outcomes == [None] else set()
                subscriber.held.pop(ack_id, None)
    for _ in range(12):
        harness.advance(15)
        for ack_id, data in list(subscriber.held.items()):
            subscriber.ack(ack_id)
            acked.add(data)
    reasons: dict[str, set[str]] = {}
    for letter in letters(harness):
        reasons.setdefault(letter.data.decode(), set()).add(letter.attributes["sys.DeadLetterReason"])
    for name, value in sent.items():
        found = reasons.get(name, set())
        if value == "0":
            assert found == {"FilterEvaluationException"}
            assert name not in subscriber.data
        elif value == "5":
            assert name in acked or found, "neither acknowledged nor a letter"
            assert found <= {"NotOurs", "MaxDeliveryCountExceeded"}
        else:
            assert not found
            assert name not in subscriber.data
    assert given <= reasons.keys()

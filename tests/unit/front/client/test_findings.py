"""Findings: each cause from the facts that mean it, and its place among others."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncpoint.front.client.findings import DELETED_TOPIC, HISTORY, Facts, counted_in, findings, history_asked
from syncpoint.wire.protobuf.messages import admin, pubsub

pytestmark = pytest.mark.shows("why")

TOPIC = "projects/p/topics/t"
SEEN = [{"start_offset": 3, "next_offset": 9}]


def facts(config=None, rules=1, send_suspended=False, unknown=(), **state):
    config = pubsub.Subscription(**({"topic": TOPIC, "ack_deadline_seconds": 10} | (config or {})))
    state = admin.SubscriptionState(**({"subscribers": 1, "sources": SEEN} | state))
    return Facts("s", config, state, rules, send_suspended, list(unknown))


def causes(*args, **kwargs):
    return [one.cause for one in findings(facts(*args, **kwargs))]


def test_each_cause():
    push = {"push_config": {"push_endpoint": "https://a.example"}}
    bucket = {"cloud_storage_config": {"bucket": "b"}}
    to = {"forward_to": "projects/p/topics/u"}
    for expected, found in (
        ("EMPTY", causes()),
        ("DETACHED", causes({"detached": True}, backlog_messages=4)),
        ("RECEIVE_SUSPENDED", causes(options={"receive_suspended": True})),
        ("AT_HOME_ELSEWHERE", causes(options={"receive_suspended": True}, home="us", backlog_messages=3)),
        ("PUSH_FAILING", causes(push, backlog_messages=9, push={"last_error": "refused", "last_status": 500})),
        ("PUSH_FAILING", causes(push, push={"last_error": "refused", "last_status": 500})),
        ("NOT_TAKEN", causes(push)),
        ("EMPTY", causes(push, push={"acknowledged": 4}, subscribers=0)),
        ("EXPORT_FAILING", causes(bucket, export={"state": "NOT_FOUND", "advice": "Create it."})),
        ("NOT_TAKEN", causes(bucket)),
        ("DELIVERY_REFUSED", causes(options=to, delivery_advice="Grant it.", forward={"last_error": "Grant it."})),
        ("FORWARD_WAITS", causes(options=to, forward={"last_error": "suspended"})),
        ("FORWARDED", causes(options=to, forward={"forwarded": 3})),
        ("NOT_TAKEN", causes(options=to)),
        ("TRANSFORMS_REFUSED", causes(transform_advice="Grant it.")),
        ("DEAD_LETTERS_REFUSED", causes(dead_letter_advice="Grant it.")),
        ("NOBODY_CONNECTED", causes(subscribers=0, backlog_messages=3)),
        ("OUT_WITH_SUBSCRIBERS", causes(backlog_messages=3, outstanding_messages=3)),
        ("BEHIND", causes(backlog_messages=3)),
        ("TOPIC_DELETED", causes({"topic": DELETED_TOPIC})),
        ("NO_RULES", causes(rules=0)),
        ("SEND_SUSPENDED", causes(send_suspended=True)),
        ("NOTHING_PUBLISHED", causes(sources=[{"start_offset": 3, "next_offset": 3}])),
        ("FILTERED", causes({"filter": "attributes:x"})),
        ("NOT_KNOWN", causes(unknown=["ListRules: no"])),
    ):
        assert found == [expected]


def test_who_does_not_answer_is_named():
    one = findings(
        Facts("s", pubsub.Subscription(topic=TOPIC), admin.SubscriptionState(unknown=["forwarder-2 is away"]))
    )
    assert one[0].cause == "NO_ANSWER"
    assert "forwarder-2 is away" in one[0].text
    assert "NOTHING_PUBLISHED" not in [each.cause for each in one]


def test_what_may_hold_them_depends_on_the_subscription():
    held = findings(facts({"enable_message_ordering": True, "retry_policy": {}}, backlog_messages=5))[0].text
    assert "ordering keys" in held
    assert "retry policy" in held
    plain = findings(facts(backlog_messages=5, oldest_unacked_age={"seconds": 7}))[0].text
    assert plain == "5 messages waiting, the oldest 7 s old: the subscribers' flow control may be full."


def test_a_subscription_whose_home_is_elsewhere_is_not_to_be_resumed():
    (one,) = findings(facts(options={"receive_suspended": True}, home="us"))
    assert "us" in one.text
    assert "--resume" not in one.advice
    assert one.advice.endswith("syncpoint federation home s SITE")


def test_poison_messages_are_named_with_what_helps():
    def found(config=None, nacked=190.0):
        state = facts(config, backlog_messages=4, outstanding_messages=1)
        state.redelivered, state.nacked = 200.0, nacked
        return findings(state)

    plain = found()
    assert [one.cause for one in plain] == ["REDELIVERED", "OUT_WITH_SUBSCRIBERS"]  # not a word of flow control
    assert "200 redeliveries within 2 minutes, 190 of them nacked" in plain[0].text
    assert "--min-retry-delay" in plain[0].advice
    assert "--dead-letter-topic" in plain[0].advice
    cared = {"retry_policy": {}, "dead_letter_policy": {"dead_letter_topic": "projects/p/topics/failed"}}
    kept = found(cared, nacked=0.0)
    assert "ack deadline ran out" in kept[0].text
    assert "--min-retry-delay" not in kept[0].advice
    assert "--dead-letter-topic" not in kept[0].advice


def test_what_history_counted():
    asked = history_asked("projects/p/subscriptions/s", HISTORY["nacked"], 1_000)
    assert (asked.family, list(asked.labels)) == (HISTORY["nacked"], ["project=p", "subscription=s"])
    series = [admin.HistorySeries(values=[0.5, float("nan")]), admin.HistorySeries(values=[1.0])]
    assert counted_in(admin.QueryHistoryResponse(step={"seconds": 10}, series=series)) == 15.0


def test_what_is_out_comes_first_where_nothing_else_waits():
    nobody, out = "NOBODY_CONNECTED", "OUT_WITH_SUBSCRIBERS"
    assert causes(subscribers=0, backlog_messages=3, outstanding_messages=3) == [out, nobody]
    assert causes(subscribers=0, backlog_messages=3, outstanding_messages=2) == [nobody, out]


def test_a_pause_says_when_the_next_try_is():
    push = {"last_error": "refused", "last_status": 503, "pause": {"seconds": 2, "nanos": 500_000_000}}
    one = findings(facts({"push_config": {"push_endpoint": "https://a.example"}}, push=push))[0]
    assert "status 503" in one.text
    assert "Next attempt in 2.5 s." in one.text


@given(
    st.booleans(), st.booleans(), st.integers(0, 3), st.integers(0, 3), st.integers(0, 2), st.integers(0, 1),
    st.booleans(), st.booleans(),
)  # fmt: skip
def test_there_is_always_a_finding_and_all_is_well_stands_alone(
    detached, suspended, backlog, out, subscribers, rules, send, away
):
    state = {"backlog_messages": backlog, "outstanding_messages": out, "subscribers": subscribers}
    unknown = ["ListRules: no"] if away else []
    found = causes({"detached": detached}, rules, send, unknown, options={"receive_suspended": suspended}, **state)
    assert found
    assert len(found) == len(set(found))
    if {"EMPTY", "UNDER_WAY", "NOT_KNOWN", "DETACHED"} & set(found):
        assert len(found) == 1
    if "EMPTY" in found:
        assert not any([detached, suspended, backlog, out, send, away])
        assert subscribers
        assert rules
    if suspended and not detached:
        assert found[0] == "RECEIVE_SUSPENDED"

"""`why`: what the command asks and prints."""

import pytest

from syncpoint.base.model.errors import FailedPrecondition, PermissionDenied
from syncpoint.wire.protobuf.messages import admin, pubsub

pytestmark = pytest.mark.shows("why")

TOPIC, NAME = "projects/p/topics/orders", "projects/p/subscriptions/billing"


def answer(server, **state):
    server.answers |= {
        "Subscriber.GetSubscription": pubsub.Subscription(name=NAME, topic=TOPIC, ack_deadline_seconds=10),
        "Admin.GetSubscriptionState": admin.SubscriptionState(subscription=NAME, **state),
        "Admin.ListRules": admin.ListRulesResponse(rules=[{"name": "$Default"}]),
        "Admin.GetTopicOptions": admin.TopicOptions(topic=TOPIC),
        "Admin.QueryHistory": FailedPrecondition("nobody keeps history"),
    }


def test_findings_are_printed_in_order_with_advice(server, run, run_json):
    answer(server, backlog_messages=2, options={"receive_suspended": True})
    lines = run("why", "billing").stdout.splitlines()
    assert lines[0] == "1. RECEIVE_SUSPENDED: Receiving is suspended: no messages are delivered."
    assert lines[1] == "   syncpoint subscriptions update billing --resume"
    assert lines[2] == "2. NOBODY_CONNECTED: No subscriber connected; 2 messages not acknowledged."
    assert server.calls[0][1].subscription == NAME
    found = run_json("why", "billing")
    assert [one["cause"] for one in found["findings"]] == ["RECEIVE_SUSPENDED", "NOBODY_CONNECTED"]
    assert found["unknown"] == []


def test_what_may_not_be_asked_is_named(server, run, run_json):
    answer(server, subscribers=1, sources=[{"start_offset": 1, "next_offset": 4}])
    server.answers["Admin.GetTopicOptions"] = PermissionDenied("not yours")
    result = run("why", "billing")
    assert result.exit_code == 0
    assert result.stdout.startswith("1. NOT_KNOWN: ")
    assert "Unknown: GetTopicOptions: PERMISSION_DENIED: not yours" in result.stderr
    assert run_json("why", "billing")["unknown"] == ["GetTopicOptions: PERMISSION_DENIED: not yours"]


def test_history_reports_messages_that_come_again_and_again(server, run):
    answer(server, subscribers=1, backlog_messages=1, outstanding_messages=1)
    series = [admin.HistorySeries(values=[3.0, 2.0])]
    server.answers["Admin.QueryHistory"] = admin.QueryHistoryResponse(step={"seconds": 10}, series=series)
    assert run("why", "billing").stdout.startswith("1. REDELIVERED: Messages come again and again: 50 redeliveries")


def test_rules_and_options_of_a_deleted_topic_are_not_asked(server, run):
    answer(server, subscribers=1)
    server.answers["Subscriber.GetSubscription"] = pubsub.Subscription(name=NAME, topic="_deleted-topic_")
    assert run("why", "billing").stdout.startswith("1. TOPIC_DELETED: ")
    assert len(server.calls) == 2

"""Scheduled messages: what each command asks of the server, and what it prints."""

from datetime import UTC, datetime, timedelta

from syncpoint.wire.protobuf.messages import admin, pubsub

AT = "sys.ScheduledEnqueueTimeUtc"


def page(*ids, token=""):
    messages = [{"message_id": one, "enqueue_time": {"seconds": 1795230000}} for one in ids]
    return admin.ListScheduledMessagesResponse(messages=messages, next_page_token=token)


def test_pages_are_asked_for_until_there_are_enough(server, run, run_json):
    left = [page("1", "2", token="x"), page("3", token="y")]
    asked = []

    def answer(request):
        asked.append((request.topic, request.page_size, request.page_token))
        return left[len(asked) - 1]

    server.answers["Admin.ListScheduledMessages"] = answer
    result = run("scheduled", "list", "--topic", "orders", "--limit", "3")
    assert asked == [("projects/p/topics/orders", 3, ""), ("projects/p/topics/orders", 1, "x")]
    assert [line.split() for line in result.stdout.splitlines()[2:]] == [
        [one, "2026-11-21T03:00:00Z"] for one in ("1", "2", "3")
    ]
    assert "there are more; --limit is 3" in result.stderr
    server.answers["Admin.ListScheduledMessages"] = page("1")
    assert run_json("scheduled", "list", "--topic", "orders") == [
        {"messageId": "1", "enqueueTime": "2026-11-21T03:00:00Z"}
    ]


def test_one_is_shown_and_cancelled(server, run, run_json):
    server.answers["Admin.GetScheduledMessage"] = admin.ScheduledMessage(
        message_id="7", message={"data": b"x", "attributes": {"a": "b"}}, enqueue_time={"seconds": 1795230000}
    )
    server.answers["Admin.CancelScheduledMessage"] = admin.CancelScheduledMessageResponse()
    assert run("scheduled", "show", "7", "--topic", "orders").stdout.splitlines()[2].split() == [
        "x", "a=b", "2026-11-21T03:00:00Z",
    ]  # fmt: skip
    assert run_json("scheduled", "show", "7", "--topic", "orders")["messageId"] == "7"
    result = run("scheduled", "cancel", "7", "8", "--topic", "orders")
    assert result.stderr.splitlines() == ["Cancelled [7].", "Cancelled [8]."]
    assert [(one.topic, one.message_id) for _, one in server.calls[-2:]] == [
        ("projects/p/topics/orders", "7"), ("projects/p/topics/orders", "8"),
    ]  # fmt: skip


def test_a_message_is_published_at_a_time_or_in_a_while(server, run):
    server.answers["Publisher.Publish"] = pubsub.PublishResponse(message_ids=["1"])

    def attribute():
        return server.calls[-1][1].messages[0].attributes[AT]

    assert run("topics", "publish", "orders", "--message", "x", "--at", "2026-11-21T04:00:00+01:00").exit_code == 0
    assert attribute() == "2026-11-21T03:00:00Z"
    assert run("topics", "publish", "orders", "--message", "x", "--in", "5m").exit_code == 0
    late = datetime.fromisoformat(attribute()) - datetime.now(UTC)
    assert timedelta(minutes=4.5) < late <= timedelta(minutes=5)
    both = run("topics", "publish", "orders", "--message", "x", "--in", "5m", "--at", "now")
    assert both.exit_code == 2
    assert "not both" in both.stderr

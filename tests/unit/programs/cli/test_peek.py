"""Peek: what each command asks of the server, and what it prints."""

from syncpoint.wire.protobuf.messages import admin


def answers(*texts, token="", unknown=()):
    messages = [{"message": {"data": text.encode(), "message_id": "7"}, "offset": n} for n, text in enumerate(texts)]
    return admin.PeekResponse(messages=messages, next_page_token=token, unknown=unknown)


def test_pages_are_asked_for_until_there_are_enough(server, run, run_json):
    left = [answers("a", token="x"), answers(token="y"), answers("b", "c", token="z", unknown=["chain 1: away"])]
    asked = []

    def answer(request):
        asked.append((request.page_size, request.page_token))
        return left[len(asked) - 1]

    server.answers["Admin.PeekTopic"] = answer
    words = [
        "--offset",
        "5",
        "--message-filter",
        "attributes:a",
        "--ordering-key",
        "k",
        "--since",
        "2026-11-21T03:00:00Z",
    ]
    result = run("topics", "peek", "orders", "--limit", "3", *words)
    assert asked == [(3, ""), (2, "x"), (2, "y")]
    _, request = server.calls[-1]
    assert (request.topic, request.start_offset, request.filter, request.ordering_key) == (
        "projects/p/topics/orders", 5, "attributes:a", "k",
    )  # fmt: skip
    assert request.start_time.seconds == 1795230000
    assert [line.split()[0] for line in result.stdout.splitlines()[2:]] == ["a", "b", "c"]
    assert "there may be more; --limit is 3" in result.stderr
    assert "Not shown: chain 1: away" in result.stderr


def test_a_subscription_is_shown(server, run, run_json):
    server.answers["Admin.PeekSubscription"] = answers("a")
    (shown,) = run_json("subscriptions", "peek", "billing")
    assert shown == {"message": {"data": "YQ==", "messageId": "7"}}
    assert "OFFSET" in run("subscriptions", "peek", "billing").stdout
    assert {request.subscription for _, request in server.calls} == {"projects/p/subscriptions/billing"}

"""Rules, times, queues and letters on one server, on `serve --workers` and on a cluster."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from syncpoint.base.model.errors import FailedPrecondition, InvalidArgument, NotFound
from syncpoint.front.client.client import Client
from syncpoint.front.client.findings import findings
from syncpoint.programs.cli.why import facts_of
from syncpoint.testing.rigs.official import attributes_of, bodies, eventually, refused
from syncpoint.wire.protobuf.messages import admin
from tests.integration.conftest import Space

pytestmark = pytest.mark.shows("queues", "forwarding", "one-house")


@pytest.fixture
def space(house: str) -> Iterator[Space]:
    made = Space(house)
    yield made
    made.close()


def test_what_outlives_its_time_is_dropped_or_becomes_a_letter(space: Space) -> None:
    topic, letters = space.topic("brief"), space.topic("brief-dead")
    policy = {"dead_letter_topic": letters, "max_delivery_attempts": 100}
    dropping = space.subscription(topic, "dropping")
    burying = space.subscription(topic, "burying", dead_letter_policy=policy)
    dead = space.subscription(letters, "brief-letters")
    options = {"subscription": burying, "ttl": {"seconds": 3600}, "dead_letter_expired": True}
    mask = {"paths": ["ttl", "dead_letter_expired"]}
    assert space.asked("UpdateSubscriptionOptions", options=options, update_mask=mask).ttl.seconds == 3600
    options = {"subscription": dropping, "dead_letter_expired": True}
    with pytest.raises(FailedPrecondition, match="no dead-letter policy"):
        space.asked("UpdateSubscriptionOptions", options=options, update_mask={"paths": ["dead_letter_expired"]})
    with refused("INVALID_ARGUMENT", "sys.TimeToLive"):
        space.publish(topic, b"x", attributes={"sys.TimeToLive": "soon"})
    space.publish(topic, b"short", attributes={"sys.TimeToLive": "0:0:0.001"})
    space.publish(topic, b"long", attributes={"sys.TimeToLive": "31.0:0"})
    for subscription in (dropping, burying):

        def only_long(subscription: str = subscription) -> bool:
            got = space.peek(subscription)
            space.nack(subscription, *got)
            return bodies(got) == [b"long"]

        eventually(only_long)
    (letter,) = space.pull(dead, 1, ack=True)
    assert letter.message.data == b"short"
    assert attributes_of(letter)["sys.DeadLetterReason"] == "TTLExpiredException"


def test_scheduled_messages_are_published_once_at_their_time_or_cancelled(space: Space) -> None:
    topic, subscription = space.pair()

    def ahead(seconds: float) -> dict[str, str]:
        return {"sys.ScheduledEnqueueTimeUtc": (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat()}

    with refused("INVALID_ARGUMENT", "sys.ScheduledEnqueueTimeUtc"):
        space.publish(topic, b"x", attributes={"sys.ScheduledEnqueueTimeUtc": "tomorrow"})
    when = ahead(2)
    (soon,) = space.publish(topic, b"soon", attributes=when)
    late = [space.publish(topic, b"late", attributes=ahead(3600 + number))[0] for number in range(5)]
    (gone,) = space.publish(topic, b"gone", attributes=ahead(3))
    space.publish(topic, b"now")
    assert bodies(space.pull(subscription, 1, ack=True)) == [b"now"]
    listed = space.asked("ListScheduledMessages", topic=topic, page_size=3)
    rest = space.asked("ListScheduledMessages", topic=topic, page_size=100, page_token=listed.next_page_token)
    assert [one.message_id for one in [*listed.messages, *rest.messages]] == [soon, gone, *late]
    shown = space.asked("GetScheduledMessage", topic=topic, message_id=late[0])
    assert shown.message.data == b"late"
    space.asked("CancelScheduledMessage", topic=topic, message_id=gone)
    for method in ("CancelScheduledMessage", "GetScheduledMessage"):
        with pytest.raises(NotFound, match="has no scheduled message with this id"):
            space.asked(method, topic=topic, message_id=gone)
    (message,) = space.pull(subscription, 1, ack=True)
    assert message.message.data == b"soon"
    assert attributes_of(message)["sys.ScheduledMessageId"] == soon != message.message.message_id
    assert message.message.publish_time >= datetime.fromisoformat(when["sys.ScheduledEnqueueTimeUtc"])
    with pytest.raises(NotFound):
        space.asked("CancelScheduledMessage", topic=topic, message_id=soon)
    assert not space.peek(subscription)


def test_scheduled_messages_of_a_key_are_published_in_the_order_of_their_times(space: Space) -> None:
    topic = space.topic("keyed")
    subscription = space.subscription(topic, "keyed-sub", enable_message_ordering=True)
    begun = datetime.now(UTC)
    named: dict[bytes, str] = {}
    for key in ("a", "b", "c"):
        for seconds in (5, 3, 4):
            due = {"sys.ScheduledEnqueueTimeUtc": (begun + timedelta(seconds=seconds)).isoformat()}
            body = f"{key}{seconds}".encode()
            (named[body],) = space.publish(topic, body, key=key, attributes=due)
    (never,) = space.publish(
        topic, b"never", key="a",
        attributes={"sys.ScheduledEnqueueTimeUtc": (begun + timedelta(seconds=600)).isoformat()},
    )  # fmt: skip
    space.publish(topic, b"a0", key="a")
    space.asked("CancelScheduledMessage", topic=topic, message_id=never)
    got = space.pull(subscription, 10, within=40, ack=True)
    for key in ("a", "b", "c"):
        wanted = [f"{key}{seconds}".encode() for seconds in (3, 4, 5)]
        assert [one for one in bodies(got) if one.startswith(key.encode())] == [b"a0"] * (key == "a") + wanted
    for one in got:
        assert attributes_of(one).get("sys.ScheduledMessageId") == named.get(one.message.data)
    assert not space.asked("ListScheduledMessages", topic=topic, page_size=10).messages
    assert not space.peek(subscription)


def test_what_rules_fail_at_and_subscribers_give_up_is_a_letter_and_goes_back(space: Space) -> None:
    topic, letters = space.topic("odd"), space.topic("odd-dead")
    policy = {"dead_letter_topic": letters, "max_delivery_attempts": 5}
    subscription = space.subscription(topic, "odd-sub", dead_letter_policy=policy, ack_deadline_seconds=600)
    dead = space.subscription(letters, "odd-letters")
    options = {"subscription": subscription, "dead_letter_rule_errors": True}
    space.asked("UpdateSubscriptionOptions", options=options, update_mask={"paths": ["dead_letter_rule_errors"]})
    space.asked("CreateRule", subscription=subscription, rule={"name": "share", "sql": "100 / n > 10"})
    space.asked("DeleteRule", subscription=subscription, name="$Default")
    for n in ("0", "5", "50", "2"):
        space.publish(topic, f"n{n}".encode(), attributes={"n": n})
    got = space.pull(subscription, 2)
    given, kept = sorted(got, key=lambda one: one.message.data)[::-1]
    fields = {"subscription": subscription, "ack_ids": [given.ack_id], "reason": "Odd"}
    answer = space.asked("DeadLetterMessages", **fields)
    assert (answer.moved, len(answer.failures)) == (1, 0)
    space.ack(subscription, kept)
    again = space.asked("DeadLetterMessages", **fields)
    assert (again.moved, again.failures[0].invalid) == (0, True)
    selection = {"subscription": dead, "source": subscription}

    def reasons() -> dict[str, str]:
        found = space.asked("ListDeadLetters", selection=selection).letters
        return {one.message.data.decode(): one.reason for one in found}

    wanted = {"n0": "FilterEvaluationException", given.message.data.decode(): "Odd"}
    eventually(lambda: reasons() == wanted)
    space.asked("DeleteRule", subscription=subscription, name="share")
    space.asked("CreateRule", subscription=subscription, rule={"name": "all", "sql": "1=1"})
    redriven = 0
    letters_now = space.asked("ListDeadLetters", selection=selection).letters
    data = {one.message.message_id: b"corrected" for one in letters_now if one.message.data == b"n0"}
    for dry_run in (True, False):
        answer = space.asked("RedriveDeadLetters", selection=selection, dry_run=dry_run, data=data)
        assert not answer.failures
        assert len(answer.letters) == 2
        redriven += answer.redriven
    assert redriven == 2
    back = space.pull(subscription, 2, ack=True)
    assert {one.message.data for one in back} == {b"corrected", given.message.data}
    assert {attributes_of(one)["sys.RedriveCount"] for one in back} == {"1"}
    ids = {one.message.data: attributes_of(one)["sys.RedrivenFrom"] for one in back}
    assert ids[given.message.data] == given.message.message_id
    assert not reasons()


def test_letters_go_back_and_on_whatever_their_ids_say_and_a_seek_brings_back(space: Space) -> None:
    """To a topic that drops duplicates, again after a seek of the letters, and over a forward; circles of these end."""
    topic, dead, central = space.topic("ids"), space.topic("ids-dead"), space.topic("ids-central")
    window = {"topic": topic, "duplicate_detection_window": {"seconds": 600}}
    space.asked("UpdateTopicOptions", options=window, update_mask={"paths": ["duplicate_detection_window"]})
    policy = {"dead_letter_topic": dead, "max_delivery_attempts": 5}
    work = space.subscription(topic, "ids-work", dead_letter_policy=policy, ack_deadline_seconds=600)
    letters = space.subscription(dead, "ids-letters", retain_acked_messages=True)
    (first,) = space.publish(topic, b"pay", attributes={"sys.MessageId": "order-7"})
    (got,) = space.pull(work)
    assert space.asked("DeadLetterMessages", subscription=work, ack_ids=[got.ack_id], reason="Odd").moved == 1
    selection = {"subscription": letters, "source": work}
    for _ in range(2):
        eventually(lambda: len(space.asked("ListDeadLetters", selection=selection).letters) == 1)
        answer = space.asked("RedriveDeadLetters", selection=selection)
        assert (answer.redriven, list(answer.failures)) == (1, [])
        assert bodies(space.pull(work, ack=True)) == [b"pay"], "what is said to be redriven comes"
        assert not space.asked("ListDeadLetters", selection=selection).letters
        space.api.seek({"subscription": letters, "time": datetime(2020, 1, 1, tzinfo=UTC)})
    assert space.publish(topic, b"pay", attributes={"sys.MessageId": "order-7"}) == [first], "as before"

    there = {"dead_letter_topic": central, "max_delivery_attempts": 5}
    onwards = space.subscription(dead, "ids-onwards", dead_letter_policy=there)
    reader = space.subscription(central, "ids-reader")
    back = space.subscription(central, "ids-back", dead_letter_policy=policy)
    rule = {"name": "tidy", "sql": "1=1", "action": "SET [SYS.forwardhops] = '0'"}
    with pytest.raises(InvalidArgument, match="written by the server"):
        space.asked("CreateRule", subscription=onwards, rule=rule)
    for subscription, to in ((onwards, central), (back, dead)):
        options = {"subscription": subscription, "forward_to": to}
        space.asked("UpdateSubscriptionOptions", options=options, update_mask={"paths": ["forward_to"]})
    space.publish(dead, b"round")
    came = space.pull(reader, 12, within=60, ack=True)
    assert set(bodies(came)) == {b"round"}
    counts = Counter(attributes_of(one).get("sys.DeadLetterCount", "0") for one in came)
    assert counts == {"0": 2, "1": 3, "2": 2, "3": 3, "4": 2}, "a letter begins anew, four times"

    def says() -> str:
        return str(space.asked("GetSubscriptionState", subscription=onwards).forward.last_error)

    eventually(lambda: "MaxTransferHopCountExceeded" in says() and "already dead-lettered 4 times" in says())
    assert not space.pull_once(reader, wait=3.0)


def test_letters_come_with_nobody_there(space: Space) -> None:
    topic, letters = space.topic("lone"), space.topic("lone-dead")
    policy = {"dead_letter_topic": letters, "max_delivery_attempts": 5}
    subscription = space.subscription(topic, "lone-sub", dead_letter_policy=policy)
    dead = space.subscription(letters, "lone-letters")
    options = {"subscription": subscription, "dead_letter_expired": True, "dead_letter_rule_errors": True}
    mask = {"paths": ["dead_letter_expired", "dead_letter_rule_errors"]}
    space.asked("UpdateSubscriptionOptions", options=options, update_mask=mask)
    space.asked("CreateRule", subscription=subscription, rule={"name": "share", "sql": "100 / n > 10"})
    space.asked("DeleteRule", subscription=subscription, name="$Default")
    space.publish(topic, b"brief", attributes={"n": "5", "sys.TimeToLive": "0:0:1"})
    space.publish(topic, b"fails", attributes={"n": "0"})
    space.publish(topic, b"stays", attributes={"n": "5"})
    got = space.pull(dead, 2, within=40, ack=True)
    reasons = {one.message.data: attributes_of(one)["sys.DeadLetterReason"] for one in got}
    assert reasons == {b"brief": "TTLExpiredException", b"fails": "FilterEvaluationException"}
    assert bodies(space.pull(subscription, ack=True)) == [b"stays"]


def test_a_preview_of_a_seek_counts_what_the_seek_then_brings_back(space: Space) -> None:
    topic, subscription = space.pair(retain_acked_messages=True)
    every = [b"%d" % number for number in range(6)]
    for body in every:
        space.publish(topic, body)
    snapshot = space.path("snapshots", "before")
    space.api.create_snapshot({"name": snapshot, "subscription": subscription})
    space.pull(subscription, 6, ack=True)
    space.publish(topic, b"new")

    def preview(**target: Any) -> tuple[int, int, int]:
        found = space.asked("PreviewSeek", subscription=subscription, **target)
        assert not found.unknown
        return found.backlog_messages, found.returning_messages, found.acknowledged_messages

    def backlog() -> int:
        return int(space.asked("GetSubscriptionState", subscription=subscription, ranges_max=1).backlog_messages)

    eventually(lambda: preview(snapshot=snapshot) == (1, 6, 0), what="all six come back")
    assert preview(time={"seconds": 1}) == (1, 6, 0)
    assert preview(time={"seconds": 4_000_000_000}) == (1, 0, 1)
    assert backlog() == 1, "nothing was moved"
    space.api.seek({"subscription": subscription, "snapshot": snapshot})
    assert backlog() == 7
    assert sorted(bodies(space.pull(subscription, 7, ack=True))) == [*every, b"new"]


def test_rules_say_which_messages_come_and_what_their_copies_say(space: Space) -> None:
    topic, subscription = space.pair()
    space.publish(topic, b"before", attributes={"n": "1"})
    rules: list[dict[str, Any]] = [
        {"name": "big", "sql": "n > 10"},
        {"name": "odd", "sql": "n % 2 = 1"},
        {"name": "fresh", "sql": "replicated IS NULL", "action": "SET replicated = 1; SET next = n + 1"},
        {"name": "by", "correlation": {"properties": {"sys.Label": "x"}}, "action": "SET sys.Label = 'y'"},
    ]
    for rule in rules:
        space.asked("CreateRule", subscription=subscription, rule=rule)
    space.asked("DeleteRule", subscription=subscription, name="$Default")
    names = [one.name for one in space.asked("ListRules", subscription=subscription).rules]
    assert names == ["big", "by", "fresh", "odd"]
    with pytest.raises(InvalidArgument, match="ends too early"):
        space.asked("UpdateRule", subscription=subscription, rule={"name": "big", "sql": "n >"})
    space.publish(topic, b"twelve", attributes={"n": "12", "replicated": "1"})
    space.publish(topic, b"three", attributes={"n": "3"})
    space.publish(topic, b"two", attributes={"n": "2", "sys.Subject": "x", "replicated": "1"})
    found: list[Any] = []

    def all_came() -> bool:
        found.extend(space.pull(subscription, ack=True))
        return len(found) >= 5

    eventually(all_came)
    held = {(one.message.data, attributes_of(one).get("RuleName", "")): attributes_of(one) for one in found}
    plain = {(b"before", ""), (b"twelve", ""), (b"three", "")}
    assert set(held) == plain | {(b"three", "fresh"), (b"two", "by")}
    assert len(found) == len(held)
    assert held[b"three", "fresh"] == {"n": "3", "replicated": "1", "next": "4", "RuleName": "fresh"}
    assert held[b"two", "by"]["sys.Subject"] == "y"
    message = {"attributes": {"n": "4"}}
    trial = space.asked("TestRule", subscription=subscription, message=message, explain=True)
    assert [dict(one.attributes) for one in trial.copies] == [
        {"n": "4", "replicated": "1", "next": "5", "RuleName": "fresh"}
    ]


def test_a_queue_has_one_subscription_and_is_suspended_in_either_direction(space: Space) -> None:
    queue, received = space.path("topics", "jobs"), space.path("subscriptions", "jobs")
    space.asked("CreateQueue", topic={"name": queue})
    space.publish(queue, b"first")
    with refused("FAILED_PRECONDITION", "is a queue"):
        space.subscription(queue, "second")
    with refused("FAILED_PRECONDITION", "is a queue"):
        space.api.delete_subscription({"subscription": received})
    (out,) = space.pull(received)

    def suspend(*, suspended: bool) -> None:
        mask = {"paths": ["send_suspended"]}
        space.asked("UpdateTopicOptions", options={"topic": queue, "send_suspended": suspended}, update_mask=mask)
        mask = {"paths": ["receive_suspended"]}
        options = {"subscription": received, "receive_suspended": suspended}
        space.asked("UpdateSubscriptionOptions", options=options, update_mask=mask)

    suspend(suspended=True)
    with refused("FAILED_PRECONDITION", "suspended for sending"):
        space.publish(queue, b"refused")
    space.nack(received, out)

    def is_held() -> bool:
        """It is free again, and handed to nobody; a process of a cluster may know that a moment later."""
        got = space.peek(received)
        if got:
            space.nack(received, *got)
        return not got

    eventually(is_held)
    stream = space.stream(received)
    shown = space.asked("GetQueue", topic=queue)
    assert shown.send_suspended
    assert shown.receive_suspended
    suspend(suspended=False)
    (again,) = stream.wait(1)
    assert again.message.data == b"first"
    stream.acknowledge(again)
    space.publish(queue, b"second")
    stream.wait(2)
    space.asked("DeleteQueue", topic=queue)
    with refused("NOT_FOUND"):
        space.publish(queue, b"nobody receives this")


def test_a_message_of_an_id_that_was_published_is_dropped(space: Space) -> None:
    topic, subscription = space.pair()
    space.publish(topic, b"before", attributes={"sys.MessageId": "0"})
    mask = {"paths": ["duplicate_detection_window"]}
    options = {"topic": topic, "duplicate_detection_window": {"seconds": 600}}
    space.asked("UpdateTopicOptions", options=options, update_mask=mask)
    assert space.asked("GetTopicOptions", topic=topic).duplicate_detection_window.seconds == 600
    for seconds in (19, 7 * 86_400 + 1):
        options = {"topic": topic, "duplicate_detection_window": {"seconds": seconds}}
        with pytest.raises(InvalidArgument, match="duplicate_detection_window"):
            space.asked("UpdateTopicOptions", options=options, update_mask=mask)
    with refused("INVALID_ARGUMENT", "sys.MessageId must not be longer"):
        space.publish(topic, b"", attributes={"sys.MessageId": "x" * 129})

    def publish(number: int) -> tuple[int, str]:
        one = number % 20
        attributes = {"sys.MessageId": f"id {one}"}
        return one, space.publish(topic, b"%d" % one, key=f"k{one % 3}" if one % 2 else "", attributes=attributes)[0]

    with ThreadPoolExecutor(8) as pool:
        found = set(pool.map(publish, range(100)))
    assert len(found) == 20, "each id has one message"
    assert len({message for _, message in found}) == 20
    space.publish(topic, b"plain", b"plain")
    got = Counter(one.message.data for one in space.pull(subscription, 23, ack=True))
    assert got == Counter({b"before": 1, b"plain": 2} | {b"%d" % number: 1 for number in range(20)})


def test_messages_are_shown_without_being_delivered(space: Space) -> None:
    topic, subscription = space.pair()
    for number in range(6):
        space.publish(topic, b"%d" % number, attributes={"odd": str(number % 2)})
    got = space.pull(subscription, 6)
    space.ack(subscription, *(one for one in got if one.message.data < b"2"))

    def shown(method: str, **fields: Any) -> list[bytes]:
        """All pages of it; which of the chains of a cluster has which messages is none of the caller's business."""
        found, token = [], ""
        while True:
            answer = space.asked(method, page_size=2, page_token=token, **fields)
            assert not answer.unknown
            found += [one.message.data for one in answer.messages]
            token = answer.next_page_token
            if not token:
                return sorted(found)

    rest = [b"2", b"3", b"4", b"5"]
    eventually(lambda: shown("PeekSubscription", subscription=subscription) == rest)
    assert shown("PeekSubscription", subscription=subscription, filter='attributes.odd = "1"') == [b"3", b"5"]
    assert set(shown("PeekTopic", topic=topic)) >= set(rest)
    one = next(one for one in got if one.message.data == b"4")
    assert b"4" in shown("PeekTopic", topic=topic, message_id=one.message.message_id)
    receipt = space.asked("GetReceipt", topic=topic, message_id=one.message.message_id)
    assert receipt.suffices
    assert sum(copy.state == admin.DiskCopy.HELD for copy in receipt.copies) >= receipt.needed
    space.ack(subscription, *(one for one in got if one.message.data >= b"2"))
    assert not shown("PeekSubscription", subscription=subscription)


def test_why_names_what_keeps_messages(space: Space) -> None:
    topic, subscription = space.pair()

    def causes() -> list[str]:
        with Client(space.endpoint) as client:
            facts = facts_of(client, subscription, subscription)
        assert not facts.unknown
        assert not facts.state.unknown
        return [one.cause for one in findings(facts)]

    assert causes() == ["NOBODY_CONNECTED", "NOTHING_PUBLISHED"]
    space.asked(
        "UpdateTopicOptions",
        options={"topic": topic, "send_suspended": True},
        update_mask={"paths": ["send_suspended"]},
    )
    eventually(lambda: "SEND_SUSPENDED" in causes())
    space.asked(
        "UpdateTopicOptions",
        options={"topic": topic, "send_suspended": False},
        update_mask={"paths": ["send_suspended"]},
    )
    eventually(lambda: "SEND_SUSPENDED" not in causes())
    space.publish(topic, b"one")
    eventually(lambda: causes() == ["NOBODY_CONNECTED"])
    got = space.pull(subscription)
    eventually(lambda: causes() == ["OUT_WITH_SUBSCRIBERS", "NOBODY_CONNECTED"])
    options = {"subscription": subscription, "receive_suspended": True}
    space.asked("UpdateSubscriptionOptions", options=options, update_mask={"paths": ["receive_suspended"]})
    assert causes()[0] == "RECEIVE_SUSPENDED"
    space.ack(subscription, *got)
    options["receive_suspended"] = False
    space.asked("UpdateSubscriptionOptions", options=options, update_mask={"paths": ["receive_suspended"]})
    eventually(lambda: causes() == ["NOBODY_CONNECTED"])
    space.asked("DeleteRule", subscription=subscription, name="$Default")
    assert causes() == ["NOBODY_CONNECTED", "NO_RULES"]


def test_rules_do_not_wear_out_by_changes(space: Space) -> None:
    topic, subscription = space.pair()
    space.publish(topic, b"first")
    for number in range(300):
        rule: dict[str, Any] = {"name": "$Default", "sql": f"n = {number} OR n = 'each'"}
        if number % 7 == 0:
            rule["action"] = "SET x = 1"
        space.asked("UpdateRule", subscription=subscription, rule=rule)
        if number % 100 == 50:
            space.publish(topic, f"of {number}".encode(), attributes={"n": str(number)})
    space.publish(topic, b"last", attributes={"n": "each"})
    found: set[bytes] = set()

    def all_came() -> bool:
        found.update(one.message.data for one in space.pull(subscription, ack=True))
        return len(found) >= 5

    eventually(all_came)
    assert found == {b"first", b"of 50", b"of 150", b"of 250", b"last"}

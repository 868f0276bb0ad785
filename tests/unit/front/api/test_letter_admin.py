"""Dead letters by hand: giving up, listing, publishing again; against a node's servicers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from syncpoint.base.model.errors import FailedPrecondition, InvalidArgument, NotFound, SyncpointError, Unavailable
from syncpoint.base.model.reserved import IDENTITY, derive_identity
from syncpoint.front.api import letter_admin
from syncpoint.testing.rigs.forwarder_harness import SUB, TOPIC
from syncpoint.testing.rigs.servicer_harness import ServicerHarness, simulated
from syncpoint.wire.protobuf.messages import admin, internal, pubsub

pytestmark = pytest.mark.shows("dead-letters")

DEAD, LETTERS = "projects/p/topics/dead", "projects/p/subscriptions/letters"
WORK = "projects/p/subscriptions/work"


async def prepare(harness: ServicerHarness, **fields: Any) -> None:
    await harness.call("CreateTopic", name=DEAD)
    await harness.call("CreateSubscription", name=LETTERS, topic=DEAD, **fields)
    policy = {"dead_letter_topic": DEAD, "max_delivery_attempts": 5}
    await harness.call("CreateSubscription", name=WORK, topic=TOPIC, dead_letter_policy=policy)


async def pulled(harness: ServicerHarness, name: str = WORK, count: int = 100) -> list[Any]:
    answer = await harness.call("Pull", subscription=name, max_messages=count, return_immediately=True)
    return list(answer.received_messages)


async def bury(harness: ServicerHarness, *data: str, reason: str = "Odd", key: str = "", **attributes: str) -> None:
    messages = [{"data": one.encode(), "attributes": attributes, "ordering_key": key} for one in data]
    await harness.call("Publish", topic=TOPIC, messages=messages)
    got = await pulled(harness)
    assert sorted(one.message.data.decode() for one in got) == sorted(data)
    answer = await harness.call(
        "DeadLetterMessages", subscription=WORK, ack_ids=[one.ack_id for one in got], reason=reason, description="d"
    )
    assert (answer.moved, list(answer.failures)) == (len(data), [])


async def listed(harness: ServicerHarness, **selection: Any) -> list[admin.DeadLetter]:
    found, token = [], ""
    while True:
        answer = await harness.call(
            "ListDeadLetters", selection={"subscription": LETTERS, **selection}, page_size=2, page_token=token
        )
        assert not answer.unknown
        found += answer.letters
        token = answer.next_page_token
        if not token:
            return found


def texts(found: list[admin.DeadLetter]) -> list[str]:
    return [one.message.data.decode() for one in found]


async def redriven(
    harness: ServicerHarness, *, size: int = 2, topic: str = "", dry_run: bool = False, **selection: Any
) -> int:
    count, token = 0, ""
    while True:
        answer = await harness.call(
            "RedriveDeadLetters", selection={"subscription": LETTERS, "source": WORK, **selection}, page_size=size,
            page_token=token, dry_run=dry_run, topic=topic,
        )  # fmt: skip
        assert not answer.failures
        assert answer.time.seconds
        assert not any(one.message.data for one in answer.letters)
        count += len(answer.letters) if dry_run else answer.redriven
        token = answer.next_page_token
        if not token:
            return count


@simulated()
async def test_letters_say_where_they_came_from_and_why(harness: ServicerHarness) -> None:
    await prepare(harness)
    await bury(harness, "a", colour="red")
    (one,) = await listed(harness)
    assert (one.source, one.reason, one.description, one.delivery_attempts, one.redrives) == (WORK, "Odd", "d", 1, 0)
    assert one.message.attributes["colour"] == "red"
    assert one.original_message_id not in ("", one.message.message_id)
    assert one.original_publish_time.seconds
    assert not await pulled(harness), "it is acknowledged"
    assert len(await pulled(harness, LETTERS)) == 1, "what was shown is there for who pulls"


@simulated()
async def test_what_two_sites_publish_again_of_a_letter_they_share_has_one_identity(harness: ServicerHarness) -> None:
    await prepare(harness)
    await bury(harness, "a", **{IDENTITY: "gw-a"})
    (letter,) = await listed(harness)
    assert await redriven(harness) == 1
    (got,) = await pulled(harness)
    wanted = dict(letter.message.attributes)
    derive_identity(wanted, "again", LETTERS, 0)
    assert got.message.attributes[IDENTITY] == wanted[IDENTITY] != letter.message.attributes[IDENTITY]
    assert wanted[IDENTITY].startswith("gw-of-")


@simulated()
async def test_letters_are_found_by_what_they_say(harness: ServicerHarness) -> None:
    await prepare(harness)
    await bury(harness, "a", "b", reason="Odd", n="1")
    await asyncio.sleep(5)
    await bury(harness, "c", reason="Even", n="2")
    await harness.call("Publish", topic=DEAD, messages=[{"data": b"plain"}])
    found = await listed(harness)
    assert texts(found) == ["a", "b", "c", "plain"]
    late = found[2].message.publish_time
    for selection, expected in (
        ({"reason": "Even"}, ["c"]),
        ({"source": WORK}, ["a", "b", "c"]),
        ({"source": SUB}, []),
        ({"filter": "n < 2"}, ["a", "b"]),
        ({"filter": "sys.DeadLetterReason LIKE 'E%' OR 1 / n = 7"}, ["c"]),
        ({"start_time": late}, ["c", "plain"]),
        ({"end_time": late}, ["a", "b"]),
        ({"message_ids": [found[1].message.message_id]}, ["b"]),
        ({"reason": "Odd", "filter": "n = 2"}, []),
    ):
        assert texts(await listed(harness, **selection)) == expected, selection


@simulated()
async def test_what_is_published_again_is_the_message_with_its_lineage(harness: ServicerHarness) -> None:
    await prepare(harness)
    await bury(harness, "a", "b", key="k", colour="red", n="1")
    await bury(harness, "c", reason="Even")
    first = (await listed(harness))[0].original_message_id
    assert await redriven(harness, dry_run=True) == 3
    assert len(await listed(harness)) == 3
    assert await redriven(harness, reason="Odd") == 2
    assert texts(await listed(harness)) == ["c"]
    got = await pulled(harness)
    assert [one.message.data for one in got] == [b"a", b"b"]
    assert got[0].message.ordering_key == "k"
    assert dict(got[0].message.attributes) == {
        "colour": "red", "n": "1", "sys.RedrivenFrom": first, "sys.RedriveCount": "1",
        "sys.ForwardedFrom": got[0].message.attributes["sys.ForwardedFrom"],
    }  # fmt: skip
    await harness.call("DeadLetterMessages", subscription=WORK, ack_ids=[got[0].ack_id], reason="Again")
    await harness.call("Acknowledge", subscription=WORK, ack_ids=[got[1].ack_id])
    (again,) = await listed(harness, reason="Again")
    assert again.redrives == 1
    assert again.original_message_id == got[0].message.message_id
    assert again.message.attributes["sys.RedrivenFrom"] == first
    assert await redriven(harness) == 2
    third = next(one.message for one in await pulled(harness) if one.message.data == b"a")
    assert (third.attributes["sys.RedrivenFrom"], third.attributes["sys.RedriveCount"]) == (first, "2")
    harness.restart()
    assert not await listed(harness), "what was redriven is acknowledged for good"


@simulated()
async def test_a_letter_whose_publish_fails_stays_and_so_do_those_behind_it_of_its_key(
    harness: ServicerHarness, *, monkeypatch: pytest.MonkeyPatch
) -> None:
    await prepare(harness)
    await bury(harness, "a", "b", "c", key="k")
    await bury(harness, "x", "y")
    monkeypatch.setattr(letter_admin, "REQUEST_BYTES", 1)
    right, kept = harness.admin.letters.publish, {"b"}

    async def failing(topic: str, request: bytes) -> bytes:
        if {one.data.decode() for one in pubsub.PublishRequest.FromString(request).messages} & kept:
            raise Unavailable("not now")
        return await right(topic, request)

    harness.admin.letters.publish = failing
    asked = {"selection": {"subscription": LETTERS, "source": WORK}}
    answer = await harness.call("RedriveDeadLetters", **asked)
    assert answer.redriven == 3
    assert list(answer.failures) == ["2 dead letters were not published: not now"]
    assert texts(await listed(harness)) == ["b", "c"]
    kept.clear()
    assert await redriven(harness) == 2, "it goes on where it was broken off"
    assert sorted(one.message.data for one in await pulled(harness)) == [b"a", b"b", b"c", b"x", b"y"]


@simulated()
async def test_one_that_is_refused_does_not_keep_those_before_it(harness: ServicerHarness) -> None:
    await prepare(harness)
    await bury(harness, "a", "b", "c")
    right = harness.admin.letters.publish

    async def refusing(topic: str, request: bytes) -> bytes:
        if any(one.data == b"b" for one in pubsub.PublishRequest.FromString(request).messages):
            raise InvalidArgument("messages", "too large")
        return await right(topic, request)

    harness.admin.letters.publish = refusing
    answer = await harness.call("RedriveDeadLetters", selection={"subscription": LETTERS, "source": WORK})
    assert (answer.redriven, len(answer.failures)) == (1, 1)
    assert texts(await listed(harness)) == ["b", "c"]


@simulated()
async def test_a_letter_is_not_acknowledged_before_it_is_published_and_says_so_when_it_cannot_be_after(
    harness: ServicerHarness,
) -> None:
    await prepare(harness)
    await bury(harness, "a")
    right, order = harness.admin.letters.publish, []

    async def publish(topic: str, request: bytes) -> bytes:
        assert len(await listed(harness)) == 1
        answer = await right(topic, request)
        order.append("published")
        return answer

    async def acknowledge_seen(chain: int, request: internal.AcknowledgeSeenRequest) -> None:
        order.append("when_over")
        raise Unavailable("away")

    harness.admin.letters.publish = publish
    acknowledged = harness.admin._asking.acknowledge_seen
    harness.admin._asking.acknowledge_seen = acknowledge_seen  # type: ignore[method-assign]
    answer = await harness.call("RedriveDeadLetters", selection={"subscription": LETTERS, "source": WORK})
    assert order == ["published", "when_over"]
    assert answer.redriven == 0
    assert "but not acknowledged" in answer.failures[0]
    harness.admin._asking.acknowledge_seen = acknowledged  # type: ignore[method-assign]
    assert await redriven(harness) == 1
    assert order == ["published", "when_over", "published"]
    assert [one.message.data for one in await pulled(harness)] == [b"a"], "it is known by the letter it was"


@simulated()
async def test_what_a_seek_brings_back_stays_and_is_published_again(harness: ServicerHarness) -> None:
    await prepare(harness, retain_acked_messages=True)
    await bury(harness, "a", "b")
    right = harness.admin.letters.publish

    async def publish(topic: str, request: bytes) -> bytes:
        answer = await right(topic, request)
        await harness.call("Seek", subscription=LETTERS, time={"seconds": 1})
        return answer

    harness.admin.letters.publish = publish
    answer = await harness.call("RedriveDeadLetters", selection={"subscription": LETTERS, "source": WORK})
    assert answer.redriven == 0
    assert "reset by a seek" in answer.failures[0]
    assert texts(await listed(harness)) == ["a", "b"], "the seek was answered: they are there"
    harness.admin.letters.publish = right
    for _ in range(2):
        assert await redriven(harness) == 2
        assert texts(await listed(harness)) == []
        await harness.call("Seek", subscription=LETTERS, time={"seconds": 1})
    assert sorted(one.message.data for one in await pulled(harness)) == [b"a"] * 3 + [b"b"] * 3


@simulated()
async def test_where_letters_may_go(harness: ServicerHarness) -> None:
    await prepare(harness)
    await harness.call("CreateTopic", name="projects/p/topics/other")
    await bury(harness, "a")
    assert await redriven(harness, topic="projects/p/topics/other") == 1
    cases: tuple[tuple[dict[str, Any], type[SyncpointError], str], ...] = (
        ({"selection": {"subscription": LETTERS}}, InvalidArgument, "topic must be set"),
        ({"selection": {"subscription": LETTERS, "source": WORK + "x"}}, InvalidArgument, "topic must be set"),
        ({"selection": {"subscription": LETTERS, "source": LETTERS}}, InvalidArgument, "whose messages"),
        ({"selection": {"subscription": LETTERS}, "topic": DEAD}, FailedPrecondition, "the dead letters are in"),
        ({"selection": {"subscription": LETTERS}, "topic": DEAD + "x"}, NotFound, "dead"),
        ({"selection": {"subscription": LETTERS + "x", "source": WORK}}, NotFound, "letters"),
        (
            {"selection": {"subscription": LETTERS, "source": WORK, "filter": "a ="}},
            InvalidArgument,
            "filter|expected|end",
        ),
        ({"selection": {"subscription": LETTERS, "source": WORK}, "page_token": "x"}, InvalidArgument, "page_token"),
    )
    for fields, kind, text in cases:
        with pytest.raises(kind, match=text):
            await harness.call("RedriveDeadLetters", **fields)
    options = {"topic": TOPIC, "send_suspended": True}
    await harness.call("UpdateTopicOptions", options=options, update_mask={"paths": ["send_suspended"]})
    with pytest.raises(FailedPrecondition, match="suspended"):
        await harness.call("RedriveDeadLetters", selection={"subscription": LETTERS, "source": WORK})


@simulated()
async def test_each_id_that_does_not_count_is_said(harness: ServicerHarness) -> None:
    await prepare(harness)
    await harness.call("Publish", topic=TOPIC, messages=[{"data": b"a"}, {"data": b"b"}])
    one, other = (one.ack_id for one in await pulled(harness))
    await harness.call("Acknowledge", subscription=WORK, ack_ids=[one])
    answer = await harness.call("DeadLetterMessages", subscription=WORK, ack_ids=[one, other, other], reason="Odd")
    assert answer.moved == 1
    (failure,) = answer.failures
    assert (failure.ack_id, failure.invalid) == (one, True)
    assert "No message is outstanding" in failure.reason
    assert texts(await listed(harness)) == ["b"]
    for fields in (
        {"ack_ids": [], "reason": "x"},
        {"ack_ids": [other]},
        {"ack_ids": [other], "reason": "x" * 1025},
        {"ack_ids": [other], "reason": "x", "description": "x" * 1025},
        {"ack_ids": ["bm9uZQ=="], "reason": "x"},
        {"ack_ids": ["x" * (600 << 10)], "reason": "x"},
    ):
        with pytest.raises(InvalidArgument):
            await harness.call("DeadLetterMessages", subscription=WORK, **fields)
    with pytest.raises(FailedPrecondition, match="no dead-letter policy"):
        await harness.call("DeadLetterMessages", subscription=SUB, ack_ids=[other], reason="x")


@simulated()
async def test_options_need_a_policy(harness: ServicerHarness) -> None:
    await prepare(harness)
    mask = {"paths": ["dead_letter_rule_errors"]}
    for name, error in ((WORK, None), (SUB, FailedPrecondition)):
        asked = {"options": {"subscription": name, "dead_letter_rule_errors": True}, "update_mask": mask}
        if error is None:
            assert (await harness.call("UpdateSubscriptionOptions", **asked)).dead_letter_rule_errors
        else:
            with pytest.raises(error, match="nothing that rules fail at"):
                await harness.call("UpdateSubscriptionOptions", **asked)


@simulated()
async def test_letters_are_changed_by_an_action_before_they_are_published(harness: ServicerHarness) -> None:
    await prepare(harness)
    await bury(harness, "a", "b", colour="red", n="1")
    await bury(harness, "c", colour="blue", n="0", key="k")
    asked = {"subscription": LETTERS, "source": WORK}
    action = "SET n = 6 / n; SET tag = newid(); REMOVE colour"
    dry = await harness.call("RedriveDeadLetters", selection=asked, dry_run=True, action=action)
    assert [dict(one.attributes).get("n") for one in dry.published] == ["6", "6", None], "the action fails at the last"
    assert not any(one.data for one in dry.published)
    assert len(await listed(harness)) == 3, "a dry run changes nothing"
    answer = await harness.call("RedriveDeadLetters", selection=asked, action=action)
    assert answer.redriven == 2
    (failure,) = answer.failures
    assert failure.endswith("were not published: 6 / 0 divides by zero")
    assert texts(await listed(harness)) == ["c"]
    got = {one.message.data: dict(one.message.attributes) for one in await pulled(harness)}
    assert {data: (one["n"], "colour" in one, one["sys.RedriveCount"]) for data, one in got.items()} == {
        b"a": ("6", False, "1"),
        b"b": ("6", False, "1"),
    }
    assert got[b"a"]["tag"] == dry.published[0].attributes["tag"], "the same letter comes to the same message"
    assert got[b"a"]["tag"] != got[b"b"]["tag"]


@simulated()
async def test_letters_are_published_with_other_data_with_their_lineage_and_once(harness: ServicerHarness) -> None:
    await prepare(harness)
    await bury(harness, "a", "b", "c", colour="red", key="k")
    first, *_ = found = await listed(harness)
    ids = {one.message.data.decode(): one.message.message_id for one in found}
    asked = {"selection": {"subscription": LETTERS, "source": WORK}, "data": {ids["b"]: b"better", "12": b"nobody"}}
    dry = await harness.call("RedriveDeadLetters", **asked, dry_run=True, action="SET n = 1")
    assert [(one.attributes["n"], one.data) for one in dry.published] == [("1", b"")] * 3
    requests, right = [], harness.admin.letters.publish

    async def publish(topic: str, request: bytes) -> bytes:
        requests.append([one.data for one in pubsub.PublishRequest.FromString(request).messages])
        return await right(topic, request)

    harness.admin.letters.publish = publish
    assert (await harness.call("RedriveDeadLetters", **asked)).redriven == 3
    assert requests == [[b"a"], [b"better"], [b"c"]], "what is new is checked, what was accepted before is not"
    got = [one.message for one in await pulled(harness)]
    assert [one.data for one in got] == [b"a", b"better", b"c"]
    assert [(one.attributes["colour"], one.attributes["sys.RedriveCount"]) for one in got] == [("red", "1")] * 3
    assert got[0].attributes["sys.RedrivenFrom"] == first.original_message_id
    assert not await listed(harness)


@simulated()
async def test_other_data_fits_the_schema_of_its_topic_or_its_letter_stays(harness: ServicerHarness) -> None:
    kind = {"type_" if hasattr(pubsub.Schema, "type_") else "type": pubsub.Schema.AVRO}
    schema = pubsub.Schema(name="projects/p/schemas/text", definition='"string"', **kind)
    await harness.call("CreateSchema", parent="projects/p", schema_id="text", schema=schema)
    await harness.call("CreateTopic", name=DEAD)
    await harness.call("CreateSubscription", name=LETTERS, topic=DEAD)
    strict = "projects/p/topics/strict"
    settings = {"schema": schema.name, "encoding": 1}
    await harness.call("CreateTopic", name=strict, schema_settings=settings)
    policy = {"dead_letter_topic": DEAD, "max_delivery_attempts": 5}
    await harness.call("CreateSubscription", name=WORK, topic=strict, dead_letter_policy=policy)
    await harness.call("Publish", topic=strict, messages=[{"data": b'"a"'}, {"data": b'"b"'}])
    ack_ids = [one.ack_id for one in await pulled(harness)]
    await harness.call("DeadLetterMessages", subscription=WORK, ack_ids=ack_ids, reason="Odd")
    ids = [one.message.message_id for one in await listed(harness)]
    asked = {"selection": {"subscription": LETTERS, "source": WORK}}
    answer = await harness.call("RedriveDeadLetters", **asked, data={ids[0]: b'"fits"', ids[1]: b"5"})
    assert answer.redriven == 1
    assert "failed schema validation" in answer.failures[0]
    (message,) = [one.message for one in await pulled(harness)]
    assert message.data == b'"fits"'
    assert message.attributes["googclient_schemaname"] == schema.name
    assert [one.message.message_id for one in await listed(harness)] == ids[1:]


@simulated()
async def test_an_action_without_meaning_is_refused(harness: ServicerHarness) -> None:
    await prepare(harness)
    with pytest.raises(InvalidArgument, match="action"):
        await harness.call("RedriveDeadLetters", selection={"subscription": LETTERS, "source": WORK}, action="SET n =")

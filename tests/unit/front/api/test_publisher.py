"""Publish through its servicer: what is refused and with which words, when it is answered, what bounds it."""

from __future__ import annotations

import asyncio

import pytest

from syncpoint.base.model.errors import Code, SyncpointError
from syncpoint.base.model.flow import FlowLimit
from syncpoint.testing.rigs.forwarder_harness import TOPIC
from syncpoint.testing.rigs.servicer_harness import ServicerHarness, simulated
from syncpoint.wire.protobuf.messages import pubsub

PATH = "/google.pubsub.v1.Publisher/Publish"
M = pubsub.PubsubMessage


@simulated()
async def test_messages_are_stored_and_ids_rise(harness: ServicerHarness) -> None:
    ids = await harness.put("a", "b") + await harness.put("c")
    assert len(set(ids)) == 3
    assert ids == sorted(ids, key=int)
    assert [one.message.message_id for one in await harness.pull()] == ids


REFUSED = [
    ([], "No messages to publish"),
    ([M()], "Some messages are empty"),
    ([M(data=b"x")] * 1001, "Too many messages to publish"),
    ([M(data=b"x"), M(data=b"x", attributes={"": "v"})], "messages[1].attributes"),
    ([M(data=b"x", attributes={"k" * 257: "v"})], "messages[0].attributes"),
    ([M(data=b"x", attributes={"k": "v" * 1025})], "messages[0].attributes"),
    ([M(data=b"x", attributes={"googkey": "v"})], "messages[0].attributes"),
    ([M(data=b"x", attributes={str(n): "v" for n in range(101)})], "messages[0].attributes"),
    ([M(data=b"x", ordering_key="k" * 1025)], "ordering_key"),
    ([M(data=b"x", ordering_key="a"), M(data=b"x", ordering_key="b")], "ordering key"),
    ([M(data=b"x" * 10_000_001)], "request_size is too large"),
]


@simulated()
async def test_bad_messages_are_refused_in_words_that_name_the_field(harness: ServicerHarness) -> None:
    for messages, words in REFUSED:
        with pytest.raises(SyncpointError) as caught:
            await harness.call("Publish", topic=TOPIC, messages=messages)
        assert caught.value.code is Code.INVALID_ARGUMENT
        assert words in caught.value.message, words
    assert harness.publish.commit.published == 0
    assert not harness.publish.admission.system.messages


@simulated()
async def test_topics_that_are_not_there_and_bytes_that_are_no_request(harness: ServicerHarness) -> None:
    for topic, code, words in (
        ("projects/p/topics/nowhere", Code.NOT_FOUND, "Resource not found (resource=projects/p/topics/nowhere)."),
        ("nonsense", Code.INVALID_ARGUMENT, "Invalid [topics] name: (name=nonsense)"),
        ("", Code.INVALID_ARGUMENT, "Invalid [topics] name: (name=)"),
    ):
        with pytest.raises(SyncpointError) as caught:
            await harness.put("x", topic=topic)
        assert caught.value.code is code
        assert caught.value.message.startswith(words)
    for garbage in (b"\xff\xff\xff", b"\x0a\x05ab", b"\x0a\x02\xff\xfe"):
        with pytest.raises(SyncpointError) as caught:
            await harness.channel.unary(PATH, garbage)
        assert caught.value.code is Code.INVALID_ARGUMENT
        assert "not a valid PublishRequest" in caught.value.message


@simulated()
async def test_the_answer_waits_for_the_disks(harness: ServicerHarness) -> None:
    harness.disks_rest = True
    publishing = asyncio.create_task(harness.put("x"))
    await asyncio.sleep(60)
    assert not publishing.done()
    assert not (await harness.pull(timeout=2.0))
    harness.persist()
    assert len(await publishing) == 1
    assert len(await harness.pull()) == 1


@simulated()
async def test_a_caller_who_gives_up_leaves_its_message_behind(harness: ServicerHarness) -> None:
    harness.disks_rest = True
    with pytest.raises(SyncpointError) as caught:
        await harness.call("Publish", topic=TOPIC, messages=[M(data=b"x")], timeout=1.0)
    assert caught.value.code is Code.DEADLINE_EXCEEDED
    harness.persist()
    assert [one.message.data for one in await harness.pull()] == [b"x"]
    assert not harness.publish.admission.system.messages


@simulated()
async def test_failed_disks_leave_the_outcome_unknown_and_then_refuse(harness: ServicerHarness) -> None:
    harness.disks_rest = True
    publishing = asyncio.create_task(harness.put("x"))
    await asyncio.sleep(0.01)
    harness.store.fail(OSError("no disk left"))
    for waiting, words in ((publishing, "outcome is unknown"), (harness.put("y"), "cannot be written")):
        with pytest.raises(SyncpointError, match=words) as caught:
            await waiting
        assert caught.value.code is Code.UNAVAILABLE


@pytest.mark.parametrize("scope", ["system", "topic", "topics"])
@pytest.mark.parametrize("limit", [FlowLimit(messages=2), FlowLimit(bytes=2500)])
@simulated()
async def test_each_limit_binds_alone_and_lets_go(harness: ServicerHarness, *, scope: str, limit: FlowLimit) -> None:
    harness.limits.system = harness.limits.topic = FlowLimit()
    if scope == "topics":
        harness.limits.topics[TOPIC] = limit
    else:
        setattr(harness.limits, scope, limit)
    harness.disks_rest = True
    waiting = [asyncio.create_task(harness.put("x" * 1000)) for _ in range(2)]
    await asyncio.sleep(0.01)
    with pytest.raises(SyncpointError) as caught:
        await harness.put("x" * 1000)
    assert caught.value.code is Code.RESOURCE_EXHAUSTED
    assert ("the system" if scope == "system" else TOPIC) in caught.value.message
    harness.persist()
    harness.disks_rest = False
    await asyncio.gather(*waiting)
    await harness.put("x" * 1000)
    assert len(await harness.pull()) == 3


@simulated()
async def test_an_exception_for_one_topic_spares_the_others(harness: ServicerHarness) -> None:
    await harness.call("CreateTopic", name="projects/p/topics/other")
    harness.limits.topics["projects/p/topics/other"] = FlowLimit(messages=1)
    harness.disks_rest = True
    waiting = [asyncio.create_task(harness.put("x", topic=t)) for t in (TOPIC, "projects/p/topics/other", TOPIC)]
    await asyncio.sleep(0.01)
    with pytest.raises(SyncpointError, match="topics/other"):
        await harness.put("x", topic="projects/p/topics/other")
    harness.persist()
    await asyncio.gather(*waiting)


@pytest.mark.parametrize("scope", ["system", "topic"])
@simulated()
async def test_a_request_larger_than_the_limit_comes_in_alone(harness: ServicerHarness, *, scope: str) -> None:
    """Otherwise a client would be asked to retry for ever."""
    setattr(harness.limits, scope, FlowLimit(bytes=100))
    assert await harness.put("x" * 1000)
    harness.disks_rest = True
    first = asyncio.create_task(harness.put("x" * 1000))
    await asyncio.sleep(0.01)
    with pytest.raises(SyncpointError):
        await harness.put("x")
    harness.persist()
    await first

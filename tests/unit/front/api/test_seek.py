"""Seek: what it is refused for, and where it moves a subscription."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from syncpoint.base.kernel.acks import encode_runs
from syncpoint.base.model.errors import Code, SyncpointError
from syncpoint.catalog.metadata.seek_stamps import SeekStamp, StampedGeneration, stamped
from syncpoint.testing.rigs.forwarder_harness import SUB, TOPIC
from syncpoint.testing.rigs.servicer_harness import ServicerHarness, simulated
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import pipeline

pytestmark = pytest.mark.shows("seek")

GONE = "projects/p/subscriptions/gone"
SNAP = "projects/p/snapshots/snap"


def seconds(harness: ServicerHarness) -> dict[str, int]:
    return {"seconds": harness.clock.time_ns() // 10**9}


@simulated()
async def test_seeks_are_refused_in_words(harness: ServicerHarness) -> None:
    await harness.call("CreateTopic", name="projects/p/topics/other")
    await harness.call("CreateSubscription", name="projects/p/subscriptions/other", topic="projects/p/topics/other")
    await harness.call("CreateSnapshot", name=SNAP, subscription="projects/p/subscriptions/other")
    await harness.call("CreateSubscription", name="projects/p/subscriptions/detached", topic=TOPIC)
    await harness.call("DetachSubscription", subscription="projects/p/subscriptions/detached")
    now = seconds(harness)
    for fields, code, words in (
        ({"subscription": GONE, "time": now}, Code.NOT_FOUND, f"Resource not found (resource={GONE})."),
        ({"subscription": "x", "time": now}, Code.INVALID_ARGUMENT, "Invalid [subscriptions] name: (name=x)"),
        ({"subscription": SUB}, Code.INVALID_ARGUMENT, "The seek target (a time or a snapshot) must be set."),
        (
            {"subscription": "projects/p/subscriptions/detached", "time": now},
            Code.FAILED_PRECONDITION,
            "The subscription is detached from its topic (resource=projects/p/subscriptions/detached). Create"
            " another one to receive messages.",
        ),
        (
            {"subscription": SUB, "snapshot": "projects/p/snapshots/none"},
            Code.NOT_FOUND,
            "Resource not found (resource=projects/p/snapshots/none).",
        ),
        ({"subscription": SUB, "snapshot": "none"}, Code.INVALID_ARGUMENT, "Invalid [snapshots] name: (name=none)"),
        (
            {"subscription": SUB, "snapshot": SNAP},
            Code.FAILED_PRECONDITION,
            "The snapshot is of another topic than the subscription. Seek to a snapshot of the same topic, or to a"
            " time.",
        ),
    ):
        for method in ("Seek", "PreviewSeek"):
            with pytest.raises(SyncpointError) as caught:
                await harness.call(method, **fields)
            assert caught.value.code is code
            assert caught.value.message.startswith(words)
    for seconds_, nanos in ((-(2**63), 0), (2**63 - 1, 0), (253_402_300_800, 0), (0, -1), (0, 2**31 - 1)):
        with pytest.raises(SyncpointError, match="Timestamp is not valid") as caught:
            await harness.call("Seek", subscription=SUB, time={"seconds": seconds_, "nanos": nanos})
        assert caught.value.code == Code.INVALID_ARGUMENT
    with pytest.raises(SyncpointError, match="not a valid SeekRequest"):
        await harness.channel.unary("/google.pubsub.v1.Subscriber/Seek", b"\xff")


@pytest.mark.parametrize("target", [{"seconds": 253_402_300_799}, {"seconds": 4_000_000_000, "nanos": 1}])
@simulated()
async def test_a_seek_far_ahead_purges(harness: ServicerHarness, *, target: dict[str, int]) -> None:
    await harness.put("a", "b")
    await harness.call("Seek", subscription=SUB, time=target)
    assert not await harness.pull(timeout=4.0)
    await harness.put("c")
    assert [one.message.data for one in await harness.pull()] == [b"c"]


@pytest.mark.parametrize("target", [{}, {"seconds": -62_135_596_800}])
@simulated(retain_acked=True)
async def test_a_seek_far_back_revives_what_is_kept(harness: ServicerHarness, *, target: dict[str, int]) -> None:
    await harness.put("a", "b")
    got = await harness.pull()
    await harness.call("Acknowledge", subscription=SUB, ack_ids=[one.ack_id for one in got])
    assert not await harness.pull(timeout=4.0)
    await harness.call("Seek", subscription=SUB, time=target)
    assert len(await harness.pull()) == 2


@simulated(retain_acked=True)
async def test_a_seek_is_exact_and_survives_a_crash(harness: ServicerHarness) -> None:
    await harness.put("a")
    await asyncio.sleep(2)
    middle = harness.clock.time_ns()
    await harness.put("b")
    target = {"seconds": middle // 10**9, "nanos": middle % 10**9}
    await harness.call("Seek", subscription=SUB, time=target)
    for _ in range(2):
        assert [one.message.data for one in await harness.pull()] == [b"b"]
        await harness.crash()


@simulated()
async def test_a_seek_to_a_snapshot_takes_its_sets_over(harness: ServicerHarness) -> None:
    await harness.put("a", "b")
    got = await harness.pull(1)
    await harness.call("Acknowledge", subscription=SUB, ack_ids=[got[0].ack_id])
    await harness.call("CreateSnapshot", name=SNAP, subscription=SUB)
    rest = await harness.pull()
    await harness.call("Acknowledge", subscription=SUB, ack_ids=[one.ack_id for one in rest])
    assert not await harness.pull(timeout=4.0)
    await harness.call("Seek", subscription=SUB, snapshot=SNAP)
    assert [one.message.data for one in await harness.pull()] == [b"b"]


@simulated()
async def test_the_answer_waits_for_the_disks_and_says_when_it_is_unknown(harness: ServicerHarness) -> None:
    await harness.put("a")
    harness.disks_rest = True
    seeking = asyncio.create_task(harness.call("Seek", subscription=SUB, time=seconds(harness)))
    await asyncio.sleep(60)
    assert not seeking.done()
    harness.persist()
    await seeking
    seeking = asyncio.create_task(harness.call("Seek", subscription=SUB, time=seconds(harness)))
    await asyncio.sleep(0.01)
    harness.store.fail(OSError("no disk left"))
    with pytest.raises(SyncpointError, match="The change may or may not be stored") as caught:
        await seeking
    assert caught.value.code is Code.UNAVAILABLE


@simulated()
async def test_what_is_on_its_way_at_a_seek_ahead_is_purged_too(harness: ServicerHarness) -> None:
    """A publish that came before the seek, though its answer did not: it lies before the seek's time."""
    harness.disks_rest = True
    publishing = asyncio.create_task(harness.put("a"))
    await asyncio.sleep(0.01)
    seeking = asyncio.create_task(
        harness.call("Seek", subscription=SUB, time={"seconds": seconds(harness)["seconds"] + 3600})
    )
    await asyncio.sleep(0.01)
    harness.persist()
    await asyncio.gather(publishing, seeking)
    assert not await harness.pull(timeout=4.0)


@simulated()
async def test_leases_from_before_a_seek_are_void(harness: ServicerHarness) -> None:
    await harness.put("a")
    (old,) = await harness.pull()
    await harness.call("Seek", subscription=SUB, time={})
    await harness.call("Acknowledge", subscription=SUB, ack_ids=[old.ack_id])  # of an older generation: changes nothing
    assert len(await harness.pull()) == 1


async def moved(harness: ServicerHarness, **target: Any) -> tuple[int, int, int]:
    """What a preview says, (waiting, returning, acknowledged), checked by what the seek then does to the backlog."""
    said = await harness.call("PreviewSeek", subscription=SUB, **target)
    assert not said.unknown
    found = (said.backlog_messages, said.returning_messages, said.acknowledged_messages)
    before = await harness.call("GetSubscriptionState", subscription=SUB)
    assert (before.backlog_messages, before.generation) == (found[0], before.generation)
    await harness.call("Seek", subscription=SUB, **target)
    after = await harness.call("GetSubscriptionState", subscription=SUB)
    assert after.generation == before.generation + 1
    assert after.backlog_messages == found[0] + found[1] - found[2]
    return found


async def take(harness: ServicerHarness, most: int) -> None:
    got = await harness.pull(most)
    await harness.call("Acknowledge", subscription=SUB, ack_ids=[one.ack_id for one in got])


@simulated(retain_acked=True)
async def test_a_preview_says_what_comes_back_and_what_does_not_wait_any_more(harness: ServicerHarness) -> None:
    await harness.put(*"abcd")
    await take(harness, 3)
    await harness.call("CreateSnapshot", name=SNAP, subscription=SUB)
    await asyncio.sleep(2)
    middle = {"seconds": harness.clock.time_ns() // 10**9 - 1}
    await harness.put("e", "f")
    assert await moved(harness, time=middle) == (3, 0, 1)
    await take(harness, 2)
    assert await moved(harness, snapshot=SNAP) == (0, 3, 0)
    assert await moved(harness, time={}) == (3, 3, 0)
    assert await moved(harness, time={"seconds": 4_000_000_000}) == (6, 0, 6)


@simulated()
async def test_a_preview_counts_nothing_where_nothing_is_kept(harness: ServicerHarness) -> None:
    await harness.put("a", "b")
    await take(harness, 1)
    assert await moved(harness, time={}) == (1, 0, 0)


@simulated(retain_acked=True)
async def test_a_preview_leaves_out_what_has_run_out(harness: ServicerHarness) -> None:
    options = {"subscription": SUB, "ttl": {"seconds": 60}}
    await harness.call("UpdateSubscriptionOptions", options=options, update_mask={"paths": ["ttl"]})
    await harness.put("a", "b")
    await take(harness, 1)
    await asyncio.sleep(100)
    await harness.put("c")
    await take(harness, 1)
    assert await moved(harness, time={}) == (0, 1, 0)


@simulated()
async def test_a_preview_counts_what_a_filter_leaves_out_as_a_backlog_does(harness: ServicerHarness) -> None:
    name = "projects/p/subscriptions/red"
    await harness.call("CreateSubscription", name=name, topic=TOPIC, filter='attributes.color = "red"')
    await harness.put("blue")
    ahead = {"seconds": 4_000_000_000}
    said = await harness.call("PreviewSeek", subscription=name, time=ahead)
    state = await harness.call("GetSubscriptionState", subscription=name)
    assert said.backlog_messages == said.acknowledged_messages == state.backlog_messages == 1


@simulated(retain_acked=True)
async def test_a_seek_of_another_site_is_followed_once_with_its_stamp(harness: ServicerHarness) -> None:
    path = methods.ACK_EXCHANGE.FollowSeek

    async def follow(generation: int, number: int, site: str, **fields: Any) -> int:
        stamp = pipeline.SeekStamp(number=number, site=site)
        request = pipeline.FollowSeekRequest(subscription=SUB, generation=generation, stamp=stamp, **fields)
        answer = await harness.channel.unary(path, request.SerializeToString())
        return int(pipeline.FollowSeekResponse.FromString(answer).generation)

    await harness.put("a")
    assert await follow(0, 4, "eu", time={"seconds": 253_402_300_799}) == 1
    record = harness.control.catalog.subscription(SUB)
    assert record is not None
    assert stamped(harness.control.catalog, record.incarnation) == StampedGeneration(1, SeekStamp(4, "eu"))
    assert not await harness.pull(timeout=4.0)
    with pytest.raises(SyncpointError, match="in generation 1 of its seeks, not 0") as caught:
        await follow(0, 5, "eu")
    assert caught.value.code is Code.ABORTED
    for number, site in ((0, "eu"), (5, "")):
        with pytest.raises(SyncpointError, match="stamp"):
            await follow(1, number, site)
    assert await follow(1, 5, "us") == 2  # without a time: everything that is retained
    assert len(await harness.pull()) == 1
    await harness.call("DeleteSubscription", subscription=SUB)
    await harness.call("CreateSubscription", name=SUB, topic=TOPIC)
    assert await follow(0, 1, "eu") == 1
    assert len(harness.control.catalog.settings_named("seeks/")) == 1  # that of the deleted one is gone


@simulated()
async def test_a_subscription_is_delivered_where_it_is_at_home(harness: ServicerHarness) -> None:
    path = methods.ACK_EXCHANGE.SetHome

    async def set_home(home: str, epoch: int, **fields: Any) -> None:
        request = pipeline.SetHomeRequest(**{"subscription": SUB, "site": "eu", "home": home, "epoch": epoch, **fields})
        await harness.channel.unary(path, request.SerializeToString())

    await harness.put("a")
    await set_home("us", 1)
    await set_home("us", 1)  # again: nothing changes
    assert not await harness.pull(timeout=4.0)
    with pytest.raises(SyncpointError, match="is at home at us since epoch 1") as caught:
        await set_home("eu", 1)
    assert caught.value.code is Code.FAILED_PRECONDITION
    options = {"subscription": SUB, "receive_suspended": False}
    with pytest.raises(SyncpointError, match="at home at us"):
        await harness.call("UpdateSubscriptionOptions", options=options, update_mask={"paths": ["receive_suspended"]})
    await set_home("eu", 2)
    assert [one.message.data for one in await harness.pull()] == [b"a"]
    for field, value in (("site", ""), ("home", "x" * 256), ("epoch", 0)):
        with pytest.raises(SyncpointError, match=field) as caught:
            await set_home(**{"home": "eu", "epoch": 3, field: value})
        assert caught.value.code is Code.INVALID_ARGUMENT


@simulated()
async def test_what_was_suspended_before_is_suspended_when_its_home_comes_back(harness: ServicerHarness) -> None:
    options = {"subscription": SUB, "receive_suspended": True}
    await harness.call("UpdateSubscriptionOptions", options=options, update_mask={"paths": ["receive_suspended"]})
    for epoch, home in enumerate(("us", "asia", "eu"), 1):
        request = pipeline.SetHomeRequest(subscription=SUB, site="eu", home=home, epoch=epoch)
        await harness.channel.unary(methods.ACK_EXCHANGE.SetHome, request.SerializeToString())
    await harness.put("a")
    assert not await harness.pull(timeout=4.0)


@simulated()
async def test_what_was_acknowledged_elsewhere_in_the_meantime_is_not_delivered(harness: ServicerHarness) -> None:
    """Messages that were read ahead before another site became the home are read again when this one is it again."""

    async def set_home(home: str, epoch: int) -> None:
        request = pipeline.SetHomeRequest(subscription=SUB, site="eu", home=home, epoch=epoch)
        await harness.channel.unary(methods.ACK_EXCHANGE.SetHome, request.SerializeToString())

    stream = await harness.stream(max_outstanding_messages=2)
    await harness.put(*"abcdef")
    first = await stream.messages(2)
    assert [one.message.data for one in first] == [b"a", b"b"]
    await set_home("us", 1)
    (source,) = harness.publish.sources.of_topic(1)
    record = harness.control.catalog.subscription(SUB)
    assert record is not None
    runs = encode_runs([(2, 3)])
    harness.publish.server.acknowledge(record.incarnation, 0, source.number, runs, lambda error: None, urgent=True)
    await set_home("eu", 2)
    await stream.send(ack_ids=[one.ack_id for one in first])
    assert [one.message.data for one in await stream.messages(1)] == [b"f"]
    assert await stream.silent()

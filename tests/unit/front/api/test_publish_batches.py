"""Publishes that come together by one connection: each is answered as it is alone, and stored in its order."""

from __future__ import annotations

import asyncio

from syncpoint.base.model.flow import FlowLimit
from syncpoint.testing.rigs.forwarder_harness import TOPIC
from syncpoint.testing.rigs.servicer_harness import ServicerHarness, simulated
from tests.kit.publishing_connection import PublishingConnection, publish_request

OTHER = "projects/p/topics/other"


def publish(*data: str, topic: str = TOPIC, **fields: str) -> bytes:
    return publish_request(*data, topic=topic, **fields)


async def warmed(harness: ServicerHarness) -> PublishingConnection:
    wire = PublishingConnection(harness.table)
    for _ in range(2):  # the header block is known after the first
        wire.send(publish("warm"))
    await asyncio.sleep(1)
    await harness.pull()
    return wire


@simulated()
async def test_publishes_that_come_together_are_one_entry(harness: ServicerHarness) -> None:
    wire = await warmed(harness)
    counts = harness.publish.admission.counts
    requests, entries = counts.all.requests, counts.batch.count
    sids = wire.send(publish("a"), publish("b", "c"), publish("d", key="k"), publish("e", key="l"))
    assert wire.answers(sids) == [None] * 4  # nothing is persisted yet
    await asyncio.sleep(1)
    answers = wire.answers(sids)
    assert [len(ids or ()) for ids in answers] == [1, 2, 1, 1]
    pulled = [one.message for one in await harness.pull()]
    assert [one.data for one in pulled] == [b"a", b"b", b"c", b"d", b"e"]
    assert [one.message_id for one in pulled] == [one for ids in answers for one in ids or ()]
    assert (counts.all.requests - requests, counts.batch.count - entries) == (4, 1)


@simulated()
async def test_what_is_refused_is_refused_alone(harness: ServicerHarness) -> None:
    await harness.call("CreateTopic", name=OTHER)
    wire = await warmed(harness)
    sids = wire.send(
        publish("a"),
        publish("b", topic="projects/p/topics/nowhere"),
        publish("c", googx="1"),
        publish("d"),
        publish("e", topic=OTHER),
        b"\xff",
        publish("f", **{"sys.TimeToLive": "0:5:0"}),
        publish("g"),
    )
    await asyncio.sleep(1)
    assert [ids is not None for ids in wire.answers(sids)] == [True, False, False, True, True, False, True, True]
    assert [one.message.data for one in await harness.pull()] == [b"a", b"d", b"f", b"g"]


@simulated()
async def test_a_full_server_refuses_each(harness: ServicerHarness) -> None:
    wire = await warmed(harness)
    harness.disks_rest = True
    harness.limits.topic = FlowLimit(1000, 300_000)
    first = wire.send(publish("x" * 100_000), publish("x" * 100_000))
    last = wire.send(*[publish("x" * 15_000) for _ in range(16)])
    harness.disks_rest = False
    harness.persist()
    await asyncio.sleep(1)
    assert all(wire.answers(first))
    taken = [ids is not None for ids in wire.answers(last)]
    assert taken == sorted(taken, reverse=True)  # as many as there is room for, in order
    assert True in taken
    assert False in taken


@simulated()
async def test_unknown_outcomes_reach_each_caller(harness: ServicerHarness) -> None:
    wire = await warmed(harness)
    harness.disks_rest = True
    sids = wire.send(publish("a"), publish("b"))
    await asyncio.sleep(0)
    harness.publish.commit.give_up(OSError("the disk is gone"))
    await asyncio.sleep(1)
    assert wire.answers(sids) == [None, None]
    assert not wire.conn.batched_calls
    assert not wire.conn.streams

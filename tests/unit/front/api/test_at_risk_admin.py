"""At risk: what a server on one disk says of its disk and of itself, message by message."""

from __future__ import annotations

import pytest

from syncpoint.base.model.errors import InvalidArgument
from syncpoint.testing.rigs.forwarder_harness import SUB, TOPIC
from syncpoint.testing.rigs.servicer_harness import ServicerHarness, simulated
from syncpoint.wire.protobuf.messages import admin, pubsub


async def published(harness: ServicerHarness, count: int = 3) -> list[str]:
    answer = await harness.call("Publish", topic=TOPIC, messages=[{"data": b"%d" % n} for n in range(count)])
    return list(answer.message_ids)


async def pulled(harness: ServicerHarness, count: int) -> pubsub.PullResponse:
    return await harness.call("Pull", subscription=SUB, max_messages=count)


@simulated()
async def test_what_somebody_needs_is_lost_with_the_only_disk(harness: ServicerHarness) -> None:
    await published(harness, 5)
    taken = await pulled(harness, 2)
    ids = [one.ack_id for one in taken.received_messages]
    await harness.call("Acknowledge", subscription=SUB, ack_ids=ids)
    found = await harness.call("GetAtRisk")
    disk, process = found.failures
    assert (disk.kind, process.kind) == (admin.Failure.DISK, admin.Failure.PROCESS)
    assert (disk.lost.messages, disk.unavailable.messages, disk.twice.messages) == (3, 0, 0)
    (topic,) = disk.topics
    assert topic.topic == TOPIC
    assert [(one.first_offset, one.last_offset) for one in topic.lost.ranges] == [(2, 4)]
    assert topic.lost.HasField("oldest_publish_time")
    assert not process.topics
    assert not found.unknown


@simulated()
async def test_what_is_lent_comes_again_if_the_process_dies(harness: ServicerHarness) -> None:
    await published(harness, 5)
    await pulled(harness, 2)
    found = await harness.call("GetAtRisk", processes=["server"])
    (failure,) = found.failures
    assert failure.twice.messages == 2
    assert [(one.first_offset, one.last_offset) for one in failure.topics[0].twice.ranges] == [(0, 1)]
    assert failure.topics[0].twice.ranges[0].subscription == SUB
    both = await harness.call("GetAtRisk", processes=["server"], disks=["memory"])
    assert (both.failures[0].lost.messages, both.failures[0].twice.messages) == (5, 0)
    assert both.failures[0].kind == admin.Failure.SEVERAL


@simulated()
async def test_a_name_that_there_is_not_is_refused(harness: ServicerHarness) -> None:
    with pytest.raises(InvalidArgument, match="Unknown disk /x; use memory"):
        await harness.call("GetAtRisk", disks=["/x"])
    with pytest.raises(InvalidArgument, match="zones: Unknown zone z; there are none here"):
        await harness.call("GetAtRisk", zones=["z"])
    with pytest.raises(InvalidArgument, match="ranges_max"):
        await harness.call("GetAtRisk", ranges_max=-1)

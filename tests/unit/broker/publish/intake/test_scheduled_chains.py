"""Scheduled messages in chains: adopted, sent again, void, registered, and given to the chains of their keys."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from syncpoint.base.model.errors import NotFound, Unavailable
from syncpoint.base.model.identity import parse_message_id
from syncpoint.broker.publish.facts.source import WAITING_TOPIC
from syncpoint.broker.publish.intake.envelope import PublishBatch, write_publish
from syncpoint.catalog.metadata.records import CatalogChange, Topic
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import internal, pubsub
from tests.kit.chain import TOPIC, TOPIC_NUMBER, ChainHarness, Process, simulated
from tests.kit.chain_subscriber import Subscriber

pytestmark = pytest.mark.shows("schedules")

AT = "sys.ScheduledEnqueueTimeUtc"


def text_of(harness: ChainHarness, seconds: float) -> str:
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=harness.clock.time_ns() // 1000)
    return (moment + timedelta(seconds=seconds)).isoformat()


async def schedule(
    process: Process, *messages: tuple[str, float | None], batch: int = 1, resent: bool = False, key: str = "",
    times: dict[str, str] | None = None, topic: str = TOPIC, epoch: int = 0,
) -> list[str]:  # fmt: skip
    """Publish (data, seconds ahead or None) in one batch; `times` keeps the texts, for who sends it again."""
    request = pubsub.PublishRequest(topic=topic)
    times = {} if times is None else times
    for data, ahead in messages:
        attributes = {} if ahead is None else {AT: times.setdefault(data, text_of(process.harness, ahead))}
        request.messages.add(data=data.encode(), attributes=attributes, ordering_key=key)
    envelope = write_publish(PublishBatch(1, epoch, bool(key), 7, batch, resent, request.SerializeToString()))
    answer = await process.channel.unary(methods.CHAINS.Publish, envelope, timeout=20.0)
    return list(pubsub.PublishResponse.FromString(answer).message_ids)


async def cancel(process: Process, name: str) -> Any:
    place = parse_message_id(name)
    request = internal.ScheduledCancelRequest(topic=TOPIC_NUMBER, source=place.source, offset=place.offset)
    answer = await process.channel.unary(methods.CHAINS.CancelScheduled, request.SerializeToString(), timeout=5.0)
    return internal.ScheduledCancelResponse.FromString(answer)


async def listed(process: Process) -> list[int]:
    request = internal.ScheduledListRequest(topic=TOPIC_NUMBER, messages_max=100).SerializeToString()
    answer = await process.channel.unary(methods.CHAINS.ListScheduled, request, timeout=5.0)
    (chain,) = internal.ScheduledListResponse.FromString(answer).chains
    return [one.offset for one in chain.messages]


@simulated
async def test_an_adopter_publishes_what_waits(harness: ChainHarness) -> None:
    first = await harness.subscribed()
    names = await schedule(first, ("a", 3.0), ("b", None), ("c", 8.0), ("d", 8.5))
    assert await listed(first) == [0, 1, 2]
    assert (await cancel(first, names[3])).cancelled
    await asyncio.sleep(4)
    await first.crash()
    second = harness.process("f2")
    await second.open()
    assert await listed(second) == [1]
    answer = await cancel(second, names[3])
    assert (answer.here, answer.cancelled) == (True, False)
    third = await harness.succeeded(second, "f3")
    subscriber = await Subscriber(third, 11).attached()
    await asyncio.sleep(8)
    assert await subscriber.read_all() == ["b", "a", "c"]
    assert await listed(third) == []
    assert not (await cancel(third, "1" * 13 + "9" * 8 + "0" * 12)).here


@simulated
async def test_a_batch_that_is_sent_again_keeps_its_ids(harness: ChainHarness) -> None:
    process = await harness.subscribed()
    times: dict[str, str] = {}
    messages = (("a", 5.0), ("b", None), ("c", 6.0))
    first = await schedule(process, *messages, times=times)
    again = await schedule(process, *messages, times=times, resent=True)
    assert again == first
    await process.crash()
    second = harness.process("f2")
    await second.open()
    assert await schedule(second, *messages, times=times, resent=True) == first
    subscriber = await Subscriber(second, 11).attached()
    await asyncio.sleep(8)
    assert sorted(await subscriber.read_all()) == ["a", "b", "c"]


@simulated
async def test_of_a_batch_the_part_that_was_lost_is_stored(harness: ChainHarness) -> None:
    """As where the log ended between its parts."""
    process = await harness.subscribed()
    times: dict[str, str] = {}
    (plain,) = await schedule(process, ("b", None), batch=4)
    both = await schedule(process, ("a", 2.0), ("b", None), ("c", 2.0), batch=4, times=times, resent=True)
    assert both[1] == plain
    (later,) = await schedule(process, ("x", 2.0), batch=5, times=times)
    both = await schedule(process, ("x", 2.0), ("y", None), batch=5, times=times, resent=True)
    assert both[0] == later
    subscriber = await Subscriber(process, 11).attached()
    await asyncio.sleep(4)
    assert sorted(await subscriber.read_all()) == ["a", "b", "c", "x", "y"]


@simulated
async def test_what_is_void_is_cancelled_and_counted(harness: ChainHarness) -> None:
    process = harness.process()
    chain = await process.open()
    await harness.subscribe()
    await schedule(process, ("a", 5.0), ("b", None), batch=1)
    await schedule(process, ("c", 5.0), batch=2)
    found = await process.void(1)
    assert (found.batches, found.messages, found.late) == (1, 2, 0)
    await asyncio.sleep(7)
    subscriber = await Subscriber(process, 11).attached()
    assert await subscriber.read_all() == ["c"]
    assert len(chain.forwarder.scheduled) == 0
    second = await harness.succeeded(process)
    again = await Subscriber(second, 12).attached()
    assert await again.read_all() == ["c"]


@simulated
async def test_what_is_void_and_was_published_is_acknowledged(harness: ChainHarness) -> None:
    process = harness.process()
    await process.open()
    await harness.subscribe()
    await schedule(process, ("a", 0.5), batch=1)
    await asyncio.sleep(2)
    found = await process.void(1)
    assert (found.batches, found.messages) == (1, 1)
    subscriber = await Subscriber(process, 11).attached()
    assert await subscriber.read_all() == []


@simulated
async def test_what_is_due_goes_to_the_chain_that_takes_its_key_then(harness: ChainHarness) -> None:
    harness.assign(1)
    first = await harness.subscribed()
    second = await harness.opened("f2", 2)
    names = await schedule(first, ("late", 4.0), ("soon", 3.0), key="k", epoch=1)
    await schedule(first, ("here", 1.0), key="k", batch=2, epoch=1)
    await asyncio.sleep(2)
    harness.assign(2)
    await asyncio.sleep(4)
    here = await Subscriber(first, 11).attached()
    assert await here.read_all() == ["here"]
    there = await Subscriber(second, 12).attached()
    assert await there.read_all() == ["soon", "late"]
    assert await listed(first) == []
    assert not (await cancel(first, names[0])).cancelled
    assert first.host.chains[1].status()["fired"] == 3


@pytest.mark.parametrize("adopted", [False, True])
@simulated
async def test_what_may_have_been_published_is_not_cancelled_nor_published_twice(
    harness: ChainHarness, *, adopted: bool
) -> None:
    harness.assign(2)
    second = await harness.opened("f2", 2)
    first = await harness.opened()
    await harness.subscribe()
    harness.assign(1)
    (name,) = await schedule(first, ("x", 1.0), key="k", epoch=2)
    await asyncio.sleep(0.5)
    harness.assign(2)
    first.losing_answers = True
    await asyncio.sleep(3)
    assert await listed(first) == [0]
    with pytest.raises(Unavailable, match="being published"):
        await cancel(first, name)
    if adopted:
        first = await harness.succeeded(first, "f3")
        first.losing_answers = True
        with pytest.raises(Unavailable, match="being published"):
            await cancel(first, name)
    first.losing_answers = False
    await asyncio.sleep(3)
    assert await listed(first) == []
    subscriber = await Subscriber(second, 12).attached()
    assert await subscriber.read_all() == ["x"]
    await first.crash()
    third = await harness.opened("f4")
    await asyncio.sleep(2)
    assert await listed(third) == []
    assert await subscriber.read_all() == ["x"]


@simulated
async def test_a_key_whose_chain_nobody_has_holds_nobody_else_up(harness: ChainHarness) -> None:
    harness.assign(1)
    first = await harness.subscribed()
    await schedule(first, ("b", 2.0), ("a", 1.0), key="k", epoch=1)
    await schedule(first, ("plain", 1.5), batch=2)
    harness.assign(2)
    subscriber = await Subscriber(first, 11).attached()
    await asyncio.sleep(5)
    assert await subscriber.read_all() == ["plain"]
    second = await harness.opened("f2", 2)
    await asyncio.sleep(3)
    other = await Subscriber(second, 12).attached()
    assert await other.read_all() == ["a", "b"]


@simulated
async def test_a_chain_stays_registered_for_what_waits_in_it(harness: ChainHarness) -> None:
    process = harness.process()
    chain = await process.open()
    await schedule(process, ("late", 600.0))
    await asyncio.sleep(300)
    assert (TOPIC_NUMBER, 1) in {(topic, number) for topic, number in registered(harness)}
    second = await harness.succeeded(process)
    await asyncio.sleep(200)
    await harness.subscribe()
    await asyncio.sleep(120)
    subscriber = await Subscriber(second, 11).attached()
    assert await subscriber.read_all() == ["late"]
    assert chain.number == 1


def registered(harness: ChainHarness) -> set[tuple[int, int]]:
    return {(topic, chain) for topic, chain in harness.registered}


@simulated
async def test_with_its_topic_goes_what_waits(harness: ChainHarness) -> None:
    process = harness.process()
    chain = await process.open()
    other = "projects/p/topics/other"
    harness.commit(CatalogChange.put(Topic(9, other)))
    await schedule(process, ("x", 5.0), topic=other)
    harness.commit(CatalogChange.delete(Topic(9, other)))
    await asyncio.sleep(1)
    assert len(chain.forwarder.scheduled) == 0
    second = await harness.succeeded(process)
    assert await listed(second) == []
    await asyncio.sleep(200)  # its waiting source is tidied away
    assert all(one.end == one.visible for one in chain.forwarder.sources.of_topic(WAITING_TOPIC))
    with pytest.raises(NotFound):
        await schedule(second, ("x", 5.0), topic=other)

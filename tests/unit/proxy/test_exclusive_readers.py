"""A reader that has a subscription of a cluster to itself: when it may, and what the catalog says of it meanwhile."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from syncpoint.metadata.contract import Put
from syncpoint.metadata.layout import OPEN
from syncpoint.metadata.reader_holds import ReaderHold, check_free, put_hold, written_hold
from syncpoint.metadata.records import Subscription
from syncpoint.model.errors import Aborted, Code, FailedPrecondition, Unavailable
from syncpoint.wire import methods
from syncpoint.wire.messages import pipeline
from tests.kit.errors import failing
from tests.kit.proxy import ProxyProcess, ProxyWorld, SubscribeProcess, in_world
from tests.unit.proxy.test_pipelines import PipelineProcess, source

READER = methods.LOG_READER
NAME = "projects/p/subscriptions/billing"


async def cluster(world: ProxyWorld) -> tuple[Any, Any]:
    chains = await world.start(PipelineProcess, "f1")
    world.chain(1, chains)
    world.store.txn([], [Put(OPEN.key(world.topic.incarnation, 1), b"{}")])
    chains.sources[1] = [source(10)]
    consuming = await world.start(SubscribeProcess, "s1")
    await world.start(ProxyProcess, "proxy")
    await asyncio.sleep(0.1)
    return chains, consuming


async def take(world: ProxyWorld, reader: str = "stream-1", **asked: Any) -> Any:
    request = pipeline.GetPositionsRequest(
        **{"subscription": NAME, "exclusive_reader": reader, "exclusive_seconds": 30, **asked}
    )
    return pipeline.Positions.FromString(await world.call(READER.GetPositions, request))


def record(world: ProxyWorld) -> Subscription:
    found = world.catalog.subscription(NAME)
    assert found is not None
    return found


def hold(world: ProxyWorld) -> ReaderHold | None:
    return written_hold(world.catalog, record(world).incarnation)


def write(world: ProxyWorld, one: ReaderHold) -> None:
    for change in world.catalog.assign(put_hold(world.catalog, record(world).incarnation, one, world.clock.time_ns())):
        world.catalog.apply(change)


@in_world()
async def test_a_reader_takes_a_subscription_keeps_it_and_gives_it_back(world: ProxyWorld) -> None:
    chains, consuming = await cluster(world)
    answer = await take(world, processed=[pipeline.SourceRange(source=10, end=3)])
    assert [one.source for one in answer.sources] == [10]
    assert [at.end for at in chains.asked[-1][1].processed] == [3]
    assert consuming.revisions == [world.catalog.revision - 1]  # the hold, and its confirmation
    with pytest.raises(FailedPrecondition, match="stream-1"):
        check_free(world.catalog, record(world), world.clock.time_ns())
    assert (await failing(take(world, "stream-2"))).code is Code.FAILED_PRECONDITION
    before = world.catalog.revision
    await take(world)
    assert world.catalog.revision == before  # not with every call
    await asyncio.sleep(20)
    await take(world)
    assert (world.catalog.revision, consuming.revisions[-1]) == (before + 1, before + 1)
    for reader in ("stream-2", "stream-1", "stream-1"):
        request = pipeline.ReleaseSubscriptionRequest(subscription=NAME, exclusive_reader=reader)
        await world.call(READER.ReleaseSubscription, request)
        assert (hold(world) is None) == (reader == "stream-1")
    await take(world, "stream-2")


@in_world()
async def test_nobody_is_kept_away_by_a_reader_that_is_refused(world: ProxyWorld) -> None:
    chains, consuming = await cluster(world)
    consuming.subscribers = 1
    assert "1 are attached" in str(await failing(take(world)))
    consuming.subscribers, consuming.outstanding = 0, 2
    assert "2 messages are outstanding" in str(await failing(take(world)))
    assert (hold(world), chains.asked) == (None, [])
    consuming.outstanding, consuming.refuse = 0, Unavailable("it hangs")
    assert (await failing(take(world))).code is Code.UNAVAILABLE
    consuming.refuse, chains.refuse = None, FailedPrecondition("a subscribe forwarder nobody knows of delivers it")
    assert (await failing(take(world))).code is Code.FAILED_PRECONDITION
    assert hold(world) is None


@in_world()
async def test_what_a_proxy_left_half_done_is_in_nobodys_way_for_long(world: ProxyWorld) -> None:
    await cluster(world)
    begun = ReaderHold("stream-1", world.clock.time_ns() + 10**10, confirmed=False)
    write(world, begun)
    with pytest.raises(Unavailable, match="about to read"):
        check_free(world.catalog, record(world), world.clock.time_ns())
    assert (await failing(take(world, "stream-2"))).code is Code.UNAVAILABLE
    await take(world)  # the same one again
    found = hold(world)
    assert found is not None
    assert found.confirmed
    write(world, begun)
    await asyncio.sleep(10)
    await take(world, "stream-2")


@in_world()
async def test_a_hold_that_another_call_has_written_anew_is_neither_confirmed_nor_taken_out(world: ProxyWorld) -> None:
    chains, _ = await cluster(world)
    chains.answer_s = 1.0
    asked = asyncio.ensure_future(failing(take(world)))
    await asyncio.sleep(0.5)
    other = ReaderHold("stream-2", world.clock.time_ns() + 10**11, confirmed=True)
    write(world, other)
    assert (await asked).code is Code.FAILED_PRECONDITION  # tried again, and refused
    assert hold(world) == other


@in_world()
async def test_a_chain_that_knows_of_no_hold_makes_the_proxy_look_again(world: ProxyWorld) -> None:
    chains, _ = await cluster(world)
    chains.refuse = Aborted("the catalog does not say so")
    assert (await failing(take(world))).code is Code.ABORTED
    asked = asyncio.ensure_future(take(world))
    await asyncio.sleep(0.01)
    chains.refuse = None
    await asked

"""A reader that has a subscription of a cluster to itself: when it may, and what the catalog says of it in the
meantime."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from syncpoint.base.model.errors import Aborted, Code, FailedPrecondition, Unavailable
from syncpoint.catalog.metadata.contract import Put
from syncpoint.catalog.metadata.layout import OPEN
from syncpoint.catalog.metadata.reader_holds import ReaderHold, check_free, put_hold, written_hold
from syncpoint.catalog.metadata.records import Subscription
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import pipeline
from tests.kit.errors import failing
from tests.kit.pipelines import PipelineProcess, source
from tests.kit.proxy import ProxyHarness, ProxyProcess, in_harness
from tests.kit.proxy_processes import SubscribeProcess

READER = methods.LOG_READER
NAME = "projects/p/subscriptions/billing"


async def cluster(harness: ProxyHarness) -> tuple[Any, Any]:
    chains = await harness.start(PipelineProcess, "f1")
    harness.chain(1, chains)
    harness.store.txn([], [Put(OPEN.key(harness.topic.incarnation, 1), b"{}")])
    chains.sources[1] = [source(10)]
    consuming = await harness.start(SubscribeProcess, "s1")
    await harness.start(ProxyProcess, "proxy")
    await asyncio.sleep(0.1)
    return chains, consuming


async def take(harness: ProxyHarness, reader: str = "stream-1", **asked: Any) -> Any:
    request = pipeline.GetPositionsRequest(
        **{"subscription": NAME, "exclusive_reader": reader, "exclusive_seconds": 30, **asked}
    )
    return pipeline.Positions.FromString(await harness.call(READER.GetPositions, request))


def record(harness: ProxyHarness) -> Subscription:
    found = harness.catalog.subscription(NAME)
    assert found is not None
    return found


def hold(harness: ProxyHarness) -> ReaderHold | None:
    return written_hold(harness.catalog, record(harness).incarnation)


def write(harness: ProxyHarness, one: ReaderHold) -> None:
    for change in harness.catalog.assign(
        put_hold(harness.catalog, record(harness).incarnation, one, harness.clock.time_ns())
    ):
        harness.catalog.apply(change)


@in_harness()
async def test_a_reader_takes_a_subscription_keeps_it_and_gives_it_back(harness: ProxyHarness) -> None:
    chains, consuming = await cluster(harness)
    answer = await take(harness, processed=[pipeline.SourceRange(source=10, end=3)])
    assert [one.source for one in answer.sources] == [10]
    assert [at.end for at in chains.asked[-1][1].processed] == [3]
    assert consuming.revisions == [harness.catalog.revision - 1]  # the hold, and its confirmation
    with pytest.raises(FailedPrecondition, match="stream-1"):
        check_free(harness.catalog, record(harness), harness.clock.time_ns())
    assert (await failing(take(harness, "stream-2"))).code is Code.FAILED_PRECONDITION
    before = harness.catalog.revision
    await take(harness)
    assert harness.catalog.revision == before  # not with every call
    await asyncio.sleep(20)
    await take(harness)
    assert (harness.catalog.revision, consuming.revisions[-1]) == (before + 1, before + 1)
    for reader in ("stream-2", "stream-1", "stream-1"):
        request = pipeline.ReleaseSubscriptionRequest(subscription=NAME, exclusive_reader=reader)
        await harness.call(READER.ReleaseSubscription, request)
        assert (hold(harness) is None) == (reader == "stream-1")
    await take(harness, "stream-2")


@in_harness()
async def test_nobody_is_kept_away_by_a_reader_that_is_refused(harness: ProxyHarness) -> None:
    chains, consuming = await cluster(harness)
    consuming.subscribers = 1
    assert "1 are attached" in str(await failing(take(harness)))
    consuming.subscribers, consuming.outstanding = 0, 2
    assert "2 messages are outstanding" in str(await failing(take(harness)))
    assert (hold(harness), chains.asked) == (None, [])
    consuming.outstanding, consuming.refuse = 0, Unavailable("it hangs")
    assert (await failing(take(harness))).code is Code.UNAVAILABLE
    consuming.refuse, chains.refuse = None, FailedPrecondition("a subscribe forwarder nobody knows of delivers it")
    assert (await failing(take(harness))).code is Code.FAILED_PRECONDITION
    assert hold(harness) is None


@in_harness()
async def test_what_a_proxy_left_half_done_is_in_nobodys_way_for_long(harness: ProxyHarness) -> None:
    await cluster(harness)
    begun = ReaderHold("stream-1", harness.clock.time_ns() + 10**10, confirmed=False)
    write(harness, begun)
    with pytest.raises(Unavailable, match="about to become the exclusive reader"):
        check_free(harness.catalog, record(harness), harness.clock.time_ns())
    assert (await failing(take(harness, "stream-2"))).code is Code.UNAVAILABLE
    await take(harness)  # the same one again
    found = hold(harness)
    assert found is not None
    assert found.confirmed
    write(harness, begun)
    await asyncio.sleep(10)
    await take(harness, "stream-2")


@in_harness()
async def test_a_hold_that_another_call_has_written_anew_is_neither_confirmed_nor_taken_out(
    harness: ProxyHarness,
) -> None:
    chains, _ = await cluster(harness)
    chains.answer_s = 1.0
    asked = asyncio.ensure_future(failing(take(harness)))
    await asyncio.sleep(0.5)
    other = ReaderHold("stream-2", harness.clock.time_ns() + 10**11, confirmed=True)
    write(harness, other)
    assert (await asked).code is Code.FAILED_PRECONDITION  # tried again, and refused
    assert hold(harness) == other


@in_harness()
async def test_a_chain_that_knows_of_no_hold_makes_the_proxy_look_again(harness: ProxyHarness) -> None:
    chains, _ = await cluster(harness)
    chains.refuse = Aborted("the catalog does not say so")
    assert (await failing(take(harness))).code is Code.ABORTED
    asked = asyncio.ensure_future(take(harness))
    await asyncio.sleep(0.01)
    chains.refuse = None
    await asked

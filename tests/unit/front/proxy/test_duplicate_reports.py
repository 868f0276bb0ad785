"""Batches that two chains may have stored: the one that has not confirmed them is notified so, and all are counted."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from syncpoint.base.model.errors import Code, SyncpointError, Unavailable, Unimplemented
from syncpoint.front.proxy.duplicate_reports import GIVE_UP_S
from tests.kit.proxy import ProxyHarness, in_harness, run

pytestmark = pytest.mark.shows("resends")


def numbers(proxy: Any) -> dict[str, int]:
    return {key[7:]: value for key, value in proxy.status().items() if key.startswith("resent_")}


@in_harness()
async def test_the_adopter_of_a_chain_is_notified_what_another_chain_has_confirmed(harness: ProxyHarness) -> None:
    proxy, one, two = await harness.cluster([1])
    one.before_answer = lambda batch: one.crash()
    assert len(await harness.publish(b"x", b"y")) == 2  # nobody waits for what comes now
    await asyncio.sleep(3)
    assert (harness.voided, numbers(proxy)["pending"]) == ([], 1)
    one.lease_ends()
    harness.chain(1, two, epoch=2)
    await asyncio.sleep(1)
    assert harness.voided == [(1, 1)]
    assert numbers(proxy) == {"duplicates": 2, "duplicates_late": 1, "unknown": 0, "pending": 0}
    assert harness.found(2) == [b"x", b"y"]


@in_harness()
async def test_a_hung_owner_is_notified_when_it_goes_on(harness: ProxyHarness) -> None:
    proxy, one, _two = await harness.cluster([1])
    one.process.hang()
    assert await harness.publish(b"x")
    await asyncio.sleep(5)
    assert numbers(proxy)["pending"] == 1
    one.process.go_on()
    await asyncio.sleep(2)
    assert harness.voided[0] == (1, 1)
    assert numbers(proxy)["pending"] == 0


@in_harness()
async def test_a_chain_that_confirms_in_the_end_is_not_reported(harness: ProxyHarness) -> None:
    """Unknown at 1, unknown at 2, confirmed by 1: the copy in 2 is the second one."""
    proxy, one, two = await harness.cluster([1])
    one.refusals = [Unavailable("who knows")]
    two.refusals = [Unavailable("who knows")]
    assert await harness.publish(b"x")
    await asyncio.sleep(1)
    assert harness.voided == [(2, 1)]
    assert harness.found(1) == [b"x"]
    assert numbers(proxy) == {"duplicates": 0, "duplicates_late": 0, "unknown": 0, "pending": 0}


@in_harness()
async def test_nothing_is_void_that_nobody_has_confirmed(harness: ProxyHarness) -> None:
    proxy, one, two = await harness.cluster([1])
    for owner in (one, two):
        owner.refusals = [Unavailable("who knows")] * 1000
    with pytest.raises(SyncpointError) as caught:
        await harness.publish(b"x", timeout=3.0)
    assert caught.value.code is Code.DEADLINE_EXCEEDED
    await asyncio.sleep(2)
    assert harness.voided == []
    assert numbers(proxy)["pending"] == 0


@in_harness()
async def test_who_cannot_be_notified_is_counted(harness: ProxyHarness) -> None:
    proxy, one, _two = await harness.cluster([1])
    one.refusals = [Unavailable("who knows")]
    one.refuse_voids = Unimplemented("an older version")
    assert await harness.publish(b"x")
    await asyncio.sleep(1)
    assert numbers(proxy)["unknown"] == 1
    one.refusals = [Unavailable("who knows")]
    one.refuse_voids = Unavailable("not now")
    harness.assign([1], epoch=2)
    assert await harness.publish(b"y")
    await asyncio.sleep(GIVE_UP_S - 5)
    assert numbers(proxy)["pending"] == 1
    await asyncio.sleep(10)
    assert (numbers(proxy)["unknown"], numbers(proxy)["pending"]) == (2, 0)


@in_harness()
async def test_stopping_counts_what_was_not_reported(harness: ProxyHarness) -> None:
    proxy, one, _two = await harness.cluster([1])
    one.before_answer = lambda batch: one.crash()
    assert await harness.publish(b"x")
    process = harness.processes["proxy"]
    await process.process.start(process.stop())
    assert (numbers(proxy)["unknown"], numbers(proxy)["pending"]) == (1, 0)


@pytest.mark.parametrize("seed", range(15))
def test_every_second_copy_is_found_and_no_only_one_is_void(seed: int) -> None:
    """Owners crash and hang under publishes; then everything that is stored twice was said to be void in one place."""

    async def work(harness: ProxyHarness) -> None:
        proxy, *owners = await harness.cluster([1], 3)
        harness.assign([1, 2, 3])
        answers: dict[bytes, list[str]] = {}

        async def one(number: int) -> None:
            await asyncio.sleep(harness.random.randrange(0, 8000) / 1000)
            body = b"%d" % number
            answers[body] = await harness.publish(body)

        publishing = [asyncio.ensure_future(one(number)) for number in range(150)]
        await asyncio.sleep(1)
        victim = owners[seed % 3]
        if seed % 2:
            victim.process.hang()
        else:
            victim.before_answer = lambda batch: victim.crash()
        await asyncio.sleep(4)
        adopter = owners[(seed + 1) % 3]
        victim.lease_ends()
        harness.chain(seed % 3 + 1, adopter, epoch=2)
        await asyncio.gather(*publishing)
        await asyncio.sleep(5)
        # What was confirmed, by the ids the client has; and what else is stored.
        confirmed = {ids[0] for ids in answers.values()}
        doubles = {
            (chain, batch)
            for chain, stored in harness.stored.items()
            for (_, batch), (_, ids) in stored.items()
            if ids[0] not in confirmed
        }
        reported = set(harness.voided)
        assert doubles <= reported
        only = {
            (chain, batch)
            for chain, stored in harness.stored.items()
            for (_, batch), (_, ids) in stored.items()
            if ids[0] in confirmed
        }
        assert not reported & only
        assert len(only) == 150
        assert numbers(proxy)["duplicates"] == len(doubles)
        assert numbers(proxy)["pending"] == 0

    run(work, seed)

"""Batches of a key: many underway, none overtakes one that failed."""

from __future__ import annotations

import asyncio
import random

import pytest

from syncpoint.broker.publish.intake.key_order import PublishOrder
from syncpoint.testing.rigs.plain_tests import on_loop


def test_batches_leave_as_they_come() -> None:
    order = PublishOrder()
    places = [order.enter(1, b"k") for _ in range(3)]
    for place in places:
        assert place.may_go
        place.leave()
    for place in places:
        order.release(1, b"k", place)
    assert len(order) == 0


def test_a_failed_batch_waits_for_those_before_it_and_holds_those_behind_it() -> None:
    order = PublishOrder()
    first, second, third = (order.enter(1, b"k") for _ in range(3))
    first.leave()
    second.leave()
    second.failed = True
    assert [one.may_go for one in (first, second, third)] == [True, False, False]
    assert order.enter(1, b"other").may_go
    order.release(1, b"k", first)
    assert [one.may_go for one in (second, third)] == [True, False]
    order.release(1, b"k", second)
    assert third.may_go


@pytest.mark.parametrize("seed", range(30))
def test_what_was_not_underway_when_one_failed_comes_after_it(seed: int) -> None:
    chance = random.Random(seed)

    async def work() -> None:
        order = PublishOrder()
        log: list[tuple[str, int]] = []

        async def batch(number: int) -> None:
            place = order.enter(1, b"k")
            while True:
                await asyncio.sleep(0.001 * chance.randrange(3))  # whatever it waits for before it can be sent
                await place.wait()
                place.leave()
                log.append(("sent", number))
                await asyncio.sleep(0.001 * (1 + chance.randrange(3)))
                if chance.random() < 0.6:
                    break
                place.failed = True
                log.append(("failed", number))
            log.append(("done", number))
            order.release(1, b"k", place)

        tasks = []
        for number in range(12):
            tasks.append(asyncio.ensure_future(batch(number)))
            await asyncio.sleep(0.001 * chance.randrange(3))
        await asyncio.wait_for(asyncio.gather(*tasks), 5)
        assert len(order) == 0
        assert list(dict.fromkeys(number for what, number in log if what == "sent")) == list(range(12))
        failed: set[int] = set()
        for what, number in log:
            if what == "failed":
                failed.add(number)
            elif what == "done":
                failed.discard(number)
            else:
                assert not any(other < number for other in failed)  # nothing leaves while an earlier one is in trouble

    asyncio.run(work())


@on_loop
async def test_who_gives_up_waiting_leaves_no_trace() -> None:
    order = PublishOrder()
    first, second = order.enter(1, b"k"), order.enter(1, b"k")
    first.failed = True
    task = asyncio.ensure_future(second.wait())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    order.release(1, b"k", second)
    order.release(1, b"k", first)
    assert len(order) == 0

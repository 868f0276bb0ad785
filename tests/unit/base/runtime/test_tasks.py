"""Tasks are held until they are done, and futures completed once."""

from __future__ import annotations

import asyncio
import gc

import pytest

from syncpoint.base.model.errors import Unavailable
from syncpoint.base.runtime.tasks import Tasks, all_of, complete, outcome_of
from syncpoint.testing.rigs.plain_tests import on_loop


@on_loop
async def test_tasks_are_held_until_they_are_done_and_cancelled_together() -> None:
    tasks, seen = Tasks(), []

    async def wait(number: int) -> None:
        try:
            await asyncio.get_running_loop().create_future()  # nobody else holds it
        finally:
            seen.append(number)

    for number in range(3):
        tasks.start(wait(number))
    assert await tasks.start(asyncio.sleep(0, "done")) == "done"
    gc.collect()
    await asyncio.sleep(0)
    assert (len(tasks), seen) == (3, [])
    await tasks.stop()
    assert (len(tasks), seen) == (0, [0, 1, 2])
    await tasks.stop()


def test_an_exception_nobody_fetches_is_reported_while_the_owner_lives(caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> Tasks:
        async def fail() -> None:
            raise ValueError("unforeseen")

        tasks = Tasks()
        tasks.start(fail())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        gc.collect()
        return tasks

    assert not asyncio.run(work())
    assert "unforeseen" in caplog.text


@on_loop
async def test_a_future_is_completed_once() -> None:
    done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    complete(done, 1)
    complete(done, ValueError("too late"))
    assert await done == 1
    failed: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    complete(failed, ValueError("in time"))
    with pytest.raises(ValueError, match="in time"):
        await failed


@on_loop
async def test_the_first_failure_of_several_ends_the_others() -> None:
    ended: list[str] = []

    async def wait() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            ended.append("waiting")

    async def fail() -> None:
        await asyncio.sleep(0)
        raise ValueError("no")

    assert await all_of(asyncio.sleep(0, number) for number in range(3)) == [0, 1, 2]
    with pytest.raises(ValueError, match="no"):
        await all_of([wait(), fail()])
    assert ended == ["waiting"]


@on_loop
async def test_what_is_not_known_to_be_persisted_may_be_stored() -> None:
    persisted, on_outcome = outcome_of("cursor")
    on_outcome(None)
    assert await persisted is None
    unknown, on_outcome = outcome_of("cursor")
    on_outcome(OSError("gone"))
    with pytest.raises(Unavailable, match="The cursor may or may not be stored: gone"):
        await unknown

from __future__ import annotations

import asyncio
import time

import pytest

from syncpoint.base.runtime.own_time import own_time


def test_waiting_does_not_count_and_work_does() -> None:
    steps: list[float] = []

    async def work() -> int:
        await asyncio.sleep(0.2)
        until = time.perf_counter() + 0.02
        while time.perf_counter() < until:
            pass
        await asyncio.sleep(0)
        return 7

    assert asyncio.run(_awaited(own_time(work(), steps.append))) == 7
    assert len(steps) == 3
    assert sum(steps) >= 0.02
    assert steps[0] + steps[2] < 0.2


def test_a_timeout_reaches_the_work_and_comes_out_of_it() -> None:
    seen: list[type[BaseException]] = []

    async def work() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError as error:
            seen.append(type(error))
            raise

    async def limited() -> None:
        async with asyncio.timeout(0.01):
            await own_time(work(), lambda seconds: None)

    with pytest.raises(TimeoutError):
        asyncio.run(limited())
    assert seen == [asyncio.CancelledError]


def test_an_error_that_the_work_handles_is_its_own() -> None:
    async def failing() -> None:
        raise ValueError("wrong")

    async def work() -> str:
        try:
            await asyncio.wait_for(failing(), 1)
        except ValueError as error:
            return str(error)
        return "nothing"

    assert asyncio.run(_awaited(own_time(work(), lambda seconds: None))) == "wrong"


async def _awaited(work):  # type: ignore[no-untyped-def]
    return await work

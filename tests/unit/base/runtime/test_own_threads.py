"""Threads that nothing waits for."""

from __future__ import annotations

import asyncio
import threading

import pytest

from syncpoint.base.runtime.own_threads import in_own_thread
from syncpoint.testing.rigs.plain_tests import on_loop


@on_loop
async def test_what_the_work_returns_or_raises() -> None:
    assert await in_own_thread(lambda: 1) == 1
    with pytest.raises(ZeroDivisionError):
        await in_own_thread(lambda: 1 / 0)


def test_a_loop_ends_without_the_work_and_others_do_not_wait_for_it() -> None:
    hangs, ended = threading.Event(), threading.Event()

    def work() -> None:
        hangs.wait()
        ended.set()

    async def story() -> None:
        waiting = [asyncio.ensure_future(in_own_thread(work)) for _ in range(100)]
        assert await in_own_thread(lambda: 1) == 1
        for one in waiting:
            one.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)

    asyncio.run(story())
    assert not ended.is_set()
    hangs.set()
    assert ended.wait(10)

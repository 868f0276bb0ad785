"""Turns of costly calls: one step in a turn of the loop, connections one after another, nobody forgotten."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from syncpoint.base.model.errors import Code, SyncpointError
from syncpoint.wire.transport.calls import Call
from syncpoint.wire.transport.fair import Stepwise, turns
from syncpoint.wire.transport.memory import MemoryChannel
from syncpoint.wire.transport.tasks import unary_async, unary_fair


def looped(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """A test in an event loop of its own."""

    @functools.wraps(test)
    def run(*arguments: Any, **named: Any) -> None:
        asyncio.run(test(*arguments, **named))

    return run


async def spread(steps: list[str], name: str, count: int = 1) -> str:
    for _ in range(count):
        steps.append(name)
        await asyncio.sleep(0)
    return name


async def rounds(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def start(steps: list[str], key: str, name: str, count: int = 1) -> asyncio.Task[str]:
    async def run() -> str:
        return await Stepwise(spread(steps, name, count), key)

    return asyncio.get_running_loop().create_task(run())


@looped
async def test_a_connection_with_one_call_waits_for_one_step_of_each_other() -> None:
    steps: list[str] = []
    many = [start(steps, f"flood-{k}", f"flood-{k}") for _ in range(500) for k in range(3)]
    await rounds(2)
    mine = start(steps, "mine", "mine")
    await mine
    assert steps.index("mine") <= 10
    await asyncio.gather(*many)
    assert len(steps) == 1501
    # While all three wait they take turns.
    assert all(len(set(steps[at : at + 3])) == 3 for at in range(20, 900, 3))


@looped
async def test_everything_else_runs_between_two_steps() -> None:
    steps: list[str] = []
    many = [start(steps, "flood", "flood") for _ in range(100)]
    looked = []
    while not all(task.done() for task in many):
        before = len(steps)
        await asyncio.sleep(0)
        looked.append(len(steps) - before)
    assert max(looked) == 1
    assert len(steps) == 100


@looped
async def test_nobody_waits_when_nobody_else_asks() -> None:
    steps: list[str] = []
    task = start(steps, "a", "a")
    await asyncio.sleep(0)
    assert steps == ["a"]
    await task


@looped
async def test_steps_after_a_suspension_take_turns_too() -> None:
    steps: list[str] = []
    tasks = [start(steps, f"{k}", f"{k}", count=5) for k in range(4)]
    looked = []
    while not all(task.done() for task in tasks):
        before = len(steps)
        await asyncio.sleep(0)
        looked.append(len(steps) - before)
    assert max(looked) == 1
    assert [await task for task in tasks] == ["0", "1", "2", "3"]


@pytest.mark.parametrize("when", [1, 2, 3, 5])
@looped
async def test_who_leaves_while_waiting_holds_nobody_up(when: int) -> None:
    steps: list[str] = []
    tasks = [start(steps, f"{k}", f"{k}", count=2) for k in range(6)]
    await rounds(when)
    for task in tasks[1:5]:
        task.cancel()
    assert await tasks[5] == "5"
    assert await tasks[0] == "0"
    assert all(
        isinstance(one, asyncio.CancelledError) for one in await asyncio.gather(*tasks[1:5], return_exceptions=True)
    )
    await rounds(3)
    assert turns().free


@looped
async def test_a_coroutine_that_is_cancelled_between_its_steps_cleans_up() -> None:
    reported: list[str] = []

    async def work() -> None:
        try:
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            reported.append("cancelled")
            raise
        finally:
            reported.append("cleaned")

    async def run() -> None:
        await Stepwise(work(), "a")

    task = asyncio.get_running_loop().create_task(run())
    others = [start([], "b", "b") for _ in range(20)]
    await rounds(2)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert reported == ["cancelled", "cleaned"]
    await asyncio.gather(*others)


@looped
async def test_answers_failures_and_timeouts_pass() -> None:
    async def answer(call: Call, request: bytes) -> bytes:
        if request == b"bad":
            raise SyncpointError(Code.ABORTED, "no")
        try:
            async with asyncio.timeout(0.001):
                await asyncio.Event().wait()
        except TimeoutError:
            return request
        raise AssertionError

    channel: Any = MemoryChannel({b"/t.T/Do": unary_fair(answer)})
    assert await channel.unary("/t.T/Do", b"x") == b"x"
    with pytest.raises(SyncpointError, match="no"):
        await channel.unary("/t.T/Do", b"bad")
    await channel.close()


@looped
async def test_a_failure_of_what_is_waited_for_reaches_the_coroutine() -> None:
    reported: list[str] = []

    async def part(failing: bool) -> str:
        await asyncio.sleep(0)
        if failing:
            raise SyncpointError(Code.UNAVAILABLE, "a part failed")
        return "whole"

    async def work() -> str:
        try:
            await asyncio.gather(part(False), part(True))
        except SyncpointError as error:
            reported.append(error.message)
        return await asyncio.ensure_future(part(False))

    async def run() -> str:
        return await Stepwise(work(), "a")

    others = [start([], "b", "b", count=3) for _ in range(5)]
    assert await asyncio.get_running_loop().create_task(run()) == "whole"
    assert reported == ["a part failed"]
    await asyncio.gather(*others)


@looped
async def test_calls_that_are_not_costly_do_not_wait() -> None:
    """What is relayed for subscribers runs as a task, too, and takes no turns."""
    steps: list[str] = []

    async def slow(call: Call, request: bytes) -> bytes:
        steps.append("slow")
        return b""

    async def quick(call: Call, request: bytes) -> bytes:
        steps.append("quick")
        return b""

    channel: Any = MemoryChannel({b"/t.T/Slow": unary_fair(slow), b"/t.T/Quick": unary_async(quick)})
    tasks = [asyncio.ensure_future(channel.unary("/t.T/Slow", b"")) for _ in range(50)]
    await asyncio.sleep(0)
    await channel.unary("/t.T/Quick", b"")
    assert steps.count("slow") < 15
    await asyncio.gather(*tasks)
    await channel.close()

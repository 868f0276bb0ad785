"""Work in rounds: pauses, failures expected and not, and the end."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import repeat

import pytest

from syncpoint.base.model.errors import Unavailable
from syncpoint.base.runtime.periodic import Periodic, about
from syncpoint.base.runtime.random import SeededRandom


def rounds(outcomes: Iterator[Exception | None], *, at_start: bool = False) -> tuple[int, list[int]]:
    """How many rounds there were when four pauses had been asked for, and before which pause each was."""
    pauses, seen = 0, []

    async def work() -> None:
        seen.append(pauses)
        if (error := next(outcomes)) is not None:
            raise error

    def pause() -> float:
        nonlocal pauses
        pauses += 1
        if pauses == 4:
            enough.set()
        return 0.0 if pauses < 4 else 3600.0

    async def run() -> None:
        periodic = Periodic(work, pause, (Unavailable,), "not done", at_start=at_start)
        await periodic.stop()
        periodic.start()
        assert periodic.running
        await enough.wait()
        await periodic.stop()
        assert not periodic.running

    enough = asyncio.Event()
    asyncio.run(run())
    return len(seen), seen


def test_a_pause_comes_before_each_round() -> None:
    assert rounds(repeat(None)) == (3, [1, 2, 3])


def test_the_first_round_may_come_before_the_first_pause() -> None:
    assert rounds(repeat(None), at_start=True) == (4, [0, 1, 2, 3])


def test_after_a_failure_the_next_round_comes(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    assert rounds(iter([Unavailable("gone"), ValueError("broken"), None]))[0] == 3
    expected, fault = caplog.records
    assert (expected.levelname, expected.getMessage()) == ("INFO", "not done: UNAVAILABLE: gone")
    assert fault.levelname == "ERROR"
    assert fault.exc_info is not None


def test_pauses_vary_by_half() -> None:
    pause = about(10.0, SeededRandom(1))
    drawn = [pause() for _ in range(100)]
    assert 5.0 <= min(drawn) < 6.0
    assert 14.0 < max(drawn) <= 15.0

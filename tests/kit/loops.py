"""Coroutine functions as plain tests: in simulated time, or on a real loop with something made for them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from syncpoint.base.runtime.clock import ManualClock
from syncpoint.testing.rigs.plain_tests import Work, plain_test
from syncpoint.testing.rigs.simulated_loop import run_simulated

Made = TypeVar("Made")

in_simulated_time = plain_test(lambda work: run_simulated(ManualClock(), work()))
"""A decorator: a test on a loop whose time passes only when nothing else is left to do: what waits takes no time."""


def on_loop(make: Callable[[], Made], end: Callable[[Made], Awaitable[None]]) -> Callable[[Work], Callable[..., None]]:
    """A decorator: the coroutine function's first argument is what `make` makes, and `end` ends it afterwards."""

    async def run(work: Work) -> None:
        made = make()
        try:
            await work(made)
        finally:
            await end(made)

    return plain_test(lambda work: asyncio.run(run(work)))

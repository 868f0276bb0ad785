"""Tests that need a real event loop, with something made for them on it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from syncpoint.testing.plain_tests import Work, plain_test

Made = TypeVar("Made")


def on_loop(make: Callable[[], Made], end: Callable[[Made], Awaitable[None]]) -> Callable[[Work], Callable[..., None]]:
    """A decorator: the coroutine function's first argument is what `make` makes, and `end` ends it afterwards."""

    async def run(work: Work) -> None:
        made = make()
        try:
            await work(made)
        finally:
            await end(made)

    return plain_test(lambda work: asyncio.run(run(work)))

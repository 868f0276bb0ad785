"""Tests that need a real event loop, with something made for them on it."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

Made = TypeVar("Made")
Story = Callable[..., Coroutine[Any, Any, None]]


def on_loop(make: Callable[[], Made], end: Callable[[Made], Awaitable[None]]) -> Callable[[Story], Callable[..., None]]:
    """A decorator: the coroutine function's first argument is what `make` makes, and `end` ends it afterwards."""

    def decorated(story: Story) -> Callable[..., None]:
        async def run_story(*args: Any, **named: Any) -> None:
            made = make()
            try:
                await story(made, *args, **named)
            finally:
                await end(made)

        @functools.wraps(story)
        def test(**named: Any) -> None:
            asyncio.run(run_story(**named))

        _, *rest = inspect.signature(story).parameters.values()
        test.__signature__ = inspect.Signature(rest)  # type: ignore[attr-defined]
        return test

    return decorated

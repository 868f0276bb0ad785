"""A text that is made when somebody asks for it, and kept for a while.

Place: between collectors, however many of them ask, and what a text costs to make.
Promise: a text is at most `fresh_s` old when it is handed out, and one is made at a time; callers in the meantime
waits for the same one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final, Protocol

FRESH_S: Final = 1.0


class MetricsText(Protocol):
    """What a page of metrics shows."""

    async def text(self) -> bytes: ...


class KeptText:
    """Cache a text that is made on request. `make` makes the text."""

    def __init__(self, make: Callable[[], Coroutine[Any, Any, bytes]], fresh_s: float = FRESH_S) -> None:
        self._make, self._fresh_s = make, fresh_s
        self._text, self._made_at = b"", float("-inf")
        self._making: asyncio.Task[bytes] | None = None

    async def get(self) -> bytes:
        """The text; what making it raises."""
        if self._making is None:
            loop = asyncio.get_running_loop()
            if loop.time() < self._made_at + self._fresh_s:
                return self._text
            self._making = loop.create_task(self._made())
        return await asyncio.shield(self._making)  # one who goes away does not take it from the others

    async def _made(self) -> bytes:
        try:
            self._text = await self._make()
            self._made_at = asyncio.get_running_loop().time()
            return self._text
        finally:
            self._making = None

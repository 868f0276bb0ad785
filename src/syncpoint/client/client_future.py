"""A result that comes later: waited for with `result()` in a thread, and with `await` in a coroutine.

Place: what `publish` and the acknowledgements with a response return.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Generator
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class ClientFuture(concurrent.futures.Future[T], Generic[T]):
    """A future of the standard library that can be awaited, too. What was begun cannot be cancelled."""

    def cancel(self) -> bool:
        """Return False: messages that were given away are sent."""
        return False

    def __await__(self) -> Generator[Any, None, T]:
        return asyncio.wrap_future(self).__await__()

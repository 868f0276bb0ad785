"""Turns: how often a process tries a metadata store that does not answer, however many of its tasks want to.

Place: beside `etcd_client` and `remote`, one for each connection of a process to a store.
Promise: while nobody answers, a waiting call begins a try at intervals; all of them go on as soon as one is
answered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

AWAY_S = 0.4  # between two tries of the whole process; half of it to one and a half times where it is spread


def _even() -> float:
    return 0.5


class Turns:
    """`members`: how many have to be silent, one after the other, before the store counts as away. `spread`: a number
    from 0 to 1, another one at each call, that keeps processes from trying at the same time.
    """

    def __init__(self, members: int = 1, spread: Callable[[], float] = _even) -> None:
        self._members, self._spread = members, spread
        self._silent = 0  # since one answered
        self._next = 0.0
        self._answered = asyncio.Event()
        self._closed = False

    async def mine(self, rest_s: float) -> bool:
        """Return when a try may be made; False when there was no turn within `rest_s`."""
        loop = asyncio.get_running_loop()
        end = loop.time() + rest_s
        while self._silent >= self._members and not self._closed:
            now = loop.time()
            if now >= self._next:
                self._next = now + AWAY_S * (0.5 + self._spread())
                return True
            if now >= end:
                return False
            try:
                async with asyncio.timeout(max(0.01, min(self._next, end) - now)):
                    await self._answered.wait()
            except TimeoutError:
                pass
        return True

    def silent(self) -> None:
        """A member did not answer."""
        self._silent += 1

    def came(self) -> None:
        """A member answers: calls that wait for a turn go on."""
        if self._silent:
            self._silent = 0
            self._answered.set()
            self._answered = asyncio.Event()

    def close(self) -> None:
        """Nobody waits any more."""
        self._closed = True
        self._answered.set()

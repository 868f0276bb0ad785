"""Turns for calls that cost much: one step of one of them in a turn of the event loop, connections one after another.

Place: around the coroutines of administrative methods (`tasks.unary_fair`). Publish, pull and acknowledge
do not wait here.
Promise: however many such calls wait, everything else runs between two steps; a connection with one call waits for one
step of every other connection, not for all their calls. Nobody waits while nobody else asks.
Leaves to the methods: keeping one step short. A step lasts from one suspension of a coroutine to the next.

Steps are counted and not timed, so that a simulation repeats.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine, Generator
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary

_Result = TypeVar("_Result")


class FairTurns:
    """Who waits, by the connection that asked."""

    __slots__ = ("__weakref__", "_booked", "_taken", "_waiting")

    def __init__(self) -> None:
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        self._taken = False
        """This turn has had its step, or is promised."""
        self._booked = False

    @property
    def free(self) -> bool:
        """Whether a step may run now, without waiting."""
        return not (self._taken or self._waiting)

    def take(self) -> None:
        """A step runs now."""
        self._taken = True
        self._book()

    def wait(self, key: str) -> asyncio.Future[None]:
        """Done when it is this connection's turn."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(key, deque()).append(turn)
        self._book()
        return turn

    def _book(self) -> None:
        if not self._booked:
            self._booked = True
            asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        self._booked = self._taken = False
        waiting = self._waiting
        while waiting:
            key = next(iter(waiting))
            line = waiting.pop(key)
            turn = line.popleft()
            if line:
                waiting[key] = line  # after all others
            if not turn.done():
                # It wakes in the next turn, before what is booked now. Should its caller leave until then, that turn
                # passes without a step.
                self._taken = True
                turn.set_result(None)
                self._book()
                return


_TURNS: WeakKeyDictionary[asyncio.AbstractEventLoop, FairTurns] = WeakKeyDictionary()


def turns() -> FairTurns:
    """Those of the running event loop."""
    loop = asyncio.get_running_loop()
    found = _TURNS.get(loop)
    if found is None:
        found = _TURNS[loop] = FairTurns()
    return found


class Stepwise(Generic[_Result]):
    """A coroutine every step of which waits for its turn. To be awaited once, within a task."""

    __slots__ = ("_inner", "_key")

    def __init__(self, inner: Coroutine[Any, Any, _Result], key: str) -> None:
        self._inner, self._key = inner, key

    def __await__(self) -> Generator[Any, None, _Result]:
        inner, among = self._inner, turns()
        failure: BaseException | None = None
        try:
            while True:
                if not isinstance(failure, asyncio.CancelledError):
                    try:
                        if among.free:
                            among.take()
                        else:
                            yield from among.wait(self._key).__await__()
                    except asyncio.CancelledError as cancelled:
                        failure = cancelled  # it is notified immediately, and cleans up
                try:
                    waited = inner.send(None) if failure is None else inner.throw(failure)
                except StopIteration as done:
                    result: _Result = done.value
                    return result
                failure = None
                try:
                    yield waited
                except GeneratorExit:
                    raise
                except BaseException as error:  # how what was waited for ended: it is the coroutine's
                    failure = error
        finally:
            inner.close()

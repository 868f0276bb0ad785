"""How much each caller may hold of the bytes of unfinished requests, so that one leaves room to the others.

Place: beside `receive_budget`, at listeners for clients: of calls over HTTP/2, and of bodies over HTTP/1.1 (REST, the
console).
Promise: whoever holds something gets more only while that is not more than what is left of all: one alone has half of
it. A caller is the address that a connection comes from; once a connection holds `NAMED_BYTES` it is whoever its
request shows to be, if that is known, however many addresses and connections that is. So nobody is identified for a
request of a usual size.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from syncpoint.base.model.errors import Code, SyncpointError

NAMED_BYTES: Final = 1 << 20


class CallerShares:
    """What the callers of one listener hold. `most`: bytes of all of them."""

    def __init__(self, most: int) -> None:
        self.most, self.held = most, 0
        self.of: dict[str, int] = {}


class Holding:
    """What one connection holds. `name`: who shows by what is received there; "": nobody that is known."""

    __slots__ = ("_address", "_name", "_named", "_shares", "_who", "held")

    def __init__(self, shares: CallerShares, address: str, name: Callable[[], str] | None) -> None:
        self._shares, self._address, self._name = shares, address, name
        self._who, self._named, self.held = address, False, 0

    def hold(self, more: int) -> None:
        """Count bytes, or give some back. Raises `SyncpointError` for what is too much; it is counted all the same."""
        self.held += more
        self._count(more)
        if more <= 0:
            if not self.held:
                self._who, self._named = self._address, False
            return
        if self.held > NAMED_BYTES and not self._named and self._name is not None:
            self._named = True
            self._move(self._name() or self._address)
        shares = self._shares
        if shares.of.get(self._who, 0) > shares.most - shares.held:
            raise SyncpointError(
                Code.RESOURCE_EXHAUSTED,
                f"Too much unfinished data of {self._who} is being received: {shares.of[self._who]:,} bytes, of"
                f" {shares.most:,} bytes for all callers. A caller may not hold more than what is left for the others."
                " Finish or cancel some of the requests, then try again.",
            )

    def _move(self, who: str) -> None:
        self._count(-self.held)
        self._who = who
        self._count(self.held)

    def _count(self, more: int) -> None:
        shares = self._shares
        shares.held += more
        now = shares.of.get(self._who, 0) + more
        if now:
            shares.of[self._who] = now
        else:
            shares.of.pop(self._who, None)

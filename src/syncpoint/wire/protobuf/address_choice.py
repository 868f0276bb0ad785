"""Which of several addresses is used, and when another one.

Place: the decisions of all clients here: publishers, subscribers, the calls of the command line, Spark's data source;
pure, the time comes in, and it imports nothing, so that the latter may have it.
Promises: the present address is kept until it fails or another one is chosen; an address that failed rests, twice as
long each time up to REST_MAX_S, and is avoided until then if another one is not resting. A failure that is reported of
an address which is no longer the present one changes nothing but its rest. With `prefer_first`, an earlier address of
the list that is not resting is due for a check, and becomes the present one when its check succeeds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

REST_FIRST_S: Final = 1.0
REST_MAX_S: Final = 60.0


class AddressChoice:
    """`present`: where calls go; `moves`: how often that has changed."""

    def __init__(self, addresses: Sequence[str], *, prefer_first: bool = False) -> None:
        """Raises `ValueError` for an empty list, or one that names an address twice."""
        self.addresses = tuple(addresses)
        if not self.addresses:
            raise ValueError("at least one address is needed")
        if len(set(self.addresses)) < len(self.addresses):
            raise ValueError(f"an address is listed twice: {', '.join(self.addresses)}")
        self.present = self.addresses[0]
        self.moves = 0
        self._prefer_first = prefer_first
        self._rests: dict[str, tuple[float, float]] = {}  # until when, and how long that is

    def failed(self, address: str, now_s: float) -> bool:
        """An address cannot be used; returns whether the present one has changed."""
        until_s, rest_s = self._rests.get(address, (now_s, 0.0))
        if address == self.present or until_s <= now_s:  # many calls fail at once, and are one failure
            rest_s = min(max(REST_FIRST_S, 2 * rest_s), REST_MAX_S)
            self._rests[address] = now_s + rest_s, rest_s
        if address != self.present or len(self.addresses) == 1:
            return False
        at = self.addresses.index(address) + 1
        others = [*self.addresses[at:], *self.addresses[: at - 1]]
        if self._prefer_first:
            others.sort(key=self.addresses.index)
        self._move(min(others, key=lambda one: max(self._rests.get(one, (now_s, 0.0))[0], now_s)))
        return True

    def answered(self, address: str) -> None:
        """An address was used with success: its next rest will be a short one."""
        self._rests.pop(address, None)

    def switch_to(self, address: str) -> bool:
        """Use this one from now on; returns whether another one was used before. Raises `ValueError`."""
        if address not in self.addresses:
            raise ValueError(f"{address!r} is none of the addresses: {', '.join(self.addresses)}")
        self._rests.pop(address, None)
        if address == self.present:
            return False
        self._move(address)
        return True

    def preferred(self, now_s: float) -> str | None:
        """An address that is to be checked, since it should be used instead of the present one."""
        if not self._prefer_first:
            return None
        before = self.addresses[: self.addresses.index(self.present)]
        return next((one for one in before if self._rests.get(one, (now_s, 0.0))[0] <= now_s), None)

    def _move(self, address: str) -> None:
        self.present = address
        self.moves += 1

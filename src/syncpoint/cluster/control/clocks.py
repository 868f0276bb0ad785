"""Exchanging the time: every member writes its wall clock down once a minute, every member reads them.

Place: in every process of a cluster, beside its membership; what comes of it is `runtime.trusted`.
Promise: a clock is read when it changes, so one that was written long ago is no witness. The latest time that anybody
was sure of is reported at the start, before anything is deleted by it. What a name reported that is not used any more
goes once others are sure of a much later time: so there are as many keys as names were in use lately.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from syncpoint.base.model.times import CLOCK_WRITE_S
from syncpoint.base.runtime.clock import Clock
from syncpoint.base.runtime.periodic import Periodic
from syncpoint.base.runtime.trusted import TrustedClock
from syncpoint.catalog.metadata.contract import Delete, Put, StoreError, unchanged
from syncpoint.catalog.metadata.layout import CLOCKS
from syncpoint.catalog.metadata.store_client import SharedStore
from syncpoint.catalog.metadata.view import View
from syncpoint.wire.transport.network import split_address

OLD_NS = 7 * 86_400_000_000_000  # a member whose last report is older is gone, or soon reports again
FORGET_MAX = 20  # keys a minute, of each process


class ClockReading(NamedTuple):
    """What a member reports: its host, its wall clock, and which time it is sure of."""

    host: str
    wall_ns: int
    sure_ns: int

    @classmethod
    def decode(cls, data: bytes) -> ClockReading:
        """Raises `ValueError`, `KeyError` or `TypeError` for what is none."""
        values = json.loads(data)
        return cls(str(values["host"]), int(values["wall_ns"]), int(values["sure_ns"]))

    def encode(self) -> bytes:
        return json.dumps(self._asdict()).encode()


class ClockExchange:
    """`trusted` is given the times of others, and its own goes to them. `clock`: the wall clock of this process."""

    def __init__(self, store: SharedStore, clock: Clock, trusted: TrustedClock, name: str) -> None:
        self._store, self._clock, self._trusted, self._name = store, clock, trusted, name
        self._view: View[ClockReading] = View(store, CLOCKS, ClockReading.decode)
        self._announcing = Periodic(
            self._announce, lambda: CLOCK_WRITE_S, (StoreError,), "the time is not reported", at_start=True
        )

    async def start(self) -> None:
        """Return when it is known what anybody was sure of. Raises `StoreUnavailable`."""
        await self._view.start()
        self._trusted.known(max((seen.value.sure_ns for seen in self._view.items.values()), default=0))
        self._view.listeners.append(self._changed)

    def announce(self, address: str) -> None:
        """Begin to announce the time; others call this process at `address`."""
        self._trusted.host, _ = split_address(address)
        self._announcing.start()

    async def close(self) -> None:
        """Stop reporting."""
        await self._announcing.stop()
        await self._view.close()

    def _changed(self, names: set[str]) -> None:
        for name in names - {self._name}:
            reading = self._view.get(name)
            if reading is not None:
                self._trusted.observe(reading.host, name, reading.wall_ns)

    async def _announce(self) -> None:
        reading = ClockReading(self._trusted.host, self._clock.time_ns(), self._trusted.sure_ns())
        await self._store.txn([], [Put(CLOCKS.key(self._name), reading.encode())])
        await self._forget(reading.sure_ns - OLD_NS)

    async def _forget(self, before_ns: int) -> None:
        """Remove what others were sure of before that: this process has just written a later time, so nobody who starts
        misses it. One that is written anew in the meantime stays: the removal names what it is meant for.
        """
        old = [
            (name, seen.revision)
            for name, seen in self._view.items.items()
            if name != self._name and seen.value.sure_ns < before_ns
        ]
        for name, revision in old[:FORGET_MAX]:
            key = CLOCKS.key(name)
            await self._store.txn([unchanged(key, revision)], [Delete(key)])

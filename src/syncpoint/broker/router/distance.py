"""How far the regions are, as measured by pings, and their order.

Place: in every router and every proxy. `Distances` is a machine, `Prober` its driver.
Promise: the order changes only when a region is nearer by a clear margin, so lists do not waver with every ping; a
region that does not answer is the farthest, and comes back as soon as it answers.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterable

from syncpoint.base.model.cluster import Member
from syncpoint.base.runtime.clock import Clock
from syncpoint.base.runtime.periodic import Periodic, about
from syncpoint.base.runtime.random import Random

WEIGHT = 0.2  # of the newest measurement
MARGIN, MARGIN_S = 0.2, 0.000_5  # by how much a region must be nearer to overtake another
SILENT = 3  # pings in vain
PERIOD_S = 1.0

Ping = Callable[[str], Awaitable[bool]]


class Distances:
    """Round trips to regions in seconds. `here` is nearest as long as nothing is known."""

    def __init__(self, here: str) -> None:
        self.here = here
        self._means: dict[str, float] = {}
        self._vain: dict[str, int] = {}
        self._order: list[str] = []
        self.on_change: list[Callable[[], None]] = []

    def measured(self, region: str, round_trip_s: float) -> None:
        """A ping came back."""
        mean = self._means.get(region)
        lost = self._vain.pop(region, 0) >= SILENT
        if mean is None or lost:
            self._means[region] = round_trip_s
        else:
            self._means[region] = mean + WEIGHT * (round_trip_s - mean)
        if region not in self._order:
            self._order.append(region)
            self._order.sort(key=lambda one: (self.of(one), one))
            self._notify()
        else:
            self._sort()

    def silent(self, region: str) -> None:
        """A ping did not come back."""
        self._vain[region] = self._vain.get(region, 0) + 1
        if self._vain[region] == SILENT:
            self._sort()

    def of(self, region: str) -> float:
        """The distance of a region; infinite while it does not answer, or nothing is known of it."""
        if self._vain.get(region, 0) >= SILENT:
            return math.inf
        return self._means.get(region, 0.0 if region == self.here else math.inf)

    def order(self, regions: Iterable[str]) -> list[str]:
        """Regions, the nearest first."""
        rank = {region: number for number, region in enumerate(self._order)}
        unknown = len(rank)

        def place(region: str) -> tuple[bool, int, bool, str]:
            silent = self._vain.get(region, 0) >= SILENT
            first = region == self.here and region not in rank
            return silent, -1 if first else rank.get(region, unknown), region != self.here, region

        return sorted(set(regions), key=place)

    def known(self) -> dict[str, float]:
        """What is measured, for the load report: region -> seconds."""
        return {region: round(mean, 6) for region, mean in self._means.items() if self._vain.get(region, 0) < SILENT}

    def _sort(self) -> None:
        """Let regions pass those they are clearly nearer than, one place after the other."""
        before = list(self._order)
        for end in range(1, len(self._order)):
            place = end
            while place and self._passes(self._order[place], self._order[place - 1]):
                self._order[place - 1 : place + 1] = [self._order[place], self._order[place - 1]]
                place -= 1
        if before != self._order:
            self._notify()

    def _passes(self, one: str, other: str) -> bool:
        return self.of(one) * (1 + MARGIN) + MARGIN_S < self.of(other)

    def _notify(self) -> None:
        for listener in list(self.on_change):
            listener()


class Prober(Periodic):
    """Pings a living member of every region, again and again. `ping` returns whether an address answered."""

    def __init__(
        self,
        distances: Distances,
        ping: Ping,
        members: Callable[[], Iterable[Member]],
        clock: Clock,
        random: Random,
        *,
        period_s: float = PERIOD_S,
    ) -> None:
        self.distances = distances
        self._ping, self._members, self._clock, self._random = ping, members, clock, random
        super().__init__(self.round, about(period_s, random), at_start=True)

    async def round(self) -> None:
        """Ping one member of every region."""
        regions: dict[str, list[Member]] = {}
        for member in self._members():
            regions.setdefault(member.region, []).append(member)
        await asyncio.gather(*(self._measure(region, members) for region, members in regions.items()))

    async def _measure(self, region: str, members: list[Member]) -> None:
        address = members[self._random.randrange(0, len(members))].address
        times = []
        for _ in range(2):  # the first may have to connect
            begin = self._clock.monotonic()
            if not await self._ping(address):
                self.distances.silent(region)
                return
            times.append(self._clock.monotonic() - begin)
        self.distances.measured(region, min(times))

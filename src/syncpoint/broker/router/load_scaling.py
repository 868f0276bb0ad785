"""Into how many parts a topic or a subscription is split, as its load grows and shrinks.

Place: asked by the planner before it assigns. A machine: loads and times come in as arguments.
Promise: what is heavier than a share of an average forwarder is split until its parts are not, within seconds, at most
doubling at a time; parts are joined again only when they would stay far below that for a while. Under a load that
wavers by less than the gap between the two, nothing changes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

FORGOTTEN = 1e-3  # a load this small is none


@dataclass(frozen=True, slots=True)
class ScalingSettings:
    """`share`: what one part may be of the average load of a forwarder; `floor`: below this load (messages and KiB per
    second) nothing is split, since one forwarder takes it easily and every part more costs commits and wake-ups of its
    own; `joined_at`: parts are joined when they would then carry at most this of what splits."""

    share: float = 0.2
    floor: float = 120_000.0
    joined_at: float = 0.5
    grow_after_s: float = 4.0
    shrink_after_s: float = 120.0
    smooth_s: float = 8.0


@dataclass(slots=True)
class _Load:
    value: float
    high_since: float | None = None
    low_since: float | None = None


class Scaler:
    """Smoothed loads, and since when they ask for another number of parts."""

    def __init__(self, settings: ScalingSettings | None = None) -> None:
        self.settings = settings or ScalingSettings()
        self._loads: dict[int, _Load] = {}
        self._at: float | None = None

    def observe(self, now: float, loads: Mapping[int, float]) -> None:
        """Measured loads at a time; what is not named has none."""
        if self._at is None:
            self._loads = {key: _Load(load) for key, load in loads.items() if load > 0}
        else:
            kept = math.exp(-max(0.0, now - self._at) / self.settings.smooth_s)
            for key in loads.keys() - self._loads.keys():
                self._loads[key] = _Load(0.0)
            for key, load in list(self._loads.items()):
                load.value = load.value * kept + loads.get(key, 0.0) * (1 - kept)
                if load.value < FORGOTTEN and load.low_since is None:
                    del self._loads[key]
        self._at = now

    def load(self, key: int) -> float:
        """The smoothed load."""
        found = self._loads.get(key)
        return 0.0 if found is None else found.value

    def total(self) -> float:
        """All loads together."""
        return sum(load.value for load in self._loads.values())

    def parts(self, key: int, now: float, current: int, average: float, most: int) -> int:
        """How many parts it should have from now on, 1 to `most`. `average`: the load of an average forwarder."""
        current = max(1, min(current, most))
        load = self._loads.get(key)
        if load is None:
            if current == 1:
                return 1
            load = self._loads[key] = _Load(0.0)
        settings = self.settings
        limit = max(settings.share * average, settings.floor)
        wanted = min(most, math.ceil(load.value / limit))
        enough = min(most, max(1, math.ceil(load.value / (limit * settings.joined_at))))
        load.high_since = _since(load.high_since, now, wanted > current)
        load.low_since = _since(load.low_since, now, enough < current)
        if load.high_since is not None and now - load.high_since >= settings.grow_after_s:
            load.high_since = None
            return min(wanted, 2 * current)
        if load.low_since is not None and now - load.low_since >= settings.shrink_after_s:
            load.low_since = None
            return max(enough, current // 2)
        return current


def _since(since: float | None, now: float, holds: bool) -> float | None:
    if not holds:
        return None
    return now if since is None else since


def units(messages_s: float, bytes_s: float) -> float:
    """One number for a rate: a message costs as much as a KiB."""
    return messages_s + bytes_s / 1024

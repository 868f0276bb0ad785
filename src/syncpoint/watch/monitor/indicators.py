"""How an indicator is measured: which events of a look are good, and the same as PromQL.

Place: the shapes that `sli_table` is made of. What is counted is events: calls, messages, commits; of ages, looks at
them.
Promise: a look without events is no evidence; it is not good.
"""

from __future__ import annotations

from typing import NamedTuple

from syncpoint.watch.monitor.increases import Look
from syncpoint.watch.monitor.selections import SeriesSelection


class Events(NamedTuple):
    """How many there were, and how many of them were good."""

    good: float
    total: float


NONE = Events(0.0, 0.0)


class Share(NamedTuple):
    """Events that did not fail. `bad`: those that failed, which are among the events or, with `beside`, come on top."""

    events: tuple[SeriesSelection, ...]
    bad: tuple[SeriesSelection, ...]
    beside: bool = False

    def of(self, look: Look, threshold: float) -> Events:
        """Count the good and total events of one look."""
        events, bad = (sum(one.total(look) for one in some) for some in (self.events, self.bad))
        total = events + bad if self.beside else events
        return Events(max(0.0, total - bad), total)

    def promql(self, threshold: float, window: str) -> tuple[str, str]:
        """Bad events and all events, per second."""
        bad, events = _rates(self.bad, window), _rates(self.events, window)
        return bad, f"({events} + {bad})" if self.beside else events


class Quick(NamedTuple):
    """Events that took no longer than a threshold. `failed`: those that were quick and failed are not good."""

    took: SeriesSelection
    failed: tuple[SeriesSelection, ...] = ()
    quantile: float = 0.99

    def of(self, look: Look, threshold: float) -> Events:
        """Count the quick and total events of one look."""
        total = self.took.notes().total(look)
        quick = self.took.bucket(threshold).total(look) - sum(one.total(look) for one in self.failed)
        return Events(min(max(0.0, quick), total), total)

    def promql(self, threshold: float, window: str) -> tuple[str, str]:
        """Bad events and all events, per second."""
        total, quick = _rates((self.took.notes(),), window), _rates((self.took.bucket(threshold),), window)
        failed = f" - {_rates(self.failed, window)}" if self.failed else ""
        return f"({total} - clamp_min({quick}{failed}, 0))", total


ATTENDED = "syncpoint_monitor_attended_seconds"
"""Of each subscription with a subscriber: for how long it has had one at every look."""


class Youngest(NamedTuple):
    """Looks at which no age was above a threshold. `having`: only series for which this is above 0 under `on`, and has
    been for `for_s`.
    """

    age: SeriesSelection
    having: SeriesSelection | None = None
    on: tuple[str, ...] = ()
    for_s: float = 0.0

    def largest(self, look: Look) -> float | None:
        """The largest age; None: there is none."""
        alive: set[tuple[str | None, ...]] | None = None
        if self.having is not None:
            alive = {self._key(dict(labels)) for labels, value in self.having.found(look) if value > 0}
        if alive and self.for_s:
            for_long = look.get(ATTENDED, {})
            alive &= {self._key(dict(labels)) for labels, value in for_long.items() if value >= self.for_s}
        ages = [value for labels, value in self.age.found(look) if alive is None or self._key(dict(labels)) in alive]
        return max(ages, default=None)

    def of(self, look: Look, threshold: float) -> Events:
        """Judge one look as a single event."""
        largest = self.largest(look)
        return NONE if largest is None else Events(float(largest <= threshold), 1.0)

    def _key(self, labels: dict[str, str]) -> tuple[str | None, ...]:
        return tuple(labels.get(one) for one in self.on)

    @property
    def query(self) -> str:
        """The largest age now."""
        if self.having is None:
            return f"max({self.age.promql})"
        on = ", ".join(self.on)
        having = f"sum by ({on}) ({self.having.promql})"
        if self.for_s:
            minutes = f"{self.for_s / 60:g}m"
            existed = f"sum by ({on}) ({self.having.promql} offset {minutes})"
            having = f"min_over_time(({having})[{minutes}:1m]) > 0 and on ({on}) {existed}"
        return f"max(max by ({on}) ({self.age.promql}) and on ({on}) ({having} > 0))"


Measure = Share | Quick | Youngest


def _rates(some: tuple[SeriesSelection, ...], window: str) -> str:
    rates = [f"(sum(rate({one.promql}[{window}])) or vector(0))" for one in some]
    return rates[0] if len(rates) == 1 else f"({' + '.join(rates)})"

"""What grew between two looks at a process: counters become increases, gauges stay what they are.

Place: between the texts of processes and everything that counts events: history, indicators, objectives.
Promise: an event is counted once. A counter that fell began anew, and what it shows has happened since; a series that
is new in a process known before began at 0. A series, or a process, that is missing for a while goes on from where it
was. Of a process that was running before it was first seen, only what happens from then on is counted, unless
the reader knows that nobody has counted what it shows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from syncpoint.watch.monitor.scraped_text import Labels, ScrapedSeries

FORGOTTEN_S: Final = 3600.0  # a series that was missing for this long starts over

Look = dict[str, dict[Labels, float]]
"""By name and labels: of a counter what it grew by since the look before, of a gauge its value."""


class ProcessIncreases:
    """One process. `seen`: whether what it shows that was not there before is new; `fresh`: from the first
    look on, as of a process that started with the reader.
    """

    def __init__(self, *, fresh: bool = False) -> None:
        self._known: dict[ScrapedSeries, tuple[float, float]] = {}  # value, when
        self.seen = fresh

    def take(self, numbers: Mapping[ScrapedSeries, float], now_s: float, look: Look) -> None:
        """Add what a look has found to `look`: series of the same labels are added up."""
        known = self._known
        for series, value in numbers.items():
            change = value
            if series.counts:
                before = known.get(series)
                if before is not None:
                    change = value - before[0] if value >= before[0] else value
                elif not self.seen:
                    change = 0.0
                known[series] = (value, now_s)
            by_labels = look.setdefault(series.name, {})
            by_labels[series.labels] = by_labels.get(series.labels, 0.0) + change
        self.seen = True
        if len(known) > 2 * len(numbers):
            self._known = {one: at for one, at in known.items() if at[1] > now_s - FORGOTTEN_S}

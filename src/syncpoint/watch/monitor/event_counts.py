"""Good and all events of one objective over the last weeks: what burn rates and error budgets are computed from.

Place: one for each objective, in memory, filled by looks and, at a start, by what was kept of an earlier life.
Promise: a minute is exact for as long as the longest window of a burn rate; what is older is known by ten minutes.
Which events are excused is known of this life only.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from syncpoint.watch.monitor.indicators import Events

MINUTE_S: Final = 60
TEN_MINUTES_S: Final = 600
FINE_S: Final = 3 * 86_400 + 3600
COARSE_S: Final = 35 * 86_400


class EventCounts:
    """Times are seconds since 1970, and do not go back: an event of an earlier minute counts with the newest."""

    def __init__(self) -> None:
        self._fine: deque[tuple[int, float, float, float]] = deque()  # beginning of a minute, good, all, excused
        self._coarse: deque[tuple[int, float, float, float]] = deque()

    def add(self, at_s: float, events: Events, *, excused: bool = False) -> None:
        """Count events. `excused`: an alert explains those that are not good."""
        bad = events.total - events.good if excused else 0.0
        for slots, step_s, kept_s in ((self._fine, MINUTE_S, FINE_S), (self._coarse, TEN_MINUTES_S, COARSE_S)):
            t = int(at_s) // step_s * step_s
            if slots and slots[-1][0] >= t:
                t, good, total, before = slots.pop()
                slots.append((t, good + events.good, total + events.total, before + bad))
            elif events.total:
                slots.append((t, events.good, events.total, bad))
            while slots and slots[0][0] < t - kept_s:
                slots.popleft()

    def unexcuse(self) -> None:
        """Nothing is excused any more."""
        for slots in (self._fine, self._coarse):
            for number, (t, good, total, excused) in enumerate(slots):
                if excused:
                    slots[number] = t, good, total, 0.0

    def covered_s(self, window_s: float, now_s: float) -> float:
        """How much of the last `window_s` seconds something was counted in: what was before the first event was not
        watched, and at least a minute is.
        """
        first_s = self._coarse[0][0] if self._coarse else now_s
        if self._fine and self._fine[0][0] < first_s + TEN_MINUTES_S:  # of a young server, to the minute
            first_s = self._fine[0][0]
        return min(window_s, max(float(MINUTE_S), now_s - first_s))

    def over(self, window_s: float, now_s: float, *, excusing: bool = False) -> Events:
        """Events of the last `window_s` seconds: in whole minutes, or ten minutes where that is longer than is kept by
        the minute. `excusing`: what is excused counts as good.
        """
        slots = self._fine if window_s <= FINE_S - 3600 else self._coarse
        good = total = 0.0
        step_s = MINUTE_S if slots is self._fine else TEN_MINUTES_S
        for t, one_good, one_total, excused in reversed(slots):
            if t + step_s <= now_s - window_s:
                break
            good, total = good + one_good + (excused if excusing else 0.0), total + one_total
        return Events(good, total)


def bad_share(events: Events) -> float:
    """The share of events that were not good; 0 without any."""
    return (events.total - events.good) / events.total if events.total else 0.0

"""For how long the oldest entry of a log that not all disks hold has been without them, from looks at its counts.

Place: beside the families of logs; nothing is kept for an entry.
Promise: never more than it is, and less by at most the time between two looks.
"""

from __future__ import annotations

from collections import deque
from typing import Final

LOOKS_MAX: Final = 1000


class CopyAge:
    """Age of the oldest under-replicated entry, for successive logs of a chain."""

    def __init__(self) -> None:
        self._looks: deque[tuple[int, float]] = deque()  # how many entries there were, when; both only grow
        self._log = 0

    def looked(self, appended: tuple[int, int], lacking: int, now_s: float) -> float:
        """Seconds. `appended`: number of the log, and of its entries; `lacking`: of them, and of earlier logs', those
        that some disk has not.
        """
        log, entries = appended
        if log != self._log:  # entries are counted from the beginning again; those of earlier logs came before all
            self._looks = deque((0, at_s) for _, at_s in [*self._looks][:1])
            self._log = log
        if not lacking:
            self._looks.clear()
            return 0.0
        everywhere = entries - lacking
        while self._looks and self._looks[0][0] <= everywhere:
            self._looks.popleft()
        if not self._looks or self._looks[-1][0] < entries:
            self._looks.append((entries, now_s))
            if len(self._looks) > LOOKS_MAX:  # of two, the later one: then it is less than it is
                self._looks = deque(one for number, one in enumerate(self._looks) if number % 2)
        return now_s - self._looks[0][1]

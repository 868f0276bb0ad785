"""Call counts: how the calls of one method ended, and how long they took.

Place: one beside each method of a table (`calls.Unary`, `calls.Streaming`), counted by whatever carries its calls: the
streams of HTTP/2, REST, the twin in memory.
Promise: of each call that began the end is counted once, under the code its caller was given, or under CANCELLED where
the caller had gone. Times are those of the event loop, which knows milliseconds.
"""

from __future__ import annotations

from bisect import bisect_left

from syncpoint.base.model.errors import Code, SyncpointError
from syncpoint.base.model.histogram import Histogram

CODES = len(Code)


class CallCounts:
    """`codes[c]`: calls that ended with code c. `latency`: of all that ended."""

    __slots__ = ("begun", "codes", "latency")

    def __init__(self) -> None:
        self.begun = 0
        self.codes = [0] * CODES
        self.latency = Histogram()

    def ended(self, code: int, seconds: float, calls: int = 1) -> None:
        """Count `calls` calls that had begun and are over, each after `seconds`."""
        self.codes[code] += calls
        latency = self.latency  # as `note` does, without another call for each call
        latency.counts[bisect_left(latency.bounds, seconds)] += calls
        latency.total += seconds * calls

    @property
    def open(self) -> int:
        """Calls that have not ended."""
        return max(0, self.begun - sum(self.codes))


def code_of(error: SyncpointError | None) -> int:
    """The number of the code that a caller is given; None: OK."""
    return 0 if error is None else int(error.code)

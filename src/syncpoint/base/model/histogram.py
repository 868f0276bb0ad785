"""A histogram of plain numbers: how often something took how long, or how large it was.

Place: kept by rooms where a mean would hide what is slow; read by `metrics`. `quantile` is for all who read buckets.
Promise: one note costs a search in some twenty numbers and two additions, and no object. One thread notes at a time;
a reader in between may miss the newest note.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable
from typing import Final

SECONDS: Final = (
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 600.0,
)  # fmt: skip
COUNTS: Final = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1_000.0, 2_000.0, 4_096.0)


class Histogram:
    """`counts[i]`: notes of at most `bounds[i]` that are above the bound before; the last one: of more. `total`: the
    sum of all.
    """

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...] = SECONDS) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def note(self, value: float, times: int = 1) -> None:
        """Count a value `times` times."""
        self.counts[bisect_left(self.bounds, value)] += times
        self.total += value * times

    @property
    def count(self) -> int:
        """How many were noted."""
        return sum(self.counts)


def quantile(cumulative: Iterable[tuple[float, float]], share: float, lower: float = 0.0) -> float:
    """The value at a share of a histogram, straight within a bucket, as histogram_quantile of Prometheus has it; NaN
    of nothing. `cumulative`: upper bounds in order, and how many lie up to each; above `lower`. A value that no bound
    is above of counts as the highest bound.
    """
    ends = list(cumulative)
    rank, below = share * ends[-1][1] if ends else 0.0, 0.0
    for bound, upto in ends:
        if upto >= rank > below:
            return lower if math.isinf(bound) else lower + (bound - lower) * (rank - below) / (upto - below)
        lower, below = bound, upto
    return math.nan

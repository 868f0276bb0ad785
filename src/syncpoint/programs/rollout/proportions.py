"""Bounds on the share of all calls, given the share of n of them.

Place: under `analysis`. Of a few calls almost nothing follows, and the intervals say so: they are wide. They are
Wilson's, with 3 standard deviations: of a true share, one look in 700 lies above by chance.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

DEVIATIONS: Final = 3.0


def interval(hits: float, of: float) -> tuple[float, float]:
    """Between which shares the true one lies, if `hits` of `of` were seen. Of nothing: anything between 0 and 1."""
    if of <= 0:
        return 0.0, 1.0
    share, square = min(1.0, hits / of), DEVIATIONS**2
    middle = (share + square / (2 * of)) / (1 + square / of)
    half = DEVIATIONS / (1 + square / of) * math.sqrt(share * (1 - share) / of + square / (4 * of * of))
    return max(0.0, middle - half) if hits else 0.0, min(1.0, middle + half)


def above(bounds: Sequence[float], counts: Sequence[float], value: float) -> float:
    """How many lie in buckets wholly above a value."""
    return sum(count for index, count in enumerate(counts) if (bounds[index - 1] if index else 0.0) >= value)

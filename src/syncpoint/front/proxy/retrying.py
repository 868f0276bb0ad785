"""How long the proxy waits before it tries again, and for how long it takes a "no" for late news."""

from __future__ import annotations

import math

LAG_S = 3.0  # grace period for another process's copy of the catalog
PAUSES_S = (0.01, 0.02, 0.03, *(0.05,) * 30, 0.1, 0.2, 0.4)  # the next owner of a chain is often ready in a second


def stepped(seconds: float) -> float:
    """A timeout rounded up to one of few values: the transport remembers the header block of each."""
    if seconds > 1.0:
        return float(math.ceil(seconds))
    return max(0.05, math.ceil(seconds * 10) / 10)

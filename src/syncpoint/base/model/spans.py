"""Spans of whole numbers, such as offsets: [begin, end) of a source, and spans that meet as one.

Place: for rooms that remember what was read, copied, lost or removed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class OffsetRange(NamedTuple):
    """Messages [begin, end) of a source."""

    source: int
    begin: int
    end: int


def joined(spans: Iterable[tuple[int, int]], apart: int = 0) -> list[tuple[int, int]]:
    """Return the same numbers as ordered, disjoint spans.

    Spans that overlap, or are at most `apart` from each other, are merged (0: the end is exclusive, 1: it is
    inclusive).
    """
    found: list[tuple[int, int]] = []
    for begin, end in sorted(spans):
        if found and begin <= found[-1][1] + apart:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((begin, end))
    return found

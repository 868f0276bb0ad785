"""Which segments hold which offsets of a source: two dozen bytes per (source, segment) pair, the rest stays on disk.

Place: kept by `store` on the owner's thread; filled at append and when sealed segments are found; asked by every read
that the tail cache does not answer.
Promise: pairs are sorted by first offset. Usually they do not overlap; a source with entries copied forward is
*tangled* until the originals are gone, and then all pairs that could matter are given.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator

_SPAN_MAX = (1 << 32) - 1


class _SourceSegments:
    __slots__ = ("end", "firsts", "segments", "spans", "tangled")

    def __init__(self) -> None:
        self.firsts = array("Q")
        self.spans = array("I")
        self.segments = array("I")
        self.end = 0
        self.tangled = False


class SourceIndex:
    """All sources of which any segment holds messages."""

    __slots__ = ("_sources",)

    def __init__(self) -> None:
        self._sources: dict[int, _SourceSegments] = {}

    def __len__(self) -> int:
        return len(self._sources)

    def __contains__(self, source: int) -> bool:
        return source in self._sources

    def __iter__(self) -> Iterator[int]:
        return iter(self._sources)

    def add(self, source: int, segment: int, first: int, end: int) -> None:
        """`segment` holds messages of `source` between `first` and `end`; more of the same segment widens its pair."""
        state = self._sources.get(source)
        if state is None:
            state = self._sources[source] = _SourceSegments()
        elif state.segments[-1] == segment and state.firsts[-1] <= first:
            begin = state.firsts[-1]
            state.spans[-1] = max(state.spans[-1], min(end - begin, _SPAN_MAX))
            state.tangled = state.tangled or first < state.end
            state.end = max(state.end, end)
            return
        self._insert(state, segment, first, end)

    def first(self, source: int, segment: int) -> int | None:
        """The lowest offset of `source` in `segment`; None where it holds none."""
        state = self._sources.get(source)
        if state is None or segment not in state.segments:
            return None
        return min(first for first, one in zip(state.firsts, state.segments, strict=True) if one == segment)

    def end(self, source: int, segment: int) -> int | None:
        """Behind the highest offset of `source` in `segment`; None where it holds none."""
        state = self._sources.get(source)
        if state is None or segment not in state.segments:
            return None
        pairs = zip(state.firsts, state.spans, state.segments, strict=True)
        return max(first + span for first, span, one in pairs if one == segment)

    def _insert(self, state: _SourceSegments, segment: int, first: int, end: int) -> None:
        if segment in state.segments:
            at = state.segments.index(segment)
            old = state.firsts[at]
            end = max(end, old + state.spans[at])
            first = min(first, old)
            for column in (state.firsts, state.spans, state.segments):
                del column[at]
        at = bisect_right(state.firsts, first)
        if at < len(state.firsts) or first < state.end:
            state.tangled = True
        state.firsts.insert(at, first)
        state.spans.insert(at, min(end - first, _SPAN_MAX))
        state.segments.insert(at, segment)
        state.end = max(state.end, end)

    def remove(self, source: int, segment: int) -> None:
        """`segment` is gone. A source without segments is forgotten."""
        state = self._sources.get(source)
        if state is None or segment not in state.segments:
            return
        at = state.segments.index(segment)
        for column in (state.firsts, state.spans, state.segments):
            del column[at]
        if not state.segments:
            del self._sources[source]
        elif state.tangled:
            ends = [first + span for first, span in zip(state.firsts, state.spans, strict=True)]
            state.tangled = any(end > first for end, first in zip(ends, state.firsts[1:], strict=False))

    def bounds(self, source: int) -> tuple[int, int] | None:
        """First stored offset and the end, or None for a source without stored messages."""
        state = self._sources.get(source)
        return None if state is None else (state.firsts[0], state.end)

    def tangled(self, source: int) -> bool:
        state = self._sources.get(source)
        return state is not None and state.tangled

    def candidates(self, source: int, begin: int, limit: int) -> list[int]:
        """Segments to look into, in order of first offset, for the first message at or after `begin`.

        Up to `limit` of them, all that could matter when the source is tangled.
        """
        state = self._sources.get(source)
        if state is None or begin >= state.end:
            return []
        if state.tangled:
            return [
                segment
                for first, span, segment in zip(state.firsts, state.spans, state.segments, strict=True)
                if first + span > begin
            ]
        at = max(0, bisect_right(state.firsts, begin) - 1)
        if state.firsts[at] + state.spans[at] <= begin:
            at += 1
        return list(state.segments[at : at + limit])

    def around(self, source: int, offset: int) -> list[int]:
        """The segments that hold something of the source both up to and from an offset: others cannot hold it."""
        state = self._sources.get(source)
        if state is None:
            return []
        upto = bisect_right(state.firsts, offset)
        return [state.segments[at] for at in range(upto) if state.firsts[at] + state.spans[at] > offset]

    def segments(self, source: int) -> list[int]:
        """All segments that hold the source, in order of first offset."""
        state = self._sources.get(source)
        return [] if state is None else list(state.segments)

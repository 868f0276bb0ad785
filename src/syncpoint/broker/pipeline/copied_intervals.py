"""Which message here is which message of a link's source: the exact map of offsets.

Place: filled when an epoch is done, asked by MapOffsets, forgotten with the messages.
Representation: a block records that `count` neighbors in a source here are copies, in order, of the offsets in `runs`.
A whole copy is one run, and blocks that continue each other become one, so a source replicated whole costs a few
blocks; a selection costs about two bytes a message. Bounded by what is stored: blocks below the first stored offset go.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from syncpoint.broker.pipeline import offset_runs

RUNS_MAX = 4096  # bytes of runs up to which neighbouring blocks become one


class OffsetBlock(NamedTuple):
    """Messages [first, first + count) of source `source` here, `topic` by its name, are those of `link_source`."""

    link: str
    link_source: int
    source: int
    topic: str
    first: int
    count: int  # type: ignore[assignment]  # shadows tuple.count, which nobody wants here
    runs: bytes

    @property
    def end(self) -> int:
        return self.first + self.count


class Mapped(NamedTuple):
    """Offsets [begin, begin + count) of a link's source lie at [first, first + count) of `source` here."""

    begin: int
    topic: str
    source: int
    first: int
    count: int  # type: ignore[assignment]  # as above


class Copies:
    """All blocks, by source here, each list rising."""

    def __init__(self) -> None:
        self._blocks: dict[int, list[OffsetBlock]] = {}
        self.on_leaving: Callable[[OffsetBlock], None] | None = None  # what of a block is about to be forgotten

    def __len__(self) -> int:
        return sum(map(len, self._blocks.values()))

    def add(self, block: OffsetBlock) -> None:
        """Enter a block; what is known already is not entered twice."""
        held = self._blocks.setdefault(block.source, [])
        at = bisect_right(held, block.first, key=lambda one: one.first)
        before = held[at - 1] if at else None
        if before is not None and before.end >= block.end:
            return
        if before is not None and _continues(before, block):
            held[at - 1] = before._replace(count=before.count + block.count, runs=_joined(before, block))
        else:
            held.insert(at, block)

    def blocks(self) -> Iterator[OffsetBlock]:
        """All of them; may change in the meantime."""
        for source in list(self._blocks):
            yield from list(self._blocks.get(source, ()))

    def of_source(self, source: int, link: str) -> list[OffsetBlock]:
        """The blocks of a source here that a link has copied, rising."""
        return [block for block in self._blocks.get(source, ()) if block.link == link]

    def of_link(self, link: str, link_source: int, begin: int, end: int) -> list[OffsetBlock]:
        """The blocks that may have some of [begin, end) of a link's source."""
        return [
            block
            for block in self.blocks()
            if block.link == link
            and block.link_source == link_source
            and (bounds := _bounds(block.runs))[0] < end
            and bounds[1] > begin
        ]

    def forget(self, source: int) -> None:
        """Nothing of a source is stored any more."""
        self._blocks.pop(source, None)

    def prune(self, first_stored: Callable[[int], int | None]) -> None:
        """Forget what is not stored any more; `first_stored(source)`: None where nothing is known of it yet."""
        for source, held in list(self._blocks.items()):
            first = first_stored(source)
            if first is not None and held and held[0].first < first:
                if self.on_leaving is not None:
                    for block in [one for one in held if one.first < first]:
                        self.on_leaving(_head(block, first))
                kept = [_cut(block, first) for block in held if block.end > first]
                if kept:
                    self._blocks[source] = kept
                else:
                    del self._blocks[source]

    def find(self, link: str, link_source: int, begin: int, end: int, limit: int) -> list[Mapped]:
        """Up to `limit` ranges in [begin, end) of a link's source, rising; neighbours on both sides are one."""
        found = []
        for block in self.blocks():
            if block.link == link and block.link_source == link_source:
                first = block.first
                for start, length in offset_runs.decode(block.runs):
                    low, high = max(start, begin), min(start + length, end)
                    if low < high:
                        found.append(Mapped(low, block.topic, block.source, first + low - start, high - low))
                    first += length
        found.sort()
        joined: list[Mapped] = []
        for one in found:
            last = joined[-1] if joined else None
            if (
                last is not None
                and last.source == one.source
                and last.begin + last.count == one.begin
                and last.first + last.count == one.first
            ):
                joined[-1] = last._replace(count=last.count + one.count)
            elif len(joined) == limit:
                break
            else:
                joined.append(one)
        return joined


_bounds = lru_cache(maxsize=4096)(offset_runs.bounds)


def _head(block: OffsetBlock, end: int) -> OffsetBlock:
    """The part of a block below an offset."""
    if block.end <= end:
        return block
    count = end - block.first
    return block._replace(count=count, runs=offset_runs.first(block.runs, count))


def copied_from(runs: Iterable[tuple[int, int]], blocks: Iterable[OffsetBlock]) -> Iterator[tuple[int, int, int]]:
    """(link source, begin, length) of what rising runs (begin, length) of a source here are copies of, by its blocks,
    which rise, too.
    """
    left = deque(runs)
    for block in blocks:
        first = block.first
        while left and sum(left[0]) <= first:
            left.popleft()
        if not left:
            return
        if left[0][0] >= block.end:
            continue
        for start, length in offset_runs.decode(block.runs):
            at = 0
            while at < len(left) and left[at][0] < first + length:
                low, high = max(left[at][0], first), min(sum(left[at]), first + length)
                if low < high:
                    yield block.link_source, start + low - first, high - low
                if sum(left[at]) <= first + length and at == 0:
                    left.popleft()
                else:
                    at += 1
            first += length


def copied_to(runs: Sequence[tuple[int, int]], block: OffsetBlock) -> Iterator[tuple[int, int]]:
    """(begin, length) of where the rising runs of a link's source lie in a block."""
    first, at = block.first, 0
    for start, length in offset_runs.decode(block.runs):
        while at < len(runs) and sum(runs[at]) <= start:
            at += 1
        here = at
        while here < len(runs) and runs[here][0] < start + length:
            low, high = max(runs[here][0], start), min(sum(runs[here]), start + length)
            yield first + low - start, high - low
            here += 1
        first += length


def _cut(block: OffsetBlock, first: int) -> OffsetBlock:
    gone = max(0, first - block.first)
    return block._replace(first=block.first + gone, count=block.count - gone, runs=offset_runs.behind(block.runs, gone))


def _continues(before: OffsetBlock, block: OffsetBlock) -> bool:
    return (
        before.end == block.first
        and (before.link, before.link_source, before.topic) == (block.link, block.link_source, block.topic)
        and len(before.runs) + len(block.runs) <= RUNS_MAX
        and offset_runs.bounds(before.runs)[1] <= offset_runs.bounds(block.runs)[0]
    )


def _joined(before: OffsetBlock, block: OffsetBlock) -> bytes:
    def pairs() -> Iterator[tuple[int, int]]:
        last: tuple[int, int] | None = None
        for run in (*offset_runs.decode(before.runs), *offset_runs.decode(block.runs)):
            if last is not None and last[0] + last[1] == run[0]:
                last = last[0], last[1] + run[1]
                continue
            if last is not None:
                yield last
            last = run
        if last is not None:
            yield last

    return offset_runs.encode(pairs())

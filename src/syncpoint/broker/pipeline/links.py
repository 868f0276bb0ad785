"""One-to-one links: how far each source is replicated, and what an epoch may still add.

Place: asked by `epochs` for every commit that names a link. A machine: it changes nothing but the link it is given.
Promises: an interval moves by what an epoch was *planned* to copy, whatever rows came of it. Rows below an interval's
end are duplicates; a plan that begins after it leaves a gap and is refused. Within a chain a source comes after all
with a lower number, so a link is at one source of each chain, besides those the newest epochs still named: however
often the other side restarts, a link stays small.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from syncpoint.base.model.errors import FailedPrecondition, InvalidArgument


class PlannedRange(NamedTuple):
    """Offsets [begin, end) of a source of a chain."""

    source: int
    begin: int
    end: int
    chain: int = 0

    def __str__(self) -> str:
        return f"source {self.source} [{self.begin}, {self.end})"


@dataclass(slots=True)
class Interval:
    """What is committed of a source: [begin, end). `base`: where the link began; `begin` is later after a gap."""

    chain: int
    base: int
    begin: int
    end: int


@dataclass(slots=True)
class LinkState:
    """A link, as its target knows it. `finished`: by chain, the highest source that left the intervals."""

    name: str
    source_topic: str
    intervals: dict[int, Interval] = field(default_factory=dict)
    finished: dict[int, int] = field(default_factory=dict)
    refused: tuple[PlannedRange, ...] = ()
    skipped: list[PlannedRange] = field(default_factory=list)
    rows: int = 0
    bytes: int = 0
    epochs: int = 0
    duplicates: int = 0
    gaps_refused: int = 0
    committed_ns: int = 0

    def copy(self) -> "LinkState":
        """Return a copy that may be changed."""
        intervals = {source: Interval(i.chain, i.base, i.begin, i.end) for source, i in self.intervals.items()}
        return LinkState(
            self.name, self.source_topic, intervals, dict(self.finished), self.refused, list(self.skipped), self.rows,
            self.bytes, self.epochs, self.duplicates, self.gaps_refused, self.committed_ns,
        )  # fmt: skip

    def newest(self, chain: int) -> int | None:
        """The last source the link was at in a chain; None: it knows nothing of the chain."""
        known = [source for source, interval in self.intervals.items() if interval.chain == chain]
        if chain in self.finished:
            known.append(self.finished[chain])
        return max(known, default=None)


def check_plan(link: LinkState | None, source_topic: str, planned: Sequence[PlannedRange]) -> None:
    """Raises `InvalidArgument` for ranges without sense, `FailedPrecondition` for another topic than the link's."""
    seen: set[int] = set()
    for index, one in enumerate(planned):
        if not 0 <= one.begin <= one.end:
            raise InvalidArgument(f"planned[{index}]", f"{one} must begin at 0 or later and not end before it begins")
        if one.source in seen:
            raise InvalidArgument(f"planned[{index}].source", f"source {one.source} is planned twice")
        seen.add(one.source)
    if link is not None and link.source_topic != source_topic:
        raise FailedPrecondition(
            f"Link {link.name} copies {link.source_topic}, not {source_topic}: the topic was deleted and created"
            " again, or another one was named. Use a new link name for the new topic."
        )


def floor(link: LinkState, planned: PlannedRange) -> int:
    """Rows of the source below this offset were committed before."""
    known = link.intervals.get(planned.source)
    if known is not None:
        return known.end
    newest = link.newest(planned.chain)
    if newest is not None and planned.source <= newest:
        return planned.end  # the link is past it: the chain has gone on to later sources
    return 0


def gaps(link: LinkState, planned: Iterable[PlannedRange]) -> tuple[PlannedRange, ...]:
    """What lies between the committed intervals and the plan: never copied, and not planned either."""
    found = []
    for one in planned:
        known = link.intervals.get(one.source)
        if known is not None:
            expected = known.end
        else:
            newest = link.newest(one.chain)
            # The first of a chain begins the link there. A later one follows the chain without a break.
            expected = one.begin if newest is None or one.source <= newest else 0
        if one.begin > expected:
            found.append(PlannedRange(one.source, expected, one.begin, one.chain))
    return tuple(found)


def is_done(link: LinkState, planned: Iterable[PlannedRange]) -> bool:
    """Whether all that is planned was committed before."""
    return all(floor(link, one) >= one.end and (one.source in link.intervals or floor(link, one)) for one in planned)


def advance(link: LinkState, planned: Sequence[PlannedRange], skipped: Sequence[PlannedRange]) -> None:
    """The plan is committed, and these gaps are accepted with it."""
    accept(link, skipped)
    for one in sorted(planned, key=lambda one: (one.chain, one.source)):
        known = link.intervals.get(one.source)
        if known is not None:
            known.end = max(known.end, one.end)
            continue
        newest = link.newest(one.chain)
        if newest is None or one.source > newest:
            link.intervals[one.source] = Interval(one.chain, one.begin, one.begin, one.end)
    named = {one.source for one in planned}
    for source, interval in list(link.intervals.items()):
        if source not in named and any(one.chain == interval.chain and one.source > source for one in planned):
            # An epoch has gone on to a later source of the chain: this one was read to its end.
            del link.intervals[source]
            link.finished[interval.chain] = max(source, link.finished.get(interval.chain, 0))
    link.refused = ()


def accept(link: LinkState, skipped: Iterable[PlannedRange]) -> None:
    """Continue after gaps; they are remembered for ever, neighbors as one."""
    for gap in skipped:
        known = link.intervals.get(gap.source)
        if known is None:
            link.intervals[gap.source] = Interval(gap.chain, gap.end, gap.end, gap.end)
        elif gap.end > known.end:
            known.begin = known.end = gap.end
        last = link.skipped[-1] if link.skipped else None
        if last is not None and last.source == gap.source and last.end == gap.begin:
            link.skipped[-1] = last._replace(end=gap.end)
        elif gap not in link.skipped:
            link.skipped.append(gap)
    link.refused = ()


def refuse(link: LinkState, found: tuple[PlannedRange, ...]) -> None:
    """A commit was refused because of these gaps."""
    link.refused = found
    link.gaps_refused += 1

"""Whether the deliveries of one topic add up: its log is compared with its records, by runs of offsets.

Place: a machine under `project_reconciliation`, without Spark; `analytics.delivery_reconciliation` reads each
message as well, and its bytes.
Promise: judged is what was recorded as published in the window, nothing else. What records that are missing may
explain is counted as unknown, and never called amiss. A message that is amiss is named by its place.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from syncpoint.base.model.spans import joined
from syncpoint.broker.recording.record_gaps import RecordGap, gaps_of, of_content
from syncpoint.broker.recording.record_kinds import ACKNOWLEDGED, DELIVERED, OVER, PUBLISHED, STORED

MARGIN_US: Final = 1_000_000
"""A delivery so soon after the acknowledgement may have been before it, by another clock."""
HOPS: Final = {
    "lost": "persist",
    "unrecorded": "publish",
    "never delivered": "deliver",
    "acknowledged without delivery": "acknowledge",
    "delivered after acknowledgement": "deliver",
}
Span = tuple[int, int]


class Amiss(NamedTuple):
    """Messages [begin, end) of a source, for a subscription or ("") for the topic."""

    kind: str
    source: int
    begin: int
    end: int
    subscription: str = ""


class Window(NamedTuple):
    """Messages published from `since_us` until `until_us` are judged, both in microseconds since 1970."""

    since_us: int
    until_us: int


@dataclass(slots=True)
class _Copies:
    """What became of one source for one subscription: runs, with the time of deliveries and acknowledgements."""

    delivered: list[tuple[int, int, int]] = field(default_factory=list)
    acknowledged: list[tuple[int, int, int]] = field(default_factory=list)
    over: list[Span] = field(default_factory=list)


class ReconciledTopic:
    """Takes records in any order, then judges.

    `exchanged`: acknowledgements come from other sites, too. `kept_since_us`: the topic's retention keeps what was
    published from then on; what was published before goes once it is acknowledged, with its whole source in the end.
    """

    def __init__(self, window: Window, *, exchanged: bool = False, kept_since_us: int | None = None) -> None:
        self._window, self._exchanged, self._kept_since_us = window, exchanged, kept_since_us
        self._kept: dict[int, list[Span]] = defaultdict(list)
        self._stored: dict[int, list[Span]] = defaultdict(list)
        self._published: dict[int, list[Span]] = defaultdict(list)
        self._copies: dict[tuple[str, int, int], _Copies] = defaultdict(_Copies)
        self._generations: dict[str, int] = defaultdict(int)
        self._laned: set[str] = set()
        self._messages: list[Any] = []

    @property
    def messages(self) -> int:
        """How many are judged."""
        return sum(end - begin for spans in self._published.values() for begin, end in joined(spans))

    def add(self, content: Mapping[str, Any]) -> None:
        """A message of the records topic that is about this one."""
        self._messages.append(of_content(dict(content)))
        for record in content["records"]:
            kind, source = record["kind"], record["source"]
            runs = [(begin, begin + count) for begin, count in record["runs"]]
            if kind in STORED:
                self._stored[source] += runs
                if kind == PUBLISHED and self._window.since_us <= record["published"] < self._window.until_us:
                    self._published[source] += runs
                    if self._kept_since_us is not None and record["published"] >= self._kept_since_us:
                        self._kept[source] += runs
            elif record.get("subscription"):
                self._add_copies(record, runs)

    def _add_copies(self, record: Mapping[str, Any], runs: list[Span]) -> None:
        name, generation = record["subscription"], record.get("generation", 0)
        if "lane" in record:
            self._laned.add(name)
            return
        self._generations[name] = max(generation, self._generations[name])
        copies = self._copies[name, record["source"], generation]
        if record["kind"] == DELIVERED:
            copies.delivered += [(*run, record["at"]) for run in runs]
        elif record["kind"] == ACKNOWLEDGED:
            copies.acknowledged += [(*run, record["at"]) for run in runs]
        elif record["kind"] in OVER:
            copies.over += runs

    def gaps(self) -> list[RecordGap]:
        """Times of which nothing is known."""
        return list(gaps_of(self._messages, since_us=self._window.since_us))

    def judge(
        self, log: Mapping[int, Span], subscriptions: Collection[str], ordered: Collection[str]
    ) -> tuple[list[Amiss], int]:
        """What is amiss, and how many messages are not known to be well. `log`: by source, the first offset that is
        stored and the next one; `ordered`: subscriptions in which a key may hold back later messages.
        """
        found = [*self._lost(log), *self._unrecorded(log)]
        for name in subscriptions:
            if name not in self._laned:
                found += self._of_subscription(name, ordered=name in ordered)
        if not self.gaps():
            return found, 0
        # An event may have happened in a gap; one that is recorded to have happened did.
        sure = [one for one in found if one.kind in ("lost", "delivered after acknowledgement")]
        return sure, sum(one.end - one.begin for one in found if one not in sure)

    def _lost(self, log: Mapping[int, Span]) -> Iterator[Amiss]:
        for source, spans in self._published.items():
            stored = [log[source]] if source in log else []
            beyond = [(stored[0][1], max(end for _, end in spans))] if stored else []
            missing = [*minus(joined(self._kept[source]), stored), *common(joined(spans), beyond)]
            for begin, stop in joined(missing):
                yield Amiss("lost", source, begin, stop)

    def _unrecorded(self, log: Mapping[int, Span]) -> Iterator[Amiss]:
        """Between the first that is recorded as published in the window and the last one: nothing may be missing."""
        for source, spans in self._published.items():
            first, last = min(spans)[0], max(end for _, end in spans)
            begin, end = log.get(source, (0, 0))
            for hole in minus([(max(first, begin), min(last, end))], joined(self._stored[source])):
                yield Amiss("unrecorded", source, *hole)

    def _of_subscription(self, name: str, *, ordered: bool) -> Iterator[Amiss]:
        generation = self._generations[name]
        for source, spans in self._published.items():
            copies = self._copies.get((name, source, generation), _Copies())
            judged = joined(spans)
            delivered = joined(run[:2] for run in copies.delivered)
            done = joined([*delivered, *copies.over])
            acknowledged = joined(run[:2] for run in copies.acknowledged)
            if not self._exchanged:
                for one in minus(common(judged, acknowledged), done):
                    yield Amiss("acknowledged without delivery", source, *one, name)
            # Later messages of the source were delivered, all of these long before now.
            last = max((end for _, end in common(judged, delivered)), default=0)
            waiting = minus([(begin, min(end, last)) for begin, end in judged if begin < last], done)
            for one in () if ordered else minus(waiting, acknowledged):
                yield Amiss("never delivered", source, *one, name)
        for (subscription, source, _), copies in self._copies.items():
            if subscription == name:
                yield from self._again(name, source, copies)

    def _again(self, name: str, source: int, copies: _Copies) -> Iterator[Amiss]:
        """Deliveries of what was acknowledged in the same generation."""
        known = _first_times(copies.acknowledged)
        begins = [one[0] for one in known]
        for begin, end, at in copies.delivered:
            for place in range(max(0, bisect_right(begins, begin) - 1), len(known)):
                acked_begin, acked_end, acked_at = known[place]
                if acked_begin >= end:
                    break
                if acked_end > begin and at > acked_at + MARGIN_US:
                    first, last = max(begin, acked_begin), min(end, acked_end)
                    yield Amiss("delivered after acknowledgement", source, first, last, name)


def _first_times(runs: Iterable[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """Without overlaps, in order."""
    found: list[tuple[int, int, int]] = []
    for begin, end, at in sorted(runs):
        first = max(begin, found[-1][1]) if found else begin
        if first < end:
            found.append((first, end, at))
    return found


def minus(spans: Iterable[Span], without: list[Span]) -> list[Span]:
    """What is in the first and not in the second; both ordered and disjoint."""
    found, ends = [], [end for _, end in without]
    for begin, end in spans:
        at = begin
        for place in range(bisect_right(ends, begin), len(without)):
            gap_begin, gap_end = without[place]
            if gap_begin >= end:
                break
            if gap_begin > at:
                found.append((at, gap_begin))
            at = max(at, gap_end)
        if at < end:
            found.append((at, end))
    return found


def common(spans: list[Span], others: list[Span]) -> list[Span]:
    """What is in both; both ordered and disjoint."""
    return minus(spans, minus(spans, others))

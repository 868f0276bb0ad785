"""Expiry: when the time to live of messages ends, that of their topic and subscription and their own.

Place: `deliverable` asks what has run out before it hands messages out, `retention` before it lets them be deleted.
The time of a topic and of a subscription is a ceiling and follows from when a message was published: nothing is kept
for it. Times that messages carry (`sys.TimeToLive`) are kept in an `ExpiryIndex`, by runs of messages, as facts in
front of the messages; the messages themselves are read only where something of a run has run out.
Promise: nothing expires before a time that has surely been reached (`TrustedClock.sure_ns`), so a wrong clock
makes it late rather than early. What is lent is not asked for: whoever has it may acknowledge it.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from functools import reduce
from typing import NamedTuple

from syncpoint.base.kernel import lifetimes as kernel
from syncpoint.broker.publish.facts.message_facts import FactLog, MessageFacts
from syncpoint.broker.publish.facts.records import ExtensionNumber
from syncpoint.broker.publish.facts.source import Source
from syncpoint.catalog.metadata.records import Subscription, Topic

NEVER_NS = (1 << 63) - 1
LENT_NS = 600_000_000_000  # how long an exactly-once subscriber may ack an expired message: the longest lease
JOINED_NS = 1_000_000_000  # neighbours whose times differ no more are one run; the longer the time, the more,
JOINED_PART = 1000  # by this part of it
RUNS_MAX = 20_000  # of one source; beyond that neighbours are joined whatever their times are
_RUN = struct.Struct("<QQQqq")
_NS, _MS_NS = 1_000_000_000, 1_000_000


class ExpiryRun(NamedTuple):
    """In messages `[begin, end)`, none expires before `soonest_ns`, and all have expired at `latest_ns`."""

    begin: int
    end: int
    soonest_ns: int
    latest_ns: int


class SourceRun(NamedTuple):
    """What is known of a run of a source's messages. `joined_ns`: it is joined to a neighbor whose times differ no
    more; -1: to none.
    """

    source: int
    run: ExpiryRun
    joined_ns: int = -1


def lives_of(source: int, begin: int, count: int, time_ns: int, payload: bytes) -> SourceRun:
    """Compute the expiry of a batch of messages published from `begin` on."""
    shortest_ms, longest_ms, without = kernel.spans(payload)
    latest = NEVER_NS if without else min(NEVER_NS, time_ns + longest_ms * _MS_NS)
    run = ExpiryRun(begin, begin + count, min(NEVER_NS, time_ns + shortest_ms * _MS_NS), latest)
    return SourceRun(source, run, JOINED_NS + shortest_ms * _MS_NS // JOINED_PART)


class ExpiryIndex(MessageFacts[SourceRun]):
    """Index when stored messages expire. `bounds(source)`: the offsets that storage has of a source."""

    number = ExtensionNumber.EXPIRY
    counts = False
    part = 500

    def __init__(self, log: FactLog, bounds: Callable[[int], tuple[int, int] | None]) -> None:
        super().__init__(log)
        self._bounds = bounds
        self.runs: dict[int, list[ExpiryRun]] = {}  # by source: in order, without overlaps

    def soonest_ns(self, source: int, begin: int, end: int) -> int:
        """Before this time nothing of `[begin, end)` runs out by a time of its own."""
        return min((run.soonest_ns for run in self._within(source, begin, end)), default=NEVER_NS)

    def latest_ns(self, source: int, begin: int, end: int) -> int:
        """From this time on everything of `[begin, end)` has run out by a time of its own."""
        latest = 0
        for run in self._within(source, begin, end):
            if run.begin > begin:
                break
            begin, latest = run.end, max(latest, run.latest_ns)
            if begin >= end:
                return latest
        return NEVER_NS

    def ended(self, source: int, begin: int, end: int, now_ns: int) -> list[tuple[int, int]]:
        """Return the parts of `[begin, end)` that have expired for certain, without reading messages."""
        runs = (run for run in self._within(source, begin, end) if run.latest_ns <= now_ns)
        return [(max(begin, run.begin), min(end, run.end)) for run in runs]

    def __len__(self) -> int:
        return sum(len(runs) for runs in self.runs.values())

    def _within(self, source: int, begin: int, end: int) -> Iterator[ExpiryRun]:
        """The runs that `[begin, end)` overlaps."""
        runs = self.runs.get(source)
        if not runs:
            return
        at = max(0, bisect_right(runs, begin, key=_begin) - 1)
        while at < len(runs) and runs[at].begin < end:
            if runs[at].end > begin:
                yield runs[at]
            at += 1

    def apply(self, fact: SourceRun) -> None:
        """Facts of a checkpoint overlap those that were written while it was."""
        source, run, joined_ns = fact
        runs = self.runs.setdefault(source, [])
        last = runs[-1] if runs else None
        if last is None or last.end < run.begin:
            runs.append(run)
        elif last.end == run.begin:
            apart = run.soonest_ns - last.soonest_ns
            ends = (run.latest_ns == NEVER_NS) == (last.latest_ns == NEVER_NS)
            if ends and abs(apart) <= joined_ns:
                runs[-1] = _joined(last, run)
            else:
                runs.append(run)
        else:
            overlapped = list(self._within(source, run.begin, run.end))
            if not overlapped:
                runs.insert(bisect_right(runs, run.begin, key=_begin), run)
            else:
                at = runs.index(overlapped[0])
                for one in overlapped:
                    run = _joined(one, run)
                runs[at : at + len(overlapped)] = [run]
        if len(runs) > RUNS_MAX:
            self.runs[source] = [reduce(_joined, runs[at : at + 2]) for at in range(0, len(runs), 2)]

    # -- facts -------------------------------------------------------------------------------------------------------

    @classmethod
    def encode(cls, facts: Iterable[SourceRun]) -> bytes:
        return b"".join(_RUN.pack(source, *run) for source, run, _ in facts)

    @classmethod
    def decode(cls, rows: bytes) -> Iterable[SourceRun]:
        return (SourceRun(source, ExpiryRun(*run)) for source, *run in _RUN.iter_unpack(rows))

    def kept(self) -> Iterator[SourceRun]:
        """What is deleted is forgotten here."""
        for source in list(self.runs):
            bounds, runs = self._bounds(source), self.runs.get(source, [])
            if bounds is not None:
                stored = [run for run in runs if run.end > bounds[0]]
                if len(stored) < len(runs):
                    self.runs[source] = runs = stored
            yield from [SourceRun(source, run) for run in runs]

    def forgotten(self, source: Source) -> None:
        self.runs.pop(source.number, None)


def time_to_live_ns(record: Subscription, topic: Topic | None) -> int:
    """How long messages of a topic live at most for a subscription; 0: without end."""
    own, of_topic = record.options.ttl_s, topic.options.default_ttl_s if topic is not None else 0
    return (min(own, of_topic) if own and of_topic else own or of_topic) * _NS


def goes_to_letters(record: Subscription) -> bool:
    """Whether what runs out goes to the dead-letter topic, instead of being dropped."""
    return record.options.dead_letter_expired and record.dead_letter is not None


def _begin(run: ExpiryRun) -> int:
    return run.begin


def _joined(one: ExpiryRun, other: ExpiryRun) -> ExpiryRun:
    gap = one.end < other.begin or other.end < one.begin
    latest = NEVER_NS if gap else max(one.latest_ns, other.latest_ns)
    begin, end = min(one.begin, other.begin), max(one.end, other.end)
    return ExpiryRun(begin, end, min(one.soonest_ns, other.soonest_ns), latest)

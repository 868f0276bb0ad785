"""At risk: which messages of a chain failures would lose, hold back or have delivered twice, counted beforehand.

Place: serves `internal.v1.Chains/AtRisk`, and called directly on one node; `storage.entries_at_risk` decides about
entries, here they become messages that somebody still needs. `api.at_risk_admin` asks all chains and adds what is lent.
Promise: where entries lie is judged as of one turn; acknowledgements count as they come in until the answer. Indexes
are read only of segments that a failure touches, one at a time; what cannot be read is an error, never "nothing".
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from syncpoint.base.kernel.acks import AckSet, decode_runs
from syncpoint.base.model.lanes import place_in
from syncpoint.base.runtime.tasks import complete
from syncpoint.broker.publish.facts import records
from syncpoint.broker.publish.facts.source_ends import stored_run
from syncpoint.broker.publish.intake.forwarder import PublishForwarder
from syncpoint.broker.publish.keep.retention import Run, needed_runs
from syncpoint.log.storage.entries_at_risk import (
    DiskFailure,
    EntryFate,
    FailureJudgement,
    SegmentHolding,
    SegmentRows,
    StoreHoldings,
)
from syncpoint.log.storage.index import IndexRecord
from syncpoint.log.storage.record import CHECKPOINT_KINDS, MESSAGE_KINDS, EntryKind
from syncpoint.wire.protobuf.messages import internal

_PAUSE_ENTRIES = 256  # judged in one turn of the event loop


class ThreatenedEntry(NamedTuple):
    """One stored entry of messages, and which of them are needed."""

    source: int
    runs: Sequence[Run]
    bytes: int
    time_ns: int


@dataclass(slots=True)
class ThreatSum:
    """Messages of one topic, or of one subscription of it."""

    bytes: int = 0
    oldest_ns: int = 0
    offsets: dict[int, AckSet] = field(default_factory=dict)  # by source

    def add(self, entry: ThreatenedEntry) -> None:
        """Count an entry in."""
        held = self.of(entry.source)
        for begin, end in entry.runs:
            held.add(begin, end)
        self.bytes += entry.bytes
        self.oldest_ns = min(self.oldest_ns or entry.time_ns, entry.time_ns)

    def take(self, other: ThreatSum) -> None:
        """Count in what another sum has."""
        for source, found in other.offsets.items():
            self.of(source).union(found)
        self.bytes += other.bytes
        self.oldest_ns = min(self.oldest_ns or other.oldest_ns, other.oldest_ns or self.oldest_ns)

    def of(self, source: int) -> AckSet:
        """Its offsets in a source."""
        return self.offsets.setdefault(source, AckSet())

    def message(self, topic: int, subscription: int = 0) -> internal.RiskSum:
        """As a RiskSum."""
        ranges = [
            number
            for source, held in sorted(self.offsets.items())
            for begin, length in held.runs()
            for number in (source, begin, begin + length)
        ]
        return internal.RiskSum(
            topic=topic,
            subscription=subscription,
            messages=sum(len(held) for held in self.offsets.values()),
            bytes=self.bytes,
            oldest_ns=self.oldest_ns,
            ranges=ranges,
        )


class _AlikeEntries:
    """Entries that lie on the same disks: one fate is that of all, and messages are counted once for however many
    failures. `at`: the first of them; `losing`: the failures that lose them.
    """

    def __init__(self, at: IndexRecord, losing: Sequence[ChainForecast]) -> None:
        self.at, self.losing = at, losing
        self.stored: dict[int, AckSet] = {}  # by source
        self.needed: dict[int, ThreatSum] = {}  # by topic

    def add(self, record: IndexRecord, entry: ThreatenedEntry | None, topic: int) -> None:
        stored = self.stored.get(record.source)
        if stored is None:
            stored = self.stored[record.source] = AckSet()
        stored.add(record.first_offset, record.first_offset + record.count)
        if entry is not None:
            self.needed.setdefault(topic, ThreatSum()).add(entry)


class _SeenEntry(NamedTuple):
    fate: EntryFate
    record: IndexRecord
    entry: ThreatenedEntry | None  # None: nobody needs it


class ChainForecast:
    """What one failure would do to one chain; filled entry by entry."""

    def __init__(self, forwarder: PublishForwarder, holdings: StoreHoldings, failure: DiskFailure) -> None:
        self.judgement = FailureJudgement(holdings, failure)
        self._forwarder, self._holdings, self._failure = forwarder, holdings, failure
        self._doubles: dict[tuple[int, int], _SeenEntry] = {}  # of what is stored twice: its better copy
        self._vanished: dict[int, AckSet] = {}  # by source: no disk has them, whether somebody needs them or not
        self._lost: dict[int, ThreatSum] = {}  # by topic
        self._away: dict[int, ThreatSum] = {}
        self._acks: list[records.Acks] = []  # acknowledgements that would be forgotten
        self._facts = 0
        self._forgets = False  # also the content of the newest checkpoint

    def looks_into(self, segment: SegmentHolding) -> bool:
        """Whether its entries have to be seen."""
        return bool(self.judgement.stops) or self.judgement.touches(segment)

    def see_message(self, segment: SegmentHolding, record: IndexRecord, entry: ThreatenedEntry | None) -> None:
        """An entry of messages. `entry`: those that are needed; None where none is."""
        seen = _SeenEntry(self.judgement.fate(segment, record), record, entry)
        if self._forwarder.store.segments_of(record.source) is None:
            self._count(seen)
            return
        key = (record.source, record.first_offset)
        known = self._doubles.get(key)
        if known is None or seen.fate < known.fate:
            self._doubles[key] = seen

    def see_fact(self, segment: SegmentHolding, record: IndexRecord, payload: bytes) -> None:
        """An entry of another kind."""
        if self.judgement.fate(segment, record) is not EntryFate.LOST:
            return
        place = (segment.log, segment.first_position + record.ordinal)
        if place < self._holdings.floor:
            return  # the newest checkpoint stands for it
        if record.kind in CHECKPOINT_KINDS:
            self._forgets = self._forgets or self._holdings.floor > (0, 0)
        elif record.kind == EntryKind.ACKS:
            self._acks.extend(records.decode_acks(payload))
        else:
            self._facts += 1

    def see_alike(self, segment: SegmentHolding, entries: _AlikeEntries) -> None:
        """Entries of messages, none of which is stored twice."""
        fate = self.judgement.fate(segment, entries.at)
        if fate is EntryFate.LOST:
            for source, stored in entries.stored.items():
                self._vanished.setdefault(source, AckSet()).union(stored)
        if fate is EntryFate.HELD and not self.judgement.stops:
            return
        sums = self._lost if fate is EntryFate.LOST else self._away
        for topic, found in entries.needed.items():
            sums.setdefault(topic, ThreatSum()).take(found)

    def _count(self, seen: _SeenEntry) -> None:
        fate, record, entry = seen
        if fate is EntryFate.LOST:
            vanished = self._vanished.setdefault(record.source, AckSet())
            vanished.add(record.first_offset, record.first_offset + record.count)
        if entry is None or (fate is EntryFate.HELD and not self.judgement.stops):
            return
        sums = self._lost if fate is EntryFate.LOST else self._away
        sums.setdefault(_topic_of(self._forwarder, entry.source), ThreatSum()).add(entry)

    def outcome(self) -> internal.ChainOutcome:
        """All of it, once every entry was seen."""
        for seen in self._doubles.values():
            self._count(seen)
        answer = internal.ChainOutcome(stops=self.judgement.stops, facts=self._facts)
        answer.lost.extend(one.message(topic) for topic, one in sorted(self._lost.items()))
        answer.unavailable.extend(one.message(topic) for topic, one in sorted(self._away.items()))
        for (topic, subscription), one in sorted(self._twice().items()):
            message = one.message(topic, subscription)
            if message.messages:
                answer.twice.append(message)
        return answer

    def _twice(self) -> dict[tuple[int, int], ThreatSum]:
        """Messages whose acknowledgement would be forgotten with the process that knows of it, and that are not."""
        found: dict[tuple[int, int], ThreatSum] = {}
        if not self._failure.owner and not self.judgement.stops:
            return found  # the owner remembers, and writes it down again
        forwarder = self._forwarder
        for subscription, source, runs in self._forgotten():
            ledger = forwarder.ledgers.get(subscription)
            known = forwarder.sources.by_number.get(source)
            if ledger is None or known is None:
                continue
            held = found.setdefault((known.topic, subscription), ThreatSum()).of(source)
            first, last = stored_run(forwarder.store, known)
            first = max(first, ledger.start.get(source, 0))
            for begin, end in runs:
                if ledger.has_lane(place_in(begin)[0]):
                    begin, end = place_in(begin)[1], place_in(end - 1)[1] + 1
                    if max(begin, first) < min(end, last):
                        held.add(max(begin, first), min(end, last))
            vanished = self._vanished.get(source)
            for begin, length in vanished.runs() if vanished is not None else ():
                held.remove(begin, begin + length)
        return found

    def _forgotten(self) -> Iterator[tuple[int, int, Iterable[Run]]]:
        """(subscription, source, places)."""
        forwarder = self._forwarder
        if self._forgets:
            for ledger in forwarder.ledgers.values():
                for source, acks in ledger.acks.items():
                    yield ledger.subscription, source, [(begin, begin + length) for begin, length in acks.runs()]
            return
        for one in self._acks:
            known = forwarder.ledgers.get(one.subscription)
            if known is not None and known.generation == one.generation:
                yield one.subscription, one.source, _ends(one.runs)
        if self._failure.owner:
            for (subscription, source), several in forwarder.commit.acks.all_unpersisted().items():
                for runs in several:
                    yield subscription, source, _ends(runs)


def _ends(runs: bytes) -> list[Run]:
    return [(begin, begin + length) for begin, length in decode_runs(runs)]


async def chain_risk(
    chain: int, forwarder: PublishForwarder, names: Sequence[str], asked: internal.AtRiskRequest
) -> internal.ChainRisk:
    """What each failure would do to a chain. `names`: of its disks, by slot; those of other chains are passed over.
    What could not be read is in `unknown`.
    """
    slot_of = {name: slot for slot, name in enumerate(names)}

    def slots(named: Iterable[str]) -> frozenset[int]:
        return frozenset(slot_of[one] for one in named if one in slot_of)

    holdings = forwarder.store.holdings()
    forecasts = [
        ChainForecast(forwarder, holdings, DiskFailure(slots(one.gone), slots(one.silent), one.owner))
        for one in asked.failures
    ]
    answer = internal.ChainRisk(chain=chain, unseen=[names[slot] for slot in sorted(holdings.unseen)])
    try:
        await _see_all(forwarder, holdings, forecasts)
    except Exception as error:  # any storage error: what is known must not look complete
        answer.unknown = str(error) or type(error).__name__
        return answer
    answer.outcomes.extend(forecast.outcome() for forecast in forecasts)
    return answer


async def _see_all(forwarder: PublishForwarder, holdings: StoreHoldings, forecasts: Sequence[ChainForecast]) -> None:
    seen = 0
    doubles = _doubles(forwarder, holdings, forecasts)
    for segment in holdings.segments:
        wanted = [one for one in forecasts if one.looks_into(segment) or segment.id in doubles]
        rows = await _rows(forwarder, segment.id) if wanted else None
        ends = sorted({*segment.upto.values()})  # between two of them all entries are on the same disks
        alike: dict[int, _AlikeEntries] = {}  # by the end before which they are
        for record in rows.records if rows is not None else ():
            position = segment.first_position + record.ordinal
            if position > segment.last_position:
                break  # promised to nobody
            end = bisect_left(ends, position)
            some = alike.get(end)
            if some is None:
                losing = [one for one in wanted if one.judgement.fate(segment, record) is EntryFate.LOST]
                some = alike[end] = _AlikeEntries(record, losing)
            if record.kind in MESSAGE_KINDS:
                entry = _entry(forwarder, record)
                if not segment.bad and forwarder.store.segments_of(record.source) is None:
                    some.add(record, entry, _topic_of(forwarder, record.source))
                else:
                    for forecast in wanted:
                        forecast.see_message(segment, record, entry)
            else:
                payload = rows.payloads.get(record.ordinal, b"") if rows is not None else b""
                for forecast in wanted if segment.bad else some.losing:
                    forecast.see_fact(segment, record, payload)
            seen += 1
            if seen % _PAUSE_ENTRIES == 0:
                await asyncio.sleep(0)
        for some in alike.values():
            for forecast in wanted:
                forecast.see_alike(segment, some)
            await asyncio.sleep(0)


def _topic_of(forwarder: PublishForwarder, source: int) -> int:
    found = forwarder.sources.by_number.get(source)
    return found.topic if found is not None else 0


def _doubles(
    forwarder: PublishForwarder, holdings: StoreHoldings, forecasts: Sequence[ChainForecast]
) -> frozenset[int]:
    """Segments with messages that are stored twice: where some failure touches any, all of them have to be seen."""
    if not any(one.looks_into(segment) for segment in holdings.segments for one in forecasts):
        return frozenset()
    found = (forwarder.store.segments_of(source) for source in forwarder.store.sources())
    return frozenset(segment for some in found if some is not None for segment in some)


async def _rows(forwarder: PublishForwarder, segment: int) -> SegmentRows | None:
    waiting: asyncio.Future[SegmentRows | None] = asyncio.get_running_loop().create_future()
    forwarder.store.segment_rows(segment, EntryKind.ACKS, partial(complete, waiting))
    return await waiting


def _entry(forwarder: PublishForwarder, record: IndexRecord) -> ThreatenedEntry | None:
    runs = needed_runs(forwarder, record.source, record.first_offset, record.count, record.time_ns)
    return ThreatenedEntry(record.source, runs, record.length, record.time_ns) if runs else None

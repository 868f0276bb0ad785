"""What a snapshot holds, in the offsets of the site that published it, and a copy of it at another site.

Place: under `ack_exchange`, whose methods call it; the record of a copy is made by `front.api.snapshot_request`.
Promise: a copy is filled in only where all that was acknowledged in the original has its place here, so that it has the
same messages unacknowledged; sources that a report does not name stay as they were acknowledged here. Filling in may be
done twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from syncpoint.base.kernel.acks import OFFSET_END, AckSet, encode_runs
from syncpoint.base.kernel.errors import Malformed
from syncpoint.base.model.errors import FailedPrecondition, InvalidArgument, NotFound, Unavailable
from syncpoint.base.model.names import parse_snapshot
from syncpoint.broker.pipeline import offset_runs
from syncpoint.broker.pipeline.ack_books import held_runs
from syncpoint.broker.pipeline.copied_intervals import Copies, OffsetBlock, copied_from, copied_to
from syncpoint.broker.pipeline.links import LinkState
from syncpoint.broker.publish.facts.ledger import SnapshotState
from syncpoint.broker.publish.facts.source import Source
from syncpoint.broker.publish.intake.forwarder import PublishForwarder
from syncpoint.broker.publish.intake.seek import retained_since
from syncpoint.catalog.metadata.records import ACTIVE, COPYING, CREATING, Subscription
from syncpoint.catalog.metadata.snapshot_marks import mark_of
from syncpoint.wire.protobuf.messages import pipeline, pubsub

REPORT_BYTES_MAX = 1 << 20


def list_snapshots(publish: PublishForwarder, record: Subscription, seen: int, answer: Any) -> None:
    """Enter the snapshots of a subscription, unless the caller has seen them."""
    catalog, universe = publish.catalog, f"{publish.store.universe:x}"
    answer.place, answer.snapshots_at = f"{universe}/{record.incarnation}", catalog.revision
    if seen and seen == catalog.revision:
        return
    for one in catalog.snapshots_of(record.topic_incarnation):
        if one.subscription != record.incarnation:
            continue
        mark = mark_of(catalog, one.incarnation)
        shown = answer.snapshots.add(
            snapshot=one.name,
            identity=mark.identity or f"{universe}/{one.incarnation}",
            unfinished=one.status == CREATING,
            copying=one.status == COPYING,
            checked=mark.checked,
            labels=pubsub.Snapshot.FromString(one.config).labels,
            known_at=mark.known_at,
            incarnation=one.incarnation,
        )
        shown.expire_time.FromNanoseconds(one.expire_ns)


class SnapshotSets:
    """Snapshots of one log. `copies`: of the links that end here."""

    def __init__(self, publish: PublishForwarder, copies: Copies) -> None:
        self.publish, self.copies = publish, copies

    def held(self, record: Subscription, name: str, link: LinkState | None) -> list[pipeline.HeldSource]:
        """What a snapshot holds of this log's own messages, or of those of a link's source. Raises `NotFound`, and
        `FailedPrecondition` where it is in too many parts.
        """
        state = self._state(record, name, ACTIVE, 0)
        found = list(self._own(record, state) if link is None else self._of_link(record, state, link))
        if sum(len(one.runs) for one in found) > REPORT_BYTES_MAX:
            raise FailedPrecondition(
                f"What {name} holds is in too many parts to be copied to another site: take a snapshot there, too."
            )
        return found

    def fill(
        self, record: Subscription, asked: pipeline.MergeAcksRequest, link: LinkState | None,
        acknowledged: Mapping[int, AckSet],
    ) -> pipeline.MergeAcksResponse:  # fmt: skip
        """Let a copy hold of some sources what the original does. `acknowledged`: in the offsets of these sources, what
        is here. Raises `InvalidArgument`, `NotFound`.
        """
        state = self._state(record, asked.snapshot, COPYING, asked.copy)
        held = {}
        for index, one in enumerate(asked.held):
            try:
                held[one.source] = _taken(one.runs), min(one.end, OFFSET_END)
            except Malformed as error:
                raise InvalidArgument(f"held[{index}].runs", str(error)) from None
        if asked.check:
            lacking = sum(
                self._lacking(record, link, source, runs, acknowledged.get(source))
                for source, (runs, _) in held.items()
            )
            if lacking:
                return pipeline.MergeAcksResponse(lacking=lacking)
        missing = 0 if link is None else sum(max(0, end - _reached(link, one)) for one, (_, end) in held.items())
        if missing:
            return pipeline.MergeAcksResponse(not_copied=missing)
        acks = {source: kept.copy() for source, kept in state.acks.items()}
        for source, (runs, end) in held.items():
            if link is None:
                self._fill_own(record, source, runs, end, acks)
            else:
                for block in self._blocks(record, link, source):
                    low, high = offset_runs.bounds(block.runs)
                    _replace(acks, block, copied_to(_gaps(runs, low, min(high, end)), block))
        self.publish.keep_snapshot(SnapshotState(state.snapshot, acks, state.lanes))
        return pipeline.MergeAcksResponse()

    # -- the original ------------------------------------------------------------------------------------------------

    def _own(self, record: Subscription, state: SnapshotState) -> Iterator[pipeline.HeldSource]:
        for source in self.publish.sources.of_topic(record.topic_incarnation):
            acks = state.acks.get(source.number) or AckSet()
            rest = _gaps(acks, 0, source.visible)
            end = rest[-1][0] if rest and sum(rest[-1]) == source.visible else source.visible
            yield pipeline.HeldSource(source=source.number, end=end, runs=encode_runs(rest))

    def _of_link(self, record: Subscription, state: SnapshotState, link: LinkState) -> Iterator[pipeline.HeldSource]:
        held = {source: AckSet() for source in link.intervals}
        ends = {source: interval.end for source, interval in link.intervals.items()}
        for source in self.publish.sources.of_topic(record.topic_incarnation):
            blocks = self.copies.of_source(source.number, link.name)
            for block in blocks:
                if block.link_source not in link.intervals:
                    high = offset_runs.bounds(block.runs)[1]
                    ends[block.link_source] = max(ends.get(block.link_source, 0), high)
            rest = _gaps(state.acks.get(source.number) or AckSet(), 0, blocks[-1].end) if blocks else []
            for number, begin, length in copied_from(rest, blocks):
                held.setdefault(number, AckSet()).add(begin, begin + length)
        for number, end in ends.items():
            runs = list(held[number].runs()) if number in held else []
            if runs and sum(runs[-1]) >= end:
                end = runs[-1][0]
            yield pipeline.HeldSource(source=number, end=end, runs=encode_runs(runs))

    # -- the copy ----------------------------------------------------------------------------------------------------

    def _fill_own(self, record: Subscription, number: int, runs: AckSet, end: int, acks: dict[int, AckSet]) -> None:
        source = self._source(record, number)
        if source is None:
            return  # of another chain, or nothing of it is left
        before = acks.get(number) or AckSet()
        acks[number] = AckSet()
        acks[number].add_runs(encode_runs(_gaps(runs, 0, min(end, source.end))))
        for block in self.copies.blocks():  # these are another site's own
            if block.source == number:
                _replace(acks, block, held_runs(before, block.first, block.end))

    def _lacking(
        self, record: Subscription, link: LinkState | None, number: int, runs: AckSet, acknowledged: AckSet | None
    ) -> int:
        """How many messages may be gone here: they were acknowledged, or lie before where a link began."""
        if link is None:
            return _count_in(runs, self._unkept(record, number, 0, OFFSET_END))
        interval = link.intervals.get(number)
        gone = AckSet() if acknowledged is None else acknowledged.copy()
        gone.add(0, 0 if interval is None else interval.base)
        for block in self._blocks(record, link, number):
            for first, count in offset_runs.decode(block.runs):
                gone.remove(first, first + count)
            for _, first, count in copied_from(self._unkept(record, block.source, block.first, block.end), [block]):
                gone.add(first, first + count)
        return _count_in(runs, gone.runs())

    def _unkept(self, record: Subscription, number: int, begin: int, end: int) -> list[tuple[int, int]]:
        """What of [begin, end) is acknowledged here, and kept by no retention."""
        source, ledger = self._source(record, number), self.publish.ledgers.get(record.incarnation)
        acks = None if source is None or ledger is None else ledger.known(number)
        if source is None or ledger is None or acks is None:
            return []
        return held_runs(acks, begin, min(end, source.end, retained_since(self.publish, record, ledger, source)))

    def _blocks(self, record: Subscription, link: LinkState, number: int) -> Iterable[OffsetBlock]:
        found = self.copies.of_link(link.name, number, 0, OFFSET_END)
        return [one for one in found if self._source(record, one.source) is not None]

    def _source(self, record: Subscription, number: int) -> Source | None:
        source = self.publish.sources.by_number.get(number)
        return source if source is not None and source.topic == record.topic_incarnation else None

    def _state(self, record: Subscription, name: str, status: str, copy: int) -> SnapshotState:
        found = self.publish.catalog.snapshot(parse_snapshot(name))
        if found is None or found.status != status or found.subscription != record.incarnation:
            raise NotFound(name)
        if copy not in (0, found.incarnation):
            raise NotFound(name)
        state = self.publish.snapshots.get(found.incarnation)
        if state is None:
            if self.publish.sources.of_topic(record.topic_incarnation):
                raise Unavailable("This process does not know the snapshot yet. Try again.")
            return SnapshotState(found.incarnation, {})  # nothing of its topic is here
        return state


def _reached(link: LinkState, source: int) -> int:
    """The offset of a link's source before which all is copied."""
    interval = link.intervals.get(source)
    if interval is not None:
        return interval.end
    return OFFSET_END if source <= max(link.finished.values(), default=-1) else 0


def _replace(acks: dict[int, AckSet], block: OffsetBlock, runs: Iterable[tuple[int, int]]) -> None:
    """Let these and no others be acknowledged of a block."""
    held = acks.setdefault(block.source, AckSet())
    held.remove(block.first, block.end)
    for begin, length in runs:
        held.add(begin, begin + length)


def _taken(runs: bytes) -> AckSet:
    found = AckSet()
    found.add_runs(runs)
    return found


def _count_in(acks: AckSet, runs: Iterable[tuple[int, int]]) -> int:
    return sum(acks.count(begin, begin + length) for begin, length in runs)


def _gaps(acks: AckSet, begin: int, end: int) -> list[tuple[int, int]]:
    """The runs of [begin, end) that are not in a set."""
    rest = AckSet()
    if begin < end:
        rest.add(begin, end)
        for first, length in held_runs(acks, begin, end):
            rest.remove(first, first + length)
    return list(rest.runs())

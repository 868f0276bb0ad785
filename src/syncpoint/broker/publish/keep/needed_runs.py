"""Which messages of an entry are still needed, message by message; `retention` says it of entries.

Place: asked by `at_risk`: what nobody needs any more is no loss.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from syncpoint.base.kernel.acks import AckSet
from syncpoint.base.model.lanes import in_lane
from syncpoint.broker.publish.intake.forwarder import PublishForwarder
from syncpoint.broker.publish.keep.retention import is_needed, is_orphan

Run = tuple[int, int]
"""Offsets `[begin, end)`."""
_NS = 1_000_000_000


def needed_runs(forwarder: PublishForwarder, source: int, first_offset: int, count: int, time_ns: int) -> list[Run]:
    """The runs of `[first_offset, first_offset + count)`, published at `time_ns`, that somebody may still want: to
    receive, to seek to, or for what a room above keeps. Of a source that nobody knows: all.
    """
    if not is_needed(forwarder, source, first_offset, count, time_ns):
        return []
    end = first_offset + count
    found = forwarder.sources.by_number.get(source)
    if found is None:
        return [(first_offset, end)]
    catalog, now_ns = forwarder.catalog, forwarder.clock.sure_ns()
    topic, age_ns = catalog.topic_by_incarnation(found.topic), now_ns - time_ns
    whole = (
        (topic is None and is_orphan(catalog, found))
        or (topic is not None and topic.retention_s and age_ns < topic.retention_s * _NS)
        or any(one.holding and one.holds(found, first_offset, end, time_ns) for one in forwarder.holding_extensions)
    )
    if whole:
        return [(first_offset, end)]
    wanted = AckSet()
    for record in () if topic is None else catalog.subscriptions_of(found.topic):
        if record.detached:
            continue
        ledger, kept_ns = forwarder.ledgers.get(record.incarnation), record.retention_s * _NS
        if age_ns < kept_ns and (ledger is None or record.retain_acked):
            return [(first_offset, end)]
        if ledger is None or min(age_ns, now_ns - ledger.renewed_ns) >= kept_ns:
            continue
        for begin, behind in unacknowledged(ledger.known(source), ledger.lane_numbers, first_offset, end):
            wanted.add(begin, behind)
    for snapshot in catalog.snapshots_of(found.topic):
        if snapshot.expire_ns <= now_ns:
            continue
        state = forwarder.snapshots.get(snapshot.incarnation)
        if state is None:
            return [(first_offset, end)]
        for begin, behind in unacknowledged(state.acks.get(source), state.lanes or (0,), first_offset, end):
            wanted.add(begin, behind)
    return [(begin, begin + length) for begin, length in wanted.runs()]


def unacknowledged(acks: AckSet | None, lanes: Iterable[int], first_offset: int, end: int) -> Iterator[Run]:
    """What of `[first_offset, end)` is not acknowledged in one of the lanes."""
    for lane in lanes:
        begin, behind = in_lane(lane, first_offset), in_lane(lane, end)
        held = 0 if acks is None else acks.count(begin, behind)
        if held == behind - begin:
            continue
        if not held or acks is None:
            yield first_offset, end
            continue
        at = begin
        while (at := acks.first_gap(at)) < behind:
            stop = at + 1
            while stop < behind and not acks.contains(stop):
                stop += 1
            yield first_offset + at - begin, first_offset + stop - begin
            at = stop

"""Retention: what must still be kept, asked entry by entry by `log/storage/recovery/trim`.

Place: the end of a message's life. A message is needed while a subscription has neither acknowledged it nor outlived
its retention of it, unless the message has outlived its time to live and is dropped then; while a subscription or the
topic keeps acknowledged messages for a seek, or while a snapshot holds it unacknowledged. Nothing else keeps a message:
a topic without subscriptions keeps none unless it has a retention of its own. What a restore of older metadata has made
unknown (`metadata.restored_topics`) is kept until an operator has decided, and what came last in a source until a
checkpoint states where the source ends (`source_ends`). `at_risk` asks message by message (`needed_runs`): what nobody
needs any more is no loss.
"""

from collections.abc import Iterable, Iterator

from syncpoint.base.kernel.acks import AckSet
from syncpoint.base.model.lanes import in_lane
from syncpoint.broker.publish.facts import records
from syncpoint.broker.publish.facts.source import Source
from syncpoint.broker.publish.facts.time_to_live import LENT_NS, NEVER_NS, goes_to_letters, time_to_live_ns
from syncpoint.broker.publish.intake.forwarder import PublishForwarder
from syncpoint.catalog.metadata.catalog import Catalog
from syncpoint.catalog.metadata.restored_topics import NOTHING, lost_of
from syncpoint.log.storage.record import EntryKind

Run = tuple[int, int]
"""Offsets `[begin, end)`."""
_NS = 1_000_000_000


def is_needed(forwarder: PublishForwarder, source: int, first_offset: int, count: int, time_ns: int) -> bool:
    """Whether any message of the entry `[first_offset, first_offset + count)`, published at `time_ns`, must be kept."""
    found = forwarder.sources.by_number.get(source)
    if found is None:  # a source we know nothing of: unknown is never absent
        return not forwarder.sources.was_deleted(source)
    end = first_offset + count
    if end == found.end > found.stated_end:
        return True  # nothing else states yet where the source ends
    return _is_wanted(forwarder, found, first_offset, end, time_ns)


def _is_wanted(forwarder: PublishForwarder, found: Source, first_offset: int, end: int, time_ns: int) -> bool:
    """Whether somebody may still want any message of an entry of a source."""
    source = found.number
    catalog, now_ns = forwarder.catalog, forwarder.clock.sure_ns()  # one wrong clock must not delete
    age_ns = now_ns - time_ns
    topic = catalog.topic_by_incarnation(found.topic)
    if topic is None and is_orphan(catalog, found):
        return True
    # One without a retention keeps nothing by age, not even what is younger than the clock, which may be very late.
    if topic is not None and topic.retention_s and age_ns < topic.retention_s * _NS:
        return True
    own_ns = forwarder.expiry.latest_ns(source, first_offset, end) if source in forwarder.expiry.runs else NEVER_NS
    for record in catalog.subscriptions_of(found.topic):
        if record.detached:
            continue
        live_ns = time_to_live_ns(record, topic)
        ends_ns = min(own_ns, time_ns + live_ns if live_ns else NEVER_NS) + (LENT_NS if record.exactly_once else 0)
        if ends_ns <= now_ns and not goes_to_letters(record):
            continue
        ledger, kept_ns = forwarder.ledgers.get(record.incarnation), record.retention_s * _NS
        if age_ns < kept_ns and (ledger is None or record.retain_acked):
            return True
        if ledger is None or min(age_ns, now_ns - ledger.renewed_ns) >= kept_ns:
            continue
        if not ledger.covers(source, first_offset, end):
            return True
    for snapshot in catalog.snapshots_of(found.topic):
        if snapshot.expire_ns <= now_ns:
            continue
        state = forwarder.snapshots.get(snapshot.incarnation)
        if state is None:
            return True
        if not state.covers(source, first_offset, end):
            return True
    return any(one.holding and one.holds(found, first_offset, end, time_ns) for one in forwarder.holding_extensions)


def needed_runs(forwarder: PublishForwarder, source: int, first_offset: int, count: int, time_ns: int) -> list[Run]:
    """The runs of `[first_offset, first_offset + count)`, published at `time_ns`, that somebody may still want: to
    receive, to seek to, or for what a room above keeps. Of a source that nobody knows: all.
    """
    end = first_offset + count
    found = forwarder.sources.by_number.get(source)
    if found is None:
        return [] if forwarder.sources.was_deleted(source) else [(first_offset, end)]
    if not _is_wanted(forwarder, found, first_offset, end, time_ns):
        return []
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


def is_orphan(catalog: Catalog, source: Source) -> bool:
    """Whether a source is of a topic that was lost with the metadata: unknown now, though nobody has deleted it."""
    known = catalog.topic_by_incarnation(source.topic) is not None
    return not known and lost_of(catalog).keeps(source.topic, source.revision)


def orphans(forwarder: PublishForwarder) -> list[dict[str, int]]:
    """What is stored of lost topics, for people: by number of the topic."""
    found: dict[int, dict[str, int]] = {}
    if lost_of(forwarder.catalog) is NOTHING:
        return []
    for source in list(forwarder.sources.by_number.values()):
        bounds = forwarder.store.bounds(source.number)
        if bounds is not None and is_orphan(forwarder.catalog, source):
            one = found.setdefault(source.topic, {"topic": source.topic, "sources": 0, "messages": 0, "epoch": 0})
            one["sources"] += 1
            one["messages"] += bounds[1] - bounds[0]
            one["epoch"] = max(one["epoch"], source.epoch)
    return list(found.values())


def forget_empty_sources(forwarder: PublishForwarder) -> int:
    """Forget sealed sources of which storage holds nothing any more; returns how many.

    What was appended before a source was sealed, and is not persisted yet, is still to come.
    """
    empty = [
        source
        for source in forwarder.sources.by_number.values()
        if source.sealed and source.visible == source.end and forwarder.store.bounds(source.number) is None
    ]
    for source in empty:
        for leaves in forwarder.on_leaving:
            leaves(source)
    if empty:  # a seek from now on leaves them out, so they must not come back with what is still on the disks
        gone = records.encode_sources_gone([source.number for source in empty])
        forwarder.commit.append_fact(EntryKind.LEDGER, gone)  # first: if the rest fails, it is done again
    for source in empty:
        for extension in forwarder.extensions:
            extension.forgotten(source)
        forwarder.sources.forget(source)
        subscriptions = (record.incarnation for record in forwarder.catalog.subscriptions_of(source.topic))
        forwarder.ledgers.forget_source(source.number, subscriptions)
    return len(empty)

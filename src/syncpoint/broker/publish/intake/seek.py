"""Seek and snapshots: moving a subscription to another acknowledged set.

A seek makes a new generation of the ledger (protocol rule 12): acknowledgements still under way for the old one cannot
mix into it. To a time: everything published before is acknowledged, everything since is not, as far as it is retained.
To a snapshot: its sets are taken over, and what was published after it is unacknowledged. The snapshot has kept its
messages for as long as it exists, however short the subscription's retention is; so the retention of what it had counts
from the seek on.
"""

from syncpoint.base.kernel.acks import AckSet
from syncpoint.base.model.delivery import Done
from syncpoint.base.model.errors import NotFound
from syncpoint.base.model.lanes import in_lane
from syncpoint.broker.publish.facts.ledger import Ledger, SnapshotState, copy_lanes
from syncpoint.broker.publish.facts.source import Source
from syncpoint.broker.publish.facts.source_ends import offset_since
from syncpoint.broker.publish.intake.forwarder import PublishForwarder
from syncpoint.catalog.metadata.entity_options import lanes_of
from syncpoint.catalog.metadata.records import Subscription

_NS = 1_000_000_000


def seek_to_time(
    forwarder: PublishForwarder,
    record: Subscription,
    time_ns: int,
    done: Done | None,
    generation: int | None = None,
) -> None:
    """Acknowledge everything published before `time_ns` (exclusive, nanoseconds since 1970), revive what is retained
    from then on. `generation`: that of the record, where it is counted there.
    """
    forwarder.commit.append_pending()
    forwarder.replace_acks(record.incarnation, acks_at_time(forwarder, record, time_ns), done, generation)


def acks_at_time(forwarder: PublishForwarder, record: Subscription, time_ns: int) -> dict[int, AckSet]:
    """The acknowledged sets of a seek to a time. Raises storage errors."""
    ledger = forwarder.ledgers[record.incarnation]
    acks: dict[int, AckSet] = {}
    for source in forwarder.sources.of_topic(record.topic_incarnation):
        number = source.number
        held = ledger.known(number)
        fresh = held.copy() if held is not None else AckSet()
        revive = retained_since(forwarder, record, ledger, source)
        if not source.sealed and time_ns > forwarder.commit.newest_ns:
            boundary = source.end  # also what is on its way to the disks, which storage does not count yet
        else:
            boundary = offset_since(forwarder.store, source, time_ns)
        for lane in ledger.lane_numbers:  # what lies outside of their bounds is acknowledged again when it is taken
            if revive < source.end:
                fresh.remove(in_lane(lane, revive), in_lane(lane, source.end))
            if boundary:
                fresh.add(in_lane(lane, 0), in_lane(lane, boundary))
        acks[number] = fresh
    return acks


def retained_since(forwarder: PublishForwarder, record: Subscription, ledger: Ledger, source: Source) -> int:
    """The offset of a source from which on messages are stored although they are acknowledged; its end: none is.
    Raises storage errors.
    """
    now, topic = forwarder.clock.sure_ns(), forwarder.catalog.topic_of(record)
    since = source.end
    if record.retain_acked:
        own = offset_since(forwarder.store, source, now - record.retention_s * _NS)
        since = max(own, ledger.start.get(source.number, 0))
    if topic is not None and topic.retention_s:
        since = min(since, offset_since(forwarder.store, source, now - topic.retention_s * _NS))
    return since


def seek_to_snapshot(
    forwarder: PublishForwarder,
    record: Subscription,
    snapshot: int,
    done: Done | None,
    generation: int | None = None,
) -> None:
    """Take over a snapshot's acknowledged sets. Raises `NotFound` when its state is gone."""
    acks = acks_at_snapshot(forwarder, record, snapshot)
    forwarder.replace_acks(record.incarnation, acks, done, generation, forwarder.clock.time_ns())


def acks_at_snapshot(forwarder: PublishForwarder, record: Subscription, snapshot: int) -> dict[int, AckSet]:
    """The acknowledged sets of a seek to a snapshot. Raises `NotFound` when its state is gone."""
    state = forwarder.snapshots.get(snapshot)
    if state is None:
        raise NotFound(str(snapshot))
    made = forwarder.catalog.snapshot_by_incarnation(snapshot)
    is_own = made is not None and made.subscription == record.incarnation
    return _acks_of_own(forwarder, record, state) if is_own else _acks_of_other(forwarder, record, state)


def _acks_of_own(forwarder: PublishForwarder, record: Subscription, state: SnapshotState) -> dict[int, AckSet]:
    known = forwarder.sources.by_number
    acks = {number: held.copy() for number, held in state.acks.items() if number in known}
    had = set(state.lanes or (0,))
    for lane in record.options.lanes:  # in the order of their numbers; one without others to copy begins at its start
        copied = [one for one in lane.copy_of if one in had]
        if lane.number not in had and copied:
            had.add(lane.number)
            for number, held in acks.items():
                copy_lanes(held, copied, lane.number, known[number].end)
    return acks


def _acks_of_other(forwarder: PublishForwarder, record: Subscription, state: SnapshotState) -> dict[int, AckSet]:
    """Numbers of lanes are a subscription's own: what another one had left in any lane is left in all of these."""
    known, acks = forwarder.sources.by_number, {}
    for number, held in state.acks.items():
        if number in known:
            acks[number] = AckSet()
            for lane in lanes_of(record.options):
                copy_lanes(held, state.lanes or (0,), lane.number, known[number].end, acks[number])
    return acks


def snapshot_of(forwarder: PublishForwarder, ledger: Ledger, topic: int, snapshot: int) -> SnapshotState:
    """The state of a snapshot of a ledger as of now. Sources opened later are unacknowledged in it by being absent."""
    acks = {}
    for source in forwarder.sources.of_topic(topic):
        held = ledger.known(source.number)
        acks[source.number] = held.copy() if held is not None else AckSet()
    return SnapshotState(snapshot, acks, tuple(ledger.lanes))

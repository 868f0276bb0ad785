"""Where the sources of a topic begin and end, and where a reader begins in them.

Place: pure functions under `reading`, on the tables of the publish forwarder.
Words: a *position* is the first offset that was not read; a source is read to its end when it stands at `end`.
"""

from typing import NamedTuple

from syncpoint.base.kernel.acks import AckSet
from syncpoint.base.model.errors import FailedPrecondition, InvalidArgument, NotFound
from syncpoint.base.model.names import parse_snapshot, parse_subscription, parse_topic
from syncpoint.broker.publish.facts.source import Source
from syncpoint.broker.publish.facts.source_ends import offset_since
from syncpoint.broker.publish.intake.forwarder import PublishForwarder
from syncpoint.catalog.metadata.catalog import Catalog
from syncpoint.catalog.metadata.records import COPYING, CREATING, Snapshot, Subscription, Topic
from syncpoint.wire.protobuf.messages import pipeline


class Extent(NamedTuple):
    """What is stored and persisted of a source: [begin, end)."""

    source: Source
    begin: int
    end: int


def extents(forwarder: PublishForwarder, topic: int) -> list[Extent]:
    """The sources of a topic incarnation in the order in which they were opened, which is that of keys."""
    found = []
    for source in sorted(forwarder.sources.of_topic(topic), key=lambda one: one.number):
        bounds = forwarder.store.bounds(source.number)
        begin = source.visible if bounds is None else min(bounds[0], source.visible)
        found.append(Extent(source, begin, source.visible))
    return found


def comes_before(one: Source, other: Source) -> bool:
    """Whether all of one source must be read before the other; both are of one topic and one chain. Epochs say nothing:
    the next owner of a chain may know an older assignment than the owner before.
    """
    return one.number < other.number


def topic_named(catalog: Catalog, name: str, incarnation: int) -> Topic:
    """The topic of a request; `incarnation` is what the reader believes, 0 for no belief. Raises `InvalidArgument`,
    `NotFound`, `FailedPrecondition`.
    """
    record = catalog.topic(parse_topic(name))
    if record is None:
        raise NotFound(name)
    if incarnation and incarnation != record.incarnation:
        raise FailedPrecondition(
            f"{name} was deleted and created again: it has incarnation {record.incarnation}, the request names"
            f" {incarnation}. Offsets of the old topic are not valid in the new one; restart without an incarnation."
        )
    return record


def subscription_named(catalog: Catalog, name: str, field: str = "subscription") -> Subscription:
    """A subscription that has a backlog. Raises `InvalidArgument`, `NotFound`, `FailedPrecondition`."""
    record = catalog.subscription(parse_subscription(name))
    if record is None:
        raise NotFound(name)
    if record.detached:
        raise FailedPrecondition(f"{field}: {name} is detached from its topic and has no backlog.")
    if catalog.topic_of(record) is None:
        raise FailedPrecondition(f"{field}: the topic of {name} was deleted. Pull the rest of its backlog.")
    if record.options.lanes:
        raise FailedPrecondition(f"{field}: {name} has rules, which pipelines do not apply. Read its topic.")
    return record


def snapshot_named(catalog: Catalog, name: str, topic: int, field: str = "snapshot") -> Snapshot:
    """A snapshot of the topic's incarnation. Raises `InvalidArgument`, `NotFound`."""
    record = catalog.snapshot(parse_snapshot(name))
    if record is None or record.status in (CREATING, COPYING):
        raise NotFound(name)
    if record.topic_incarnation != topic:
        raise InvalidArgument(field, f"{name} is a snapshot of another topic, or of an earlier one with the same name")
    return record


def starts(
    forwarder: PublishForwarder, asked: pipeline.GetPositionsRequest, topic: int, found: list[Extent]
) -> list[int]:
    """Where a GetPositionsRequest begins in each source. Raises `InvalidArgument`, `NotFound`."""
    catalog = forwarder.catalog
    match asked.WhichOneof("starting"):
        case "latest":
            return [one.end if asked.latest else one.begin for one in found]
        case "time":
            try:
                time_ns = asked.time.ToNanoseconds()
            except ValueError as bad:
                raise InvalidArgument("time", str(bad)) from None
            return [_within(one, offset_since(forwarder.store, one.source, time_ns)) for one in found]
        case "snapshot":
            snapshot = snapshot_named(catalog, asked.snapshot, topic)
            state = forwarder.snapshots.get(snapshot.incarnation)
            if state is None:  # of a chain that held nothing of the topic when it was taken: all came later
                return [one.begin for one in found]
            return [_first_gap(one, state.acks.get(one.source.number)) for one in found]
        case "backlog" if asked.backlog:
            if not asked.subscription:
                raise InvalidArgument("backlog", "may only be set together with subscription")
            ledger = forwarder.ledgers.get(subscription_named(catalog, asked.subscription).incarnation)
            if ledger is None:  # of a chain that holds nothing of the topic
                return [one.begin for one in found]
            return [_first_gap(one, ledger.acks.get(one.source.number)) for one in found]
    return [one.begin for one in found]


def _within(one: Extent, offset: int) -> int:
    return min(max(offset, one.begin), one.end)


def _first_gap(one: Extent, acks: AckSet | None) -> int:
    return _within(one, 0 if acks is None else acks.first_gap(0))

"""Lane needs: of which stopped lanes of a subscription one log keeps nothing any more.

Place: asked by `chain` for a cluster, by `control.log_commit` on one node, before a lane leaves the subscription's
record; `follow` lets go of it then.
Promise: what was published while the lane was in force, and is kept here for anybody, has not been passed over: what
waits in any subscription of the topic, what one of them or the topic keeps acknowledged for a seek, what a snapshot
holds. So nothing that a seek may bring back was the lane's. That stays so for every later owner: what it rests on is
persisted before it is reported.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial

from syncpoint.base.runtime.tasks import complete
from syncpoint.broker.publish.facts import records
from syncpoint.broker.publish.facts.ledger import Ledger, SnapshotState
from syncpoint.broker.publish.facts.source import Source
from syncpoint.broker.publish.facts.source_ends import offset_since
from syncpoint.broker.publish.intake.deliverable import expired_at, pass_over_expired
from syncpoint.broker.publish.intake.forwarder import PublishForwarder
from syncpoint.catalog.metadata.entity_options import stopped_lanes
from syncpoint.catalog.metadata.records import Subscription
from syncpoint.log.storage.record import EntryKind
from syncpoint.log.storage.store import Store

_NS = 1_000_000_000
_EVERYTHING = 0


async def drained_for_good(forwarder: PublishForwarder, subscription: int) -> list[int]:
    """Those lanes, by their numbers, once all that they rest on is persisted. Raises `Unavailable`."""
    record = forwarder.catalog.subscription_by_incarnation(subscription)
    found = [] if record is None else list(drained_now(forwarder, record))
    if found:
        persisted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done, commit = partial(complete, persisted), forwarder.commit
        if commit.acks.waiting:
            commit.when_acks_persisted(done)
        else:  # what was acknowledged is in the log, in front of this
            commit.append_fact(EntryKind.LEDGER, records.encode_revision(forwarder.catalog.revision), done)
        await persisted
    return found


def drained_now(forwarder: PublishForwarder, record: Subscription) -> Iterator[int]:
    """Yield the lanes that are empty in memory now."""
    ledger = forwarder.ledgers.get(record.incarnation)
    sources = forwarder.sources.of_topic(record.topic_incarnation)
    stopped = stopped_lanes(record.options)
    if not sources:  # one that is opened from now on has nothing of a lane that has stopped
        yield from stopped
        return
    if ledger is None or not stopped:
        return
    needs = [_SourceNeeds(forwarder, record, one) for one in sources]
    for number in stopped:
        bounds = ledger.lanes.get(number)
        if bounds is None or bounds.stop is None:
            continue  # not followed here yet
        start, stop = bounds.start, bounds.stop
        if not any(one.keeps(start.get(one.number, 0), stop.get(one.number, 0)) for one in needs):
            yield number


class _SourceNeeds:
    """What of a source is kept for anybody. `retention` judges by the same, entry by entry."""

    def __init__(self, forwarder: PublishForwarder, record: Subscription, source: Source) -> None:
        catalog, store, now_ns = forwarder.catalog, forwarder.store, forwarder.clock.sure_ns()
        topic = catalog.topic_of(record)
        self.number = number = source.number
        bounds = store.bounds(number)
        # What is on its way to the disks is not counted by the store.
        self._first = source.visible if bounds is None else min(bounds[0], source.visible)
        self._unknown = topic is None
        self._retained = source.end  # from here on everything is kept
        self._waits: list[tuple[int, Ledger]] = []  # what is not acknowledged from here on is kept
        self._snapshots: list[SnapshotState] = []
        if topic is not None and topic.retention_s:
            self._keep_since(store, source, now_ns - topic.retention_s * _NS)
        for one in catalog.subscriptions_of(record.topic_incarnation):
            if one.detached:
                continue
            ledger = forwarder.ledgers.get(one.incarnation)
            if ledger is None or one.retain_acked:
                self._keep_since(store, source, now_ns - one.retention_s * _NS)
            if ledger is not None:
                expired = expired_at(catalog, ledger, now_ns)
                pass_over_expired(
                    forwarder.ledgers, ledger, source, expired, forwarder.expiry, store, forwarder.commit.recorder
                )
                waits = offset_since(store, source, expired.retained_ns) if expired.retained_ns > 0 else _EVERYTHING
                self._waits.append((max(waits, ledger.begin_of(number)), ledger))
        for made in catalog.snapshots_of(record.topic_incarnation):
            state = forwarder.snapshots.get(made.incarnation)
            if made.expire_ns <= now_ns:
                continue
            if state is None:
                self._retained = _EVERYTHING
            else:
                self._snapshots.append(state)

    def keeps(self, begin: int, end: int) -> bool:
        """Whether it keeps any message of `[begin, end)`."""
        begin = max(begin, self._first)
        if begin >= end:
            return False
        if self._unknown or end > self._retained:
            return True
        number = self.number
        for first, ledger in self._waits:
            if end > first and not ledger.covers(number, max(begin, first), end):
                return True
        return any(not state.covers(number, begin, end) for state in self._snapshots)

    def _keep_since(self, store: Store, source: Source, time_ns: int) -> None:
        self._retained = min(self._retained, offset_since(store, source, time_ns))

"""Follow: what a chain does because the catalog says so, where the catalog is not in its log but shared by many.

Place: between the process's copy of the catalog and one forwarder; `chain` calls it with every change, in order.
Promise (protocol rule 16): what follows from a revision (where a subscription starts, where it was sought to, what a
snapshot holds) is a fact in the chain's log before the revision is confirmed, and a chain is never judged by an older
revision than its log has acted by.

A subscription begins at 0 in sources registered at or after its own revision, and in those that are opened once it is
known; at their ends in all others. So a subscription that recovery finds no fact of starts there too: its creation has
not returned yet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from syncpoint.metadata.records import CREATING, Change, Op, Snapshot, Subscription
from syncpoint.publish import records, seek
from syncpoint.publish.append import Settled
from syncpoint.publish.forwarder import PublishForwarder
from syncpoint.publish.ledger import Ledger, SnapshotState
from syncpoint.publish.recovery import settle
from syncpoint.publish.source import Source
from syncpoint.storage.record import Kind


class Follower:
    """`on_ledger` hears of each subscription that began to have a ledger in this chain."""

    def __init__(self, forwarder: PublishForwarder) -> None:
        self.forwarder = forwarder
        self.catalog = forwarder.catalog
        self.on_ledger: Callable[[int], None] = lambda subscription: None

    # -- after recovery ----------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Catch up with the catalog, which is at or above the revision of the log; the facts are on their way then."""
        forwarder, sources = self.forwarder, self.forwarder.sources
        settle(forwarder.memory, forwarder.store)
        self._forget_empty()
        for topic in sources.topics():
            for record in self.catalog.subscriptions_of(topic):
                self._begin(record)
            for snapshot in self.catalog.snapshots_of(topic):
                self._keep_snapshot(snapshot)
            for record in self.catalog.subscriptions_of(topic):
                self._follow_seek(record)
        for number in [one for one in forwarder.snapshots if self.catalog.snapshot_by_incarnation(one) is None]:
            del forwarder.snapshots[number]
        grants = forwarder.memory.grants
        for key in [key for key in grants if not self._is_strict(key[0]) or key[1] not in sources.by_number]:
            del grants[key]

    def _forget_empty(self) -> None:
        """Ledgers of topics of which recovery found nothing: they begin anew when something comes, as after
        `forget_topic`. Nobody follows seeks of theirs meanwhile, so they would be of an old generation then.
        """
        for number in list(self.forwarder.ledgers):
            record = self.catalog.subscription_by_incarnation(number)
            if record is not None and not self.forwarder.sources.of_topic(record.topic_incarnation):
                del self.forwarder.ledgers[number]

    def _is_strict(self, subscription: int) -> bool:
        record = self.catalog.subscription_by_incarnation(subscription)
        return record is not None and (record.exactly_once or record.ordered) and not record.detached

    # -- changes -----------------------------------------------------------------------------------------------------

    def changed(self, change: Change) -> None:
        """The catalog has changed."""
        forwarder, record = self.forwarder, change.record
        if forwarder.failed is not None:
            return
        if isinstance(record, Subscription):
            if change.op is Op.DELETE or record.detached:
                forwarder.subscription_removed(record.incarnation)
            elif forwarder.sources.of_topic(record.topic_incarnation):
                self._begin(record)
                self._follow_seek(record)
                forwarder.hear_early(record)
        elif isinstance(record, Snapshot):
            if change.op is Op.DELETE:
                forwarder.snapshots.pop(record.incarnation, None)
            elif forwarder.sources.of_topic(record.topic_incarnation):
                self._keep_snapshot(record)

    def confirm(self, done: Settled) -> None:
        """`done` once the facts that follow from the catalog as it is now are persisted."""
        self.forwarder.append_fact(Kind.LEDGER, records.encode_revision(self.catalog.revision), done)

    # -- sources -----------------------------------------------------------------------------------------------------

    def open_source(self, topic: int, epoch: int) -> Source:
        """Open the topic's source at the catalog's revision. The chain is registered for the topic."""
        source = self.forwarder.open_source(topic, epoch, self.catalog.revision)
        for record in self.catalog.subscriptions_of(topic):
            self._begin(record)
        return source

    def forget_topic(self, topic: int) -> None:
        """Nothing of the topic is left: its subscriptions begin anew when something comes."""
        for record in self.catalog.subscriptions_of(topic):
            self.forwarder.ledgers.pop(record.incarnation, None)

    # -- checkpoints -------------------------------------------------------------------------------------------------

    def checkpoint_parts(self) -> Iterator[bytes]:
        """All facts of the chain; as in the forwarder, what is written meanwhile is replayed over them."""
        yield from records.bundles(self._facts())

    def _facts(self) -> Iterator[bytes]:
        forwarder, memory = self.forwarder, self.forwarder.memory
        yield records.encode_revision(self.catalog.revision)
        for ledger in list(forwarder.ledgers.values()):
            yield self._start_of(ledger)
        yield from forwarder.facts()
        for state in list(forwarder.snapshots.values()):
            yield records.encode_snapshot_fact(state)
        for grant in list(memory.grants.values()):
            yield records.encode_grant(grant)
        batches = list(memory.batches)
        for at in range(0, len(batches), 500):
            yield records.encode_batches(batches[at : at + 500])

    # -- one record --------------------------------------------------------------------------------------------------

    def _begin(self, record: Subscription) -> None:
        forwarder = self.forwarder
        if record.detached or record.incarnation in forwarder.ledgers:
            return
        forwarder.append_pending()
        ledger = forwarder.ledgers[record.incarnation] = Ledger(record.incarnation, record.generation)
        ledger.begin_at(
            (source.number, source.end)
            for source in forwarder.sources.of_topic(record.topic_incarnation)
            if source.end and source.revision < record.created_revision
        )
        forwarder.append_fact(Kind.LEDGER, self._start_of(ledger))
        self.on_ledger(record.incarnation)

    def _start_of(self, ledger: Ledger) -> bytes:
        return records.encode_start(
            records.Start(ledger.subscription, ledger.generation, self.catalog.revision, tuple(ledger.start.items()))
        )

    def _follow_seek(self, record: Subscription) -> None:
        """Only the newest seek counts: each one gives a generation sets of its own."""
        forwarder = self.forwarder
        ledger = forwarder.ledgers.get(record.incarnation)
        if ledger is None or record.generation <= ledger.generation:
            return
        target = record.target
        if target is None or (target.snapshot is None and target.time_ns is None):
            forwarder.replace_acks(record.incarnation, ledger.acks, None, record.generation)
        elif target.snapshot is None:
            seek.seek_to_time(forwarder, record, target.time_ns or 0, None, record.generation)
        elif target.snapshot in forwarder.snapshots:
            seek.seek_to_snapshot(forwarder, record, target.snapshot, None, record.generation)
        else:  # taken when nothing of the topic was here: all that is here came later
            forwarder.replace_acks(record.incarnation, {}, None, record.generation)

    def _keep_snapshot(self, record: Snapshot) -> None:
        """A snapshot that is being created: what its subscription has acknowledged here, as of now."""
        forwarder = self.forwarder
        if record.incarnation in forwarder.snapshots or record.status != CREATING:
            return
        subscription = self.catalog.subscription_by_incarnation(record.subscription)
        if subscription is None or record.subscription not in forwarder.ledgers:
            return
        forwarder.append_pending()
        state = SnapshotState(record.incarnation, seek.take_snapshot(forwarder, subscription).acks)
        forwarder.snapshots[record.incarnation] = state
        forwarder.append_fact(Kind.LEDGER, records.encode_snapshot_fact(state))

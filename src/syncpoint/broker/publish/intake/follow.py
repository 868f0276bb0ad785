"""Follow: what a log does after changes of the catalog.

Place: between the process's copy of the catalog and one forwarder; `chain` calls it with every change, in order, and on
one node, where the catalog is in the log itself, `control.log_commit`.
Promise (protocol rule 16): what follows from a revision (where a subscription starts, where it was moved to, what a
snapshot holds) is a fact in the chain's log before the revision is confirmed, and a chain is never judged by an older
revision than its log has acted by.

A subscription begins at 0 in sources registered at or after its own revision, and in those that are opened once it is
known; at their ends in all others. So a subscription that recovery finds no fact of starts there too: its creation has
not returned yet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain

from syncpoint.base.model.delivery import Done
from syncpoint.broker.publish.facts import lane_bounds, records
from syncpoint.broker.publish.facts.ledger import begun
from syncpoint.broker.publish.facts.recovery import drop_ledgers, reconcile_sources
from syncpoint.broker.publish.facts.source import Source
from syncpoint.broker.publish.intake import seek
from syncpoint.broker.publish.intake.forwarder import PublishForwarder
from syncpoint.catalog.metadata.records import COPYING, CREATING, CatalogChange, ChangeOp, Snapshot, Subscription, Topic
from syncpoint.catalog.metadata.restored_topics import NOTHING, lost_of
from syncpoint.log.storage.record import EntryKind


class Follower:
    """`on_ledger` is called for each subscription that began to have a ledger in this chain. `whole`: the catalog is in
    this log, and all there is of any topic; then every subscription has its ledger here, also where nothing is stored.
    """

    def __init__(self, forwarder: PublishForwarder, *, whole: bool = False) -> None:
        self.forwarder, self.whole = forwarder, whole
        self.catalog = forwarder.catalog
        self.on_ledger: Callable[[int], None] = lambda subscription: None
        self.on_open: Callable[[int], None] = lambda topic: None  # a source of a topic is about to be opened

    # -- after recovery ----------------------------------------------------------------------------------------------

    def reconcile(self) -> None:
        """Catch up with the catalog, which is at or above the revision of the log; the facts are on their way then."""
        forwarder = self.forwarder
        reconcile_sources(forwarder.memory, forwarder.store)
        forwarder.recover_facts()
        topics, catalog = forwarder.sources.topics(), self.catalog
        snapshots = list(catalog.snapshots() if self.whole else chain.from_iterable(map(catalog.snapshots_of, topics)))
        # In the order in which it came to be: a snapshot may be of a subscription that was deleted or reset by a seek
        # since.
        self._keep_snapshots(snapshots)
        drop_ledgers(forwarder.memory)
        if not self.whole:
            self._forget_empty()
        found = catalog.subscriptions() if self.whole else chain.from_iterable(map(catalog.subscriptions_of, topics))
        subscriptions = list(found)
        for record in subscriptions:
            self._begin(record)
        self._keep_snapshots(snapshots)
        for record in subscriptions:
            self._follow_lanes(record)
            self._follow_seek(record)
        self._keep_snapshots(snapshots)
        for number in [one for one in forwarder.snapshots if self.catalog.snapshot_by_incarnation(one) is None]:
            forwarder.ledgers.drop_snapshot(number)
        self._reconcile_grants()
        self._reconcile_scheduled()

    def _reconcile_scheduled(self) -> None:
        """What waits to be published: what was published is not published again."""
        memory, forwarder = self.forwarder.memory, self.forwarder
        lost = lost_of(self.catalog) is not NOTHING  # of an unknown topic nobody knows then whether it was deleted

        def exists(topic: int) -> bool:
            return lost or self.catalog.topic_by_incarnation(topic) is not None

        by_number = forwarder.sources.by_number
        forwarder.scheduled.reconcile(memory.fired, memory.unsure, by_number, exists)
        memory.fired, memory.unsure = [], set()

    def _reconcile_grants(self) -> None:
        """Who holds what is here; of what is not here any more, who had it last: it may not have learned that what it
        acknowledged was recorded, before all of it was deleted.
        """
        memory, sources = self.forwarder.memory, self.forwarder.sources
        for (subscription, source), fact in list(memory.grants.items()):
            strict, here = self._is_strict(subscription), source in sources.by_number
            if strict and here:
                continue
            del memory.grants[subscription, source]
            if strict and source not in sources.unknown:
                memory.last_grants[subscription, source] = fact.grant
                sources.note_gone(source)

    def _forget_empty(self) -> None:
        """Ledgers of topics of which nothing is here: they begin anew when something comes, as after `forget_topic`."""
        for number in list(self.forwarder.ledgers):
            record = self.catalog.subscription_by_incarnation(number)
            if record is not None and not self.forwarder.sources.of_topic(record.topic_incarnation):
                self.forwarder.ledgers.drop(number)

    def _is_strict(self, subscription: int) -> bool:
        record = self.catalog.subscription_by_incarnation(subscription)
        return record is not None and (record.exactly_once or record.ordered) and not record.detached

    # -- changes -----------------------------------------------------------------------------------------------------

    def changed(self, change: CatalogChange) -> None:
        """The catalog has changed."""
        forwarder, record = self.forwarder, change.record
        if forwarder.commit.failed is not None:
            return
        forwarder.note_needs(change)
        if isinstance(record, Subscription):
            if change.op is ChangeOp.DELETE or record.detached:
                forwarder.subscription_removed(record.incarnation)
            elif record.incarnation in forwarder.ledgers or self._holds(record.topic_incarnation):
                self._catch_up(record)
                if record.early_delivery or record.incarnation in forwarder.server.early:
                    forwarder.server.set_early_delivery(record)
        elif isinstance(record, Topic):
            if change.op is ChangeOp.DELETE:
                forwarder.scheduled.drop_topic(record.incarnation)
        elif isinstance(record, Snapshot):
            if change.op is ChangeOp.DELETE:
                forwarder.ledgers.drop_snapshot(record.incarnation)
            elif self._holds(record.topic_incarnation):
                self._keep_snapshots([record])

    def _holds(self, topic: int) -> bool:
        return self.whole or bool(self.forwarder.sources.of_topic(topic))

    def check(self, record: Subscription) -> None:
        """Raise storage errors where a seek in a record could not be followed now."""
        if self._is_seek(record) and record.target is not None and record.target.time_ns is not None:
            seek.acks_at_time(self.forwarder, record, record.target.time_ns)

    def confirm(self, done: Done) -> None:
        """`done` once the facts that follow from the catalog as it is now are persisted."""
        self.forwarder.commit.append_fact(EntryKind.LEDGER, records.encode_revision(self.catalog.revision), done)

    # -- sources -----------------------------------------------------------------------------------------------------

    def open_source(self, topic: int, epoch: int) -> Source:
        """Open the topic's source at the catalog's revision. The chain is registered for the topic."""
        for record in self.catalog.subscriptions_of(topic):
            self._catch_up(record)
        if self.forwarder.sources.open_of(topic) is None:
            self.on_open(topic)
        return self.forwarder.open_source(topic, epoch, self.catalog.revision)

    def forget_topic(self, topic: int) -> None:
        """Nothing of the topic is left: its subscriptions begin anew when something comes."""
        for record in self.catalog.subscriptions_of(topic):
            self.forwarder.ledgers.drop(record.incarnation)

    # -- checkpoints -------------------------------------------------------------------------------------------------

    def checkpoint_parts(self) -> Iterator[bytes]:
        """All facts of the chain; as in the forwarder, what is written in the meantime is replayed over them."""
        if self.whole:
            for part in self.catalog.encode_parts():
                yield bytes((records.FactKind.CATALOG,)) + part
        yield from records.bundles(self._facts())

    def _facts(self) -> Iterator[bytes]:
        forwarder, memory = self.forwarder, self.forwarder.memory
        yield records.encode_revision(self.catalog.revision)
        for state in list(forwarder.snapshots.values()):
            yield records.encode_snapshot(state, self.catalog.revision)
        for grant in list(memory.grants.values()):
            yield records.encode_grant(grant)
        for part in forwarder.recent_batches.facts():
            yield forwarder.recent_batches.head + part
        yield from forwarder.facts()

    # -- one record --------------------------------------------------------------------------------------------------

    def _catch_up(self, record: Subscription) -> None:
        """Bring the ledger of a subscription to where its record is. What is published from now on belongs to it."""
        self._begin(record)
        self._follow_lanes(record)
        self._follow_seek(record)

    def _begin(self, record: Subscription) -> None:
        forwarder = self.forwarder
        if record.detached or record.incarnation in forwarder.ledgers:
            return
        forwarder.commit.append_pending()
        sources = forwarder.sources.of_topic(record.topic_incarnation)
        places = {one.number: one.end for one in sources if one.end and one.revision < record.created_revision}
        # Where something is stored a seek has yet to be followed; where nothing is, there is nothing to follow.
        generation = 0 if sources else record.generation
        state = begun(record.incarnation, generation, places)
        if record.options.lanes:
            state = lane_bounds.state_of(state, record, sources)
        forwarder.begin_ledger(state)
        self.on_ledger(record.incarnation)

    def _follow_lanes(self, record: Subscription) -> None:
        """Lanes start and stop where the log stands when it learns of them."""
        forwarder = self.forwarder
        ledger = forwarder.ledgers.get(record.incarnation)
        if ledger is None or not (record.options.lanes or ledger.lanes) or lane_bounds.is_followed(ledger, record):
            return
        forwarder.commit.append_pending()
        sources = forwarder.sources.of_topic(record.topic_incarnation)
        forwarder.change_lanes(lane_bounds.state_of(ledger, record, sources))

    def _follow_seek(self, record: Subscription) -> None:
        """Only the newest seek counts: each one gives a generation sets of its own."""
        forwarder = self.forwarder
        ledger = forwarder.ledgers.get(record.incarnation)
        if ledger is None or not self._is_seek(record):
            return
        target = record.target
        if target is None or (target.snapshot is None and target.time_ns is None):
            acks = {source: held.copy() for source, held in ledger.acks.items()}
            forwarder.replace_acks(record.incarnation, acks, None, record.generation)
        elif target.snapshot is None:
            seek.seek_to_time(forwarder, record, target.time_ns or 0, None, record.generation)
        elif target.snapshot in forwarder.snapshots:
            seek.seek_to_snapshot(forwarder, record, target.snapshot, None, record.generation)
        else:  # taken when nothing of the topic was here: all that is here came later
            forwarder.replace_acks(record.incarnation, {}, None, record.generation, forwarder.clock.time_ns())

    def _is_seek(self, record: Subscription) -> bool:
        ledger = self.forwarder.ledgers.get(record.incarnation)
        return ledger is not None and record.generation > ledger.generation

    def _keep_snapshots(self, snapshots: Iterable[Snapshot]) -> None:
        """Snapshots that are being created (on one node all of which nothing is kept): what their subscriptions have
        acknowledged here, as of now. One of another generation than the ledger's is of a seek that is followed next, or
        never was: then all that is here counts as unacknowledged in it.
        """
        forwarder = self.forwarder
        for record in snapshots:
            ledger = forwarder.ledgers.get(record.subscription)
            creating = self.whole or record.status in (CREATING, COPYING)
            if record.incarnation in forwarder.snapshots or not creating or ledger is None:
                continue
            if record.generation is None or record.generation == ledger.generation:
                forwarder.commit.append_pending()
                state = seek.snapshot_of(forwarder, ledger, record.topic_incarnation, record.incarnation)
                forwarder.keep_snapshot(state)

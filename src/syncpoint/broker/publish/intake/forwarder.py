"""The publish forwarder of one log: opens sources, and changes ledgers to match the catalog.

Place: `follow` calls it with what changes in the catalog. Its `intake` takes requests, its `commit` writes what both
decide, its `server` serves the sources to subscribe forwarders. Everything runs on the event loop's thread;
nothing here waits.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from typing import Any, Protocol

from syncpoint.base.kernel.acks import AckSet
from syncpoint.base.model.delivery import Done
from syncpoint.base.model.flow import FlowLimits
from syncpoint.base.runtime.clock import Clock
from syncpoint.base.runtime.trusted import TrustedClock
from syncpoint.base.tracing.tracer import Tracer
from syncpoint.broker.publish.commit.admission import Admission
from syncpoint.broker.publish.commit.commit import GroupCommit, Later, Soon
from syncpoint.broker.publish.commit.traced_commit import TracedCommit
from syncpoint.broker.publish.facts import records, source_ends
from syncpoint.broker.publish.facts.attempts import DeliveryAttempts
from syncpoint.broker.publish.facts.dedup import RecentBatches
from syncpoint.broker.publish.facts.judged_batches import JudgedBatches
from syncpoint.broker.publish.facts.ledger import Ledger, SnapshotState
from syncpoint.broker.publish.facts.message_ids import MessageIds
from syncpoint.broker.publish.facts.needs import Needs
from syncpoint.broker.publish.facts.recovery import RecoveredState, of_this_format
from syncpoint.broker.publish.facts.scheduled import ScheduledMessages
from syncpoint.broker.publish.facts.source import Source
from syncpoint.broker.publish.facts.time_to_live import ExpiryIndex
from syncpoint.broker.publish.intake.intake import Intake, LogFacts
from syncpoint.broker.publish.intake.source_server import SourceServer
from syncpoint.broker.recording.record_kinds import PLACED
from syncpoint.catalog.metadata.records import CatalogChange, ChangeOp, Setting, Subscription, Topic
from syncpoint.log.storage.record import EntryKind
from syncpoint.log.storage.store import Store


class Extension(Protocol):
    """A room above that keeps facts of its own in the log."""

    number: records.ExtensionNumber  # what its facts are marked with, see `records.encode_extension`

    def facts(self) -> Iterator[bytes]:
        """All it has to remember, for a checkpoint; each may be applied twice, and over later ones."""

    def forgotten(self, source: Source) -> None:
        """Nothing of a sealed source is stored any more, and it leaves the table."""


class HoldingExtension(Protocol):
    """An extension, or a part of one, that may need messages that nobody else does."""

    @property
    def holding(self) -> Mapping[Any, Any]:
        """What it needs messages for. Empty: it needs none, and is not asked."""

    def holds(self, source: Source, first_offset: int, end: int, time_ns: int) -> bool:
        """Whether messages of a source in [first_offset, end), published at `time_ns`, must be kept for it."""


class PublishForwarder:
    """Sources, ledgers and their log. `soon(fn)` runs fn at the end of the loop's turn, `later(seconds,
    fn)` after a while. `admission`: shared with the other chains of the process; None: one of its own. `tracer`: None
    where nothing is traced. `sealed_room`: see `Intake`.
    """

    def __init__(
        self,
        store: Store,
        memory: RecoveredState,
        clock: Clock,
        limits: FlowLimits,
        soon: Soon,
        later: Later,
        admission: Admission | None = None,
        tracer: Tracer | None = None,
        sealed_room: int = 0,
    ) -> None:
        self.store, self.memory, self.catalog = store, memory, memory.catalog
        self.clock = clock if isinstance(clock, TrustedClock) else TrustedClock(clock)
        self.admission = admission or Admission(limits)
        self.sources, self.ledgers, self.snapshots = memory.sources, memory.ledgers, memory.ledgers.snapshots
        committed = (store, self.clock, self.admission, soon, later)
        self.commit = TracedCommit(*committed, tracer, self._topic_name) if tracer else GroupCommit(*committed)
        log = self.commit.facts
        self.attempts = DeliveryAttempts(log, self.ledgers, self.sources.by_number, clock, later)
        self.expiry = ExpiryIndex(log, store.bounds)
        self.scheduled = ScheduledMessages(log)
        self.ids = MessageIds(log, self.sources, self._window_s, self.clock.sure_ns)
        self.batches = JudgedBatches(
            log,
            self.sources,
            lambda topic: self.catalog.topic_by_incarnation(topic) is not None,
            lambda: self.clock.sure_ns() / 1e9,
        )
        self.recent_batches = RecentBatches(log, self.sources)
        facts = LogFacts(self.expiry, self.scheduled, self.ids, self.batches)
        self.intake = Intake(self.commit, self.catalog, self.sources, facts, self.open_source, sealed_room)
        self.server = SourceServer(
            self.commit, self.catalog, self.sources, self.ledgers, self.attempts, self.expiry, self.intake.letter
        )
        self._facts = self.attempts, self.expiry, self.scheduled, self.ids, self.batches
        self.extensions: list[Extension] = [*self._facts]
        self.holding_extensions: list[HoldingExtension] = [self.scheduled]
        self.on_leaving: list[Callable[[Source], None]] = []  # before it is written that a source is gone
        self.needs = Needs()
        self._ends: dict[int, int] = {}  # of sources, as the checkpoint that is being written has them

    # -- what is known of messages -----------------------------------------------------------------------------------

    def recover_facts(self) -> None:
        """Take over what recovery found about messages, once it is known where each source ends."""
        memory = self.memory
        self.recent_batches.recover(memory.batches, memory.unsure)
        memory.batches = []
        for kind in self._facts:
            with of_this_format(partial("a fact of number {} in the log".format, kind.number)):
                kind.recover(memory.extensions.pop(kind.number, ()), memory.unsure)

    def take_ids(self, ids: bytes, batches: bytes = b"") -> None:
        """Ids and judged batches of a topic's messages that another chain has; they are known here from now on."""
        self.ids.take(ids)
        self.batches.take(batches)

    def remembers(self, topic: int) -> bool:
        """Whether another chain of a topic may ask for what was published before, of which nothing need be left."""
        ids, batches = self.ids.knows(topic), self.batches.knows(topic)
        return ids or batches

    def _topic_name(self, topic: int) -> str:
        record = self.catalog.topic_by_incarnation(topic)
        return "" if record is None else record.name

    def _window_s(self, topic: int) -> int | None:
        """For how long a topic drops duplicates; None: there is no such topic."""
        record = self.catalog.topic_by_incarnation(topic)
        return None if record is None else record.options.duplicate_window_s

    # -- sources -----------------------------------------------------------------------------------------------------

    def open_source(self, topic: int, epoch: int = 0, revision: int = 0) -> Source:
        """The topic's source in this log, opened when there is none. A chain opens it before it takes a publish."""
        source, opened = self.sources.open_for(topic, epoch, revision)
        if opened:
            try:
                self.store.append(EntryKind.LEDGER, records.encode_source(source))
                self.commit.flush_soon()
            except Exception as error:  # what is published to it would be of a source that nobody knows
                self.commit.on_inconsistency(error)
                raise
            self.server.name_source(source)
        return source

    def seal_source(self, source: Source) -> None:
        """Nothing is added to an open source any more; what came first stays first."""
        self.commit.append_pending()
        self.sources.seal(source)
        self.rewrite_source(source)  # if that fails, recovery seals it
        self.server.name_source(source)

    def rewrite_source(self, source: Source) -> None:
        """What is known of a source has changed."""
        self.commit.append_fact(EntryKind.LEDGER, records.encode_source(source))

    # -- what is needed ----------------------------------------------------------------------------------------------

    def note_needs(self, change: CatalogChange) -> None:
        """To be called with a change before anything follows from it here."""
        record = change.record
        if isinstance(record, Setting):
            self.needs.more()  # what a restore has lost is kept by such a one
            return
        topic = record.incarnation if isinstance(record, Topic) else record.topic_incarnation
        if isinstance(record, Topic) and change.op is ChangeOp.DELETE:
            self.admission.counts.forget(topic)
        if change.op is ChangeOp.DELETE or self.sources.of_topic(topic):
            new = isinstance(record, Subscription) and record.incarnation not in self.ledgers
            self.needs.changed(change, new=new)

    def needed_since(self, version: int) -> Collection[int] | None:
        """The sources of which something may be needed that was not at this version of `needs`; None: of any."""
        topics = self.needs.since(version)
        if topics is None:
            return None
        return [source.number for topic in topics for source in self.sources.of_topic(topic)]

    # -- ledgers -----------------------------------------------------------------------------------------------------

    def subscription_removed(self, subscription: int) -> None:
        """The subscription was deleted or detached: nobody needs its backlog."""
        self.ledgers.drop(subscription)
        self.server.on_removed(subscription)

    def replace_acks(
        self,
        subscription: int,
        acks: dict[int, AckSet],
        done: Done | None,
        generation: int | None = None,
        renewed_ns: int | None = None,
    ) -> None:
        """A seek: a new generation (the next one unless given) with these sets, persisted before `done`. From now on
        nothing counts in the old one, and nothing is delivered from it; the listener is notified of the new one, and is
        served from it, once it is persisted. Its sets stand on acknowledgements that may not be: were this log lost
        now, its next owner would come to other sets, and a reader that went on by these would not look back.
        `renewed_ns`: see `Ledger`; as it was unless given.
        """
        ledger = self.ledgers[subscription]
        number = ledger.generation + 1 if generation is None else generation
        renewed = ledger.renewed_ns if renewed_ns is None else renewed_ns
        state = Ledger(subscription, number, acks, dict(ledger.start), renewed)

        def persisted(error: Exception | None) -> None:
            if error is None:
                self.server.on_reset_persisted(state)
            if done is not None:
                done(error)

        record = self.catalog.subscription_by_incarnation(subscription)
        self.needs.more(None if record is None else record.topic_incarnation)
        self.begin_ledger(state, persisted)
        self.server.begin_reset(state)

    def change_lanes(self, state: Ledger) -> None:
        """A subscription has the lanes of a state from now on; it is served in them once that is persisted."""
        ledger, server = self.ledgers[state.subscription], self.server
        self.commit.check_writable()
        for lane in [one for one in ledger.lane_numbers if one not in state.lanes]:
            ledger.drop_lane(lane)
        server.begin_lanes(state.subscription)

        def persisted(error: Exception | None) -> None:
            if error is None:
                server.on_lanes_persisted(state.subscription)

        self.begin_ledger(state, persisted)

    def begin_ledger(self, state: Ledger, done: Done | None = None) -> None:
        """A ledger is in this state from now on; persisted before `done`."""
        self.commit.check_writable()
        try:
            taken = self.ledgers.take(state)
            self.commit.append_fact(EntryKind.LEDGER, records.encode_ledger(taken, self.catalog.revision), done)
        except Exception as error:
            self.commit.on_inconsistency(error)
            raise
        if self.commit.recorder.topics:
            self.record_ledger(taken)

    def record_ledger(self, ledger: Ledger) -> None:
        """Note what counts as acknowledged for a subscription, whether a subscriber acknowledged it or not."""
        for source, acks in ledger.acks.items():
            self.commit.recorder.note_of(
                ledger.subscription, PLACED, source, partial(list, acks.runs()), generation=ledger.generation
            )

    def keep_snapshot(self, state: SnapshotState) -> None:
        """A chain's part of a snapshot."""
        self.commit.check_writable()
        try:
            self.ledgers.keep(state)
            self.commit.append_fact(EntryKind.LEDGER, records.encode_snapshot(state, self.catalog.revision))
        except Exception as error:
            self.commit.on_inconsistency(error)
            raise

    def facts(self) -> Iterator[bytes]:
        """Ledgers and sources as they are when drawn. Sources come last: one that is forgotten in between was empty,
        and is not named; one that is named still had everything when the rest was drawn.
        """
        for subscription in list(self.ledgers):
            ledger = self.ledgers.get(subscription)
            if ledger is not None:
                yield records.encode_ledger(ledger, self.catalog.revision)
        for extension in self.extensions:
            for payload in extension.facts():
                yield records.encode_extension(extension.number, payload)
        sources = self.sources
        stored = frozenset(self.store.sources()) if sources.unknown else frozenset()
        unknown = tuple(sorted(sources.unknown & stored))
        yield records.encode_sources_below(records.SourcesBelow(sources.next_number, unknown))
        for number in list(sources.by_number):
            source = sources.by_number.get(number)
            if source is not None:
                yield records.encode_source(source)
        for payload in source_ends.parts(self._draw_ends()):
            yield records.encode_extension(source_ends.NUMBER, payload)

    def _draw_ends(self) -> Iterator[tuple[int, int]]:
        self._ends = {}
        for number in list(self.sources.by_number):
            source = self.sources.by_number.get(number)
            if source is not None:
                end = self._ends[number] = self.commit.appended_end(source)
                yield number, end

    def ends_written(self) -> None:
        """All of the checkpoint is in the log for which `facts` were drawn last; storage deletes nothing before it is
        synced.
        """
        ends, self._ends = self._ends, {}
        for number, end in ends.items():
            source = self.sources.by_number.get(number)
            if source is not None:
                source.stated_end = end

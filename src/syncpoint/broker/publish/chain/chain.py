"""One chain that is open in this process: its store, its forwarder, who may publish to it, who delivers from it.

Place: made by `open_chain`, kept by `host`. A chain is the succession of logs on one set of disks; opening it recovers
and seals what earlier owners wrote, under an epoch that shuts them out, and begins a new log.
Promise: a chain is served only after everything that follows from the catalog is persisted in its new log. Closing
writes a checkpoint and seals the log, as far as the disks allow; then the next owner replays next to nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol, TypeVar

from syncpoint.base.model.cluster import ChainRecord
from syncpoint.base.model.errors import SyncpointError, Unavailable
from syncpoint.base.model.flow import FlowLimits
from syncpoint.base.model.limits import PUBLISH_SEALED_ROOM_BYTES
from syncpoint.base.runtime.environment import Environment
from syncpoint.base.runtime.files import Files
from syncpoint.base.runtime.tasks import Tasks, complete
from syncpoint.base.tracing.tracer import Tracer
from syncpoint.broker.publish.chain.known_disks import DiskRegistry, Known
from syncpoint.broker.publish.commit.admission import Admission
from syncpoint.broker.publish.facts.recovery import RecoveredState, replay
from syncpoint.broker.publish.facts.source import INNER_TOPICS
from syncpoint.broker.publish.facts.source_ends import stored_run
from syncpoint.broker.publish.grants.dispatch import SourceDispatcher
from syncpoint.broker.publish.grants.grants import Grants
from syncpoint.broker.publish.intake.duplicates import DuplicateBatches
from syncpoint.broker.publish.intake.firing import ScheduledFiring
from syncpoint.broker.publish.intake.follow import Follower
from syncpoint.broker.publish.intake.forwarder import PublishForwarder
from syncpoint.broker.publish.intake.ingress import (
    IdsOfOthers,
    KeyAssignments,
    PublishIngress,
    Registrar,
    SealOthers,
    no_others,
)
from syncpoint.broker.publish.intake.keyed_firing import KeyedFiring, PublishByKey
from syncpoint.broker.publish.keep.lane_needs import drained_for_good
from syncpoint.broker.publish.keep.retention import forget_empty_sources, orphans
from syncpoint.broker.publish.keep.upkeep import LogUpkeep
from syncpoint.broker.recording.record_kinds import FOUND
from syncpoint.broker.recording.recorder import NOTHING_RECORDED, Recorder
from syncpoint.catalog.metadata.catalog import Catalog, CatalogCopy
from syncpoint.catalog.metadata.records import CatalogChange, ChangeOp, Subscription
from syncpoint.log.storage.errors import CopiesChanged
from syncpoint.log.storage.quorum import AckRule
from syncpoint.log.storage.settings import OPENINGS_MAX, KnownStore, StorageSettings
from syncpoint.log.storage.store import Store

CLOSE_S = 5.0  # for what is on its way to the disks; then its outcome is unknown
OpenFiles = Callable[[ChainRecord, int], tuple[Files, Sequence[str]]]

_T = TypeVar("_T")
log = logging.getLogger(__name__)


class Mounted(Protocol):
    """What a room above keeps in a chain's log and serves from it. It is made before anything is served or deleted."""

    async def recover(self) -> None:
        """Return when the chain may be served. Its topics are registered. Raises `SyncpointError`."""
        ...

    def opening(self, topic: int) -> None:
        """A source of a topic is about to be opened; the topic's record in the catalog is known here."""
        ...

    def tick(self) -> None:
        """Called ten times a second, and twice at rest."""
        ...

    def close(self, error: SyncpointError) -> None:
        """The chain is served no more; nothing can be written. Idempotent."""
        ...


@dataclass(slots=True)
class ChainContext:
    """What chains need of their process. `open_files(record, epoch)`: the files and, in slot order, the folders of a
    chain's disks, in the place of the environment's. `next_log` draws a log counter that was never drawn before.
    `registered(topic, chain)`: is the chain known to hold something of the topic? `registrations(chain)`: all topics of
    which that is known. `mount` makes what hangs on a chain besides.
    """

    shared: CatalogCopy
    registrar: Registrar
    assignments: KeyAssignments
    sealed: SealOthers
    open_files: OpenFiles
    next_log: Callable[[], Awaitable[int | None]]
    universe: int | None
    environment: Environment
    limits: FlowLimits = field(default_factory=FlowLimits)
    settings: StorageSettings = field(default_factory=StorageSettings)
    known_disks: DiskRegistry | None = None  # None: disks that were all wiped pass for new ones
    registered: Callable[[int, int], bool] = lambda topic, chain: True  # whether a chain is known to hold a topic
    registrations: Callable[[int], Collection[int]] = lambda chain: ()  # topics that a chain is known to hold
    mount: Callable[[Chain], Mounted] | None = None
    own_catalog: Callable[[RecoveredState], Catalog] | None = None  # one node: the catalog is in the chain's own log
    counter_floor: int = 0  # if `next_log` is None, the chain's logs have higher numbers
    ids_of_others: IdsOfOthers = no_others
    publish_by_key: PublishByKey | None = None  # None: every ordering key is taken by the one chain there is
    tracer: Tracer | None = None
    recorder: Recorder = NOTHING_RECORDED
    admission: Admission = field(init=False)  # limits hold for all chains of the process together

    def __post_init__(self) -> None:
        self.admission = Admission(self.limits)


class Chain:
    """One chain that is open in this process."""

    def __init__(
        self, record: ChainRecord, epoch: int, store: Store, memory: RecoveredState, context: ChainContext
    ) -> None:
        loop = asyncio.get_running_loop()
        self.record, self.number, self.epoch, self.context = record, record.number, epoch, context
        self.store = store
        self.mounted: Mounted | None = None
        self.firing: ScheduledFiring | None = None
        # Before anything is written: the log may fail while what recovery found is followed.
        self.on_ended: Callable[[Chain, Exception], None] = lambda chain, error: None
        whole = context.own_catalog is not None
        memory.catalog = context.own_catalog(memory) if context.own_catalog is not None else context.shared.catalog
        memory.changes.clear()
        self.forwarder = PublishForwarder(
            store,
            memory,
            context.environment.clock,
            context.limits,
            loop.call_soon,
            loop.call_later,
            context.admission,
            context.tracer,
            0 if whole else PUBLISH_SEALED_ROOM_BYTES,
        )
        self.forwarder.commit.on_failed = self._failed
        self.forwarder.commit.recorder = context.recorder
        self.follower = Follower(self.forwarder, whole=whole)
        self.follower.reconcile()
        now = context.environment.clock.monotonic()
        known = {key: (grant.grant, grant.holder) for key, grant in memory.grants.items()}
        grants = Grants(epoch, now, known, memory.last_grants)
        self._shared = grants.shared
        self.dispatcher = SourceDispatcher(
            self.number, self.forwarder, grants, self._rank, self._epoch_of, store.answered_at
        )
        self.holders = self.dispatcher.holders
        self.follower.on_ledger = self._ledger_began
        self.duplicates = DuplicateBatches(self.forwarder, self.dispatcher.progress.handed_out)
        self.ingress = PublishIngress(
            self.number,
            self.follower,
            self.duplicates,
            context.registrar,
            context.assignments,
            context.sealed,
            context.ids_of_others,
        )
        keyed = KeyedFiring(self.forwarder, context.publish_by_key) if context.publish_by_key is not None else None
        self.firing = ScheduledFiring(self.forwarder, _FiredInto(self.ingress), loop.call_soon, keyed)
        self.upkeep = LogUpkeep(
            store,
            self.forwarder,
            self.follower.checkpoint_parts,
            now,
            begin_with_checkpoint=not memory.checkpointed or memory.facts > 0,
            name="" if whole else f"chain {self.number}: ",
        )
        self._topics = set(self.forwarder.sources.topics()) - INNER_TOPICS
        self._idle: dict[int, int] = {}  # open source of which nothing is stored -> its end, at the last look
        if context.mount is not None:
            self.mounted = context.mount(self)
            self.follower.on_open = self.mounted.opening

    def changed(self, change: CatalogChange) -> None:
        """The catalog has changed. What cannot be followed must not be confirmed: the chain ends then, and the next
        opening follows it.
        """
        try:
            self.follower.changed(change)
        except Exception as error:
            if not isinstance(error, SyncpointError):
                log.exception("chain %d cannot follow the catalog to revision %d", self.number, change.revision)
            if self.forwarder.commit.failed is None:
                self.forwarder.commit.give_up(error)
            return
        record = change.record
        if isinstance(record, Subscription) and change.op is ChangeOp.PUT and record.incarnation in self._shared:
            self.holders.on_subscription_changed(record)

    def _ledger_began(self, subscription: int) -> None:
        if subscription in self._shared:
            self.holders.register(subscription)

    def assigned(self, topic: int) -> None:
        """The assignment of a topic has changed."""
        self.ingress.assigned(topic)
        self.holders.on_ranks_changed(topic)

    async def confirm(self) -> int:
        """Return the catalog's revision once everything that follows from it is persisted. Raises `Unavailable`."""
        revision = self.follower.catalog.revision
        persisted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.follower.confirm(partial(complete, persisted))
        await persisted
        return revision

    async def drained(self, subscription: int) -> list[int]:
        """Stopped lanes of a subscription of which nothing is kept here, whoever owns the chain next. Raises
        `Unavailable`.
        """
        return await drained_for_good(self.forwarder, subscription)

    def record_found(self, topic: int) -> None:
        """Note what is stored of a recorded topic, and what counts as acknowledged: from before it was recorded, or by
        an earlier owner, who may have died with records that nobody has.
        """
        forwarder, recorder = self.forwarder, self.context.recorder
        for source in forwarder.sources.of_topic(topic):
            first, end = stored_run(self.store, source)
            if first < end:
                runs = [(first, end - first)]
                recorder.note(topic, FOUND, source.number, runs, log=self.store.log_counter)
        for record in self.follower.catalog.subscriptions_of(topic):
            ledger = forwarder.ledgers.get(record.incarnation)
            if ledger is not None:
                forwarder.record_ledger(ledger)

    def topics(self) -> set[int]:
        """Those of which something is here that publishes of now, or other chains, have to know of."""
        forwarder = self.forwarder
        parts = (forwarder.sources, forwarder.scheduled, forwarder.ids, forwarder.batches)
        return {topic for part in parts for topic in part.topics()} - INNER_TOPICS

    def has_had(self, source: int) -> bool:
        """Whether a source was in this chain, and nothing is left of it."""
        return source in self.forwarder.sources.gone

    def tidy(self) -> None:
        """Forget what is empty: sealed sources, idle ones, and with the last one of a topic its registration."""
        forwarder, sources = self.forwarder, self.forwarder.sources
        if forwarder.commit.failed is not None or self.ingress.closed:
            return
        if self.follower.whole:
            forget_empty_sources(forwarder)
            return
        idle: dict[int, int] = {}
        for topic in sources.topics():
            source = sources.open_of(topic)
            if source is None or self.ingress.is_waiting(topic) or source.end != source.visible:
                continue
            if self.store.bounds(source.number) is None:
                gone = self.follower.catalog.topic_by_incarnation(topic) is None
                if gone or self._idle.get(source.number) == source.end:
                    forwarder.seal_source(source)
                else:
                    idle[source.number] = source.end
        self._idle = idle
        forget_empty_sources(forwarder)
        self.holders.forget_gone()
        topics = set(sources.topics()) - INNER_TOPICS
        for topic in self._topics - topics:
            for record in self.follower.catalog.subscriptions_of(topic):
                self.holders.unregister(record.incarnation)
            self.follower.forget_topic(topic)
            self.ingress.forget(topic, self.epoch)
        for topic in self.context.registrations(self.number):
            # Of an owner that was gone before it could say so, or could not.
            if topic not in topics and topic not in self._topics and not self.ingress.is_waiting(topic):
                self.ingress.forget(topic, self.epoch)
        self._topics = topics
        if sources.nearly_used_up:
            self.on_ended(self, Unavailable("nearly as many sources were opened in its log as one can have"))

    async def close(self) -> None:
        """Let what is on its way arrive, write a checkpoint, seal the log, give the disks back."""
        self._unmount()
        await self.ingress.close()
        if self.forwarder.commit.failed is None:
            try:
                async with asyncio.timeout(CLOSE_S):
                    self.forwarder.commit.flush()
                    self.upkeep.last_checkpoint()
                    await self.confirm()
            except (TimeoutError, Unavailable) as error:
                log.warning("chain %d is closed with entries on their way to the disks", self.number)
                if self.forwarder.commit.failed is None:
                    self.forwarder.commit.on_failed = lambda: None
                    self.forwarder.commit.give_up(Unavailable(f"chain {self.number} was closed: {error}"))
        if self.forwarder.commit.failed is None:  # timers that are still set find a log that takes nothing
            self.forwarder.commit.failed = Unavailable(f"chain {self.number} was closed")
        await self._release()

    async def _release(self) -> None:
        # Nobody waits for it any more; what its threads still report goes nowhere.
        self.store.on_persisted = lambda position: None
        self.store.on_failed = lambda error: None
        self.store.begin_close()
        await self.context.environment.blocking(self.store.close)

    def status(self) -> dict[str, Any]:
        """For the process's status."""
        disks = self.store.status()
        return {
            "chain": self.number,
            "epoch": self.epoch,
            "log": self.store.log_counter,
            "failed": str(self.forwarder.commit.failed) if self.forwarder.commit.failed is not None else "",
            "sources": len(self.forwarder.sources.by_number),
            "ledgers": len(self.forwarder.ledgers),
            "published": self.forwarder.commit.published,
            "scheduled": len(self.forwarder.scheduled),
            "fired": self.firing.fired if self.firing is not None else 0,
            "resent": self.forwarder.recent_batches.answered,
            "resent_duplicates": self.duplicates.duplicates,
            "resent_duplicates_late": self.duplicates.late,
            "refused_acks": self.dispatcher.refused_acks,
            "orphans": orphans(self.forwarder),
            "full": disks.full,
            "appended": disks.appended,
            "persisted": disks.persisted,
            "under_replicated": disks.under_replicated,
            "disks": {disk.path: disk.state for disk in disks.disks},
        }

    def _rank(self, topic: int) -> int:
        assignment = self.context.assignments(topic)
        chains = sorted(assignment.chains) if assignment is not None else []
        return chains.index(self.number) if self.number in chains else self.number

    def _epoch_of(self, topic: int) -> int:
        """No source of a lower epoch is open, or will be opened: what is known of assignments only goes forward."""
        assignment, source = self.context.assignments(topic), self.forwarder.sources.open_of(topic)
        epoch = assignment.epoch if assignment is not None else 0
        return epoch if source is None else min(epoch, source.epoch)

    def _failed(self) -> None:
        assert self.forwarder.commit.failed is not None
        self.on_ended(self, self.forwarder.commit.failed)
        self._unmount()

    def _unmount(self) -> None:
        if self.firing is not None:
            self.firing.close()
        if self.mounted is not None:
            self.mounted.close(Unavailable(f"Chain {self.number} is not open here."))


class _FiredInto:
    """`firing.PublishedHere` of a chain."""

    def __init__(self, ingress: PublishIngress) -> None:
        self.admits, self.open_source, self.note_load = ingress.admits, ingress.open_pinned, ingress.note_load


async def open_chain(record: ChainRecord, epoch: int, context: ChainContext, entered: Callable[[Chain], None]) -> Chain:
    """Open a chain. `entered` is called as soon as it has to learn of changes, in the turn in which the catalog was
    read for it. Raises storage errors, and `DiskFenced` when a later epoch is known to the disks.
    """
    known = await context.known_disks.known(record.number) if context.known_disks is not None else Known()
    environment = replace(context.environment, notify=context.environment.notifier())

    def recover(counter: int | None) -> tuple[Store, RecoveredState]:
        files, roots = context.open_files(record, epoch)
        store = Store.open(
            roots,
            replace(context.settings, durability=record.durability),
            replace(environment, files=files),
            KnownStore(
                record.universe or context.universe,
                tuple(one for one in known.disks if one),
                counter,
                context.counter_floor,
                AckRule.from_values(record.rule) if record.rule else None,
            ),
        )
        try:
            return store, replay(store)
        except BaseException:
            store.close()
            raise

    for left in reversed(range(OPENINGS_MAX)):
        counter = await context.next_log()
        opening = asyncio.ensure_future(context.environment.blocking(partial(recover, counter)))
        try:
            store, memory = await asyncio.shield(opening)
            break
        except asyncio.CancelledError:
            opening.add_done_callback(lambda done: _abandon(done, context))
            raise
        except CopiesChanged as error:
            log.warning("chain %d: %s", record.number, error)
            if not left:
                raise
    try:
        if context.known_disks is not None:
            await context.known_disks.note(record.number, known, store.recovered.disks)
        await context.shared.at(memory.revision)
        chain = Chain(record, epoch, store, memory, context)
    except BaseException:
        store.begin_close()
        await context.environment.blocking(store.close)
        raise
    entered(chain)
    try:
        # What an older backup of the metadata does not know is on the disks all the same.
        topics = chain.topics()
        unknown = [topic for topic in topics if not context.registered(topic, record.number)]
        await asyncio.gather(*(context.registrar.register(topic, record.number) for topic in unknown))
        if chain.mounted is not None:
            await chain.mounted.recover()
        await chain.confirm()
        await chain.ingress.begin()
        if chain.forwarder.commit.failed is not None:
            raise chain.forwarder.commit.failed  # it failed before it was served, when no listener existed yet
    except BaseException:
        await chain.close()
        raise
    return chain


def _abandon(done: asyncio.Future[tuple[Store, RecoveredState]], context: ChainContext) -> None:
    """Nobody waits for this chain any more: give the disks back once they are had."""
    if not done.cancelled() and done.exception() is None:
        store = done.result()[0]
        store.begin_close()
        _closing.start(context.environment.blocking(store.close))


_closing = Tasks()

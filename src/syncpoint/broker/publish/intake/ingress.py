"""Ingress of one chain: where publishes of other processes come in, and wait when their topic has to be opened.

Place: between `service` and the chain's forwarder.
Promise: before a chain's first message of a topic the chain is registered for it, and the catalog read at or above that
registration (protocol rule 16). A message with an ordering key is taken only in the topic's current epoch, by a chain
that has a part in it, after every other chain has sealed its sources of earlier epochs (rule 18); messages without a
key do not wait for that. What waits keeps its order, and receives UNAVAILABLE when it cannot be taken
(`MetadataSilent` when that is the reason): nothing of it is stored then.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine
from functools import partial
from typing import Any, Protocol

from syncpoint.base.kernel import schedules
from syncpoint.base.kernel.errors import Malformed
from syncpoint.base.model.errors import (
    FailedPrecondition,
    MetadataSilent,
    OtherSchema,
    OtherTopic,
    ResourceExhausted,
    StaleEpoch,
    SyncpointError,
    Unavailable,
)
from syncpoint.base.model.identity import log_of
from syncpoint.base.runtime.tasks import Tasks
from syncpoint.broker.publish.commit.append import PublishCaller
from syncpoint.broker.publish.facts.dedup import SCHEDULED_PART, BatchFact
from syncpoint.broker.publish.facts.origin import Publication, PublishOrigin, SentBatch
from syncpoint.broker.publish.facts.scheduled import ScheduledPart
from syncpoint.broker.publish.facts.source import MessagePlace, Source
from syncpoint.broker.publish.intake.duplicates import DuplicateBatches
from syncpoint.broker.publish.intake.envelope import PublishBatch
from syncpoint.broker.publish.intake.follow import Follower
from syncpoint.catalog.metadata.records import Topic

WAITING_BYTES_MAX = 32 << 20
LEARN_S = 0.5
LEARN_PAUSE_S = 5.0

log = logging.getLogger(__name__)


class KeyAssignment(Protocol):
    """Which chains share the ordering keys of a topic, since which change of that set."""

    @property
    def epoch(self) -> int: ...
    @property
    def chains(self) -> Collection[int]: ...


class Registrar(Protocol):
    """Who writes down which chains hold anything of a topic."""

    async def register(self, topic: int, chain: int) -> int:
        """Return the catalog revision that the copy here has reached since."""
        ...

    async def unregister(self, topic: int, chain: int, epoch: int, still: Callable[[], bool]) -> bool:
        """Remove it if `still`, which is asked right before the removal is sent."""
        ...

    async def registered(self, chain: int) -> Collection[int]:
        """Topics a chain, which is open here, is registered for; the copy here has reached the catalog of since."""
        ...


IdsOfOthers = Callable[[int, int], AsyncIterator[tuple[bytes, bytes]]]
"""(topic, chain): ids and judged batches of a topic's messages that all other chains registered for it have, once those
have sealed what they have, as `message_ids` and `judged_batches` take them. Raises `SyncpointError` where one does not
answer."""


async def no_others(topic: int, chain: int) -> AsyncIterator[tuple[bytes, bytes]]:
    """`IdsOfOthers` where there is one chain."""
    nothing: tuple[tuple[bytes, bytes], ...] = ()
    for ids in nothing:
        yield ids


KeyAssignments = Callable[[int], KeyAssignment | None]
SealOthers = Callable[[int, int, int], Awaitable[None]]
"""(topic, epoch, chain): return when all other chains registered for the topic have sealed what they have of lower
epochs, and will open nothing of them any more. Raises `SyncpointError` also when the metadata, read anew, has another
epoch for the topic: the one asked for may be long over."""


class _WaitingPublishes:
    """Publishes that wait for one topic."""

    __slots__ = ("batches",)

    def __init__(self) -> None:
        self.batches: list[tuple[PublishCaller, PublishBatch]] = []


class PublishIngress:
    """Accept publishes for one chain. `closed` rejects all."""

    def __init__(
        self,
        chain: int,
        follower: Follower,
        duplicates: DuplicateBatches,
        registrar: Registrar,
        assignments: KeyAssignments,
        sealed: SealOthers,
        ids_of_others: IdsOfOthers = no_others,
    ) -> None:
        self.chain, self.follower, self.forwarder = chain, follower, follower.forwarder
        self.recent_batches, self.duplicates = self.forwarder.recent_batches, duplicates
        self._registrar, self._assignments, self._sealed = registrar, assignments, sealed
        self._ids_of_others = ids_of_others
        self.closed = False
        self.load: dict[int, tuple[int, int]] = {}  # messages and bytes by topic, since somebody last looked
        self._registered: set[int] = set()
        self._registering: set[int] = set()
        self._leaving: set[int] = set()  # their registration is about to end
        self._left: set[int] | None = set()  # ended since the chain was opened, until what was registered is known
        self._opening: dict[int, _WaitingPublishes] = {}  # topic -> everything, until there is a source
        self._sealing: dict[int, _WaitingPublishes] = {}  # topic -> messages with keys, until they may come
        self._waiting_bytes = 0
        self._tasks = Tasks()
        self._pins: dict[int, int] = {}  # by topic: how many need the chain to stay registered for it

    def publish(self, caller: PublishCaller, batch: PublishBatch) -> None:
        """Take a batch; `caller` is answered once it is persisted. Raises `SyncpointError` when it is refused."""
        if self.closed:
            raise Unavailable(f"Chain {self.chain} is not open here.")
        self.forwarder.commit.check_writable()
        if self.duplicates.refuses(batch.sender, batch.batch):
            raise FailedPrecondition("Another chain has stored this batch.")
        record = self.forwarder.intake.topic_of(batch.request)
        topic = record.incarnation
        if batch.topic not in (0, topic):
            # Sealed, perhaps, under a key of that topic; and publishers to a deleted topic must learn of it.
            raise OtherTopic(f"{record.name} is topic {topic} here, not {batch.topic}.")
        known = self._known(batch) if batch.resent else []
        if known:
            self.recent_batches.answered += 1
            places = [one for one in known if one is not None]
            if len(places) == len(known):
                self.forwarder.intake.judged.answer(caller, places)
                return
        plain = record.plain and batch.origin is PublishOrigin.CLIENT
        judged = not plain and bool(self.forwarder.ids.kinds(record, batch.request, batch.origin))
        if judged:
            self._check_judged(record, batch)
        judged = judged or bool(known)  # the rest of it was lost with the end of a log
        if record.stamp != batch.schema and not batch.origin.accepted:
            raise OtherSchema(
                f"{record.name} has other schema settings or transforms here than where it was published to."
            )
        if batch.keyed:
            self._check_epoch(topic, batch)
        source = self.forwarder.sources.open_of(topic)
        if source is None or topic in self._opening:
            self._wait(self._opening, topic, caller, batch, self._open)
        elif batch.keyed and (not source.keyed or source.epoch != batch.epoch):
            self._wait(self._sealing, topic, caller, batch, self._seal_others)
        else:
            sent = SentBatch(batch.sender, batch.batch, batch.resent, known) if judged else None
            self._take(caller, Publication(record, batch.request, batch.origin, sent), source, batch)

    def assigned(self, topic: int) -> None:
        """The topic's assignment has changed: what is open of an earlier epoch is sealed."""
        assignment = self._assignments(topic)
        source = self.forwarder.sources.open_of(topic)
        usable = self.forwarder.commit.failed is None and not self.closed
        if usable and assignment is not None and source is not None and source.epoch < assignment.epoch:
            self.forwarder.seal_source(source)

    def forget(self, topic: int, epoch: int) -> None:
        """Nothing of the topic is left in the chain, opened under `epoch`: it need not be asked about it."""
        if topic in self._pins or topic in self.forwarder.scheduled or self.forwarder.remembers(topic):
            return  # the next look at registrations forgets it
        if topic not in self._opening and topic not in self._leaving:
            self._leaving.add(topic)
            self._tasks.start(self._unregister(topic, epoch))

    async def begin(self) -> None:
        """The chain is open, and not served yet: find out what earlier owners registered it for. Messages of these
        topics can then be taken also while the metadata is down. Only the owner ends a registration: what is read from
        now on stays until this one forgets it. Return when that is known, or after a moment: nobody shall wait long for
        a chain's next owner.
        """
        await asyncio.wait((self._tasks.start(self._learn()),), timeout=LEARN_S)

    async def _learn(self) -> None:
        while True:
            try:
                found = await self._registrar.registered(self.chain)
                break
            except SyncpointError as error:
                log.info("chain %d: what it is registered for cannot be read: %s", self.chain, error)
                await asyncio.sleep(LEARN_PAUSE_S)
        assert self._left is not None
        self._registered |= set(found) - self._left
        self._left = None

    def is_waiting(self, topic: int) -> bool:
        """Whether something of the topic is about to come in."""
        held = topic in self.forwarder.scheduled or self.forwarder.remembers(topic)
        return held or topic in self._opening or topic in self._sealing or topic in self._pins

    def admits(self, topic: int) -> bool:
        """Whether messages may be published here now that do not come from publishers; if not, the chain is registered
        for the topic, so that they may be soon.
        """
        if topic in self._registered or self.follower.whole:
            return True
        if topic not in self._registering and not self.closed:
            self._registering.add(topic)
            self._tasks.start(self._register(topic))
        return False

    async def _register(self, topic: int) -> None:
        try:
            await self._registrar.register(topic, self.chain)
            self._registered.add(topic)
        except SyncpointError as error:
            log.info("chain %d cannot be registered for topic %d now: %s", self.chain, topic, error)
        finally:
            self._registering.discard(topic)

    async def pin(self, topic: int) -> None:
        """Return once the chain is registered for a topic; it stays so until `unpin`. Raises `SyncpointError`."""
        self._pins[topic] = self._pins.get(topic, 0) + 1
        try:
            if topic not in self._registered:
                await self._registrar.register(topic, self.chain)
                self._registered.add(topic)
        except BaseException:
            self.unpin(topic)
            raise

    def unpin(self, topic: int) -> None:
        """What `pin` was called for is done, once."""
        self._pins[topic] -= 1
        if not self._pins[topic]:
            del self._pins[topic]

    def open_pinned(self, topic: int) -> Source:
        """The open source of a topic that is pinned, or admitted in this turn, for messages that do not come from
        publishers. It takes part in no order with theirs: see `pipeline/DESIGN.md`.
        """
        source = self.forwarder.sources.open_of(topic)
        if source is not None:
            return source
        assignment = self._assignments(topic)
        return self.follower.open_source(topic, 0 if assignment is None else assignment.epoch)

    def note_load(self, topic: int, messages: int, nbytes: int) -> None:
        """Count bytes accepted for a topic, for routers."""
        known = self.load.get(topic, (0, 0))
        self.load[topic] = (known[0] + messages, known[1] + nbytes)

    async def close(self) -> None:
        """Turn away what waits; nothing more is taken."""
        self.closed = True
        await self._tasks.stop()
        refusal = Unavailable(f"Chain {self.chain} is not open here.")
        for rooms in (self._opening, self._sealing):
            for waiting in rooms.values():
                for caller, _ in waiting.batches:
                    caller.fail(refusal)
            rooms.clear()

    # -- taking ------------------------------------------------------------------------------------------------------

    def _take(self, caller: PublishCaller, published: Publication, source: Source, batch: PublishBatch) -> None:
        forwarder = self.forwarder
        if published.batch is not None:
            forwarder.intake.publish_staged(caller, published)
            self.note_load(source.topic, 1, len(batch.request))
            return
        forwarder.intake.publish(caller, *published[:3], partial(self._note_batch, batch, source, source.end))

    def _note_batch(self, batch: PublishBatch, source: Source, first: int, part: ScheduledPart | None) -> None:
        """Its messages are added: those that wait for their time, and all others from `first` on."""
        count = source.end - first
        if part is None or count:
            self.recent_batches.note(BatchFact(batch.sender, batch.batch, source.number, first, count))
        if part is not None:
            self.recent_batches.note(BatchFact(batch.sender, batch.batch | SCHEDULED_PART, *part))
            count += part.messages
        self.note_load(source.topic, count, len(batch.request))

    def _known(self, batch: PublishBatch) -> list[MessagePlace | None]:
        """Where the messages of a batch are that was sent before, as far as they were taken here; none: nothing was."""
        try:
            later = schedules.divided(batch.request)[2]
        except Malformed:
            return []  # it is refused as it was
        if batch.origin.accepted:
            later = bytes(len(later))  # they wait no more
        found = self.forwarder.batches.find(batch.sender, batch.batch)
        places = found if len(found) == len(later) else list[MessagePlace | None]([None] * len(later))
        for part, number in enumerate((batch.batch, batch.batch | SCHEDULED_PART)):
            fact = self.recent_batches.known(batch.sender, number)
            if fact is not None:
                numbers = (at for at, one in enumerate(later) if one == part)
                for offset, at in enumerate(numbers, fact.first_offset):
                    places[at] = MessagePlace(fact.source, offset)
        return places if any(places) else []

    def _check_judged(self, topic: Topic, batch: PublishBatch) -> None:
        """Ids are known to the one chain that takes a key; all messages of a topic without duplicates are of one."""
        if not batch.keyed:
            raise OtherSchema(f"{topic.name} drops duplicates here: it is published to as if all had one key.")
        assignment = self._assignments(topic.incarnation)
        if topic.options.duplicate_window_s and assignment is not None and len(assignment.chains) > 1:
            raise StaleEpoch(f"{topic.name} drops duplicates, and is about to be given to one chain alone.")

    def _check_epoch(self, topic: int, batch: PublishBatch) -> None:
        assignment = self._assignments(topic)
        if assignment is None or assignment.epoch != batch.epoch or self.chain not in assignment.chains:
            known = "none" if assignment is None else str(assignment.epoch)
            raise StaleEpoch(f"Chain {self.chain} takes keys of this topic in epoch {known}.")

    # -- waiting -----------------------------------------------------------------------------------------------------

    def _wait(
        self,
        rooms: dict[int, _WaitingPublishes],
        topic: int,
        caller: PublishCaller,
        batch: PublishBatch,
        work: Callable[[int], Coroutine[Any, Any, None]],
    ) -> None:
        if self._waiting_bytes and self._waiting_bytes + len(batch.request) > WAITING_BYTES_MAX:
            raise ResourceExhausted(f"Chain {self.chain} is being prepared for many topics. Retry with backoff.")
        waiting = rooms.get(topic)
        if waiting is None:
            waiting = rooms[topic] = _WaitingPublishes()
            self._tasks.start(self._prepare(rooms, topic, work))
        waiting.batches.append((caller, batch))
        self._waiting_bytes += len(batch.request)

    async def _prepare(
        self, rooms: dict[int, _WaitingPublishes], topic: int, work: Callable[[int], Coroutine[Any, Any, None]]
    ) -> None:
        """Do what is waited for, then let them in, or turn them away."""
        refusal: SyncpointError | None = None
        try:
            await work(topic)
        except SyncpointError as error:
            kind = MetadataSilent if isinstance(error, MetadataSilent) else Unavailable
            refusal = kind(f"Chain {self.chain} cannot accept messages of the topic now: {error.message}")
        except asyncio.CancelledError:
            refusal = Unavailable(f"Chain {self.chain} is not open here.")
        except Exception:
            log.exception("chain %d cannot be opened for topic %d", self.chain, topic)
            refusal = Unavailable(f"Chain {self.chain} cannot accept messages of the topic now. Try again.")
        for caller, batch in rooms.pop(topic).batches:
            self._waiting_bytes -= len(batch.request)
            if refusal is not None:
                caller.fail(refusal)
                continue
            try:
                self.publish(caller, batch)
            except SyncpointError as error:
                caller.fail(error)

    async def _open(self, topic: int) -> None:
        """Open a source of the topic in the epoch of now."""
        if topic not in self._registered:
            await self._registrar.register(topic, self.chain)
            self._registered.add(topic)
        self.forwarder.commit.check_writable()
        assignment = self._assignments(topic)
        self.follower.open_source(topic, 0 if assignment is None else assignment.epoch)

    async def _seal_others(self, topic: int) -> None:
        """Make the topic's source one that takes keys."""
        assignment = self._assignments(topic)
        if assignment is None:
            return
        epoch = assignment.epoch
        sources = self.forwarder.sources
        # What an earlier owner of the chain knew of an epoch may be over; this one knows what it was given.
        mine = [one for one in sources.of_topic(topic) if log_of(one.number) == sources.log_counter]
        if not any(one.keyed and one.epoch == epoch for one in mine):
            await self._sealed(topic, epoch, self.chain)
            async for found in self._ids_of_others(topic, self.chain):
                self.forwarder.take_ids(*found)
        self.forwarder.commit.check_writable()
        assignment = self._assignments(topic)
        if assignment is None or assignment.epoch != epoch:
            return  # those who wait are refused for their epoch, or wait for the next one
        source = sources.open_of(topic)
        if source is not None and source.epoch < epoch:
            self.forwarder.seal_source(source)
            source = None
        if source is None:
            source = self.follower.open_source(topic, epoch)
        source.keyed = True
        self.forwarder.rewrite_source(source)

    async def _unregister(self, topic: int, epoch: int) -> None:
        try:
            await self._registrar.unregister(topic, self.chain, epoch, lambda: self._leave(topic))
        except SyncpointError as error:
            log.info("chain %d stays registered for topic %d, of which it holds nothing: %s", self.chain, topic, error)
        finally:
            self._leaving.discard(topic)

    def _leave(self, topic: int) -> bool:
        """Whether the registration may end now. As long as it stands, the topic can be opened by it."""
        if self.is_waiting(topic) or self.forwarder.sources.of_topic(topic):
            return False
        self._registered.discard(topic)
        if self._left is not None:
            self._left.add(topic)
        return True

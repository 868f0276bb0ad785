"""One subscription that the service consumes itself: what is held of it, what is sent when, and what becomes of it.

Place: between a subscriber of the subscribe forwarder (copies of messages come lent, under ack ids) and where a
`ConsumerKind` has batches of them sent. A plain machine: events in, effects out in the order in which they are to be
done; time is an argument.
Promise: each copy (source, place, generation) is held once, whatever ack id it is lent under, and ends once: it is
acknowledged after the batch that has it is stored, or reported back, or its lease ends. Leases are extended for as long
as copies are held. Of a lane one batch is under way at a time, in the order in which its messages came; what waits
after one that failed is given back, so nothing overtakes it. After a failure nothing is sent for a while, and all that
waits is given back, uncounted; what is under way ends with its answer. What a seek makes void is dropped.
A batch may be sent in parts: all of it ends with the last one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from syncpoint.broker.inner.lent import Acknowledged, Extended, GivenBack, Lent, Nacked, Reported, Room
from syncpoint.broker.inner.pace import Pace
from syncpoint.broker.subscribe.confirm import CopyId
from syncpoint.broker.subscribe.shared_state import Reason
from syncpoint.wire.protobuf.messages import pubsub

MESSAGE_BYTES = 1_024  # what a message costs in memory beside its data
REST_S = 10.0  # of a message that can neither be sent nor given up
_WEIGHT = 0.05  # of one message in the mean size
_MEAN_FIRST = 10_000.0


class SendOutcome(Enum):
    """What became of a batch. Only STORED acknowledges; a duplicate of itself is stored, too."""

    STORED = "stored"
    REFUSED = "refused"  # it can never be taken as it is
    UNKNOWN = "unknown"  # nobody knows, or it was not taken this time


@dataclass(slots=True, eq=False)
class HeldBatch:
    """Messages of one lane and generation that are sent together. `begun`: when the first of them came; `nbytes`: of
    all of them; `memory`: what those take that were not sent in a part before."""

    number: int
    lane: str
    generation: int
    begun: float
    extended: float
    ack_ids: dict[CopyId, str] = field(default_factory=dict)
    unsent: list[Lent] = field(default_factory=list)
    nbytes: int = 0
    memory: int = 0
    closed: bool = False  # it takes no more messages
    rests_until: float = float("-inf")
    reason: Reason | None = None  # why it is given up instead of sent
    sending: list[Lent] = field(default_factory=list)
    last: bool = False  # what is under way of it is the rest of it
    part_memory: int = 0  # what that takes
    sent_at: float = 0.0
    in_parts: bool = False

    def __len__(self) -> int:
        return len(self.ack_ids)


@dataclass(frozen=True, slots=True)
class Send:
    """Send these, which are the whole of a batch if they are its `last` and none were sent before. `ended` is to be
    called with the number."""

    number: int
    lent: Sequence[Lent]
    last: bool
    begun: float


@dataclass(frozen=True, slots=True)
class Discard:
    """Nothing of what was sent of this batch shall remain."""

    number: int


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Make a dead letter of it. `given_up` is to be called with the number."""

    number: int
    lent: Lent
    reason: Reason


Work = Send | Discard | GiveUp
Effect = Work | Reported


class ConsumerKind(ABC):
    """What one kind of consumers sends together, and what a failure means there."""

    counts_failures: bool
    """Whether what failed was a delivery of each message, or is given back uncounted."""
    refusal: str = ""
    """The reason for which a message that is refused alone is given up, after those refused together were tried one by
    one; "": what is refused has failed like anything else."""

    def lane(self, message: pubsub.PubsubMessage) -> str:
        """What is sent one batch after the other; "": messages that may be sent beside each other."""
        return str(message.ordering_key)

    @abstractmethod
    def takes(self, batch: HeldBatch, nbytes: int) -> bool:
        """Whether a batch that waits takes another message of this size."""

    def is_due(self, batch: HeldBatch, now: float) -> bool:
        """Whether a batch that could take more is sent all the same."""
        return True

    def is_part_due(self, batch: HeldBatch, memory_max: int) -> bool:
        """Whether what a batch has is sent before it is due."""
        return False

    def reason(self, message: pubsub.PubsubMessage) -> Reason | None:
        """Why a message is given up unsent; None: it is sent."""
        return None

    @abstractmethod
    def room(self, machine: InnerConsumer) -> int:
        """How many messages may be lent at once, those included that are held."""


class InnerConsumer:
    """Consume one subscription inside the service.

    `lease_s`: lease of messages in seconds; `memory_max`: bytes of messages in memory.
    """

    def __init__(self, kind: ConsumerKind, pace: Pace, *, lease_s: float, memory_max: int = 1 << 62) -> None:
        self.kind, self.pace, self.lease_s, self.memory_max = kind, pace, lease_s, memory_max
        names = ("acknowledged", "batches", "refused", "given_back", "given_up", "kept")
        self.counts: dict[str, int] = dict.fromkeys(names, 0)
        self.stopped = False
        self.memory = 0  # bytes of what is held and not sent
        self.mean_bytes = _MEAN_FIRST  # of a message, in memory
        self._generation = 0  # the newest of what was lent
        self._numbers = 0
        self._held: dict[CopyId, HeldBatch] = {}
        self._waiting: dict[str, deque[HeldBatch]] = {}  # by lane; one that is sent in parts stays in front of its lane
        self._ready: dict[str, None] = {}  # lanes of which something waits and nothing is under way; the next one first
        self._busy: set[str] = set()  # lanes of what is under way
        self._under_way: dict[int, HeldBatch] = {}
        self._room: int | None = None

    def __repr__(self) -> str:
        return f"<InnerConsumer under_way={self.under_way} held={self.held} {self.pace!r}>"

    @property
    def held(self) -> int:
        """How many messages are under way or wait."""
        return len(self._held)

    @property
    def under_way(self) -> int:
        """How many batches are."""
        return len(self._under_way)

    @property
    def free(self) -> int:
        """Bytes that may come."""
        return max(0, self.memory_max - self.memory)

    @property
    def at_rest(self) -> bool:
        """Whether time changes nothing."""
        return not self._held and self._room == self.kind.room(self)

    # -- events ------------------------------------------------------------------------------------------------------

    def received(self, lent: Sequence[Lent], now: float) -> list[Effect]:
        """Messages were lent to this subscriber."""
        if self.stopped or self.pace.paused_until(now) is not None:
            return self._give_back([one.ack_id for one in lent])
        effects: list[Effect] = []
        void: list[str] = []
        for one in lent:
            if one.copy.generation < self._generation:
                void.append(one.ack_id)
                continue
            if one.copy.generation > self._generation:
                effects += self._begin_generation(one.copy.generation)
            known = self._held.get(one.copy)
            if known is not None:  # after a lost grant: the earlier ack id is void
                known.ack_ids[one.copy] = one.ack_id
            else:
                self._gather(one, now)
        return [*effects, *self._give_back(void), *self._go_on(now)]

    def ended(
        self, number: int, outcome: SendOutcome, now: float, *, why: str = "", unfit: Collection[CopyId] = ()
    ) -> list[Effect]:
        """What was to be sent has an answer, or will never have one. `unfit`: these are not in what is stored, and
        never will be."""
        under_way = self.under_way
        batch = self._end_of(number)
        if outcome is SendOutcome.STORED:
            effects = self._stored(batch, unfit, now, under_way)
        elif outcome is SendOutcome.REFUSED and self.kind.refusal and self._may_go_on(batch):
            effects = self._refused(batch, Reason(self.kind.refusal, why), now)
        else:
            effects = self._failed(batch, now)
        return effects + self._go_on(now)

    def given_up(self, number: int, now: float, *, kept: bool) -> list[Effect]:
        """The letter is persisted, and the message acknowledged with it; `kept`: neither is."""
        batch = self._end_of(number)
        self.counts["kept" if kept else "given_up"] += 1
        if kept and not self._may_go_on(batch):
            return [*self._give_back(self._let_go(batch)), *self._go_on(now)]
        if kept and batch.lane:
            batch.unsent, batch.rests_until = batch.sending, now + REST_S
            self._put_first([batch])
        else:
            self._let_go(batch)  # the lease of one that is kept ends, which counts as a delivery
        return self._go_on(now)

    def end_gathering(self, now: float) -> list[Effect]:
        """Send what is gathered as it is: nothing more comes for it."""
        for queue in self._waiting.values():
            queue[-1].closed = True
        return self._go_on(now)

    def tick(self, now: float) -> list[Effect]:
        """Time has passed: a batch may be due, a pause over, leases may need more of it."""
        effects = self._go_on(now)
        due = [batch for batch in self._batches() if now - batch.extended >= self.lease_s / 2]
        for batch in due:
            batch.extended = now
        ids = tuple(ack_id for batch in due for ack_id in batch.ack_ids.values())
        return [*effects, Extended(ids)] if ids else effects

    def stop(self) -> list[Effect]:
        """Nothing more is sent from here. What is under way still ends with its answer."""
        self.stopped = True
        return [*self._drop(self._waiting), *self._set_room(0)]

    def resume(self) -> None:
        """Messages come again, after `stop`; what is under way since then keeps its lanes."""
        self.stopped, self._room = False, None

    # -- what is held ------------------------------------------------------------------------------------------------

    def _gather(self, one: Lent, now: float) -> None:
        lane, nbytes, reason = self.kind.lane(one.message), int(one.message.ByteSize()), self.kind.reason(one.message)
        queue = self._waiting.setdefault(lane, deque())
        batch = queue[-1] if queue else None
        if batch is None or batch.closed or reason is not None or not self.kind.takes(batch, nbytes):
            if batch is not None:
                batch.closed = True
            batch = self._new_batch(lane, now)
            batch.reason, batch.closed = reason, reason is not None
            queue.append(batch)
        self._add(batch, one, nbytes)
        self.mean_bytes += _WEIGHT * (nbytes + MESSAGE_BYTES - self.mean_bytes)
        if lane not in self._busy:
            self._ready[lane] = None

    def _new_batch(self, lane: str, begun: float) -> HeldBatch:
        self._numbers += 1
        return HeldBatch(self._numbers, lane, self._generation, begun, begun)

    def _add(self, batch: HeldBatch, one: Lent, nbytes: int) -> None:
        batch.ack_ids[one.copy] = one.ack_id
        batch.unsent.append(one)
        batch.nbytes += nbytes
        batch.memory += nbytes + MESSAGE_BYTES
        self.memory += nbytes + MESSAGE_BYTES
        self._held[one.copy] = batch

    def _let_go(self, batch: HeldBatch) -> list[str]:
        """Hold it no more; returns its ack ids."""
        for copy in batch.ack_ids:
            del self._held[copy]
        self.memory -= batch.memory
        return list(batch.ack_ids.values())

    def _put_first(self, batches: list[HeldBatch]) -> None:
        lane = batches[0].lane
        self._waiting.setdefault(lane, deque()).extendleft(reversed(batches))
        self._ready[lane] = None

    def _remove(self, lanes: Iterable[str]) -> tuple[list[Effect], list[str]]:
        """Nothing of these lanes waits any more: what is to be discarded, and the ack ids. A batch of which a part is
        under way is not among it, and ends when that does."""
        discarded: list[Effect] = []
        ids: list[str] = []
        for lane in list(lanes):
            self._ready.pop(lane, None)
            for batch in self._waiting.pop(lane, ()):
                if batch.number in self._under_way:
                    continue
                if batch.in_parts:
                    discarded.append(Discard(batch.number))
                ids += self._let_go(batch)
        return discarded, ids

    def _drop(self, lanes: Iterable[str]) -> list[Effect]:
        """What waits of these lanes is given back."""
        discarded, ids = self._remove(lanes)
        return discarded + self._give_back(ids)

    def _begin_generation(self, generation: int) -> list[Effect]:
        """After a seek: what waits of before it is void, and comes again if it is meant to."""
        self._generation = generation
        return self._remove(self._waiting)[0]

    def _may_go_on(self, batch: HeldBatch) -> bool:
        """Whether what was under way may be sent again from here."""
        return not self.stopped and batch.generation == self._generation

    def _batches(self) -> Iterator[HeldBatch]:
        yield from self._under_way.values()
        for queue in self._waiting.values():
            yield from (batch for batch in queue if batch.number not in self._under_way)

    # -- what is sent ------------------------------------------------------------------------------------------------

    def _go_on(self, now: float) -> list[Effect]:
        """Send what may be sent, lane by lane; then say how much may come."""
        if self.stopped:
            return []
        if self.pace.paused_until(now) is not None:
            return [*self._drop(self._waiting), *self._set_room(0)]
        effects: list[Effect] = []
        turn = deque(self._ready)
        while turn and self.under_way < self.pace.window:
            lane = turn.popleft()
            work = self._next_of(lane, now)
            if work is not None:
                effects.append(work)
                if lane in self._ready:
                    turn.append(lane)
        return effects + self._set_room(self.kind.room(self))

    def _next_of(self, lane: str, now: float) -> Work | None:
        """What begins of a lane that is ready, if anything does."""
        queue = self._waiting[lane]
        batch = queue[0]
        if batch.rests_until > now:
            return None
        last = batch.closed or self.kind.is_due(batch, now)
        if not last and not self.kind.is_part_due(batch, self.memory_max):
            return None
        del self._ready[lane]
        if last:
            batch.closed = True
            queue.popleft()
            if not queue:
                del self._waiting[lane]
        self._occupy(lane)
        if lane in self._waiting and lane not in self._busy:
            self._ready[lane] = None
        return self._begin(batch, now, last=last)

    def _occupy(self, lane: str) -> None:
        if lane:
            self._busy.add(lane)

    def _begin(self, batch: HeldBatch, now: float, *, last: bool) -> Work:
        batch.in_parts |= not last
        batch.sending, batch.unsent = batch.unsent, []
        batch.last, batch.sent_at, batch.part_memory = last, now, batch.memory
        self._under_way[batch.number] = batch
        if batch.reason is not None:
            (one,) = batch.sending
            return GiveUp(batch.number, replace(one, ack_id=batch.ack_ids[one.copy]), batch.reason)
        return Send(batch.number, batch.sending, last, batch.begun)

    def _end_of(self, number: int) -> HeldBatch:
        batch = self._under_way.pop(number)
        self._busy.discard(batch.lane)
        if batch.lane in self._waiting:
            self._ready[batch.lane] = None
        return batch

    # -- how it ends -------------------------------------------------------------------------------------------------

    def _stored(self, batch: HeldBatch, unfit: Collection[CopyId], now: float, under_way: int) -> list[Effect]:
        bad = tuple(batch.ack_ids.pop(copy) for copy in unfit)
        for copy in unfit:
            del self._held[copy]
        self.counts["refused"] += len(bad)
        effects: list[Effect] = [Nacked(bad)] if bad else []
        if batch.last:
            self.pace.on_acknowledged(now - batch.sent_at, under_way)
            done = tuple(self._let_go(batch))
            self.counts["batches"] += bool(done)
            self.counts["acknowledged"] += len(done)
            return [Acknowledged(done), *effects] if done else effects
        if batch not in self._waiting.get(batch.lane, ()):  # what waited was given back
            ids = self._let_go(batch)
            return [*effects, Discard(batch.number), *self._give_back(ids), *self._drop([batch.lane])]
        batch.closed |= bool(bad)  # they may fit the next one
        self.memory -= batch.part_memory
        batch.memory -= batch.part_memory
        batch.sending = []
        return effects

    def _refused(self, batch: HeldBatch, reason: Reason, now: float) -> list[Effect]:
        """Each message is tried alone; one that is refused alone is given up."""
        if len(batch) == 1:
            batch.reason, batch.unsent = reason, batch.sending
            self._put_first([batch])
            return []
        ids = batch.ack_ids
        self._let_go(batch)
        alone = []
        for one in batch.sending:
            single = self._new_batch(batch.lane, batch.begun)
            single.extended, single.closed = batch.extended, True
            self._add(single, replace(one, ack_id=ids[one.copy]), int(one.message.ByteSize()))
            alone.append(single)
        self._put_first(alone)
        return []

    def _failed(self, batch: HeldBatch, now: float) -> list[Effect]:
        self.pace.on_failed(now - batch.sent_at, batch.sent_at, now)
        discarded: list[Effect] = [Discard(batch.number)] if batch.in_parts else []
        queue = self._waiting.get(batch.lane)
        if queue and queue[0] is batch:
            queue.popleft()
        ids = self._let_go(batch)
        behind = self._drop([batch.lane]) if batch.lane else []
        if not self.kind.counts_failures:
            return [*discarded, *self._give_back(ids), *behind]
        self.counts["refused"] += len(ids)
        return [*discarded, Nacked(tuple(ids)), *behind]

    def _give_back(self, ack_ids: Sequence[str]) -> list[Effect]:
        self.counts["given_back"] += len(ack_ids)
        return [GivenBack(tuple(ack_ids))] if ack_ids else []

    def _set_room(self, messages: int) -> list[Effect]:
        if messages == self._room:
            return []
        self._room = messages
        return [Room(messages)]

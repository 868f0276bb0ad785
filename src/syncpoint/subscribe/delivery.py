"""Delivery: one subscription on its way to its subscribers.

Place: between the publish side and consumers. Cursors fetch from the sources, the pump shares what came among the
consumers that have room, the lease table lends it. The pump runs once per event-loop turn, so everything that became
available in a turn travels in one response per consumer. Sharing is fair: with several consumers a visit takes at most
an even share of what lies ready, and the turn goes round.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

from syncpoint.kernel import frames
from syncpoint.kernel.filters import matches
from syncpoint.kernel.leases import LeaseTable
from syncpoint.metadata.records import Subscription
from syncpoint.model.delivery import Batch, PublishSide, SourceView, attempts_of, passed_over
from syncpoint.model.errors import Unavailable
from syncpoint.subscribe.consumer import RESPONSE_BYTES_MAX, Consumer
from syncpoint.subscribe.fetch import CREDIT_BYTES, FetchCursor
from syncpoint.subscribe.lease import TICKS_PER_S, LeaseManager
from syncpoint.subscribe.ordering import Identity, KeyOrder
from syncpoint.subscribe.passed import PassedOver
from syncpoint.subscribe.retry import OffsetRun, rest_s
from syncpoint.subscribe.subscription_sources import SubscriptionSources

REDELIVER_AT_ONCE = 1024
REDELIVER_BYTES = 8 << 20
KEY_RUN_MAX = 100  # messages of one key in one response, when they were held back
WANTED_FULL_S = 10.0  # so long a subscription stays wanted although its subscribers can take nothing,
WANTED_IDLE_S = 5.0  # and so long when the last one was a pull: another may follow,
WANTED_GONE_S = 0.5  # and so long when it was a stream: it may have gone to another forwarder
WANTED_OUT_S = 15.0  # and so long while something is lent that nobody else may deliver meanwhile
LOOK_AGAIN_S = 1.0  # how often it is asked how far others are, while keys wait for them


class Delivery:
    """The subscribe forwarder's state for one subscription with subscribers (or with leases left from them)."""

    def __init__(
        self,
        record: Subscription,
        publish: PublishSide,
        *,
        table: LeaseTable,
        generation: int,
        program: bytes,
        now: Callable[[], float],
        soon: Callable[[Callable[[], None]], object],
        dead_letter: Callable[["Delivery", int, int, int], None],
        doubted: Callable[[], bool],
    ) -> None:
        """`doubted()`: something failed in its middle, and it is not begun anew yet."""
        self.record = record
        self.publish = publish
        self.table = table
        self.program = program
        self.now = now
        self.leases = LeaseManager(self, table, publish)
        self.leases.generation = generation
        self.consumers: deque[Consumer] = deque()
        self.delivered = 0
        self.stalled = False  # a fetch failed: look again at the next tick
        self._soon = soon
        self._dead_letter, self._doubted = dead_letter, doubted
        self._sources = SubscriptionSources(self._read_on, ordered=record.ordered)
        self._grants: dict[int, int] = {}  # of the sources that are, or were last, delivered here
        self._behind: set[int] = set()  # sources to begin anew, behind one that was voided
        self._wanted = False
        self._could_take = -WANTED_OUT_S  # when somebody here last could take a message
        self._pulled = False  # whether the last one to come was a pull, after which another may follow
        self._looked = now()
        self._redelivered: deque[tuple[Batch, int]] = deque()
        self._refetching = 0
        self._passed = PassedOver()
        self._resuming: dict[Identity, float | None] = {}  # came back before, in order: until when they rest
        self._unread_keys: list[bytes] = []  # to be read again at the next tick
        self._scheduled = False
        self._voided = 0  # counts resets: answers that were asked for before one are void

    def __repr__(self) -> str:
        messages, nbytes = self.table.total()
        return (
            f"<Delivery {self.record.name} consumers={len(self.consumers)} outstanding={messages} ({nbytes} B) "
            f"redeliver={len(self.leases.redelivery)}>"
        )

    # -- what happens around it --------------------------------------------------------------------------------------

    def start(self) -> None:
        """Ask for the sources of the topic."""
        self._looked = self.now()
        self.publish.attach(self.record.incarnation, self)

    def on_sources(self, views: Sequence[SourceView], complete: bool) -> None:
        for view in views:
            if view.done:
                self._grants.pop(view.source, None)
                self._drop_read_again(view.source)
                self._passed.forget_source(view.source)
                self.leases.finish(view.source)
            elif view.held:
                if self.strict and self._grants.get(view.source, view.grant) != view.grant:
                    self._void(view.source)  # somebody else may have delivered from it meanwhile
                    self._sources.forget(view.source)
                self._grants[view.source] = view.grant
            elif view.source in self._grants:
                self._put_back_of(view.source)
            self._sources.named(view)
        self._sources.complete = complete
        self._go_back()
        self.wake()

    def on_data(self, source: int) -> None:
        self._sources.data_came(source)
        self.wake()

    def on_revoked(self, source: int) -> None:
        self._void(source)
        self._sources.forget(source)
        self._go_back()
        self.wake()

    def on_reset(self) -> None:
        """A seek: every lease and cursor is void, everything unacknowledged is read anew."""
        self._renew(sought=True)

    def _renew(self, *, sought: bool) -> None:
        self._voided += 1
        self._sources.clear()
        self._behind.clear()
        self._grants.clear()
        self._redelivered.clear()
        self._passed.clear()
        self._resuming.clear()
        self._unread_keys.clear()
        self._refetching = 0
        before, self.leases = self.leases, LeaseManager(self, self.table, self.publish, self.leases.unsure)
        self.leases.generation = self.publish.generation(self.record.incarnation)
        before.close(None if sought else self.leases)
        self.table.reset(self.leases.generation)
        self.start()
        self.wake()

    def begin_anew(self) -> None:
        """A step failed in its middle, and what it has left undone nobody knows. Let go of all sources, so that they
        are granted anew, and read again whatever is not acknowledged; what is lent counts no more.
        """
        self.publish.detach(self.record.incarnation)
        self._wanted = False  # whoever is attached to anew has to be told
        self._scheduled = False  # perhaps it is not
        self._renew(sought=False)

    def _void(self, source: int) -> None:
        """The grant of a source ended: what was read and lent of it is nobody's business here any more. What was lent
        of sources behind it is delivered again, after it: a key's later messages follow its earlier ones.
        """
        self._behind.update(self._sources.after(source))
        self._grants.pop(source, None)
        self._drop_read_again(source)
        self._passed.forget_source(source)
        for identity in [one for one in self._resuming if one[0] == source]:
            del self._resuming[identity]
        self.leases.void(source)

    def _go_back(self) -> None:
        """Begin anew what lies behind a source that was voided."""
        if self._behind:
            behind, self._behind = self._behind, set()
            for source in sorted(behind):
                self._drop_read_again(source)
                self._passed.forget_source(source)
                self.leases.void(source)
                self._sources.begin_again(source)
            self.start()

    def on_removed(self) -> None:
        """The subscription was deleted or detached: whoever waits is told."""
        consumers, self.consumers = self.consumers, deque()
        for consumer in consumers:
            consumer.closed = True
            consumer.gone()
        self.leases.close()

    def add(self, consumer: Consumer) -> None:
        self.consumers.append(consumer)
        self._could_take, self._pulled = self.now(), consumer.single
        self._want(True)
        self.wake()

    def look_again(self) -> None:
        """Something could not be read, or recorded, some time ago."""
        self.stalled = False
        keys, self._unread_keys = self._unread_keys, []
        if self.leases.order is not None:
            for key in keys:
                self.leases.order.started(key)
        self.leases.resend()
        self.wake()

    def review(self, now: float) -> None:
        """Every tick: whether sources are wanted here, and how far others are where keys wait for them."""
        if self._has_room():
            self._could_take = now
        out = self.strict and self.leases.is_out
        if self.consumers:
            wanted = out or now - self._could_take < WANTED_FULL_S
        elif out:  # acknowledged it may still be, but whoever has subscribers does not wait for that without end
            wanted = now - self._could_take < WANTED_OUT_S
        else:
            linger_s = WANTED_IDLE_S if self._pulled else 0.0 if self.strict else WANTED_GONE_S
            wanted = now - self._could_take < linger_s
        self._want(wanted)
        self.leases.examine(self._sources.holds, self._fetch, now)
        if self._passed and self.consumers:
            for run in self._passed.take_due(now):
                if not self._read_again(run):
                    self._passed.answered(run, (), now)  # its keys know all of it by now
        if self._sources.waits and now - self._looked >= LOOK_AGAIN_S:
            self.start()

    def _want(self, wanted: bool) -> None:
        if wanted != self._wanted:
            self._wanted = wanted
            self.publish.set_demand(self.record.incarnation, wanted)

    @property
    def strict(self) -> bool:
        """Whether what was lent under one grant means nothing under the next."""
        return self.record.exactly_once or self.record.ordered

    def remove(self, consumer: Consumer) -> None:
        consumer.closed = True
        if consumer in self.consumers:
            self.consumers.remove(consumer)

    def wake(self) -> None:
        """Something changed: look at everything once, at the end of this turn."""
        if not self._scheduled and self.consumers:
            self._scheduled = True
            self._soon(self._pump)

    def dead_letter(self, source: int, offset: int, attempts: int) -> None:
        self._dead_letter(self, source, offset, attempts)

    @property
    def at_rest(self) -> bool:
        """Nobody listens and nothing is lent: it may be forgotten, the ledger knows all that matters."""
        return not self.consumers and not self._redelivered and not self._refetching and self.leases.at_rest

    # -- the pump ----------------------------------------------------------------------------------------------------

    def _pump(self) -> None:
        self._scheduled = False
        if self.strict:
            if self._doubted():
                return
            self.publish.check_grants(self.record.incarnation)
        self._redeliver()
        self._ask()
        in_round = idle = 0
        while idle < len(self.consumers):
            in_round = in_round - 1 if in_round > 1 else len(self.consumers)
            consumer = self.consumers[0]
            self.consumers.rotate(-1)
            moved = self._serve(consumer, in_round)
            idle = 0 if moved else idle + 1
            if moved and len(self.consumers) == 1:
                self.wake()  # one consumer: the next response belongs to the next turn
                break
        self._ask()
        if self.leases.redelivery.has_due and not self._redelivered and not self._refetching and self._has_room():
            self.wake()  # more came back than was read at once

    def _serve(self, consumer: Consumer, sharers: int) -> bool:
        """Give one consumer its share of what is ready. False if it has no room, or nothing moved."""
        room, room_bytes = consumer.room(self.table)
        if not room:
            return False
        moved = False
        if self.leases.order is not None:
            moved = self._go_on_with_keys(consumer, room, room_bytes)
            room, room_bytes = consumer.room(self.table)
        share = self._share(room, sharers)
        parts: list[bytes] = []
        serials: list[int] = []
        size, left, free = 0, share, consumer.free(self.table)
        while left > 0 and room_bytes > 0 and size < RESPONSE_BYTES_MAX:
            ready = self._next_ready()
            if ready is None:
                break
            batch, attempt, cursor = ready
            if self.leases.order is not None:
                most = min(room_bytes, RESPONSE_BYTES_MAX - size) if parts else room_bytes
                response, at, count, nbytes = self._lend_in_order(
                    batch, consumer, left, most, attempt, any_first=free and not parts
                )
            else:
                most = min(room_bytes, RESPONSE_BYTES_MAX - size)
                first_max = -1 if free and not parts else room_bytes
                response, at, count, nbytes = self._lend(batch, consumer, left, most, attempt, first_max)
            moved = moved or at > batch.begin
            if cursor is not None:
                cursor.advance(at)
            elif at >= batch.end:
                self._redelivered.popleft()
            else:
                self._redelivered[0] = (batch._replace(begin=at), attempt)
            if count:
                parts.append(response)
                serials.append(self.table.last_serial)
                left, room_bytes, size = left - count, room_bytes - nbytes, size + nbytes
            if at < batch.end:
                break  # no room for the next message
            if cursor is not None:
                self._read_on(cursor)
        if parts:
            self.delivered += share - left
            if consumer.single:
                self.remove(consumer)
            consumer.send(parts, serials)
        return moved

    def _share(self, room: int, sharers: int) -> int:
        if sharers < 2:
            return room
        ready = sum(batch.end - batch.begin for batch, _ in self._redelivered)
        ready += self._sources.ready()
        return min(room, max(1, -(-ready // sharers)))

    def _next_ready(self) -> tuple[Batch, int, FetchCursor | None] | None:
        if self._redelivered:
            batch, attempt = self._redelivered[0]
            return batch, attempt, None
        order = self.leases.order
        if order is not None and order.full:
            return None
        ready = self._sources.next_ready()
        return (ready[0], 1 if self.record.dead_letter else 0, ready[1]) if ready is not None else None

    def _lend(
        self, batch: Batch, consumer: Consumer, room: int, room_bytes: int, attempt: int, first_max: int = -1
    ) -> tuple[bytes, int, int, int]:
        """Lease messages of a batch: the response's bytes, the next offset, messages and bytes given."""
        response, at, count, nbytes, dropped = self.table.lease(
            batch.source,
            batch.payload,
            batch.first_offset,
            batch.begin,
            batch.end,
            batch.skip,
            self.program,
            consumer.number,
            int((self.now() + consumer.deadline_s) * TICKS_PER_S),
            room,
            room_bytes,
            attempt if self.record.dead_letter else 0,
            first_max,
        )
        if dropped:
            self.leases.drop(batch.source, dropped)
        return response, at, count, nbytes

    def _lend_in_order(
        self, batch: Batch, consumer: Consumer, room: int, room_bytes: int, attempt: int, *, any_first: bool
    ) -> tuple[bytes, int, int, int]:
        """Like `_lend`, leaving out what its ordering key holds back. `any_first`: one message may be of any size."""
        order = self.leases.order
        assert order is not None
        sizes, keys = frames.describe(batch.payload)
        skip = bytearray(batch.skip or bytes((len(sizes) + 7) // 8))
        taken = taken_bytes = 0
        at = batch.begin
        while at < batch.end and taken < room:
            index = at - batch.first_offset
            if not skip[index >> 3] >> (index & 7) & 1:
                if taken_bytes + sizes[index] > room_bytes and (taken or not any_first):
                    break
                wanted = not self.program or matches(self.program, frames.message_at(batch.payload, index))
                key, nbytes = keys[index], sizes[index]
                if wanted and (batch.source, at) in self._resuming:
                    skip[index >> 3] |= 1 << (index & 7)
                    self._resume_in_order(order, (batch.source, at), key, consumer.holder, nbytes)
                elif wanted and key and not order.admit(key, (batch.source, at), consumer.holder, nbytes):
                    skip[index >> 3] |= 1 << (index & 7)
                elif wanted:
                    taken += 1
                    taken_bytes += sizes[index]
            at += 1
        part = batch._replace(end=at, skip=bytes(skip))
        response, _, count, nbytes = self._lend(part, consumer, room, 1 << 62, attempt)
        return response, at, count, nbytes

    # -- redelivery --------------------------------------------------------------------------------------------------

    def _redeliver(self) -> None:
        """Read again what is due, about as much as is sensible at once."""
        limit = REDELIVER_AT_ONCE - self._refetching - len(self._redelivered)
        if not self.consumers or limit <= 0:
            return
        for run in self.leases.redelivery.take_due(limit):
            self._read_again(run)
            if sum(len(batch.payload) for batch, _ in self._redelivered) >= REDELIVER_BYTES:
                break  # large messages: the rest is read when these are lent

    def _read_again(self, run: OffsetRun) -> bool:
        """False if nothing of it is to be read outside of its keys."""
        order = self.leases.order
        parts = [run] if order is None else list(_without_keys(run, order))
        for part in parts:
            self._refetching += part.end - part.begin
            self._fetch(part.source, part.begin, part.end, partial(self._refetched, part))
        return bool(parts)

    def _refetched(self, run: OffsetRun, batches: Sequence[Batch] | Exception) -> None:
        self._refetching -= run.end - run.begin
        if isinstance(batches, Exception):
            self._pass_over(run, ())
            for offset in range(run.begin, run.end):
                self.leases.redelivery.add(run.source, offset, at=self.now() + 0.1)
            return
        self._pass_over(run, batches)
        read_to = run.begin if batches else run.end  # nothing came: nothing of the run is unacknowledged any more
        for batch in batches:
            if batch.begin < run.end:
                self._redelivered.append((batch._replace(end=min(batch.end, run.end)), run.attempt))
            read_to = batch.end
        for offset in range(read_to, run.end):
            self.leases.redelivery.add(run.source, offset)  # beyond what the credit brought: its turn comes next
        self.wake()

    def _pass_over(self, run: OffsetRun, batches: Sequence[Batch]) -> None:
        """What of a run could not be read is tried again later. Whatever its keys were, they go on without it."""
        passed = passed_over(batches)
        if passed or self._passed:
            self._passed.answered(run, passed, self.now())

    def put_back(self) -> None:
        """Nobody is there to take what was read again: it waits as before, with its count of deliveries."""
        self._put_back(self._redelivered)
        self._redelivered.clear()

    def _put_back_of(self, source: int) -> None:
        """The same for one source, from which nothing may be lent now."""
        self._put_back([one for one in self._redelivered if one[0].source == source])
        self._drop_read_again(source)

    def _drop_read_again(self, source: int) -> None:
        self._redelivered = deque(one for one in self._redelivered if one[0].source != source)

    def _put_back(self, redelivered: Iterable[tuple[Batch, int]]) -> None:
        for batch, _ in redelivered:
            for offset in range(batch.begin, batch.end):
                index = offset - batch.first_offset
                if not (batch.skip and batch.skip[index >> 3] >> (index & 7) & 1):
                    self.leases.redelivery.add(batch.source, offset)

    def _go_on_with_keys(self, consumer: Consumer, room: int, room_bytes: int) -> bool:
        """Messages that were held back by their keys, or came back, go to this consumer now. True if there were any."""
        order = self.leases.order
        assert order is not None
        before, free = room, consumer.free(self.table)
        while room > 0 and room_bytes > 0:
            most, any_first = min(room_bytes, RESPONSE_BYTES_MAX), free and room == before
            begun = order.start(consumer.holder, min(room, KEY_RUN_MAX), most, any_first=any_first)
            if begun is None:
                break
            key, identities = begun
            room, room_bytes = room - len(identities), room_bytes - order.size(identities)
            self._read_key(consumer, key, identities)
            if consumer.single:
                break
        return room < before

    def _read_key(self, consumer: Consumer, key: bytes, identities: list[Identity]) -> None:
        """Read waiting messages of one key again, and lend them when all are there, in one response."""
        found: dict[Identity, Sequence[Batch] | Exception] = {}

        def read(identity: Identity, batches: Sequence[Batch] | Exception) -> None:
            found[identity] = batches
            if len(found) == len(identities):
                self._lend_key(consumer, key, [(one, found[one]) for one in identities])

        for source, offset in identities:
            self._fetch(source, offset, offset + 1, partial(read, (source, offset)))

    def _lend_key(
        self, consumer: Consumer, key: bytes, messages: list[tuple[Identity, Sequence[Batch] | Exception]]
    ) -> None:
        order = self.leases.order
        assert order is not None
        parts: list[bytes] = []
        serials: list[int] = []
        unread = consumer.closed
        size, free = 0, consumer.free(self.table)
        room, room_bytes = consumer.room(self.table)  # asked for again: other keys may have been read faster
        for identity, batches in messages:
            if not order.is_outstanding(identity):
                continue  # acknowledged, or taken back, while it was being read
            unread = unread or isinstance(batches, Exception)
            if unread or isinstance(batches, Exception):
                order.take_back(identity, block=False)  # and everything of the key after it
                continue
            batch = next((b for b in batches if b.begin == identity[1]), None)
            at, count = identity[1] + 1, 0
            attempt = self.leases.redelivery.attempts.get(identity, 0) + 1
            if batch is not None:
                one = batch._replace(end=identity[1] + 1)
                most = min(room_bytes, RESPONSE_BYTES_MAX - size) if parts else room_bytes
                first_max = -1 if free and not parts else most
                response, at, count, nbytes = self._lend(one, consumer, room, most, attempt, first_max)
            if count:
                parts.append(response)
                serials.append(self.table.last_serial)
                room, room_bytes, size = room - count, room_bytes - nbytes, size + nbytes
            elif at > identity[1]:
                self._pass_over(OffsetRun(*identity, at, attempt), batches)
                order.settle(identity)  # acknowledged meanwhile, deleted, or not to be read now
            else:
                unread = True  # no room for it
                order.take_back(identity, block=False)
        if any(isinstance(batches, Exception) for _, batches in messages):
            self._unread_keys.append(key)
            self.stalled = True
        else:
            order.started(key)
        if parts:
            self.delivered += len(parts)
            if consumer.single:
                self.remove(consumer)
            consumer.send(parts, serials)
        self.wake()

    # -- fetching ----------------------------------------------------------------------------------------------------

    def _fetch(self, source: int, begin: int, end: int, reply: Callable[[Sequence[Batch] | Exception], None]) -> None:
        voided, void = self._voided, self.leases.voids.get(source, 0)

        def answer(batches: Sequence[Batch] | Exception) -> None:
            if self.strict:
                self.publish.check_grants(self.record.incarnation)
            if voided != self._voided:
                return
            if void != self.leases.voids.get(source, 0):
                reply(())
            elif self.strict and (self._doubted() or not self._sources.holds(source)):
                reply(Unavailable("whether the source is still granted here is in doubt"))
            else:
                reply(batches)

        self.publish.fetch(self.record.incarnation, source, begin, min(CREDIT_BYTES, (end - begin) << 10), answer)

    def _read_on(self, cursor: FetchCursor) -> None:
        if cursor.wants_more and self.now() < cursor.not_before:
            self.stalled = True
        elif cursor.wants_more:
            cursor.asking = True
            self._fetch(cursor.source, cursor.begin, cursor.begin + CREDIT_BYTES, partial(self._read, cursor))

    def _read(self, cursor: FetchCursor, batches: Sequence[Batch] | Exception) -> None:
        if isinstance(batches, Exception):
            cursor.failed(self.now())
            self.stalled = True  # unknown: a later tick asks again
            return
        for begin, end in passed_over(batches):
            self._pass_over(OffsetRun(cursor.source, begin, end, 1), batches)
        if attempts_of(batches):
            batches = self._resume(cursor.source, batches)
        cursor.received(batches)
        if batches or cursor.drained:  # what comes after a source that is drained may begin
            self.wake()

    def _resume(self, source: int, batches: Sequence[Batch]) -> list[Batch]:
        """Of messages that came back before, to another forwarder perhaps: go on with their counts and rests. They take
        the way of those that come back here; where keys are kept in order, once their turn has come. Rests are kept as
        times of a wall clock, which may have been wrong: none is longer than the policy asks for after that count.
        """
        now, skips = (
            self.now(),
            [bytearray(one.skip or bytes((one.end - one.first_offset + 7) // 8)) for one in batches],
        )
        for run in attempts_of(batches):
            rest = min(run.rest_ms / 1000, rest_s(self.record.retry, run.times))
            for batch, skip in zip(batches, skips, strict=True):
                for offset in range(max(run.begin, batch.begin), min(run.end, batch.end)):
                    index = offset - batch.first_offset
                    if batch.source != source or skip[index >> 3] >> (index & 7) & 1:
                        continue
                    at = now + rest if rest else None
                    attempts = self.leases.redelivery.attempts
                    attempts[source, offset] = max(run.times, attempts.get((source, offset), 0))
                    if self.leases.order is None:
                        skip[index >> 3] |= 1 << (index & 7)
                        self.leases.redelivery.add(source, offset, at=at)
                    else:
                        self._resuming[source, offset] = at
        return [one._replace(skip=bytes(skip)) for one, skip in zip(batches, skips, strict=True)]

    def _resume_in_order(self, order: KeyOrder, identity: Identity, key: bytes, holder: int, nbytes: int) -> None:
        """The turn of such a message has come: its key goes on once it has rested."""
        at = self._resuming.pop(identity)
        if key:
            order.admit(key, identity, holder, nbytes)
            order.take_back(identity, block=at is not None)
        if not key or at is not None:
            self.leases.redelivery.add(*identity, at=at)

    def _has_room(self) -> bool:
        return any(consumer.room(self.table)[0] for consumer in self.consumers)

    def _ask(self) -> None:
        """Read ahead while somebody has room, so that the next look finds something."""
        if self._has_room():
            self._sources.ask_ahead()


def _without_keys(run: OffsetRun, order: KeyOrder) -> Iterator[OffsetRun]:
    """The parts of a run that no ordering key holds; the retry time of the others has come, their keys may go on."""
    begin = run.begin
    for offset in range(run.begin, run.end):
        if order.knows((run.source, offset)):
            order.unblock((run.source, offset))
            if begin < offset:
                yield run._replace(begin=begin, end=offset)
            begin = offset + 1
    if begin < run.end:
        yield run._replace(begin=begin)

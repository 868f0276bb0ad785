"""The subscribe forwarder: the driver of this room.

It keeps a `Delivery` for each subscription that has subscribers or leases, gives it the clock's ticks, and translates
what servicers ask. Everything runs on the event loop's thread. A subscription nobody listens to costs nothing here:
the ledger on the publish side knows all that must survive.
"""

import hmac
import logging
from collections.abc import Callable, Sequence
from functools import partial

from syncpoint.base.kernel.leases import LeaseTable
from syncpoint.base.model.delivery import PublishSide
from syncpoint.base.model.errors import FailedPrecondition, NotFound, SyncpointError
from syncpoint.base.model.names import parse_subscription
from syncpoint.base.rules import pubsub_filter
from syncpoint.base.runtime.clock import Clock
from syncpoint.base.runtime.random import Random
from syncpoint.broker.recording.recorder import NOTHING_RECORDED, Recorder
from syncpoint.broker.subscribe import lease_holder
from syncpoint.broker.subscribe.confirm import Confirmed
from syncpoint.broker.subscribe.consumer import PULLS, Consumer
from syncpoint.broker.subscribe.dead_letter import dead_letter
from syncpoint.broker.subscribe.delivery import Delivery
from syncpoint.broker.subscribe.delivery_counts import DeliveryCounts
from syncpoint.broker.subscribe.ordering import Identity
from syncpoint.broker.subscribe.outstanding_quota import OutstandingQuota
from syncpoint.broker.subscribe.own_copies import OwnCopies
from syncpoint.broker.subscribe.rule_work import RuleWork
from syncpoint.broker.subscribe.shared_state import Reason, WhenOver
from syncpoint.broker.subscribe.step_guard import EVERYTHING, GuardedSide, StepGuard
from syncpoint.broker.subscribe.transformed_sending import DeliveryTransforms, TransformedSending
from syncpoint.catalog.metadata import reader_holds
from syncpoint.catalog.metadata.catalog import Catalog
from syncpoint.catalog.metadata.records import CatalogChange, ChangeOp, Subscription
from syncpoint.wire.protobuf.messages import internal

TICK_S = 0.1
REST_S = 0.5  # between two ticks while there is nothing to do
SOON_S = 1.0  # what is due within this time is waited for
DROPPED_FIELD, FAILED_FIELD, UNTRIED_FIELD = 3, 4, 5  # of a TurnRequest
KNOWN_MAX = 1000
ANEW_FIRST_S, ANEW_MAX_S = 1.0, 10.0  # between two times that the same is begun anew after steps that failed
_NOTHING = b""
_EPOCH_MASK = (1 << 32) - 1

log = logging.getLogger(__name__)


class SubscribeForwarder:
    """Deliveries of all subscriptions served here. `key` makes ack ids unforgeable.

    `lender`: the number ack ids carry where there are several forwarders, see `lease_holder`. `linger_s`: how long a
    subscription at rest is kept, where attaching to it again is not for nothing. `guard`: one that others use, too.
    """

    def __init__(
        self,
        publish: PublishSide,
        catalog: Catalog,
        clock: Clock,
        *,
        key: bytes,
        random: Random,
        soon: Callable[[Callable[[], None]], object],
        lender: int | None = None,
        linger_s: float = 0.0,
        guard: StepGuard | None = None,
        recorder: Recorder = NOTHING_RECORDED,
    ) -> None:
        self.recorder = recorder
        self.publish, self.catalog, self.clock = publish, catalog, clock
        self.deliveries: dict[int, Delivery] = {}
        self.used: dict[int, float] = {}
        """Subscription -> when somebody last pulled or acknowledged (monotonic seconds): it does not expire soon."""
        self._asked: dict[int, float] = {}  # and when somebody last asked anything of its delivery
        self.transforms: DeliveryTransforms | None = None
        self.work: RuleWork | None = None
        """Judges by dear rules in other processes; None: they are judged on the loop."""
        self.letter_refusal: Callable[[Subscription], str] = lambda record: ""
        """Why messages of a subscription may not go to its dead letter topic; "": they may."""
        self._copies = OwnCopies()
        self.quota = OutstandingQuota(self.deliveries)
        self.counts = DeliveryCounts(clock.time_ns)
        self._key, self._soon = key, soon
        self._numbers = PULLS
        self.guard = guard or StepGuard()
        self._anew: dict[int, tuple[float, float]] = {}  # begun anew: not again before, and the wait that led to that
        self._lender, self._linger_s = lender, linger_s
        self._first_epoch = random.randrange(0, 1 << 32) if lender is None else 0  # of a process without a number
        self._tables: dict[int, int] = {}  # subscription -> how many lease tables it has had here
        self.stir: Callable[[], None] = lambda: None  # for who ticks rarely at rest: it is over
        self._known_max = KNOWN_MAX  # entries from which on those of deleted subscriptions are looked for

    def _dead_letter(
        self,
        delivery: Delivery,
        source: int,
        offset: int,
        attempts: int,
        reason: Reason | None,
        when_over: WhenOver | None,
    ) -> None:
        refusal = self.letter_refusal(delivery.record)
        among = self._copies.of(self.catalog, delivery.record.topic_incarnation)
        dead_letter(delivery, source, offset, attempts, reason, when_over, refusal=refusal, among=among)

    def delivery(self, record: Subscription) -> Delivery:
        """The delivery of a subscription, begun when first needed. What a caller knows of it may be from before its
        rules were changed; the catalog is newer.
        """
        self._asked[record.incarnation] = self.clock.monotonic()
        record = self.catalog.subscription_by_incarnation(record.incarnation) or record
        found = self.deliveries.get(record.incarnation)
        if found is not None:
            if found.state.record is not record:
                found.record = record
            return found
        key = hmac.digest(self._key, record.incarnation.to_bytes(8, "little"), "sha256")[:16]
        found = Delivery(
            record,
            GuardedSide(self.publish, self.guard, record.incarnation),
            table=LeaseTable(key, self._next_epoch(record.incarnation), self.publish.generation(record.incarnation)),
            program=pubsub_filter.compile(record.filter_text) if record.filter_text else _NOTHING,
            now=self.clock.monotonic,
            soon=partial(self._step_soon, record.incarnation),
            dead_letter=self._dead_letter,
            doubted=partial(self.guard.doubts, record.incarnation),
            ours=partial(self._is_ours, record.incarnation),
            counting=self.counts,
            recorder=self.recorder,
            work=self.work,
        )
        self.stir()
        found.start()
        self.deliveries[record.incarnation] = found  # one that could not be started is begun again by who comes next
        return found

    def _step_soon(self, subscription: int, step: Callable[[], None]) -> None:
        self._soon(partial(self.guard.run, step, subscription))

    def _next_epoch(self, subscription: int) -> int:
        """What distinguishes the ack ids of one lease table from those of another of the subscription."""
        number = self._tables[subscription] = self._tables.get(subscription, 0) + 1
        if self._lender is None:
            return self._first_epoch + number & _EPOCH_MASK
        return lease_holder.table_epoch(self._lender, number)

    def _is_ours(self, subscription: int, epoch: int) -> bool:
        """Whether a lease table of that epoch was one of this process."""
        if self._lender is None:
            return 0 < (epoch - self._first_epoch & _EPOCH_MASK) <= self._tables.get(subscription, 0)
        return lease_holder.is_of(self._lender, epoch)

    def follow(self, change: CatalogChange) -> None:
        """The catalog has changed: a delivery that has begun acts by it at once, not only at the next tick."""
        if isinstance(change.record, Subscription) and change.op is ChangeOp.PUT:
            self.act_by(change.record)

    def act_by(self, record: Subscription) -> None:
        """A delivery that has begun acts by this record from now on."""
        delivery = self.deliveries.get(record.incarnation)
        if delivery is not None:
            self.guard.run(partial(setattr, delivery, "record", record), record.incarnation)

    def named(self, name: str) -> Subscription:
        """The subscription of that name. Raises `NotFound`, and `InvalidArgument` for a text that is no name."""
        record = self.catalog.subscription(name)
        if record is None:
            raise NotFound(parse_subscription(name))
        return record

    def check_free(self, record: Subscription) -> None:
        """For new consumers: raises `FailedPrecondition` or `Unavailable` while a reader has the subscription alone."""
        reader_holds.check_free(self.catalog, record, self.clock.time_ns())

    def join(
        self,
        record: Subscription,
        send: Callable[[Sequence[bytes], Sequence[int]], None],
        *,
        max_messages: int,
        max_bytes: int,
        deadline_s: int,
        gone: Callable[[], None],
        changed: Callable[[], None] = lambda: None,
        single: bool = False,
        uses: bool = True,
        beside: Callable[[], int] | None = None,
    ) -> Consumer:
        """A subscriber arrives: a stream, or one unary pull (`single`). `uses`: whether that is a use of the
        subscription; of one that is pushed only a push that succeeds is. `beside`: bytes that it has room for now.
        """
        self._numbers += 1
        delivery = self.delivery(record)
        if uses:
            self._use(record)
        number = PULLS if single else self._numbers
        sending = None if self.transforms is None else TransformedSending(self, self.transforms, record, send)
        consumer = Consumer(
            number,
            self._numbers,
            sending or send,
            max_messages=max_messages,
            max_bytes=max_bytes,
            deadline_s=deadline_s,
            gone=gone,
            changed=changed,
            single=single,
            beside=self._beside(delivery, beside),
            uses=uses,
            came_ns=self.counts.time_ns(),
        )
        if sending is not None:
            sending.consumer = consumer
        try:
            self.guard.ask(partial(delivery.add, consumer), record.incarnation)
        except Exception:
            delivery.state.remove(consumer)  # nobody will: its caller learns of no consumer
            raise
        return consumer

    def _beside(self, delivery: Delivery, own: Callable[[], int] | None) -> Callable[[], int] | None:
        if self.quota.bounds_of is None:
            return own
        if own is None:
            return lambda: self.quota.room(delivery.record)
        return lambda: min(own(), self.quota.room(delivery.record))

    def acknowledge(self, record: Subscription, request: bytes, field: int, confirmed: Confirmed | None) -> None:
        self._use(record)
        leases = self.delivery(record).leases
        step = partial(leases.acknowledge, request, field, self.clock.monotonic(), confirmed)
        self.guard.ask(step, record.incarnation)

    def modify(
        self,
        record: Subscription,
        request: bytes,
        field: int,
        seconds: int | list[int],
        *,
        delivered: bool = True,
        uses: bool = True,
    ) -> list[bytes]:
        """Change the deadlines of leased messages, as `LeaseManager.modify`.

        `uses`: whether this counts as use of the subscription.
        """
        if uses:
            self._use(record)
        self.stir()
        leases = self.delivery(record).leases
        step = partial(leases.modify, request, field, seconds, self.clock.monotonic(), delivered=delivered)
        return self.guard.ask(step, record.incarnation)

    def give_up(
        self,
        record: Subscription,
        request: bytes,
        field: int,
        reason: Reason,
        when_over: Callable[[Identity], WhenOver],
    ) -> tuple[list[Identity], list[bytes]]:
        """Dead-letter leased messages, as `LeaseManager.give_up`.

        Raises `FailedPrecondition` without a dead-letter policy.
        """
        if record.dead_letter is None:
            raise FailedPrecondition(f"{record.name} has no dead-letter policy. Set one first.")
        if refusal := self.letter_refusal(record):
            raise FailedPrecondition(refusal)
        self._use(record)
        leases = self.delivery(record).leases
        step = partial(leases.give_up, request, field, reason, self.clock.monotonic(), when_over)
        return self.guard.ask(step, record.incarnation)

    def take_outcome(self, record: Subscription, request: bytes) -> None:
        """What became of messages that were lent and are not passed on, as a serialized TurnRequest. Those that
        failed come first: what is lent of their keys is taken back with them. Raises `BadAckId`.
        """
        known = self.catalog.subscription_by_incarnation(record.incarnation)
        if known is None or known.detached:
            return  # all that was lent is gone with it
        turn = internal.TurnRequest.FromString(request)
        if turn.failed:
            self.modify(known, request, FAILED_FIELD, 0)
        if turn.untried:
            self.modify(known, request, UNTRIED_FIELD, 0, delivered=False)
        if turn.dropped:
            try:
                self.acknowledge(known, request, DROPPED_FIELD, None)
            except SyncpointError as error:
                log.info("messages of %s come back when their deadline ends: %s", record.name, error)

    def _use(self, record: Subscription) -> None:
        self.used[record.incarnation] = self.clock.monotonic()

    def leave(
        self, record: Subscription, consumer: Consumer | None, unsent: Sequence[int] = (), *, over: bool = False
    ) -> None:
        """A subscriber goes. What it was never sent (by serials) is free again at once.

        If it is `over` for good, so is what it never said to have received, by extending its deadline as clients do at
        once; everything else stays lent until its deadline. An exactly-once subscription delivers nothing that was
        sent again before its deadline, whatever became of the subscriber.
        """
        delivery = self.deliveries.get(record.incarnation)
        if delivery is not None:
            self.guard.run(partial(self._leave, delivery, consumer, unsent, over), record.incarnation)

    def _leave(self, delivery: Delivery, consumer: Consumer | None, unsent: Sequence[int], over: bool) -> None:
        self.stir()
        if consumer is not None:
            delivery.state.remove(consumer)
        now = self.clock.monotonic()
        if unsent:
            delivery.leases.release(list(unsent), now)
        if over and consumer is not None and not delivery.record.exactly_once:
            delivery.leases.release_unconfirmed(consumer.number, now)

    def wake(self, incarnation: int) -> None:
        """A subscriber of this subscription can take more."""
        delivery = self.deliveries.get(incarnation)
        if delivery is not None:
            delivery.wake()

    def tick(self) -> None:
        """Ten times a second: expire leases, look again where a fetch failed, forget what is at rest."""
        now = self.clock.monotonic()
        if self.guard.doubted:
            self._begin_anew(now)
        for incarnation, delivery in list(self.deliveries.items()):
            self.guard.run(partial(self._tick, incarnation, delivery, now), incarnation)
        if max(len(self.used), len(self._tables)) > self._known_max:
            for known in (self.used, self._tables):
                for gone in [one for one in known if self.catalog.subscription_by_incarnation(one) is None]:
                    del known[gone]
            self.counts.keep(self._tables)
            self._known_max = 2 * max(len(self.used), len(self._tables)) + KNOWN_MAX

    @property
    def at_rest(self) -> bool:
        """Whether nothing is to be done for a while, so that ticks may be rare."""
        if self.guard.doubted:
            return False
        soon = self.clock.monotonic() + SOON_S
        return all(one.is_calm(soon) and not self.quota.binds(one.record) for one in self.deliveries.values())

    def _begin_anew(self, now: float) -> None:
        """What failed steps were about begins anew: soon, and ever later where steps about it go on failing; but after
        ANEW_MAX_S at the latest, since strict ones lend nothing until then, even where no step fails any more.
        """
        self._anew = {about: anew for about, anew in self._anew.items() if now < anew[0] + ANEW_MAX_S}
        due = {about for about in self.guard.doubted if about not in self._anew or now >= self._anew[about][0]}
        if EVERYTHING in due:
            due = set(self.guard.doubted)  # is begun anew with all the others
        self.guard.doubted -= due
        for about in due:
            wait_s = min(ANEW_MAX_S, 2 * self._anew[about][1]) if about in self._anew else ANEW_FIRST_S
            self._anew[about] = (now + wait_s, wait_s)
        for incarnation, delivery in list(self.deliveries.items()):
            if incarnation in due or EVERYTHING in due:
                self.guard.run(delivery.begin_anew, incarnation)

    def _tick(self, incarnation: int, delivery: Delivery, now: float) -> None:
        record = self.catalog.subscription_by_incarnation(incarnation)
        if record is None or record.detached:
            self.removed(incarnation)
            return
        hold = reader_holds.hold_of(self.catalog, incarnation, self.clock.time_ns())
        if hold is not None and (hold.confirmed or not (delivery.consumers or delivery.table.total()[0])):
            self.removed(incarnation)  # who came before the hold was known here has been delivered nothing
            return
        if delivery.consumers:
            self._asked[incarnation] = now
            if any(consumer.uses for consumer in delivery.consumers):
                self.used[incarnation] = now
        else:
            delivery.redeliveries.put_back()
        delivery.record = record
        delivery.leases.expire(now)
        delivery.review(now)
        if self.quota.binds(record):
            delivery.wake()  # another subscription of the project may have made room
        if delivery.state.stalled:
            delivery.look_again()
        if delivery.at_rest and now - self._asked.get(incarnation, now) >= self._linger_s:
            self.removed(incarnation)

    def removed(self, incarnation: int) -> None:
        """The subscription is gone, detached, or at rest."""
        delivery = self.deliveries.pop(incarnation, None)
        self._asked.pop(incarnation, None)
        if delivery is not None:
            delivery.on_removed()
            self.publish.detach(incarnation)

    def lent(self) -> list[tuple[int, int, list[tuple[int, int, int]]]]:
        """(topic, subscription, its (source, first place, end)) of all that is outstanding; looks at all leases."""
        return [
            (one.record.topic_incarnation, number, one.table.lent()) for number, one in sorted(self.deliveries.items())
        ]

    def outstanding(self) -> tuple[int, int]:
        """Messages and bytes lent by the whole forwarder."""
        totals = [delivery.table.total() for delivery in self.deliveries.values()]
        return sum(messages for messages, _ in totals), sum(nbytes for _, nbytes in totals)

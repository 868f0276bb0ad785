"""Lease: what is lent to subscribers, and how it comes back.

Station 9 and the second bend of a message's life. The kernel's table knows every outstanding message; this machine
turns acknowledgements, nacks, extensions and expiries into records for the publish side, into redeliveries, and into
dead letters. An exactly-once subscription accepts only the newest, unexpired ack id of a message and confirms only
what is persisted; any other accepts late acknowledgements, too.
"""

from collections.abc import Callable
from typing import Protocol

from syncpoint.kernel.leases import LeaseTable
from syncpoint.metadata.records import Subscription
from syncpoint.model.delivery import PublishSide
from syncpoint.subscribe.ordering import KeyOrder
from syncpoint.subscribe.retry import Redelivery

TICKS_PER_S = 100
Confirmed = Callable[[list[bytes]], None]


class Owner(Protocol):
    """The delivery this machine belongs to."""

    record: Subscription
    stalled: bool

    def wake(self) -> None: ...

    def dead_letter(self, source: int, offset: int, attempts: int) -> None: ...


class Lending:
    """Leases, redeliveries and ordering of one subscription."""

    def __init__(self, owner: Owner, table: LeaseTable, publish: PublishSide) -> None:
        self.owner, self.table, self.publish = owner, table, publish
        self.redelivery = Redelivery()
        self.order = KeyOrder() if owner.record.ordered else None
        self.generation = 0
        self._unknown: list[tuple[int, bytes, Callable[[], None] | None]] = []

    # -- acknowledgements --------------------------------------------------------------------------------------------

    def acknowledge(self, request: bytes, field: int, now: float, confirmed: Confirmed | None) -> None:
        """Ack ids in `field` of a raw request. `confirmed(failed ids)` hears once all others are persisted.

        Raises, before anything is changed, `BadAckId` when an id is not one of this subscription's, and `Unavailable`
        when nothing can be recorded now.
        """
        record = self.owner.record
        self.publish.check_writable()
        count, acked, failed = self.table.acknowledge(request, field, int(now * TICKS_PER_S), record.exactly_once)
        if count:
            self.owner.wake()
        left = len(acked)
        if not left:
            if confirmed is not None:
                confirmed(failed)
            return

        def persisted() -> None:
            nonlocal left
            left -= 1
            if not left and confirmed is not None:
                confirmed(failed)

        for source, runs in acked:
            self.settle(source, runs)
            self._record(source, runs, persisted, urgent=confirmed is not None)

    def _record(self, source: int, runs: bytes, persisted: Callable[[], None] | None, *, urgent: bool) -> None:
        """Tell the publish side until it is known to be persisted; sending it again changes nothing."""
        generation = self.generation

        def done(error: Exception | None) -> None:
            if error is not None and generation == self.generation:
                self._unknown.append((source, runs, persisted))
                self.owner.stalled = True
            elif persisted is not None:
                persisted()

        self.publish.acknowledge(self.owner.record.incarnation, generation, source, runs, done, urgent=urgent)

    def resend(self) -> None:
        """Acknowledgements whose outcome is unknown are sent again."""
        unknown, self._unknown = self._unknown, []
        for source, runs, persisted in unknown:
            self._record(source, runs, persisted, urgent=True)

    def settle(self, source: int, runs: bytes) -> None:
        """These offsets need no delivery any more: forget their counts, let their keys go on."""
        self.redelivery.forget_acked(source, runs)
        if self.order is not None:
            self.order.settled(source, runs)

    def drop(self, source: int, runs: bytes) -> None:
        """Acknowledge on the subscriber's behalf: filtered out, or dead-lettered."""
        self.settle(source, runs)
        self._record(source, runs, None, urgent=False)

    # -- what comes back undone --------------------------------------------------------------------------------------

    def modify(self, request: bytes, field: int, seconds: int | list[int], now: float) -> list[bytes]:
        """Extend leases, or end them (0 seconds = nack). Returns the ids that failed (exactly-once only). Raises
        `BadAckId`.
        """
        nacked, failed = self.table.modify(
            request, field, seconds, int(now * TICKS_PER_S), self.owner.record.exactly_once
        )
        if nacked:
            self.came_back(nacked, now, delivered=True)
        return failed

    def expire(self, now: float) -> None:
        """Take back what is past its deadline, and wake what waited for its retry time."""
        expired = self.table.expire(int(now * TICKS_PER_S))
        if expired:
            self.came_back(expired, now, delivered=True)
        if self.redelivery.next_time() is not None:
            self.redelivery.wake(now)
            self.owner.wake()

    def release(self, serials: list[int], now: float) -> None:
        """Responses that never left: their messages were not delivered at all."""
        for serial in serials:
            self.came_back(self.table.release_serial(serial), now, delivered=False)

    def release_unconfirmed(self, consumer: int, now: float) -> None:
        """What a subscriber that is gone never said to have received."""
        identities = self.table.release_consumer(consumer, unconfirmed=True)
        if identities:
            self.came_back(identities, now, delivered=True)

    def came_back(self, identities: list[tuple[int, int]], now: float, *, delivered: bool) -> None:
        """Messages whose lease ended undone are offered again: now, after a backoff, or as dead letters."""
        record, order = self.owner.record, self.order
        retry, dead = record.retry, record.dead_letter
        for source, offset in sorted(identities):
            attempts = self.redelivery.count(source, offset) if delivered and (retry or dead) else 0
            is_dead = dead is not None and attempts >= dead[1]
            delay = min(retry[1], retry[0] * 2.0 ** min(attempts - 1, 60)) if retry and attempts else 0.0
            if order is not None and order.knows((source, offset)):
                for later in order.take_back((source, offset), block=is_dead or delay > 0):
                    self.table.revoke(*later)
                if is_dead:
                    self.owner.dead_letter(source, offset, attempts)
                elif delay:
                    self.redelivery.add(source, offset, at=now + delay)
            elif is_dead:
                self.owner.dead_letter(source, offset, attempts)
            else:
                self.redelivery.add(source, offset, at=now + delay if delay else None)
        self.owner.wake()

    @property
    def at_rest(self) -> bool:
        """Nothing is lent, waits for another delivery, or for a confirmation."""
        return not self.table.total()[0] and not len(self.redelivery) and not self._unknown

"""Pump: shares what lies ready among the consumers that have room.

Place: run by `delivery` once per event-loop turn in which something changed, so everything that became available in a
turn travels in one response per consumer. Sharing is fair: with several consumers a visit takes at most an even share
of what lies ready, and the turn goes round.
"""

from syncpoint.base.model.delivery import Batch
from syncpoint.base.model.limits import RESPONSE_BYTES_MAX
from syncpoint.broker.subscribe.consumer import Consumer
from syncpoint.broker.subscribe.fetch import FetchCursor
from syncpoint.broker.subscribe.key_reader import KeyReader
from syncpoint.broker.subscribe.lease import LeaseManager
from syncpoint.broker.subscribe.lease_batches import BatchLeasing
from syncpoint.broker.subscribe.redelivery import RedeliveryReader
from syncpoint.broker.subscribe.shared_state import SharedState
from syncpoint.broker.subscribe.source_reader import SourceReader


class Pump:
    """Deliver messages to the consumers of a subscription."""

    def __init__(
        self,
        state: SharedState,
        leases: LeaseManager,
        reader: SourceReader,
        again: RedeliveryReader,
        leasing: BatchLeasing,
        keys: KeyReader | None,
    ) -> None:
        self._state, self._order, self._redelivery = state, leases.order, leases.redelivery
        self._reader, self._sources = reader, reader.sources
        self._again, self._leasing, self._keys = again, leasing, keys

    def run(self) -> None:
        """Look at everything once."""
        if self._state.record.options.receive_suspended:
            return
        consumers = self._state.consumers
        if consumers and self._redelivery.due:
            self._again.read_due()
        if self.quiet:
            return
        self._ask_ahead()
        in_round = idle = 0
        while idle < len(consumers):
            in_round = in_round - 1 if in_round > 1 else len(consumers)
            consumer = consumers[0]
            consumers.rotate(-1)
            moved = self._serve(consumer, in_round)
            idle = 0 if moved else idle + 1
            if moved and len(consumers) == 1:
                self._state.wake()  # one consumer: the next response belongs to the next turn
                break
        if not self.quiet:
            self._ask_ahead()
        if self._redelivery.due and self._again.has_more and self._somebody_has_room():
            self._state.wake()

    @property
    def quiet(self) -> bool:
        """Whether a look would find nothing to hand out or to ask for, however much room there is."""
        return self._keys is None and not (self._again.ready or self._redelivery.due) and self._sources.quiet

    def has_room(self) -> bool:
        """Whether anybody can take a message now."""
        return not self._state.record.options.receive_suspended and self._somebody_has_room()

    def _somebody_has_room(self) -> bool:
        table = self._state.table
        for consumer in self._state.consumers:  # noqa: SIM110 - a generator costs more than the one consumer there is
            if consumer.room(table)[0]:
                return True
        return False

    def _ask_ahead(self) -> None:
        """Read ahead while somebody has room, so that the next look finds something."""
        if self._somebody_has_room():
            self._sources.ask_ahead()

    def _serve(self, consumer: Consumer, sharers: int) -> bool:
        """Give one consumer its share of what is ready. False if it has no room, or nothing moved."""
        table, order = self._state.table, self._order
        room, room_bytes = consumer.room(table)
        if not room:
            return False
        moved = False
        if self._keys is not None:
            moved = self._keys.go_on(consumer, room, room_bytes)
            room, room_bytes = consumer.room(table)
        left = share = self._share(room, sharers)
        parts: list[bytes] = []
        serials: list[int] = []
        size, free = 0, consumer.free(table)
        while left > 0 and room_bytes > 0 and size < RESPONSE_BYTES_MAX:
            ready = self._next_ready()
            if ready is None:
                break
            batch, attempt, cursor = ready
            if order is not None:
                most = min(room_bytes, RESPONSE_BYTES_MAX - size) if parts else room_bytes
                response, at, count, nbytes = self._leasing.lease_in_order(
                    order, batch, consumer, left, most, attempt, any_first=free and not parts
                )
            else:
                most = min(room_bytes, RESPONSE_BYTES_MAX - size)
                first_max = -1 if free and not parts else room_bytes
                response, at, count, nbytes = self._leasing.lease(batch, consumer, left, most, attempt, first_max)
            moved = moved or at > batch.begin
            if cursor is not None:
                cursor.advance(at)
            else:
                self._again.advance(at)
            if count:
                if cursor is None:
                    self._state.counts.redelivered += count
                else:
                    self._state.counting.first_delivery(batch.time_ns, consumer.came_ns, count)
                parts.append(response)
                serials.append(table.last_serial)
                left, room_bytes, size = left - count, room_bytes - nbytes, size + nbytes
            if at < batch.end:
                break  # no room for the next message
            if cursor is not None:
                self._reader.read_on(cursor)
        if parts:
            self._leasing.send(consumer, parts, serials, share - left)
        return moved

    def _share(self, room: int, sharers: int) -> int:
        if sharers < 2:
            return room
        ready = sum(batch.end - batch.begin for batch, _ in self._again.ready)
        ready += self._sources.ready()
        return min(room, max(1, -(-ready // sharers)))

    def _next_ready(self) -> tuple[Batch, int, FetchCursor | None] | None:
        """What comes first: a batch, the number of its delivery, and the cursor it was read by."""
        if self._again.ready:
            batch, attempt = self._again.ready[0]
            return batch, attempt, None
        if self._order is not None and self._order.full:
            return None
        ready = self._sources.next_ready()
        return (ready[0], 1 if self._state.record.dead_letter else 0, ready[1]) if ready is not None else None

"""Key reader: messages that were held back by their ordering keys, or came back, go to a consumer in order.

Place: beside `pump`, for subscriptions with ordering. `ordering` decides which messages of a key may go; they are read
again, and lent when all are there, in one response.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from syncpoint.base.model.delivery import Batch
from syncpoint.base.model.limits import RESPONSE_BYTES_MAX
from syncpoint.broker.subscribe.consumer import Consumer
from syncpoint.broker.subscribe.lease import LeaseManager
from syncpoint.broker.subscribe.lease_batches import BatchLeasing
from syncpoint.broker.subscribe.ordering import Identity, KeyOrder
from syncpoint.broker.subscribe.retry import OffsetRun
from syncpoint.broker.subscribe.shared_state import SharedState
from syncpoint.broker.subscribe.source_reader import SourceReader

KEY_RUN_MAX = 100  # messages of one key in one response


class KeyReader:
    """Read messages in the order of their keys."""

    def __init__(
        self, state: SharedState, leases: LeaseManager, order: KeyOrder, reader: SourceReader, leasing: BatchLeasing
    ) -> None:
        self._state, self._leases, self._order, self._reader, self._leasing = state, leases, order, reader, leasing
        self._unread: list[bytes] = []  # keys to be read again at the next tick

    def look_again(self) -> None:
        """Some time has passed since something could not be read."""
        keys, self._unread = self._unread, []
        for key in keys:
            self._order.started(key)

    def go_on(self, consumer: Consumer, room: int, room_bytes: int) -> bool:
        """Messages that were held back by their keys, or came back, go to this consumer now. True if there were any."""
        order = self._order
        before, free = room, consumer.free(self._state.table)
        while room > 0 and room_bytes > 0:
            most, any_first = min(room_bytes, RESPONSE_BYTES_MAX), free and room == before
            begun = order.start(consumer.holder, min(room, KEY_RUN_MAX), most, any_first=any_first)
            if begun is None:
                break
            key, identities = begun
            room, room_bytes = room - len(identities), room_bytes - order.size(identities)
            self._read(consumer, key, identities)
            if consumer.single:
                break
        return room < before

    def _read(self, consumer: Consumer, key: bytes, identities: list[Identity]) -> None:
        found: dict[Identity, Sequence[Batch] | Exception] = {}

        def read(identity: Identity, batches: Sequence[Batch] | Exception) -> None:
            found[identity] = batches
            if len(found) == len(identities):
                self._lend(consumer, key, [(one, found[one]) for one in identities])

        for source, offset in identities:
            self._reader.fetch(source, offset, offset + 1, partial(read, (source, offset)))

    def _lend(
        self, consumer: Consumer, key: bytes, messages: list[tuple[Identity, Sequence[Batch] | Exception]]
    ) -> None:
        order, table = self._order, self._state.table
        parts: list[bytes] = []
        serials: list[int] = []
        unread = consumer.closed or self._state.record.options.receive_suspended  # perhaps since they were asked for
        size, free = 0, consumer.free(table)
        room, room_bytes = consumer.room(table)  # asked for again: other keys may have been read faster
        for identity, batches in messages:
            if not order.is_outstanding(identity):
                continue  # acknowledged, or taken back, while it was being read
            unread = unread or isinstance(batches, Exception)
            if unread or isinstance(batches, Exception):
                order.take_back(identity, block=False)  # and everything of the key after it
                continue
            batch = next((b for b in batches if b.begin == identity[1]), None)
            at, count = identity[1] + 1, 0
            attempt = self._leases.redelivery.attempts.get(identity, 0) + 1
            if batch is not None:
                one = batch._replace(end=identity[1] + 1)
                most = min(room_bytes, RESPONSE_BYTES_MAX - size) if parts else room_bytes
                first_max = -1 if free and not parts else most
                response, at, count, nbytes = self._leasing.lease(one, consumer, room, most, attempt, first_max)
            if count:
                if attempt > 1:
                    self._state.counts.redelivered += count
                else:
                    self._state.counting.first_delivery(one.time_ns, consumer.came_ns, count)
                parts.append(response)
                serials.append(table.last_serial)
                room, room_bytes, size = room - count, room_bytes - nbytes, size + nbytes
            elif at > identity[1]:
                self._reader.pass_over(OffsetRun(*identity, at, attempt), batches)
                order.discharge(identity)  # acknowledged in the meantime, deleted, or not to be read now
            else:
                unread = True  # no room for it
                order.take_back(identity, block=False)
        if any(isinstance(batches, Exception) for _, batches in messages):
            self._unread.append(key)
            self._state.stalled = True
        else:
            order.started(key)
        if parts:
            self._leasing.send(consumer, parts, serials, len(parts))
        self._state.wake()

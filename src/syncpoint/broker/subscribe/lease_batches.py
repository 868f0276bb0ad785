"""Lease batches: leasing messages of a batch to a consumer, in the bytes of its response.

Place: under `pump` and `key_reader`. What the filter leaves out is acknowledged on the subscriber's behalf.
"""

from collections.abc import Sequence

from syncpoint.base.kernel import frames
from syncpoint.base.kernel.filters import matches
from syncpoint.base.model.delivery import Batch
from syncpoint.broker.recording.record_kinds import DELIVERED
from syncpoint.broker.recording.recorder import Runs, runs_of
from syncpoint.broker.subscribe.confirm import place_of
from syncpoint.broker.subscribe.consumer import Consumer
from syncpoint.broker.subscribe.lease import TICKS_PER_S, LeaseManager
from syncpoint.broker.subscribe.ordering import Identity, KeyOrder
from syncpoint.broker.subscribe.shared_state import SharedState
from syncpoint.broker.subscribe.source_reader import SourceReader
from syncpoint.wire.protobuf.messages import pubsub

Leased = tuple[bytes, int, int, int]
"""The response's bytes, the next offset, and how many messages and bytes were given."""


class BatchLeasing:
    """Lease batches of messages to pulls."""

    def __init__(self, state: SharedState, leases: LeaseManager, reader: SourceReader) -> None:
        self._state, self._leases, self._reader = state, leases, reader

    def lease(
        self, batch: Batch, consumer: Consumer, room: int, room_bytes: int, attempt: int, first_max: int = -1
    ) -> Leased:
        """Lease messages of a batch, as many as there is room for. `first_max`: how large the first one may be."""
        state = self._state
        response, at, count, nbytes, dropped = state.table.lease(
            batch.source,
            batch.payload,
            batch.first_offset,
            batch.begin,
            batch.end,
            batch.skip,
            state.program if state.rules is None else state.program_of(batch.begin),
            consumer.number,
            int((state.now() + consumer.deadline_s) * TICKS_PER_S),
            room,
            room_bytes,
            attempt if state.record.dead_letter else 0,
            first_max,
        )
        if count and state.record.topic_incarnation in state.recorder.topics:
            self._note(batch, at, count, response, attempt)
        if dropped:
            self._leases.drop_filtered(batch.source, dropped)
        return response, at, count, nbytes

    def _note(self, batch: Batch, at: int, count: int, response: bytes, attempt: int) -> None:
        """Record which messages of a batch, up to `at`, were delivered in `response`."""
        if count == at - batch.begin:
            given: Runs = [(batch.begin, count)]
        else:
            given = runs_of(sorted(place_of(one)[1] for one in ack_ids_of(response)))
        more = {"attempt": attempt} if attempt and self._state.record.dead_letter else {}
        self._state.note(DELIVERED, self._leases.generation, batch.source, given, **more)

    def lease_in_order(
        self,
        order: KeyOrder,
        batch: Batch,
        consumer: Consumer,
        room: int,
        room_bytes: int,
        attempt: int,
        *,
        any_first: bool,
    ) -> Leased:
        """Like `lease`, leaving out what its ordering key holds back. `any_first`: one message may be of any size."""
        program, resuming = self._state.program_of(batch.begin), self._reader.resuming
        sizes, keys = frames.describe(batch.payload)
        skip = bytearray(batch.skip or bytes((len(sizes) + 7) // 8))
        taken = taken_bytes = 0
        at = batch.begin
        while at < batch.end and taken < room:
            index = at - batch.first_offset
            if not skip[index >> 3] >> (index & 7) & 1:
                if taken_bytes + sizes[index] > room_bytes and (taken or not any_first):
                    break
                wanted = not program or matches(program, frames.message_at(batch.payload, index))
                key, nbytes = keys[index], sizes[index]
                if wanted and (batch.source, at) in resuming:
                    skip[index >> 3] |= 1 << (index & 7)
                    self._resume(order, (batch.source, at), key, consumer.holder, nbytes)
                elif wanted and key and not order.admit(key, (batch.source, at), consumer.holder, nbytes):
                    skip[index >> 3] |= 1 << (index & 7)
                elif wanted:
                    taken += 1
                    taken_bytes += sizes[index]
            at += 1
        part = batch._replace(end=at, skip=bytes(skip))
        response, _, count, nbytes = self.lease(part, consumer, room, 1 << 62, attempt)
        return response, at, count, nbytes

    def _resume(self, order: KeyOrder, identity: Identity, key: bytes, holder: int, nbytes: int) -> None:
        """The turn of a message has come that came back before: its key goes on once it has rested."""
        at = self._reader.resuming.pop(identity)
        if key:
            order.admit(key, identity, holder, nbytes)
            order.take_back(identity, block=at is not None)
        if not key or at is not None:
            self._leases.redelivery.add(*identity, at=at)

    def send(self, consumer: Consumer, parts: Sequence[bytes], serials: Sequence[int], count: int) -> None:
        """Hand over a response. Who pulled once leaves with it."""
        self._state.delivered += count
        counts = self._state.counts
        counts.responses += 1
        counts.messages += count
        counts.bytes += sum(map(len, parts))
        if consumer.single:
            self._state.remove(consumer)
        consumer.send(parts, serials)


def ack_ids_of(response: bytes) -> list[bytes]:
    """The ack ids of a response, or a part of one."""
    return [one.ack_id.encode() for one in pubsub.PullResponse.FromString(response).received_messages]

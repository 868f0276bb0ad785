"""Key holding: messages whose ordering keys another site delivers are passed by here, and read when they come back.

Place: in `source_reader`, for a subscription whose keys are delivered by several sites; others have none of it. What
is passed by is not remembered one by one: it is unacknowledged, and the exchange of acknowledgements takes it away as
its site delivers it. When keys come back, sources are read from their first unacknowledged message again, and of what
had been read before only these keys are lent, as far as they are not lent here already.
Promise: what waits of a key is let go when the key leaves, and again when it comes back, so that it can come before
nothing that was passed by: in the order of the log it follows what is still lent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from syncpoint.base.kernel import frames
from syncpoint.base.model.delivery import (
    Batch,
    Fetched,
    UpToEnd,
    attempts_of,
    expired_of,
    freshness_of,
    passed_over,
)
from syncpoint.base.model.key_homes import slot_of
from syncpoint.broker.subscribe.lease import LeaseManager
from syncpoint.broker.subscribe.ordering import Identity
from syncpoint.wire.protobuf.messages import pubsub


class KeyHolding:
    """Slots are bits of an integer."""

    def __init__(self, leases: LeaseManager) -> None:
        self._leases, self._table, self._order = leases, leases.table, leases.order
        self._elsewhere = 0
        self._passed_by = 0  # slots of which something was passed by
        self._leaving: set[Identity] = set()

    def take(self, held: bytes) -> int:
        """Another site delivers these slots from now on, and no others. Returns the slots that came back after
        something of them was passed by: the caller reads sources again from their first unacknowledged messages.
        """
        slots = int.from_bytes(held, "little")
        left, back = slots & ~self._elsewhere, self._passed_by & ~slots
        if left:
            lent = self._table.lent()
            self._leaving.update((source, offset) for source, begin, end in lent for offset in range(begin, end))
            self._leaving |= self._leases.unrecorded()
        self._elsewhere = slots
        self._passed_by &= slots
        moved = left | back
        if self._order is None or not moved:
            return back
        gone = self._order.let_go(lambda key: bool(moved >> slot_of(key) & 1), self._table.is_outstanding)
        for key in set(gone.values()):
            self._passed_by |= 1 << slot_of(key) & left
        self._leases.redelivery.waiting.difference_update(gone)
        return back

    def leaving(self) -> int:
        """Messages that were lent before the newest slots went to another site, and still are, or are acknowledged and
        not known to be recorded.
        """
        unrecorded = self._leases.unrecorded() if self._leaving else ()
        self._leaving = {one for one in self._leaving if one in unrecorded or self._table.is_outstanding(*one)}
        return len(self._leaving)

    def ours(self, batches: Sequence[Batch]) -> Sequence[Batch]:
        """Batches without what another site delivers."""
        return self._without(batches, self._is_elsewhere) if self._elsewhere else batches

    def not_read_before(
        self, batches: Sequence[Batch], before: int, slots: int, in_hand: Callable[[Identity], bool]
    ) -> Sequence[Batch]:
        """Batches without what was dealt with before: up to offset `before` all but the slots that came back."""

        def is_known(batch: Batch, offset: int, slot: int) -> bool:
            return offset < before and (not slots >> slot & 1 or in_hand((batch.source, offset)))

        return self._without(batches, is_known)

    def _is_elsewhere(self, batch: Batch, offset: int, slot: int) -> bool:
        if not self._elsewhere >> slot & 1:
            return False
        self._passed_by |= 1 << slot
        return True

    @staticmethod
    def _without(batches: Sequence[Batch], leaves_out: Callable[[Batch, int, int], bool]) -> Sequence[Batch]:
        out = []
        for batch in batches:
            sizes, keys = frames.describe(batch.payload)
            skip = bytearray(batch.skip or bytes((len(keys) + 7) // 8))
            end = 0
            for index, (size, key) in enumerate(zip(sizes, keys, strict=True)):
                begin, end = end + 4, end + 4 + size
                offset = batch.first_offset + index
                if not batch.begin <= offset < batch.end or skip[index >> 3] >> (index & 7) & 1:
                    continue
                if leaves_out(batch, offset, slot_of(key or _id_of(batch.payload[begin:end]))):
                    skip[index >> 3] |= 1 << (index & 7)
            out.append(batch._replace(skip=bytes(skip)))
        if isinstance(batches, Fetched):
            parts = passed_over(batches), attempts_of(batches), expired_of(batches)
            return Fetched(out, *parts, freshness=freshness_of(batches))
        return UpToEnd(out) if isinstance(batches, UpToEnd) else out


def _id_of(message: bytes) -> bytes:
    return pubsub.PubsubMessage.FromString(message).message_id.encode()

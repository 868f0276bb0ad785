"""Rule batches: messages as the rules of their lane leave them.

Place: in `source_reader`, where everything that is read to be lent comes by, and before a message becomes a dead
letter. Batches of a subscription without rules go through untouched, and so do those of lanes that the kernel judges.
Promise: what is stored is not changed. What a lane is not for is acknowledged in it, on the subscriber's behalf.
"""

import struct
from collections.abc import Sequence

from syncpoint.kernel.acks import encode_runs
from syncpoint.model.delivery import Batch, Fetched
from syncpoint.model.lanes import lane_of
from syncpoint.subscribe.lane_rules import NOTHING, Judge
from syncpoint.subscribe.lease import LeaseManager
from syncpoint.subscribe.shared_state import SharedState

_SIZE = struct.Struct("<I")


class RuleBatches:
    """See the module."""

    def __init__(self, state: SharedState, leases: LeaseManager) -> None:
        self._state, self._leases = state, leases

    def applied(self, batches: Sequence[Batch], end: int) -> Sequence[Batch]:
        """The batches of an answer as they are to be lent. `end`: what was asked for ends there."""
        rules = self._state.rules
        if rules is None:
            return batches
        found = []
        for batch in batches:
            judge = rules.get(lane_of(batch.begin), NOTHING).judge
            found.append(batch if judge is None else self._judged(batch._replace(end=min(batch.end, end)), judge))
        if not isinstance(batches, Fetched):
            return found
        return Fetched(found, batches.passed, batches.attempts, batches.expired, batches.freshness)

    def _judged(self, batch: Batch, judge: Judge) -> Batch:
        payload = batch.payload
        skip = bytearray(batch.skip or bytes((batch.end - batch.first_offset + 7) // 8))
        parts: list[bytes] = []
        unfit: list[tuple[int, int]] = []
        at = copied = 0
        for place in range(batch.first_offset, batch.end):
            begin = at + _SIZE.size
            at = begin + _SIZE.unpack_from(payload, at)[0]
            index = place - batch.first_offset
            if place < batch.begin or skip[index >> 3] >> (index & 7) & 1:
                continue
            message = payload[begin:at]
            copy = judge(message, batch.source, place)
            if copy is None:
                skip[index >> 3] |= 1 << (index & 7)
                unfit.append((place, 1))
            elif copy is not message:
                parts += (payload[copied : begin - _SIZE.size], _SIZE.pack(len(copy)), copy)
                copied = at
        if unfit:
            self._leases.drop(batch.source, encode_runs(unfit))
        if parts:
            payload = b"".join((*parts, payload[copied:]))
        return batch._replace(skip=bytes(skip), payload=payload)

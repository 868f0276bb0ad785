"""What a subscriber holds of a subscription: leases to extend, acknowledgements to send, and to send again.

Place: the decisions of `reception`; pure, time and chance come in.
Promises: a message that is held is extended when half of its lease has passed, until it is acknowledged, given back or
held for longer than `max_lease_duration`. An acknowledgement is sent until it is answered, for ACK_S, or for
`ack_timeout` where somebody waits for its outcome; ids that a request was refused for alone are taken out of it. Each
outcome is known once.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from syncpoint.base.model.errors import Code, SyncpointError, Unavailable, Unprocessed
from syncpoint.client.client_errors import AcknowledgeError, AcknowledgeStatus
from syncpoint.client.client_future import ClientFuture
from syncpoint.client.client_options import PASSING, FlowControl
from syncpoint.client.received_messages import LeaseChange, MessageBatch
from syncpoint.wire.protobuf.status import ack_outcomes

IDS_MAX: Final = 2_500
"""Of a request: well within the bytes that one may have."""
CALLS_MAX: Final = 4
ACK_S: Final = 600.0
PAUSE_FIRST_S, PAUSE_MAX_S = 0.1, 10.0

STATUSES: Final = {
    Code.PERMISSION_DENIED: AcknowledgeStatus.PERMISSION_DENIED,
    Code.UNAUTHENTICATED: AcknowledgeStatus.PERMISSION_DENIED,
    Code.FAILED_PRECONDITION: AcknowledgeStatus.FAILED_PRECONDITION,
    Code.INVALID_ARGUMENT: AcknowledgeStatus.INVALID_ACK_ID,
}


@dataclass(slots=True, eq=False)
class LeaseCall:
    """A request about leases. `origin`: the address that the messages came from; `seconds`: as in `LeaseChange`;
    `doubtful`: an attempt before this one may have been carried out.
    """

    origin: str
    seconds: int | None
    ack_ids: list[str]
    begun_s: float
    outcomes: dict[str, ClientFuture[AcknowledgeStatus]] = field(default_factory=dict)
    pause_s: float = PAUSE_FIRST_S
    doubtful: bool = False


UNKNOWN: Final = Unavailable("It is not known whether the acknowledgement counts: the message may come again.")

Known = tuple[ClientFuture[AcknowledgeStatus], AcknowledgeError | None]
"""An outcome, and what it fails with."""


class HeldMessages:
    """All that was received and is neither acknowledged nor given back. `messages`: how many that are."""

    def __init__(self, flow: FlowControl, chance: Callable[[], float]) -> None:
        self.messages = 0
        self._flow, self._chance = flow, chance
        self._batches: dict[MessageBatch, None] = {}
        self._ready: deque[LeaseCall] = deque()
        self._filling: dict[tuple[str, int | None], LeaseCall] = {}  # of these, those that have room for more
        self._again: list[tuple[float, int, LeaseCall]] = []
        self._under_way: set[LeaseCall] = set()
        self._serial = 0

    @property
    def idle(self) -> bool:
        """Whether nothing is to be sent, or waits for its answer."""
        return not (self._ready or self._again or self._under_way)

    @property
    def wake_s(self) -> float | None:
        """When `calls` has something next, unless something else happens before; None: never."""
        return self._again[0][0] if self._again and len(self._under_way) < CALLS_MAX else None

    def took(self, batch: MessageBatch) -> None:
        """A batch was received."""
        self._batches[batch] = None
        self.messages += len(batch)

    def change(self, changes: Iterable[LeaseChange], now_s: float) -> None:
        """Changes of leases, in the order in which they were wished for."""
        filling = self._filling
        for batch, indexes, seconds, outcome in changes:
            ids = batch.ack_ids if indexes is None else [batch.ack_ids[at] for at in indexes]
            if not seconds and batch in self._batches:  # acknowledged or given back
                batch.left -= len(ids)
                self.messages -= len(ids)
                if batch.left == 0:
                    self._batches.pop(batch, None)
            for at in range(0, len(ids), IDS_MAX):
                some = ids[at : at + IDS_MAX]
                call = filling.get((batch.origin, seconds))
                if call is None or len(call.ack_ids) + len(some) > IDS_MAX:
                    call = filling[batch.origin, seconds] = LeaseCall(batch.origin, seconds, [], now_s)
                    self._ready.append(call)
                call.ack_ids += some
                if outcome is not None:
                    call.outcomes[some[0]] = outcome

    def extend(self, now_s: float, *, every: bool = False) -> None:
        """Extend what is due, or `every` lease; forget what was held for too long."""
        flow = self._flow
        for batch in list(self._batches):
            if now_s - batch.received_s > flow.max_lease_duration:
                del self._batches[batch]
                self.messages -= batch.left
                batch.left = 0
            elif every or now_s - batch.extended_s >= flow.lease_duration / 2:
                batch.extended_s = now_s
                indexes = [at for at, done in enumerate(batch.done) if not done]
                if indexes:
                    self.change([LeaseChange(batch, indexes, flow.lease_duration)], now_s)

    def calls(self, now_s: float) -> Iterator[LeaseCall]:
        """Requests to be sent now: each is reported by `answered` or `failed` later."""
        while len(self._under_way) < CALLS_MAX:
            if self._again and self._again[0][0] <= now_s:
                call = heapq.heappop(self._again)[2]
            elif self._ready:
                call = self._ready.popleft()
                if self._filling.get((call.origin, call.seconds)) is call:
                    del self._filling[call.origin, call.seconds]
            else:
                return
            self._under_way.add(call)
            yield call

    def answered(self, call: LeaseCall) -> list[Known]:
        """A request was carried out; returns the outcomes that are known now."""
        self._under_way.discard(call)
        return [(one, None) for one in call.outcomes.values()]

    def failed(self, call: LeaseCall, error: SyncpointError, now_s: float, present: str) -> list[Known]:
        """A request was not, or not as a whole; returns the outcomes that are known now. `present`: the address that is
        in use: one that is not any more and cannot be reached is not asked again.
        """
        self._under_way.discard(call)
        if call.seconds and not call.outcomes and now_s - call.begun_s > self._flow.lease_duration / 2:
            return []  # an extension that comes too late
        single = ack_outcomes(error)
        within_s = self._flow.ack_timeout if call.outcomes else ACK_S
        late = now_s + call.pause_s > call.begun_s + within_s
        if single:
            again = [one for one, what in single.items() if what.startswith("TRANSIENT_") and not late]
        else:
            again = call.ack_ids if error.code in PASSING and not late else []
        kept = set(again)
        status = STATUSES.get(error.code, AcknowledgeStatus.OTHER)
        known: list[Known] = []
        for ack_id, outcome in call.outcomes.items():
            if ack_id in kept:
                continue
            what = single.get(ack_id, "")
            if single and not what:
                known.append((outcome, None))
            elif what.startswith("TRANSIENT_") or (what and call.doubtful):
                known.append((outcome, AcknowledgeError(AcknowledgeStatus.OTHER, UNKNOWN)))
            else:
                known.append((outcome, AcknowledgeError(status, error)))
        if again:
            origin = present if error.code is Code.UNAVAILABLE else call.origin
            outcomes = {ack_id: one for ack_id, one in call.outcomes.items() if ack_id in kept}
            longer_s = min(2 * call.pause_s, PAUSE_MAX_S)
            doubtful = call.doubtful or not (single or isinstance(error, Unprocessed))
            following = LeaseCall(origin, call.seconds, again, call.begun_s, outcomes, longer_s, doubtful)
            self._serial += 1
            at_s = now_s + call.pause_s * (1 - self._chance() / 2)
            heapq.heappush(self._again, (at_s, self._serial, following))
        return known

    def give_up(self) -> list[Known]:
        """Forget all that is to be sent or under way; returns the outcomes, which nobody will know."""
        calls = [*self._ready, *(call for _, _, call in self._again), *self._under_way]
        self._ready.clear()
        self._filling.clear()
        self._again.clear()
        self._under_way.clear()
        error = SyncpointError(Code.CANCELLED, "The subscriber was closed first. It is not known whether it counts.")
        return [(one, AcknowledgeError(AcknowledgeStatus.OTHER, error)) for c in calls for one in c.outcomes.values()]

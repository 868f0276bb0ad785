"""Messages that their subscriber gives up: from the lease to the dead-letter topic.

Place: beside `subscriber`, over the subscribe forwarder that lent them; `letter_admin` asks it, in a cluster from
another process.
Promise: an id counts once, while its lease lasts; of each that does not count, or whose letter could not be persisted,
it is reported so.
"""

from __future__ import annotations

import asyncio

from syncpoint.base.kernel.errors import BadAckId
from syncpoint.base.model.errors import SyncpointError
from syncpoint.broker.subscribe.confirm import place_of
from syncpoint.broker.subscribe.ordering import Identity
from syncpoint.broker.subscribe.shared_state import Reason, WhenOver
from syncpoint.broker.subscribe.subscribe_forwarder import SubscribeForwarder
from syncpoint.front.api.subscriber import MODIFY_ACK_IDS_FIELD, bad_ack_id, usable
from syncpoint.wire.protobuf.messages import internal

MOVED_S = 5.0
"""How long letters are waited for."""
NOT_OUT = "No message is outstanding with this ack id: it was acknowledged or nacked, or its ack deadline expired."
_LATE = "The dead letter may or may not be stored. If it is not, the message is delivered again."


class LetterMoves:
    """Move messages that their subscriber gives up to the dead-letter topic."""

    def __init__(self, forwarder: SubscribeForwarder) -> None:
        self._forwarder = forwarder

    async def move(self, asked: internal.DeadLetterRequest) -> internal.DeadLetterResponse:
        """Deliveries.DeadLetter. Raises `SyncpointError` where nothing was done."""
        record = usable(self._forwarder, asked.subscription)
        moving: dict[Identity, asyncio.Future[Exception | None]] = {}

        def when_over(message: Identity) -> WhenOver:
            future = moving[message] = asyncio.get_running_loop().create_future()
            return lambda error: None if future.done() else future.set_result(error)

        reason = Reason(asked.reason, asked.description)
        try:
            _, invalid = self._forwarder.give_up(
                record, asked.SerializeToString(), MODIFY_ACK_IDS_FIELD, reason, when_over
            )
        except BadAckId as bad:
            raise bad_ack_id(bad) from None
        if moving:
            await asyncio.wait(moving.values(), timeout=MOVED_S)
        answer, refused = internal.DeadLetterResponse(), {one.decode() for one in invalid}
        for ack_id in dict.fromkeys(asked.ack_ids):
            if ack_id in refused:
                answer.failed.add(ack_id=ack_id, invalid=True, reason=NOT_OUT)
                continue
            outcome = moving[place_of(ack_id.encode())[:2]]
            error = outcome.result() if outcome.done() else None
            if not outcome.done() or error is not None:
                why = error.message if isinstance(error, SyncpointError) else str(error) if error else _LATE
                answer.failed.add(ack_id=ack_id, reason=why)
        return answer

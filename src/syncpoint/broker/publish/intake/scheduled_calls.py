"""What waits for its time in one log, listed, shown and cancelled, for people and programs.

Place: serves `internal.v1.Chains/ListScheduled` and `/CancelScheduled`, and called directly on one node;
`api.scheduled_admin` makes pages of it.
Promise: a cancellation is answered when it is persisted. What was published or cancelled before is refused: no message
is both cancelled and published.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

from syncpoint.base.kernel.frames import message_at
from syncpoint.base.model.delivery import Done
from syncpoint.base.model.errors import NotFound, Unavailable
from syncpoint.base.runtime.tasks import complete
from syncpoint.broker.publish.facts.scheduled import Scheduled
from syncpoint.broker.publish.intake.forwarder import PublishForwarder
from syncpoint.log.storage.store import StoredBatch
from syncpoint.wire.protobuf.messages import internal

READ_BYTES = 64 << 10


async def list_scheduled(
    forwarder: PublishForwarder, chain: int, asked: internal.ScheduledListRequest
) -> internal.ScheduledOfChain:
    """What waits for a topic, or the one message that is asked for, with its bytes. Raises storage errors."""
    answer = internal.ScheduledOfChain(chain=chain)
    if asked.source:
        one = forwarder.scheduled.find(asked.source, asked.offset)
        if one is not None and one.topic == asked.topic:
            answer.messages.add(**_entry(one), message=await _read(forwarder, one))
        return answer
    after = (asked.after.due_ns, asked.after.source, asked.after.offset) if asked.HasField("after") else None
    for one in forwarder.scheduled.of_topic(asked.topic, after, asked.messages_max):
        answer.messages.add(**_entry(one))
    return answer


def cancel_scheduled(forwarder: PublishForwarder, topic: int, source: int, offset: int, done: Done) -> None:
    """`done` once it is persisted that the message is not published. Raises `NotFound` where it does not wait, and
    `Unavailable` while another chain publishes it.
    """
    forwarder.commit.check_writable()
    one = forwarder.scheduled.find(source, offset)
    if one is None or one.topic != topic:
        raise not_waiting()
    if forwarder.scheduled.leaves(one):
        raise Unavailable(
            "The message is being published and cannot be cancelled any more. List the scheduled messages to see"
            " whether it was."
        )
    try:
        forwarder.scheduled.cancel([one], done)
    except Exception as error:
        forwarder.commit.on_inconsistency(error)
        raise


def not_waiting() -> NotFound:
    """For an id under which nothing waits."""
    return NotFound(
        "", "The topic has no scheduled message with this id: it was published or cancelled, or never existed."
    )


def _entry(one: Scheduled) -> dict[str, int]:
    return {"due_ns": one.due_ns, "source": one.source, "offset": one.offset}


async def _read(forwarder: PublishForwarder, one: Scheduled) -> bytes:
    waiting: asyncio.Future[Sequence[StoredBatch]] = asyncio.get_running_loop().create_future()
    forwarder.store.read(one.source, one.offset, READ_BYTES, partial(complete, waiting))
    for batch in await waiting:
        if batch.first_offset <= one.offset < batch.first_offset + batch.count:
            return bytes(message_at(batch.payload, one.offset - batch.first_offset))
    raise Unavailable("The message cannot be read now. Try again.")

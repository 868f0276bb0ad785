"""Backlog: what a subscription has not acknowledged. Off the hot path; for people and monitors."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from syncpoint.kernel.frames import count
from syncpoint.metadata.records import Subscription
from syncpoint.model.delivery import Batch
from syncpoint.publish.forwarder import PublishForwarder


class Oldest(NamedTuple):
    """The oldest message not acknowledged, and the mean size of those stored with it."""

    age_s: float
    mean_bytes: float


def unacknowledged(forwarder: PublishForwarder, record: Subscription) -> int:
    """How many messages the subscription has not acknowledged."""
    ledger = forwarder.ledgers.get(record.incarnation)
    if ledger is None:
        return 0
    total = 0
    for source in forwarder.sources.of_topic(record.topic_incarnation):
        held = ledger.acks.get(source.number)
        total += source.visible - (held.count(0, source.visible) if held is not None else 0)
    return total


async def oldest(forwarder: PublishForwarder, record: Subscription) -> Oldest | None:
    """None when everything is acknowledged. Raises what storage says when it can not be read."""
    for source in forwarder.sources.of_topic(record.topic_incarnation):
        batch = await _oldest_in(forwarder, record, source.number)
        if batch is not None:
            age_s = (forwarder.clock.time_ns() - batch.time_ns) / 1e9
            return Oldest(max(0.0, age_s), len(batch.payload) / max(1, count(batch.payload)))
    return None


async def _oldest_in(forwarder: PublishForwarder, record: Subscription, source: int) -> Batch | None:
    answer: asyncio.Future[Batch | None] = asyncio.get_running_loop().create_future()

    def replied(batches: Sequence[Batch] | Exception) -> None:
        if answer.done():
            return
        if isinstance(batches, Exception):
            answer.set_exception(batches)
        else:
            answer.set_result(batches[0] if batches else None)

    forwarder.fetch(record.incarnation, source, 0, 1, replied)
    return await answer

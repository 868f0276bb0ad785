"""Backlog: what a subscription has not acknowledged. Off the hot path; for people and monitors."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from syncpoint.kernel.frames import count
from syncpoint.metadata.records import Subscription
from syncpoint.model.delivery import Batch
from syncpoint.publish.forwarder import PublishForwarder
from syncpoint.publish.source import Source
from syncpoint.runtime.tasks import complete


class Backlog(NamedTuple):
    """What is stored and not acknowledged. `oldest_age_s`: of the oldest message; `mean_bytes`: of those near it."""

    messages: int = 0
    oldest_age_s: float = 0.0
    mean_bytes: float = 0.0


def first_stored(forwarder: PublishForwarder, source: Source) -> int:
    """The first offset of a source that is stored; where nothing is, the next one."""
    bounds = forwarder.store.bounds(source.number)
    return bounds[0] if bounds is not None else source.end


def unacknowledged(forwarder: PublishForwarder, record: Subscription) -> int:
    """How many stored messages the subscription has not acknowledged."""
    ledger = forwarder.ledgers.get(record.incarnation)
    messages = 0
    for source in forwarder.sources.of_topic(record.topic_incarnation) if ledger is not None else ():
        assert ledger is not None
        first, held = first_stored(forwarder, source), ledger.acks.get(source.number)
        if first < source.visible:
            messages += source.visible - first - (held.count(first, source.visible) if held is not None else 0)
    return messages


async def backlog(forwarder: PublishForwarder, record: Subscription) -> Backlog:
    """Counted, and the oldest message read. Raises what storage says when it cannot be."""
    messages = unacknowledged(forwarder, record)
    for source in forwarder.sources.of_topic(record.topic_incarnation) if messages else ():
        batch = await _oldest_in(forwarder, record, source.number)
        if batch is not None:
            age_s = (forwarder.clock.time_ns() - batch.time_ns) / 1e9
            return Backlog(messages, max(0.0, age_s), len(batch.payload) / max(1, count(batch.payload)))
    return Backlog()


async def _oldest_in(forwarder: PublishForwarder, record: Subscription, source: int) -> Batch | None:
    answer: asyncio.Future[Sequence[Batch]] = asyncio.get_running_loop().create_future()
    forwarder.server.fetch(record.incarnation, source, 0, 1, partial(complete, answer))
    batches = await answer
    return batches[0] if batches else None

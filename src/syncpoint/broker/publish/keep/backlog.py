"""Backlog: what a subscription has not acknowledged. Off the hot path; for people and monitors."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from operator import attrgetter
from typing import NamedTuple

from syncpoint.base.kernel.frames import count
from syncpoint.base.model.delivery import Batch
from syncpoint.base.model.lanes import in_lane
from syncpoint.base.runtime.tasks import complete
from syncpoint.broker.publish.facts.source_ends import stored_run
from syncpoint.broker.publish.intake.deliverable import expired_at, pass_over_expired
from syncpoint.broker.publish.intake.forwarder import PublishForwarder
from syncpoint.catalog.metadata.records import Subscription


class Backlog(NamedTuple):
    """What is stored and not acknowledged. `oldest_age_s`: of the oldest message; `mean_bytes`: of those near it."""

    messages: int = 0
    oldest_age_s: float = 0.0
    mean_bytes: float = 0.0


def unacknowledged(forwarder: PublishForwarder, record: Subscription) -> int:
    """How many stored messages the subscription has not acknowledged; of rules' copies, each counts."""
    ledger = forwarder.ledgers.get(record.incarnation)
    if ledger is None:
        return 0
    expired, messages = expired_at(forwarder.catalog, ledger, forwarder.clock.sure_ns()), 0
    for source in forwarder.sources.of_topic(record.topic_incarnation):
        pass_over_expired(
            forwarder.ledgers, ledger, source, expired, forwarder.expiry, forwarder.store, forwarder.commit.recorder
        )
        (first, last), held = stored_run(forwarder.store, source), ledger.known(source.number)
        for lane in ledger.lane_numbers if first < last else ():
            begin, end = in_lane(lane, first), in_lane(lane, last)
            messages += end - begin - (held.count(begin, end) if held is not None else 0)
    return messages


async def backlog(forwarder: PublishForwarder, record: Subscription) -> Backlog:
    """Counted, and the oldest message read. Raises storage errors when it cannot be."""
    messages = unacknowledged(forwarder, record)
    for source in forwarder.sources.of_topic(record.topic_incarnation) if messages else ():
        ledger = forwarder.ledgers.get(record.incarnation)
        found = [
            batch
            for lane in (list(ledger.lane_numbers) if ledger is not None else ())
            if (batch := await _oldest_in(forwarder, record, source.number, lane)) is not None
        ]
        if found:
            batch = min(found, key=attrgetter("time_ns"))
            age_s = (forwarder.clock.time_ns() - batch.time_ns) / 1e9
            return Backlog(messages, max(0.0, age_s), len(batch.payload) / max(1, count(batch.payload)))
    return Backlog()


async def _oldest_in(forwarder: PublishForwarder, record: Subscription, source: int, lane: int) -> Batch | None:
    answer: asyncio.Future[Sequence[Batch]] = asyncio.get_running_loop().create_future()
    forwarder.server.fetch(record.incarnation, source, in_lane(lane, 0), 1, partial(complete, answer))
    batches = await answer
    return batches[0] if batches else None

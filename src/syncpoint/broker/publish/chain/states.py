"""What the chains of one process know of a topic, a subscription, and their disks. Off the hot path, for operators.

Place: serves `internal.v1.Chains/Describe` and the process's status; `control.cluster_queries` gathers it from all
processes.
Promise: numbers of one moment per chain. What cannot be read from the disks in time is reported as unreadable.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from itertools import islice
from typing import Any

from syncpoint.base.kernel.acks import AckSet
from syncpoint.base.model.cluster import ChainRecord
from syncpoint.base.model.lanes import ends_of, in_lane
from syncpoint.broker.publish.facts.ledger import Ledger
from syncpoint.broker.publish.facts.source import Source
from syncpoint.broker.publish.facts.source_ends import stored_run
from syncpoint.broker.publish.intake.forwarder import PublishForwarder
from syncpoint.broker.publish.keep.backlog import backlog, unacknowledged
from syncpoint.broker.publish.keep.seek_preview import seek_change
from syncpoint.catalog.metadata.records import Subscription
from syncpoint.log.storage.store import Store
from syncpoint.wire.protobuf.messages import internal

READ_S = 1.0  # for the oldest message


async def describe(
    forwarders: Mapping[int, PublishForwarder],
    topic: int,
    record: Subscription | None,
    ranges_max: int,
    seek: internal.ForeseenSeek | None = None,
) -> list[internal.DescribedChain]:
    """A DescribedChain of each, by number. `record`: the subscription that is asked for; None: the topic alone. `seek`:
    count what it would change.
    """
    described = (_described(number, one, topic, record, ranges_max, seek) for number, one in forwarders.items())
    return list(await asyncio.gather(*described))


async def _described(
    number: int,
    forwarder: PublishForwarder,
    topic: int,
    record: Subscription | None,
    ranges_max: int,
    seek: internal.ForeseenSeek | None,
) -> internal.DescribedChain:
    answer = internal.DescribedChain(chain=number)
    ledger = forwarder.ledgers.get(record.incarnation) if record is not None else None
    for source in forwarder.sources.of_topic(topic):
        first, _ = stored_run(forwarder.store, source)
        shown = answer.sources.add(
            source=source.number, first_offset=first, next_offset=source.end, universe=forwarder.sources.universe
        )
        if ledger is not None:
            _acknowledged(shown, source, ledger, ranges_max)
    if seek is not None:
        answer.seek.CopyFrom(seek_change(forwarder, seek))
    if record is not None and ledger is not None:
        answer.generation, answer.backlog_messages = ledger.generation, unacknowledged(forwarder, record)
        if answer.backlog_messages:
            await _oldest(answer, forwarder, record)
    return answer


def _acknowledged(shown: internal.DescribedSource, source: Source, ledger: Ledger, ranges_max: int) -> None:
    """Describe acknowledgements; with several lanes, of the lane with the largest backlog."""
    acks: AckSet | None = ledger.known(source.number)
    shown.start_offset = ledger.start.get(source.number, 0)
    shown.copies = len(ledger.lanes) or 1
    shown.first_unacked_offset = ledger.begin_of(source.number)
    if acks is None:
        return
    counts = {lane: acks.count(in_lane(lane, 0), in_lane(lane, source.end)) for lane in ledger.lane_numbers}
    least = min(counts, key=counts.__getitem__)
    first, last = ends_of(least)
    runs = [(begin - first, length) for begin, length in acks.runs() if first <= begin < last]
    shown.acked_messages = counts[least]
    for begin, length in islice(runs, ranges_max):
        shown.acked.extend((begin, begin + length))
    shown.ranges_total = len(runs)


async def _oldest(answer: internal.DescribedChain, forwarder: PublishForwarder, record: Subscription) -> None:
    """Age and size, which stand with the messages."""
    try:
        async with asyncio.timeout(READ_S):
            found = await backlog(forwarder, record)
    except TimeoutError:
        answer.unreadable = "its disks do not answer in time"
    except Exception as error:  # any storage error: the rest of the answer is good
        answer.unreadable = str(error) or type(error).__name__
    else:
        answer.oldest_age_s = found.oldest_age_s
        answer.backlog_bytes = int(answer.backlog_messages * found.mean_bytes)


def disks_of(record: ChainRecord, store: Store) -> dict[str, Any]:
    """How a chain finds its disks, by /CLUSTER/DISK: plain values."""
    found = store.status()
    return {
        f"/{place.cluster}/{place.disk}": {
            "folder": disk.path,
            "state": disk.state,
            "reason": disk.reason,
            "position": disk.position,
            "incarnation": disk.incarnation,
            "free_bytes": disk.free_bytes,
            "lacks": max(0, found.appended - disk.position),
            "unreadable": disk.unreadable,
        }
        for place, disk in zip(record.places, found.disks, strict=True)
    }

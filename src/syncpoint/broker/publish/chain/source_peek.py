"""Peek: messages of one source as they are stored, for people. Nothing is lent, delivered or counted.

Place: serves `internal.v1.Chains/Peek`, and called directly on one node; `api.peek_admin` makes pages of it.
Promise: an answer costs a bounded amount of reading, whatever is looked for; `next` is where to continue.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

from syncpoint.base.kernel import filters, frames
from syncpoint.base.kernel.acks import decode_runs
from syncpoint.base.model.delivery import Batch, expired_of, freshness_of, passed_over
from syncpoint.base.model.lanes import in_lane, lane_of, place_in
from syncpoint.base.runtime.tasks import complete
from syncpoint.broker.publish.facts.source import Source
from syncpoint.broker.publish.facts.source_ends import offset_since
from syncpoint.broker.publish.facts.time_to_live import NEVER_NS
from syncpoint.broker.publish.intake.forwarder import PublishForwarder
from syncpoint.broker.recording.record_kinds import MOVED
from syncpoint.log.storage.errors import StorageDamaged
from syncpoint.log.storage.store import StoredBatch
from syncpoint.wire.protobuf.messages import internal

READ_BYTES = 1 << 20
SCANNED_BYTES_MAX = 4 << 20
FOUND_BYTES_MAX = 1 << 20
RAN_OUT = 1
"""Of a request: only what ran out is asked for."""


class _Part(NamedTuple):
    """What was read: batches, and where to go on; `end`: nothing follows them."""

    batches: Sequence[Batch]
    next: int
    end: bool = False
    unreadable: int = 0
    expired: Sequence[tuple[int, int]] = ()
    soonest_ns: int = 0  # nothing else runs out before; 0: never


async def peek(forwarder: PublishForwarder, asked: internal.PeekRequest) -> internal.PeekResponse:
    """Raises storage errors, except for messages that are damaged: they are counted. All that an answer has was seen
    in the seek generation that it names.
    """
    generation = forwarder.server.generation(asked.subscription)
    answer = internal.PeekResponse(next=asked.begin, generation=generation)
    source = forwarder.sources.by_number.get(asked.source)
    if source is None or source.topic != asked.topic:
        answer.end = True  # nothing of it is left
        return answer
    if asked.since_ns:
        since = in_lane(lane_of(asked.begin), offset_since(forwarder.store, source, asked.since_ns))
        answer.next = max(answer.next, since)
    programs, key = list(asked.programs), asked.ordering_key.encode()
    scanned = found = 0
    while not answer.end and scanned < SCANNED_BYTES_MAX and found < FOUND_BYTES_MAX:
        part = await _read(forwarder, source, asked.subscription, answer.next)
        if forwarder.server.generation(asked.subscription) != generation:
            return answer if answer.messages else await peek(forwarder, asked)  # what follows is of another one
        for place, message, its_key in (one for batch in part.batches for one in _messages(batch)):
            gone = any(begin <= place < end for begin, end in part.expired)
            if gone and not asked.given_up:
                continue  # it waits for the dead-letter topic alone
            if not gone and asked.given_up == RAN_OUT:
                continue
            if len(answer.messages) == asked.messages_max or found >= FOUND_BYTES_MAX:
                return answer  # before this one
            answer.next = place + 1
            if (not key or key == its_key) and all(filters.matches(program, message) for program in programs):
                answer.messages.add(place=place, message=message, expired=gone)
                found += len(message)
        scanned += sum(len(batch.payload) for batch in part.batches)
        answer.next, answer.end = max(answer.next, part.next), part.end
        answer.unreadable += part.unreadable
        if part.soonest_ns:
            answer.soonest_ns = min(answer.soonest_ns or part.soonest_ns, part.soonest_ns)
    return answer


async def acknowledge_seen(forwarder: PublishForwarder, asked: internal.AcknowledgeSeenRequest) -> None:
    """Acknowledge what a peek has shown, whoever delivers it, in the generation that it was seen in: what a seek has
    brought back since then stays. Returns when that is persisted; raises why not.
    """
    when_over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    forwarder.commit.recorder.note_of(
        asked.subscription, MOVED, asked.source, partial(decode_runs, asked.runs), generation=asked.generation
    )
    forwarder.server.acknowledge(
        asked.subscription,
        asked.generation,
        asked.source,
        asked.runs,
        partial(complete, when_over),
        urgent=True,
    )
    await when_over


async def _read(forwarder: PublishForwarder, source: Source, subscription: int, begin: int) -> _Part:
    if subscription:
        waiting: asyncio.Future[Sequence[Batch]] = asyncio.get_running_loop().create_future()
        forwarder.server.fetch(subscription, source.number, begin, READ_BYTES, partial(complete, waiting))
        batches = await waiting
        passed = passed_over(batches)
        ends = [end for _, end in passed] + [batch.end for batch in batches]
        unreadable = sum(end - begin for begin, end in passed)
        freshness = freshness_of(batches)
        soonest_ns = freshness.soonest_ns if freshness is not None and freshness.soonest_ns < NEVER_NS else 0
        return _Part(batches, max(ends, default=begin), not ends, unreadable, expired_of(batches), soonest_ns)
    offset = place_in(begin)[1]
    stored: asyncio.Future[Sequence[StoredBatch]] = asyncio.get_running_loop().create_future()
    forwarder.store.read(source.number, offset, READ_BYTES, partial(complete, stored))
    try:
        found = await stored
    except StorageDamaged as damaged:
        if damaged.resume_offset is None:
            raise
        behind = max(offset + 1, damaged.resume_offset)
        return _Part((), behind, unreadable=behind - offset)
    made = [
        Batch(one.source, one.first_offset, max(offset, one.first_offset), one.first_offset + one.count, None,
              one.time_ns, one.payload)
        for one in found
    ]  # fmt: skip
    return _Part(made, made[-1].end if made else offset, not made)


def _messages(batch: Batch) -> Iterator[tuple[int, bytes, bytes]]:
    """(place, PubsubMessage, ordering key) of those that are asked for."""
    sizes, keys = frames.describe(batch.payload)
    at = 0
    for place, (size, key) in enumerate(zip(sizes, keys, strict=True), batch.first_offset):
        at += 4  # the length in front of it
        if batch.begin <= place < batch.end and not batch.skips(place):
            yield place, bytes(batch.payload[at : at + size]), key
        at += size

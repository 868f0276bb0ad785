"""Deliverable: which of the stored messages a subscription still receives.

Place: between the store and `source_server`. What has outlived the retention of a subscription and of its topic is not
delivered, nor what has outlived its time to live, nor what was deleted; `retention` judges by the same times whether it
must be kept.
Promise: what is passed over counts as acknowledged in memory. Nothing is written: the same follows again, from times
and from what is stored, after a restart. What has run out and goes to a dead-letter topic is not passed over but named.
"""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from syncpoint.base.kernel import lifetimes as kernel
from syncpoint.base.kernel.acks import AckSet
from syncpoint.base.model.delivery import Batch, Fetched, Freshness
from syncpoint.base.model.lanes import ends_of, in_lane, lane_of
from syncpoint.broker.publish.facts.ledger import Ledger
from syncpoint.broker.publish.facts.ledgers import Ledgers
from syncpoint.broker.publish.facts.source import Source
from syncpoint.broker.publish.facts.source_ends import offset_since
from syncpoint.broker.publish.facts.time_to_live import NEVER_NS, ExpiryIndex, goes_to_letters, time_to_live_ns
from syncpoint.broker.recording.record_kinds import EXPIRED
from syncpoint.broker.recording.recorder import Recorder
from syncpoint.catalog.metadata.catalog import Catalog
from syncpoint.catalog.metadata.entity_options import NO_SUBSCRIPTION_OPTIONS, NO_TOPIC_OPTIONS
from syncpoint.log.storage.store import Store, StoredBatch


class Expired(NamedTuple):
    """What a subscription does not receive any more: what was published before `retained_ns`, or `live_ns` ago (0: no
    matter how long), the time to live of the subscription and its topic. `letters`: the latter is not dropped. `once`:
    a subscriber that has one of them must still be able to acknowledge it, so it does not count as acknowledged before.
    """

    now_ns: int
    retained_ns: int
    live_ns: int
    letters: bool
    once: bool


def expired_at(catalog: Catalog, ledger: Ledger, now_ns: int) -> Expired:
    """As of a time that surely has been reached."""
    record = catalog.subscription_by_incarnation(ledger.subscription)
    topic = catalog.topic_of(record) if record else None
    kept_s = max(record.retention_s if record else 0, topic.retention_s if topic else 0)
    oldest = now_ns - kept_s * 1_000_000_000
    retained = 0 if ledger.renewed_ns >= oldest else oldest  # a seek to a snapshot kept them
    if record is None:
        return Expired(now_ns, retained, 0, letters=False, once=False)
    if record.options is NO_SUBSCRIPTION_OPTIONS and (topic is None or topic.options is NO_TOPIC_OPTIONS):
        return Expired(now_ns, retained, 0, letters=False, once=record.exactly_once)
    return Expired(now_ns, retained, time_to_live_ns(record, topic), goes_to_letters(record), record.exactly_once)


def deliverable(
    ledgers: Ledgers,
    ledger: Ledger,
    begin: int,
    end: int,
    stored: Sequence[StoredBatch],
    expired: Expired,
    own: ExpiryIndex,
    ran_out: list[tuple[int, int]] | None = None,
) -> list[Batch]:
    """The messages in `[begin, end)`, places of one lane, of what the store read, acknowledged ones to be skipped, with
    what of them has run out and goes to the dead-letter topic. Passes over those that were deleted or have run out
    else, and adds the latter to `ran_out`; `own`: the times to live of messages.
    """
    out: list[Batch] = []
    base = ends_of(lane_of(begin))[0]
    dead: list[tuple[int, int]] = []
    soonest = NEVER_NS
    ages = bool(stored) and (expired.live_ns > 0 or bool(own.runs.get(stored[0].source)))  # all are of one source
    for batch in stored:
        place = base + batch.first_offset
        behind = place + batch.count
        last = min(end, behind)
        if place > begin:
            ledgers.pass_over(ledger, batch.source, begin, min(place, end))  # deleted
        if place >= end:
            break
        first, hidden = max(begin, place), []
        if batch.time_ns < expired.retained_ns:
            ledgers.pass_over(ledger, batch.source, place, last)
            if ran_out is not None:
                ran_out.append((first, last - first))
        elif ages:
            found, next_ns = _run_out(batch, first - base, last - base, expired, own)
            runs = [(base + one, base + other) for one, other in found]
            soonest = min(soonest, next_ns)
            if ran_out is not None and not expired.letters:
                ran_out += [(one, other - one) for one, other in runs]
            if expired.letters:
                dead += runs
            elif expired.once:
                hidden = runs
            else:
                for run in runs:
                    ledgers.pass_over(ledger, batch.source, *run)
        acks = ledger.known(batch.source)
        skip = acks.mask(place, behind) if acks is not None else None
        if hidden:
            skip = _with(skip, place, behind, hidden)
        out.append(Batch(batch.source, place, first, last, skip, batch.time_ns, batch.payload))
        begin = last
    # Rules may give messages a time to live that is not known here.
    if soonest == NEVER_NS and not dead and not ledger.lanes:
        return out
    return Fetched(out, expired=dead, freshness=Freshness(expired.now_ns, expired.live_ns, soonest))


def pass_over_expired(
    ledgers: Ledgers,
    ledger: Ledger,
    source: Source,
    expired: Expired,
    own: ExpiryIndex,
    store: Store,
    recorder: Recorder,
) -> None:
    """Pass over, and have recorded, what has run out of a source, as far as that is known without reading messages."""
    for place, behind in known_expired(ledger, source, expired, own, store):
        if source.topic in recorder.topics:
            fresh = partial(_unacknowledged, ledger.of(source.number), place, behind)
            recorder.note_of(ledger.subscription, EXPIRED, source.number, fresh, generation=ledger.generation)
        ledgers.pass_over(ledger, source.number, place, behind)


def known_expired(
    ledger: Ledger, source: Source, expired: Expired, own: ExpiryIndex, store: Store
) -> list[tuple[int, int]]:
    """The places in a source that count as acknowledged because they have run out, as far as is known unread."""
    if expired.letters or expired.once:
        return []
    first = ledger.begin_of(source.number)
    runs = own.ended(source.number, first, source.visible, expired.now_ns)
    if expired.live_ns:
        lived_ns = expired.now_ns - expired.live_ns
        runs.append((first, min(source.visible, offset_since(store, source, lived_ns + 1))))
    lanes = list(ledger.lane_numbers)
    return [(in_lane(lane, begin), in_lane(lane, end)) for begin, end in runs if begin < end for lane in lanes]


def _unacknowledged(acks: AckSet, begin: int, end: int) -> list[tuple[int, int]]:
    """Runs of a range that are not acknowledged."""
    if acks.covers(begin, end):
        return []
    left = AckSet()
    left.add(begin, end)
    for first, count in acks.runs():
        left.remove(first, first + count)
    return list(left.runs())


def _with(skip: bytes | None, first: int, end: int, runs: Sequence[tuple[int, int]]) -> bytes:
    """The bits of places from `first` to `end` with those of runs."""
    bits = int.from_bytes(skip or b"", "little")
    for begin, behind in runs:
        bits |= (1 << behind - first) - (1 << begin - first)
    return bits.to_bytes((end - first + 7) // 8, "little")


def _run_out(
    batch: StoredBatch, first: int, last: int, expired: Expired, own: ExpiryIndex
) -> tuple[list[tuple[int, int]], int]:
    """The runs of `[first, last)` whose time to live is over; and when the next one is."""
    ends_ns = batch.time_ns + expired.live_ns if expired.live_ns else NEVER_NS
    if ends_ns <= expired.now_ns:
        return [(first, last)], NEVER_NS
    own_ns = own.soonest_ns(batch.source, first, last)
    if own_ns > expired.now_ns:
        return [], min(own_ns, ends_ns)
    found, shortest_ms = kernel.expired(batch.payload, (expired.now_ns - batch.time_ns) // 1_000_000)
    runs = [(max(first, batch.first_offset + begin), min(last, batch.first_offset + end)) for begin, end in found]
    next_ns = batch.time_ns + shortest_ms * 1_000_000 if shortest_ms else NEVER_NS
    return [run for run in runs if run[0] < run[1]], min(next_ns, ends_ns)

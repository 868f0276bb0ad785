"""Deliverable: which of the stored messages a subscription still receives.

Place: between the store and `source_server`. What has outlived the retention of a subscription and of its topic is not
delivered, nor is what was deleted; `retention` judges by the same times whether it must be kept.
Promise: what is passed over counts as acknowledged in memory. Nothing is written: the same follows again, from times
and from what is stored, after a restart.
"""

from collections.abc import Sequence

from syncpoint.metadata.catalog import Catalog
from syncpoint.model.delivery import Batch
from syncpoint.model.lanes import ends_of, lane_of
from syncpoint.publish.ledger import Ledger
from syncpoint.publish.ledgers import Ledgers
from syncpoint.storage.store import StoredBatch


def expired_before(catalog: Catalog, ledger: Ledger, now_ns: int) -> int:
    """The publish time before which messages have expired for the subscription; 0: none have."""
    record = catalog.subscription_by_incarnation(ledger.subscription)
    topic = catalog.topic_of(record) if record else None
    kept_s = max(record.retention_s if record else 0, topic.retention_s if topic else 0)
    oldest = now_ns - kept_s * 1_000_000_000
    return 0 if ledger.renewed_ns >= oldest else oldest  # a seek to a snapshot kept them


def deliverable(
    ledgers: Ledgers, ledger: Ledger, begin: int, end: int, stored: Sequence[StoredBatch], expired_ns: int
) -> list[Batch]:
    """The messages in `[begin, end)`, places of one lane, of what the store read, acknowledged ones to be skipped.
    Passes over those that were deleted, or were published before `expired_ns`.
    """
    out, base = [], ends_of(lane_of(begin))[0]
    for batch in stored:
        place = base + batch.first_offset
        behind = place + batch.count
        last = min(end, behind)
        if place > begin:
            ledgers.pass_over(ledger, batch.source, begin, min(place, end))  # deleted
        if place >= end:
            break
        if batch.time_ns < expired_ns:
            ledgers.pass_over(ledger, batch.source, place, last)
        acks = ledger.known(batch.source)
        skip = acks.mask(place, behind) if acks is not None else None
        first = max(begin, place)
        out.append(Batch(batch.source, place, first, last, skip, batch.time_ns, batch.payload))
        begin = last
    return out

"""What holds of a chain once everything is quiet: what it stores, knows and is registered for agree.

Place: asked by `chain_runs` after a life has drained, for as long as it takes what is done by the clock to come round;
`pipeline_runs` asks it of what a node stores.
"""

from __future__ import annotations

from collections.abc import Collection

from syncpoint.broker.publish.chain.chain import Chain
from syncpoint.broker.publish.facts.source import INNER_TOPICS
from syncpoint.broker.publish.intake.forwarder import PublishForwarder
from syncpoint.broker.publish.keep.retention import is_needed
from syncpoint.log.storage.errors import CopiesUnreachable
from syncpoint.log.storage.index import DamagedIndex
from syncpoint.log.storage.store import Store


def leftovers(chain: Chain, registered: Collection[tuple[int, int]]) -> list[str]:
    """What should not be there, or should be and is not, in words."""
    number = chain.number
    return [
        f"chain {number} {text}"
        for text in (
            *_unregistered(chain, registered),
            *_generations(chain),
            *stored_for_nobody(chain.store, chain.forwarder),
        )
    ]


def _unregistered(chain: Chain, registered: Collection[tuple[int, int]]) -> list[str]:
    """A chain is registered for the topics of which it holds something, and for no others."""
    held = {*chain.forwarder.sources.topics(), *chain.forwarder.scheduled.topics()} - INNER_TOPICS
    known = {topic for topic, number in registered if number == chain.number}
    nothing = {topic for topic in known - held if not chain.forwarder.remembers(topic)}
    return [
        *(f"holds something of topic {topic} and is not registered for it" for topic in sorted(held - known)),
        *(f"is registered for topic {topic} and holds nothing of it" for topic in sorted(nothing)),
    ]


def _generations(chain: Chain) -> list[str]:
    """What was confirmed of a seek is what the ledgers are by."""
    catalog, found = chain.follower.catalog, []
    for number, ledger in chain.forwarder.ledgers.items():
        record = catalog.subscription_by_incarnation(number)
        if record is None:
            found.append(f"has a ledger of subscription {number}, which is no more")
        elif record.generation != ledger.generation:
            found.append(f"has a ledger of generation {ledger.generation} of {record.name}, not of {record.generation}")
    return found


def stored_for_nobody(store: Store, forwarder: PublishForwarder) -> list[str]:
    """Nothing is stored that nobody knows, and no whole segment that nobody needs."""
    found = [
        f"stores messages of source {number}, which nobody knows"
        for number in sorted(store.sources())
        if store.bounds(number) is not None and number not in forwarder.sources.by_number
    ]
    for segment in store._disks.catalog:
        if (
            segment.active is not None
            or not segment.sealed_by
            or not segment.messages
            or segment.removed
            or not store._deletion.removable(segment)
        ):
            continue
        try:
            records = list(store._disks.catalog.index(segment).messages())
        except (DamagedIndex, OSError):
            continue  # whether copies are in good order is checked elsewhere
        except CopiesUnreachable as error:  # its owner has just lost it, or disks are still away: to be seen later
            found.append(f"cannot be judged: {error}")
            continue
        if not any(is_needed(forwarder, one.source, one.first_offset, one.count, one.time_ns) for one in records):
            found.append(f"stores segment {segment.seq} of log {segment.log}, of which nobody needs anything")
    return found

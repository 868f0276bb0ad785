"""Recovery: the forwarder's memory from what storage found.

Storage hands over the newest complete checkpoint and every fact written after it began. All facts are idempotent (a ledger's sets merge by
union inside a generation, catalog changes carry revisions), so replaying them over a checkpoint that was taken while they were written
is right. What this incarnation inherits are sealed sources; it opens new ones in its own log.
"""

from syncpoint.metadata.catalog import Catalog, Change, Subscription
from syncpoint.publish import records
from syncpoint.publish.forwarder import PublishForwarder
from syncpoint.storage.record import Kind


def recover(forwarder: PublishForwarder) -> None:
    """Replay everything into an empty forwarder and its catalog."""
    store, catalog = forwarder.store, forwarder.catalog
    checkpoint_over = False
    for entry in store.replay():
        if entry.kind == Kind.CHECKPOINT_PART:
            _apply_fact(forwarder, entry.payload)
            continue
        if not checkpoint_over:
            checkpoint_over = True
            _begin_missing_ledgers(forwarder)
        if entry.kind == Kind.LEDGER:
            _apply_fact(forwarder, entry.payload)
        elif entry.kind == Kind.ACKS:
            _apply_acks(forwarder, entry.payload)
        elif entry.kind == Kind.CATALOG:
            _apply_changes(forwarder, catalog, entry.payload)
    _begin_missing_ledgers(forwarder)
    _settle(forwarder)


def _apply_fact(forwarder: PublishForwarder, payload: bytes) -> None:
    match payload[0]:
        case records.Fact.CATALOG:
            forwarder.catalog.load_part(payload[1:])
        case records.Fact.SOURCE:
            forwarder.sources.add(records.decode_source(payload))
        case records.Fact.LEDGER:
            fresh = records.decode_ledger(payload)
            held = forwarder.ledgers.get(fresh.subscription)
            if held is None:
                forwarder.ledgers[fresh.subscription] = fresh
            elif fresh.generation == held.generation:
                for source, acks in fresh.acks.items():
                    held.of(source).union(acks)
            else:
                held.replace(fresh.generation, fresh.acks)
        case records.Fact.SNAPSHOT:
            state = records.decode_snapshot(payload)
            forwarder.snapshots[state.snapshot] = state
        case other:
            raise ValueError(f"a ledger record of kind {other}: written by a newer version?")


def _apply_acks(forwarder: PublishForwarder, payload: bytes) -> None:
    for entry in records.decode_acks(payload):
        ledger = forwarder.ledgers.get(entry.subscription)
        if ledger is not None and ledger.generation == entry.generation:
            ledger.of(entry.source).add_runs(entry.runs)


def _apply_changes(forwarder: PublishForwarder, catalog: Catalog, payload: bytes) -> None:
    for change in Change.decode_many(payload):
        catalog.apply(change)
        if isinstance(change.record, Subscription):
            forwarder.subscription_created(change.record.incarnation, change.record.start)


def _begin_missing_ledgers(forwarder: PublishForwarder) -> None:
    for record in forwarder.catalog.subscriptions():
        forwarder.subscription_created(record.incarnation, record.start)
        forwarder.ledgers[record.incarnation].start = dict(record.start)


def _settle(forwarder: PublishForwarder) -> None:
    """Ends of sealed sources, and only what the catalog still knows."""
    catalog, store = forwarder.catalog, forwarder.store
    for incarnation in list(forwarder.ledgers):
        record = catalog.subscription(incarnation)
        if record is None or record.detached:
            del forwarder.ledgers[incarnation]
    for incarnation in list(forwarder.snapshots):
        if catalog.snapshot(incarnation) is None:
            del forwarder.snapshots[incarnation]
    for source in list(forwarder.sources.by_number.values()):
        bounds = store.bounds(source.number)
        if bounds is None:
            forwarder.sources.forget(source)
        else:
            source.end = source.visible = bounds[1]
    known = forwarder.sources.by_number
    for ledger in forwarder.ledgers.values():
        for number in [number for number in ledger.acks if number not in known]:
            ledger.forget(number)

"""Recovery: the forwarder's memory from what storage found.

Storage hands over the newest complete checkpoint and every fact written after it began. All facts are idempotent (a
ledger's sets merge by union inside a generation, catalog changes carry revisions), so replaying them over a checkpoint
that was taken while they were written is right. What this incarnation inherits are sealed sources; it opens new ones in
its own log.

One node has its catalog in the log, and all is settled here. A chain has not: `replay` tells which revision of the
catalog is the least it may be judged by, and `follow` settles it.
"""

from collections import deque
from dataclasses import dataclass, field

from syncpoint.metadata.catalog import Catalog
from syncpoint.metadata.records import Change, Snapshot, Subscription, decode_changes
from syncpoint.publish import records
from syncpoint.publish.ledger import Ledger, SnapshotState
from syncpoint.publish.source import SourceTable
from syncpoint.storage.record import Kind
from syncpoint.storage.store import Store

BATCHES_MAX = 50_000  # numbered batches whose ids are remembered, for those who send them again


@dataclass(slots=True)
class Memory:
    """Everything a publish forwarder knows beside the messages themselves."""

    sources: SourceTable
    catalog: Catalog = field(default_factory=Catalog)
    ledgers: dict[int, Ledger] = field(default_factory=dict)
    snapshots: dict[int, SnapshotState] = field(default_factory=dict)
    checkpointed: bool = False  # a checkpoint was found
    facts: int = 0  # read after it
    extensions: dict[int, list[bytes]] = field(default_factory=dict)  # by number: what rooms above wrote, in order
    changes: list[Change] = field(default_factory=list)  # those of the catalog among them; drop them when done
    # Of a chain only:
    revision: int = 0  # the highest of the catalog that was acted by
    grants: dict[tuple[int, int], records.GrantFact] = field(default_factory=dict)  # by subscription and source
    batches: deque[records.BatchFact] = field(default_factory=lambda: deque(maxlen=BATCHES_MAX))

    def begin_ledger(self, record: Subscription) -> Ledger:
        """The ledger of a subscription, begun at its sync point when there is none yet."""
        ledger = self.ledgers.get(record.incarnation)
        if ledger is None:
            ledger = self.ledgers[record.incarnation] = Ledger(record.incarnation)
            ledger.begin_at(record.start)
        elif not ledger.start:
            ledger.start = dict(record.start)
        return ledger


def recover(store: Store) -> Memory:
    """The memory of one node. Raises `ValueError` when something is of a newer version."""
    memory = replay(store)
    settle(memory, store)
    for snapshot in memory.catalog.snapshots():
        memory.snapshots[snapshot.incarnation] = snapshot_state(snapshot)
    return memory


def replay(store: Store) -> Memory:
    """Everything storage found, put together. Raises `ValueError` when something is of a newer version."""
    memory = Memory(SourceTable(store.universe, store.log_counter))
    catalog_parts: list[bytes] = []
    in_checkpoint = True
    for entry in store.replay():
        if entry.kind == Kind.CHECKPOINT_PART:
            memory.checkpointed = True
            if entry.payload[0] == records.Fact.CATALOG:
                catalog_parts.append(entry.payload[1:])
            else:
                _apply_fact(memory, entry.payload)
            continue
        if in_checkpoint:
            in_checkpoint = False
            _end_checkpoint(memory, catalog_parts)
        memory.facts += entry.kind in (Kind.LEDGER, Kind.ACKS, Kind.CATALOG)
        if entry.kind == Kind.LEDGER:
            _apply_fact(memory, entry.payload)
        elif entry.kind == Kind.ACKS:
            _apply_acks(memory, entry.payload)
        elif entry.kind == Kind.CATALOG:
            _apply_changes(memory, entry.payload)
    if in_checkpoint:
        _end_checkpoint(memory, catalog_parts)
    return memory


def _end_checkpoint(memory: Memory, catalog_parts: list[bytes]) -> None:
    if catalog_parts:
        memory.catalog = Catalog.from_parts(catalog_parts)
    for record in memory.catalog.subscriptions():
        memory.begin_ledger(record)


def _apply_fact(memory: Memory, payload: bytes) -> None:
    match payload[0]:
        case records.Fact.BUNDLE:
            for fact in records.unbundled(payload):
                _apply_fact(memory, fact)
        case records.Fact.SOURCE | records.Fact.SOURCE_AT:
            found = records.decode_source(payload)
            memory.sources.add(found)
            memory.revision = max(memory.revision, found.revision)
        case records.Fact.LEDGER:
            fresh = records.decode_ledger(payload)
            held = memory.ledgers.get(fresh.subscription)
            if held is None:
                memory.ledgers[fresh.subscription] = fresh
            elif fresh.generation == held.generation:
                for source, acks in fresh.acks.items():
                    held.of(source).union(acks)
            else:
                held.replace(fresh.generation, fresh.acks)
        case records.Fact.START:
            _apply_start(memory, records.decode_start(payload))
        case records.Fact.SNAPSHOT:
            state = records.decode_snapshot_fact(payload)
            memory.snapshots[state.snapshot] = state
        case records.Fact.REVISION:
            memory.revision = max(memory.revision, records.decode_revision(payload))
        case records.Fact.GRANT:
            grant = records.decode_grant(payload)
            memory.grants[grant.subscription, grant.source] = grant
        case records.Fact.BATCHES:
            memory.batches.extend(records.decode_batches(payload))
        case records.Fact.EXTENSION:
            memory.extensions.setdefault(payload[1], []).append(payload[2:])
        case other:
            raise ValueError(f"a ledger record of kind {other}: written by a newer version?")


def _apply_start(memory: Memory, start: records.Start) -> None:
    memory.revision = max(memory.revision, start.revision)
    ledger = memory.ledgers.get(start.subscription)
    if ledger is None:
        ledger = memory.ledgers[start.subscription] = Ledger(start.subscription, start.generation)
    elif start.generation > ledger.generation:
        ledger.replace(start.generation, {})
    for source, offset in start.places:
        if source not in ledger.start:
            ledger.start[source] = offset
            if offset and start.generation == ledger.generation:
                ledger.of(source).add(0, offset)


def _apply_acks(memory: Memory, payload: bytes) -> None:
    for entry in records.decode_acks(payload):
        ledger = memory.ledgers.get(entry.subscription)
        if ledger is not None and ledger.generation == entry.generation:
            ledger.of(entry.source).add_runs(entry.runs)


def _apply_changes(memory: Memory, payload: bytes) -> None:
    for change in decode_changes(payload):
        if memory.catalog.apply(change):
            memory.changes.append(change)
            if isinstance(change.record, Subscription):
                memory.begin_ledger(change.record)


def settle(memory: Memory, store: Store) -> None:
    """Ends of sealed sources, and only what the catalog and storage still know."""
    catalog, sources = memory.catalog, memory.sources
    for incarnation in list(memory.ledgers):
        record = catalog.subscription_by_incarnation(incarnation)
        if record is None or record.detached:
            del memory.ledgers[incarnation]
    for source in list(sources.by_number.values()):
        bounds = store.bounds(source.number)
        if bounds is None:
            sources.forget(source)
        else:
            source.end = source.visible = bounds[1]
    for ledger in memory.ledgers.values():
        for number in [number for number in ledger.acks if number not in sources.by_number]:
            ledger.forget(number)


def snapshot_state(record: Snapshot) -> SnapshotState:
    """The acknowledged sets inside a snapshot's record."""
    return records.decode_snapshot(record.incarnation, record.state)

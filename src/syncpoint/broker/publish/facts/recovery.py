"""Recovery: the forwarder's memory from what storage found.

Storage hands over the newest complete checkpoint and every fact written after it began. All facts are idempotent
(`ledgers` says how, catalog changes carry revisions), so replaying them over a checkpoint that was taken while they
were written is right. What this incarnation inherits are sealed sources; it opens new ones in its own log.

A source is forgotten before what held it has left the disks, so an owner that dies in between leaves it there. A fact
says so, before any seek that leaves the source out because it is forgotten. A checkpoint draws its sources last, behind
a number that none of them had yet: what it does not name below that number had been forgotten, whatever is found of it.
A source that no checkpoint speaks of, and no fact, is unknown and kept.

One node has its catalog in the log. A chain has not: `replay` reports which revision of the catalog is the least it may
be judged by. `follow` reconciles both.
"""

import logging
import struct
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from google.protobuf.message import DecodeError

from syncpoint.broker.publish.facts import records, source_ends
from syncpoint.broker.publish.facts.ledgers import Ledgers
from syncpoint.broker.publish.facts.source import SourceTable
from syncpoint.catalog.metadata.catalog import Catalog
from syncpoint.catalog.metadata.records import CatalogChange, decode_changes
from syncpoint.log.storage.errors import GO_ON, ForeignDisk
from syncpoint.log.storage.layout import log_dir
from syncpoint.log.storage.record import Entry, EntryKind
from syncpoint.log.storage.store import Store

log = logging.getLogger(__name__)


@dataclass(slots=True)
class RecoveredState:
    """Everything a publish forwarder knows beside the messages themselves."""

    sources: SourceTable
    catalog: Catalog = field(default_factory=Catalog)
    ledgers: Ledgers = field(default_factory=Ledgers)
    reading: tuple[int, int] = (0, 0)  # log and position of the entry that was read last
    checkpointed: bool = False  # a checkpoint was found
    named: frozenset[int] = frozenset()  # the sources in it
    facts: int = 0  # read after it
    extensions: dict[int, list[bytes]] = field(default_factory=dict)  # by number: what rooms above wrote, in order
    changes: list[CatalogChange] = field(default_factory=list)  # those of the catalog among them; drop them when done
    # Of a chain only:
    revision: int = 0  # the highest of the catalog that was acted by
    grants: dict[tuple[int, int], records.GrantFact] = field(default_factory=dict)  # by subscription and source
    last_grants: dict[tuple[int, int], int] = field(default_factory=dict)  # the same, of sources that are deleted
    # Facts about messages, see `message_facts`; drop them when done:
    batches: list[bytes] = field(default_factory=list)
    fired: list[bytes] = field(default_factory=list)
    unsure: set[bytes] = field(default_factory=set)  # entries in front of messages that may not be persisted


def replay(store: Store) -> RecoveredState:
    """Everything storage found, put together. Raises `ForeignDisk` when something is in another format."""
    memory = RecoveredState(SourceTable(store.universe, store.log_counter))

    def where() -> str:
        number, position = memory.reading
        return f"Entry {position} of {log_dir('DISK', number)} on every disk"

    with of_this_format(where):
        _read(memory, store.replay())
    sources = memory.sources
    for source in list(sources.by_number.values()):
        if source.number in sources.deleted:
            sources.remove(source)
        elif source.number not in memory.named and sources.was_deleted(source.number):
            sources.remove(source)  # a fact about it was written after the checkpoint's beginning
    return memory


@contextmanager
def of_this_format(where: Callable[[], str]) -> Iterator[None]:
    """Read what has the checksums it was written with. Raises `ForeignDisk` where it does not mean what this version
    takes it for: a version with another format wrote it.
    """
    try:
        yield
    except (struct.error, ValueError, IndexError, DecodeError) as error:
        why = f"{type(error).__name__}: {error}"
        raise ForeignDisk(f"{where()} has a format that this version cannot read ({why}). {GO_ON}") from error


def _read(memory: RecoveredState, entries: Iterable[Entry]) -> None:
    catalog_parts: list[bytes] = []
    in_checkpoint = True
    ends: dict[int, int] = {}  # of each log, as far as it was found
    in_front: list[tuple[int, int, bytes]] = []  # log and last position of what facts are about
    for entry in entries:
        memory.reading = entry.log, entry.position
        if entry.kind == EntryKind.CHECKPOINT_PART:
            memory.checkpointed = True
            if entry.payload[0] == records.FactKind.CATALOG:
                catalog_parts.append(entry.payload[1:])
            else:
                _apply_fact(memory, entry.payload)
            continue
        if in_checkpoint:
            in_checkpoint = False
            _end_checkpoint(memory, catalog_parts)
        ends[entry.log] = max(entry.position, ends.get(entry.log, 0))
        memory.facts += entry.kind in (EntryKind.LEDGER, EntryKind.ACKS, EntryKind.CATALOG)
        if entry.kind == EntryKind.LEDGER:
            _apply_fact(memory, entry.payload)
            if behind := records.entries_behind(entry.payload):
                in_front.append((entry.log, entry.position + behind, entry.payload))
        elif entry.kind == EntryKind.ACKS:
            _apply_acks(memory, entry.payload)
        elif entry.kind == EntryKind.CATALOG:
            _apply_changes(memory, entry.payload)
    if in_checkpoint:
        _end_checkpoint(memory, catalog_parts)
    memory.unsure = {payload for number, last, payload in in_front if last > ends[number]}


def _end_checkpoint(memory: RecoveredState, catalog_parts: list[bytes]) -> None:
    if catalog_parts:
        memory.catalog = Catalog.from_parts(catalog_parts)
    memory.named = frozenset(memory.sources.by_number)


def _apply_fact(memory: RecoveredState, payload: bytes) -> None:
    match payload[0]:
        case records.FactKind.BUNDLE:
            for fact in records.unbundled(payload):
                _apply_fact(memory, fact)
        case records.FactKind.SOURCE | records.FactKind.SOURCE_AT:
            found = records.decode_source(payload)
            memory.sources.add(found)
            memory.revision = max(memory.revision, found.revision)
        case records.FactKind.SOURCES_BELOW:
            below = records.decode_sources_below(payload)
            memory.sources.below, memory.sources.unknown = below.bound, frozenset(below.unknown)
        case records.FactKind.SOURCES_GONE:
            memory.sources.deleted.update(records.decode_sources_gone(payload))
        case records.FactKind.LEDGER:
            ledger, revision = records.decode_ledger(payload)
            memory.ledgers.take(ledger)
            memory.revision = max(memory.revision, revision)
        case records.FactKind.SNAPSHOT:
            state, revision = records.decode_snapshot(payload)
            memory.ledgers.keep(state)
            memory.revision = max(memory.revision, revision)
        case records.FactKind.REVISION:
            memory.revision = max(memory.revision, records.decode_revision(payload))
        case records.FactKind.GRANT:
            grant = records.decode_grant(payload)
            memory.grants[grant.subscription, grant.source] = grant
        case records.FactKind.BATCHES:
            memory.batches.append(payload[1:])
        case records.FactKind.FIRED:
            memory.fired.append(payload[1:])
        case records.FactKind.EXTENSION:
            memory.extensions.setdefault(payload[1], []).append(payload[2:])
        case other:
            raise ValueError(f"unknown kind of ledger record: {other}")


def _apply_acks(memory: RecoveredState, payload: bytes) -> None:
    for entry in records.decode_acks(payload):
        memory.ledgers.acknowledge(entry.subscription, entry.generation, entry.source, entry.runs)


def _apply_changes(memory: RecoveredState, payload: bytes) -> None:
    for change in decode_changes(payload):
        if memory.catalog.apply(change):
            memory.changes.append(change)


def reconcile_sources(memory: RecoveredState, store: Store) -> None:
    """Ends of sealed sources. One of which nothing is stored stays where its end is known, until it is forgotten as one
    that became empty now: readers are to learn where it ended.
    """
    sources = memory.sources
    with of_this_format(lambda: "a fact in the log about where sources end"):
        ends = source_ends.decode_ends(memory.extensions.pop(source_ends.NUMBER, ()))
    for source in list(sources.by_number.values()):
        bounds, stated = store.bounds(source.number), ends.get(source.number, 0)
        if bounds is None and not stated:
            sources.forget(source)
        else:
            source.end = source.visible = max(stated, 0 if bounds is None else bounds[1])
            source.stated_end = stated
    found = (number for number in store.sources() if number not in sources.by_number)
    sources.unknown = frozenset(number for number in found if not sources.was_deleted(number))
    if sources.unknown:
        log.warning("%d sources in storage are unknown; they are kept", len(sources.unknown))
    memory.ledgers.only_sources(sources.by_number)


def drop_ledgers(memory: RecoveredState) -> None:
    """Only ledgers of subscriptions that the catalog knows."""
    for incarnation in list(memory.ledgers):
        record = memory.catalog.subscription_by_incarnation(incarnation)
        if record is None or record.detached:
            memory.ledgers.drop(incarnation)

"""Recovery: which catalog a log may be judged by, and which sources are known to be gone."""

from __future__ import annotations

import struct

import pytest

from syncpoint.broker.publish.facts import records
from syncpoint.broker.publish.facts.ledger import Ledger, SnapshotState
from syncpoint.broker.publish.facts.recovery import RecoveredState, reconcile_sources, replay
from syncpoint.broker.publish.facts.source import Source, SourceTable
from syncpoint.log.storage.errors import ForeignDisk
from syncpoint.log.storage.record import EntryKind
from syncpoint.testing.rigs.memory_store import StoreInMemory

FACTS = {
    "a source": records.encode_source(Source(1 << 24, 7, epoch=1, revision=9)),
    "a ledger": records.encode_ledger(Ledger(5), 9),
    "a snapshot": records.encode_snapshot(SnapshotState(50, {}), 9),
    "a revision": records.encode_revision(9),
}


def recovered(*facts: bytes, checkpoint: tuple[bytes, ...] = ()) -> RecoveredState:
    """What is found by the next owner where a checkpoint was written, if any, and then these facts."""
    store = StoreInMemory()
    if checkpoint:
        writer = store.checkpoint(iter(checkpoint))
        while not writer.step():
            pass
    for fact in facts:
        store.append(EntryKind.LEDGER, fact)
    store.persist()
    return replay(store.reopened())  # type: ignore[arg-type]


@pytest.mark.parametrize("what", FACTS)
@pytest.mark.parametrize("in_checkpoint", [False, True])
def test_no_fact_is_judged_by_an_older_catalog_than_it_was_written_by(what: str, *, in_checkpoint: bool) -> None:
    older = records.encode_revision(4)
    facts = (FACTS[what], older)
    memory = recovered(checkpoint=facts) if in_checkpoint else recovered(*facts)
    assert memory.revision == 9


OTHERWISE = {
    "a ledger as it once was": struct.pack("<BQQI", records.FactKind.LEDGER, 5, 0, 0),
    "a ledger as it once was, with sets": struct.pack("<BQQIQI", records.FactKind.LEDGER, 5, 0, 1, 1 << 24, 20)
    + bytes(20),
    "a ledger with more behind it": FACTS["a ledger"] + bytes(8),
    "a snapshot with more behind it": FACTS["a snapshot"] + bytes(8),
    "a revision of another width": FACTS["a revision"][:-4],
    "a kind that comes later": bytes((200, 1)),
    "nothing": b"",
}


@pytest.mark.parametrize("what", OTHERWISE)
@pytest.mark.parametrize("in_checkpoint", [False, True])
def test_facts_in_another_format_are_refused_by_name(what: str, *, in_checkpoint: bool) -> None:
    facts = (FACTS["a source"], OTHERWISE[what])
    with pytest.raises(ForeignDisk, match=r"Entry \d+ of DISK/logs/0000000001 .* has a format .*Start the version"):
        recovered(checkpoint=facts) if in_checkpoint else recovered(*facts)


def test_acknowledgements_and_changes_in_another_format_are_refused_by_name() -> None:
    for kind in (EntryKind.ACKS, EntryKind.CATALOG):
        store = StoreInMemory()
        store.append(kind, b"\xff\xff\xff")
        store.persist()
        with pytest.raises(ForeignDisk, match="Entry 1 of DISK/logs/0000000001 "):
            replay(store.reopened())  # type: ignore[arg-type]


def test_a_source_that_a_checkpoint_names_is_gone_once_a_fact_says_so() -> None:
    gone, left = (records.encode_source(Source(number, 7, sealed=True)) for number in (1 << 24, 1 << 24 | 1))
    below = records.encode_sources_below(records.SourcesBelow(1 << 24 | 2, ()))
    memory = recovered(records.encode_sources_gone([1 << 24]), checkpoint=(below, gone, left))
    assert list(memory.sources.by_number) == [1 << 24 | 1]
    assert memory.sources.was_deleted(1 << 24)
    assert not memory.sources.was_deleted(1 << 24 | 1 << 23), "one that was opened behind the checkpoint"


def test_a_source_is_known_to_be_gone_only_below_what_a_checkpoint_has_seen_and_named_by_nobody() -> None:
    table = SourceTable(10**12, 3)
    table.below, table.unknown = 100, frozenset({7})
    assert [table.was_deleted(number) for number in (6, 7, 99, 100, 101)] == [True, False, True, False, False]


def test_what_is_stored_of_a_source_that_nobody_names_stays_unknown_for_the_owners_to_come() -> None:
    store = StoreInMemory()
    for source in (5, 6):
        store.append(EntryKind.MESSAGES, b"\x01\0\0\0x", source=source, count=1)
    store.append(EntryKind.LEDGER, records.encode_sources_gone([6]))
    store.persist()
    again = store.reopened()
    memory = replay(again)  # type: ignore[arg-type]
    reconcile_sources(memory, again)  # type: ignore[arg-type]
    assert memory.sources.unknown == {5}
    memory.sources.below = 100  # as the next checkpoint says
    assert not memory.sources.was_deleted(5)
    assert memory.sources.was_deleted(6)

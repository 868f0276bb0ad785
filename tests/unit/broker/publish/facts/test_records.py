"""Facts of a chain come back as they were written, may be replayed twice, and those of one node keep their form."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncpoint.broker.publish.facts import dedup, records
from syncpoint.broker.publish.facts.dedup import BatchFact, RecentBatches
from syncpoint.broker.publish.facts.ledger import Ledger, SnapshotState, begun
from syncpoint.broker.publish.facts.message_facts import FactLog
from syncpoint.broker.publish.facts.recovery import replay
from syncpoint.broker.publish.facts.source import Source, SourceTable
from syncpoint.log.storage.record import EntryKind
from syncpoint.testing.rigs.memory_store import StoreInMemory

u64 = st.integers(0, 2**64 - 1)


def replayed(*facts: bytes) -> Any:
    store = StoreInMemory()
    for fact in facts:
        store.append(EntryKind.LEDGER, fact)
    store.persist()
    return replay(store.reopened())  # type: ignore[arg-type]


@given(u64, u64, u64, st.integers(1, 2**64 - 1), st.booleans(), st.booleans())
def test_a_source_of_a_chain(number: int, topic: int, epoch: int, revision: int, sealed: bool, keyed: bool) -> None:
    source = Source(number, topic, sealed=sealed, epoch=epoch, revision=revision, keyed=keyed)
    assert records.decode_source(records.encode_source(source)) == source


def test_a_source_of_one_node_is_stored_as_ever() -> None:
    encoded = records.encode_source(Source(3 << 24 | 5, 77))
    assert encoded == bytes((1,)) + (3 << 24 | 5).to_bytes(8, "little") + (77).to_bytes(8, "little")


@given(u64, st.lists(u64, max_size=5).map(tuple))
def test_what_a_checkpoint_says_of_sources(bound: int, unknown: tuple[int, ...]) -> None:
    fact = records.SourcesBelow(bound, unknown)
    assert records.decode_sources_below(records.encode_sources_below(fact)) == fact
    assert records.decode_sources_gone(records.encode_sources_gone([1, 1 << 40])) == [1, 1 << 40]


@given(st.lists(st.tuples(u64, u64, u64, u64, st.integers(0, 2**32 - 1)), max_size=5))
def test_batches_grants_and_revisions(rows: list[tuple[int, int, int, int, int]]) -> None:
    batches = [BatchFact(*row) for row in rows]
    assert list(RecentBatches.facts_in(RecentBatches.body(batches))) == batches
    assert records.entries_behind(RecentBatches.head + RecentBatches.body(batches, 7)) == 7
    for row in rows:
        grant = records.GrantFact(*row[:4])
        assert records.decode_grant(records.encode_grant(grant)) == grant
        assert records.decode_revision(records.encode_revision(row[0])) == row[0]


def test_replaying_a_beginning_over_what_came_after_it_changes_nothing() -> None:
    start = records.encode_ledger(begun(5, 0, {100: 10, 200: 3}), 9)
    memory = replayed(start, start)
    ledger = memory.ledgers[5]
    assert (ledger.first_gap(100, 0), ledger.first_gap(200, 0), ledger.first_gap(300, 0)) == (10, 3, 0)
    assert memory.revision == 9
    reset = records.encode_ledger(Ledger(5, 2, {}, dict(ledger.start)), 10)
    ledger = replayed(start, reset, start).ledgers[5]
    assert (ledger.generation, ledger.first_gap(100, 0), ledger.start) == (2, 0, {100: 10, 200: 3})
    anew = records.encode_ledger(Ledger(5, 4), 12)
    ledger = replayed(start, reset, anew).ledgers[5]
    assert ledger.generation == 4


def test_a_source_that_was_sealed_stays_sealed_in_whatever_order_it_is_read() -> None:
    source = Source(2 << 24, 7, epoch=1, revision=4)
    opened = records.encode_source(source)
    source.sealed = source.keyed = True
    sealed = records.encode_source(source)
    for facts in ((opened, sealed), (sealed, opened)):
        found = replayed(*facts).sources.by_number[2 << 24]
        assert (found.sealed, found.keyed) == (True, True)


def test_a_chains_part_of_a_snapshot_and_its_grants_come_back() -> None:
    state = SnapshotState(50, {})
    memory = replayed(
        records.encode_snapshot(state),
        records.encode_grant(records.GrantFact(5, 100, 7, 11)),
        records.encode_grant(records.GrantFact(5, 100, 8, 12)),
    )
    assert list(memory.ledgers.snapshots) == [50]
    assert memory.grants[5, 100].holder == 12


def test_a_sealed_source_gives_way_to_another_one_in_the_same_log() -> None:
    table = SourceTable(10**12, 3)
    first, opened = table.open_for(7, 1, 4)
    assert opened
    table.seal(first)
    assert table.open_of(7) is None
    second, opened = table.open_for(7, 2, 5)
    assert (opened, second.number, second.epoch) == (True, first.number + 1, 2)
    table.forget(first)
    assert first.number in table.gone
    assert table.of_topic(7) == [second]


def test_only_so_many_batches_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dedup, "BATCHES_MAX", 3)
    table = SourceTable(10**12, 3)
    source, _ = table.open_for(7)
    source.end = 10
    late = RecentBatches.body([BatchFact(1, 0, source.number, 9, 2)], 1)  # its messages were not persisted
    sure = RecentBatches.body([BatchFact(1, 1, source.number, 0, 2)], 1)
    recent = RecentBatches(FactLog(lambda *entry: None), table)
    recent.recover([late, sure], {RecentBatches.head + late})
    assert recent.known(1, 0) is None
    assert recent.known(1, 1) is not None
    for batch in (2, 3, 4):
        recent.note(BatchFact(1, batch, source.number, batch, 1))
    assert recent.known(1, 1) is None
    assert recent.known(1, 4) is not None
    assert len(list(recent.kept())) == 3


def test_a_batch_that_was_noted_again_outlives_its_first_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dedup, "BATCHES_MAX", 3)
    recent = RecentBatches(FactLog(lambda *entry: None), SourceTable(10**12, 3))
    for batch, first_offset in ((1, 0), (2, 1), (1, 2), (3, 3), (4, 4)):
        recent.note(BatchFact(1, batch, 5, first_offset, 1))
    assert recent.known(1, 1) == BatchFact(1, 1, 5, 2, 1)
    assert recent.known(1, 2) is None
    assert recent.known(1, 3) is not None

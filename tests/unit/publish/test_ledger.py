"""Ledgers and their records: generations, round trips, idempotent replay."""

from hypothesis import given
from hypothesis import strategies as st

from syncpoint.kernel.acks import AckSet, encode_runs
from syncpoint.publish import records
from syncpoint.publish.ledger import Ledger, SnapshotState
from syncpoint.publish.source import Source

offsets = st.sets(st.integers(0, 200_000), max_size=30)


def acked(values: set[int]) -> AckSet:
    found = AckSet()
    for offset in values:
        found.add(offset, offset + 1)
    return found


def test_the_sync_point_hides_what_came_before() -> None:
    ledger = Ledger(1)
    ledger.begin_at([(5, 100), (6, 0)])
    assert ledger.first_gap(5, 0) == 100
    assert ledger.first_gap(6, 0) == 0
    assert ledger.covers(5, 0, 100)
    assert not ledger.covers(6, 0, 1)


def test_only_a_higher_generation_replaces() -> None:
    ledger = Ledger(1, generation=3)
    assert not ledger.replace(3, {7: acked({1})})
    assert ledger.replace(4, {7: acked({1})})
    assert ledger.covers(7, 1, 2)


@given(st.dictionaries(st.integers(0, 2**60), offsets, max_size=4), st.integers(0, 2**30))
def test_a_ledger_comes_back_as_it_was_written(sets: dict[int, set[int]], generation: int) -> None:
    ledger = Ledger(9, generation, {source: acked(values) for source, values in sets.items()})
    again = records.decode_ledger(records.encode_ledger(ledger))
    assert (again.subscription, again.generation) == (9, generation)
    assert {s: list(a.runs()) for s, a in again.acks.items()} == {s: list(a.runs()) for s, a in ledger.acks.items()}


@given(st.dictionaries(st.integers(0, 2**60), offsets, max_size=4))
def test_a_snapshot_comes_back_as_it_was_written(sets: dict[int, set[int]]) -> None:
    state = SnapshotState(4, {source: acked(values) for source, values in sets.items()})
    again = records.decode_snapshot(4, records.encode_snapshot(state))
    assert {s: list(a.runs()) for s, a in again.acks.items()} == {s: list(a.runs()) for s, a in state.acks.items()}


@given(st.lists(st.tuples(st.integers(1, 2**50), st.integers(0, 2**31), st.integers(0, 2**63), offsets), max_size=5))
def test_acknowledgements_come_back_as_they_were_written(given_acks: list[tuple[int, int, int, set[int]]]) -> None:
    acks = [
        records.Acks(sub, gen, source, encode_runs([(o, 1) for o in sorted(v)])) for sub, gen, source, v in given_acks
    ]
    assert list(records.decode_acks(b"".join(records.encode_acks(acks)))) == acks


def test_a_source_comes_back_as_it_was_written() -> None:
    again = records.decode_source(records.encode_source(Source(3 << 24 | 5, 77)))
    assert (again.number, again.topic) == (3 << 24 | 5, 77)

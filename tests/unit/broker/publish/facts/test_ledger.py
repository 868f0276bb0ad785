"""Ledgers and their records: generations, round trips, idempotent replay."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from syncpoint.base.kernel.acks import AckSet, encode_runs
from syncpoint.broker.publish.facts import records
from syncpoint.broker.publish.facts.ledger import Ledger, SnapshotState, begun
from syncpoint.broker.publish.facts.ledgers import AckVerdict, Ledgers
from syncpoint.broker.publish.facts.source import Source

offsets = st.sets(st.integers(0, 200_000), max_size=30)


def acked(values: set[int]) -> AckSet:
    found = AckSet()
    for offset in values:
        found.add(offset, offset + 1)
    return found


def shown(sets: dict[int, AckSet]) -> dict[int, list[tuple[int, int]]]:
    return {source: list(acks.runs()) for source, acks in sets.items()}


def test_the_sync_point_hides_what_came_before() -> None:
    ledger = begun(1, 0, {5: 100, 6: 0})
    assert ledger.first_gap(5, 0) == 100
    assert ledger.first_gap(6, 0) == 0
    assert ledger.covers(5, 0, 100)
    assert not ledger.covers(6, 0, 1)


def test_only_a_higher_generation_replaces() -> None:
    ledger = Ledger(1, 3, {7: acked({4})}, renewed_ns=5)
    ledger.merge(Ledger(1, 3, {7: acked({1})}, renewed_ns=2))
    assert (shown(ledger.acks), ledger.renewed_ns) == ({7: [(1, 1), (4, 1)]}, 5)
    ledger.merge(Ledger(1, 2, {7: acked({9})}, renewed_ns=9))
    assert (shown(ledger.acks), ledger.renewed_ns) == ({7: [(1, 1), (4, 1)]}, 5)
    ledger.merge(Ledger(1, 4, {8: acked({1})}))
    assert (shown(ledger.acks), ledger.renewed_ns) == ({8: [(1, 1)]}, 0)


states = st.builds(
    lambda generation, values, renewed_ns: Ledger(9, generation, {5: acked(values)}, {5: 3}, renewed_ns),
    st.integers(0, 3), offsets, st.integers(0, 9),
)  # fmt: skip


@given(st.lists(states, min_size=1, max_size=5), st.randoms())
def test_states_may_come_in_any_order_and_twice(found: list[Ledger], random: Random) -> None:
    """A checkpoint is taken while facts are written: recovery finds both."""
    again = [*found, *random.sample(found, random.randrange(len(found)))]
    random.shuffle(again)
    one, other = Ledgers(), Ledgers()
    for state in found:
        one.take(records.decode_ledger(records.encode_ledger(state)).ledger)
    for state in again:
        other.take(records.decode_ledger(records.encode_ledger(state)).ledger)
    assert (one[9].generation, one[9].renewed_ns, one[9].start) == (
        other[9].generation, other[9].renewed_ns, other[9].start,
    )  # fmt: skip
    assert shown(one[9].acks) == shown(other[9].acks)


def test_an_acknowledgement_is_measured_by_its_generation() -> None:
    ledgers = Ledgers()
    runs = encode_runs([(0, 1)])
    assert ledgers.acknowledge(1, 0, 7, runs) is AckVerdict.NO_LEDGER
    ledgers.take(Ledger(1, 2))
    assert ledgers.acknowledge(1, 1, 7, runs) is AckVerdict.OLD
    assert ledgers.acknowledge(1, 3, 7, runs) is AckVerdict.NEWER
    assert not ledgers[1].covers(7, 0, 1)
    assert ledgers.acknowledge(1, 2, 7, runs) is AckVerdict.COUNTS
    assert ledgers[1].covers(7, 0, 1)


@given(
    st.dictionaries(st.integers(0, 2**60), offsets, max_size=4),
    st.dictionaries(st.integers(0, 2**60), st.integers(0, 2**60), max_size=4),
    st.integers(0, 2**30),
    st.integers(0, 2**63),
)
def test_a_ledger_comes_back_as_it_was_written(
    sets: dict[int, set[int]], start: dict[int, int], generation: int, renewed_ns: int
) -> None:
    acks = {source: acked(values) for source, values in sets.items()}
    ledger = Ledger(9, generation, acks, start, renewed_ns)
    again, revision = records.decode_ledger(records.encode_ledger(ledger, 77))
    assert (again.subscription, again.generation, again.start, revision) == (9, generation, start, 77)
    assert (shown(again.acks), again.renewed_ns) == (shown(ledger.acks), renewed_ns)


@given(st.dictionaries(st.integers(0, 2**60), offsets, max_size=4))
def test_a_snapshot_comes_back_as_it_was_written(sets: dict[int, set[int]]) -> None:
    state = SnapshotState(4, {source: acked(values) for source, values in sets.items()})
    again, revision = records.decode_snapshot(records.encode_snapshot(state, 12))
    assert (again.snapshot, shown(again.acks), revision) == (4, shown(state.acks), 12)


@given(st.lists(st.tuples(st.integers(1, 2**50), st.integers(0, 2**31), st.integers(0, 2**63), offsets), max_size=5))
def test_acknowledgements_come_back_as_they_were_written(given_acks: list[tuple[int, int, int, set[int]]]) -> None:
    acks = [
        records.Acks(sub, gen, source, encode_runs([(o, 1) for o in sorted(v)])) for sub, gen, source, v in given_acks
    ]
    assert list(records.decode_acks(b"".join(records.encode_acks(acks)))) == acks


def test_a_source_comes_back_as_it_was_written() -> None:
    again = records.decode_source(records.encode_source(Source(3 << 24 | 5, 77)))
    assert (again.number, again.topic) == (3 << 24 | 5, 77)

"""AckSet against a big integer, bit by bit; runs against their definition; memory."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from syncpoint.base import kernel
from syncpoint.base.kernel.acks import OFFSET_END, AckSet, decode_runs, encode_runs
from syncpoint.base.kernel.errors import Malformed

CHUNK = 65_536
TOP = 6 * CHUNK


def near_edges() -> st.SearchStrategy[int]:
    """Offsets that like the edges of chunks, words and bytes."""
    edges = st.builds(lambda chunk, by: chunk * CHUNK + by, st.integers(0, 5), st.integers(-70, 70))
    return st.one_of(st.integers(0, 200), edges, st.integers(0, TOP)).map(lambda o: min(max(o, 0), TOP))


def ranges() -> st.SearchStrategy[tuple[int, int]]:
    short = st.tuples(near_edges(), st.integers(0, 300)).map(lambda pair: (pair[0], min(pair[0] + pair[1], TOP)))
    wide = st.tuples(near_edges(), near_edges()).map(lambda pair: (min(pair), max(pair)))
    return st.one_of(short, wide)


def bits(begin: int, end: int) -> int:
    return ((1 << (end - begin)) - 1) << begin


def runs_of(model: int) -> list[tuple[int, int]]:
    found = []
    at = 0
    while model >> at:
        at += ((model >> at) & -(model >> at)).bit_length() - 1
        rest = ~(model >> at)
        length = (rest & -rest).bit_length() - 1
        found.append((at, length))
        at += length
    return found


class AckSetMachine(RuleBasedStateMachine):
    """The set under test beside a number whose bit o is offset o."""

    @initialize()
    def begin(self) -> None:
        self.real = AckSet()
        self.model = 0

    @rule(where=ranges())
    def add(self, where: tuple[int, int]) -> None:
        wanted = bits(*where)
        assert self.real.add(*where) == (wanted & ~self.model).bit_count()
        self.model |= wanted

    @rule(where=st.lists(ranges().filter(lambda pair: pair[0] < pair[1]), max_size=6))
    def add_runs(self, where: list[tuple[int, int]]) -> None:
        wanted = 0
        for begin, end in where:
            wanted |= bits(begin, end)
        newly = self.real.add_runs(encode_runs([(begin, end - begin) for begin, end in where]))
        assert newly == (wanted & ~self.model).bit_count()
        self.model |= wanted

    @rule(number=st.integers(0, 5), less=st.sampled_from([0, 0, 0, 1]))
    def add_a_chunk(self, number: int, less: int) -> None:
        self.add((number * CHUNK, (number + 1) * CHUNK - less))

    @rule(begin=near_edges(), step=st.integers(2, 5), times=st.integers(1, 300))
    def add_every_nth(self, begin: int, step: int, times: int) -> None:
        for offset in range(begin, min(begin + step * times, TOP), step):
            self.real.add(offset, offset + 1)
            self.model |= 1 << offset

    @rule(where=ranges())
    def remove(self, where: tuple[int, int]) -> None:
        wanted = bits(*where)
        assert self.real.remove(*where) == (wanted & self.model).bit_count()
        self.model &= ~wanted

    @rule(where=st.lists(ranges(), max_size=4))
    def union(self, where: list[tuple[int, int]]) -> None:
        other, wanted = AckSet(), 0
        for begin, end in where:
            other.add(begin, end)
            wanted |= bits(begin, end)
        kept = other.encode()
        assert self.real.union(other) == (wanted & ~self.model).bit_count()
        assert other.encode() == kept
        self.model |= wanted

    @rule()
    def go_on_with_a_copy(self) -> None:
        twin = self.real.copy()
        before = self.real.encode()
        twin.add(3, 9)
        twin.remove(100, 70_000)
        assert self.real.encode() == before
        self.real = self.real.copy()

    @rule()
    def go_on_with_the_decoded(self) -> None:
        again = AckSet.decode(self.real.encode())
        assert again == self.real
        assert again.encode() == self.real.encode()
        self.real = again

    @rule(where=ranges())
    def ask(self, where: tuple[int, int]) -> None:
        begin, end = where
        part = (self.model & bits(begin, end)) >> begin
        assert self.real.count(begin, end) == part.bit_count()
        assert self.real.covers(begin, end) == (part.bit_count() == end - begin)
        assert self.real.contains(begin) == bool(self.model >> begin & 1)
        gap = ~(self.model >> begin)
        assert self.real.first_gap(begin) == begin + (gap & -gap).bit_length() - 1
        mask = self.real.mask(begin, end)
        assert mask == (part.to_bytes((end - begin + 7) // 8, "little") if part else None)

    @rule(which=st.integers(0, 50), longer=st.sampled_from([0, 0, 1]))
    def ask_about_a_run(self, which: int, longer: int) -> None:
        runs = runs_of(self.model)
        if runs:
            begin, length = runs[which % len(runs)]
            self.ask((begin, begin + length + longer))

    @rule()
    def equal_sets_have_equal_encodings(self) -> None:
        other = AckSet()
        for begin, length in reversed(runs_of(self.model)):
            other.add(begin, begin + length)
        assert other.encode() == self.real.encode()

    @invariant()
    def same_runs(self) -> None:
        assert len(self.real) == self.model.bit_count()
        if self.model.bit_count() < 2_000 or self.model & (self.model + 1) == 0:
            assert list(self.real.runs()) == runs_of(self.model)


AckSetMachine.TestCase.settings = settings(max_examples=40 if kernel.COMPILED else 20, stateful_step_count=20)
TestAckSet = AckSetMachine.TestCase


@given(st.lists(st.tuples(st.integers(0, 2**61), st.integers(1, 2**60)), max_size=20))
def test_runs_round_trip(runs: list[tuple[int, int]]) -> None:
    assert decode_runs(encode_runs(runs)) == runs


def test_runs_follow_their_definition() -> None:
    assert encode_runs([(5, 3), (8, 1), (0, 2)]) == bytes([10, 3, 0, 1, 17, 2])
    assert encode_runs([(0, 1)]) == bytes([0, 1])
    assert encode_runs([]) == b""


@pytest.mark.parametrize("runs", [[(0, 0)], [(-1, 5)], [(OFFSET_END, 1)], [(OFFSET_END - 1, 2)]])
def test_runs_out_of_range_are_not_written(runs: list[tuple[int, int]]) -> None:
    with pytest.raises(ValueError, match="no run"):
        encode_runs(runs)


@given(st.binary(max_size=40))
def test_any_bytes_are_runs_or_malformed(data: bytes) -> None:
    held = AckSet()
    held.add(7, 9)
    before = held.encode()
    try:
        runs = decode_runs(data)
    except Malformed:
        with pytest.raises(Malformed):
            held.add_runs(data)
        assert held.encode() == before
        return
    assert all(begin >= 0 and length >= 1 and begin + length <= OFFSET_END for begin, length in runs)
    wanted = AckSet()
    wanted.add(7, 9)
    newly = sum(wanted.add(begin, begin + length) for begin, length in runs)
    assert held.add_runs(data) == newly
    assert held == wanted


@given(st.binary(max_size=60).map(lambda data: b"\x01" + data))
def test_any_bytes_are_a_set_or_malformed(data: bytes) -> None:
    try:
        held = AckSet.decode(data)
    except Malformed:
        return
    assert AckSet.decode(held.encode()) == held
    assert len(held) == held.count(0, OFFSET_END)


def test_huge_ranges_cost_nothing() -> None:
    held = AckSet()
    assert held.add(0, OFFSET_END) == OFFSET_END
    assert held.add(5, 10) == 0
    assert held.first_gap(0) == OFFSET_END
    assert held.remove(1, OFFSET_END - 1) == OFFSET_END - 2
    assert list(held.runs()) == [(0, 1), (OFFSET_END - 1, 1)]
    assert len(held.encode()) < 40
    assert AckSet.decode(held.encode()) == held


@pytest.mark.parametrize(("begin", "end"), [(-1, 0), (5, 4), (0, OFFSET_END + 1)])
def test_ranges_out_of_range(begin: int, end: int) -> None:
    held = AckSet()
    for call in (held.add, held.remove, held.count, held.covers, held.mask):
        with pytest.raises(ValueError, match="no range"):
            call(begin, end)


def test_equality_and_length() -> None:
    one, other = AckSet(), AckSet()
    assert one == other
    assert not one
    one.add(1, 4)
    other.add(1, 2)
    assert one != other
    other.add(2, 4)
    assert one == other
    assert one != "something else"
    assert len(one) == 3
    assert "3 offsets" in repr(one)


def test_full_chunks_side_by_side_are_one_range() -> None:
    wanted = AckSet()
    wanted.add(0, 3 * CHUNK)
    for order in ((0, 1, 2), (2, 1, 0), (0, 2, 1)):
        held = AckSet()
        for number in order:
            held.add(number * CHUNK, (number + 1) * CHUNK - 1)
            held.add((number + 1) * CHUNK - 1, (number + 1) * CHUNK)
        assert held.encode() == wanted.encode()
        assert "0 bitmaps" in repr(held)


def test_every_second_of_a_million_takes_a_bit_each_and_in_order_next_to_nothing() -> None:
    """10 million with every second one held are 1.25 MB of bitmaps; here a tenth of it."""
    runs = encode_runs([(offset, 1) for offset in range(0, 1_000_000, 2)])
    if not kernel.COMPILED:
        runs = encode_runs([(offset, 1) for offset in range(0, 100_000, 2)])
    count = len(decode_runs(runs))
    tracemalloc.start()
    try:
        held = AckSet()
        assert held.add_runs(runs) == count
        sparse, _ = tracemalloc.get_traced_memory()
        assert held.add(0, 2 * count) == count
        full, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert sparse < 2 * count / 8 * 1.1 + 10_000
    assert full < 15_000


def test_a_set_whose_runs_are_just_too_long_for_their_bitmap() -> None:
    for runs in range(250, 350):
        for step in (2, 3, 4, 5):
            held = AckSet()
            held.add_runs(encode_runs([(46 + i * step, 1) for i in range(runs)]))
            assert AckSet.decode(held.encode()) == held


def test_encoding_is_never_much_larger_than_the_bitmap() -> None:
    held = AckSet()
    held.add_runs(encode_runs([(offset, 1) for offset in range(0, 200_000, 2)]))
    assert len(held.encode()) < 200_000 / 8 + 20

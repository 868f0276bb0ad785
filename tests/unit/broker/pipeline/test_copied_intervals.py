"""The map of offsets is exact, small where it can be, and forgotten with the messages."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from syncpoint.broker.pipeline import facts, offset_runs
from syncpoint.broker.pipeline.copied_intervals import Copies, Mapped, OffsetBlock, copied_from, copied_to
from tests.kit.epoch_book import as_runs

offset_sets = st.sets(st.integers(0, 400), min_size=1, max_size=60).map(sorted)


@given(offset_sets, st.integers(0, 420), st.integers(0, 70))
def test_runs_are_their_numbers(offsets: list[int], limit: int, skip: int) -> None:
    data = as_runs(offsets)
    assert [n for begin, length in offset_runs.decode(data) for n in range(begin, begin + length)] == offsets
    assert offset_runs.below(data, limit) == sum(one < limit for one in offsets)
    assert offset_runs.bounds(data) == (offsets[0], offsets[-1] + 1)
    assert offset_runs.behind(data, skip) == as_runs(offsets[skip:])


def test_no_numbers() -> None:
    assert list(offset_runs.decode(b"")) == []
    assert (offset_runs.below(b"", 9), offset_runs.bounds(b""), offset_runs.behind(b"", 0)) == (0, (0, 0), b"")


def block(first: int, offsets: list[int], source: int = 2, link: str = "l") -> OffsetBlock:
    return OffsetBlock(link, 5, source, "t", first, len(offsets), as_runs(offsets))


def test_a_whole_copy_is_one_block() -> None:
    copies = Copies()
    for at in range(0, 10_000, 100):
        copies.add(block(at + 7, list(range(at, at + 100))))
    assert len(copies) == 1
    assert copies.find("l", 5, 50, 9_000, 10) == [Mapped(50, "t", 2, 57, 8_950)]
    assert copies.find("l", 6, 0, 9_000, 10) == copies.find("m", 5, 0, 9_000, 10) == []


@given(st.lists(offset_sets, min_size=1, max_size=6), st.randoms(use_true_random=False), st.integers(0, 200))
def test_the_map_against_a_dictionary(pieces: list[list[int]], chance, first_stored: int) -> None:  # type: ignore[no-untyped-def]
    copies, wanted, at = Copies(), {}, 0
    blocks = []
    for number, offsets in enumerate(pieces):
        shifted = [offset + 500 * number for offset in offsets]
        blocks.append(block(at, shifted))
        wanted.update({offset: at + index for index, offset in enumerate(shifted)})
        at += len(offsets) + chance.randrange(2)  # sometimes others publish in between
    for one in [*blocks, *chance.sample(blocks, len(blocks))]:
        copies.add(one)

    def found() -> dict[int, int]:
        mapped = copies.find("l", 5, 0, 10_000, 10_000)
        return {one.begin + index: one.first + index for one in mapped for index in range(one.count)}

    assert found() == wanted
    low, high = sorted((chance.randrange(3000), chance.randrange(3000)))
    part = copies.find("l", 5, low, high, 10_000)
    assert sum(one.count for one in part) == sum(low <= offset < high for offset in wanted)
    for one in copies.blocks():
        assert facts.decode(facts.copied(one)) == one
    copies.prune(lambda source: None)
    assert found() == wanted
    copies.prune(lambda source: first_stored)
    assert found() == {offset: place for offset, place in wanted.items() if place >= first_stored}
    copies.forget(2)
    assert not found()


def test_a_limit_cuts_the_answer() -> None:
    copies = Copies()
    copies.add(block(0, list(range(0, 40, 2))))
    assert [one.begin for one in copies.find("l", 5, 0, 40, 3)] == [0, 2, 4]


@given(
    st.lists(offset_sets, min_size=1, max_size=5),
    st.sets(st.integers(0, 3000), max_size=80),
    st.randoms(use_true_random=False),
)
def test_sets_are_translated_both_ways(pieces: list[list[int]], chosen: set[int], chance) -> None:  # type: ignore[no-untyped-def]
    blocks, pairs, at = [], {}, 0
    for number, offsets in enumerate(pieces):
        shifted = [offset + 500 * number for offset in offsets]
        blocks.append(block(at, shifted))
        pairs.update({at + index: offset for index, offset in enumerate(shifted)})
        at += len(offsets) + chance.randrange(3)
    runs = list(offset_runs.decode(as_runs(sorted(chosen))))
    there = [(source, first + index) for source, first, length in copied_from(runs, blocks) for index in range(length)]
    assert sorted(there) == [(5, offset) for here, offset in sorted(pairs.items()) if here in chosen]
    here = {first + index for one in blocks for first, length in copied_to(runs, one) for index in range(length)}
    assert here == {place for place, offset in pairs.items() if offset in chosen}


def test_what_leaves_is_reported_before_it_is_forgotten() -> None:
    copies, left = Copies(), list[OffsetBlock]()
    copies.on_leaving = left.append
    copies.add(block(10, [1, 2, 5, 6]))
    copies.add(block(20, [9, 10], link="m"))
    copies.prune(lambda source: 12)
    assert left == [block(10, [1, 2])]
    copies.prune(lambda source: 12)
    assert len(left) == 1
    copies.prune(lambda source: 30)
    assert left[1:] == [block(12, [5, 6]), block(20, [9, 10], link="m")]
    assert len(copies) == 0


def test_blocks_are_found_by_source_and_by_link() -> None:
    copies = Copies()
    copies.add(block(0, [10, 11]))
    copies.add(block(5, [20], link="m"))
    assert copies.of_source(2, "l") == [block(0, [10, 11])]
    assert copies.of_link("l", 5, 0, 11) == [block(0, [10, 11])]
    assert copies.of_link("l", 5, 12, 99) == copies.of_link("l", 6, 0, 99) == []

"""What a backfill has to do, from what servers say: nothing that is there, nothing that the flow will do."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from syncpoint.base.model.spans import OffsetRange
from syncpoint.programs.federation.backfill import BackfillPlan, merged, missing


def link(committed: list[tuple[int, int, int]], base: list[tuple[int, int]], chain: int = 0) -> Any:
    return SimpleNamespace(
        committed=[SimpleNamespace(source=s, chain=chain, begin=b, end=e) for s, b, e in committed],
        base=[SimpleNamespace(source=s, begin=b) for s, b in base],
    )


def positions(*sources: int, chain: int = 0) -> Any:
    return SimpleNamespace(sources=[SimpleNamespace(source=one, chain=chain) for one in sources])


def test_what_lies_before_the_flow_is_missing_and_what_comes_is_the_flow_s() -> None:
    known = link([(3, 40, 90)], [(3, 40)])
    ranges, present = missing(known, positions(3), [OffsetRange(3, 0, 200)], {3: [OffsetRange(3, 40, 90)]})
    assert (ranges, present) == ([OffsetRange(3, 0, 40)], [])
    assert BackfillPlan(tuple(ranges), tuple(present), "l").messages == 40


def test_what_is_decided_and_not_in_the_map_yet_counts_as_copied() -> None:
    known = link([(3, 40, 90)], [(3, 40)])
    for mapped in ([OffsetRange(3, 40, 60)], []):
        ranges, present = missing(known, positions(3), [OffsetRange(3, 0, 200)], {3: mapped})
        assert (ranges, present) == ([OffsetRange(3, 0, 40)], [])


def test_what_was_skipped_or_left_out_between_is_looked_at_again() -> None:
    known = link([(3, 60, 90)], [(3, 40)])  # begun at 40; a gap before 60 was accepted
    ranges, present = missing(
        known, positions(3), [OffsetRange(3, 0, 90)], {3: [OffsetRange(3, 40, 50), OffsetRange(3, 60, 80)]}
    )
    assert (ranges, present) == ([OffsetRange(3, 0, 60)], [OffsetRange(3, 40, 50)])


def test_a_hole_alone_is_looked_at_too() -> None:
    known = link([(3, 0, 200)], [(3, 0)])
    ranges, present = missing(known, positions(3), [OffsetRange(3, 50, 100)], {3: [OffsetRange(3, 100, 200)]})
    assert (ranges, present) == ([OffsetRange(3, 50, 100)], [])


def test_older_sources_are_what_the_map_says_and_newer_ones_the_flow_s() -> None:
    known = link([(7, 0, 20)], [(7, 0)])
    wanted = [OffsetRange(3, 0, 50), OffsetRange(7, 0, 30), OffsetRange(9, 0, 5)]
    ranges, present = missing(known, positions(3, 7, 9), wanted, {3: [OffsetRange(3, 10, 50)]})
    assert ranges == [OffsetRange(3, 0, 10)]
    assert present == []


def test_a_chain_that_the_flow_has_not_met_is_the_flow_s() -> None:
    ranges, _ = missing(link([(7, 0, 20)], [(7, 0)]), positions(2, chain=5), [OffsetRange(2, 0, 9)], {})
    assert ranges == []


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60))))
def test_merged_spans_have_the_same_offsets_and_no_overlap(pairs: list[tuple[int, int]]) -> None:
    found = merged(OffsetRange(1, begin, end) for begin, end in pairs)
    assert {o for one in found for o in range(one.begin, one.end)} == {o for b, e in pairs for o in range(b, e)}
    assert all(a.end < b.begin for a, b in pairwise(found))

"""Links: overlap is dropped, gaps are refused, and a link stays small over any number of restarts of its source."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncpoint.base.model.errors import FailedPrecondition, InvalidArgument, NotFound, OutOfRange
from syncpoint.broker.pipeline import facts, links
from syncpoint.broker.pipeline.epoch_commits import CommitRequest, GapRefused
from syncpoint.broker.pipeline.epochs import EpochState
from syncpoint.broker.pipeline.links import Interval, LinkState, PlannedRange
from syncpoint.broker.pipeline.records import QueryRun


def at(end: int, source: int = 5, chain: int = 0) -> LinkState:
    return LinkState("l", "u/t-1", {source: Interval(chain, 0, 0, end)})


def committed(link: LinkState, *planned: PlannedRange) -> LinkState:
    assert links.gaps(link, planned) == ()
    links.advance(link, planned, ())
    return link


def test_the_first_epoch_sets_the_base_also_without_a_row() -> None:
    link = committed(LinkState("l", "t"), PlannedRange(5, 40, 40), PlannedRange(9, 7, 12, 1))
    assert link.intervals == {5: Interval(0, 40, 40, 40), 9: Interval(1, 7, 7, 12)}


@pytest.mark.parametrize(("begin", "end", "floor"), [(0, 10, 10), (4, 12, 10), (10, 20, 10), (2, 3, 10)])
def test_what_was_committed_is_below_the_floor(begin: int, end: int, floor: int) -> None:
    assert links.floor(at(10), PlannedRange(5, begin, end)) == floor
    assert links.gaps(at(10), [PlannedRange(5, begin, end)]) == ()
    assert committed(at(10), PlannedRange(5, begin, end)).intervals[5].end == max(10, end)


def test_a_plan_behind_the_interval_leaves_a_gap() -> None:
    assert links.gaps(at(10), [PlannedRange(5, 12, 20)]) == (PlannedRange(5, 10, 12),)
    assert links.gaps(at(10), [PlannedRange(5, 12, 12)]) == (PlannedRange(5, 10, 12),)


def test_a_later_source_of_a_chain_begins_at_its_first_offset() -> None:
    assert links.gaps(at(10), [PlannedRange(5, 10, 12), PlannedRange(6, 0, 3)]) == ()
    assert links.gaps(at(10), [PlannedRange(6, 2, 3)]) == (PlannedRange(6, 0, 2),)
    assert links.gaps(at(10), [PlannedRange(6, 2, 3, 1)]) == ()  # of a chain the link has not met


def test_an_earlier_source_of_a_chain_is_finished() -> None:
    link = at(10)
    assert links.floor(link, PlannedRange(4, 0, 100)) == 100
    assert links.gaps(link, [PlannedRange(4, 50, 100)]) == ()
    assert 4 not in committed(link, PlannedRange(4, 50, 100)).intervals


def test_a_source_leaves_once_an_epoch_names_its_successor_and_not_it() -> None:
    link = committed(at(10), PlannedRange(5, 10, 12), PlannedRange(6, 0, 3))
    assert set(link.intervals) == {5, 6}
    committed(link, PlannedRange(6, 3, 4))
    assert set(link.intervals) == {6}
    assert link.finished == {0: 5}
    assert links.floor(link, PlannedRange(5, 0, 12)) == 12  # and what was in it stays committed
    assert links.is_done(link, [PlannedRange(5, 0, 12), PlannedRange(6, 0, 4)])
    assert not links.is_done(link, [PlannedRange(5, 0, 12), PlannedRange(6, 0, 5)])


def test_two_hundred_restarts_leave_nothing_behind() -> None:
    link = LinkState("l", "t")
    for source in range(5, 205):
        committed(link, PlannedRange(source, 0, 3))
        committed(link, PlannedRange(source, 3, 10), PlannedRange(source + 1, 0, 0))
    assert len(link.intervals) <= 2
    assert len(facts.link(link)) < 200


def test_chains_do_not_meet() -> None:
    link = committed(LinkState("l", "t"), PlannedRange(5, 0, 10), PlannedRange(4, 3, 9, 1))
    committed(link, PlannedRange(7, 0, 1), PlannedRange(4, 9, 9, 1))
    assert set(link.intervals) == {7, 4}
    assert links.gaps(link, [PlannedRange(6, 0, 2, 1)]) == ()
    assert links.floor(link, PlannedRange(6, 0, 2, 1)) == 0


def test_plans_without_sense() -> None:
    with pytest.raises(InvalidArgument, match=r"planned\[0\]"):
        links.check_plan(None, "t", [PlannedRange(5, 4, 3)])
    with pytest.raises(InvalidArgument, match=r"planned\[1\].source"):
        links.check_plan(None, "t", [PlannedRange(5, 0, 3), PlannedRange(5, 3, 4)])
    with pytest.raises(FailedPrecondition, match="deleted and created again"):
        links.check_plan(at(1), "u/t-2", [])


RUN = QueryRun("q", "r")


def book_at(end: int) -> EpochState:
    state = EpochState()
    state.on_run(RUN, 0)
    state.links["l"] = at(end)
    return state


def commit(state: EpochState, epoch: int, *planned: PlannedRange, accept: bool = False) -> object:
    outcome = state.decide(CommitRequest(RUN, epoch, (), "l", "u/t-1", planned, accept), 77, lambda one: True)
    if hasattr(outcome, "decision"):
        state.done(outcome.decision, b"")
    return outcome


def test_a_refused_gap_is_remembered_and_accepted_by_hand() -> None:
    state = book_at(10)
    outcome = commit(state, 0, PlannedRange(5, 15, 20))
    assert isinstance(outcome, GapRefused)
    assert isinstance(outcome.error, OutOfRange)
    assert "source 5 [10, 15)" in outcome.error.message
    link = state.links["l"]
    assert (link.refused, link.gaps_refused, link.intervals[5].end) == ((PlannedRange(5, 10, 15),), 1, 10)
    state.accept_gap("l")
    assert link.skipped == [PlannedRange(5, 10, 15)]
    assert link.intervals[5] == Interval(0, 0, 15, 15)
    assert not isinstance(commit(state, 0, PlannedRange(5, 15, 20)), GapRefused)
    assert state.links["l"].intervals[5].end == 20
    with pytest.raises(FailedPrecondition, match="no gap"):
        state.accept_gap("l")
    with pytest.raises(NotFound, match="Link not found"):
        state.accept_gap("m")


def test_gaps_may_be_accepted_with_the_epoch_and_are_counted_as_one() -> None:
    state = book_at(10)
    commit(state, 0, PlannedRange(5, 15, 20), accept=True)
    link = state.links["l"]
    assert (link.skipped, link.intervals[5].end, link.epochs) == ([PlannedRange(5, 10, 15)], 20, 1)
    commit(state, 1, PlannedRange(6, 4, 9), accept=True)
    assert state.links["l"].skipped == [PlannedRange(5, 10, 15), PlannedRange(6, 0, 4)]
    assert state.links["l"].intervals[6] == Interval(0, 4, 4, 9)


def test_a_commit_clears_what_was_refused() -> None:
    state = book_at(10)
    commit(state, 0, PlannedRange(5, 15, 20))
    commit(state, 0, PlannedRange(5, 10, 20))
    assert state.links["l"].refused == ()
    with pytest.raises(FailedPrecondition):
        state.accept_gap("l")


def test_an_old_epoch_with_new_ranges_is_no_repetition() -> None:
    """After a rollback the plan is another one: numbers do not say what it holds."""
    state = book_at(0)
    for epoch in range(3):
        commit(state, epoch, PlannedRange(5, 10 * epoch, 10 * epoch + 10))
    commit(state, 1, PlannedRange(5, 10, 45))
    assert state.links["l"].intervals[5].end == 45


ranges = st.builds(
    lambda source, begin, size: PlannedRange(source, begin, begin + size),
    st.integers(1, 4),
    st.integers(0, 20),
    st.integers(0, 9),
)


@given(st.lists(ranges, max_size=30))
def test_intervals_against_a_set_of_offsets(plans: list[PlannedRange]) -> None:
    """One source at a time, any ranges: an accepted plan adds what is at or above the floor, and never a gap."""
    link, held = LinkState("l", "t"), dict[int, set[int]]()
    for one in plans:
        if links.gaps(link, [one]):
            continue
        new = set(range(max(one.begin, links.floor(link, one)), one.end))
        before = held.setdefault(one.source, set())
        assert not new & before
        assert not new or not any(source > one.source for source in held if held[source])
        before |= new
        links.advance(link, [one], ())
        if before:
            assert before == set(range(min(before), max(before) + 1))


@given(st.lists(ranges, max_size=8), st.lists(ranges, max_size=3), st.integers(0, 99))
def test_links_survive_their_stored_form(plans: list[PlannedRange], gaps: list[PlannedRange], number: int) -> None:
    link = LinkState("l", "t", rows=number, bytes=7, epochs=1, duplicates=2, gaps_refused=3, committed_ns=4)
    for one in plans:
        links.advance(link, [one], ())
    links.refuse(link, tuple(gaps))
    link.skipped = list(gaps)
    assert facts.decode(facts.link(link)) == link == link.copy()

"""One subscription at both ends of a flow: what is asked, what is brought where, and which of two seeks wins."""

from __future__ import annotations

from typing import Any

import pytest

from syncpoint.base.kernel.acks import encode_runs
from syncpoint.base.model.errors import NotFound, Unavailable
from syncpoint.programs.federation.acks.ack_pair import (
    MERGED_BYTES_MAX,
    AckPair,
    RoundResult,
    stamp_of,
)
from syncpoint.programs.federation.acks.snapshot_pair import AckCall, SiteEnd
from syncpoint.wire.protobuf.messages import pipeline


def report(generation: int = 0, stamp: tuple[int, str] = (0, ""), stamped: int = 0, **fields: Any) -> Any:
    made = pipeline.AckChangesResponse(generation=generation, stamped_generation=stamped, source_topic="u/1", **fields)
    made.stamp.number, made.stamp.site = stamp
    return made


def acked(source: int, runs: list[tuple[int, int]], count: int, prefix: int = 0) -> Any:
    return pipeline.AckedSource(source=source, count=count, prefix=prefix, runs=encode_runs(runs))


class Ends:
    """What both ends answer, and what they were asked."""

    def __init__(self) -> None:
        self.pair = AckPair("f", SiteEnd("a", "s-at-a"), SiteEnd("b", "s-at-b"))
        self.asked: list[AckCall] = []

    def round(self, there: Any, here: Any, merged: Any = None) -> RoundResult:
        self.asked = []
        going = self.pair.round()
        call = next(going)
        try:
            while True:
                self.asked.append(call)
                name = call.method.rpartition("/")[2]
                if name == "AckChanges":
                    answer = there if call.at_source else here
                else:
                    answer = merged or call.method.response()
                call = going.throw(answer) if isinstance(answer, Exception) else going.send(answer)
        except StopIteration as over:
            result: RoundResult = over.value
            return result

    @property
    def made(self) -> list[tuple[bool, str]]:
        return [(call.at_source, call.method.rpartition("/")[2]) for call in self.asked]


ASKED = [(True, "AckChanges"), (False, "AckChanges")]


def test_what_one_end_has_goes_to_the_other_and_is_not_asked_for_again() -> None:
    ends = Ends()
    merged = pipeline.MergeAcksResponse(newly=3)
    result = ends.round(report(sources=[acked(5, [(0, 3)], 3, 3)]), report(sources=[acked(5, [(7, 1)], 1)]), merged)
    assert (result.brought, result.again) == (6, False)
    assert ends.made == [*ASKED, (False, "MergeAcks"), (True, "MergeAcks")]
    to_b, to_a = (call.request for call in ends.asked[2:])
    assert (to_b.subscription, to_b.link, to_b.source_topic, to_b.sources[0].runs) == (
        "s-at-b",
        "f",
        "u/1",
        encode_runs([(0, 3)]),
    )
    assert (to_a.subscription, to_a.link, to_a.source_topic, to_a.sources[0].runs) == (
        "s-at-a",
        "",
        "u/1",
        encode_runs([(7, 1)]),
    )
    assert ends.round(report(), report()) == RoundResult()
    assert ends.made == ASKED
    known = [[(one.source, one.count, one.prefix) for one in call.request.known] for call in ends.asked]
    assert known == [[(5, 3, 3)], [(5, 1, 0)]]


def test_what_was_refused_is_asked_for_again() -> None:
    ends = Ends()
    ends.round(report(sources=[acked(5, [(0, 3)], 3)]), report(), pipeline.MergeAcksResponse(newly=1, refused=2))
    ends.round(report(), report())
    assert [list(call.request.known) for call in ends.asked] == [[], []]


@pytest.mark.parametrize(
    ("there", "here", "at_source", "stamp"),
    [
        (report(1), report(), False, (1, "a")),
        (report(), report(2), True, (2, "b")),
        (report(1), report(1), True, (1, "b")),  # nobody knew of the other's: the later name
        (report(3, (2, "b"), 2), report(2), False, (3, "a")),  # a has followed b's second, and was moved again
    ],
)
def test_the_later_seek_is_followed(there: Any, here: Any, at_source: bool, stamp: tuple[int, str]) -> None:
    ends = Ends()
    result = ends.round(there, here)
    assert (result.followed, result.again) == (True, True)
    assert ends.made == [*ASKED, (at_source, "FollowSeek")]
    asked = ends.asked[-1].request
    assert (asked.stamp.number, asked.stamp.site) == stamp
    assert asked.generation == (there if at_source else here).generation
    assert not asked.HasField("time")


def test_a_seek_to_a_time_goes_to_that_time() -> None:
    ends, there = Ends(), report(1)
    there.seek_time.seconds = 77
    ends.round(there, report())
    assert ends.asked[-1].request.time.seconds == 77


def test_in_a_new_generation_all_is_brought_again() -> None:
    ends = Ends()
    ends.round(report(sources=[acked(5, [(0, 3)], 3)]), report())
    moved = report(1, sources=[acked(5, [(0, 1)], 1)]), report(1, (1, "a"), 1)
    result = ends.round(*moved)
    assert (ends.made, result.again) == (ASKED, True)
    ends.round(*moved)
    assert [list(call.request.known) for call in ends.asked[:2]] == [[], []]
    assert [call.request.generation for call in ends.asked] == [1, 1, 1]


def test_a_link_that_has_copied_nothing_is_waited_for_and_other_failures_are_raised() -> None:
    ends = Ends()
    assert ends.round(report(), NotFound("f", "f has copied nothing yet")).waits == "f has copied nothing yet"
    assert ends.round(NotFound("s-at-a"), report()).waits == "Resource not found (resource=s-at-a)."
    with pytest.raises(Unavailable):
        ends.round(report(), Unavailable("away"))


def test_much_is_brought_in_parts() -> None:
    ends = Ends()
    size = MERGED_BYTES_MAX // 2 + 1
    large = [pipeline.AckedSource(source=number, count=1, runs=b"x" * size) for number in (1, 2, 3)]
    ends.round(report(sources=large, more=True), report())
    assert ends.made == [*ASKED, *[(False, "MergeAcks")] * 3]


def test_stamps_count_own_seeks_on_top_of_followed_ones() -> None:
    assert stamp_of(report(), "a") == (0, "")
    assert stamp_of(report(2), "a") == (2, "a")
    assert stamp_of(report(5, (3, "b"), 5), "a") == (3, "b")
    assert stamp_of(report(6, (3, "b"), 5), "a") == (4, "a")


@pytest.mark.parametrize(("there", "here", "at_source"), [((0, ""), (1, "b"), True), ((3, "a"), (2, "b"), False)])
def test_who_missed_the_newest_home_learns_of_it_before_anything_else(
    there: tuple[int, str], here: tuple[int, str], at_source: bool
) -> None:
    ends = Ends()
    newest = max(there, here)
    one = report(1, home=there[1], home_epoch=there[0], sources=[acked(5, [(0, 3)], 3)])
    result = ends.round(one, report(home=here[1], home_epoch=here[0]))
    assert (ends.made, result.again) == ([*ASKED, (at_source, "SetHome")], True)
    asked = ends.asked[-1].request
    assert (asked.site, asked.home, asked.epoch) == ("a" if at_source else "b", newest[1], newest[0])


def test_decisions_about_keys_are_brought_to_both_ends_before_anything_else() -> None:
    ends = Ends()

    def keys(*ranges: tuple[int, int, str, int]) -> list[Any]:
        return [pipeline.KeyRange(first=a, last=b, home=home, epoch=epoch) for a, b, home, epoch in ranges]

    there = report(home="(by key)", home_epoch=3, keys=keys((0, 9, "a", 3), (10, 255, "b", 1)))
    here = report(home="(by key)", home_epoch=2, keys=keys((0, 9, "b", 1), (10, 255, "b", 2)))
    result = ends.round(there, here)
    assert (result.again, ends.made) == (True, [*ASKED, (True, "SetHome"), (False, "SetHome")])
    newest = keys((0, 9, "a", 3), (10, 255, "b", 2))
    assert [list(call.request.keys) for call in ends.asked[2:]] == [newest, newest]
    assert [call.request.site for call in ends.asked[2:]] == ["a", "b"]
    result = ends.round(report(home="a", home_epoch=4), there)
    assert ends.made == [*ASKED, (False, "SetHome")]
    assert (ends.asked[2].request.home, ends.asked[2].request.epoch) == ("a", 4), "one home: all keys"
    assert ends.round(there, there).again is False

"""Snapshots of a subscription at both ends of a flow: in which order what is asked, and what is left alone."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from syncpoint.base.model.errors import AlreadyExists, FailedPrecondition, NotFound, SyncpointError, Unavailable
from syncpoint.catalog.metadata.snapshot_marks import WAS_DELETED
from syncpoint.programs.federation.acks.snapshot_pair import (
    AWAITED_ROUNDS,
    CHANGES_MAX,
    AckCall,
    OriginLinks,
    SiteEnd,
    SnapshotPair,
)
from syncpoint.wire.protobuf.messages import pipeline

HELD = pipeline.HeldSource(source=5, end=9)


def snapshot(short: str = "nightly", identity: str = "a/1", project: str = "pa", **fields: Any) -> Any:
    return pipeline.SiteSnapshot(snapshot=f"projects/{project}/snapshots/{short}", identity=identity, **fields)


class Ends:
    """What the ends have, what they were asked, and what they answer."""

    def __init__(self) -> None:
        ends = SiteEnd("a", "projects/pa/subscriptions/s"), SiteEnd("b", "projects/pb/subscriptions/s")
        self.pair = SnapshotPair(ends, [OriginLinks("", "ab"), OriginLinks("ba", "")])
        self.answers: dict[str, Callable[[Any], Any]] = {}
        self.state = 0
        self.asked: list[AckCall] = []

    def round(self, there: list[Any], here: list[Any], *, again: bool = False) -> bool:
        self.state += not again
        self.asked = []
        reports = [
            pipeline.AckChangesResponse(place=place, snapshots_at=self.state, snapshots=() if again else some)
            for place, some in (("a/11", there), ("b/11", here))
        ]
        going = self.pair.round(*reports)
        try:
            call = next(going)
            while True:
                self.asked.append(call)
                answer = self.answers.get(_name(call), _plain)(call.request)
                call = going.throw(answer) if isinstance(answer, SyncpointError) else going.send(answer)
        except StopIteration as over:
            ready: bool = over.value
            return ready

    @property
    def made(self) -> list[tuple[str, str]]:
        return [("a" if call.at_source else "b", _name(call)) for call in self.asked]


def _name(call: AckCall) -> str:
    if call.method.endswith("FollowSnapshot"):
        return pipeline.FollowSnapshotRequest.Step.Name(call.request.step)
    return call.method.rpartition("/")[2]


def _plain(request: Any) -> Any:
    match request.DESCRIPTOR.name:
        case "AckChangesRequest":
            return pipeline.AckChangesResponse(held=[HELD], source_topic=f"topic of {request.link or 'a'}")
        case "MergeAcksRequest":
            return pipeline.MergeAcksResponse()
    return pipeline.FollowSnapshotResponse(copy=77)


@pytest.fixture
def ends() -> Ends:
    return Ends()


def test_what_may_be_held_is_kept_before_anything_else_and_filled_in_by_origin(ends: Ends) -> None:
    taken = snapshot(labels={"by": "night"}, known_at=["c/11"])
    taken.expire_time.seconds = 5
    assert ends.round([taken], [])
    assert ends.made == [
        ("b", "BEGIN"), ("a", "AckChanges"), ("a", "AckChanges"), ("b", "MergeAcks"), ("b", "MergeAcks"),
        ("a", "KNOWN"), ("b", "FINISH"),
    ]  # fmt: skip
    begin, mine, theirs, first, second, known, finish = (call.request for call in ends.asked)
    assert (begin.snapshot, begin.identity, begin.known_at) == (
        "projects/pb/snapshots/nightly", "a/1", ["c/11", "a/11"],
    )  # fmt: skip
    assert (dict(begin.labels), begin.expire_time.seconds) == ({"by": "night"}, 5)
    assert [(one.snapshot, one.link) for one in (mine, theirs)] == [(taken.snapshot, ""), (taken.snapshot, "ba")]
    assert [(one.link, one.source_topic, one.copy, one.check, list(one.held)) for one in (first, second)] == [
        ("ab", "topic of a", 77, True, [HELD]),
        ("", "topic of ba", 77, True, [HELD]),
    ]
    assert (finish.copy, known.snapshot, known.known_at) == (77, taken.snapshot, ["b/11"])
    assert ends.pair.copied == 1


def test_a_catalog_that_has_not_changed_is_not_listed_again(ends: Ends) -> None:
    both = [snapshot(known_at=["b/11"])], [snapshot(project="pb", known_at=["a/11"])]
    assert ends.round(*both)
    assert (ends.made, ends.pair.seen(True)) == ([], 1)
    assert ends.round([], [], again=True)
    assert ends.made == []


def test_what_was_there_and_was_deleted_is_dropped(ends: Ends) -> None:
    ends.answers["BEGIN"] = lambda request: FailedPrecondition(f"{request.snapshot} {WAS_DELETED}.")
    assert ends.round([snapshot(known_at=["b/11"])], [])
    assert ends.made == [("b", "BEGIN"), ("a", "DROP")]
    assert ends.round([], [snapshot(project="pb", known_at=["x/11"])])  # known at a place that is no more
    assert ends.made == [("a", "BEGIN")]
    assert ends.round([], [snapshot(project="pb", identity="a/2", known_at=["a/11"], copying=True)])
    assert ends.made == [("b", "DROP")]


def test_an_end_that_was_restored_to_an_earlier_state_gets_again_what_it_had(ends: Ends) -> None:
    assert ends.round([snapshot(known_at=["b/11"])], [])
    assert (ends.made[0], ends.made[-1]) == (("b", "BEGIN"), ("b", "FINISH"))
    assert ("a", "DROP") not in ends.made


def test_a_copy_is_not_finished_of_one_that_is_gone(ends: Ends) -> None:
    ends.answers["KNOWN"] = lambda request: NotFound(request.snapshot)
    assert ends.round([snapshot()], [])
    assert ends.made[-1] == ("a", "KNOWN")


def test_copies_that_are_at_both_ends_know_of_each_other(ends: Ends) -> None:
    ends.round([snapshot()], [snapshot(project="pb", known_at=["a/11"])])
    assert [(name, list(call.request.known_at)) for name, call in zip(ends.made, ends.asked, strict=True)] == [
        (("a", "KNOWN"), ["b/11"])
    ]


def test_another_one_of_the_name_stays_and_is_remarked(ends: Ends) -> None:
    ends.answers["BEGIN"] = lambda request: AlreadyExists(request.snapshot)
    assert ends.round([snapshot()], [])
    assert ends.made == [("b", "BEGIN")]
    assert ends.pair.notes == {"a/1": "nightly: b has another one of this name"}
    assert ends.round([snapshot()], [])
    assert ends.made == []  # not at each round
    assert ends.round([], [])
    assert ends.pair.notes == {}


def test_a_copy_that_would_lack_messages_is_dropped(ends: Ends) -> None:
    ends.answers["MergeAcks"] = lambda request: pipeline.MergeAcksResponse(lacking=2)
    assert ends.round([snapshot()], [])
    assert ends.made[-1] == ("b", "DROP")
    assert "4 of its messages may be gone at b" in ends.pair.notes["a/1"]


def test_copies_are_waited_for_with_the_first_report_of_what_is_held(ends: Ends) -> None:
    ends.answers["MergeAcks"] = lambda request: (
        NotFound("ab") if request.link else pipeline.MergeAcksResponse(not_copied=3)
    )
    assert ends.round([snapshot()], [])
    assert ends.made[-1] == ("b", "CHECKED")
    assert ends.pair.notes == {"a/1": "nightly: 12 messages before it are not at b yet"}
    begun = snapshot(project="pb", copying=True, checked=True, incarnation=77)
    del ends.answers["MergeAcks"]
    rounds = 0
    while ends.pair.notes:
        assert ends.round([snapshot()], [begun])
        rounds += 1
        assert rounds < 100
    assert ends.made == [("b", "MergeAcks"), ("b", "MergeAcks"), ("a", "KNOWN"), ("b", "FINISH")]
    assert not any(call.request.check for call in ends.asked[:2])


def test_acknowledgements_wait_for_one_that_is_being_taken_but_not_for_ever(ends: Ends) -> None:
    assert not ends.round([snapshot(unfinished=True)], [])
    assert ends.made == []
    for _ in range(AWAITED_ROUNDS):
        ready = ends.round([snapshot(unfinished=True)], [])
    assert ready


def test_a_server_that_is_gone_ends_the_round(ends: Ends) -> None:
    ends.answers["BEGIN"] = lambda request: Unavailable("gone")
    with pytest.raises(Unavailable):
        ends.round([snapshot()], [])


def test_many_are_brought_in_several_rounds(ends: Ends) -> None:
    many = [snapshot(f"number-{number}", f"a/{number}") for number in range(CHANGES_MAX + 1)]
    assert not ends.round(many, [])
    assert ends.made.count(("b", "BEGIN")) == CHANGES_MAX


def test_a_round_that_stood_still_goes_on_after_a_later_one_saw_that_all_is_gone(ends: Ends) -> None:
    answer = pipeline.AckChangesResponse
    there = answer(place="a/11", snapshots_at=1, snapshots=[snapshot("first"), snapshot("second", "a/2")])
    late = ends.pair.round(there, answer(place="b/11", snapshots_at=1))
    call = next(late)
    ends.state = 1
    assert ends.round([], [])
    asked = [call.request.snapshot]
    with suppress(StopIteration):
        while True:
            call = late.send(_plain(call.request))
            asked.append(call.request.snapshot)
    assert {one.rpartition("/")[2] for one in asked} == {"first"}

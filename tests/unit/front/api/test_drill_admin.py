"""Drills over a control plane: one at a time, kept once they end, and word for one to stop."""

import asyncio

import pytest

from syncpoint.base.model.errors import FailedPrecondition, InvalidArgument, NotFound
from syncpoint.front.api.drill_admin import KEPT_MAX, DrillAdmin
from syncpoint.front.api.project_admin import ProjectAdmin
from syncpoint.wire.protobuf.messages import admin

pytestmark = pytest.mark.shows("drills")

P = "projects/p"


class Desk:
    def __init__(self, plane):
        self.plane, self.drills = plane, DrillAdmin(plane)

    def record(self, name="one", state=admin.Drill.RUNNING, left_s=60, **fields):
        drill = admin.Drill(project=P, drill=name, kind="hang", target="pid 1", state=state, **fields)
        drill.deadline.FromNanoseconds(self.plane.clock.time_ns() + left_s * 10**9)
        return asyncio.run(self.drills.record(admin.RecordDrillRequest(drill=drill)))

    def names(self, project=P):
        found = asyncio.run(self.drills.list(admin.ListDrillsRequest(project=project))).drills
        return [one.drill for one in found]

    def abort(self, name="one"):
        return asyncio.run(self.drills.abort(admin.AbortDrillRequest(project=P, drill=name)))


@pytest.fixture
def desk(plane):
    return Desk(plane)


def test_a_drill_is_recorded_aborted_and_ended_once(desk) -> None:
    desk.record(abort=True)
    assert not asyncio.run(desk.drills.get(admin.GetDrillRequest(project=P, drill="one"))).abort
    desk.abort()
    assert desk.record().abort, "what somebody else has asked for stays"
    done = desk.record(state=admin.Drill.ABORTED, certificate={"lost": 1})
    assert done.end_time.ToNanoseconds() == desk.plane.clock.time_ns()
    for change in (desk.record, desk.abort):
        with pytest.raises(FailedPrecondition, match="ended"):
            change()
    shown = asyncio.run(ProjectAdmin(desk.plane).get(admin.GetProjectRequest(project=P)))
    assert shown.last_drill == done


def test_two_programs_do_not_run_one_drill(desk) -> None:
    desk.record()
    desk.record()  # the answer to the first was lost
    with pytest.raises(FailedPrecondition, match="is running already"):
        desk.record(left_s=61)
    assert desk.record(state=admin.Drill.DONE, left_s=61).state == admin.Drill.DONE


def test_nothing_is_kept_that_no_drill_has(desk) -> None:
    drill = admin.Drill(project=P, drill="one", kind="hang", target="pid 1", state=admin.Drill.DONE)
    drill.MergeFromString(b"\xc2\x3e\x03abc")  # a field that is not known
    kept = asyncio.run(desk.drills.record(admin.RecordDrillRequest(drill=drill)))
    assert b"abc" not in kept.SerializeToString()
    assert kept.drill == "one"


def test_of_a_project_one_drill_runs_at_a_time_until_its_deadline(desk) -> None:
    desk.record("one")
    with pytest.raises(FailedPrecondition, match="The drill one of projects/p runs until"):
        desk.record("two")
    desk.plane.clock.advance(61)
    desk.record("two")
    assert desk.names() == ["two", "one"]
    assert desk.names("projects/q") == []


def test_the_oldest_drills_are_forgotten(desk) -> None:
    for number in range(KEPT_MAX + 2):
        desk.record(f"drill-{number:03}", state=admin.Drill.DONE)
        desk.plane.clock.advance(1)
    names = desk.names()
    assert (len(names), names[0], names[-1]) == (KEPT_MAX, f"drill-{KEPT_MAX + 1:03}", "drill-002")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"name": "A"}, "drill must have"),
        ({"state": 0}, "state must be"),
        ({"left_s": 25 * 3600}, "deadline"),
        ({"reason": "x" * 1001}, "reason must not"),
    ],
)
def test_what_is_no_drill_is_refused(desk, fields, message) -> None:
    with pytest.raises(InvalidArgument, match=message):
        desk.record(**fields)
    assert desk.names() == []


def test_a_drill_that_is_not_there_is_not_found(desk) -> None:
    with pytest.raises(NotFound, match="projects/p/drills/one"):
        desk.abort()

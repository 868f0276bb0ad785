"""What `run --once` says at its end: of each flow what this run did, whatever was copied before it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from syncpoint.programs.federation.run_summary import RunSummary
from syncpoint.programs.federation.servers import FlowProgress
from syncpoint.programs.federation.state import FlowState

COUNTS = {"read": 2068, "passed": 1829, "refused": 239}


def progress(name: str, rows: int, **more: Any) -> FlowProgress:
    link = SimpleNamespace(name=name.rpartition(".")[0], target=SimpleNamespace(name="b"))
    return FlowProgress(SimpleNamespace(name=name, link=link), 0, rows=rows, **more)  # type: ignore[arg-type]


def test_what_was_copied_before_is_not_counted() -> None:
    summary = RunSummary()
    for rows in (500, 500, 1500, 1700):
        summary.look([progress("copy.orders", rows)], {}, whole=True)
    assert summary.lines({}) == ["copy.orders: copied 1,200"]


def test_a_flow_that_begins_in_this_run_is_counted_whole() -> None:
    summary = RunSummary()
    summary.look([progress("copy.a", 5)], {}, whole=True)
    summary.look([progress("copy.a", 5), progress("copy.b", 7)], {}, whole=True)
    assert summary.lines({}) == ["copy.a: copied 0", "copy.b: copied 7"]


def test_a_target_that_was_away_is_counted_from_where_it_was_first_seen() -> None:
    summary = RunSummary()
    away = progress("copy.orders", 0, silent={"b": "b does not answer"})
    summary.look([away], {}, whole=True)
    assert summary.lines({"b": "b does not answer"}) == ["copy.orders: copied ?"]
    summary.look([progress("copy.orders", 9)], {}, whole=True)
    summary.look([progress("copy.orders", 10)], {}, whole=True)
    summary.look([away], {}, whole=True)
    assert summary.lines({}) == ["copy.orders: copied 1"]


def test_steps_say_what_they_have_read_passed_and_refused_and_a_failure_why() -> None:
    summary = RunSummary()
    summary.look([progress("checked.orders", 0)], {"checked.orders": FlowState("failed", counts=COUNTS)}, whole=True)
    summary.look([progress("checked.orders", 9)], {}, whole=True)
    line = "checked.orders: read 2,068, passed 1,829, refused 239"
    assert summary.lines({}) == [line]
    assert summary.lines({"checked.orders": "no such column"}) == [f"{line}; failed: no such column"]


def test_flows_that_share_their_counts_say_them_once() -> None:
    summary = RunSummary()
    counts = {**COUNTS, "flows": 2}
    flows = {name: FlowState("running", counts=counts) for name in ("checked.a", "checked.b")}
    summary.look([progress("checked.a", 0), progress("checked.b", 0)], {}, whole=True)
    summary.look([progress("checked.a", 3), progress("checked.b", 4)], flows, whole=True)
    assert summary.lines({}) == [
        "checked, 2 flows: read 2,068, passed 1,829, refused 239",
        "checked.a: copied 3",
        "checked.b: copied 4",
    ]

"""Counts of steps: every batch of every run of a query once, however often Spark's reports are looked through."""

from __future__ import annotations

from typing import Any

from syncpoint.programs.federation.steps.step import OBSERVED
from syncpoint.programs.federation.steps.step_counts import StepCounts


def report(run: str, batch: int, read: int | None) -> dict[str, Any]:
    observed = {} if read is None else {OBSERVED: {"read": read, "passed": read - 1}}
    return {"runId": run, "batchId": batch, "observedMetrics": observed}


def test_batches_are_counted_once() -> None:
    counts = StepCounts()
    counts.add([report("a", 0, 5), report("a", 1, None), report("a", 2, 3)])
    counts.add([report("a", 0, 5), report("a", 2, 3), report("a", 3, 1)])
    assert counts.totals == {"read": 9, "passed": 6}
    counts.add([report("b", 3, 2)])  # begun again: the batch under way is run, and counted, again
    assert counts.totals == {"read": 11, "passed": 7}

"""Families of `syncpoint probers run`. The program puts them; see `probers.prober_board`."""

from __future__ import annotations

from typing import Final

from syncpoint.watch.metrics.family import Family, MetricKind

PREFIX: Final = "syncpoint_prober_"
WHERE: Final = ("prober", "endpoint")
METRIC: Final = (*WHERE, "metric")
_C, _G, _H = MetricKind.COUNTER, MetricKind.GAUGE, MetricKind.HISTOGRAM
FAMILIES: Final = tuple(
    Family(f"{PREFIX}{name}", kind, unit, labels, meaning)
    for name, kind, unit, labels, meaning in (
        ("as_expected", _G, "", METRIC, "1 while a check (success, duration, correctness) passes; else 0."),
        ("value", _G, "", METRIC, "Value of the check in the latest run: 1 or 0, seconds, or the number of errors."),
        ("judgements_total", _C, "", (*METRIC, "verdict"), "Check results: expected, unexpected or unknown."),
        ("wrong_total", _C, "", (*WHERE, "kind"), "Incorrect messages and answers."),
        ("runs_total", _C, "", WHERE, "Completed runs."),
        ("last_run_timestamp_seconds", _G, "seconds", WHERE, "End of the latest run, in Unix time."),
        ("messages_total", _C, "", (*WHERE, "direction"), "Messages published and received."),
        ("step_seconds", _H, "seconds", (*WHERE, "step"), "Duration of timed steps, slowest of each run."),
        ("step_newest_seconds", _G, "seconds", (*WHERE, "step"), "Duration of timed steps in the latest run."),
        ("step_limit_seconds", _G, "seconds", ("prober", "step"), "Limit on the duration of a step."),
        ("leftovers_removed_total", _C, "", (), "Leftover topics and subscriptions of dead probers that were deleted."),
    )
)

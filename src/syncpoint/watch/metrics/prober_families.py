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
        ("as_expected", _G, "", METRIC, "1 while a metric (success, duration, correctness) is as expected; else 0."),
        ("value", _G, "", METRIC, "Value of the metric in the newest run: 1 or 0, seconds, or the number of errors."),
        ("judgements_total", _C, "", (*METRIC, "verdict"), "Judgements: expected, unexpected, unknown."),
        ("wrong_total", _C, "", (*WHERE, "kind"), "Messages and answers that were wrong."),
        ("runs_total", _C, "", WHERE, "Runs that ended."),
        ("last_run_timestamp_seconds", _G, "seconds", WHERE, "End of the newest run, in Unix time."),
        ("messages_total", _C, "", (*WHERE, "direction"), "Messages published and received."),
        ("step_seconds", _H, "seconds", (*WHERE, "step"), "Duration of timed steps, the slowest of each run."),
        ("step_newest_seconds", _G, "seconds", (*WHERE, "step"), "Duration of timed steps in the newest run."),
        ("step_limit_seconds", _G, "seconds", ("prober", "step"), "Limit on the duration of a step."),
        ("leftovers_removed_total", _C, "", (), "Topics and subscriptions of dead probers that were deleted."),
    )
)

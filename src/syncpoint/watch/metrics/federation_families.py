"""Families of `syncpoint federation run`: its flows, and Spark. The program puts them; see `federation.metrics`."""

from __future__ import annotations

from typing import Final

from syncpoint.watch.metrics.family import Family, MetricKind

PREFIX: Final = "syncpoint_federation_"
FLOW: Final = ("flow", "source", "target")
KEYS: Final = ("subscription", "site")
_C, _G = MetricKind.COUNTER, MetricKind.GAUGE
FAMILIES: Final = tuple(
    Family(f"{PREFIX}{name}", kind, unit, labels, meaning)
    for name, kind, unit, labels, meaning in (
        ("lag_messages", _G, "", FLOW, "Messages not copied yet."),
        ("lag_bytes", _G, "bytes", FLOW, "Bytes not copied yet (an estimate)."),
        ("rows_total", _C, "", FLOW, "Messages copied."),
        ("bytes_total", _C, "bytes", FLOW, "Bytes copied."),
        ("epochs_total", _C, "", FLOW, "Epochs committed."),
        ("duplicates_dropped_total", _C, "", FLOW, "Messages skipped because the target already had them."),
        ("gaps_refused_total", _C, "", FLOW, "Epochs refused because of a gap before them."),
        ("messages_skipped_total", _C, "", FLOW, "Messages in accepted gaps."),
        ("blocked", _G, "", FLOW, "1 while a gap stops the flow."),
        ("batch_seconds", _G, "seconds", ("flow",), "Duration of the latest batch."),
        ("keys_taken_total", _C, "", KEYS, "Slots of keys taken from a site that did not answer."),
        ("keys_delivered_twice_total", _C, "", KEYS, "Messages of these keys that two sites may have delivered."),
        ("executors", _G, "", (), "Running executors."),
        ("starts_total", _C, "", (), "Starts of Spark."),
        ("failures_total", _C, "", (), "Crashes of the Spark job."),
    )
)

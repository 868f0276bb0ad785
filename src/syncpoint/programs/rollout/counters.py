"""What a process has counted, as far as a rollout judges it: read from the text of its /metrics, subtracted and added.

Place: between the network and `analysis`. Plain values in and out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Final

from syncpoint.base.model.histogram import quantile
from syncpoint.watch.monitor.scraped_text import ScrapedText

CLIENTS: Final = "clients"  # the listener for clients

SUMMED: Final = {
    "syncpoint_subscription_messages_total": "delivered",
    "syncpoint_subscription_redelivered_total": "redelivered",
    "syncpoint_disk_damages_total": "damaged",
    "syncpoint_disk_unreadable_places": "unreadable",
    "syncpoint_publish_messages_total": "published",
    "syncpoint_router_answered_total": "routed",
    "syncpoint_disk_server_written_bytes_total": "stored",
}
"""Families of which the sum over all labels counts, and what it is called here."""

_OF_PROCESSES: Final = "Process."  # pings between processes, not work

Method = tuple[str, str]
"""Listener and method."""


@dataclass(frozen=True, slots=True)
class MethodCounts:
    """Calls of one method: by the code they ended with, and how many took how long (buckets alone, not cumulated)."""

    codes: Mapping[str, float] = field(default_factory=dict)
    bounds: tuple[float, ...] = ()
    buckets: tuple[float, ...] = ()

    @property
    def calls(self) -> float:
        """How many ended."""
        return sum(self.codes.values())

    def within(self, share: float) -> float:
        """The seconds that so large a share of the calls took at most; NaN without calls."""
        return quantile(zip((*self.bounds, float("inf")), accumulate(self.buckets), strict=False), share)

    def combined(self, other: MethodCounts, sign: int) -> MethodCounts:
        """Added (1) or subtracted (-1)."""
        codes = {
            code: self.codes.get(code, 0) + sign * other.codes.get(code, 0)
            for code in self.codes.keys() | other.codes.keys()
        }
        if not self.buckets or not other.buckets:
            mine = self.buckets or (other.buckets if sign > 0 else ())
            return MethodCounts(codes, self.bounds or other.bounds, mine)
        both = zip(self.buckets, other.buckets, strict=True)
        return MethodCounts(codes, self.bounds, tuple(one + sign * two for one, two in both))


@dataclass(frozen=True, slots=True)
class ProcessCounters:
    """Counters of one or several processes. `started`: start time of the process; 0.0 for several."""

    started: float = 0.0
    methods: Mapping[Method, MethodCounts] = field(default_factory=dict)
    sums: Mapping[str, float] = field(default_factory=dict)

    def combined(self, other: ProcessCounters, sign: int) -> ProcessCounters:
        """Added (1) or subtracted (-1); `started` is the one of this."""
        nothing = MethodCounts()
        return ProcessCounters(
            self.started,
            {
                key: self.methods.get(key, nothing).combined(other.methods.get(key, nothing), sign)
                for key in self.methods.keys() | other.methods.keys()
            },
            {
                key: self.sums.get(key, 0) + sign * other.sums.get(key, 0)
                for key in self.sums.keys() | other.sums.keys()
            },
        )

    def since(self, earlier: ProcessCounters) -> ProcessCounters:
        """What was counted in between; all of it, where the process is another one."""
        return self if earlier.started != self.started else self.combined(earlier, -1)


def added(counters: Iterable[ProcessCounters]) -> ProcessCounters:
    """Several processes as one."""
    total = ProcessCounters()
    for one in counters:
        total = total.combined(one, 1)
    return total


def read(text: bytes) -> ProcessCounters:
    """The page of a process. Raises `ValueError` for a text that is none, or does not say when its process began."""
    codes: dict[Method, dict[str, float]] = {}
    buckets: dict[Method, dict[float, float]] = {}
    sums: dict[str, float] = dict.fromkeys(SUMMED.values(), 0.0)
    started = 0.0
    for series, value in ScrapedText(lambda _: True).read(text).items():
        if series.name == "process_start_time_seconds":
            started = value
        elif series.name in SUMMED:
            sums[SUMMED[series.name]] += value
        elif series.name in ("syncpoint_calls_total", "syncpoint_call_seconds_bucket"):
            labels = dict(series.labels)
            method = (labels["listener"], labels["method"])
            if method[1].startswith(_OF_PROCESSES):
                continue
            if series.name == "syncpoint_calls_total":
                codes.setdefault(method, {})[labels["code"]] = value
            else:
                buckets.setdefault(method, {})[float(labels["le"])] = value
    if not started:
        raise ValueError("has no process_start_time_seconds, so these are not the metrics of a process")
    return ProcessCounters(started, {key: _method(codes.get(key, {}), buckets.get(key, {})) for key in codes}, sums)


def _method(codes: Mapping[str, float], cumulated: Mapping[float, float]) -> MethodCounts:
    bounds = sorted(cumulated)
    counts = [cumulated[bound] for bound in bounds]
    alone = [count - before for count, before in zip(counts, [0.0, *counts], strict=False)]
    return MethodCounts(codes, tuple(bounds[:-1]), tuple(alone))

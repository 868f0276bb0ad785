"""A family of metrics, and the samples of one look at a process.

Place: families stand beside the collector that reads them, and together in `family_table`; samples go to `exposition`.
Promise: a sample of a family that is in no table, or with other labels than in the table, is an error here, not a
line that nobody can explain.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import NamedTuple, Protocol

from syncpoint.base.model.histogram import Histogram

_NAME = re.compile(r"[a-z][a-z0-9_]*")


class MetricKind(StrEnum):
    """What may be done with the numbers of a family. UNTYPED: a counter under a name of Google's, which does not end as
    Prometheus wants names of counters to."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"
    SUMMARY = "summary"
    UNTYPED = "untyped"


class Family(NamedTuple):
    """One row of the table; that it moves is for tests/unit/watch/metrics/test_moves.py to show."""

    name: str
    kind: MetricKind
    unit: str
    labels: tuple[str, ...]
    meaning: str

    @property
    def problem(self) -> str:
        """What is wrong with it; empty where nothing is."""
        if not all(_NAME.fullmatch(one) for one in (self.name, *self.labels)):
            return "names consist of lowercase letters, digits and _"
        if (self.kind is MetricKind.COUNTER) != self.name.endswith("_total"):
            return "counter names, and only those, end in _total"
        if self.unit in ("seconds", "bytes") and self.unit not in self.name and not self.name.startswith("pubsub_"):
            return "the name does not end in its unit"
        if not self.meaning.endswith("."):
            return "the meaning must be a sentence"
        return ""


class Sample(NamedTuple):
    """Numbers under one set of labels: one of a counter or a gauge, (count, sum) of a summary."""

    labels: tuple[str, ...]
    value: float
    total: float = 0.0
    histogram: Histogram | None = None


class Samples:
    """Everything that one look at a process has found, by family."""

    def __init__(self, families: Iterable[Family]) -> None:
        self.families: Mapping[str, Family] = {one.name: one for one in families}
        self.rows: dict[str, list[Sample]] = {}

    def put(self, name: str, value: float, *labels: str) -> None:
        """A number of a counter, a gauge or an untyped family."""
        self._add(name, (MetricKind.COUNTER, MetricKind.GAUGE, MetricKind.UNTYPED), Sample(labels, value))

    def put_summary(self, name: str, count: float, total: float, *labels: str) -> None:
        """How many there were, and their sum."""
        self._add(name, (MetricKind.SUMMARY,), Sample(labels, count, total))

    def put_histogram(self, name: str, found: Histogram, *labels: str) -> None:
        """All that a histogram has, as it is now."""
        copy = Histogram(found.bounds)
        copy.counts, copy.total = found.counts[:], found.total
        self._add(name, (MetricKind.HISTOGRAM,), Sample(labels, 0, 0, copy))

    def _add(self, name: str, kinds: Iterable[MetricKind], row: Sample) -> None:
        family = self.families[name]
        if family.kind not in kinds or len(row.labels) != len(family.labels):
            raise ValueError(f"{name} is a {family.kind} with the labels {family.labels}, not {row.labels}")
        self.rows.setdefault(name, []).append(row)


class RoomCollector(Protocol):
    """Reads one room. Nothing here is called for a message: rooms keep plain numbers, and are read when somebody asks.

    `name`: for operators, in the log where it fails.
    """

    name: str

    async def prepare(self) -> None:
        """Look up what takes longer, in small steps; called before each `collect`."""
        ...

    def collect(self, samples: Samples) -> None:
        """Put what the room knows now. Takes a millisecond or two at most; on the thread of the event loop."""
        ...


class QuickCollector:
    """A collector that has nothing to prepare."""

    async def prepare(self) -> None:
        pass

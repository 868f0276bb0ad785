"""What is known of all probers at all endpoints: the newest judgements, and counts since the program began.

Place: `prober_driver` notes every run here; metrics, the status (JSON) and the table in the terminal are made from it.
Promise: a metric that is not known is shown as unknown: it has no sample of `as_expected`, rather than its last one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from syncpoint.base.model.histogram import Histogram
from syncpoint.base.model.wording import utc_text
from syncpoint.programs.probers.judgement import JudgedMetric, ProbeVerdict, as_expected, wrong
from syncpoint.programs.probers.probe_history import ProbeHistory
from syncpoint.programs.probers.prober_table import BY_NAME, Measure, ProberSpec
from syncpoint.watch.metrics.family import Samples
from syncpoint.watch.metrics.prober_families import FAMILIES, PREFIX

FAILURES_KEPT: Final = 5


@dataclass
class BoardEntry:
    """One prober at one endpoint. `findings`: of the newest run; empty before the first one has ended."""

    prober: str
    endpoint: str
    findings: Sequence[JudgedMetric] = ()
    ended_at: float = 0.0  # seconds since 1970
    runs: int = 0
    published: int = 0
    received: int = 0
    steps: dict[str, Histogram] = field(default_factory=dict)
    newest_steps: dict[str, float] = field(default_factory=dict)
    verdicts: Counter[tuple[Measure, ProbeVerdict]] = field(default_factory=Counter)
    wrong: Counter[str] = field(default_factory=Counter)
    failures: list[tuple[float, str]] = field(default_factory=list)  # the newest, latest last

    @property
    def good(self) -> bool:
        """Whether the newest run was as expected."""
        return bool(self.findings) and as_expected(self.findings)


class ProberBoard:
    """Results of all probers at all endpoints. Used from one thread; `as_dict` and `samples` return copies."""

    def __init__(self, probers: Sequence[ProberSpec], endpoints: Sequence[str], patience: float = 1.0) -> None:
        self.entries = {(one.name, place): BoardEntry(one.name, place) for one in probers for place in endpoints}
        self.patience = patience
        self.leftovers_removed = 0

    def note(
        self, prober: str, endpoint: str, history: ProbeHistory, findings: Sequence[JudgedMetric], now: float
    ) -> None:
        """A run has ended at `now`, seconds since 1970."""
        entry = self.entries[prober, endpoint]
        entry.findings, entry.ended_at, entry.runs = findings, now, entry.runs + 1
        entry.published += sum(one.answered for one in history.sent)
        entry.received += len(history.arrived)
        entry.newest_steps = dict(history.steps)
        for name, seconds in history.steps.items():
            entry.steps.setdefault(name, Histogram()).note(seconds)
        for one in findings:
            entry.verdicts[one.measure, one.verdict] += 1
        entry.wrong.update({str(kind): count for kind, count in wrong(BY_NAME[prober], history).items()})
        bad = "; ".join(one.text for one in findings if one.verdict is ProbeVerdict.UNEXPECTED)
        if bad:
            entry.failures = [*entry.failures, (now, bad)][-FAILURES_KEPT:]

    @property
    def unexpected(self) -> list[tuple[str, str, JudgedMetric]]:
        """What is not as expected now: prober, endpoint, metric."""
        return [
            (entry.prober, entry.endpoint, one)
            for entry in self.entries.values()
            for one in entry.findings
            if one.verdict is ProbeVerdict.UNEXPECTED
        ]

    def as_dict(self) -> dict[str, Any]:
        """The prober matrix, for a console and for scripts."""
        return {
            "asExpected": all(one.good for one in self.entries.values()),
            "probers": [_entry_dict(one) for one in self.entries.values()],
        }

    def samples(self) -> Samples:
        """What a collector reads now."""
        found = Samples(FAMILIES)
        found.put(f"{PREFIX}leftovers_removed_total", self.leftovers_removed)
        for prober in dict.fromkeys(name for name, _ in self.entries):
            for step in BY_NAME[prober].timed:
                found.put(f"{PREFIX}step_limit_seconds", step.limit_s * self.patience, prober, step.name)
        for entry in self.entries.values():
            for name, value, labels in _numbers(entry):
                found.put(PREFIX + name, value, entry.prober, entry.endpoint, *labels)
            for step_name, histogram in list(entry.steps.items()):  # of another thread
                found.put_histogram(f"{PREFIX}step_seconds", histogram, entry.prober, entry.endpoint, step_name)
        return found


def _numbers(entry: BoardEntry) -> Iterator[tuple[str, float, tuple[str, ...]]]:
    yield "runs_total", entry.runs, ()
    yield "messages_total", entry.published, ("published",)
    yield "messages_total", entry.received, ("received",)
    for (measure, verdict), count in entry.verdicts.items():
        yield "judgements_total", count, (measure, verdict)
    for kind, count in entry.wrong.items():
        yield "wrong_total", count, (kind,)
    if not entry.runs:
        return
    yield "last_run_timestamp_seconds", entry.ended_at, ()
    for one in entry.findings:
        if one.verdict is not ProbeVerdict.UNKNOWN:
            yield "as_expected", float(one.verdict is ProbeVerdict.EXPECTED), (one.measure,)
            assert one.value is not None
            yield "value", one.value, (one.measure,)
    for step, seconds in entry.newest_steps.items():
        yield "step_newest_seconds", seconds, (step,)


def _entry_dict(entry: BoardEntry) -> dict[str, Any]:
    spec = BY_NAME[entry.prober]
    return {
        "prober": entry.prober,
        "title": spec.title,
        "planes": [str(one) for one in spec.planes],
        "endpoint": entry.endpoint,
        "runs": entry.runs,
        "lastRun": utc_text(round(entry.ended_at * 1e6), "milliseconds") if entry.runs else None,
        "asExpected": entry.good if entry.runs else None,
        "metrics": [
            {
                "name": spec.metric(one.measure),
                "measure": str(one.measure),
                "verdict": str(one.verdict),
                "value": one.value,
                "limit": one.limit,
                "text": one.text,
            }
            for one in entry.findings
        ],
        "steps": entry.newest_steps,
        "failures": [{"time": utc_text(round(at * 1e6), "milliseconds"), "text": text} for at, text in entry.failures],
    }

"""What the steps of a flow have counted since its job began: messages and bytes in and out, and what was refused.

Place: in the job, fed with what Spark reports of each batch. A batch that was run again is counted again: what is at
the target is asked of the target.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from syncpoint.programs.federation.steps.step import OBSERVED


@dataclass(slots=True)
class StepCounts:
    """`totals`: read, passed, refused, bytes_read (of what passed), bytes_written."""

    totals: dict[str, int] = field(default_factory=dict)
    _seen: tuple[str, int] = ("", -1)  # run of the query, batch

    def add(self, reports: Iterable[Any]) -> None:
        """Count the batches of these reports that were not counted yet; reports of one query in their order."""
        for report in reports:
            run, batch = str(report["runId"]), int(report["batchId"])
            counted = report["observedMetrics"].get(OBSERVED)
            if counted is None or (run == self._seen[0] and batch <= self._seen[1]):
                continue
            self._seen = run, batch
            values: Mapping[str, int] = counted if isinstance(counted, Mapping) else counted.asDict()
            for name, value in values.items():
                self.totals[name] = self.totals.get(name, 0) + int(value)

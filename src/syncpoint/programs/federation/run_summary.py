"""What one run of a federation has done, flow by flow.

Place: fed by the supervisor at each look; `run --once` prints it at its end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from syncpoint.programs.federation.servers import FlowProgress
from syncpoint.programs.federation.state import FlowState

STEPS = ("read", "passed", "refused")


class RunSummary:
    """`look` for every look; `lines` at the end."""

    def __init__(self) -> None:
        self._seen: set[str] = set()
        self._before: dict[str, int] = {}  # by flow: what its target had of it when the run began
        self._rows: dict[str, int] = {}
        self._counts: dict[str, Mapping[str, int]] = {}  # of steps, by flow, or by link where its flows share them
        self._whole = False  # all flows were seen: one that comes later has begun in this run

    def look(self, progress: Sequence[FlowProgress], flows: Mapping[str, FlowState], *, whole: bool) -> None:
        """`flows`: states by the job. `whole`: every source has reported its topics."""
        for one in progress:
            name = one.flow.name
            self._seen.add(name)
            if one.target_known:
                self._before.setdefault(name, 0 if self._whole else one.rows)
                self._rows[name] = max(self._rows.get(name, 0), one.rows)
            counts = flows[name].counts if name in flows else {}
            if counts:
                self._counts[f"{one.flow.link.name}, {counts['flows']} flows" if "flows" in counts else name] = counts
        self._whole = self._whole or (whole and not any(one.silent for one in progress))

    def lines(self, unable: Mapping[str, str]) -> list[str]:
        """A line for each flow, with the error of one that could not be finished."""
        outcomes = {name: self._copied(name) for name in self._seen}
        for name, counts in self._counts.items():
            outcomes[name] = ", ".join(f"{one} {counts.get(one, 0):,}" for one in STEPS)
        errors = {name: f"; failed: {why}" for name, why in unable.items()}
        return [f"{name}: {what}{errors.get(name, '')}" for name, what in sorted(outcomes.items())]

    def _copied(self, name: str) -> str:
        return f"copied {self._rows[name] - self._before[name]:,}" if name in self._rows else "copied ?"

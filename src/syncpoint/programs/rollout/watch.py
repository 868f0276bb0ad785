"""The counts of a step while it is watched: of processes with the release and of others, in the same windows of time.

Place: between what is read of /metrics and `analysis`. Time comes in with each note.
Promise: both sides are counted over the same looks. Counts begin anew with every step, and when a controller takes
over.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Final

from syncpoint.programs.rollout.analysis import (
    EVIDENCE,
    Reference,
    ReleaseJudgement,
    compare,
    corrupted,
    evidence,
    figures,
    lacking,
    shares,
    unlike,
)
from syncpoint.programs.rollout.counters import CLIENTS, ProcessCounters, added
from syncpoint.programs.rollout.proportions import interval
from syncpoint.programs.rollout.rollout_file import PRODUCTION, STAGING
from syncpoint.programs.rollout.rollout_plan import RolloutPlan, Step

SILENT_MAX: Final = 3
"""Number of looks in a row at which a process may have no metrics."""

ReadCounters = Mapping[str, Mapping[str, ProcessCounters | None]]
"""By environment and process; None: it did not answer."""

Totals = dict[tuple[str, str], ProcessCounters]


class StepWatch:
    """One step, from the first look at which all its processes ran what they are to run."""

    def __init__(self, plan: RolloutPlan, step: Step) -> None:
        self._plan, self._step = plan, step
        self._last: Totals = {}
        self._earlier: deque[tuple[float, Totals]] = deque()  # `_whole` of looks within the window
        self._whole: Totals = {}
        self._silent: dict[tuple[str, str], int] = {}
        self._seen = False
        self.shares: dict[str, float] = {}
        self.certain_shares: dict[str, float] = {}
        self.reference: tuple[tuple[str, str, tuple[float, ...], tuple[float, ...]], ...] = ()

    def note(self, now: float, counters: ReadCounters, reference: Reference) -> ReleaseJudgement:
        """Take what was read at one look, and judge. `reference`: of an earlier step."""
        step, limits = self._step, self._plan.manifest.thresholds
        breaches = self._take(counters)
        self._earlier.append((now, dict(self._whole)))
        while self._earlier[0][0] < now - limits.window_s:
            self._earlier.popleft()
        if not self._seen:
            self._seen = True
            return ReleaseJudgement(tuple(breaches), ("no metrics yet",))
        then = self._earlier[0][1]
        window = {key: one.combined(then[key], -1) if key in then else one for key, one in self._whole.items()}
        for environment in step.watched:
            breaches += [f"{environment}: {one}" for one in corrupted(self._of(self._whole, environment))]
            for counts in (self._whole, window):
                breaches += [f"{environment}: {one}" for one in self._compared(counts, environment, reference)]
        environment = step.watched[-1]
        released, others = self._sides(self._whole, environment)
        short = self._lacking(environment, released, others)
        if step.compares:
            self._note_shares()
            if others is not None and not short:
                self.reference = tuple(
                    (*method, one.bounds, one.buckets) for method, one in others.methods.items() if one.buckets
                )
        return ReleaseJudgement(tuple(dict.fromkeys(breaches)), tuple(short), figures(released, others))

    def _take(self, counters: ReadCounters) -> list[str]:
        breaches: list[str] = []
        for environment in self._step.watched:
            for name, found in counters[environment].items():
                key = environment, name
                has_release = name in self._step.released.get(environment, ())
                if found is None:
                    self._silent[key] = self._silent.get(key, 0) + 1
                    if has_release and self._silent[key] == SILENT_MAX:
                        breaches.append(f"{environment}: {name} returned no metrics {SILENT_MAX} times in a row")
                    continue
                self._silent[key] = 0
                last = self._last.get(key)
                self._last[key] = found
                if last is None:
                    continue
                if has_release and last.started != found.started:
                    breaches.append(f"{environment}: {name} restarted unexpectedly")
                more = found.since(last)
                self._whole[key] = self._whole[key].combined(more, 1) if key in self._whole else more
        return breaches

    def _sides(self, counts: Totals, environment: str) -> tuple[ProcessCounters, ProcessCounters | None]:
        """Those with the release and the others; None: there are none."""
        names = self._step.released[environment]
        others = [name for name in self._plan.fleets[environment].processes if name not in names]
        return self._of(counts, environment, names), self._of(counts, environment, others) if others else None

    def _compared(self, counts: Totals, environment: str, reference: Reference) -> list[str]:
        released, others = self._sides(counts, environment)
        of_production = reference if environment == PRODUCTION else None
        return compare(released, others, self._plan.manifest.thresholds, of_production)

    def _lacking(self, environment: str, released: ProcessCounters, others: ProcessCounters | None) -> list[str]:
        manifest, limits = self._plan.manifest, self._plan.manifest.thresholds
        if not self._step.compares:
            calls = sum(one.calls for (listener, _), one in released.methods.items() if listener == CLIENTS)
            return (
                [f"{STAGING}: {calls:g} of {manifest.soak_calls_min} client calls"]
                if calls < manifest.soak_calls_min
                else []
            )
        names = self._step.released[environment]
        found = lacking(self._roles(environment, names), "with the release", released, limits)
        if others is not None:
            rest = [name for name in self._plan.fleets[environment].processes if name not in names]
            found += lacking(self._roles(environment, rest), "without the release", others, limits)
            found += unlike(released, others, limits)
        return found

    def _note_shares(self) -> None:
        names, fleet = self._step.released[PRODUCTION], self._plan.fleets[PRODUCTION]
        mine: dict[str, ProcessCounters] = {}
        every: dict[str, ProcessCounters] = {}
        for role in sorted(self._roles(PRODUCTION, fleet.processes)):
            of_role = fleet.of_role(role)
            every[role] = self._of(self._whole, PRODUCTION, of_role)
            mine[role] = self._of(self._whole, PRODUCTION, [name for name in of_role if name in names])
        self.shares = shares(mine, every)
        self.certain_shares = {
            role: interval(evidence(role, mine[role]), evidence(role, every[role]))[0]
            for role in self.shares
            if role in EVIDENCE
        }

    def _roles(self, environment: str, names: Iterable[str]) -> frozenset[str]:
        processes = self._plan.fleets[environment].processes
        return frozenset(role for name in names for role in processes[name].roles)

    def _of(self, counts: Totals, environment: str, names: Iterable[str] | None = None) -> ProcessCounters:
        wanted = None if names is None else set(names)
        return added(
            one for (where, name), one in counts.items() if where == environment and (wanted is None or name in wanted)
        )

"""The steps of a rollout: which processes have the release in each, and how long it is watched.

Place: made of the manifest and the three environments before anything is done; `progress` goes through it.
Promise: every step has what the one before had, and none can be left out: there is no way past one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from syncpoint.base.model.errors import InvalidArgument
from syncpoint.programs.rollout.fleet import WEIGHED, Assigned, Fleet
from syncpoint.programs.rollout.rollout_file import PRODUCTION, STAGING, TEST, RolloutManifest

SOAK, CANARY = "soak", "canary"


@dataclass(frozen=True, slots=True)
class Step:
    """`released`: environment -> processes that have the release then. Watched for `watch_s` where that is above 0."""

    name: str
    released: Mapping[str, frozenset[str]]
    watch_s: float = 0.0
    watched: tuple[str, ...] = ()  # environments
    steered: bool = False  # forwarders of the canary have weights of their own

    @property
    def compares(self) -> bool:
        """Whether processes with the release are held against others."""
        return PRODUCTION in self.watched


class RolloutPlan:
    """Raises `InvalidArgument` for what the environments do not allow."""

    def __init__(self, manifest: RolloutManifest, fleets: Mapping[str, Fleet]) -> None:
        self.manifest, self.fleets = manifest, fleets
        self.canary = self._chosen()
        self.steps = self._steps()
        canary = manifest.canary
        weights = fleets[PRODUCTION].weights(set(self.canary), canary.share) if canary.share is not None else {}
        self._before = {name: fleet.assigned(manifest.before) for name, fleet in fleets.items()}
        self._release = {name: fleet.assigned(manifest.release) for name, fleet in fleets.items()}
        self._steered = fleets[PRODUCTION].assigned(manifest.release, weights)
        if self._before == self._release:
            raise InvalidArgument("release", "already runs: neither version nor settings differ")
        for name, one in self._before.items():
            if (one.version, one.source) == (self._release[name].version, self._release[name].source):
                raise InvalidArgument(
                    "release.settings", f"{name} already uses these settings, so the change would not be visible there"
                )

    def before(self, environment: str) -> Assigned:
        """What every process of an environment ran when it began."""
        return self._before[environment]

    def release(self, environment: str, step: Step) -> Assigned:
        """What a process of an environment runs that has the release."""
        return self._steered if step.steered and environment == PRODUCTION else self._release[environment]

    def wanted(self, environment: str, process: str, step: Step | None) -> Assigned:
        """What a process is to run in a step; None: in the end of a way back."""
        if step is not None and process in step.released.get(environment, ()):
            return self.release(environment, step)
        return self._before[environment]

    def in_order(self, environment: str) -> list[str]:
        """The processes of an environment, in the order in which they are restarted."""
        order = self.manifest.order
        processes = self.fleets[environment].processes
        return sorted(processes, key=lambda name: min(order.index(role) for role in processes[name].roles))

    def _chosen(self) -> tuple[str, ...]:
        fleet, given = self.fleets[PRODUCTION], self.manifest.canary.processes
        roles = {role: fleet.of_role(role) for role in self.manifest.order}
        chosen = given or tuple(dict.fromkeys(names[-1] for names in roles.values() if len(names) > 1))
        for name in chosen:
            if name not in fleet.processes:
                raise InvalidArgument(
                    "canary.processes", f"{name} is not a production process; choose from {', '.join(fleet.processes)}"
                )
        for role, names in roles.items():
            if names and set(names) <= set(chosen):
                raise InvalidArgument("canary.processes", f"no {role} is left to compare with; list fewer of them")
        if not chosen:
            raise InvalidArgument("canary", "no production role has two processes, so nothing can be compared")
        if self.manifest.canary.share is not None and not any(
            role in WEIGHED for name in chosen for role in fleet.processes[name].roles
        ):
            raise InvalidArgument("canary.share", "affects only forwarders, and the canary has none")
        return chosen

    def _steps(self) -> tuple[Step, ...]:
        manifest, fleets = self.manifest, self.fleets
        test = {TEST: frozenset(fleets[TEST].processes)}
        both = {**test, STAGING: frozenset(fleets[STAGING].processes)}
        steps = [
            Step(TEST, test),
            Step(STAGING, both),
            Step(SOAK, both, manifest.soak_s, (TEST, STAGING)),
            Step(
                CANARY,
                {**both, PRODUCTION: frozenset(self.canary)},
                manifest.canary.watch_s,
                (TEST, STAGING, PRODUCTION),
                manifest.canary.share is not None,
            ),
        ]
        for stage in manifest.stages:
            released = {**both, PRODUCTION: self._first(stage.share)}
            steps.append(Step(f"stage {stage.share:.0%}", released, stage.watch_s, (TEST, STAGING, PRODUCTION)))
        return tuple(steps)

    def _first(self, share: float) -> frozenset[str]:
        """The number of each role, including the canary's."""
        fleet, found = self.fleets[PRODUCTION], set(self.canary)
        for role in self.manifest.order:
            names = fleet.of_role(role)
            ordered = [name for name in names if name in found] + [name for name in names if name not in found]
            found.update(ordered[: math.ceil(share * len(names))])
        return frozenset(found)

"""The controller of a rollout: looks, has the machine decide, writes the state down, restarts one process, looks again.

Place: under `syncpoint rollout start`, `resume` and `abort`; a driver around `progress` and `watch`.
Promise: the state is stored before anything is done, so that a successor knows what was begun; and a controller that
does not hold the lease any more begins nothing.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict
from typing import Any, Final, Protocol

from syncpoint.base.model.errors import FailedPrecondition, Unavailable
from syncpoint.programs.rollout.admission_check import refusals
from syncpoint.programs.rollout.counters import ProcessCounters
from syncpoint.programs.rollout.fleet import Assigned, Fleet
from syncpoint.programs.rollout.parity import Reports
from syncpoint.programs.rollout.progress import RUNNING, RolloutLook, RolloutState, begin, decide, excessive, taken_over
from syncpoint.programs.rollout.rollout_file import ENVIRONMENTS, PRODUCTION, RolloutManifest
from syncpoint.programs.rollout.rollout_plan import RolloutPlan
from syncpoint.programs.rollout.rollout_store import RolloutStore
from syncpoint.programs.rollout.watch import StepWatch

SOON_S: Final = 1.0
"""Between two looks while processes are restarted."""


class Operated(Protocol):
    """The environment that a controller operates."""

    async def look(self) -> tuple[Reports, list[str]]: ...

    async def counters(self) -> Mapping[str, ProcessCounters | None]: ...

    async def restart(self, process: str, assigned: Assigned) -> None: ...


def plan_of(manifest: RolloutManifest) -> RolloutPlan:
    """The plan, of the environments' files as they are. Raises `InvalidArgument`, `NotFound`, `OSError`."""
    return RolloutPlan(manifest, {name: Fleet(manifest.environments[name]) for name in ENVIRONMENTS})


def digest_of(plan: RolloutPlan) -> str:
    """Hash everything that defines a rollout; a different digest means a different rollout."""
    files = {name: fleet.source for name, fleet in plan.fleets.items()}
    text = json.dumps([asdict(plan.manifest), files], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class RolloutController:
    """Drives one rollout to its end. `clock`: seconds since 1970; `report` is called with each line of its history."""

    def __init__(
        self,
        plan: RolloutPlan,
        store: RolloutStore,
        operated: Mapping[str, Operated],
        *,
        clock: Callable[[], float],
        report: Callable[[str], None],
        sleep: Callable[[float], Awaitable[Any]] = asyncio.sleep,
    ) -> None:
        self._plan, self._store, self._operated = plan, store, operated
        self._clock, self._report, self._sleep = clock, report, sleep
        self._watch: StepWatch | None = None
        self._failed = ""
        self._waits_for = ""

    async def start(self) -> RolloutState:
        """From the beginning. Raises `FailedPrecondition` with every reason that refuses it, or naming the rollout that
        is not over, and as `run`."""
        state = await self._store.claim()
        if state is not None and not state.over:
            raise FailedPrecondition(
                f"rollout {state.name} is {state.state}, in step {state.step}: resume or abort it first"
            )
        look = await self._look(None)
        refused = refusals(self._plan, look.reports, look.problems)
        if refused:
            raise FailedPrecondition("\n".join(refused))
        made = begin(self._plan, digest_of(self._plan), look, self._store.who)
        await self._store.begin(made)
        self._report_new(0.0, (), made.history)
        return await self.run(made)

    async def resume(self) -> RolloutState:
        """Go on where another controller ended. Raises `FailedPrecondition`, and as `run`."""
        state = await self._store.claim()
        if state is None or state.over:
            raise FailedPrecondition("there is no rollout to resume" if state is None else f"it is {state.state}")
        digest = digest_of(self._plan)
        if digest != state.manifest:
            raise FailedPrecondition(
                f"rollout {state.name} was started with a different rollout.yaml or cluster.yaml of an environment: "
                "restore these files"
            )
        before = state.history
        state = taken_over(state, self._store.who, self._clock())
        await self._store.save(state)
        self._report_new(0.0, before, state.history)
        return await self.run(state)

    async def run(self, state: RolloutState) -> RolloutState:
        """Until it is over. Raises `Aborted` when another controller took over."""
        while not state.over:
            look = await self._look(state)
            self._failed = ""
            decided, restart = decide(self._plan, state, look)
            if (decided.step, decided.deployed, decided.state) != (state.step, state.deployed, state.state):
                self._watch = None
            await self._store.save(decided)
            self._report_new(look.now, state.history, decided.history)
            self._report_waiting(decided)
            state = decided
            if restart is not None:
                try:
                    await self._operated[restart.environment].restart(restart.process, restart.assigned)
                except Unavailable as error:
                    self._failed = error.message
            elif not state.over:
                await self._sleep(self._plan.manifest.look_s if state.deployed else SOON_S)
        return state

    async def _look(self, state: RolloutState | None) -> RolloutLook:
        found = await asyncio.gather(*(self._operated[name].look() for name in ENVIRONMENTS))
        reports = {name: one[0] for name, one in zip(ENVIRONMENTS, found, strict=True)}
        problems = {name: one[1] for name, one in zip(ENVIRONMENTS, found, strict=True)}
        if state is None:
            return RolloutLook(self._clock(), reports, problems)
        aborted = await self._store.aborted() if state.state == RUNNING else ""
        look = RolloutLook(self._clock(), reports, problems, failed=self._failed, aborted=aborted)
        if not (state.deployed and state.state == RUNNING):
            return look
        step = next(one for one in self._plan.steps if one.name == state.step)
        counters = {name: await self._operated[name].counters() for name in step.watched}
        watch = self._watch = self._watch or StepWatch(self._plan, step)
        now = self._clock()
        judged = watch.note(now, counters, state.reference_counts())
        return RolloutLook(
            now,
            reports,
            problems,
            judged,
            watch.shares,
            excessive(watch.shares, watch.certain_shares, self._plan.manifest.canary.share_max)
            if PRODUCTION in step.watched
            else "",
            watch.reference,
            self._failed,
            aborted,
        )

    def _report_new(
        self, now: float, before: tuple[tuple[float, str], ...], after: tuple[tuple[float, str], ...]
    ) -> None:
        known = set(before)
        for one in after:
            if one not in known:
                self._report(one[1])

    def _report_waiting(self, state: RolloutState) -> None:
        text = state.waits_for
        kind = "".join(letter for letter in text if not letter.isdigit())
        if text and kind != self._waits_for:
            self._report(f"{state.step}: waiting: {text}")
        self._waits_for = kind

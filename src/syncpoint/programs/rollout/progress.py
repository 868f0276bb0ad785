"""How far a rollout is, and what is done next: from one look at the environments to one restart, or none.

Place: the machine of this room. `controller` looks, asks `decide`, stores the state and carries out the decision.
Promise: a step begins when the one before is done, and there is no other way to it. Whatever breaks leads back, from
any step, and the way back ends only when every process runs what it ran before. What processes run is what they report
at this look: so it goes on rightly wherever an earlier controller ended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from syncpoint.programs.rollout.analysis import EVIDENCE, ReleaseJudgement
from syncpoint.programs.rollout.counters import MethodCounts
from syncpoint.programs.rollout.fleet import Assigned
from syncpoint.programs.rollout.parity import Reports, differences
from syncpoint.programs.rollout.rollout_file import ENVIRONMENTS, PRODUCTION, STAGING
from syncpoint.programs.rollout.rollout_plan import CANARY, RolloutPlan, Step

RUNNING, ROLLING_BACK, DONE, ROLLED_BACK = "running", "rolling back", "done", "rolled back"
HISTORY_MAX: Final = 200
EXPECTED: Final = ("versions are mixed",)
"""What a cluster's problems begin with that a rollout brings along."""


@dataclass(frozen=True, slots=True)
class RestartedProcess:
    """The restart that was asked for last. `since`: seconds since 1970."""

    environment: str
    process: str
    since: float


@dataclass(frozen=True, slots=True)
class RolloutState:
    """All that a controller must know to go on, as it is stored and shown. Times are seconds since 1970."""

    name: str
    version: str
    commit: str
    manifest: str  # digest of what the plan was made of
    state: str = RUNNING
    step: str = ""
    steps: tuple[str, ...] = ()
    deployed: bool = False  # the step's processes all run what they are to run; it is watched now
    watched_s: float = 0.0
    watch_s: float = 0.0
    begun: float = 0.0
    looked: float = 0.0
    ended: float = 0.0
    restarting: RestartedProcess | None = None
    troubled: float = 0.0  # since when something is wrong that was not when it began
    waits_for: str = ""
    reason: str = ""  # why it goes back
    shares: Mapping[str, float] = field(default_factory=dict)  # by role, what processes with the release do of all
    figures: Mapping[str, float] = field(default_factory=dict)
    problems: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # of environments, when it began
    reference: tuple[tuple[str, str, tuple[float, ...], tuple[float, ...]], ...] = ()  # listener, method, buckets
    history: tuple[tuple[float, str], ...] = ()
    controller: str = ""

    @property
    def over(self) -> bool:
        """Whether nothing more is done."""
        return self.state in (DONE, ROLLED_BACK)

    def encode(self) -> dict[str, Any]:
        """As JSON has it."""
        return asdict(self)

    @staticmethod
    def decode(found: Mapping[str, Any]) -> RolloutState:
        """Parse the result of `encode`, ignoring keys of later versions.

        Raises `TypeError`, `KeyError`, `ValueError`.
        """
        known = {key: found[key] for key in RolloutState.__dataclass_fields__ if key in found}
        restarting = known.get("restarting")
        known["restarting"] = None if restarting is None else RestartedProcess(**restarting)
        known["steps"] = tuple(known.get("steps", ()))
        known["problems"] = {name: tuple(texts) for name, texts in known.get("problems", {}).items()}
        known["history"] = tuple((float(at), str(text)) for at, text in known.get("history", ()))
        known["reference"] = tuple(
            (str(listener), str(method), tuple(bounds), tuple(buckets))
            for listener, method, bounds, buckets in known.get("reference", ())
        )
        return RolloutState(**known)

    def reference_counts(self) -> dict[tuple[str, str], MethodCounts]:
        """What processes without the release had, while there were some."""
        return {(one[0], one[1]): MethodCounts({}, one[2], one[3]) for one in self.reference}


@dataclass(frozen=True, slots=True)
class RolloutLook:
    """What was found at one look. `judged`: of a step that is watched; `failed`: why the last restart did not work;
    `aborted`: who wants it undone, and why."""

    now: float
    reports: Mapping[str, Reports]
    problems: Mapping[str, Sequence[str]]
    judged: ReleaseJudgement | None = None
    shares: Mapping[str, float] = field(default_factory=dict)
    too_much: str = ""  # the canary does more than it may
    reference: tuple[tuple[str, str, tuple[float, ...], tuple[float, ...]], ...] = ()
    failed: str = ""
    aborted: str = ""


@dataclass(frozen=True, slots=True)
class Restart:
    """One process is to run something else."""

    environment: str
    process: str
    assigned: Assigned


def begin(plan: RolloutPlan, manifest: str, look: RolloutLook, controller: str) -> RolloutState:
    """The state of a rollout that nothing refuses (`admission_check`)."""
    first = plan.steps[0]
    made = RolloutState(
        plan.manifest.name,
        plan.manifest.release.version,
        plan.manifest.release.commit,
        manifest,
        step=first.name,
        steps=tuple(one.name for one in plan.steps),
        watch_s=first.watch_s,
        begun=look.now,
        looked=look.now,
        problems={name: tuple(texts) for name, texts in look.problems.items()},
        controller=controller,
    )
    passed = f"tests passed: {made.version} at {made.commit[:12]}; staging and production run the same"
    return _said(_said(made, look.now, passed), look.now, f"{first.name}: started")


def taken_over(state: RolloutState, controller: str, now: float) -> RolloutState:
    """Another controller goes on. The restart under way is done again: nobody knows whether it was."""
    again = None if state.restarting is None else replace(state.restarting, since=0.0)
    made = replace(state, controller=controller, restarting=again, troubled=0.0, looked=now)
    return _said(made, now, f"{controller} took over")


def decide(plan: RolloutPlan, state: RolloutState, look: RolloutLook) -> tuple[RolloutState, Restart | None]:
    """The state after a look, and what to do then."""
    before, state = state, replace(state, looked=look.now, waits_for="")
    if state.over:
        return state, None
    if state.state == ROLLING_BACK:
        return _back(plan, state, look)
    if look.aborted:
        return _turned(plan, state, look, f"aborted by {look.aborted}")
    step = _step(plan, state)
    if not state.deployed:
        return _deploying(plan, state, look, step)
    return _watching(plan, state, look, step, min(look.now - before.looked, 2 * plan.manifest.look_s))


def _step(plan: RolloutPlan, state: RolloutState) -> Step:
    return next(one for one in plan.steps if one.name == state.step)


def _deploying(
    plan: RolloutPlan, state: RolloutState, look: RolloutLook, step: Step
) -> tuple[RolloutState, Restart | None]:
    within = plan.manifest.restart_within_s
    if look.failed:
        return _turned(plan, state, look, look.failed)
    restarting = state.restarting
    mismatched = next(iter(_all_mismatched(plan, look, step, step)), None)
    worse = _worse(state, look)
    again = restarting is not None and not restarting.since and mismatched is not None
    if again and mismatched is not None and restarting is not None:
        again = mismatched[:2] == (restarting.environment, restarting.process)
    if restarting is not None and restarting.since:
        same = mismatched is not None and (mismatched[0], mismatched[1]) == (restarting.environment, restarting.process)
        if same or worse:
            waits = (
                f"{restarting.environment}: {restarting.process} does not report {_what(mismatched[2])} yet"
                if same and mismatched is not None
                else f"after the restart of {restarting.process}: {'; '.join(worse)}"
            )
            if look.now - restarting.since > within:
                return _turned(plan, state, look, f"{waits}, {within:g} s after the restart")
            return replace(state, waits_for=waits), None
    elif worse and not again:
        return _troubled(plan, state, look, step, worse)
    if mismatched is not None and look.reports[mismatched[0]].get(mismatched[1]) is None and not again:
        return _troubled(plan, state, look, step, [f"{mismatched[0]}: {mismatched[1]} does not answer"])
    if mismatched is not None:
        environment, process, assigned = mismatched
        made = replace(state, restarting=RestartedProcess(environment, process, look.now), troubled=0.0)
        return _said(made, look.now, f"{environment}: {process} is restarted with {_what(assigned)}"), Restart(
            *mismatched
        )
    unlike = _unlike_staging(look, step)
    if unlike:
        return _turned(plan, state, look, f"processes differ from staging: {'; '.join(unlike)}")
    state = replace(state, deployed=True, restarting=None, troubled=0.0)
    count = sum(len(names) for names in step.released.values())
    state = _said(state, look.now, f"{step.name}: {count} processes report version {plan.manifest.release.version}")
    return _ended(plan, state, look) if not step.watched else (state, None)


def _watching(
    plan: RolloutPlan, state: RolloutState, look: RolloutLook, step: Step, passed_s: float
) -> tuple[RolloutState, Restart | None]:
    state = replace(state, shares=dict(look.shares), figures=dict(look.judged.figures) if look.judged else {})
    if look.judged is not None and look.judged.breaches:
        return _turned(plan, state, look, "; ".join(look.judged.breaches))
    if look.too_much and step.name == CANARY:
        return _turned(plan, state, look, look.too_much)
    worse = [
        f"{environment}: {process} no longer runs {_what(assigned)}"
        for environment, process, assigned in _all_mismatched(plan, look, step, step)
        if process in step.released.get(environment, ())
    ] + _worse(state, look)
    if worse:
        return _troubled(plan, state, look, step, worse)
    state = replace(state, watched_s=state.watched_s + max(0.0, passed_s), troubled=0.0)
    lacking = look.judged.lacking if look.judged is not None else ("no metrics yet",)
    if state.watched_s < step.watch_s:
        return replace(
            state, waits_for=f"{step.watch_s - state.watched_s:.0f} s of {step.watch_s:g} s left to watch"
        ), None
    if lacking:
        return replace(state, waits_for=f"too little traffic to judge: {'; '.join(lacking)}"), None
    return _ended(plan, replace(state, reference=look.reference or state.reference), look)


def _troubled(
    plan: RolloutPlan, state: RolloutState, look: RolloutLook, step: Step, worse: Sequence[str]
) -> tuple[RolloutState, None]:
    """Trouble of a process with the release leads back when it lasts; other trouble is waited out; no time counts."""
    text = "; ".join(worse)
    since = state.troubled or look.now
    ours = []
    for one in worse:
        environment, _, what = one.partition(": ")
        words = what.replace(":", " ").split()
        if any(name in words for name in step.released.get(environment, ())):
            ours.append(one)
    if ours and look.now - since > plan.manifest.restart_within_s:
        return _turned(plan, state, look, f"for {plan.manifest.restart_within_s:g} s: {'; '.join(ours)}")
    return replace(state, troubled=since, waits_for=text), None


def _ended(plan: RolloutPlan, state: RolloutState, look: RolloutLook) -> tuple[RolloutState, None]:
    """The step is done: the next one begins, or all is done."""
    names = [one.name for one in plan.steps]
    index = names.index(state.step)
    if index + 1 == len(names):
        made = replace(state, state=DONE, ended=look.now)
        return _said(made, look.now, f"done: all of production runs version {state.version}"), None
    following = plan.steps[index + 1]
    share = ", ".join(f"{role} {one:.0%}" for role, one in state.shares.items())
    made = _said(
        state, look.now, f"{state.step}: passed{f' (share of all work: {share})' if share and state.watched_s else ''}"
    )
    made = replace(
        made, step=following.name, deployed=False, watched_s=0.0, watch_s=following.watch_s, restarting=None, shares={},
        figures={},
    )  # fmt: skip
    return _said(made, look.now, f"{following.name}: started"), None


def _turned(plan: RolloutPlan, state: RolloutState, look: RolloutLook, reason: str) -> tuple[RolloutState, None]:
    made = replace(state, state=ROLLING_BACK, reason=reason, restarting=None, deployed=False, troubled=0.0)
    return _said(made, look.now, f"{state.step}: rolling back: {reason}"), None


def _back(plan: RolloutPlan, state: RolloutState, look: RolloutLook) -> tuple[RolloutState, Restart | None]:
    """Production first. A process that does not come back is restarted again and again; others do not wait for it."""
    again_s, within = plan.manifest.look_s, plan.manifest.restart_within_s
    missing = _all_mismatched(plan, look, None, _step(plan, state))
    if not missing:
        made = replace(state, state=ROLLED_BACK, ended=look.now, restarting=None)
        version = plan.manifest.before.version
        return _said(made, look.now, f"rolled back: all processes report version {version}, as before"), None
    last = state.restarting
    if last is not None and look.now - last.since < (again_s if look.failed else within):
        pending = any(last.process == process and last.environment == name for name, process, _ in missing)
        worse = [one for one in _worse(state, look) if one.startswith(f"{last.environment}:")]
        if pending or worse:
            why = look.failed or (f"{last.process} to report its previous version" if pending else "; ".join(worse))
            return replace(state, waits_for=why), None
    candidates = missing
    if last is not None and len(missing) > 1:  # one that fails again does not keep the others waiting
        candidates = [one for one in missing if one[:2] != (last.environment, last.process)]
    environment, process, assigned = candidates[0]
    made = replace(state, restarting=RestartedProcess(environment, process, look.now))
    return (
        _said(made, look.now, f"{environment}: {process} returns to {_what(assigned)}"),
        Restart(environment, process, assigned),
    )


def _all_mismatched(
    plan: RolloutPlan, look: RolloutLook, step: Step | None, reached: Step
) -> list[tuple[str, str, Assigned]]:
    """Processes that do not report what they are to run in a step (None: before all), in the order in which they are
    restarted. A silent one is among them where this rollout has `reached` it; others are their operator's.
    """
    found = []
    for environment in ENVIRONMENTS if step is not None else reversed(ENVIRONMENTS):
        for process in plan.in_order(environment):
            assigned = plan.wanted(environment, process, step)
            one = look.reports[environment].get(process)
            if one is None and process not in reached.released.get(environment, ()):
                continue
            if one is None or (one.version, one.source) != (assigned.version, assigned.source):
                found.append((environment, process, assigned))
    return found


def _worse(state: RolloutState, look: RolloutLook) -> list[str]:
    """What is wrong that was not when it began."""
    return [
        f"{name}: {text}"
        for name, texts in look.problems.items()
        for text in texts
        if text not in state.problems.get(name, ()) and not text.startswith(EXPECTED)
    ]


def _unlike_staging(look: RolloutLook, step: Step) -> list[str]:
    names = step.released.get(PRODUCTION, frozenset())
    if not names:
        return []
    released = {name: one for name, one in look.reports[PRODUCTION].items() if name in names}
    return differences(STAGING, look.reports[STAGING], PRODUCTION, released, of_both=True)


def excessive(shares: Mapping[str, float], certain: Mapping[str, float], share_max: float) -> str:
    """That a canary does more than it may; `certain`: the least share that is sure."""
    found = [
        f"{role} {shares[role]:.0%}"
        for role, least in sorted(certain.items())
        if role in EVIDENCE and least > share_max
    ]
    return f"the canary handles more than {share_max:.0%} of all work: {', '.join(found)}" if found else ""


def _what(assigned: Assigned) -> str:
    return f"version {assigned.version} with {assigned.settings.name}"


def _said(state: RolloutState, now: float, text: str) -> RolloutState:
    return replace(state, history=(*state.history, (now, text))[-HISTORY_MAX:])

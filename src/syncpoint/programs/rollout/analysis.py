"""Whether processes with a release are worse than others: counts of the same time, method by method.

Place: asked at every look of a step that is watched; `progress` decides what follows. Plain values in and out.
Promise: what is called worse is worse beyond chance (`proportions`), so a few unlucky calls undo nothing; what too few
calls say nothing about is called lacking, never good.

  errors        the least share of calls that fail with the release, as far as is certain, is above the highest that the
                others have, and above `errors_ratio_max`
  p99           above `p99_ratio_max` times that of the others and `p99_above_s` more than it; and for certain more than
                1 in 100 calls are slower than the bucket in which the others have theirs
  redeliveries  as errors, of messages delivered
  burn rate     failed calls of clients, as a multiple of what the availability allows, for certain above `burn_max`
  corruption    any damaged or unreadable place that was found on a disk of the environment
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from syncpoint.programs.rollout.counters import CLIENTS, Method, MethodCounts, ProcessCounters
from syncpoint.programs.rollout.proportions import above, interval
from syncpoint.programs.rollout.rollout_file import Thresholds

NO_ERROR: Final = frozenset({"OK", "CANCELLED", "NOT_FOUND", "ALREADY_EXISTS"})
"""Codes that are no failure of the server: what the caller wants is not, or is, there; or he went away."""

WAITING: Final = (".Pull", ".StreamingPull", ".Watch", ".Serve", ".Stay")
"""Methods that last as long as their caller likes: their times say nothing."""

EVIDENCE: Final = {
    "proxy": "client calls",
    "publish-forwarder": "messages accepted",
    "subscribe-forwarder": "deliveries",
}
"""Roles that are judged by what they did, and what there has to be enough of."""

WEIGHTY: Final = ((CLIENTS, "Publisher.Publish"), ("members", "Chains.Publish"))
"""Methods that a release must have answered often enough where the others have: no number of other calls stands for
them, and a client that was refused once may stay away for a while."""

Reference = Mapping[Method, MethodCounts]


@dataclass(frozen=True, slots=True)
class ReleaseJudgement:
    """`breaches`: why it must go back; `lacking`: of what there was too little; `figures`: for who looks."""

    breaches: tuple[str, ...] = ()
    lacking: tuple[str, ...] = ()
    figures: Mapping[str, float] = field(default_factory=dict)


def compare(
    released: ProcessCounters, others: ProcessCounters | None, limits: Thresholds, reference: Reference | None = None
) -> list[str]:
    """Why the release is worse. `others`: without it, in the same time; None: there are none left, and response times
    are held against `reference`, what others had in an earlier step."""
    found = list(_burning(released, limits))
    for method, mine in sorted(released.methods.items()):
        theirs = others.methods.get(method) if others is not None else None
        if theirs is not None:
            found += _failing(method, mine, theirs, limits)
        slow = theirs if others is not None else (reference or {}).get(method)
        if slow is not None and not method[1].endswith(WAITING):
            found += _slower(method, mine, slow, limits)
    if others is not None:
        found += _redelivering(released, others, limits)
    return found


def corrupted(counted: ProcessCounters) -> list[str]:
    """What was found damaged in the time of these counts."""
    words = {"damaged": "damaged", "unreadable": "unreadable"}
    return [
        f"{counted.sums[key]:g} {word} places found on disks"
        for key, word in words.items()
        if counted.sums.get(key, 0) > 0
    ]


def lacking(roles: frozenset[str], who: str, counted: ProcessCounters, limits: Thresholds) -> list[str]:
    """List, as sentences, roles for which these processes have done too little work to be judged."""
    found = []
    for role, what in EVIDENCE.items():
        done = evidence(role, counted)
        if role in roles and done < limits.calls_min:
            found.append(f"{who}: {done:g} of {limits.calls_min} {what} ({role})")
    return found


def unlike(released: ProcessCounters, others: ProcessCounters, limits: Thresholds) -> list[str]:
    """Methods that matter, and that the others were called for and the release was not."""
    nothing = MethodCounts()
    return [
        f"with the release: {released.methods.get(method, nothing).calls:g} of {limits.calls_min} calls of {method[1]}"
        for method in WEIGHTY
        if others.methods.get(method, nothing).calls >= limits.calls_min
        and released.methods.get(method, nothing).calls < limits.calls_min
    ]


def evidence(role: str, counted: ProcessCounters) -> float:
    """How much processes of a role have done."""
    if role == "proxy":
        return sum(one.calls for (listener, _), one in counted.methods.items() if listener == CLIENTS)
    name = {
        "publish-forwarder": "published",
        "subscribe-forwarder": "delivered",
        "router": "routed",
        "storage": "stored",
    }
    return counted.sums.get(name[role], 0.0)


def errors(one: MethodCounts) -> float:
    """Calls that failed."""
    return sum(number for code, number in one.codes.items() if code not in NO_ERROR)


def _failing(method: Method, mine: MethodCounts, theirs: MethodCounts, limits: Thresholds) -> Iterator[str]:
    least, _ = interval(errors(mine), mine.calls)
    _, most = interval(errors(theirs), theirs.calls)
    if least > max(most, limits.errors_ratio_max):
        yield (
            f"{method[1]} fails: {errors(mine):g} of {mine.calls:g} with the release ({_codes(mine)}), "
            f"{errors(theirs):g} of {theirs.calls:g} without"
        )


def _codes(one: MethodCounts) -> str:
    failed = sorted(
        ((number, code) for code, number in one.codes.items() if number and code not in NO_ERROR), reverse=True
    )
    return ", ".join(f"{number:g} {code}" for number, code in failed)


def _slower(method: Method, mine: MethodCounts, theirs: MethodCounts, limits: Thresholds) -> Iterator[str]:
    many = (sum(mine.buckets), sum(theirs.buckets))
    if min(many) < limits.calls_min:
        return
    here, there = (one.within(0.99) for one in (mine, theirs))
    if here <= max(there * limits.p99_ratio_max, there + limits.p99_above_s):
        return
    bound = next((one for one in theirs.bounds if one >= there), theirs.bounds[-1])
    least, _ = interval(above(mine.bounds, mine.buckets, bound), many[0])
    if least > 0.01:
        yield (
            f"{method[1]} is slow: p99 {here * 1000:.1f} ms of {many[0]:g} calls with the release, "
            f"{there * 1000:.1f} ms of {many[1]:g} without"
        )


def _redelivering(released: ProcessCounters, others: ProcessCounters, limits: Thresholds) -> Iterator[str]:
    again, of = (released.sums.get(key, 0.0) for key in ("redelivered", "delivered"))
    theirs, of_theirs = (others.sums.get(key, 0.0) for key in ("redelivered", "delivered"))
    least, _ = interval(again, of)
    _, most = interval(theirs, of_theirs)
    if least > max(most, limits.redeliveries_ratio_max):
        yield (
            f"more messages are redelivered: {again:g} of {of:g} with the release, {theirs:g} of {of_theirs:g} without"
        )


def burn_rate(counted: ProcessCounters, limits: Thresholds) -> tuple[float, float]:
    """Return the burn rate of clients' calls, and its certain lower bound."""
    calls = [one for (listener, _), one in counted.methods.items() if listener == CLIENTS]
    failed, of = sum(errors(one) for one in calls), sum(one.calls for one in calls)
    budget = 1 - limits.availability
    return (failed / of / budget if of else 0.0), interval(failed, of)[0] / budget


def _burning(counted: ProcessCounters, limits: Thresholds) -> Iterator[str]:
    rate, least = burn_rate(counted, limits)
    if least > limits.burn_max:
        yield f"clients' calls fail {rate:.1f} times as often as an availability of {limits.availability:.3%} allows"


def figures(released: ProcessCounters, others: ProcessCounters | None) -> dict[str, float]:
    """Numbers for who looks at a rollout; those of the others where there are any."""
    found: dict[str, float] = {}
    for who, counted in (("released", released), ("others", others)):
        if counted is None:
            continue
        clients = [one for (listener, _), one in counted.methods.items() if listener == CLIENTS]
        found[f"{who}_calls"] = sum(one.calls for one in clients)
        found[f"{who}_errors"] = sum(errors(one) for one in clients)
        found[f"{who}_redelivered"] = counted.sums.get("redelivered", 0.0)
        publish = counted.methods.get((CLIENTS, "Publisher.Publish"))
        if publish is not None and sum(publish.buckets) > 0:
            found[f"{who}_publish_p99_s"] = round(publish.within(0.99), 4)
    return found


def shares(roles: Mapping[str, ProcessCounters], all_of: Mapping[str, ProcessCounters]) -> dict[str, float]:
    """Return the share of each role's work done by processes with the release; idle roles are omitted."""
    found = {}
    for role, mine in roles.items():
        total = evidence(role, all_of[role])
        if total > 0:
            found[role] = round(evidence(role, mine) / total, 4)
    return found

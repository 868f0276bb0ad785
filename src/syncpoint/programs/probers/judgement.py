"""Judgement: from what happened in a run to the three metrics of its prober.

Place: after a run, before `prober_board`. Pure: the same history has the same findings.
Promise: a run that was broken off is no excuse for what it saw (a message that was altered was altered), and is held
against nothing it did not see: what cannot be known is UNKNOWN, which is neither expected nor unexpected.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import Final, NamedTuple

from syncpoint.programs.probers.probe_history import ProbeHistory
from syncpoint.programs.probers.prober_table import Measure, ProberSpec, Wrong

EARLY_S: Final = 0.2  # a lease may end this much early: clocks of timers


class ProbeVerdict(StrEnum):
    """The verdict on a metric after a run."""

    EXPECTED = "expected"
    UNEXPECTED = "unexpected"
    UNKNOWN = "unknown"


class JudgedMetric(NamedTuple):
    """One metric after a run. `value` and `limit`: 1 or 0 of success, seconds of the step that is worst for its limit,
    or the number of what was wrong; None while not known. `text`: what to say where it is not as expected.
    """

    measure: Measure
    verdict: ProbeVerdict
    value: float | None
    limit: float
    text: str = ""


def judge(spec: ProberSpec, history: ProbeHistory, patience: float = 1.0) -> tuple[JudgedMetric, ...]:
    """The three metrics, in the order of `Measure`. `patience` multiplies the limits of durations."""
    return _success(history), _duration(spec, history, patience), _correctness(spec, history)


def _success(history: ProbeHistory) -> JudgedMetric:
    good = not history.failure
    verdict = ProbeVerdict.EXPECTED if good else ProbeVerdict.UNEXPECTED
    return JudgedMetric(Measure.SUCCESS, verdict, float(good), 1.0, history.failure)


def _duration(spec: ProberSpec, history: ProbeHistory, patience: float) -> JudgedMetric:
    limits = {step.name: step.limit_s * patience for step in spec.timed}
    known = [(seconds / limits[name], name, seconds) for name, seconds in history.steps.items()]
    if not known:
        return JudgedMetric(Measure.DURATION, ProbeVerdict.UNKNOWN, None, max(limits.values()), "no measurement")
    ratio, name, seconds = max(known)
    limit = limits[name]
    if ratio > 1.0:
        text = f"{name} took {seconds:.2f} s, more than {limit:g} s"
        return JudgedMetric(Measure.DURATION, ProbeVerdict.UNEXPECTED, seconds, limit, text)
    if history.failure:
        return JudgedMetric(Measure.DURATION, ProbeVerdict.UNKNOWN, seconds, limit, "the run was interrupted")
    return JudgedMetric(Measure.DURATION, ProbeVerdict.EXPECTED, seconds, limit)


def _correctness(spec: ProberSpec, history: ProbeHistory) -> JudgedMetric:
    found = wrong(spec, history)
    if found:
        text = ", ".join(f"{count} {what}" for what, count in found.items())
        return JudgedMetric(Measure.CORRECTNESS, ProbeVerdict.UNEXPECTED, float(sum(found.values())), 0.0, text)
    if history.failure:
        return JudgedMetric(Measure.CORRECTNESS, ProbeVerdict.UNKNOWN, None, 0.0, "the run was interrupted")
    return JudgedMetric(Measure.CORRECTNESS, ProbeVerdict.EXPECTED, 0.0, 0.0)


def wrong(spec: ProberSpec, history: ProbeHistory) -> dict[Wrong, int]:
    """What was wrong, and how much of it; of a run that was broken off, nothing that its end explains."""
    kinds = [one for one in spec.wrong if not (history.failure and one in _ONLY_AT_THE_END)]
    counted = {kind: _COUNTED[kind](history) for kind in kinds}
    return {kind: count for kind, count in counted.items() if count}


def _lost(history: ProbeHistory) -> int:
    answered = [one.number for one in history.sent if one.answered]
    return sum(len(history.missing(answered, path)) for path in history.paths)


def _duplicated(history: ProbeHistory) -> int:
    """Those before an acknowledgement was answered; those after it are redelivered."""
    before = (one for one in history.arrived if one.at <= history.acknowledged_at.get(one.number, one.at))
    often = Counter((one.number, one.path) for one in before)
    return sum(max(0, count - history.again.get(number, 1)) for (number, _), count in often.items())


def _redelivered(history: ProbeHistory) -> int:
    return sum(one.at > history.acknowledged_at.get(one.number, one.at) for one in history.arrived)


def _altered(history: ProbeHistory) -> int:
    sent = {one.number: one for one in history.sent}
    known = [(sent[one.number], one) for one in history.arrived if one.number in sent and one.run == history.run]
    return sum(message.data != came.data or message.key != came.key for message, came in known)


def _renamed(history: ProbeHistory) -> int:
    """By ids that the publisher knows for certain; a copy has one of its own."""
    unknown = {one.number for one in history.sent if history.copies or not one.answered}
    ids = {one.number: one.id for one in history.sent if one.id and one.number not in unknown}
    return sum(one.number in ids and one.id != ids[one.number] for one in history.arrived)


def _foreign(history: ProbeHistory) -> int:
    numbers = {one.number for one in history.sent}
    return sum(one.number not in numbers or one.run != history.run for one in history.arrived)


def _disordered(history: ProbeHistory) -> int:
    keys = {one.number: one.key for one in history.sent}
    count, seen, highest = 0, set(), dict.fromkeys(keys.values(), -1)
    for one in history.arrived:
        if one.number in keys and one.number not in seen:
            seen.add(one.number)
            key = keys[one.number]
            count += one.number < highest[key]
            highest[key] = max(highest[key], one.number)
    return count


def _id_repeated(history: ProbeHistory) -> int:
    ids = [one.id for one in history.sent if one.id]
    return len(ids) - len(set(ids)) + len(set(ids) & history.earlier_ids)


def _unreturned(history: ProbeHistory) -> int:
    return sum(len(history.missing([number], times=times)) for number, times in history.again.items())


def _early(history: ProbeHistory) -> int:
    count = 0
    for number, earliest in history.not_before.items():
        second = [one.at for one in history.arrived if one.number == number][1:2]
        count += bool(second) and second[0] < earliest - EARLY_S
    return count


def _disagreeing(history: ProbeHistory) -> int:
    return max(0, len(set(history.forwarders)) - 1)


_COUNTED: Final[dict[Wrong, Callable[[ProbeHistory], int]]] = {
    Wrong.LOST: _lost,
    Wrong.DUPLICATED: _duplicated,
    Wrong.ALTERED: _altered,
    Wrong.RENAMED: _renamed,
    Wrong.FOREIGN: _foreign,
    Wrong.DISORDERED: _disordered,
    Wrong.UNNAMED: lambda history: sum(one.answered and not one.id for one in history.sent),
    Wrong.ID_REPEATED: _id_repeated,
    Wrong.REDELIVERED: _redelivered,
    Wrong.UNRETURNED: _unreturned,
    Wrong.EARLY: _early,
    Wrong.UNLIKE: lambda history: sum(one.expected != one.found for one in history.read),
    Wrong.UNLISTED: lambda history: len(history.unlisted) + sum(not one for one in history.forwarders),
    Wrong.UNDELETED: lambda history: len(history.undeleted),
    Wrong.DISAGREEING: _disagreeing,
}
_ONLY_AT_THE_END: Final = (Wrong.LOST, Wrong.UNRETURNED)


def as_expected(findings: Iterable[JudgedMetric]) -> bool:
    """Whether all of them are."""
    return all(one.verdict is ProbeVerdict.EXPECTED for one in findings)

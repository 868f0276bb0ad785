"""Named checkers beside those of `testing.checkers`: what only a simulation can see.

Each states one promise and lists every place where it was broken.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from syncpoint.testing.checkers import CHECKERS, Verdict
from syncpoint.testing.history import History, Identity, Outcome


def one_writer_per_log(intruders: Sequence[str], commands: int) -> Verdict:
    """Once a disk has answered for an epoch, it executes nothing under a lower one."""
    return Verdict("one writer per log", commands, tuple(intruders))


def sought_is_delivered_again(history: History, seeks: Sequence[tuple[str, int, int]]) -> Verdict:
    """After a seek to the beginning has returned, everything confirmed before it began comes once more."""
    checked, violations = 0, []
    created = {one.subscription: one.ended for one in history.creations if one.outcome is Outcome.OK}
    for subscription, begun, _ in seeks:
        seen: set[Identity | None] = {
            one.identity for one in history.deliveries if one.subscription == subscription and one.at > begun
        }
        for publish in history.publishes:
            if (
                publish.outcome is Outcome.OK
                and created.get(subscription, begun) < publish.begun
                and publish.ended < begun
            ):
                checked += 1
                if publish.identity not in seen:
                    violations.append(f"{subscription} did not get {publish.identity} again after its seek")
    return Verdict("sought is delivered again", checked, tuple(violations))


def converged(complaints: Sequence[str], checked: int) -> Verdict:
    """Once all faults are healed, everything is delivered, acknowledged, and on all disks again."""
    return Verdict("convergence after heal", checked, tuple(complaints))


def judge(history: History, further: Iterable[Verdict]) -> tuple[list[str], dict[str, int]]:
    """All violations, as sentences, and how much every checker looked at."""
    found: list[str] = []
    looked: dict[str, int] = defaultdict(int)
    for verdict in (*(checker(history) for checker in CHECKERS), *further):
        looked[verdict.name] += verdict.checked
        found += [f"{verdict.name}: {one}" for one in verdict.violations[:5]]
        if len(verdict.violations) > 5:
            found.append(f"{verdict.name}: and {len(verdict.violations) - 5} more")
    return found, dict(looked)

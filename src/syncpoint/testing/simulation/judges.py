"""Named checkers beside those of `testing.checkers`: what only a simulation can see.

Each states one promise and lists every place where it was broken.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from syncpoint.testing.checkers import CHECKERS, Verdict
from syncpoint.testing.history import History, Outcome
from syncpoint.testing.simulation.base import Moments


def one_writer_per_log(intruders: Sequence[str], commands: int) -> Verdict:
    """Once a disk has answered for an epoch, it executes nothing under a lower one. What it executed before it may
    confirm once more to whoever asks again: that is true, and the new owner has seen it (see `disks.DiskServer.run`).
    """
    return Verdict("one writer per log", commands, tuple(intruders))


@dataclass(eq=False)
class Taken:
    """A snapshot of a subscription, and the stamps between which it was created."""

    subscription: str
    snapshot: int
    begun: int
    ended: int = 0


@dataclass(eq=False)
class Seek:
    """A seek of a subscription to a snapshot, or to the beginning (None), and its stamps. `quiet`: nothing was broken
    then, and everything had been delivered.
    """

    subscription: str
    taken: Taken | None
    begun: int
    ended: int = 0
    quiet: bool = False


class Sets:
    """What one subscription had acknowledged for certain, and what for certain not, at each of its snapshots."""

    def __init__(self, history: History, subscription: str, seeks: Sequence[Seek]) -> None:
        (self._created,) = [one.ended for one in history.creations if one.subscription == subscription]
        self._published = [one for one in history.publishes if one.outcome is Outcome.OK and one.begun > self._created]
        self._acks = [one for one in history.acks if one.subscription == subscription]
        self._deliveries = [one for one in history.deliveries if one.subscription == subscription]
        self._seeks = [one for one in seeks if one.subscription == subscription]

    def owed(self, seek: Seek) -> set[str]:
        """Ids of messages that were published before a seek, and are unacknowledged after it."""
        before = {one.message_id for one in self._published if one.ended < seek.begun}
        if seek.taken is not None:
            taken = seek.taken
            before -= self.perhaps(taken)
        return before

    def certain(self, taken: Taken) -> set[str]:
        """Ids that were acknowledged before a snapshot was taken."""
        last = self._last_before(taken)
        begun = last.ended if last is not None else 0
        # An acknowledgement of what was delivered before a seek is answered, and does not count after it.
        old = {one.message_id for one in self._deliveries if one.at < begun}
        found = {
            one.message_id
            for one in self._acks
            if one.outcome is Outcome.OK and begun < one.begun and one.ended < taken.begun
        }
        return found - old | (self.certain(last.taken) if last is not None and last.taken is not None else set())

    def perhaps(self, taken: Taken) -> set[str]:
        """Ids that may have been acknowledged when a snapshot was taken."""
        last = self._last_before(taken)
        begun = last.begun if last is not None else 0
        found = {one.message_id for one in self._acks if begun < one.begun < taken.ended}
        return found | (self.perhaps(last.taken) if last is not None and last.taken is not None else set())

    def _last_before(self, taken: Taken) -> Seek | None:
        """Snapshots and seeks of one subscription come one after the other."""
        return max((one for one in self._seeks if one.ended < taken.begun), key=lambda one: one.begun, default=None)


def sought_is_delivered_again(history: History, seeks: Sequence[Seek]) -> Verdict:
    """After a seek everything comes once more that was published before it and is unacknowledged by it: all of it after
    a seek to the beginning, after one to a snapshot what was not acknowledged when that was taken.
    """
    checked, violations = 0, []
    for seek in seeks:
        sets = Sets(history, seek.subscription, seeks)
        mine = (one for one in history.deliveries if one.subscription == seek.subscription)
        seen = {one.message_id for one in mine if one.at > seek.begun}
        # A publish that was sent again may be stored, and delivered, under another id, too; the one it was told counts.
        owed = sets.owed(seek)
        checked += len(owed)
        violations += [f"{seek.subscription} did not get {one} again after its seek" for one in sorted(owed - seen)]
    return Verdict("sought is delivered again", checked, tuple(violations))


def snapshots_keep_acknowledgements(history: History, seeks: Sequence[Seek]) -> Verdict:
    """A seek to a snapshot, when all is quiet, brings nothing back that was acknowledged when it was taken."""
    checked, violations = 0, []
    for seek in seeks:
        if seek.taken is None or not seek.quiet:
            continue
        acknowledged = Sets(history, seek.subscription, seeks).certain(seek.taken)
        checked += len(acknowledged)
        for one in history.deliveries:
            if one.subscription == seek.subscription and one.at > seek.begun and one.message_id in acknowledged:
                violations.append(f"{seek.subscription} got {one.message_id} again, acknowledged before its snapshot")
    return Verdict("snapshots keep acknowledgements", checked, tuple(violations))


def progress(history: History, moments: Moments, prompt_s: float) -> Verdict:
    """Once all is healed, and it is published, a message is delivered for the first time within so many seconds."""
    checked, violations = 0, []
    for creation in history.creations:
        for publish in history.publishes:
            if publish.outcome is not Outcome.OK or publish.begun < creation.ended:
                continue
            came = moments.delivered.get((creation.subscription, publish.identity))
            if came is None:
                continue  # what never comes is for others to judge
            checked += 1
            took = came - max(moments.healed, moments.published[publish.identity])
            if took > prompt_s:
                violations.append(f"{creation.subscription} got {publish.identity} only {took:.1f} s after the healing")
    return Verdict("progress", checked, tuple(violations))


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

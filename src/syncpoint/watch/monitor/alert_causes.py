"""What follows from what: a process that is gone takes its disks with it, which is one page and not twenty.

Place: between the conditions of a look and the alerts' machine. Owners of chains say who serves which disk.
Promise: only what a missing process or a dead disk explains follows from it, of rules that say nothing worse: what is
lost, corrupted, full, refused or served by nobody is notified of on its own. What held before does not follow. What
still holds `LINGER_S` after the cause is over is notified of. Of an error budget only what was spent while clients
moved to other processes, and back, is explained: who goes on failing is notified of. A process that was back before
anybody was notified of it explains nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from syncpoint.watch.monitor.alert_rules import GROWN_S, THRESHOLD_RULES, UNANSWERED, AlertCondition
from syncpoint.watch.monitor.increases import Look
from syncpoint.watch.monitor.scraped_text import Labels

DISK_SERVED: Final = "syncpoint_chain_disk"
DISK_STATE: Final = "syncpoint_disk_state"
GONE, DEAD = "ProcessUnanswered", "DiskDead"
FOLLOWING: Final = {
    GONE: frozenset({"UnderReplicated", "MessagesAtRisk", "DiskDead", "DiskGivenUp"}),
    DEAD: frozenset({"UnderReplicated", "MessagesAtRisk", "DiskGivenUp"}),
}
LINGER_S: Final = (
    GROWN_S + 60.0
)  # a counter that grew counts as growing for this long, and filling a disk takes a while
MOVING_S: Final = 120.0  # at most, until clients of a process that is gone are well served by others
RETURNING_S: Final = 60.0  # the same of what goes back to it
OF_DISKS: Final = frozenset({"under-replicated-age"})
"""Indicators that are bad for as long as disks are away or dead, and while these are being filled."""
NAMED_MAX: Final = 10
_NOTIFIED_S: Final = next(one.for_s for one in THRESHOLD_RULES if one.name == GONE)

_Key = tuple[str, Labels]


@dataclass(slots=True)
class _Cause:
    """A process does not answer, or a disk of a chain was given up: since when, and when that was seen last. `over`:
    it is not so any more. `disks`: chains and disks that are away with it.
    """

    rule: str
    name: str
    since_s: float
    seen_s: float
    disks: set[tuple[str, str]]
    over: bool = False

    def explains(self, condition: AlertCondition) -> bool:
        """Whether a condition follows."""
        if condition.rule not in FOLLOWING[self.rule]:
            return False
        known = dict(condition.labels)
        chain, disk = known.get("chain"), known.get("disk")
        return any(of == chain and disk in (None, on) for of, on in self.disks)


class AlertCauses:
    """Who serves which disk is remembered: an owner that dies as well no longer reports it. `excuse`: what the events
    that were excused follow from, in words.
    """

    def __init__(self) -> None:
        self.excuse = ""
        self._served: dict[str, set[tuple[str, str]]] = {}  # by process: chains and disks
        self._causes: dict[str, _Cause] = {}
        self._alone: set[_Key] = set()  # held at the last look, and followed from nothing

    def look(self, look: Look, now_s: float) -> bool:
        """Take in who answers, who serves disks, and which are dead. Returns False when a process is back before
        anybody was notified: what was excused by that is not excused.
        """
        for labels in look.get(DISK_SERVED, {}):
            known = dict(labels)
            self._served.setdefault(known["server"], set()).add((known["chain"], known["disk"]))
        seen: dict[str, _Cause] = {}
        for labels, value in look.get(UNANSWERED, {}).items():
            process = dict(labels)["process"]
            if value:
                disks = self._served.setdefault(process, set())
                seen[f"{GONE} of {process}"] = _Cause(GONE, f"{GONE} of {process}", now_s, now_s, disks)
        for labels, value in look.get(DISK_STATE, {}).items():
            known = dict(labels)
            if value and known["state"] == "failed":
                name = f"{DEAD} of {_place(known)}"
                seen[name] = _Cause(DEAD, name, now_s, now_s, {(known["chain"], known["disk"])})
        held = True
        for name, before in list(self._causes.items()):
            if name in seen and not before.over:
                seen[name].since_s = before.since_s
            elif name not in seen:
                brief = not before.over and before.rule == GONE and before.seen_s - before.since_s < _NOTIFIED_S
                before.over, held = True, held and not brief
                if not brief and now_s - before.seen_s < LINGER_S:
                    seen[name] = before
        self._causes = seen
        return held

    def explain(self, indicator: str, now_s: float) -> bool:
        """Whether events of this look that are not good are excused."""
        for one in sorted(self._causes.values(), key=lambda one: -one.since_s):
            moving = now_s - one.since_s < MOVING_S or (one.over and now_s - one.seen_s < RETURNING_S)
            if (moving and one.rule == GONE) or (one.disks and indicator in OF_DISKS):
                self.excuse = one.name
                return True
        return False

    def with_causes(self, conditions: Iterable[AlertCondition]) -> list[AlertCondition]:
        """Set the cause of each condition, and name in each cause the conditions that follow from it."""
        found = [one._replace(follows=self._cause(one)) for one in conditions]
        self._alone = {one.key for one in found if not one.follows}
        return [_naming(one, found) for one in found]

    def _cause(self, condition: AlertCondition) -> str:
        if condition.key in self._alone:
            return ""
        found = sorted((one.rule != GONE, one.name) for one in self._causes.values() if one.explains(condition))
        return found[0][1] if found else condition.follows


def words_of(rule: str, labels: Labels) -> str:
    """How an alert's `follows` names the condition that it follows from."""
    return f"{rule} of {_place(dict(labels))}"


def _naming(condition: AlertCondition, all_of: Iterable[AlertCondition]) -> AlertCondition:
    if condition.rule not in FOLLOWING:
        return condition
    mine = words_of(condition.rule, condition.labels)
    following: dict[str, list[str]] = {}
    for one in all_of:
        if one.follows == mine:
            following.setdefault(one.rule, []).append(_place(dict(one.labels)))
    if not following:
        return condition
    consequences = "; ".join(f"{rule} of {_listed(places)}" for rule, places in sorted(following.items()))
    return condition._replace(summary=f"{condition.summary} This also causes: {consequences}.")


def _place(labels: Mapping[str, str]) -> str:
    if "chain" not in labels:
        return labels.get("slo") or labels.get("process", "")
    disk = labels.get("disk", "")
    return f"chain {labels['chain']}{f' on {disk}' if disk else ''}"


def _listed(places: list[str]) -> str:
    more = len(places) - NAMED_MAX
    return ", ".join(sorted(places)[:NAMED_MAX]) + (f" and {more} more" if more > 0 else "")

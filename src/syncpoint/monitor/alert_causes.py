"""What follows from what: a process that is gone takes its disks with it, which is one page and not twenty.

Place: between the conditions of a look and the alerts' machine. Owners of chains say who serves which disk.
Promise: only what a missing process explains follows from it, of rules that say nothing worse: what is lost, corrupted,
full, refused or served by nobody is notified of on its own. What held before the process was gone does not follow. What
still holds `LINGER_S` after it was back is notified of.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from syncpoint.monitor.alert_rules import GROWN_S, UNANSWERED, AlertCondition
from syncpoint.monitor.increases import Look
from syncpoint.monitor.scraped_text import Labels

DISK_SERVED: Final = "syncpoint_chain_disk"
CAUSE: Final = "ProcessUnanswered"
FOLLOWING: Final = frozenset({"UnderReplicated", "MessagesAtRisk", "DiskDead", "DiskGivenUp"})
LINGER_S: Final = GROWN_S + 60.0  # what grew is said to have grown for so long, and filling a disk takes a while
NAMED_MAX: Final = 10

_Key = tuple[str, Labels]


class AlertCauses:
    """Who serves which disk is remembered: an owner that dies as well says it no more."""

    def __init__(self) -> None:
        self._servers: dict[tuple[str, str], str] = {}  # by chain and disk
        self._missing: dict[str, float] = {}  # process -> when it was missing last
        self._alone: set[_Key] = set()  # held at the last look, and followed from nothing

    def with_causes(self, conditions: Iterable[AlertCondition], look: Look, now_s: float) -> list[AlertCondition]:
        """The same conditions, with what each follows from; a missing process names what follows from it."""
        for labels in look.get(DISK_SERVED, {}):
            known = dict(labels)
            self._servers[known["chain"], known["disk"]] = known["server"]
        for labels, value in look.get(UNANSWERED, {}).items():
            if value:
                self._missing[dict(labels)["process"]] = now_s
        self._missing = {name: at_s for name, at_s in self._missing.items() if now_s - at_s < LINGER_S}
        found = [one._replace(follows=self._cause(one)) for one in conditions]
        self._alone = {one.key for one in found if not one.follows}
        return [_naming(one, found) for one in found]

    def _cause(self, condition: AlertCondition) -> str:
        if condition.rule not in FOLLOWING or condition.key in self._alone or not self._missing:
            return ""
        known = dict(condition.labels)
        chain, disk = known.get("chain", ""), known.get("disk")
        serving = {server for (of, on), server in self._servers.items() if of == chain and (disk is None or on == disk)}
        gone = sorted(serving & self._missing.keys())
        return f"{CAUSE} of {gone[0]}" if gone else ""


def _naming(condition: AlertCondition, all_of: Iterable[AlertCondition]) -> AlertCondition:
    if condition.rule != CAUSE:
        return condition
    mine = f"{CAUSE} of {dict(condition.labels)['process']}"
    following: dict[str, list[str]] = {}
    for one in all_of:
        if one.follows == mine:
            following.setdefault(one.rule, []).append(_place(dict(one.labels)))
    if not following:
        return condition
    consequences = "; ".join(f"{rule} of {_listed(places)}" for rule, places in sorted(following.items()))
    return condition._replace(summary=f"{condition.summary} From that follows: {consequences}.")


def _place(labels: Mapping[str, str]) -> str:
    disk = labels.get("disk", "")
    return f"chain {labels.get('chain', '')}{f' on {disk}' if disk else ''}"


def _listed(places: list[str]) -> str:
    more = len(places) - NAMED_MAX
    return ", ".join(sorted(places)[:NAMED_MAX]) + (f" and {more} more" if more > 0 else "")

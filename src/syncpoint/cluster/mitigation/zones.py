"""Zones: which processes each one has had, which of them are missing, and whether all of one are gone.

Place: held by `mitigator`. Plain values.
Promise: a zone is lost when processes of it were there, none is any more, and processes of other zones are. Who is
missing counts as out of service: nothing more is drained than the budget allows then. A process is missing while its
zone is lost, and otherwise for `ABSENT_S`: one that is gone for longer was taken away, and is forgotten. Processes
without a zone are missing likewise, and are no zone that could be lost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from syncpoint.cluster.mitigation.drain_budget import BudgetedProcess

NO_ZONE: Final = ""
FORGOTTEN_S: Final = 86_400.0
"""When a zone that did not come back is no longer expected."""
ABSENT_S: Final = 600.0
"""Longer than a process that crashed takes to be started again, on another machine, too."""


class KnownZones:
    """Remember the processes of each zone."""

    def __init__(self) -> None:
        self._known: dict[str, dict[str, BudgetedProcess]] = {}  # by zone and name
        self._seen: dict[str, float] = {}  # by zone: when anybody of it was there last
        self._last: dict[str, float] = {}  # by process: when it was there last
        self._lost: set[str] = set()
        self._living: set[str] = set()

    def note(self, now: float, processes: Sequence[BudgetedProcess]) -> None:
        """Who is there now."""
        living: dict[str, dict[str, BudgetedProcess]] = {}
        for one in processes:
            living.setdefault(one.zone, {})[one.name] = one
        zoned = living.keys() - {NO_ZONE}
        living.setdefault(NO_ZONE, {})  # what belongs to no zone ends one by one
        self._seen |= dict.fromkeys(living, now)
        self._last |= {one.name: now for one in processes}
        for zone, there in living.items():
            absent = {name: one for name, one in self._known.get(zone, {}).items() if name not in there}
            waited = {name: one for name, one in absent.items() if now - self._last.setdefault(name, now) <= ABSENT_S}
            self._known[zone] = waited | there
        for zone in [zone for zone in self._known if now - self._seen.setdefault(zone, now) > FORGOTTEN_S]:
            del self._known[zone], self._seen[zone]
        kept = {name for known in self._known.values() for name in known}
        self._last = {name: at for name, at in self._last.items() if name in kept}
        self._living = {one.name for one in processes}
        self._lost = {
            zone for zone, known in self._known.items() if zoned and zone not in living and known.keys() - self._living
        }

    @property
    def lost(self) -> list[str]:
        """Zones of which nobody is left."""
        return sorted(self._lost)

    def missing(self) -> list[BudgetedProcess]:
        """Processes that are missing, and so out of service."""
        known = {one.name: one for zone in self._known.values() for one in zone.values()}
        return [one for name, one in sorted(known.items()) if name not in self._living]

    def lost_processes(self) -> list[BudgetedProcess]:
        """Who was in them."""
        return [one for zone in self.lost for _, one in sorted(self._known[zone].items())]

    def written(self) -> dict[str, dict[str, list[str]]]:
        """State for the next leader: zone -> name -> roles."""
        return {
            zone: {name: list(one.roles) for name, one in sorted(known.items())}
            for zone, known in sorted(self._known.items())
        }

    def recall(self, written: Mapping[str, Mapping[str, Sequence[str]]]) -> None:
        """What the one that led before has written."""
        for zone, known in written.items():
            mine = {name: BudgetedProcess(name, tuple(roles), zone, draining=False) for name, roles in known.items()}
            self._known.setdefault(zone, mine)

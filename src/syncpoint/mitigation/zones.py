"""Zones: which processes each one has had, and whether all of one are gone.

Place: held by `mitigator`. Plain values.
Promise: a zone is lost when processes of it were there, none is any more, and processes of other zones are. As long as
it is lost, its processes count as out of service: nothing more is drained than the budget allows then. A process that
is gone while others of its zone live was taken away, and is forgotten.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from syncpoint.mitigation.drain_budget import BudgetedProcess

FORGOTTEN_S: Final = 86_400.0
"""After so long a zone that did not come back is not expected any more."""


class KnownZones:
    """See the module."""

    def __init__(self) -> None:
        self._known: dict[str, dict[str, BudgetedProcess]] = {}  # by zone and name
        self._seen: dict[str, float] = {}  # by zone: when anybody of it was there last
        self._lost: set[str] = set()

    def note(self, now: float, processes: Sequence[BudgetedProcess]) -> None:
        """Who is there now."""
        living: dict[str, dict[str, BudgetedProcess]] = {}
        for one in processes:
            if one.zone:
                living.setdefault(one.zone, {})[one.name] = one
        self._known |= living
        self._seen |= dict.fromkeys(living, now)
        for zone in [zone for zone in self._known if now - self._seen.setdefault(zone, now) > FORGOTTEN_S]:
            del self._known[zone], self._seen[zone]
        elsewhere = {one.name for one in processes}
        self._lost = {
            zone for zone, known in self._known.items() if living and zone not in living and known.keys() - elsewhere
        }

    @property
    def lost(self) -> list[str]:
        """Zones of which nobody is left."""
        return sorted(self._lost)

    def lost_processes(self) -> list[BudgetedProcess]:
        """Who was in them."""
        return [one for zone in self.lost for _, one in sorted(self._known[zone].items())]

    def written(self) -> dict[str, dict[str, list[str]]]:
        """For whoever leads next: zone -> name -> roles."""
        return {
            zone: {name: list(one.roles) for name, one in sorted(known.items())}
            for zone, known in sorted(self._known.items())
        }

    def recall(self, written: Mapping[str, Mapping[str, Sequence[str]]]) -> None:
        """What the one that led before has written."""
        for zone, known in written.items():
            mine = {name: BudgetedProcess(name, tuple(roles), zone, draining=False) for name, roles in known.items()}
            self._known.setdefault(zone, mine)

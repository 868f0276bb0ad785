"""Names of what probers make, by which leftovers of a dead prober are found and removed.

Place: used by the scripts, and by `leftovers`.
Promise: names of a run contain the time until which they may be needed, so nobody has to know which probers live.
Standing topics (`probe-p3`) have one name for ever: all probers use them, each by subscriptions of its own that see its
own messages.
"""

from __future__ import annotations

import re
from typing import Final

from syncpoint.base.model.names import resource_name

SPARE_S: Final = 600  # clocks of two machines may differ, and a prober may be slow
_MADE = re.compile(r"probe-p\d+-[0-9a-f]{6}-\d+-until-(\d+)")


class ProbeNames:
    """Names within one project, for one run. `run`: its id, of the prober's instance and a number."""

    def __init__(self, project: str, prober: str, run: str, until: float) -> None:
        self._project, self.run = f"projects/{project}", run
        self._made = f"probe-{prober.lower()}-{run}-until-{int(until) + SPARE_S}"

    def standing(self, topic: str) -> str:
        """The full name of a standing topic."""
        return resource_name(self._project, "topics", topic)

    def made(self, collection: str, which: str = "") -> str:
        """The full name of something that this run makes and deletes."""
        return resource_name(self._project, collection, self._made + (f"-{which}" if which else ""))

    @property
    def project(self) -> str:
        """The project's full name."""
        return self._project


def expired(identifier: str, now: float) -> bool:
    """Whether a topic or subscription, by its short id, was made by a run that is long over."""
    found = _MADE.match(identifier)
    return found is not None and int(found[1]) < now

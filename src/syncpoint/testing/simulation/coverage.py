"""What a run has to have seen: conditions that must hold always, and others that must have come up sometimes.

Place: kept by every simulation; added up over the seeds of a run by `runner`.
Promise: a run in which something that must happen sometimes never did, over all its seeds, has failed: it proves less
than it says.
"""

from __future__ import annotations

from collections import Counter


class Coverage:
    """Count the events of one seed."""

    def __init__(self) -> None:
        self.happened: Counter[str] = Counter()
        self.violations: list[str] = []

    def sometimes(self, name: str, holds: object = True) -> None:
        """This has to come up now and then."""
        if holds:
            self.happened[name] += 1

    def always(self, name: str, holds: object, what: str = "") -> None:
        """This must never be otherwise."""
        if not holds:
            self.violations.append(f"{name}: {what}" if what else name)


def missing(wanted: frozenset[str], happened: Counter[str]) -> list[str]:
    """What never happened."""
    return sorted(name for name in wanted if not happened[name])

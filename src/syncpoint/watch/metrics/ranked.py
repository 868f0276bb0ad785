"""Ranked: which of many topics or subscriptions are shown under their own names, and the sum of the others.

Place: between counters that rooms keep of each, and families with the labels of project and name.
Promise: of a project at most `most` are named, of all together five times as many; everything else of a project is
summed under `_other`, and so are all projects beyond those. What was counted before one is named stays in `_other`,
and a name starts at zero: so no series ever falls while it is there, and from one look to the next all series together
grow by exactly what was counted. Who has a name keeps it until another one is twice as busy; its series ends then.
Costs a comparison for each that did not change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple, Protocol

OTHER: Final = "_other"
NAMED_MAX: Final = 20
"""Topics, and subscriptions, of a project that are shown under their names."""
PROJECTS: Final = 5
KEEPS: Final = 0.9  # of its weight, from one look to the next


class CountedEntity(Protocol):
    """Counters of one topic or subscription: they only grow."""

    def values(self) -> tuple[int, ...]: ...


class Shown(NamedTuple):
    """The labels of a series."""

    project: str
    name: str


class Ranked:
    """Keep counters of the busiest entities only.

    `width`: the number of counters; `busy`: the index of the counter to rank by. `name_of(number)`: returns
    projects/P/topics/T, or None if the entity no longer exists.
    """

    def __init__(self, width: int, busy: int, most: int, name_of: Callable[[int], str | None]) -> None:
        self._zero = (0,) * width
        self._busy, self._most, self._name_of = busy, most, name_of
        self._seen: dict[int, tuple[int, ...]] = {}
        self._names: dict[int, Shown] = {}
        self._named: dict[str, dict[int, float]] = {}  # project -> who is named, and how busy it was
        self._sums: dict[Shown, list[int]] = {}
        self._projects: set[str] = set()  # that have a series of their own

    def look(self, counted: Mapping[int, CountedEntity], weights: Mapping[int, float]) -> None:
        """Take in what was counted since the last look. `weights`: what else makes one worth a name."""
        self._forget(counted, weights)
        for known in self._named.values():
            for number in known:
                known[number] *= KEEPS
        fresh: list[tuple[int, list[int]]] = []
        for number, one in counted.items():
            values, before = one.values(), self._seen.get(number, self._zero)
            if values != before:
                grown = [now - then for now, then in zip(values, before, strict=True)]
                if min(grown) < 0:  # forgotten by its room, and begun anew
                    grown = list(values)
                self._seen[number] = values
                self._rank(number, grown[self._busy])
                fresh.append((number, grown))
        for number, weight in weights.items():
            if weight:
                self._rank(number, weight)
        # once all names are dealt out, so that a series that ends takes nothing unseen with it
        kept = {self._names[number] for named in self._named.values() for number in named}
        self._sums = {shown: sums for shown, sums in self._sums.items() if shown.name == OTHER or shown in kept}
        for number, grown in fresh:
            shown = self.labels_of(number)
            if shown is not None:
                sums = self._sums.setdefault(shown, list(self._zero))
                for at, more in enumerate(grown):
                    sums[at] += more

    def labels_of(self, number: int) -> Shown | None:
        """Under which series one is shown; None: it does not exist."""
        full = self._full(number)
        if full is None:
            return None
        return full if number in self._named.get(full.project, ()) else self._other(full.project)

    def is_named(self, number: int) -> bool:
        """Whether it has a series of its own."""
        full = self._names.get(number)
        return full is not None and number in self._named.get(full.project, ())

    def series(self) -> Iterator[tuple[Shown, tuple[int, ...]]]:
        """All series, with their counters."""
        for shown, sums in self._sums.items():
            yield shown, tuple(sums)
        for known in self._named.values():
            for number in known:
                if self._names[number] not in self._sums:
                    yield self._names[number], self._zero

    def _full(self, number: int) -> Shown | None:
        known = self._names.get(number)
        if known is None:
            name = self._name_of(number)
            if name is None:
                return None
            _, project, _, short = name.split("/", 3)
            known = self._names[number] = Shown(project, short)
        return known

    def _rank(self, number: int, weight: float) -> None:
        full = self._full(number)
        if full is None:
            return
        named = self._named.get(full.project, {})
        if number in named:
            named[number] += weight
        elif weight > 0 and self._makes_room(named, weight):
            self._named.setdefault(full.project, named)[number] = weight
            self._projects.add(full.project)

    def _makes_room(self, named: dict[int, float], weight: float) -> bool:
        if len(named) < self._most and sum(map(len, self._named.values())) < PROJECTS * self._most:
            return True
        if not named:
            return False
        idlest = min(named, key=named.__getitem__)
        if weight <= 2 * named[idlest]:
            return False
        del named[idlest]
        return True

    def _other(self, project: str) -> Shown:
        if project not in self._projects:
            if len(self._projects) >= PROJECTS * self._most:
                return Shown(OTHER, OTHER)
            self._projects.add(project)
        return Shown(project, OTHER)

    def _forget(self, counted: Mapping[int, CountedEntity], weights: Mapping[int, float]) -> None:
        for project, named in list(self._named.items()):
            for number in [one for one in named if self._name_of(one) is None]:
                del named[number]
                self._sums.pop(self._names[number], None)
            if not named:
                del self._named[project]
        if len(self._seen) > 2 * len(counted) + 1000:
            self._seen = {number: one for number, one in self._seen.items() if number in counted}
        if len(self._names) > 2 * (len(counted) + len(weights)) + 1000:
            kept = {number for named in self._named.values() for number in named} | counted.keys() | weights.keys()
            self._names = {number: one for number, one in self._names.items() if number in kept}

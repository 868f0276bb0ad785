"""Sticky bounded loads, by name: which bins share each item, and how far that is from even.

Place: asked by the planner for the chains of topics and for the forwarders of subscriptions. Pure; a dozen names or a
thousand.
Promise: every part of an item is in a bin of its own, unless there are too few bins. What need not move does not. No
bin is above (1 + e) times the average, the heaviest part, and `slack` above the average, while that is feasible: by
moving the lightest first, else by exchanging, else by starting anew with the heaviest first, else, for some dozens of
parts, by trying. If it is not feasible, the best of what was found is taken. It always ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from syncpoint.broker.router.packing import NOWHERE, Packing, search
from syncpoint.broker.router.rendezvous import order

E = 0.25
SEARCH_MAX = 64  # parts
WORTH = 0.1  # an infeasible state is left as it is unless starting anew lowers the highest load by this share


@dataclass(frozen=True, slots=True)
class Item:
    """What is to be assigned: its number, its load, in how many equal parts, and which bins may have them."""

    key: int
    weight: float
    parts: int
    bins: tuple[str, ...]


class AssignmentPlan(NamedTuple):
    """`homes`: the bins of each item, in the item's own order. `bound`: what no load should exceed, in terms of the
    bin's weight; `worst`: the highest there is. `moved`: weight that left a bin which is still there."""

    homes: dict[int, tuple[str, ...]]
    bound: float
    worst: float
    moved: float

    @property
    def feasible(self) -> bool:
        """Whether the bound is kept."""
        return self.worst <= self.bound * (1 + 1e-6)


def assign(
    items: Iterable[Item],
    bins: Mapping[str, float],
    current: Mapping[int, Sequence[str]],
    *,
    e: float = E,
    base: Mapping[str, float] | None = None,
    slack: float = 0.0,
) -> AssignmentPlan:
    """Where every item goes. `bins`: name -> weight, its share of the load; `current`: where items are now; `base`:
    what is in bins besides, and stays there; `slack`: nothing moves for so little above the average."""
    problem = _Problem(items, bins, current, base or {})
    bound = problem.bound(e)
    problem.mark = max(bound, bound / (1 + e) + slack)
    caps = [bound * weight for weight in problem.bin_weights]
    sticky = problem.packing(caps, problem.current)
    sticky.rebalance()
    return problem.plan(problem.better(caps, sticky) if sticky.over and not base else sticky, problem.mark)


class _Kind(NamedTuple):
    """What items that may be in the same bins have in common."""

    allowed: tuple[int, ...]
    key: frozenset[int]
    heaviest: float  # bin


class _Problem:
    """Items and bins as numbers."""

    def __init__(
        self,
        items: Iterable[Item],
        bins: Mapping[str, float],
        current: Mapping[int, Sequence[str]],
        base: Mapping[str, float],
    ) -> None:
        self.mark = 0.0  # what a bin carries before anything is taken from it, in terms of its weight
        self.items = sorted(items, key=lambda item: item.key)
        self.names = sorted(name for name, weight in bins.items() if weight > 0)
        self.bin_weights = [bins[name] for name in self.names]
        self.base = [base.get(name, 0.0) for name in self.names]
        self._weights_of = None if len(set(self.bin_weights)) <= 1 else dict(bins)
        self.numbers = {name: index for index, name in enumerate(self.names)}
        self._kinds: dict[tuple[str, ...], _Kind] = {}
        self._orders: dict[int, list[int]] = {}
        self.kinds = [self._kind(item.bins) for item in self.items]
        self.part_of: list[int] = []  # part -> item
        self.weights: list[float] = []
        self.current: list[int] = []
        for index, item in enumerate(self.items):
            parts = max(1, min(item.parts, len(self.kinds[index].allowed)))
            self._add(index, parts, item.weight / parts, current.get(item.key, ()))

    def _kind(self, names: tuple[str, ...]) -> _Kind:
        found = self._kinds.get(names)
        if found is None:
            allowed = tuple(self.numbers[name] for name in names if name in self.numbers)
            heaviest = max((self.bin_weights[bin] for bin in allowed), default=0.0)
            found = self._kinds[names] = _Kind(allowed, frozenset(allowed), heaviest)
        return found

    def _add(self, index: int, parts: int, weight: float, current: Sequence[str]) -> None:
        allowed, numbers = self.kinds[index].key, self.numbers
        kept = [bin for name in current if (bin := numbers.get(name, NOWHERE)) in allowed]
        if len(kept) > 1:
            kept = list(dict.fromkeys(kept))
        if len(kept) > parts:  # it has fewer parts than before: the first of its order stay
            ranks = {bin: rank for rank, bin in enumerate(self.order_of_item(index))}
            kept = sorted(kept, key=ranks.__getitem__)[:parts]
        self.part_of += [index] * parts
        self.weights += [weight] * parts
        self.current += kept
        self.current += [NOWHERE] * (parts - len(kept))

    def order_of_item(self, index: int) -> list[int]:
        """The bins an item may be in, its first choice first."""
        found = self._orders.get(index)
        if found is None:
            names = [self.names[bin] for bin in self.kinds[index].allowed]
            found = [self.numbers[name] for name in order(self.items[index].key, names, self._weights_of)]
            self._orders[index] = found
        return found

    def order_of(self, part: int) -> list[int]:
        return self.order_of_item(self.part_of[part])

    def bound(self, e: float) -> float:
        """(1 + e) times the average, over all bins and over those of every kind of item, or the heaviest part."""
        everywhere = frozenset(range(len(self.names)))
        inside: dict[frozenset[int], float] = {everywhere: sum(self.base)}
        heaviest: dict[frozenset[int], float] = {}
        for part, index in enumerate(self.part_of):
            key, weight = self.kinds[index].key, self.weights[part]
            inside[key] = inside.get(key, 0.0) + weight
            if weight > heaviest.get(key, 0.0):
                heaviest[key] = weight
        highest = 0.0
        for kind in self._kinds.values():
            if kind.allowed:
                highest = max(highest, heaviest.get(kind.key, 0.0) / kind.heaviest)
        for key in inside:
            capacity = sum(self.bin_weights[bin] for bin in key)
            if capacity:
                load = sum(weight for other, weight in inside.items() if other and other <= key)
                highest = max(highest, (1 + e) * load / capacity)
        return highest

    def packing(self, caps: Sequence[float], homes: Sequence[int] | None) -> Packing:
        marks = [self.mark * weight for weight in self.bin_weights]
        return Packing(self.weights, caps, self.order_of, homes, self.part_of, self.base, marks)

    def better(self, caps: Sequence[float], sticky: Packing) -> Packing:
        """The first that keeps the caps of: exchanging, starting anew, trying; else the best, if worth the move."""
        found = [sticky]
        for homes in (sticky.homes, None):
            packing = self.packing(caps, homes)
            packing.place()
            packing.swap()
            if not packing.over:
                return packing
            found.append(packing)
        level = self.packing([cap * 1e-9 for cap in caps], None)  # no room anywhere: always the least loaded
        level.place()
        found.append(self.packing(caps, level.homes))
        if found[-1].over and len(self.weights) <= SEARCH_MAX:
            homes = search(self.weights, caps, self.order_of, self.part_of)
            if homes is not None:
                found.append(self.packing(caps, homes))
        best = min(found, key=lambda one: one.worst())
        return best if not best.over or best.worst() < sticky.worst() * (1 - WORTH) else sticky

    def plan(self, packing: Packing, bound: float) -> AssignmentPlan:
        homes: list[list[int]] = [[] for _ in self.items]
        moved = 0.0
        for part, home in enumerate(packing.homes):
            if home != NOWHERE:
                homes[self.part_of[part]].append(home)
        for part, home in enumerate(self.current):
            if home != NOWHERE and home != packing.homes[part] and home not in homes[self.part_of[part]]:
                moved += self.weights[part]
        for index, bins in enumerate(homes):
            if len(bins) > 1:
                ranks = {bin: rank for rank, bin in enumerate(self.order_of_item(index))}
                bins.sort(key=ranks.__getitem__)
        loads = zip(packing.loads, self.bin_weights, strict=True)
        worst = max((load / weight for load, weight in loads), default=0.0)
        named = {item.key: tuple(self.names[bin] for bin in homes[index]) for index, item in enumerate(self.items)}
        return AssignmentPlan(named, bound, worst, moved)

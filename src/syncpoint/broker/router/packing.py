"""Sticky bounded loads, on plain numbers: which bin each item is in, moving as little as possible.

Place: the core of `assign`, which gives it names, and of the simulation, which runs it on a million items. Pure.
Promise: every item is placed; no bin is above its mark as long as a single pass finds room for what does not fit;
`over` returns whether one is. From a bin above its mark as much is taken as brings it down to its cap. Every item is
checked a bounded number of times, so it always ends. The same input gives the same output.
Terms: an item prefers bins by its own order and may be in those only. A cap is in the unit of the weights. Items of one
group (the parts of a topic) must be in different bins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

NOWHERE = -1
_SLACK = 1e-9  # sums of floats are not exact

Orders = Callable[[int], Iterable[int]]


class Packing:
    """Items in bins. `homes[i]` is the bin of item i, or `NOWHERE`; `loads[b]` the weight in bin b."""

    def __init__(
        self,
        weights: Sequence[float],
        caps: Sequence[float],
        order_of: Orders,
        homes: Sequence[int] | None = None,
        groups: Sequence[int] | None = None,
        base: Sequence[float] | None = None,
        marks: Sequence[float] | None = None,
    ) -> None:
        """`homes`: where items are now; a bin that an item may not be in any more must be NOWHERE there. `base`: what
        is in each bin besides. `marks`: what each may carry before something is taken from it; its cap if not given."""
        self.weights, self.order_of, self.groups = weights, order_of, groups
        self.caps = [cap * (1 + _SLACK) for cap in caps]
        self.marks = self.caps if marks is None else [mark * (1 + _SLACK) for mark in marks]
        self.homes = list(homes) if homes is not None else [NOWHERE] * len(weights)
        self.loads = list(base) if base is not None else [0.0] * len(caps)
        self.fallbacks = 0  # items placed where there was no room
        self._taken: set[tuple[int, int]] = set()  # (group, bin)
        for item, home in enumerate(self.homes):
            if home == NOWHERE:
                continue
            if groups is not None:
                if (groups[item], home) in self._taken:
                    self.homes[item] = NOWHERE
                    continue
                self._taken.add((groups[item], home))
            self.loads[home] += weights[item]

    @property
    def over(self) -> bool:
        """Whether a bin is above its mark."""
        return any(load > mark for load, mark in zip(self.loads, self.marks, strict=True))

    def worst(self) -> float:
        """The highest load in terms of the cap."""
        pairs = zip(self.loads, self.caps, strict=True)
        return max((load / cap if cap else float("inf") if load else 0.0 for load, cap in pairs), default=0.0)

    def rebalance(self) -> None:
        """Take from bins above their mark, lightest first, and place what is nowhere, heaviest first."""
        self.shed()
        self.place()

    def shed(self) -> None:
        """Move items out of bins above their mark where another bin has room for them."""
        full = {bin for bin, load in enumerate(self.loads) if load > self.marks[bin]}
        if not full:
            return
        held: dict[int, list[int]] = {bin: [] for bin in full}
        for item, home in enumerate(self.homes):
            if home in held:
                held[home].append(item)
        weights = self.weights
        for bin, items in held.items():
            items.sort(key=weights.__getitem__)  # equal ones stay in their order
            for item in items:
                if self.loads[bin] <= self.caps[bin]:
                    break
                target = self._first_with_room(item)
                if target != NOWHERE:
                    self._take(item)
                    self._put(item, target)

    def place(self) -> None:
        """Place what is nowhere: heaviest first, in the first bin of its order with room, else where it hurts least."""
        weights = self.weights
        waiting = [item for item, home in enumerate(self.homes) if home == NOWHERE]
        waiting.sort(key=weights.__getitem__, reverse=True)  # equal ones stay in their order
        if self.groups is None:
            self._place_all(waiting)
            return
        for item in waiting:
            target = self._first_with_room(item)
            if target == NOWHERE:
                target = self._least(item)
            if target != NOWHERE:
                self._put(item, target)

    def swap(self) -> None:
        """Where a bin is still above its mark, exchange one of its items for a lighter one elsewhere, once each."""
        for bin in range(len(self.loads)):
            if self.loads[bin] <= self.marks[bin]:
                continue
            mine = sorted(self._items_of(bin), key=lambda item: (self.weights[item], item))
            for item in mine:
                if self.loads[bin] <= self.caps[bin]:
                    break
                self._swap_one(item, bin)

    def _swap_one(self, item: int, bin: int) -> None:
        weight = self.weights[item]
        for other in self.order_of(item):
            if other == bin or not self._free(item, other):
                continue
            for partner in self._items_of(other):
                lighter = self.weights[partner]
                if (
                    lighter < weight
                    and self.loads[other] - lighter + weight <= self.caps[other]
                    and bin in self.order_of(partner)
                    and self._free(partner, bin)
                ):
                    self._take(item)
                    self._take(partner)
                    self._put(item, other)
                    self._put(partner, bin)
                    return

    def _items_of(self, bin: int) -> list[int]:
        return [item for item, home in enumerate(self.homes) if home == bin]

    def _place_all(self, waiting: Sequence[int]) -> None:
        """As `place`, without groups: the loop that a million items go through."""
        loads, caps, homes, weights, order_of = self.loads, self.caps, self.homes, self.weights, self.order_of
        for item in waiting:
            weight = weights[item]
            for bin in order_of(item):
                load = loads[bin] + weight
                if load <= caps[bin]:
                    loads[bin] = load
                    homes[item] = bin
                    break
            else:
                target = self._least(item)
                if target != NOWHERE:
                    self._put(item, target)

    def _first_with_room(self, item: int) -> int:
        weight = self.weights[item]
        for bin in self.order_of(item):
            if self.loads[bin] + weight <= self.caps[bin] and self._free(item, bin):
                return bin
        return NOWHERE

    def _least(self, item: int) -> int:
        """The bin that is fullest least with this item in it."""
        weight, best, least = self.weights[item], NOWHERE, float("inf")
        for bin in self.order_of(item):
            after = (self.loads[bin] + weight) / max(self.caps[bin], 1e-300)
            if after < least and self._free(item, bin):
                best, least = bin, after
        if best != NOWHERE:
            self.fallbacks += 1
        return best

    def _free(self, item: int, bin: int) -> bool:
        return self.groups is None or (self.groups[item], bin) not in self._taken

    def _put(self, item: int, bin: int) -> None:
        self.homes[item] = bin
        self.loads[bin] += self.weights[item]
        if self.groups is not None:
            self._taken.add((self.groups[item], bin))

    def _take(self, item: int) -> None:
        bin = self.homes[item]
        self.homes[item] = NOWHERE
        self.loads[bin] -= self.weights[item]
        if self.groups is not None:
            self._taken.discard((self.groups[item], bin))


def search(
    weights: Sequence[float],
    caps: Sequence[float],
    order_of: Orders,
    groups: Sequence[int] | None = None,
    *,
    steps: int = 20_000,
) -> list[int] | None:
    """Homes with no bin above its cap, found by trying; None when there are none, or `steps` were not enough.

    For some dozens of items: it goes as deep as there are items.
    """
    limits = [cap * (1 + _SLACK) for cap in caps]
    if sum(weights) > sum(limits):
        return None
    items = sorted(range(len(weights)), key=lambda item: (-weights[item], item))
    loads, homes = [0.0] * len(caps), [NOWHERE] * len(weights)
    taken: set[tuple[int, int]] = set()
    left = steps

    def fill(depth: int) -> bool:
        nonlocal left
        if depth == len(items):
            return True
        item = items[depth]
        group = item if groups is None else groups[item]
        for bin in order_of(item):
            left -= 1
            if left < 0:
                return False
            before = loads[bin]
            if before + weights[item] > limits[bin] or (group, bin) in taken:
                continue
            loads[bin], homes[item] = before + weights[item], bin
            taken.add((group, bin))
            if fill(depth + 1):
                return True
            loads[bin] = before
            taken.discard((group, bin))
        return False

    return homes if fill(0) else None

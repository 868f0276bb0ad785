"""The ledger: which offsets a subscription (or a snapshot) has acknowledged. Values; `ledgers` is where they change.

A ledger belongs to one subscription incarnation and one *seek generation*: range sets merge by union inside a
generation, a higher generation replaces lower ones (protocol rule 12).

Where a subscription has rules, each of its lanes (`model.lanes`) has a place of its own in the same set. What lies
before a lane's start or after its stop counts as acknowledged there, in every generation.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from syncpoint.base.kernel.acks import AckSet
from syncpoint.base.model.lanes import ends_of, in_lane

_PLAIN = (0,)


class LaneBounds(NamedTuple):
    """Which part of a topic a lane is about: offsets by source. `stop` None: it goes on. Of a source that is not named
    a lane that goes on has everything, and one that was stopped has nothing: that source was opened later.
    """

    start: Mapping[int, int] = {}
    stop: Mapping[int, int] | None = None

    def merged(self, other: "LaneBounds") -> "LaneBounds":
        """What both say. A place is decided once, so two that differ about one do not meet."""
        stops = [one.stop for one in (other, self) if one.stop is not None]
        stop = {source: at for one in stops for source, at in one.items()} if stops else None
        return LaneBounds({**other.start, **self.start}, stop)

    def without(self, source: int) -> "LaneBounds":
        """Return a copy without one source."""
        start = {one: at for one, at in self.start.items() if one != source}
        return LaneBounds(start, self.stop and {one: at for one, at in self.stop.items() if one != source})


@dataclass(slots=True)
class Ledger:
    """Acknowledged offsets by source. `start` is the sync point: offsets below it were published before the
    subscription existed. `renewed_ns`: the newest seek to a snapshot; for the subscription's retention no message is
    older than that, or what the snapshot kept would be gone as soon as it is reset by a seek. `lanes`: those it has by
    its rules; none: it has no rules, and lane 0.
    """

    subscription: int
    generation: int = 0
    acks: dict[int, AckSet] = field(default_factory=dict)
    start: dict[int, int] = field(default_factory=dict)
    renewed_ns: int = 0
    lanes: dict[int, LaneBounds] = field(default_factory=dict)

    @property
    def lane_numbers(self) -> Iterable[int]:
        """All its lanes."""
        return self.lanes or _PLAIN

    def has_lane(self, lane: int) -> bool:
        """Whether it has a lane."""
        return lane in self.lanes if self.lanes else lane == 0

    def of(self, source: int) -> AckSet:
        """The acknowledged set of one source, created when first needed."""
        found = self.acks.get(source)
        if found is None:
            found = self.acks[source] = AckSet()
            if self.lanes:
                self._bound(source, found)
        return found

    def known(self, source: int) -> AckSet | None:
        """The acknowledged set of one source, if there is one."""
        found = self.acks.get(source)
        return self.of(source) if found is None and self.lanes else found

    def covers(self, source: int, begin: int, end: int) -> bool:
        """Whether every offset in `[begin, end)` is acknowledged, in all lanes."""
        found = self.known(source)
        if not self.lanes:
            return found is not None and found.covers(begin, end)
        return found is not None and covers_in(self.lanes, found, begin, end)

    def first_gap(self, source: int, begin: int) -> int:
        """The first place at or after `begin` that is not acknowledged; where the lane of `begin` has none, it lies
        behind that.
        """
        found = self.known(source)
        return begin if found is None else found.first_gap(begin)

    def begin_of(self, source: int) -> int:
        """The first offset of a source that is not acknowledged in all lanes."""
        if not self.lanes:
            return self.first_gap(source, 0)
        gaps = (self.first_gap(source, begin) - begin for begin, _ in map(ends_of, self.lanes))
        return min(min(gaps), ends_of(0)[1] - 1)

    def stop_of(self, source: int, lane: int) -> int | None:
        """The offset before which a lane ends in a source; None: it goes on."""
        bounds = self.lanes.get(lane)
        return None if bounds is None or bounds.stop is None else bounds.stop.get(source, 0)

    def merge(self, state: "Ledger") -> None:
        """Merge another state of the same ledger. Any number of states, in any order, any of them twice,
        come to the same.
        """
        for source, offset in state.start.items():
            self.start.setdefault(source, offset)
        for lane, bounds in state.lanes.items():
            self.lanes[lane] = bounds.merged(self.lanes.get(lane, bounds))
        if state.generation == self.generation:
            self.renewed_ns = max(self.renewed_ns, state.renewed_ns)
            for source, acks in state.acks.items():
                self.of(source).union(acks)
        elif state.generation > self.generation:
            self.generation, self.renewed_ns = state.generation, state.renewed_ns
            self.acks = {source: acks.copy() for source, acks in state.acks.items()}
        if self.lanes:
            for source, acks in self.acks.items():
                self._bound(source, acks)

    def set_lane(self, lane: int, bounds: LaneBounds) -> None:
        """Add a lane, or change its bounds."""
        self.lanes[lane] = bounds
        for source in [*bounds.start, *self.acks]:
            self._bound(source, self.of(source))

    def drop_lane(self, lane: int) -> None:
        """A lane is no more, and its number never comes back."""
        self.lanes.pop(lane, None)
        for acks in self.acks.values():
            acks.remove(*ends_of(lane))

    def forget(self, source: int) -> None:
        """Nothing of the source is stored any more."""
        self.acks.pop(source, None)
        self.start.pop(source, None)
        for lane, bounds in self.lanes.items():
            self.lanes[lane] = bounds.without(source)

    def sources(self) -> set[int]:
        """All that are named."""
        return {*self.acks, *self.start, *(one for bounds in self.lanes.values() for one in bounds.start)}

    def _bound(self, source: int, acks: AckSet) -> None:
        """What lies outside of a lane's bounds needs no delivery in it."""
        for lane, bounds in self.lanes.items():
            begin, end = ends_of(lane)
            acks.add(begin, begin + bounds.start.get(source, 0))
            if bounds.stop is not None:
                acks.add(begin + bounds.stop.get(source, 0), end)


def begun(
    subscription: int, generation: int, places: dict[int, int], lanes: Mapping[int, LaneBounds] | None = None
) -> Ledger:
    """A ledger at its sync point: everything before these offsets was published before the subscription existed, in any
    of its lanes.
    """
    ledger = Ledger(subscription, generation, start=dict(places), lanes=dict(lanes or {}))
    for source, offset in places.items():
        if offset:
            for lane in ledger.lane_numbers:
                ledger.of(source).add(in_lane(lane, 0), in_lane(lane, offset))
    return ledger


def covers_in(lanes: Iterable[int], acks: AckSet, begin: int, end: int) -> bool:
    """Whether all of `[begin, end)` is acknowledged in each of the lanes."""
    return all(acks.covers(in_lane(lane, begin), in_lane(lane, end)) for lane in lanes)


def copy_lanes(acks: AckSet, lanes: Iterable[int], to: int, end: int, into: AckSet | None = None) -> None:
    """Acknowledge in the new lane `to`, of the same set or of `into`, what is acknowledged in all of these, of a source
    that ends at `end`.
    """
    found = acks if into is None else into
    found.add(in_lane(to, 0), in_lane(to, end))
    for lane in lanes:
        first, last = in_lane(lane, 0), in_lane(lane, end)
        at = first
        for begin, length in [*acks.runs(), (last, 1)]:
            if at < min(begin, last):
                found.remove(in_lane(to, at - first), in_lane(to, min(begin, last) - first))
            at = max(at, begin + length)


@dataclass(slots=True)
class SnapshotState:
    """What a snapshot remembers: the acknowledged sets at its creation, and the lanes there were by rules. What was
    published later counts as not acknowledged.
    """

    snapshot: int
    acks: dict[int, AckSet]
    lanes: tuple[int, ...] = ()

    def covers(self, source: int, begin: int, end: int) -> bool:
        """Whether every offset in `[begin, end)` is acknowledged, in all lanes that there were."""
        found = self.acks.get(source)
        return found is not None and covers_in(self.lanes or _PLAIN, found, begin, end)

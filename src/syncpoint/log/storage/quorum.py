"""Who must hold what: pure arithmetic on a fragment's ack rule (protocol rule 2).

Place: asked by `log` after every commit, by `disk_set` before it gives one up, and by recovery before it believes that
something is not there. The rule is stored in every segment's header, so that a reader years later knows which
sets could acknowledge then.
Promise: everything follows from one question, "can this set of disks acknowledge?", which never turns from yes to no
when a disk is added. A set is enough to read from, or to fence, when those outside it cannot acknowledge; hence every
acknowledging set meets every set read from or fenced.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

MAJORITY = "majority"
ALL = "all"
_WORDS = (MAJORITY, ALL)

_EXTENDED = 0x8000  # in the field where a plain rule has its count
_SHAPE = struct.Struct("<BBHH")
_MEMBER = struct.Struct("<HH")


def majority(members: int) -> int:
    """Size of a majority. Raises `ValueError` unless the number of members is odd."""
    if members < 1 or members % 2 == 0:
        raise ValueError(f"the numbers of disks and of clusters must be odd, not {members}")
    return members // 2 + 1


def kth_largest(positions: Sequence[int], k: int) -> int:
    """The highest position that at least `k` members have reached; 0 when there are fewer than `k`."""
    if len(positions) < k:
        return 0
    if k == 1:
        return max(positions)
    return sorted(positions, reverse=True)[k - 1]


@dataclass(frozen=True, slots=True)
class AckRule:
    """N clusters of M disks each; a disk's number is its slot.

    A cluster holds a position when `within` of its disks do, the log has it when `over` of the clusters do and the
    disks that hold it stand in at least `racks_min` racks. Raises `ValueError` for even numbers of clusters or disks,
    for clusters of different sizes, and for more racks wanted than there are.
    """

    clusters: tuple[int, ...]  # the cluster of each slot
    within: str = MAJORITY
    over: str = MAJORITY
    racks: tuple[int, ...] = ()  # the rack of each slot; () where racks do not count
    racks_min: int = 1
    _groups: tuple[tuple[int, ...], ...] = field(init=False, repr=False, compare=False)
    _rack_groups: tuple[tuple[int, ...], ...] = field(init=False, repr=False, compare=False)
    _disks: int = field(init=False, repr=False, compare=False)  # of a cluster that must hold a position
    _of_clusters: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.within not in _WORDS or self.over not in _WORDS:
            raise ValueError(f"an ack rule must be majority or all, not {self.within} and {self.over}")
        groups = _groups(self.clusters)
        size = len(self.clusters) // max(1, len(groups))
        if any(len(group) != size for group in groups):
            raise ValueError("all clusters of a fragment must have the same number of disks")
        racks = _groups(self.racks)
        if self.racks and len(self.racks) != len(self.clusters):
            raise ValueError("give the rack of every disk or of none")
        if self.racks_min < 1 or (self.racks_min > 1 and self.racks_min > len(racks)):
            raise ValueError(f"racks_min is {self.racks_min}, above the number of racks ({len(racks)})")
        if not all(0 <= number <= 0xFFFF for number in (*self.clusters, *self.racks)):
            raise ValueError("numbers of clusters and racks must be 0 to 65535")
        most, many = majority(size), majority(len(groups))
        object.__setattr__(self, "_groups", groups)
        object.__setattr__(self, "_rack_groups", racks if self.racks_min > 1 else ())
        object.__setattr__(self, "_disks", size if self.within == ALL else most)
        object.__setattr__(self, "_of_clusters", len(groups) if self.over == ALL else many)

    @staticmethod
    def single(members: int) -> AckRule:
        """A majority of the disks of one node."""
        return AckRule((0,) * members)

    @staticmethod
    def grid(clusters: int, disks: int) -> AckRule:
        """Majorities of `clusters` times `disks`, cluster by cluster."""
        return AckRule(tuple(number for number in range(clusters) for _ in range(disks)))

    def __len__(self) -> int:
        """How many members there are."""
        return len(self.clusters)

    @property
    def plain(self) -> bool:
        """Whether it is just a majority of all members."""
        return len(self._groups) == 1 and self.within == MAJORITY and not self._rack_groups

    @property
    def smallest(self) -> int:
        """How many disks are in the smallest set that can acknowledge, racks aside."""
        return self._disks * self._of_clusters

    def persisted(self, positions: Sequence[int]) -> int:
        """The highest position that an acknowledging set has reached, from the position of every slot."""
        if len(self._groups) == 1:
            reached = kth_largest(positions, self._disks)
        else:
            held = [kth_largest([positions[slot] for slot in group], self._disks) for group in self._groups]
            reached = kth_largest(held, self._of_clusters)
        if self._rack_groups:
            racks = [max(positions[slot] for slot in group) for group in self._rack_groups]
            reached = min(reached, kth_largest(racks, self.racks_min))
        return reached

    def can_acknowledge(self, slots: Collection[int]) -> bool:
        """Whether what all of `slots` hold is persisted."""
        return self.persisted([1 if slot in slots else 0 for slot in range(len(self.clusters))]) > 0

    def is_read_set(self, present: Collection[int]) -> bool:
        """Whether what none of `present` holds was never acknowledged: the absent ones alone cannot.

        Such a set fences as well: once all of it refuses, nothing can be acknowledged any more.
        """
        return not self.can_acknowledge([slot for slot in range(len(self.clusters)) if slot not in present])

    def always_spans(self, racks: Sequence[int], racks_min: int) -> bool:
        """Whether every acknowledging set stands in `racks_min` of the racks, although the rule does not ask for it."""
        names = sorted(set(racks))
        for some in combinations(names, min(racks_min - 1, len(names))):
            if self.can_acknowledge([slot for slot, rack in enumerate(racks) if rack in some]):
                return False
        return len(names) >= racks_min

    # ---------------------------------------------------------------------------------------------- stored forms

    def to_values(self) -> dict[str, Any]:
        """As JSON takes it."""
        return {
            "clusters": list(self.clusters),
            "within": self.within,
            "over": self.over,
            "racks": list(self.racks),
            "racks_min": self.racks_min,
        }

    @staticmethod
    def from_values(values: Mapping[str, Any]) -> AckRule:
        """Raises `ValueError` for anything else."""
        try:
            return AckRule(
                tuple(int(one) for one in values["clusters"]),
                str(values.get("within", MAJORITY)),
                str(values.get("over", MAJORITY)),
                tuple(int(one) for one in values.get("racks", ())),
                int(values.get("racks_min", 1)),
            )
        except (KeyError, TypeError) as error:
            raise ValueError(f"not an ack rule: {error!r}") from error

    def encode(self) -> tuple[int, bytes]:
        """What a segment's header has in the place of the count, and what it has after the members.

        A plain majority is a count and nothing else, as it was before there were other rules.
        """
        if self == AckRule.single(len(self.clusters)):
            return self._disks, b""
        shape = _SHAPE.pack(_WORDS.index(self.within), _WORDS.index(self.over), self.racks_min, len(self.racks))
        racks = self.racks or (0,) * len(self.clusters)
        members = [_MEMBER.pack(*both) for both in zip(self.clusters, racks, strict=True)]
        return _EXTENDED | self.smallest, shape + b"".join(members)

    @staticmethod
    def decode(count: int, members: int, rest: bytes) -> AckRule:
        """The rule of a header with `members` members. Raises `ValueError` for one that no version has written."""
        if not count & _EXTENDED:
            if majority(members) != count:
                raise ValueError(f"{count} of {members} disks is not a majority")
            return AckRule.single(members)
        try:
            within, over, racks_min, racks = _SHAPE.unpack_from(rest)
            both = [_MEMBER.unpack_from(rest, _SHAPE.size + _MEMBER.size * at) for at in range(members)]
            words = _WORDS[within], _WORDS[over]
        except (struct.error, IndexError) as error:
            raise ValueError(f"not an ack rule: {error}") from error
        return AckRule(tuple(one for one, _ in both), *words, tuple(one for _, one in both) if racks else (), racks_min)


def _groups(numbers: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """The slots of each number, by number."""
    return tuple(tuple(slot for slot, number in enumerate(numbers) if number == one) for one in sorted(set(numbers)))

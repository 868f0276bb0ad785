"""Placement: on which disks a new chain lies, and which of them acknowledge. Pure; one question has one answer.

Place: asked when a chain is founded; the answer stands in the chain's record and is not changed by itself.
Promise: N clusters of M disks each, a cluster's disks served by as many processes as there are, racks spread as widely
as they can be, then the least loaded first. Modes, when racks (or disks) are fewer than wanted:
    enforce   the ack rule itself asks for `racks_min` racks, so that losing one rack fewer loses nothing that was
              acknowledged; refused where there are too few racks, clusters or disks
    degrade   goes on with what there is, down to one disk, and reports `below_policy` whenever some acknowledging set
              would stand in too few racks
    any       racks do not count; too few clusters or disks are refused
What enforce costs: with two racks, losing the smaller one stops acknowledgements until it is back (see docs/quorum.md).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import NamedTuple

from syncpoint.base.model.cluster import DiskPlace
from syncpoint.base.model.errors import FailedPrecondition
from syncpoint.log.storage.quorum import MAJORITY, AckRule

ENFORCE = "enforce"
DEGRADE = "degrade"
ANY = "any"
MODES = (ENFORCE, DEGRADE, ANY)


class Candidate(NamedTuple):
    """A disk that is there, and the region its process stands in."""

    place: DiskPlace
    region: str = ""

    @property
    def where(self) -> tuple[str, str, str]:
        """Its rack; racks of the same name in different zones are different ones. Without a name the zone is one."""
        return (self.region, self.place.zone, self.place.rack)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a durability class asks for."""

    clusters: int = 3
    disks: int = 3
    within: str = MAJORITY
    over: str = MAJORITY
    mode: str = DEGRADE
    racks_min: int = 1

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise ValueError(f"placement must be one of {', '.join(MODES)}, not {self.mode}")
        self.rule(self.clusters, self.disks)  # raises ValueError for even numbers

    def rule(self, clusters: int, disks: int) -> AckRule:
        """The rule for these numbers, racks aside."""
        slots = tuple(number for number in range(clusters) for _ in range(disks))
        return AckRule(slots, self.within, self.over)


class Placed(NamedTuple):
    """The disks in slot order, cluster by cluster, and the rule; `reasons` say why it is below policy."""

    places: tuple[DiskPlace, ...]
    rule: AckRule
    below_policy: bool
    reasons: tuple[str, ...]


class NoPlace(FailedPrecondition):
    """There are not the clusters, disks or racks that the durability class asks for."""


def loads_of(chains: Iterable[Sequence[DiskPlace]]) -> Counter[tuple[str, str]]:
    """How many chains each (cluster, disk) already has."""
    return Counter((place.cluster, place.disk) for places in chains for place in places)


def place(
    candidates: Iterable[Candidate],
    wanted: Wanted,
    *,
    regions: Collection[str] = (),
    loads: Mapping[tuple[str, str], int] | None = None,
    seed: str = "",
) -> Placed:
    """Choose. `regions`: only there (() for everywhere); `seed` breaks ties, so that chains made at once spread.

    Raises `NoPlace`.
    """
    found = sorted(one for one in candidates if not regions or one.region in regions)
    chooser = _Chooser(found, loads or {}, seed)
    sizes = _sizes(wanted) if wanted.mode == DEGRADE else [(wanted.clusters, wanted.disks)]
    for clusters, disks in sizes:
        chosen = chooser.choose(clusters, disks)
        if chosen is not None:
            return _judge(chosen, wanted, clusters, disks)
    have = Counter(one.place.cluster for one in found)
    enough = sum(1 for count in have.values() if count >= wanted.disks)
    raise NoPlace(
        f"the policy needs {wanted.clusters} clusters with {wanted.disks} disks each"
        f"{' in ' + ', '.join(sorted(regions)) if regions else ''}; only {enough} have that many"
    )


def _sizes(wanted: Wanted) -> list[tuple[int, int]]:
    """What degrade tries: all of it, then fewer disks in each cluster, then fewer clusters."""
    return [(n, m) for n in range(wanted.clusters, 0, -2) for m in range(wanted.disks, 0, -2)]


def _judge(chosen: Sequence[Candidate], wanted: Wanted, clusters: int, disks: int) -> Placed:
    names = {where: number for number, where in enumerate(sorted({one.where for one in chosen}))}
    racks = tuple(names[one.where] for one in chosen)
    places = tuple(one.place for one in chosen)
    rule = wanted.rule(clusters, disks)
    if wanted.mode == ANY:
        return Placed(places, rule, below_policy=False, reasons=())
    if wanted.mode == ENFORCE:
        if len(names) < wanted.racks_min:
            raise NoPlace(f"the policy needs {wanted.racks_min} racks, but the disks are in {len(names)}")
        if wanted.racks_min > 1:
            rule = AckRule(rule.clusters, rule.within, rule.over, racks, wanted.racks_min)
        return Placed(places, rule, below_policy=False, reasons=())
    reasons = []
    if (clusters, disks) != (wanted.clusters, wanted.disks):
        reasons.append(f"{clusters}x{disks} disks instead of {wanted.clusters}x{wanted.disks}")
    if not rule.always_spans(racks, wanted.racks_min):
        reasons.append(f"the policy needs {wanted.racks_min} racks, but the disks that acknowledge may be in fewer")
    return Placed(places, rule, bool(reasons), tuple(reasons))


class _Chooser:
    """Greedy: racks that are not used yet, then processes, then load, then a draw from the seed."""

    def __init__(self, candidates: Sequence[Candidate], loads: Mapping[tuple[str, str], int], seed: str) -> None:
        self._clusters: dict[str, list[Candidate]] = {}
        for one in candidates:
            self._clusters.setdefault(one.place.cluster, []).append(one)
        self._loads = loads
        self._seed = seed

    def choose(self, clusters: int, disks: int) -> list[Candidate] | None:
        """Choose `clusters` clusters with `disks` disks each; None if there are too few."""
        left = {name: some for name, some in self._clusters.items() if len(some) >= disks}
        chosen: list[Candidate] = []
        used: Counter[tuple[str, str, str]] = Counter()
        for _ in range(clusters):
            offers = {name: self._from_cluster(some, disks, used) for name, some in left.items()}
            if not offers:
                return None
            best = min(offers, key=lambda name: (self._cost(offers[name], used), self._draw(name)))
            chosen += offers[best]
            used.update(one.where for one in offers[best])
            del left[best]
        return chosen

    def _from_cluster(
        self, some: Sequence[Candidate], disks: int, used: Counter[tuple[str, str, str]]
    ) -> list[Candidate]:
        taken: list[Candidate] = []
        processes: Counter[str] = Counter()
        racks = used.copy()
        for _ in range(disks):
            best = min(
                (one for one in some if one not in taken),
                key=lambda one: (
                    racks[one.where],
                    processes[one.place.process],
                    self._load(one),
                    self._draw(f"{one.place.cluster}/{one.place.disk}"),
                ),
            )
            taken.append(best)
            processes[best.place.process] += 1
            racks[best.where] += 1
        return taken

    def _cost(self, offer: Sequence[Candidate], used: Counter[tuple[str, str, str]]) -> tuple[int, float]:
        """How often its racks are used already, then its load."""
        return sum(used[one.where] for one in offer), sum(map(self._load, offer)) / len(offer)

    def _load(self, one: Candidate) -> int:
        return self._loads.get((one.place.cluster, one.place.disk), 0)

    def _draw(self, name: str) -> bytes:
        return blake2b(f"{self._seed}\0{name}".encode(), digest_size=8).digest()

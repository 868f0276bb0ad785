"""Where a new chain lies: the disks that living processes serve, chosen by `storage.placement`.

Place: the plan behind `chain_creation`. Promise: a drained process gets no new chain.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from syncpoint.control.chain_creation import ChainPlan, ChainPlanner
from syncpoint.metadata.view import ClusterView
from syncpoint.model.cluster import STORAGE, ChainRecord, DiskPlace, Member
from syncpoint.model.errors import InvalidArgument
from syncpoint.storage.placement import Candidate, Wanted, loads_of, place


class PlacementPolicy(NamedTuple):
    """What a durability class asks of a chain's disks, and how firmly each of them keeps what it acknowledges."""

    wanted: Wanted
    durability: str = "sync"
    spans_regions: bool = False


def planner(view: ClusterView, me: Member, kinds: Mapping[str, PlacementPolicy]) -> ChainPlanner:
    """Plans chains of `me`, in its region unless the class spans several."""

    def plan(klass: str, known: Sequence[ChainRecord]) -> ChainPlan:
        kind = kinds.get(klass)
        if kind is None:
            raise InvalidArgument("class", f"there is no durability class {klass!r}")
        placed = place(
            candidates(view),
            kind.wanted,
            regions=() if kind.spans_regions else (me.region,),
            loads=loads_of(record.places for record in known),
            seed=f"{me.name}/{klass}",
        )
        return ChainPlan(placed.places, placed.rule.to_values(), kind.durability, placed.below_policy)

    return plan


def candidates(view: ClusterView) -> list[Candidate]:
    """Disks that may take a new chain now."""
    return [
        Candidate(DiskPlace(member.cluster, disk, member.name, member.rack, member.zone), member.region)
        for member in view.with_role(STORAGE)
        if not view.draining(member)
        for disk in member.disks
    ]

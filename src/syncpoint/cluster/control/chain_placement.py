"""Where a new chain lies: the disks that living processes serve, chosen by `storage.placement`.

Place: the plan behind `chain_creation`. Promise: a drained process gets no new chain.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from syncpoint.base.model.cluster import PUBLISH, STORAGE, ChainRecord, DiskPlace, Member
from syncpoint.base.model.errors import FailedPrecondition, InvalidArgument
from syncpoint.catalog.metadata.view import ClusterView
from syncpoint.cluster.control.chain_creation import ChainPlan, ChainPlanner
from syncpoint.cluster.control.durability_classes import DurabilityClass
from syncpoint.log.storage.placement import Candidate, NoPlace, loads_of, place


def planner(view: ClusterView, me: Member, classes: Mapping[str, DurabilityClass]) -> ChainPlanner:
    """Plans chains of `me`, in its region unless the class spans several."""

    def plan(klass: str, known: Sequence[ChainRecord]) -> ChainPlan:
        kind = classes.get(klass)
        if kind is None:
            raise InvalidArgument("class", f"unknown durability class {klass!r}")
        placed = place(
            candidates(view),
            kind.wanted,
            regions=() if kind.spans_regions else (me.region,),
            loads=loads_of(record.places for record in known),
            seed=f"{me.name}/{klass}",
        )
        return ChainPlan(placed.places, placed.rule.to_values(), kind.durability, placed.below_policy, placed.reasons)

    return plan


def refuse_what_has_no_place(view: ClusterView, made: DurabilityClass) -> None:
    """Raises `FailedPrecondition` unless every publish forwarder could have a chain of a class as it asks."""
    forwarders = view.with_role(PUBLISH)
    if not forwarders:
        raise FailedPrecondition("No publish forwarder is running that could create its chains. Start one first.")
    known = [seen.value for seen in view.chains.items.values()]
    for member in forwarders:
        try:
            plan = planner(view, member, {made.name: made})(made.name, known)
            lacking = "; ".join(plan.reasons)
        except NoPlace as error:
            lacking = error.message
        if lacking:
            raise FailedPrecondition(
                f"There are not enough disks for a chain of {member.name}: {lacking}. Use fewer clusters, disks or"
                " racks,"
                " or start more storage processes first."
            )


def candidates(view: ClusterView) -> list[Candidate]:
    """Disks that may take a new chain now."""
    return [
        Candidate(DiskPlace(member.cluster, disk, member.name, member.rack, member.zone), member.region)
        for member in view.with_role(STORAGE)
        if not view.draining(member)
        for disk in member.disks
    ]

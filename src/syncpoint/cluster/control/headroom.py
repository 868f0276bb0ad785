"""Headroom: whether those that are left could carry the load if a zone was lost. Pure.

Place: asked by the administration and by `mitigation`. A process is one event loop, so what it can carry at most is one
core; members report how much of one they use.
Promise: a role that would have nobody left is short, whatever it carries now. A member that does not report is counted
in `unknown`, and what it carries is not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from syncpoint.base.model.cluster import PROXY, PUBLISH, SUBSCRIBE, Member
from syncpoint.catalog.metadata.view import ClusterView

BUSY_MAX = 0.8
"""Of a core: above that, queues grow faster than work is done."""
ROLES = (PUBLISH, SUBSCRIBE, PROXY)


class RoleHeadroom(NamedTuple):
    """What losing a domain means for one role. `busy`: of a core, on average, now; `busy_after`: of those left."""

    domain: str
    role: str
    members: int
    left: int
    busy: float
    busy_after: float
    unknown: int

    @property
    def short(self) -> bool:
        """Whether those that are left would have too much to do."""
        return self.members > 0 and (self.left == 0 or self.busy_after > BUSY_MAX)


def headroom(view: ClusterView) -> list[RoleHeadroom]:
    """For each zone and each role; for each rack where no zone is named. Empty where all stand in one place."""
    members = [seen.value for _, seen in sorted(view.members.items.items())]
    busy = {name: float(seen.value["cpu"]) for name, seen in view.loads.items.items() if "cpu" in seen.value}
    domains = sorted({one.zone for one in members if one.zone}) or sorted({one.rack for one in members if one.rack})
    by_zone = any(one.zone for one in members)
    found = []
    for domain in domains if len(domains) > 1 else ():
        lost = {one.name for one in members if (one.zone if by_zone else one.rack) == domain}
        name = f"zone {domain}" if by_zone else f"rack {domain}"
        for role in ROLES:
            peers = [one for one in members if role in one.roles]
            if lost.intersection(one.name for one in peers):
                left = [one for one in peers if one.name not in lost and not view.draining(one)]
                found.append(_of_role(name, role, peers, left, busy))
    return found


def _of_role(
    domain: str, role: str, peers: Sequence[Member], left: Sequence[Member], busy: dict[str, float]
) -> RoleHeadroom:
    total = sum(busy.get(one.name, 0.0) for one in peers)
    weight = sum(one.weight for one in left)
    return RoleHeadroom(
        domain,
        role,
        len(peers),
        len(left),
        total / len(peers),
        total / weight if weight else 0.0,
        sum(one.name not in busy for one in peers),
    )

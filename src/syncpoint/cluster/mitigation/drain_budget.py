"""Drain budget: how many processes may be out of service at once before mitigation stops draining.

Place: asked by `mitigator` before each drain. Pure.
Promise: never the last of a role, and never more of a role than `share` of it (one, where that is less than one); all
drains count, those of operators, too, and so does who is missing. Where a role stands in several zones, mitigation
drains in one of them at a time.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple


class BudgetedProcess(NamedTuple):
    """A process as the budget sees it: one that lives, or one that is missing and counts as draining."""

    name: str
    roles: tuple[str, ...]
    zone: str
    draining: bool


def budget_refusal(target: str, processes: Sequence[BudgetedProcess], share: float, kept: Collection[str] = ()) -> str:
    """Why a process must not be drained too; "" when it may. `kept`: roles that mitigation never drains."""
    mine = next((one for one in processes if one.name == target), None)
    if mine is None:
        return "it is not there"
    for role in mine.roles:
        if role in kept:
            return f"processes of the role {role} are not drained by mitigation"
        peers = [one for one in processes if role in one.roles]
        out = [one for one in peers if one.draining and one.name != target]
        if len(peers) - len(out) <= 1:
            return f"it is the last {role} in service"
        allowed = max(1, int(share * len(peers)))
        if len(out) >= allowed:
            return f"{len(out)} of {len(peers)} of the role {role} are out of service already, {allowed} may be"
        zones = {one.zone for one in out} - {mine.zone}
        if zones:
            return f"a {role} of another zone ({', '.join(sorted(zones))}) is out of service already"
    return ""

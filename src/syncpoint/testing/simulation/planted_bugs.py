"""Every bug that is planted, and the search for the first seed that notices one. `tests/simulation` replays it."""

from __future__ import annotations

from syncpoint.testing.simulation import (
    planted_again,
    planted_changes,
    planted_cluster_pipelines,
    planted_delivery,
    planted_expiry,
    planted_forwards,
    planted_gateways,
    planted_ids,
    planted_imports,
    planted_lanes,
    planted_letters,
    planted_pipelines,
    planted_protocol,
    planted_pushes,
    planted_rules,
    planted_schedules,
    planted_sites,
    planted_storage,
    planted_subscriptions,
)
from syncpoint.testing.simulation.planted import PLANTED
from syncpoint.testing.simulation.runner import run_one

MODULES = (  # reading them enters their bugs in the list
    planted_protocol,
    planted_again,
    planted_rules,
    planted_schedules,
    planted_storage,
    planted_delivery,
    planted_expiry,
    planted_pipelines,
    planted_cluster_pipelines,
    planted_pushes,
    planted_lanes,
    planted_forwards,
    planted_ids,
    planted_letters,
    planted_subscriptions,
    planted_changes,
    planted_imports,
    planted_sites,
    planted_gateways,
)


def caught(name: str, seed: int) -> str | None:
    """How a planted bug is noticed in a seed; None when it is not."""
    planted = PLANTED[name]
    with planted.patch():
        result = run_one(seed, planted.life)
    return result.violations[0] if result.violations else None


def is_good_without(name: str, seed: int) -> list[str]:
    """What is wrong with a seed in which nothing is planted."""
    return PLANTED[name].life(seed).violations


def first_caught(name: str, seeds: int, hint: int | None = None) -> tuple[int, str] | None:
    """The first of so many seeds in which a planted bug is noticed, and how; None when it is not. `hint`: checked
    before all others.
    """
    for seed in (*(() if hint is None else (hint,)), *range(seeds)):
        how = caught(name, seed)
        if how is not None and not is_good_without(name, seed):
            return seed, how
    return None

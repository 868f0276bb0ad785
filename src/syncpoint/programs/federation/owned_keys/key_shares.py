"""Which site gets which slots of ordering keys: by weights, with as few moves as possible. Pure.

Place: under `key_move` and `take_over`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from syncpoint.base.model.durations import in_seconds
from syncpoint.base.model.errors import InvalidArgument
from syncpoint.base.model.key_homes import SLOTS, Slots


class KeyPolicy(NamedTuple):
    """`weights`: of sites, 1 where none is given. `takeover_s`: an owner that does not answer for this time loses its
    keys to the others (available); None: it keeps them (consistent).
    """

    weights: tuple[tuple[str, float], ...] = ()
    takeover_s: float | None = None


def policy_of(keys: Mapping[str, Any], place: str) -> KeyPolicy | None:
    """What a task has under `keys`. Raises `InvalidArgument`."""
    found = keys.get("keys")
    if found is None:
        return None
    if not keys.get("acks", False):
        raise InvalidArgument(f"{place}.keys", "needs `acks: true`: owners learn by it what others acknowledged")
    weights = tuple(sorted((name, float(one)) for name, one in found.get("weights", {}).items()))
    return KeyPolicy(weights, in_seconds(found["takeover"]) if "takeover" in found else None)


def balanced(slots: Slots, weights: Mapping[str, float]) -> dict[int, str]:
    """The slots that change hands, and their next sites. Raises `ValueError` where nobody has a weight."""
    wanted = _shares(weights)
    counts = dict.fromkeys(wanted, 0)
    free: list[int] = []
    for slot, at in enumerate(slots):
        if counts.get(at.home, 0) < wanted.get(at.home, 0):
            counts[at.home] += 1
        else:
            free.append(slot)
    moved = {}
    for site, share in wanted.items():
        for _ in range(share - counts[site]):
            moved[free.pop(0)] = site
    return moved


def _shares(weights: Mapping[str, float]) -> dict[str, int]:
    """How many slots each gets: whole ones, the rest by the largest fractions."""
    total = sum(weights.values())
    if total <= 0:
        raise ValueError("no site has a weight above 0")
    exact = {site: SLOTS * weight / total for site, weight in weights.items()}
    shares = {site: int(share) for site, share in exact.items()}
    for site in sorted(exact, key=lambda one: (shares[one] - exact[one], one))[: SLOTS - sum(shares.values())]:
        shares[site] += 1
    return shares

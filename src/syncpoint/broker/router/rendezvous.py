"""Rendezvous order: every key has its own order of all names, the same in every process, without a table.

Place: under the assignment of topics and subscriptions, and in every proxy, which finds the chain of an ordering key
by it and makes its lists by it while no router answers.
Promise: the order of a key depends on the set of names only; taking a name away leaves the rest in its order, so only
what was at that name moves. The hash is part of the format: versions that run side by side must agree on it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b

MASK = (1 << 64) - 1
MULTIPLY_1 = 0xFF51AFD7ED558CCD
MULTIPLY_2 = 0xC4CEB9FE1A85EC53
_NAMES_CACHED = 65_536


def order(key: int | bytes, names: Sequence[str], weights: Mapping[str, float] | None = None) -> list[str]:
    """All names, the key's first choice first.

    `weights`: a name comes first for a share of the keys that is proportional to its weight; 1 where it has none, and
    a weight of 0 puts it last.
    """
    hashed = hash_key(key)
    if weights is None:
        return sorted(names, key=lambda name: (mix(hashed ^ hash_name(name)), name), reverse=True)
    ranks = {name: (_weighted(mix(hashed ^ hash_name(name)), weights.get(name, 1.0)), name) for name in names}
    return sorted(names, key=ranks.__getitem__, reverse=True)


def pick(key: int | bytes, names: Sequence[str]) -> str:
    """The first name of `order`. Raises `ValueError` when there are none."""
    if len(names) == 1:
        return names[0]
    hashed = hash_key(key)
    return max(names, key=lambda name: (mix(hashed ^ hash_name(name)), name))


def pick_chain(topic: int, key: bytes, chains: Sequence[int]) -> int:
    """The chain that takes the messages of an ordering key: one of the chains a topic is assigned to."""
    if len(chains) == 1:
        return chains[0]
    hashed = hash_key(topic.to_bytes(8, "big") + key)
    return max(chains, key=lambda chain: (mix(hashed ^ _chain_hash(chain)), chain))


def hash_key(key: int | bytes) -> int:
    """64 well mixed bits of a key; of a number, its lowest 64 bits count."""
    if isinstance(key, int):
        return mix(key + 1 & MASK)  # 0 would stay 0
    return int.from_bytes(blake2b(key, digest_size=8).digest(), "big")


@lru_cache(maxsize=_NAMES_CACHED)
def hash_name(name: str) -> int:
    """64 well mixed bits of a name."""
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "big")


def mix(value: int) -> int:
    """A permutation of 64-bit numbers in which every bit of the result depends on every bit of `value`."""
    value ^= value >> 33
    value = value * MULTIPLY_1 & MASK
    value ^= value >> 33
    value = value * MULTIPLY_2 & MASK
    return value ^ value >> 33


@lru_cache(maxsize=_NAMES_CACHED)
def _chain_hash(chain: int) -> int:
    return hash_name(str(chain))


def _weighted(score: int, weight: float) -> float:
    """The rank of a weighted name: with uniform scores, the highest is at each name in proportion to its weight."""
    if weight <= 0:
        return -math.inf
    return math.log((score + 0.5) / (MASK + 1)) / weight

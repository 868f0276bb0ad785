"""Who must hold what: pure arithmetic on a fragment's ack rule (protocol rule 2).

Place: asked by `log` after every commit and by recovery before it believes that something is not there.
A fragment has M members; an entry is persisted once k = ceil((M+1)/2) of them, a majority, hold everything up to it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence


def majority(members: int) -> int:
    """Size of a majority. Raises `ValueError` unless the number of members is odd."""
    if members < 1 or members % 2 == 0:
        raise ValueError(f"a fragment has an odd number of disks, not {members}")
    return members // 2 + 1


def kth_largest(positions: Sequence[int], k: int) -> int:
    """The highest position that at least `k` members have reached; 0 when there are fewer than `k`."""
    if len(positions) < k:
        return 0
    if k == 1:
        return max(positions)
    return sorted(positions, reverse=True)[k - 1]


def is_write_set(members: Collection[bytes], holders: Iterable[bytes], k: int) -> bool:
    """Whether `holders` suffice to acknowledge: at least `k` of the members."""
    return len(set(members).intersection(holders)) >= k


def is_read_set(members: Collection[bytes], present: Iterable[bytes], k: int) -> bool:
    """Whether what none of `present` holds was never acknowledged: the absent ones alone are no write set."""
    return len(members) - len(set(members).intersection(present)) < k


def is_fence_set(members: Collection[bytes], fenced: Iterable[bytes], k: int) -> bool:
    """Whether nothing can be acknowledged any more once `fenced` refuse: the others alone are no write set."""
    return is_read_set(members, fenced, k)

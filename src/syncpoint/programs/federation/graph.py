"""Paths: which link carries messages of which origin, so that each cluster gets each message once.

Pure. Where every pair of clusters is linked, a link carries what was published at its source. In a ring, a chain, or
any other graph, messages travel on: from each origin there is a tree of shortest paths to all clusters that can be
reached, and a link carries the origins in whose trees it is. So nothing goes round, and nothing arrives on two ways.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterable, Sequence

from syncpoint.base.model.errors import InvalidArgument

Edge = tuple[str, str]


def edges_of(clusters: Sequence[str], links: str | Sequence[Sequence[str]], place: str) -> list[Edge]:
    """The links between clusters, in order. Raises `InvalidArgument` for one that is none."""
    if links == "mesh":
        return [(one, other) for one in clusters for other in clusters if one != other]
    if links in ("ring", "chain"):
        pairs = list(itertools.pairwise(clusters))
        if links == "ring" and len(clusters) > 2:
            pairs.append((clusters[-1], clusters[0]))
        return [edge for one, other in pairs for edge in ((one, other), (other, one))]
    found: list[Edge] = []
    for one, other in links:
        if one == other or one not in clusters or other not in clusters:
            raise InvalidArgument(place, f"[{one}, {other}] is not a link between two of {', '.join(clusters)}")
        found.append((one, other))
    return found


def origins_by_edge(edges: Iterable[Edge]) -> dict[Edge, list[str]]:
    """For each link the clusters whose messages it carries, its own source first where it is among them."""
    edges = list(dict.fromkeys(edges))
    clusters = list(dict.fromkeys(name for edge in edges for name in edge))
    next_of: dict[str, list[str]] = {name: [] for name in clusters}
    for one, other in edges:
        next_of[one].append(other)
    carried: dict[Edge, list[str]] = {edge: [] for edge in edges}
    for origin in clusters:
        seen, queue = {origin}, deque([origin])
        while queue:
            here = queue.popleft()
            for there in next_of[here]:
                if there not in seen:
                    seen.add(there)
                    queue.append(there)
                    carried[here, there].append(origin)
    for (one, _), origins in carried.items():
        origins.sort(key=lambda name: (name != one, clusters.index(name)))
    return carried

"""Ways between clusters: each gets each message once, over any graph."""

from __future__ import annotations

from collections import Counter, deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncpoint.base.model.errors import InvalidArgument
from syncpoint.programs.federation.graph import Edge, edges_of, origins_by_edge


@pytest.mark.parametrize("count", [2, 3, 5])
def test_a_mesh_of_k_has_k_times_k_minus_one_links_that_carry_what_begins_there(count: int) -> None:
    clusters = [f"c{number}" for number in range(count)]
    carried = origins_by_edge(edges_of(clusters, "mesh", ""))
    assert len(carried) == count * (count - 1)
    assert all(origins == [source] for (source, _), origins in carried.items())


def test_in_a_chain_messages_travel_on() -> None:
    carried = origins_by_edge(edges_of(["a", "b", "c"], "chain", ""))
    assert carried == {("a", "b"): ["a"], ("b", "a"): ["b", "c"], ("b", "c"): ["b", "a"], ("c", "b"): ["c"]}


def test_a_ring_of_two_is_two_links() -> None:
    assert edges_of(["a", "b"], "ring", "") == [("a", "b"), ("b", "a")]


def test_a_link_that_is_none_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="not a link"):
        edges_of(["a", "b"], [["a", "a"]], "here")


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)).filter(lambda pair: pair[0] != pair[1]), max_size=15))
def test_every_cluster_that_can_be_reached_gets_each_message_once(pairs: list[tuple[int, int]]) -> None:
    edges: list[Edge] = [(f"c{one}", f"c{other}") for one, other in pairs]
    carried = origins_by_edge(edges)
    clusters = {name for edge in edges for name in edge}
    for origin in clusters:
        got = Counter(other for (_, other), origins in carried.items() if origin in origins)
        assert set(got) == reachable(origin, edges)
        assert all(times == 1 for times in got.values())
        # What a link carries on, has arrived at its source.
        assert all(one == origin or one in got for (one, _), origins in carried.items() if origin in origins)


def reachable(origin: str, edges: list[Edge]) -> set[str]:
    seen, queue = {origin}, deque([origin])
    while queue:
        here = queue.popleft()
        for one, other in edges:
            if one == here and other not in seen:
                seen.add(other)
                queue.append(other)
    return seen - {origin}

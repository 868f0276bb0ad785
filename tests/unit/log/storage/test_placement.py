"""Where new chains lie: topologies, modes, spread."""

from __future__ import annotations

from collections import Counter
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncpoint.base.model.cluster import DiskPlace
from syncpoint.log.storage.placement import Candidate, NoPlace, Placed, Wanted, loads_of, place

pytestmark = pytest.mark.shows("quorums")


def disk(cluster: str, name: str, process: str = "", rack: str = "", zone: str = "", region: str = "r") -> Candidate:
    return Candidate(DiskPlace(cluster, name, process or cluster, rack, zone), region)


FOUR_NODES = [
    disk("bk1", "d1", rack="rack-1", region="region-a"),
    disk("bk2", "d1", rack="rack-1", region="region-a"),
    disk("bk3", "d1", rack="rack-2", region="region-b"),
    disk("bk4", "d1", rack="rack-2", region="region-b"),
]
"""The seed's example: four nodes, two regions, a rack in each."""


def racks_of_acknowledging_sets(placed: Placed, candidates: list[Candidate]) -> set[int]:
    where = {one.place: one.where for one in candidates}
    slots = range(len(placed.places))
    return {
        len({where[placed.places[slot]] for slot in some})
        for size in range(len(slots) + 1)
        for some in combinations(slots, size)
        if placed.rule.can_acknowledge(some)
    }


@pytest.mark.parametrize("seed", ["", "a", "b", "c"])
def test_four_nodes_enforced(seed: str) -> None:
    placed = place(FOUR_NODES, Wanted(3, 1, mode="enforce", racks_min=2), seed=seed)
    assert len({one.cluster for one in placed.places}) == 3
    assert {one.rack for one in placed.places} == {"rack-1", "rack-2"}
    assert racks_of_acknowledging_sets(placed, FOUR_NODES) == {2}
    assert not placed.below_policy


def test_four_nodes_with_one_rack_gone() -> None:
    left = FOUR_NODES[:2]
    with pytest.raises(NoPlace, match="3 clusters with 1 disks"):
        place(left, Wanted(3, 1, mode="enforce", racks_min=2))
    with pytest.raises(NoPlace, match="needs 2 racks"):
        place(left, Wanted(1, 1, mode="enforce", racks_min=2))
    with pytest.raises(NoPlace):
        place(left, Wanted(3, 1, mode="any", racks_min=2))
    placed = place(left, Wanted(3, 1, mode="degrade", racks_min=2))
    assert placed.below_policy
    assert placed.reasons == (
        "1x1 disks instead of 3x1",
        "the policy needs 2 racks, but the disks that acknowledge may be in fewer",
    )
    assert placed.rule.can_acknowledge((0,))


def test_degrade_says_when_some_acknowledging_set_is_in_one_rack() -> None:
    placed = place(FOUR_NODES, Wanted(3, 1, mode="degrade", racks_min=2))
    assert placed.below_policy, "two of the three stand in one rack and may acknowledge"
    assert len(placed.places) == 3
    three = [disk(f"c{rack}", "d", rack=f"rack-{rack}") for rack in range(3)]
    placed = place(three, Wanted(3, 1, mode="degrade", racks_min=2))
    assert not placed.below_policy
    assert place(FOUR_NODES, Wanted(3, 1, mode="any", racks_min=2)).below_policy is False


def test_regions_are_kept() -> None:
    with pytest.raises(NoPlace, match="in region-a"):
        place(FOUR_NODES, Wanted(3, 1, mode="any"), regions={"region-a"})
    placed = place(FOUR_NODES, Wanted(1, 1, mode="any"), regions={"region-b"})
    assert placed.places[0].cluster in ("bk3", "bk4")


def test_three_by_three_spreads_over_processes_and_racks() -> None:
    candidates = [
        disk(f"c{cluster}", f"d{number}", process=f"p{cluster}-{number % 4}", rack=f"rack-{number % 4}")
        for cluster in range(4)
        for number in range(8)
    ]
    placed = place(candidates, Wanted())
    assert len(placed.places) == 9
    for number in range(3):
        group = placed.places[number * 3 : number * 3 + 3]
        assert len({one.cluster for one in group}) == 1
        assert len({one.process for one in group}) == 3
    assert placed.rule.clusters == (0, 0, 0, 1, 1, 1, 2, 2, 2)
    assert len({one.rack for one in placed.places}) == 4


def test_chains_spread_evenly_over_the_disks() -> None:
    candidates = [disk(f"c{cluster}", f"d{number}", f"p{number}") for cluster in range(5) for number in range(5)]
    chains: list[tuple[DiskPlace, ...]] = []
    for number in range(50):
        chains.append(place(candidates, Wanted(), loads=loads_of(chains), seed=f"chain {number}").places)
    counts = loads_of(chains)
    assert sum(counts.values()) == 450
    assert max(counts.values()) - min(counts.values()) <= 3, counts


def test_chains_made_at_once_do_not_all_take_the_same_disks() -> None:
    candidates = [disk(f"c{cluster}", f"d{number}", f"p{number}") for cluster in range(9) for number in range(3)]
    firsts = Counter(place(candidates, Wanted(3, 1), seed=str(number)).places[0] for number in range(30))
    assert len(firsts) > 5


def test_what_makes_no_sense_is_refused() -> None:
    for clusters, disks in (2, 1), (3, 2), (0, 1):
        with pytest.raises(ValueError, match="odd"):
            Wanted(clusters, disks)
    with pytest.raises(ValueError, match="enforce, degrade, any"):
        Wanted(mode="maybe")


topologies = st.lists(
    st.builds(
        disk,
        st.sampled_from(["c1", "c2", "c3", "c4", "c5"]),
        st.sampled_from(["d1", "d2", "d3", "d4"]),
        st.sampled_from(["p1", "p2", "p3"]),
        st.sampled_from(["", "r1", "r2", "r3"]),
        st.sampled_from(["", "z1", "z2"]),
    ),
    max_size=20,
    unique_by=lambda one: (one.place.cluster, one.place.disk),
)


@given(
    topologies,
    st.builds(
        Wanted,
        st.sampled_from([1, 3]),
        st.sampled_from([1, 3]),
        st.sampled_from(["majority", "all"]),
        st.sampled_from(["majority", "all"]),
        st.sampled_from(["enforce", "degrade", "any"]),
        st.integers(1, 3),
    ),
    st.text(max_size=3),
)
def test_what_is_promised_holds_in_any_topology(candidates: list[Candidate], wanted: Wanted, seed: str) -> None:
    try:
        placed = place(candidates, wanted, seed=seed)
    except NoPlace:
        assert wanted.mode != "degrade" or not candidates
        return
    assert placed == place(reversed(candidates), wanted, seed=seed), "the order of the candidates does not count"
    assert len(set(placed.places)) == len(placed.places) == len(placed.rule)
    clusters: dict[int, set[str]] = {}
    for number, one in zip(placed.rule.clusters, placed.places, strict=True):
        clusters.setdefault(number, set()).add(one.cluster)
    assert all(len(names) == 1 for names in clusters.values())
    assert len(set.union(*clusters.values())) == len(clusters)
    spans = racks_of_acknowledging_sets(placed, candidates)
    if wanted.mode == "enforce":
        assert min(spans) >= wanted.racks_min
    if wanted.mode != "degrade":
        assert len(placed.places) == wanted.clusters * wanted.disks
    elif not placed.below_policy:
        assert min(spans) >= wanted.racks_min
        assert len(placed.places) == wanted.clusters * wanted.disks

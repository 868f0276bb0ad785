"""The arithmetic of acknowledging sets, against brute force."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncpoint.log.storage.quorum import AckRule, kth_largest, majority

RULES = [
    AckRule.single(1),
    AckRule.single(3),
    AckRule.single(5),
    AckRule.grid(3, 1),
    AckRule.grid(3, 3),
    AckRule.grid(1, 3),
    AckRule((0, 1, 2) * 3),
    AckRule((0, 0, 0, 1, 1, 1, 2, 2, 2), within="all"),
    AckRule((0, 0, 0, 1, 1, 1, 2, 2, 2), over="all"),
    AckRule((0, 0, 0, 1, 1, 1, 2, 2, 2), "all", "all"),
    AckRule((0, 0, 0, 1, 1, 1, 2, 2, 2), racks=(0, 0, 0, 0, 0, 0, 1, 1, 1), racks_min=2),
    AckRule((4, 4, 4, 7, 7, 7, 9, 9, 9), racks=(0, 1, 2, 0, 1, 2, 0, 1, 2), racks_min=3),
    AckRule((0, 0, 0), racks=(5, 5, 6), racks_min=2),
]


def sets(rule: AckRule) -> Iterator[frozenset[int]]:
    for size in range(len(rule) + 1):
        yield from map(frozenset, combinations(range(len(rule)), size))


def acknowledges(rule: AckRule, slots: frozenset[int]) -> bool:
    """The definition, spelled out."""
    have = 0
    names = set(rule.clusters)
    for name in names:
        members = [slot for slot, cluster in enumerate(rule.clusters) if cluster == name]
        held = sum(1 for slot in members if slot in slots)
        have += held == len(members) if rule.within == "all" else held * 2 > len(members)
    enough = have == len(names) if rule.over == "all" else have * 2 > len(names)
    return enough and (rule.racks_min == 1 or len({rule.racks[slot] for slot in slots}) >= rule.racks_min)


def test_majority_wants_an_odd_number() -> None:
    assert [majority(n) for n in (1, 3, 5, 7)] == [1, 2, 3, 4]
    for wrong in (0, 2, 4, -1):
        with pytest.raises(ValueError, match="odd"):
            majority(wrong)


@given(st.lists(st.integers(0, 50), min_size=1, max_size=7), st.integers(1, 8))
def test_kth_largest_is_what_k_members_reached(positions: list[int], k: int) -> None:
    found = kth_largest(positions, k)
    expected = max((p for p in range(51) if sum(1 for one in positions if one >= p) >= k), default=0)
    assert found == expected


@pytest.mark.parametrize("rule", RULES)
def test_the_rule_is_its_definition_and_every_pair_of_sets_meets(rule: AckRule) -> None:
    everything = list(sets(rule))
    writes = [some for some in everything if acknowledges(rule, some)]
    assert writes, "a rule that nothing satisfies"
    smallest = [some for some in writes if not any(acknowledges(rule, some - {slot}) for slot in some)]
    for some in everything:
        assert rule.can_acknowledge(some) == acknowledges(rule, some)
        meets = all(some & write for write in smallest)
        assert rule.is_read_set(some) == meets


@given(st.sampled_from(RULES), st.data())
def test_persisted_is_the_highest_position_of_an_acknowledging_set(rule: AckRule, data: st.DataObject) -> None:
    positions = data.draw(st.lists(st.integers(0, 9), min_size=len(rule), max_size=len(rule)))
    expected = 0
    for position in range(1, 10):
        if acknowledges(rule, frozenset(slot for slot, one in enumerate(positions) if one >= position)):
            expected = position
    assert rule.persisted(positions) == expected


def test_a_majority_of_nine_fences_nothing_in_27_of_126_cases() -> None:
    """Rule 2: one cluster and a disk of each other are a majority of 9, and leave a whole write quorum open."""
    rule = AckRule.grid(3, 3)
    fives = [frozenset(some) for some in combinations(range(9), 5)]
    open_still = [some for some in fives if not rule.is_read_set(some)]
    assert (len(fives), len(open_still)) == (126, 27)
    assert frozenset((0, 1, 2, 3, 6)) in open_still
    assert rule.is_read_set((0, 1, 3, 4)), "two disks in each of two clusters are enough, although they are four"


def test_any_cluster_and_one_disk_of_each_other_may_be_lost() -> None:
    rule = AckRule.grid(3, 3)
    for gone, *others in [(0, 1, 2), (1, 0, 2), (2, 0, 1)]:
        for first, second in product(range(3), range(3)):
            lost = {gone * 3, gone * 3 + 1, gone * 3 + 2, others[0] * 3 + first, others[1] * 3 + second}
            left = [slot for slot in range(9) if slot not in lost]
            assert rule.can_acknowledge(left)
            assert rule.is_read_set(left)


def test_the_rack_that_burns_has_never_all_of_it() -> None:
    """Rule 9: two clusters in rack 0 are a majority, and still do not acknowledge by themselves."""
    rule = AckRule((0, 1, 2), racks=(0, 0, 1), racks_min=2)
    assert not rule.can_acknowledge((0, 1))
    assert rule.can_acknowledge((0, 2))
    assert rule.is_read_set((2,)), "whatever was acknowledged is in the other rack, too"
    assert not AckRule((0, 1, 2)).always_spans((0, 0, 1), 2)
    assert AckRule((0, 1, 2)).always_spans((0, 1, 2), 2)
    assert not AckRule((0, 1, 2)).always_spans((0, 1, 2), 3)
    assert AckRule((0, 1, 2), over="all").always_spans((0, 1, 2), 3)


@pytest.mark.parametrize(
    ("clusters", "more", "match"),
    [
        ((0, 0), {}, "odd"),
        ((0, 1), {}, "odd"),
        ((), {}, "odd"),
        ((0, 0, 0, 1, 1, 1), {}, "odd"),
        ((0, 0, 1, 1, 2, 2), {}, "odd"),
        ((0, 0, 0, 1, 2), {}, "same number"),
        ((0, 0, 0), {"within": "most"}, "majority or all"),
        ((0, 0, 0), {"racks": (1, 2)}, "rack of every disk"),
        ((0, 0, 0), {"racks": (1, 1, 1), "racks_min": 2}, "racks_min is 2"),
        ((0, 0, 0), {"racks_min": 2}, "racks_min is 2"),
        ((0, 0, 0), {"racks_min": 0}, "racks_min is 0"),
        ((70_000,), {}, "0 to 65535"),
    ],
)
def test_what_makes_no_sense_is_refused(clusters: tuple[int, ...], more: dict[str, object], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        AckRule(clusters, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("rule", RULES)
def test_stored_forms_come_back(rule: AckRule) -> None:
    count, rest = rule.encode()
    assert AckRule.decode(count, len(rule), rest + bytes(100)) == rule
    assert AckRule.from_values(rule.to_values()) == rule
    assert (rest == b"") == (rule == AckRule.single(len(rule)))


def test_headers_of_one_node_stay_as_they_were() -> None:
    assert AckRule.single(3).encode() == (2, b"")
    assert AckRule.decode(2, 3, b"whatever follows") == AckRule.single(3)
    for count, members, rest in [(1, 3, b""), (0x8002, 3, b"\0"), (0x8002, 3, b"\7" * 40), (2, 4, b"")]:
        with pytest.raises(ValueError):
            AckRule.decode(count, members, rest)
    for values in ({}, {"clusters": 3}, {"clusters": [0, 0]}):
        with pytest.raises(ValueError):
            AckRule.from_values(values)

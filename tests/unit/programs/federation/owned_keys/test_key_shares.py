"""Shares of slots by weights, with as few moves as possible."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncpoint.base.model.key_homes import NOWHERE, SLOTS, SlotHome
from syncpoint.programs.federation.owned_keys.key_shares import balanced

weights = st.dictionaries(st.sampled_from("abcde"), st.sampled_from([0.0, 0.5, 1.0, 3.0]), min_size=1).filter(
    lambda found: sum(found.values()) > 0
)


@given(weights, st.lists(st.sampled_from("abcxyz"), min_size=SLOTS, max_size=SLOTS))
def test_all_get_their_shares_and_no_slot_moves_without_need(wanted: dict[str, float], homes: list[str]) -> None:
    moved = balanced([SlotHome(1, home) for home in homes], wanted)
    after = Counter(moved.get(slot, home) for slot, home in enumerate(homes))
    total = sum(wanted.values())
    for site, weight in wanted.items():
        assert abs(after[site] - SLOTS * weight / total) < 1
    assert after.keys() <= wanted.keys()
    before = Counter(homes)
    assert len(moved) == sum(max(0, after[site] - before[site]) for site in wanted)
    assert all(homes[slot] != site for slot, site in moved.items())


def test_a_site_without_weight_loses_all_and_somebody_must_have_one() -> None:
    half = [SlotHome(1, "a" if slot % 2 else "b") for slot in range(SLOTS)]
    assert balanced(half, {"a": 0.0, "b": 1.0}) == dict.fromkeys(range(1, SLOTS, 2), "b")
    assert set(balanced(NOWHERE, {"a": 1.0}).values()) == {"a"}
    with pytest.raises(ValueError, match="no site has a weight"):
        balanced(half, {"a": 0.0})

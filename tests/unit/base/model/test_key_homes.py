"""Slots of ordering keys: decisions about them, in any order, come to the same everywhere."""

from __future__ import annotations

from functools import reduce

from hypothesis import given
from hypothesis import strategies as st

from syncpoint.base.model.key_homes import (
    NOWHERE,
    SLOTS,
    KeyRange,
    SlotHome,
    elsewhere,
    later,
    ranges_of,
    slot_of,
    slots_of,
)

homes = st.builds(SlotHome, st.integers(1, 4), st.sampled_from(["a", "b", "(moving)"]), st.sampled_from(["", "a"]))
parts = st.tuples(st.integers(0, SLOTS - 1), st.integers(0, SLOTS - 1), homes)
decisions = st.lists(parts.map(lambda one: KeyRange(min(one[:2]), max(one[:2]), one[2])), max_size=4)


@given(st.lists(decisions, max_size=4), st.randoms())
def test_sites_that_learn_in_any_order_come_to_the_same(decided: list[list[KeyRange]], random: object) -> None:
    other = list(decided) * 2
    random.shuffle(other)  # type: ignore[attr-defined]
    one = reduce(later, map(slots_of, decided), NOWHERE)
    assert list(one) == list(reduce(later, map(slots_of, other), NOWHERE))
    assert slots_of(ranges_of(one)) == list(one)


def test_a_key_has_its_slot_and_a_slot_its_site() -> None:
    assert {slot_of(b"%d" % number) for number in range(10_000)} == set(range(SLOTS))
    slots = slots_of([KeyRange(0, 9, SlotHome(1, "a")), KeyRange(10, 11, SlotHome(2, "b"))])
    assert (elsewhere(slots, "a"), elsewhere(slots, "b")) == (0b11 << 10, (1 << 10) - 1)
    assert elsewhere(slots, "c") == (1 << 12) - 1, "of other slots nothing was decided: every site delivers them"
    assert SlotHome(1, "(moving) x").moving

"""When keys of a silent site are taken, and by whom."""

from __future__ import annotations

from collections import Counter

from syncpoint.base.model.key_homes import KeyRange, SlotHome, slots_of
from syncpoint.programs.federation.owned_keys.key_sites import KnownKeys
from syncpoint.programs.federation.owned_keys.take_over import TakeOver

SLOTS = slots_of(
    [KeyRange(0, 99, SlotHome(4, "a")), KeyRange(100, 199, SlotHome(5, "b")), KeyRange(200, 255, SlotHome(1, "c"))]
)


def known(*silent: str) -> KnownKeys:
    return KnownKeys({site: SLOTS for site in "abc" if site not in silent}, dict.fromkeys(silent, "away"))


def test_a_site_loses_its_keys_after_the_whole_time_and_others_keep_theirs() -> None:
    machine = TakeOver(30.0, {"c": 3.0})
    assert machine.looked(known("a"), 0.0) == {}
    assert machine.looked(known("a"), 29.9) == {}
    (lost, decided) = next(iter(machine.looked(known("a"), 30.0).items()))
    assert (lost, set(decided)) == ("a", set(range(100)))
    assert {(one.epoch, one.taken_from) for one in decided.values()} == {(6, "a")}
    assert Counter(one.home for one in decided.values()) == {"c": 100}, "it has less than its share"


def test_one_that_answers_in_between_begins_anew_and_nothing_is_taken_where_nobody_answers() -> None:
    machine = TakeOver(30.0, {})
    machine.looked(known("a"), 0.0)
    machine.looked(known(), 20.0)
    assert machine.looked(known("a"), 40.0) == {}
    assert machine.looked(known("a", "b", "c"), 100.0) == {}
    decided = machine.looked(known("a", "b"), 140.0)
    assert {lost: len(slots) for lost, slots in decided.items()} == {"a": 100, "b": 100}
    assert {one.home for slots in decided.values() for one in slots.values()} == {"c"}


def test_weights_that_leave_nobody_do_not_keep_keys_from_being_delivered() -> None:
    machine = TakeOver(1.0, {"b": 0.0, "c": 0.0})
    machine.looked(known("a"), 0.0)
    decided = machine.looked(known("a"), 1.0)["a"]
    assert {one.home for one in decided.values()} <= {"b", "c"}
    assert len(decided) == 100

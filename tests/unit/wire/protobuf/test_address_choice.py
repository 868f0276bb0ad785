"""Which address is used: failures and wishes in any order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncpoint.wire.protobuf.address_choice import REST_FIRST_S, REST_MAX_S, AddressChoice


def test_the_first_address_is_used_until_it_fails_and_the_next_one_stays():
    choice = AddressChoice(["a", "b", "c"])
    assert choice.present == "a"
    assert choice.failed("a", 0.0)
    assert choice.present == "b"
    assert not choice.failed("a", 0.1)  # another call that was under way there
    assert choice.present == "b"
    assert choice.preferred(100.0) is None


def test_an_address_that_rests_is_avoided_and_the_least_tired_one_is_used_when_all_rest():
    choice = AddressChoice(["a", "b", "c"])
    choice.failed("a", 0.0)
    choice.failed("b", 0.1)
    assert choice.present == "c"
    choice.failed("c", 0.2)
    assert choice.present == "a"
    choice.failed("a", 0.3)
    assert choice.present == "b"


def test_a_rest_grows_to_its_limit_and_ends_with_an_answer():
    choice = AddressChoice(["a", "b"], prefer_first=True)
    now = 0.0
    for expected in (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, REST_MAX_S, REST_MAX_S):
        choice.switch_to("b")
        now += 1000.0
        choice.failed("a", now)
        assert choice.preferred(now + expected - 0.1) is None
        assert choice.preferred(now + expected) == "a"
    choice.answered("a")
    choice.failed("a", now)
    assert choice.preferred(now + REST_FIRST_S) == "a"


def test_preferred_addresses_are_checked_in_their_order():
    choice = AddressChoice(["a", "b", "c"], prefer_first=True)
    assert choice.preferred(0.0) is None
    choice.failed("a", 0.0)
    choice.failed("b", 0.5)
    assert choice.present == "c"
    assert choice.preferred(0.9) is None
    assert choice.preferred(1.2) == "a"
    assert choice.switch_to("a")
    assert choice.preferred(1.2) is None
    choice.failed("a", 1.6)
    assert choice.present == "b"  # though c came after a in the round: what is listed first is preferred


def test_one_address_is_kept_whatever_happens():
    choice = AddressChoice(["a"])
    assert not choice.failed("a", 0.0)
    assert choice.present == "a"


def test_wrong_lists_and_unknown_addresses_are_refused():
    with pytest.raises(ValueError, match="at least one"):
        AddressChoice([])
    with pytest.raises(ValueError, match="twice: a, a"):
        AddressChoice(["a", "a"])
    choice = AddressChoice(["a", "b"])
    with pytest.raises(ValueError, match="none of the addresses: a, b"):
        choice.switch_to("c")
    assert choice.switch_to("b")
    assert not choice.switch_to("b")
    assert choice.moves == 1


@given(
    st.lists(st.tuples(st.sampled_from(["fail", "answer", "switch"]), st.sampled_from("abc"), st.floats(0, 40))),
    st.booleans(),
)
def test_after_any_history_a_failure_leads_elsewhere_and_to_a_rested_address_if_there_is_one(steps, prefer_first):
    choice, now = AddressChoice("abc", prefer_first=prefer_first), 0.0
    failed: dict[str, float] = {}
    for kind, address, pause in steps:
        now += pause
        before, moves = choice.present, choice.moves
        if kind == "switch":
            choice.switch_to(address)
            failed.pop(address, None)
            assert choice.present == address
        elif kind == "answer":
            choice.answered(address)
            failed.pop(address, None)
            assert choice.present == before
        else:
            moved = choice.failed(address, now)
            failed[address] = now
            assert moved == (address == before) == (choice.present != before)
            fresh = [one for one in "abc" if one not in failed]
            if moved and fresh:
                assert choice.present in fresh or now - failed[choice.present] >= REST_FIRST_S
        assert choice.moves == moves + (choice.present != before)

"""Where a message at the edge goes: every place within the deadline, the healthy one first, an ill one seldom."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncpoint.base.model.errors import Code
from syncpoint.client.edge_route import PAUSE_S, REST_FIRST_S, REST_MAX_S, EdgeRoute, PlaceHealth

pytestmark = pytest.mark.shows("edge")

AWAY = Code.UNAVAILABLE


def route(health: PlaceHealth, now_s: float = 0.0, deadline_s: float = 4.0, patience_s: float = 1.0) -> EdgeRoute:
    return EdgeRoute(health, now_s, now_s + deadline_s, patience_s)


def test_the_preferred_place_alone_is_asked_while_it_may_still_answer() -> None:
    one = route(PlaceHealth(["eu", "us"]))
    assert one.sends(0.0) == ["eu"]
    assert (one.sends(0.5), one.wake_s) == ([], 1.0)


def test_a_silent_place_is_joined_by_the_next_one_and_is_not_asked_first_again() -> None:
    health = PlaceHealth(["eu", "us"])
    one = route(health)
    one.sends(0.0)
    assert one.sends(1.0) == ["us"]
    assert one.in_doubt == ["eu", "us"]
    one.answered("us")
    assert one.in_doubt == ["eu"]
    assert route(health, 1.1).sends(1.1) == ["us"]


def test_a_refusal_moves_on_at_once_and_goes_round_after_a_pause() -> None:
    one = route(PlaceHealth(["eu", "us"]))
    for name in ("eu", "us"):
        assert one.sends(0.0) == [name]
        assert one.refused(name, AWAY, 0.0, in_doubt=False)
    assert (one.sends(0.0), one.wake_s) == ([], PAUSE_S)
    assert one.sends(PAUSE_S) == ["eu"]
    assert one.in_doubt == ["eu"]


def test_what_is_wrong_in_itself_and_what_all_places_refuse_for_good_is_final() -> None:
    one = route(PlaceHealth(["eu", "us"]))
    one.sends(0.0)
    assert not one.refused("eu", Code.INVALID_ARGUMENT, 0.0, in_doubt=False)
    one = route(PlaceHealth(["eu", "us"]))
    assert one.sends(0.0) == ["eu"]
    assert one.refused("eu", Code.FAILED_PRECONDITION, 0.0, in_doubt=False)  # publishing is suspended at this one
    assert one.sends(0.0) == ["us"]
    assert not one.refused("us", Code.NOT_FOUND, 0.0, in_doubt=False)


def test_while_a_place_may_have_stored_it_a_lasting_refusal_is_not_the_end() -> None:
    one = route(PlaceHealth(["eu", "us"]))
    one.sends(0.0)
    assert one.sends(1.0) == ["us"]
    assert one.refused("us", Code.PERMISSION_DENIED, 1.1, in_doubt=False)
    assert one.in_doubt == ["eu"]


def test_one_message_at_a_time_tries_a_place_that_has_rested_and_rests_grow() -> None:
    health = PlaceHealth(["eu", "us"])
    rests, now_s = [], 0.0
    for _ in range(8):
        one = route(health, now_s)
        assert one.sends(now_s) == ["eu"]
        assert route(health, now_s + 0.001).sends(now_s + 0.001)[0] == ("eu" if now_s == 0.0 else "us")
        one.refused("eu", AWAY, now_s, in_doubt=False)
        begun_s = now_s
        while health.order(now_s)[0] == "us":
            now_s += 0.5
        rests.append(now_s - begun_s)
    assert rests[0] == REST_FIRST_S
    assert rests == sorted(rests)
    assert rests[-1] == REST_MAX_S
    health.answered("eu")
    assert health.order(now_s)[0] == "eu"


class Place:
    """Answers after `delay_s`, or refuses, or says nothing."""

    def __init__(self, kind: str, delay_s: float) -> None:
        self.kind, self.delay_s = kind, delay_s


places = st.builds(Place, st.sampled_from(["good", "refuses", "silent"]), st.sampled_from([0.0, 0.3, 0.9]))


@given(st.lists(places, min_size=1, max_size=3), st.integers(1, 4))
def test_what_one_place_would_store_in_time_is_stored(given_places: list[Place], many: int) -> None:
    """Messages of 10 s with a patience of 1 s, one after the other: any good place gets each of them in time."""
    names = [f"p{n}" for n in range(len(given_places))]
    by_name = dict(zip(names, given_places, strict=True))
    health, now_s = PlaceHealth(names), 0.0
    good = any(one.kind == "good" for one in given_places)
    for _ in range(many):
        one = route(health, now_s, 10.0, 1.0)
        end_s, events, stored, turns = now_s + 10.0, list[tuple[float, str]](), False, 0
        while now_s < end_s and not stored:
            turns += 1
            assert turns < 1000, "it never asks without end"
            for name in one.sends(now_s):
                if by_name[name].kind != "silent":
                    events.append((now_s + by_name[name].delay_s, name))
            events.sort()
            if events and events[0][0] <= one.wake_s:
                now_s, name = events.pop(0)
                if by_name[name].kind == "good":
                    one.answered(name)
                    stored = True
                else:
                    assert one.refused(name, AWAY, now_s, in_doubt=True)
            else:
                assert one.wake_s > now_s
                now_s = one.wake_s
        assert stored == good
        now_s += 0.1

"""Accidents: thrown in at some call of shipped code, while armed, and only then."""

from __future__ import annotations

import pytest

from syncpoint.base.model.names import short_id
from syncpoint.base.runtime.random import SeededRandom
from syncpoint.testing.simulation.accidents import Accident, Accidents


def step() -> None:
    for _ in range(1000):
        short_id("projects/p/topics/t")


def test_a_step_fails_in_its_middle_as_often_as_it_is_armed() -> None:
    accidents = Accidents(SeededRandom(1))
    accidents.armed = 3
    failed = 0
    for _ in range(50):
        try:
            accidents.within(step)
        except Accident:
            failed += 1
    assert (failed, accidents.happened, accidents.armed) == (3, 3, 0)


def test_what_is_no_part_of_the_product_never_fails() -> None:
    accidents = Accidents(SeededRandom(1))
    accidents.armed = 3
    for _ in range(50):
        accidents.within(lambda: [abs(one) for one in range(1000)])
    assert accidents.happened == 0


def test_a_step_that_fails_by_itself_says_so() -> None:
    def broken() -> None:
        raise ValueError

    with pytest.raises(ValueError):
        Accidents(SeededRandom(1)).within(broken)

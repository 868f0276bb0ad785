"""Which sites take calls: hysteresis, masks, the budget; and over random histories, never none."""

from __future__ import annotations

import random

import pytest

from syncpoint.base.model.errors import FailedPrecondition, NotFound
from syncpoint.front.gateway.site_board import BY_COMMAND, BY_HEALTH, HealthRules, SiteBoard, SiteState

RULES = HealthRules(failures=2, successes=3, changes=4, within_s=100.0)


def board(*weights: int, rules: HealthRules = RULES, region: str = "") -> SiteBoard:
    return SiteBoard([SiteState(f"s{n}", weight, f"r{n}") for n, weight in enumerate(weights)], rules, region)


def test_the_home_is_of_the_region_then_the_heaviest() -> None:
    assert board(10, 20).home == "s1"
    assert board(10, 20, region="r0").home == "s0"
    assert board(10, 20, region="elsewhere").open_sites() == ["s1", "s0"]


def test_a_site_is_left_after_failures_in_a_row_and_taken_back_after_successes() -> None:
    found = board(20, 10)
    found.missed("s0", "silent", 1.0)
    found.answered("s0", 2.0)
    found.missed("s0", "silent", 3.0)
    assert found.home == "s0"
    found.missed("s0", "silent", 4.0)
    assert found.home == "s1"
    assert found.sites["s0"].masked == BY_HEALTH
    found.answered("s0", 5.0)
    found.answered("s0", 6.0)
    found.missed("s0", "silent", 7.0)
    found.answered("s0", 8.0)
    found.answered("s0", 9.0)
    assert found.home == "s1"
    found.answered("s0", 10.0)
    assert found.home == "s0"


def test_a_refusal_needs_no_second_probe() -> None:
    found = board(20, 10)
    found.missed("s0", "refused", 1.0, refused=True)
    assert found.home == "s1"


def test_the_last_site_is_never_masked() -> None:
    found = board(20, 10)
    found.missed("s1", "refused", 1.0, refused=True)
    found.missed("s0", "refused", 2.0, refused=True)
    assert found.open_sites() == ["s0"]
    with pytest.raises(FailedPrecondition, match="last site"):
        found.mask("s0", 3.0)
    # The other one answers again while this one does not: it is taken at once, without its successes.
    found.answered("s1", 4.0)
    assert found.home == "s1"
    assert found.sites["s0"].masked == "" or found.sites["s0"].masked == BY_HEALTH


def test_what_an_operator_masked_stays_masked() -> None:
    found = board(20, 10)
    found.mask("s0", 1.0)
    for at in range(20):
        found.answered("s0", 2.0 + at)
    assert found.sites["s0"].masked == BY_COMMAND
    found.unmask("s0", 30.0)
    assert found.home == "s0"
    with pytest.raises(NotFound, match="choose from s0, s1"):
        found.mask("s7", 31.0)


def test_unmask_refuses_what_does_not_answer_or_lacks_something() -> None:
    found = board(20, 10)
    found.mask("s0", 1.0)
    found.missed("s0", "silent", 2.0)
    with pytest.raises(FailedPrecondition, match="does not answer"):
        found.unmask("s0", 3.0)
    found.answered("s0", 4.0)
    found.hold("s0", "it lacks 5 messages")
    with pytest.raises(FailedPrecondition, match="lacks 5 messages"):
        found.unmask("s0", 5.0)
    found.unmask("s0", 6.0, force=True)
    assert (found.home, found.sites["s0"].held) == ("s0", "")


def test_what_is_held_does_not_come_back_by_itself() -> None:
    found = board(20, 10)
    found.missed("s0", "refused", 1.0, refused=True)
    found.hold("s0", "it lacks 5 messages")
    for at in range(10):
        found.answered("s0", 2.0 + at)
    assert found.home == "s1"
    found.hold("s0", "")
    found.answered("s0", 20.0)
    assert found.home == "s0"


def test_beyond_the_budget_commands_are_refused_and_nothing_comes_back() -> None:
    found = board(20, 10)
    for at in (1.0, 2.0):
        found.mask("s0", at)
        found.unmask("s0", at)
    with pytest.raises(FailedPrecondition, match="budget"):
        found.mask("s0", 3.0)
    found.missed("s0", "refused", 4.0, refused=True)
    assert found.home == "s1"  # a site that is gone is left all the same
    for at in range(5, 15):
        found.answered("s0", float(at))
    assert found.home == "s1"
    found.answered("s0", 102.0)
    assert found.home == "s0"


@pytest.mark.parametrize("seed", range(50))
def test_over_random_histories(seed: int) -> None:
    chance = random.Random(seed)
    found = board(*(chance.randrange(1, 9) for _ in range(chance.randrange(2, 5))))
    changed: list[tuple[str, float]] = []
    now = 0.0
    found.on_change = lambda name: changed.append((name, now))
    for _ in range(400):
        now += chance.random() * 3
        name = chance.choice(list(found.sites))
        what = chance.randrange(8)
        before = found.sites[name].masked
        if what < 3:
            found.answered(name, now)
        elif what < 6:
            found.missed(name, "silent", now, refused=chance.random() < 0.2)
        else:
            try:
                (found.mask if what == 6 else found.unmask)(name, now)
            except FailedPrecondition:
                assert found.sites[name].masked == before
        assert found.open_sites()
        # Nobody is sent to a site that is known to be silent while an open one answers.
        for one in found.sites.values():
            if not one.masked and one.missed >= RULES.failures:
                assert not any(other.answers and not other.masked for other in found.sites.values() if other is not one)
        if before == BY_COMMAND and what < 6:
            assert found.sites[name].masked == BY_COMMAND
    assert len(changed) == sum(one.changes for one in found.sites.values())

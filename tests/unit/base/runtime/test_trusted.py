"""The clock to delete by: no single wrong clock makes it run ahead, and a right one is followed in the end."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from syncpoint.base.model.times import FRESH_S
from syncpoint.base.runtime.clock import ManualClock
from syncpoint.base.runtime.trusted import PATIENCE_NS, TrustedClock

pytestmark = pytest.mark.shows("clocks")

NS = 10**9
HOUR = 3_600
DAY = 86_400
START = 1_700_000_000 * NS


class Harness:
    """One process; `right` is the true time."""

    def __init__(self, anchor_ns: int = 0, wrong_s: float = 0.0) -> None:
        self.clock = ManualClock(START)
        self.right = START
        self.set_wrong(wrong_s)
        self.trusted = TrustedClock(self.clock, anchor_ns, "h1")

    def set_wrong(self, seconds: float) -> None:
        self.clock.set_time_ns(self.right + round(seconds * NS))

    def passes(self, seconds: float, others: dict[str, float] | None = None) -> float:
        """Let time pass, and other hosts report their clocks, so many seconds wrong; how far the clock is ahead."""
        left = seconds
        while left > 0:
            step = min(60.0, left)
            left -= step
            self.clock.advance(step)
            self.right += round(step * NS)
            for host, wrong in (others or {}).items():
                self.trusted.observe(host, f"p-{host}", self.right + round(wrong * NS))
            self.trusted.sure_ns()
        return self.ahead

    @property
    def ahead(self) -> float:
        return (self.trusted.sure_ns() - self.right) / NS


def test_a_right_clock_is_followed() -> None:
    harness = Harness()
    assert harness.passes(40 * DAY) == 0
    assert harness.trusted.time_ns() == harness.right


def test_a_jump_ahead_that_is_over_soon_changes_nothing() -> None:
    harness = Harness()
    harness.passes(HOUR)
    harness.set_wrong(32 * DAY)
    assert harness.ahead == 0
    assert harness.passes(HOUR) == 0
    harness.set_wrong(0)
    assert harness.passes(1) == 0
    assert harness.passes(2 * DAY) == 0


def test_a_clock_that_is_wrong_from_the_start_does_not_pass_the_anchor() -> None:
    harness = Harness(anchor_ns=START - HOUR * NS, wrong_s=32 * DAY)
    assert harness.ahead == -HOUR
    assert harness.passes(HOUR) == -HOUR


def test_after_a_pause_a_right_clock_alone_is_followed_after_as_much_time_a_day_at_most() -> None:
    harness = Harness(anchor_ns=START - 10 * 60 * NS)
    assert harness.passes(9 * 60) == -600
    assert harness.passes(2 * 60) == 0
    harness = Harness(anchor_ns=START - 30 * DAY * NS)
    assert harness.passes(PATIENCE_NS / NS - HOUR) == -30 * DAY
    assert harness.passes(2 * HOUR) == 0


def test_an_anchor_that_was_wrong_is_not_believed_against_the_clock() -> None:
    assert Harness(anchor_ns=START + 90 * DAY * NS).passes(HOUR) == 0


def test_stamps_do_not_follow_a_clock_that_goes_back() -> None:
    """What was published in the past would be old as soon as the clock is right again."""
    harness = Harness(anchor_ns=START, wrong_s=-8 * DAY)
    assert harness.trusted.time_ns() == START
    harness.passes(HOUR)
    assert harness.trusted.time_ns() == harness.right
    assert harness.ahead <= -8 * DAY, "while nothing is deleted by it"
    harness.set_wrong(0)
    assert harness.passes(2 * DAY) == 0


def test_other_hosts_that_agree_are_followed_at_once() -> None:
    harness = Harness(anchor_ns=START - 30 * DAY * NS)
    assert harness.passes(60, {"h2": 0.5, "h3": -0.5}) == 0


def test_one_wrong_host_of_several_changes_nothing_whichever_it_is() -> None:
    for wrong in (32.0 * DAY, -32.0 * DAY):
        harness = Harness()
        assert harness.passes(3 * DAY, {"h2": 0, "h3": wrong}) == 0
        harness = Harness(wrong_s=wrong)
        assert harness.passes(3 * DAY, {"h2": 0, "h3": 0}) == 0
        assert harness.trusted.time_ns() == harness.right + max(0, wrong) * NS


def test_of_two_hosts_the_earlier_counts() -> None:
    assert Harness(wrong_s=32 * DAY).passes(9 * DAY, {"h2": 0}) == 0
    assert Harness().passes(9 * DAY, {"h2": -5 * DAY}) == -5 * DAY


def test_processes_of_one_host_are_one_witness() -> None:
    harness = Harness()
    for _ in range(100):
        for number in range(5):
            harness.trusted.observe("h2", f"p{number}", harness.right + 32 * DAY * NS)
        harness.trusted.observe("h2", "p5", harness.right)
        assert harness.passes(30) == 0
    harness = Harness(wrong_s=32 * DAY)
    for _ in range(100):
        harness.trusted.observe("h1", "beside", harness.right)
        harness.passes(30)
    assert harness.passes(HOUR) == 0, "a process beside this one knows better"


def test_a_clock_that_others_contradict_is_not_followed_as_soon_as_they_are_gone() -> None:
    harness = Harness(wrong_s=32 * DAY)
    harness.passes(20 * DAY, {"h2": 0, "h3": 0})
    assert harness.passes(FRESH_S + 12 * HOUR) == 0


def test_a_slow_process_of_small_steps_is_followed() -> None:
    """Corrections of a clock that runs fast or slow are no jumps."""
    harness = Harness()
    for day in range(1, 40):
        harness.set_wrong(day * 0.5)
        harness.passes(DAY)
    assert abs(harness.ahead - 39 * 0.5) < 1


@pytest.mark.parametrize("seed", range(30))
def test_whatever_one_clock_does_nothing_is_ahead(seed: int) -> None:
    """Any history of jumps of this host's clock, of hosts that come and go and report the right time."""
    chance = random.Random(seed)
    harness = Harness(anchor_ns=START - chance.choice((0, 1, HOUR, DAY)) * NS, wrong_s=chance.choice((0, DAY, -DAY)))
    for _ in range(60):
        harness.set_wrong(chance.choice((0, 0, 3, 40 * DAY, -40 * DAY, 20 * DAY)))
        others: dict[str, float] = {host: 0 for host in ("h2", "h3", "h4") if chance.random() < 0.7}
        assert harness.passes(chance.uniform(1, HOUR), others) <= 3 + 0.001
        assert harness.trusted.time_ns() >= harness.right - (NS if len(others) > 1 else DAY * NS), (
            "stamps do not go back"
        )


class Stopped(ManualClock):
    """A clock whose process stands still, once, after it was read: as one that is paused or not scheduled."""

    stop_s = 0.0

    def _stand(self) -> None:
        stop_s, self.stop_s = self.stop_s, 0.0
        self.advance(stop_s)

    def monotonic(self) -> float:
        read = super().monotonic()
        self._stand()
        return read

    def time_ns(self) -> int:
        read = super().time_ns()
        self._stand()
        return read


def test_a_process_that_stands_still_between_two_readings_does_not_stamp_the_future() -> None:
    clock = Stopped(START)
    trusted = TrustedClock(clock)
    for _ in range(200):
        clock.advance(60.0)
        clock.stop_s = 5.0
        trusted.sure_ns()
        clock.advance(1.0)
        assert trusted.time_ns() == clock.time_ns()
        assert trusted.sure_ns() <= clock.time_ns()


def test_stamps_go_on_evenly_behind_a_wall_clock_that_went_back() -> None:
    harness = Harness()
    harness.set_wrong(5)
    harness.passes(HOUR)
    harness.set_wrong(0)
    stamps = []
    for _ in range(20):
        harness.clock.advance(0.004)
        stamps.append(harness.trusted.time_ns())
    assert [after - before for before, after in pairwise(stamps)] == [4_000_000] * 19


def test_an_anchor_that_is_reported_late_counts_from_then_on() -> None:
    clock = ManualClock(START)
    trusted = TrustedClock(clock)
    clock.advance(30.0)
    trusted.known(clock.time_ns())
    clock.advance(1.0)
    assert trusted.time_ns() == clock.time_ns()

"""Measured distances and their order."""

from __future__ import annotations

import math
import random
from itertools import combinations, pairwise

from hypothesis import example, given, settings
from hypothesis import strategies as st

from syncpoint.base.model.cluster import Member
from syncpoint.base.runtime.clock import ManualClock
from syncpoint.base.runtime.random import SeededRandom
from syncpoint.broker.router.distance import MARGIN, MARGIN_S, SILENT, Distances, Prober
from syncpoint.testing.rigs.simulated_loop import run_simulated


def test_the_nearest_comes_first_and_changes_are_noticed() -> None:
    found = Distances("eu")
    changes: list[None] = []
    found.on_change.append(lambda: changes.append(None))
    assert found.order(["us", "eu", "asia"]) == ["eu", "asia", "us"]
    for region, time in (("eu", 0.001), ("us", 0.080), ("asia", 0.200)):
        found.measured(region, time)
    assert found.order(["asia", "us", "eu"]) == ["eu", "us", "asia"]
    changes.clear()
    for _ in range(50):
        found.measured("asia", 0.010)
    assert found.order(["asia", "us", "eu"]) == ["eu", "asia", "us"]
    assert len(changes) == 1


def test_a_silent_region_is_the_farthest_until_it_answers() -> None:
    found = Distances("eu")
    found.measured("eu", 0.001)
    found.measured("us", 0.080)
    for _ in range(SILENT):
        assert found.order(["eu", "us"]) == ["eu", "us"]
        found.silent("eu")
    assert found.order(["eu", "us"]) == ["us", "eu"]
    assert math.isinf(found.of("eu"))
    assert found.known() == {"us": 0.08}
    found.measured("eu", 0.002)
    assert found.order(["eu", "us"]) == ["eu", "us"]
    assert found.of("eu") == 0.002


@settings(deadline=None)
@given(st.lists(st.floats(0.001, 0.3), min_size=2, max_size=6), st.integers(0, 1000))
@example([0.1, 0.1, 0.1], 1)
def test_the_order_comes_to_rest_and_is_right_up_to_the_margin(times: list[float], seed: int) -> None:
    chance, found = random.Random(seed), Distances("")
    names = [f"region-{number}" for number in range(len(times))]
    for _ in range(20):
        for name in names:
            found.measured(name, chance.uniform(0.001, 0.3))
    for _ in range(80):
        for name, time in zip(names, times, strict=True):
            found.measured(name, time)
    orders = [found.order(names)]
    found.on_change.append(lambda: orders.append(found.order(names)))
    for _ in range(20):
        for name, time in zip(names, times, strict=True):
            found.measured(name, time * chance.uniform(0.97, 1.03))
    # Those that lie on the edge of the margin may still pass each other, and not back again.
    for one, other in combinations(names, 2):
        nearer = [order.index(one) < order.index(other) for order in orders]
        assert sum(before != after for before, after in pairwise(nearer)) <= 1, orders
    ordered = found.order(names)
    for one, other in pairwise(ordered):
        assert found.of(other) * (1 + MARGIN) + MARGIN_S >= found.of(one)


def test_the_prober_measures_round_trips_without_the_time_to_connect() -> None:
    clock = ManualClock()
    connected: set[str] = set()
    times = {"a:1": 0.002, "b:1": 0.05, "c:1": math.inf}

    async def ping(address: str) -> bool:
        clock.advance(0.0 if address in connected else 1.0)
        connected.add(address)
        if math.isinf(times[address]):
            return False
        clock.advance(times[address])
        return True

    members = [Member(f"m-{a}", (), f"{a}:1", 1, region=a) for a in "abc"]
    found = Distances("a")
    prober = Prober(found, ping, lambda: members, clock, SeededRandom(1))

    async def run() -> None:
        for _ in range(SILENT):
            await prober.round()

    run_simulated(clock, run())
    assert round(found.of("a"), 6) == 0.002
    assert round(found.of("b"), 6) == 0.05
    assert found.order("abc") == ["a", "b", "c"]

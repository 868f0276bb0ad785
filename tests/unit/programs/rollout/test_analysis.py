"""When a release is called worse: of counts alone."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncpoint.programs.rollout.analysis import burn_rate, compare, corrupted, figures, lacking, shares, unlike
from syncpoint.programs.rollout.counters import CLIENTS, MethodCounts, ProcessCounters, added, read
from syncpoint.programs.rollout.proportions import above, interval
from syncpoint.programs.rollout.rollout_file import Thresholds
from tests.kit.rollout_plans import BOUNDS, calls, counted

LIMITS = Thresholds()


def test_an_interval_is_wide_of_few_and_narrow_of_many() -> None:
    assert interval(0, 0) == (0.0, 1.0)
    assert interval(0, 10)[0] == 0.0
    assert interval(0, 10)[1] > 0.4
    few, many = interval(5, 50), interval(500, 5000)
    assert few[0] < many[0] < 0.1 < many[1] < few[1]
    assert interval(3, 3)[0] > 0.2


@given(st.integers(0, 5000), st.integers(1, 5000))
def test_an_interval_holds_what_was_seen(hits: int, more: int) -> None:
    of = hits + more
    low, high = interval(hits, of)
    assert 0.0 <= low <= hits / of <= high <= 1.0


def test_of_releases_that_are_no_worse_next_to_none_is_called_worse() -> None:
    """2,000 pairs of the same error rate, drawn from a seed."""
    chance = random.Random(7)
    wrong = 0
    for _ in range(2000):
        sides = [sum(chance.random() < 0.02 for _ in range(300)) for _ in range(2)]
        wrong += interval(sides[0], 300)[0] > interval(sides[1], 300)[1]
    assert wrong == 0


def test_quantiles_of_buckets() -> None:
    assert math.isnan(MethodCounts({}, BOUNDS, (0, 0, 0, 0)).within(0.99))
    assert math.isnan(MethodCounts().within(0.99))
    assert MethodCounts({}, BOUNDS, (100, 0, 0, 0)).within(0.5) == pytest.approx(0.005)
    assert MethodCounts({}, BOUNDS, (98, 0, 2, 0)).within(0.99) == pytest.approx(0.55)
    assert MethodCounts({}, BOUNDS, (0, 0, 0, 5)).within(0.99) == 1.0
    assert above(BOUNDS, (98, 1, 2, 3), 0.1) == 5
    assert above(BOUNDS, (98, 1, 2, 3), 0.0) == 104


def test_the_same_is_not_worse() -> None:
    assert compare(counted(1000, 3, 5, 2), counted(1000, 3, 5, 2), LIMITS) == []


def test_failing_calls_are_worse_beyond_chance_alone() -> None:
    (first, *_) = compare(counted(1000, failed=200), counted(1000), Thresholds(burn_max=1e9))
    assert first == "Publisher.Publish fails: 200 of 1000 with the release (200 UNAVAILABLE), 0 of 1000 without"
    assert compare(counted(1000, failed=2), counted(1000), Thresholds(burn_max=1e9)) == []
    assert compare(counted(1000, failed=200), counted(1000, failed=190), Thresholds(burn_max=1e9)) == []
    assert compare(counted(5, failed=5), ProcessCounters(), LIMITS) != []  # nothing to compare with: the budget


def test_what_callers_ask_for_in_vain_is_no_failure() -> None:
    method = (CLIENTS, "Publisher.GetTopic")
    missing = ProcessCounters(1.0, {method: calls(10)}, {})
    counts = missing.methods[method]
    asked = ProcessCounters(1.0, {method: type(counts)({"NOT_FOUND": 900, "OK": 10}, BOUNDS, counts.buckets)}, {})
    assert compare(asked, missing, LIMITS) == []


def test_slow_calls_are_worse_when_far_and_many() -> None:
    worse = compare(counted(1000, slow=100), counted(1000, slow=2), LIMITS)
    assert len(worse) == 1
    assert "Publisher.Publish is slow: p99" in worse[0]
    assert compare(counted(1000, slow=12), counted(1000, slow=9), LIMITS) == []
    assert compare(counted(90, slow=50), counted(1000), LIMITS) == []  # too few to say


def test_where_nobody_is_left_times_are_held_against_earlier_ones() -> None:
    reference = counted(1000).methods
    assert compare(counted(1000, slow=100), None, LIMITS, reference) != []
    assert compare(counted(1000), None, LIMITS, reference) == []


def test_redeliveries_and_corruption() -> None:
    (text,) = compare(counted(1000, again=300), counted(1000, again=1), LIMITS)
    assert text == "more messages are redelivered: 300 of 1000 with the release, 1 of 1000 without"
    assert corrupted(counted(10, damaged=1)) == ["1 damaged places found on disks"]
    assert corrupted(counted(10)) == []


def test_the_burn_rate_is_a_multiple_of_the_budget() -> None:
    rate, least = burn_rate(counted(10_000, failed=100), LIMITS)
    assert rate == pytest.approx(10)
    assert 7 < least < 10
    assert any("10.0 times as often" in one for one in compare(counted(10_000, failed=100), None, LIMITS))


def test_what_too_little_was_done_of_is_named() -> None:
    roles = frozenset({"proxy", "publish-forwarder", "storage"})
    assert lacking(roles, "with the release", counted(20), LIMITS) == [
        "with the release: 20 of 200 client calls (proxy)",
        "with the release: 20 of 200 messages accepted (publish-forwarder)",
    ]
    assert lacking(roles, "with the release", counted(200), LIMITS) == []


def test_other_calls_do_not_stand_for_publishes() -> None:
    acks = ProcessCounters(1.0, {(CLIENTS, "Subscriber.Acknowledge"): calls(1000)}, {})
    assert unlike(acks, counted(1000), LIMITS) == ["with the release: 0 of 200 calls of Publisher.Publish"]
    assert unlike(acks, counted(100), LIMITS) == []
    assert unlike(counted(1000), counted(1000), LIMITS) == []


def test_shares_and_figures() -> None:
    assert shares({"proxy": counted(25), "router": counted(0)}, {"proxy": counted(100), "router": counted(0)}) == {
        "proxy": 0.25
    }
    found = figures(counted(100, failed=1), counted(300))
    assert (found["released_calls"], found["released_errors"], found["others_calls"]) == (100, 1, 300)


PAGE = b"""# TYPE process_start_time_seconds gauge
process_start_time_seconds 1700000000.5
# TYPE syncpoint_calls_total counter
syncpoint_calls_total{listener="clients",method="Publisher.Publish",code="OK"} 7
syncpoint_calls_total{listener="clients",method="Publisher.Publish",code="UNAVAILABLE"} 2
syncpoint_calls_total{listener="members",method="Process.Ping",code="OK"} 70
# TYPE syncpoint_call_seconds histogram
syncpoint_call_seconds_bucket{listener="clients",method="Publisher.Publish",le="0.01"} 5
syncpoint_call_seconds_bucket{listener="clients",method="Publisher.Publish",le="0.1"} 8
syncpoint_call_seconds_bucket{listener="clients",method="Publisher.Publish",le="+Inf"} 9
syncpoint_call_seconds_sum{listener="clients",method="Publisher.Publish"} 1
syncpoint_call_seconds_count{listener="clients",method="Publisher.Publish"} 9
# TYPE syncpoint_subscription_messages_total counter
syncpoint_subscription_messages_total{project="p",subscription="a"} 3
syncpoint_subscription_messages_total{project="p",subscription="b"} 4
"""


def test_a_page_is_read_and_subtracted() -> None:
    found = read(PAGE)
    method = (CLIENTS, "Publisher.Publish")
    assert list(found.methods) == [method]
    assert (found.methods[method].calls, found.methods[method].buckets) == (9, (5, 3, 1))
    assert found.sums["delivered"] == 7
    later = read(PAGE.replace(b"} 7\n", b"} 17\n").replace(b'le="+Inf"} 9', b'le="+Inf"} 19'))
    between = later.since(found)
    assert between.methods[method].codes == {"OK": 10, "UNAVAILABLE": 0}
    assert between.methods[method].buckets == (0, 0, 10)
    restarted = read(PAGE.replace(b"1700000000.5", b"1700000099.5"))
    assert restarted.since(found) == restarted
    assert added([found, found]).methods[method].calls == 18
    with pytest.raises(ValueError, match="not the metrics of a process"):
        read(b"")

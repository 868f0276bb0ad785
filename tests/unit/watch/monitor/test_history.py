"""Two weeks of samples: parts add up in every tier, nothing grows without bound, restarts lose nothing written."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from syncpoint.watch.monitor.history_file import TIERS, HistoryFile
from syncpoint.watch.monitor.history_queries import HistoryQuery, answered, quantile_of
from syncpoint.watch.monitor.increases import Look
from tests.unit.watch.monitor.conftest import BEGIN_S, Watched

DAY_S = 86_400.0
COUNTED, STANDING = "syncpoint_topic_messages_total", "syncpoint_subscription_backlog_messages"


def labels(**names: str) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(names.items()))


def kept(file: HistoryFile, at_s: float, counted: dict[str, float], standing: dict[str, float]) -> None:
    look: Look = {
        COUNTED: {labels(topic=name, process="n"): value for name, value in counted.items()},
        STANDING: {labels(subscription=name, process="n"): value for name, value in standing.items()},
    }
    file.write(at_s, look, {COUNTED})


@given(st.lists(st.dictionaries(st.sampled_from("abc"), st.integers(0, 50)), min_size=1, max_size=30), st.data())
@settings(max_examples=40, deadline=None)
def test_parts_add_up_to_the_total_in_every_step(looks: list[dict[str, int]], data: st.DataObject) -> None:
    file = HistoryFile(":memory:")
    at_s = BEGIN_S
    for one in looks:
        at_s += data.draw(st.sampled_from([10, 20, 60]))
        kept(file, at_s, {name: float(value) for name, value in one.items()}, {})
    step_s = data.draw(st.sampled_from([10.0, 60.0, 120.0]))
    total, parts = (
        answered(file, HistoryQuery(COUNTED, BEGIN_S, at_s + 10, step_s, group_by=by), at_s) for by in ((), ("topic",))
    )
    for place, whole in enumerate(total.series.get((), [])):
        summed = sum(values[place] for values in parts.series.values())
        assert math.isnan(whole) or summed == pytest.approx(whole)
    file.database.close()


def test_a_rate_is_that_of_the_time_that_was_looked_at() -> None:
    file = HistoryFile(":memory:")
    for number in range(6):
        kept(file, BEGIN_S + 10 * number, {"a": 20.0}, {"s": float(number)})
    for tier_wide in (10.0, 60.0):
        found = answered(file, HistoryQuery(COUNTED, BEGIN_S, BEGIN_S + 60, tier_wide), BEGIN_S + 60)
        assert set(found.series[()]) == {2.0}
    mean = answered(file, HistoryQuery(STANDING, BEGIN_S, BEGIN_S + 60, 60.0), BEGIN_S + 60)
    assert mean.series[()] == [2.5]
    nothing = answered(file, HistoryQuery(COUNTED, BEGIN_S - 60, BEGIN_S, 10.0), BEGIN_S + 60)
    assert not nothing.series


def test_two_weeks_stay_within_their_bounds_and_are_found_by_ten_minutes() -> None:
    file, end_s = HistoryFile(":memory:"), BEGIN_S + 15 * DAY_S
    at_s = BEGIN_S
    while at_s < end_s:  # a look every ten minutes; the densest tier is exercised above
        kept(file, at_s, {"a": 60.0}, {"s": 1.0})
        at_s += 600.0
    for tier, (step_s, kept_s) in enumerate(TIERS):
        (rows,) = file.database.execute("select count(*) from points where tier=?", (tier,)).fetchone()
        assert rows <= 2 * (kept_s // step_s + 2)
        oldest = file.database.execute("select min(t) from points where tier=?", (tier,)).fetchone()[0]
        assert end_s - kept_s - 700 <= oldest
    found = answered(file, HistoryQuery(COUNTED, end_s - 13 * DAY_S, end_s), end_s)
    known = [value for value in found.series[()] if not math.isnan(value)]
    assert len(known) > 1800
    assert set(known) == {6.0}


def test_the_oldest_goes_first_where_the_file_would_become_too_large() -> None:
    file = HistoryFile(":memory:", bytes_max=300_000)
    for number in range(400):
        kept(file, BEGIN_S + 10 * number, {f"topic-{one}": 1.0 for one in range(200)}, {})
    assert file.used_bytes < 350_000
    newest = [row.t for row in file.rows(0, COUNTED, 0, 2**62)]
    assert newest[-1] == BEGIN_S + 3990
    assert all(later - earlier == 10 for earlier, later in pairwise(newest))


def test_series_beyond_the_bound_are_counted_not_kept() -> None:
    file = HistoryFile(":memory:", series_max=3)
    kept(file, BEGIN_S, dict.fromkeys("abcde", 1.0), {})
    assert file.not_kept == 2


def test_a_restart_goes_on_where_it_was(tmp_path: Path) -> None:
    path = tmp_path / "h.sqlite"
    for number in range(14):
        file = HistoryFile(path)
        kept(file, BEGIN_S + 10 * number, {"a": 10.0}, {})
        file.close()
    found = answered(HistoryFile(path), HistoryQuery(COUNTED, BEGIN_S, BEGIN_S + 120, 60.0), BEGIN_S + 140)
    assert found.series[()] == [1.0, 1.0]


def test_quantiles_are_those_of_prometheus() -> None:
    buckets = {0.1: 50.0, 0.5: 90.0, 1.0: 100.0, math.inf: 100.0}
    assert quantile_of(buckets, 0.5, ()) == pytest.approx(0.1)
    assert quantile_of(buckets, 0.5) == pytest.approx(0.1)
    assert quantile_of(buckets, 0.25) == pytest.approx(0.075)
    assert quantile_of(buckets, 0.7) == pytest.approx(0.3)
    assert quantile_of(buckets, 0.99) == pytest.approx(0.95)
    assert quantile_of({0.1: 0.0, math.inf: 4.0}, 0.5) == 0.1
    assert math.isnan(quantile_of({0.1: 0.0, math.inf: 0.0}, 0.5))


def test_a_quantile_of_history_is_that_of_what_was_noted(watched: Watched) -> None:
    watched.note("syncpoint_call_seconds", 0.2, 99, "clients", "Publisher.Publish")
    watched.note("syncpoint_call_seconds", 4.0, 1, "clients", "Publisher.Publish")
    watched.look()
    query = HistoryQuery("syncpoint_call_seconds", BEGIN_S, watched.now_s + 10, where={"method": ["Publisher.Publish"]})
    rate = watched.core.history(query, watched.now_s)
    assert max(value for value in rate.series[()] if not math.isnan(value)) == 10.0
    half = watched.core.history(
        HistoryQuery("syncpoint_call_seconds", BEGIN_S, watched.now_s + 10, quantile=0.5), watched.now_s
    )
    assert [value for value in half.series[()] if not math.isnan(value)] == [pytest.approx(0.1758, abs=1e-3)]

"""Drawings of what analyses find: of one second, of hours, of more days than an axis has room for, and of nothing."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("matplotlib")
from syncpoint.programs.analytics.back_test import BackTest, JudgedBucket, Selected
from syncpoint.programs.analytics.delivery_slis import DeliverySli, DeliverySlis, SubscriptionLag
from syncpoint.programs.analytics.json_drift import JsonDrift
from syncpoint.programs.analytics.plots import PLOTS
from syncpoint.programs.analytics.topic_profile import Bucket, Keys, Sizes, TopicProfile, ValueCount

pytestmark = pytest.mark.shows("analytics")
TOPIC, SUB = "projects/p/topics/orders", "projects/p/subscriptions/billing"
TIME = datetime(2026, 11, 28, 12, tzinfo=UTC)


def profile(buckets: int) -> TopicProfile:
    made = tuple(Bucket(TIME + timedelta(minutes=i), 600, 6_000) for i in range(buckets))
    keys = Keys(10, 3, (ValueCount("a key of more than twenty-four letters", 10),)) if buckets else Keys(0, 0, ())
    sizes, drift = Sizes(1, 1, 1, 1, 1, 1), JsonDrift(0, 0, (), 0)
    return TopicProfile(TOPIC, 600 * buckets, TIME, TIME, sizes, keys, (), (), made, 60.0, drift)


def back_test(buckets: int) -> BackTest:
    made = tuple(JudgedBucket(TIME + timedelta(minutes=i), 60, 20) for i in range(buckets))
    return BackTest(TOPIC, "a filter", "", Selected(60, 1), Selected(20, 1), Selected(40, 1), None, None, made)


def slis(days: int) -> DeliverySlis:
    dates = [f"{TIME + timedelta(days=i):%Y-%m-%d}" for i in range(days)]
    rows = tuple(DeliverySli(day, name, 9, 1.0, 2.0, 3.0, 4.0, 0.9) for day in dates for name in ("", SUB))
    times = tuple(TIME + timedelta(days=i) for i in range(days))
    lags = (SubscriptionLag(SUB, (5,) * days, (2,) * days),) if days > 1 else ()
    return DeliverySlis(TOPIC, 1000.0, rows, times, lags)


@pytest.mark.parametrize(
    ("what", "found", "texts"),
    [
        ("profile", profile(0), ["0 messages"]),
        ("profile", profile(1), ["600 messages", "a key of more than twen", "busiest keys, of 3"]),
        ("profile", profile(60), ["36,000 messages", "12:30"]),
        ("backtest", back_test(1), ["a filter", "selected"]),
        ("backtest", back_test(60), ["a filter", "12:30"]),
        ("slis", slis(1), ["2026-11-28", "billing", "persisted"]),
        ("slis", slis(30), ["Dec", "messages waiting", "p99, ms"]),
    ],
)
def test_a_drawing_shows_its_numbers(what: str, found: Any, texts: list[str], tmp_path: Path) -> None:
    import matplotlib

    with matplotlib.rc_context({"svg.fonttype": "none"}):  # texts as text
        PLOTS[what](found, tmp_path / "drawn.svg")
    drawn = (tmp_path / "drawn.svg").read_text()
    assert [text for text in texts if text not in drawn] == []

"""Plots of what analyses find.

Place: beside the tables; matplotlib draws, without a display.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from matplotlib.dates import date2num
from matplotlib.figure import Figure

from syncpoint.programs.analytics.back_test import BackTest
from syncpoint.programs.analytics.delivery_slis import DeliverySlis
from syncpoint.programs.analytics.topic_profile import TopicProfile

WIDTH_INCHES: Final = 10.0
NAME_MAX: Final = 24
"""Characters of a key that an axis has room for."""


def draw_profile(found: TopicProfile, path: Path) -> None:
    """Rates over time, and the busiest keys where there are any."""
    keys = found.keys.top
    figure = Figure(figsize=(WIDTH_INCHES, 6.0 if keys else 3.5), layout="constrained")
    panels = figure.subplots(2 if keys else 1, 1, squeeze=False)[:, 0]
    rate = panels[0]
    times = [one.begin for one in found.buckets]
    rate.step(times, [one.messages / found.bucket_s for one in found.buckets], where="post", label="messages/s")
    rate.set_ylabel("messages/s")
    rate.set_ylim(bottom=0)
    size = rate.twinx()
    size.step(
        times, [one.bytes / found.bucket_s / 1e6 for one in found.buckets], where="post", color="tab:gray", lw=0.8
    )
    size.set_ylabel("MB/s (gray)")
    size.set_ylim(bottom=0)
    rate.set_title(f"{found.topic}: {found.messages:,} messages")
    if keys:
        shares = [100 * one.messages / max(1, found.messages) for one in keys]
        panels[1].bar([one.value[:NAME_MAX] for one in keys], shares)
        panels[1].set_ylabel("% of messages")
        panels[1].set_title("busiest keys")
        panels[1].tick_params(axis="x", rotation=30)
    figure.savefig(path)


def draw_back_test(found: BackTest, path: Path) -> None:
    """How many of all messages the filter selects, over time."""
    figure = Figure(figsize=(WIDTH_INCHES, 3.5), layout="constrained")
    panel = figure.subplots()
    panel.xaxis_date()
    times = date2num([one.begin for one in found.buckets])  # type: ignore[no-untyped-call]
    panel.fill_between(
        times, [one.messages for one in found.buckets], step="post", color="tab:gray", alpha=0.3, label="stored"
    )
    panel.fill_between(times, [one.selected for one in found.buckets], step="post", alpha=0.8, label="selected")
    panel.set_ylabel("messages")
    panel.set_ylim(bottom=0)
    panel.set_title(found.filter)
    panel.legend()
    figure.savefig(path)


def draw_slis(found: DeliverySlis, path: Path) -> None:
    """The share of messages that were in time, and the 99th percentile, by day; a line for each subscription."""
    figure = Figure(figsize=(WIDTH_INCHES, 6.0), layout="constrained")
    shares, times = figure.subplots(2, 1, sharex=True)
    for subscription in sorted({one.subscription for one in found.rows}):
        rows = [one for one in found.rows if one.subscription == subscription]
        name = subscription.rpartition("/")[2] or "persisted"
        shares.plot([one.day for one in rows], [100 * one.within for one in rows], marker="o", label=name)
        times.plot([one.day for one in rows], [one.p99_ms for one in rows], marker="o", label=name)
    shares.set_ylabel(f"% within {found.target_ms / 1000:g} s")
    shares.set_title(found.topic)
    shares.legend()
    times.set_ylabel("p99, ms")
    times.set_ylim(bottom=0)
    times.tick_params(axis="x", rotation=30)
    figure.savefig(path)


PLOTS: Final[Mapping[str, Callable[[Any, Path], None]]] = {
    "profile": draw_profile,
    "backtest": draw_back_test,
    "slis": draw_slis,
}

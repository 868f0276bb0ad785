"""Plots of what analyses find.

Place: beside the tables; matplotlib draws, without a display.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure

from syncpoint.programs.analytics.back_test import BackTest
from syncpoint.programs.analytics.delivery_slis import DeliverySlis
from syncpoint.programs.analytics.topic_profile import TopicProfile

WIDTH_INCHES: Final = 10.0
NAME_MAX: Final = 24
"""Characters of a key that an axis has room for."""
DAYS_NAMED: Final = 10
"""Days that an axis has room for by their names."""


def draw_profile(found: TopicProfile, path: Path) -> None:
    """Rates over time, and the busiest keys where there are any."""
    keys = found.keys.top
    figure = Figure(figsize=(WIDTH_INCHES, 6.0 if keys else 3.5), layout="constrained")
    panels = figure.subplots(2 if keys else 1, 1, squeeze=False)[:, 0]
    rate = panels[0]
    edges = _edges([one.begin for one in found.buckets])
    rate.fill_between(edges, _held([one.messages / found.bucket_s for one in found.buckets]), step="post", alpha=0.8)
    rate.set_ylabel("messages/s")
    rate.set_ylim(bottom=0)
    size = rate.twinx()
    rates = _held([one.bytes / found.bucket_s / 1e6 for one in found.buckets])
    size.step(edges, rates, where="post", color="black", lw=0.8)
    size.set_ylabel("MB/s (line)")
    size.set_ylim(bottom=0)
    for axis in (rate, size):
        axis.ticklabel_format(axis="y", style="plain")
    _date(rate)
    rate.set_title(f"{found.topic}: {found.messages:,} messages")
    if keys:
        shares = [100 * one.messages / max(1, found.messages) for one in keys]
        panels[1].bar([one.value[:NAME_MAX] for one in keys], shares)
        panels[1].set_ylabel("% of messages")
        panels[1].set_title(f"busiest keys, of {found.keys.distinct:,}")
        panels[1].tick_params(axis="x", rotation=30)
    figure.savefig(path)


def draw_back_test(found: BackTest, path: Path) -> None:
    """How many of all messages the filter selects, over time."""
    figure = Figure(figsize=(WIDTH_INCHES, 3.5), layout="constrained")
    panel = figure.subplots()
    _date(panel)
    edges = _edges([one.begin for one in found.buckets])
    stored, selected = ([getattr(one, name) for one in found.buckets] for name in ("messages", "selected"))
    panel.fill_between(edges, _held(stored), step="post", color="tab:gray", alpha=0.3, label="stored")
    panel.fill_between(edges, _held(selected), step="post", alpha=0.8, label="selected")
    panel.set_ylabel("messages")
    panel.set_ylim(bottom=0)
    panel.set_title(found.filter)
    panel.legend()
    figure.savefig(path)


def draw_slis(found: DeliverySlis, path: Path) -> None:
    """By day the share of messages that were in time and the 99th percentile, and over time what waited; a line for
    each subscription.
    """
    figure = Figure(figsize=(WIDTH_INCHES, 9.0 if found.lags else 6.0), layout="constrained")
    shares, times, *rest = figure.subplots(3 if found.lags else 2, 1)
    many = len({one.day for one in found.rows}) > DAYS_NAMED
    for subscription in sorted({one.subscription for one in found.rows}):
        rows = [one for one in found.rows if one.subscription == subscription]
        name = subscription.rpartition("/")[2] or "persisted"
        days: Any = [datetime.fromisoformat(one.day) if many else one.day for one in rows]
        shares.plot(days, [100 * one.within for one in rows], marker="o", label=name)
        times.plot(days, [one.p99_ms for one in rows], marker="o", label=name)
    shares.set_ylabel(f"% within {found.target_ms / 1000:g} s")
    shares.set_title(found.topic)
    shares.legend()
    times.set_ylabel("p99, ms")
    times.set_ylim(bottom=0)
    for panel in (shares, times) if many else ():
        _date(panel)
    for panel in rest:
        _draw_lags(panel, found)
    figure.savefig(path)


def _draw_lags(panel: Any, found: DeliverySlis) -> None:
    for one in found.lags:
        (line,) = panel.plot(found.times, one.waiting, label=one.subscription.rpartition("/")[2])
        panel.plot(found.times, one.outstanding, color=line.get_color(), ls="--", lw=0.8)
    panel.set_ylabel("messages waiting\n(dashed: for acknowledgement)")
    panel.set_ylim(bottom=0)
    panel.legend()
    _date(panel)


def _edges(begins: list[datetime]) -> Any:
    """Where stretches of time begin, and where the last one ends; one alone is a second long."""
    if not begins:
        return []
    return [*begins, begins[-1] + (begins[1] - begins[0] if len(begins) > 1 else timedelta(seconds=1))]


def _held(values: list[float]) -> list[float]:
    """Values for the edges of stretches: the last one goes on to the end."""
    return [*values, *values[-1:]]


def _date(panel: Any) -> None:
    """Times at the x axis, in UTC, no longer than they must be."""
    locator = AutoDateLocator(tz=UTC)  # type: ignore[no-untyped-call]
    panel.xaxis.set_major_locator(locator)
    panel.xaxis.set_major_formatter(ConciseDateFormatter(locator, tz=UTC))  # type: ignore[no-untyped-call]


PLOTS: Final[Mapping[str, Callable[[Any, Path], None]]] = {
    "profile": draw_profile,
    "backtest": draw_back_test,
    "slis": draw_slis,
}

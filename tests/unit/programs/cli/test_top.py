"""What `syncpoint top` makes of two readings, how it is arranged, and what keys do."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from syncpoint.base.model.histogram import Histogram, quantile
from syncpoint.base.model.wording import lasting
from syncpoint.programs.cli.top_figures import (
    DISKS,
    SUBSCRIPTIONS,
    TopFigures,
    TopPanel,
    figures,
    per_second,
    size,
)
from syncpoint.programs.cli.top_readings import MetricsReading, Movement, parsed
from syncpoint.programs.cli.top_screen import HELP, TopView, arranged, drawn, pressed

pytestmark = pytest.mark.shows("top")

LONG = "a" * 50


def reading(at_s: float, **texts: str) -> MetricsReading:
    """A reading of processes, by their names."""
    samples: dict[str, list[Any]] = {}
    for process, text in texts.items():
        for name, rows in parsed(text.encode(), process).items():
            samples.setdefault(name, []).extend(rows)
    return MetricsReading(at_s, samples, {})


def moved(*texts: str) -> Movement:
    """Two texts of one process, ten seconds apart."""
    return Movement(reading(0, one=texts[0]), reading(10, one=texts[1]))


def test_a_process_is_called_what_its_samples_say_or_what_it_calls_itself() -> None:
    itself = 'syncpoint_process_info{version="1",name="proxy-1",roles="proxy"} 1\n'
    for text, known in (("", "given"), (itself, "proxy-1")):
        found = parsed(f'{text}a_total 1\nb_total{{process="worker-2"}} 2\n'.encode(), "given")
        assert [labels["process"] for labels, _ in found["a_total"]] == [known]
        assert [labels["process"] for labels, _ in found["b_total"]] == ["worker-2"]


def test_a_counter_that_fell_began_anew_and_a_new_process_has_no_rate() -> None:
    before = reading(0, one='c_total{t="x"} 100\n', two="c_total 5\n")
    after = reading(10, one='c_total{t="x"} 30\nc_total{t="y"} 20\n', two="c_total 15\n", three="c_total 1000\n")
    found = Movement(before, after)
    assert found.growth("c_total", "process") == {("one",): 50, ("two",): 10}
    assert found.rate("c_total") == 6.0
    assert found.rates("c_total", "t", process="one") == {("x",): 3.0, ("y",): 2.0}
    assert found.values("c_total")[()] == 1_065


@given(st.lists(st.floats(0.0001, 600), min_size=1, max_size=60), st.sampled_from([0.5, 0.9, 0.99, 1.0]))
def test_a_share_lies_in_the_bucket_of_the_value_that_has_it(values: list[float], share: float) -> None:
    noted = Histogram()
    for value in values:
        noted.note(value)
    below, cumulative = 0, []
    for bound, count in zip((*noted.bounds, float("inf")), noted.counts, strict=True):
        below += count
        cumulative.append((bound, float(below)))
    found = quantile(cumulative, share)
    exact = sorted(values)[max(-int(-share * len(values) // 1), 1) - 1]
    bounds = (0.0, *noted.bounds)
    place = next(number for number, bound in enumerate(noted.bounds) if exact <= bound)
    assert bounds[place] <= found <= bounds[place + 1]


def test_what_nobody_noted_has_no_share() -> None:
    assert math.isnan(quantile([], 0.5))
    assert math.isnan(quantile([(1.0, 0.0), (float("inf"), 0.0)], 0.5))
    assert quantile([(1.0, 0.0), (float("inf"), 3.0)], 0.5) == 1.0


DISK = """\
syncpoint_disk_state{chain="1",disk="/d/1/chains/01",state="ok"} 1
syncpoint_disk_state{chain="1",disk="/d/1/chains/01",state="failed"} 0
syncpoint_disk_state{chain="2",disk="/d/1/chains/02",state="healing"} 1
syncpoint_disk_state{chain="2",disk="/d/1/chains/02",state="ok"} 0
syncpoint_disk_written_bytes_total{chain="1",disk="/d/1/chains/01"} %d
syncpoint_disk_written_bytes_total{chain="2",disk="/d/1/chains/02"} %d
syncpoint_disk_free_bytes{chain="1",disk="/d/1/chains/01"} 5000
syncpoint_disk_free_bytes{chain="2",disk="/d/1/chains/02"} 5000
"""


def test_a_disk_is_one_row_with_the_worst_state_of_its_chains() -> None:
    found = figures(moved(DISK % (0, 0), DISK % (100, 300)), {})
    (disk,) = found.as_json()["disks"]
    assert disk == {
        "disk": "/d/1", "process": "one", "state": "healing", "writtenBytesPerSecond": 40.0, "commitsPerSecond": None,
        "syncSecondsP50": None, "syncSecondsP99": None, "behindEntries": None, "freeBytes": 5000.0,
    }  # fmt: skip


def test_subscriptions_that_several_processes_serve_are_one_row() -> None:
    row = 'syncpoint_subscription_{}{{project="p",subscription="s"}} {}\n'
    before = reading(0, a=row.format("messages_total", 0), b=row.format("messages_total", 10))
    after = reading(
        2,
        a=row.format("messages_total", 40) + row.format("oldest_unacked_age_seconds", 3),
        b=row.format("messages_total", 30) + row.format("oldest_unacked_age_seconds", 9),
        c=row.format("backlog_messages", 7),
    )
    found = figures(Movement(before, after), {"d": "no answer"}).as_json()
    assert found["subscriptions"] == [{
        "subscription": "s", "project": "p", "backlogMessages": 7.0, "oldestSeconds": 9.0, "deliveredPerSecond": 30.0,
        "acknowledgedPerSecond": None, "redeliveredPerSecond": None, "outstandingMessages": None, "subscribers": None,
    }]  # fmt: skip
    assert (found["totals"]["deliveredPerSecond"], found["silent"]) == (30.0, {"d": "no answer"})


def panel(*rows: tuple[str, float | None]) -> TopPanel:
    return TopPanel("subscriptions", SUBSCRIPTIONS[:3], [[name, "shop", value] for name, value in rows])


def names(shown: TopPanel, view: TopView) -> list[str]:
    return [row[0] for row in arranged(shown, view)]


def test_rows_are_sorted_filtered_and_turned_and_what_is_unknown_comes_last() -> None:
    shown = panel(("b", 5.0), ("a", None), ("c", 70.0))
    assert names(shown, TopView()) == ["c", "b", "a"], "the largest backlog first"
    assert names(shown, TopView(reverse=True)) == ["b", "c", "a"]
    assert names(shown, TopView(sort=0)) == ["a", "b", "c"], "names from a to z"
    assert names(shown, TopView(sort=3)) == ["a", "b", "c"], "beyond the last column it begins again"
    assert names(shown, TopView(filter="C")) == ["c"]
    assert names(shown, TopView(filter="sho")) == ["c", "b", "a"], "every column of text is looked at"
    assert names(TopPanel("disks", DISKS[:3], [["2", "p", "ok"], ["1", "p", "ok"]]), TopView()) == ["2", "1"]


def typed(text: str, view: TopView | None = None) -> TopView:
    view = view or TopView()
    for key in text:
        view = pressed(view, key)
    return view


def test_keys() -> None:
    assert typed("q").over
    assert typed("u").panel == "subscriptions"
    assert typed("ua").panel == ""
    assert (typed("ss").sort, typed("ssd").sort, typed("r").reverse) == (1, -1, True)
    assert typed("++++++++").interval_s == 30.0
    assert typed("-----").interval_s == 1.0
    assert (typed(" ").paused, typed("  ").paused) == (True, False)
    view = typed("/quit")
    assert (view.filter, view.typing, view.over) == ("quit", True, False), "while typing, q is a letter"
    assert (typed("\x7f\x7f\r", view).filter, typed("\x7f\x7f\rq", view).over) == ("qu", True)
    assert (typed("\x1b", view).filter, typed("\x1b", view).typing) == ("", False)


@pytest.mark.parametrize("height", [12, 24, 60])
def test_a_screen_fits_the_terminal_and_says_what_it_leaves_out(height: int) -> None:
    panels = [
        TopPanel("subscriptions", SUBSCRIPTIONS[:3], [[f"{LONG}{number}", "p", 1.0] for number in range(40)]),
        TopPanel("disks", DISKS[:3], [["/d/1", "one", "failed"]]),
    ]
    found = TopFigures(2.0, figures(moved("", ""), {}).totals, panels, {"w": "no answer"})
    console = Console(width=100, record=True, force_terminal=False)
    with console.capture() as taken:
        console.print(drawn(found, TopView(), "here", 100, height))
    text = taken.get()
    assert len(text.splitlines()) <= max(height, 18)
    assert ("more" in text) == (height < 60)
    for wanted in ("failed", "w does not answer: no answer", HELP[:20]):
        assert wanted in text


def test_numbers_are_shown_in_people_s_units() -> None:
    assert [per_second(value) for value in (0, 0.25, 12, 9_999, 25_594, 3.2e6, 4e9)] == [
        "0", "0.2", "12", "9,999", "25.59 k", "3.2 M", "4 G"]  # fmt: skip
    assert [size(value) for value in (12, 3_350_000, 79.6e9)] == ["12 B", "3.35 MB", "79.6 GB"]
    assert [lasting(value) for value in (0.0243, 4.9, 219, 7_300, 200_000)] == [
        "24.3 ms", "4.9 s", "3 min 39 s", "2 h 1 min", "2 d 7 h"]  # fmt: skip

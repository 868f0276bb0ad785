"""The page for operators has every prober, metric, limit, kind of wrong and fault, as the tables have them."""

from __future__ import annotations

from pathlib import Path

from syncpoint.programs.probers.prober_table import METRICS, PROBERS, Wrong
from tests.kit.prober_faults import FAULTS

PAGE = Path(__file__).parents[4] / "docs" / "operations" / "probers.md"


def test_the_page_is_as_the_tables_are() -> None:
    lines = PAGE.read_text().splitlines()
    for one in PROBERS:
        limits = "; ".join(f"{step.name} {step.limit_s:g} s ({step.meaning})" for step in one.timed)
        cells = f"{one.name} {one.title} | {', '.join(one.planes)} | {one.actions} | {limits} | {', '.join(one.wrong)}"
        assert f"| {cells} |" in lines
    assert [line for line in lines if line.startswith(tuple(f"| {name} |" for name in METRICS))] == [
        f"| {name} | {FAULTS[name].words} |" for name in METRICS
    ]
    for kind in Wrong:
        assert any(line.startswith(f"| {kind} | ") for line in lines)

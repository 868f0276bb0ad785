"""The page for operators has every prober, limit and kind of wrong, as the tables have them."""

from __future__ import annotations

from pathlib import Path

from syncpoint.programs.probers.prober_table import PROBERS, Wrong

PAGE = Path(__file__).parents[4] / "docs" / "operations" / "probers.md"


def test_the_page_is_as_the_tables_are() -> None:
    lines = PAGE.read_text().splitlines()
    for one in PROBERS:
        limits = "; ".join(f"{step.name} {step.limit_s:g} s ({step.meaning})" for step in one.timed)
        cells = f"{one.name} {one.title} | {', '.join(one.planes)} | {one.actions} | {limits} | {', '.join(one.wrong)}"
        assert f"| {cells} |" in lines
    for kind in Wrong:
        assert any(line.startswith(f"- **{kind}**: ") for line in lines)

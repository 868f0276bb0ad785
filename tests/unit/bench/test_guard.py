"""The guard of speed: which figures fail, which tree is compared, and what stands on the page."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import guard
from bench.guard import CLUSTER, NODE, Figure, Outcome, older_tree, write_page
from bench.process import Failed

FIGURE = Figure("1 KB", "µs", "cpu", {})


def pairs(*quotients: float) -> Outcome:
    return Outcome(FIGURE, [(2.0, 2.0 * one) for one in quotients])


def test_there_are_eight_figures() -> None:
    assert len({one.name for one in (*NODE, *CLUSTER)}) == 8


def test_one_busy_minute_fails_nothing_and_a_slower_tree_does() -> None:
    assert not pairs(1.0, 1.01, 0.99, 1.6, 1.02).failed
    assert not pairs(1.04, 1.05, 1.3, 1.2, 1.04).failed
    assert pairs(1.08, 1.07, 1.1, 1.09, 1.2).failed
    assert pairs(1.06).failed
    assert not pairs(0.7).failed


def test_what_is_compared_must_exist(tmp_path: Path) -> None:
    with older_tree(str(tmp_path), tmp_path) as tree:
        assert tree == tmp_path
    with pytest.raises(Failed, match="neither a folder nor a commit"), older_tree("no-such-commit", tmp_path):
        pass


def test_the_table_is_written_between_its_marks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "performance.md"
    monkeypatch.setattr(guard, "PAGE", page)
    for before in (f"head\n{guard.BEGIN}\nold\n{guard.END}\ntail\n", f"head\n{guard.BEGIN}\n{guard.END}\ntail\n"):
        page.write_text(before)
        write_page([pairs(0.5, 0.6, 0.7)], "a before, b now")
        text = page.read_text()
        assert text.startswith(f"head\n{guard.BEGIN}\nMeasured ")
        assert text.endswith(f"{guard.END}\ntail\n")
        assert "| 1 KB | 2.00 µs | 1.20 µs | 0.60 (0.50–0.70) |" in text
        assert "old" not in text
    page.write_text("no marks")
    with pytest.raises(Failed, match="no place"):
        write_page([pairs(1.0)], "")


def test_the_real_page_has_the_marks() -> None:
    text = guard.PAGE.read_text()
    assert text.index(guard.BEGIN) < text.index(guard.END)

"""The runner of `make faults`: what could not run is a failure, and its table has a row for each scenario it played."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.faults import results, scenarios
from tests.faults.stage import SCENARIOS, Played


def played(name: str, good: bool = True) -> Played:
    return Played(name, "something | is broken", good, "", 12.3, 100, 2, 300, [0.5, 1.25], ["a note"])


def test_what_could_not_run_is_no_success(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(scenarios, "why_not", lambda: "network namespaces need root")
    assert scenarios.main([]) == scenarios.NOT_RUN != 0
    assert "not run: network namespaces need root" in capsys.readouterr().out


@pytest.mark.parametrize(("good", "missing", "code"), [(True, False, 0), (False, False, 1), (True, True, 2)])
def test_exit_codes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, good: bool, missing: bool, code: int) -> None:
    monkeypatch.delenv(scenarios.TABLE, raising=False)
    monkeypatch.setattr(scenarios, "why_not", lambda: None)
    monkeypatch.setattr(scenarios, "play_on", lambda shape, chosen, *_: [played(one.name, good) for one in chosen])
    if missing:
        monkeypatch.setitem(SCENARIOS, "clocks", replace(SCENARIOS["clocks"], needs=lambda: False))
    else:
        monkeypatch.setitem(SCENARIOS, "clocks", replace(SCENARIOS["clocks"], needs=lambda: True))
    monkeypatch.setattr(scenarios.logging, "disable", lambda: None)
    assert scenarios.main(["--only", "clocks", "pairs", "--dir", str(tmp_path)]) == code


def test_rows_replace_those_of_the_same_scenario(tmp_path: Path) -> None:
    page = tmp_path / "faults.md"
    page.write_text("# Words\n\n" + results.MARK)
    first, second = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC)
    results.enter(page, [played("pairs"), played("memory", good=False)], 1, first)
    results.enter(page, [played("memory")], 2, second)
    lines = page.read_text().splitlines()
    rows = [line for line in lines if line.startswith(("| pairs", "| memory"))]
    assert [row.split(" | ")[0] for row in rows] == ["| pairs", "| memory"]
    assert "2026-01-01 00:00, 1" in rows[0]
    assert "2026-01-02 00:00, 2" in rows[1]
    assert "BROKEN" not in page.read_text()
    assert all(row.count(" | ") == results.HEAD[0].count(" | ") for row in rows)
    assert lines[0] == "# Words"

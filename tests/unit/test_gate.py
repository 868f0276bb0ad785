"""The parts of `make test`: what computes runs behind what waits, and every outcome counts."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

TOOLS = str(Path(__file__).parents[2] / "tools")


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(TOOLS)
    return importlib.import_module("test_parts")


def shell(text: str) -> Sequence[str]:
    return ["sh", "-c", text]


def test_what_computes_runs_behind_what_waits(gate: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The first part waits for the one that is behind it, which has lower priority and shows all at its end."""
    said = tmp_path / "said"
    parts = [
        gate.Part("waits", "w", 20, shell(f"until [ -s {said} ]; do sleep 0.05; done; echo front")),
        gate.Part("computes", "c", 20, shell(f"echo first; nice > {said}; echo second; exit 3"), nice=7),
    ]
    assert [(part.name, passed) for part, passed in gate.run_all(parts, None)] == [("waits", True), ("computes", False)]
    assert int(said.read_text()) >= 7
    output = capfd.readouterr().out
    assert "== computes: c (budget 20 s)\nfirst\nsecond\n\n-- computes: FAILED (exit code 3)" in output
    assert "front\n" in output


def test_a_part_that_takes_too_long_is_ended_with_all_that_it_started(gate: Any) -> None:
    marked = "sleep 98.7654"
    assert not gate.run(gate.Part("hangs", "h", 1, shell(f"setsid {marked} & {marked}")))
    running = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout.splitlines()
    assert marked not in running


def test_every_part_of_a_lane_runs(gate: Any) -> None:
    for nice in (0, 5):
        parts = [gate.Part(name, name, 20, [sys.executable, "-c", ""], nice=nice) for name in ("one", "two")]
        assert [passed for _, passed in gate.run_all(parts, None)] == [True, True]

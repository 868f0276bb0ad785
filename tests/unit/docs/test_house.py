"""docs/ARCHITECTURE.md shows the rooms that exist, in the order that import-linter keeps."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from tests.kit.tools import tool

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def house() -> ModuleType:
    found: ModuleType = tool("house")
    return found


def test_the_page_shows_the_rooms(house: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert house.main(["--check"]) == 0, capsys.readouterr().out


def test_another_order_is_noticed(house: ModuleType) -> None:
    project = (ROOT / "pyproject.toml").read_text()
    moved = project.replace('"front", "cluster"', '"cluster", "front"')
    assert moved != project
    assert house.table(moved) != house.table(project)


def test_every_room_is_drawn(house: ModuleType) -> None:
    layers = house.contracts((ROOT / "pyproject.toml").read_text())
    sources = ROOT / "src"
    for container, rows in layers.items():
        folder = sources / container.replace(".", "/")
        assert {room for row in rows for room in row} == {path.parent.name for path in folder.glob("*/__init__.py")}

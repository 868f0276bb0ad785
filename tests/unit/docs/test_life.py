"""docs/life-of-a-message.md and the roads beside `tools/life` are what one message really does."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
TOOL = ROOT / "tools" / "life"
PAGE = ROOT / "docs" / "life-of-a-message.md"
ROADS = TOOL / "roads.md"


@pytest.mark.timeout(400)
def test_the_page_shows_the_way_that_a_message_takes() -> None:
    command = [sys.executable, str(TOOL), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_table_that_differs_is_put_in_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(TOOL))
    tool = importlib.import_module("page")
    text = ROADS.read_text()
    new = tool.renewed(text, {"deleted": "| nothing |\n", "cluster": ""})
    assert "<!-- deleted: written by `make life` -->\n| nothing |\n<!-- end -->\n" in new
    assert "<!-- cluster: written by `make life` -->\n<!-- end -->\n" in new
    assert new != text
    with pytest.raises(SystemExit, match="no place for the list 'published'"):
        tool.renewed("# no tables", {"published": ""})


def test_every_file_that_the_page_names_exists() -> None:
    named = set(re.findall(r"`([a-z]+(?:/[a-z_]+)+)`", PAGE.read_text() + ROADS.read_text()))
    assert len(named) > 70
    sources = ROOT / "src" / "syncpoint"
    assert [one for one in sorted(named) if not (sources / f"{one}.py").exists()] == []


def test_a_way_that_gets_longer_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(TOOL))
    tool = importlib.import_module("page")
    ways = {name: dict.fromkeys(range(most)) for name, most in tool.FILES_MAX.items()}
    assert tool.too_long(ways) == []
    ways["delivered"][-1] = None
    (found,) = tool.too_long(ways)
    assert found.startswith("delivered: 29 files, 28 at most: 0, 1, ")

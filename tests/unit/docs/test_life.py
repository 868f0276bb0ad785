"""docs/life-of-a-message.md is what one message really does."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "life-of-a-message.md"


@pytest.fixture
def life() -> ModuleType:
    """The tool as a module."""
    spec = importlib.util.spec_from_file_location("life", ROOT / "tools" / "life.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_shows_the_way_that_a_message_takes() -> None:
    command = [sys.executable, str(ROOT / "tools" / "life.py"), "--check"]
    done = subprocess.run(command, env=dict(os.environ), capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_table_that_differs_is_put_in_its_place(life: ModuleType) -> None:
    page = PAGE.read_text()
    tables: dict[str, dict[str, tuple[str, str]]] = {name: {} for name in life.STRETCHES}
    tables["deleted"]["storage/store"] = ("Store.nothing", "publish/forwarder")
    new = life.renewed(page, tables)
    assert "| `storage/store` | `Store.nothing` | `publish/forwarder` |" in new
    assert life.renewed(new, tables) == new
    assert "Store.nothing" not in page
    with pytest.raises(SystemExit, match="no place for the table 'published'"):
        life.renewed("# no tables", tables)


def test_every_file_that_the_page_names_exists() -> None:
    named = set(re.findall(r"`([a-z]+(?:/[a-z_]+)+)`", PAGE.read_text()))
    assert len(named) > 70
    sources = ROOT / "src" / "syncpoint"
    assert [one for one in sorted(named) if not (sources / f"{one}.py").exists()] == []

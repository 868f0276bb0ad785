"""`make test-near` finds the tests of what changed."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import pytest

TOOLS = Path(__file__).parents[2] / "tools"


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(TOOLS))
    return importlib.import_module("near")


def test_tests_of_the_room_and_those_that_import_what_changed_are_near(tool: ModuleType) -> None:
    found = tool.near({"src/syncpoint/broker/publish/facts/origin.py"})
    assert "tests/unit/broker/publish" in found
    assert any(file.startswith("tests/unit/broker/forward/") for file in found)
    assert set(found) >= tool.ALWAYS


def test_a_change_of_a_kit_reaches_its_tests(tool: ModuleType) -> None:
    assert "tests/unit/front/proxy/test_publisher.py" in tool.near({"tests/kit/proxy.py"})


def test_pages_have_only_the_tests_of_pages(tool: ModuleType) -> None:
    assert set(tool.near({"docs/limits.md"})) == tool.ALWAYS


def test_imports_are_seen_wherever_they_stand(tool: ModuleType) -> None:
    assert tool.imported("def f():\n    from a.b import c\n    import d.e\n") == {"a.b", "a.b.c", "d.e"}

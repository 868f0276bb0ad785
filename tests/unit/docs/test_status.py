"""docs/status.md is what docs/status.toml and the marks of tests say."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from tests.kit.tools import tool

pytestmark = pytest.mark.shows("tour")
ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def status() -> ModuleType:
    found: ModuleType = tool("status")
    return found


def test_the_page_is_written_from_the_marks(status: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert status.main(["--check"]) == 0, capsys.readouterr().out + "docs/status.md differs: run `make status`"


def test_features_without_tests_and_unknown_marks_are_found(status: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "test_one.py").write_text(
        'import pytest\npytestmark = [pytest.mark.long, pytest.mark.shows("push")]\n'
        '@pytest.mark.shows("pusch")\ndef test_it(): ...\n'
    )
    found = status.shown(tmp_path)
    assert found == {"push": ["test_one"], "pusch": ["test_one"]}
    features = {"Pub/Sub": {"push": "Push", "pull": "Pull"}}
    assert status.problems(features, found) == [
        "pull: no test shows it",
        "pusch: marked in test_one, not in status.toml",
    ]
    assert "- Push (`test_one`)" in status.page(features, found)

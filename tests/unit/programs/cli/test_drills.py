"""Plans of drills as files that are none."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from syncpoint.programs.cli.main import cli

pytestmark = pytest.mark.shows("drills")


@pytest.mark.parametrize("text", ["kill", "- kind: kill", "", "kind: [", "kind: kill\n1: x"])
def test_a_file_that_is_no_plan_is_refused_in_words(tmp_path: Path, text: str) -> None:
    file = tmp_path / "drill.yaml"
    file.write_text(text)
    found = CliRunner().invoke(cli, ["drill", "plan", str(file), "--project", "shop"])
    assert found.exit_code == 2, found.output
    assert "the keys" in found.output

"""The page about access control names tests that are there."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parents[2]
PAGE = (TESTS.parent / "docs" / "security.md").read_text()


def test_every_attack_names_the_tests_that_try_it() -> None:
    rows = [row for row in PAGE.partition("## Attacks")[2].partition("\n## ")[0].splitlines() if row.startswith("| ")]
    assert len(rows) > 20
    for row in rows[1:]:
        named = re.findall(r"`(\S+\.py)::(\w+)`", row)
        assert named, row
        for file, test in named:
            assert f"def {test}(" in (TESTS / file).read_text(), f"{file}::{test}"

"""Every room's DESIGN.md has one outline: the problem, what was decided and why, what is left out, and the files."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

SOURCES = Path(__file__).resolve().parents[3] / "src" / "syncpoint"
LINES_MAX = 130
OUTLINE = ["Problem", "Decisions", "Left out", "Files"]
OUTLINES_OF_THEIR_OWN = {"log/storage", "broker/pipeline"}
PAGES = sorted(
    page for page in SOURCES.rglob("DESIGN.md") if str(page.parent.relative_to(SOURCES)) not in OUTLINES_OF_THEIR_OWN
)


def sections(page: Path) -> dict[str, str]:
    """The text under each heading of the second level."""
    parts = re.split(r"^## (.+)$", page.read_text(), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def modules(room: Path) -> set[str]:
    """What a room consists of: its files, and folders that have no page of their own."""
    files = {path.stem for path in room.glob("*.py")} - {"__init__", "__main__"}
    folders = {path.parent.name for path in room.glob("*/__init__.py") if not (path.parent / "DESIGN.md").exists()}
    return files | folders


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.parent.relative_to(SOURCES)))
def test_a_page_has_the_outline_and_names_all_files(page: Path) -> None:
    assert len(page.read_text().splitlines()) <= LINES_MAX
    found = sections(page)
    assert list(found) == OUTLINE
    rows = re.findall(r"^\| (`[^|]+) \|", found["Files"], re.MULTILINE)
    named = {name.removesuffix(".py").rstrip("/") for row in rows for name in re.findall(r"`([^`]+)`", row)}
    there = modules(page.parent)
    assert there - named == set(), "files that the page does not name"
    assert {name for name in named if not (page.parent / name).exists()} - there == set(), "files that do not exist"

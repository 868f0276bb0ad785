"""`syncpoint docs`, and that every page which the program names exists for whoever installed it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import syncpoint
from syncpoint.base.runtime import shipped_pages

SOURCES = Path(syncpoint.__file__).parent


def test_pages_are_listed_and_shown(run, run_json):
    titles = run_json("docs")
    assert titles["api"]
    assert "operations/alerts" in titles
    assert not [name for name, title in titles.items() if not title]
    assert run("docs", "limits").stdout.startswith("# ")
    assert run("docs", "docs/limits.md").stdout == run("docs", "limits").stdout


def test_a_section_of_a_page(run):
    shown = run("docs", "operations/alerts#diskdead").stdout
    assert shown.startswith("Page. A disk was given up")
    assert "## DiskGivenUp" not in shown
    assert run("docs", "operations/alerts#nothing").exit_code == 3


def test_a_page_that_does_not_exist(run):
    result = run("docs", "limit")
    assert result.exit_code == 3
    assert "Did you mean 'limits'?" in result.stderr
    assert run("docs", "../README").exit_code == 3


def test_pages_of_an_installation_come_before_those_of_a_clone(run, tmp_path, monkeypatch):
    (tmp_path / "pages").mkdir()
    (tmp_path / "pages" / "api.md").write_text("# Installed\n")
    monkeypatch.setattr(shipped_pages, "INSTALLED", tmp_path / "pages")
    assert run("docs", "api").stdout.rstrip() == "# Installed"
    (tmp_path / "pages" / "api.md").unlink()
    assert "this installation has no pages" in run("docs").stderr


def named() -> list[tuple[str, str]]:
    found = []
    for path in sorted([*SOURCES.rglob("*.py"), *(SOURCES.parent / "pyspark_pubsub").rglob("*.py")]):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found += [(path.name, page) for page in re.findall(r"`syncpoint docs ([a-z/-]+)`", node.value)]
    return found


def test_every_page_that_a_text_names_exists():
    found = named()
    assert len(found) > 12
    assert not [(where, page) for where, page in found if page not in shipped_pages.pages()]


@pytest.mark.parametrize("path", sorted((SOURCES / "programs" / "cli").glob("*.py")), ids=lambda path: path.stem)
def test_no_text_names_a_file_of_the_repository(path):
    tree = ast.parse(path.read_text())
    kinds = (ast.Module, ast.FunctionDef, ast.ClassDef)
    first = [one.body[0] for one in ast.walk(tree) if isinstance(one, kinds) and one.body]
    own = {id(one.value) for one in first if isinstance(one, ast.Expr)} if path.stem != "main" else set()
    texts = [one for one in ast.walk(tree) if isinstance(one, ast.Constant) and isinstance(one.value, str)]
    assert not [one.value for one in texts if id(one) not in own and re.search(r"docs/[a-z/-]+\.md", one.value)]

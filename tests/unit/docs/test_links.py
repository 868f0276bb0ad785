"""What the pages point to exists: files, headings, and the commands they report a reader to type."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from syncpoint.log.storage.settings import StorageSettings
from syncpoint.node.cluster.settings import parse
from syncpoint.programs.cli.main import cli

pytestmark = pytest.mark.shows("tour")

ROOT = Path(__file__).resolve().parents[3]
PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "src").rglob("*.md"),
        *(ROOT / "tests" / "faults").glob("*.md"),
    ]
)
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """The names that headings get on GitHub."""
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken(page: Path) -> Iterator[str]:
    for target in LINK.findall(FENCE.sub("", page.read_text())):
        if target.startswith(("http://", "https://")):
            continue
        path, _, anchor = target.partition("#")
        found = (page.parent / path).resolve() if path else page
        if not found.exists() or (anchor and anchor not in anchors(found)):
            yield target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    assert list(broken(page)) == []


def test_a_link_that_leads_nowhere_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# A heading\n[a](#a-heading) [b](#another) [c](page.md#a-heading) [d](nothing.md)\n```\n# b\n```\n"
    )
    assert list(broken(page)) == ["#another", "nothing.md"]


def typed(page: Path) -> Iterator[str]:
    """Command lines in the fenced blocks of a page, joined where they go on in the next line."""
    for block in FENCE.findall(page.read_text()):
        for line in block.replace("\\\n", " ").splitlines():
            found = re.match(r"(?:\$ )?(syncpoint [a-z].*)", line)
            if found and not line.startswith("syncpoint ready on"):
                yield found[1]


def unknown(line: str) -> str:
    """The first command or option that the program does not have; empty when it has them all."""
    command: click.Command = cli
    for word in line.partition(" # ")[0].split()[1:]:
        if isinstance(command, click.Group) and not word.startswith("-"):
            found = command.get_command(click.Context(command), word)
            if found is None:
                return word
            command = found
        elif re.match(r"--[a-z]", word):
            params = command.get_params(click.Context(command))
            if word.partition("=")[0] not in {one for param in params for one in (*param.opts, *param.secondary_opts)}:
                return word
    return ""


def test_every_command_that_a_page_shows_exists() -> None:
    lines = [(page, line) for page in PAGES for line in typed(page)]
    assert len(lines) > 80
    assert [f"{page.relative_to(ROOT)}: {line}" for page, line in lines if unknown(line)] == []
    assert unknown("syncpoint topics make orders") == "make"
    assert unknown("syncpoint topics create orders --nothing") == "--nothing"


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 200


def test_every_make_target_that_a_page_names_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {
        word for page in PAGES for word in re.findall(r"(?:`|^)make ([a-z][a-z-]*)", page.read_text(), re.MULTILINE)
    }
    assert {"demo", "test", "check"} <= named
    assert named <= targets


def test_one_number_says_when_a_silent_disk_is_given_up() -> None:
    (said,) = re.findall(r"hung_s \((\d+) s\)", (ROOT / "docs" / "quorum.md").read_text())
    assert float(said) == StorageSettings().hung_s == parse({"metadata": {"etcd": ["h:1"]}}).storage.hung_s

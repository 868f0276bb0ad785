"""`syncpoint docs`: the documentation, as it came with this version.

Place: named by what the command line advises, so that an advice can be followed where there is no clone of the sources.
"""

from __future__ import annotations

import difflib
from pathlib import Path

import click

from syncpoint.base.runtime.shipped_pages import pages, section
from syncpoint.programs.cli.errors import Problem
from syncpoint.programs.cli.output import print_answer
from syncpoint.programs.cli.settings import Settings, with_settings


def complete(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """What completes the name of a page."""
    return [name for name in pages() if name.startswith(incomplete)]


@click.command()
@click.argument("page", required=False, shell_complete=complete)
@with_settings
def docs(settings: Settings, page: str | None) -> None:
    """Read the documentation of this version: a list of its pages, PAGE, or one section of it.

    \b
    Examples:
      syncpoint docs
      syncpoint docs tour
      syncpoint docs operations/alerts#diskdead
    """
    found = pages()
    if not found:
        raise Problem("this installation has no pages", "Build the wheel from a clone with its folder `docs`.")
    if page is None:
        titles = {name: _title(path) for name, path in found.items()}
        print_answer(settings.format, titles, ["PAGE", "TITLE"], [[name, title] for name, title in titles.items()])
        return
    page, _, anchor = page.partition("#")
    name = page.removeprefix("docs/").removesuffix(".md")
    if name not in found:
        close = difflib.get_close_matches(name, found, 1)
        hint = f"Did you mean {close[0]!r}? " if close else ""
        raise Problem(f"there is no page {page!r}", f"{hint}`syncpoint docs` lists all pages.", exit_code=3)
    text = found[name].read_text(encoding="utf-8")
    if anchor:
        text = section(text, anchor)
        if not text:
            raise Problem(f"{page} has no section {anchor!r}", f"`syncpoint docs {name}` shows all of it.", exit_code=3)
        text += "\n"
    click.echo_via_pager(text)


def _title(path: Path) -> str:
    with path.open(encoding="utf-8") as file:
        return next((line[2:].strip() for line in file if line.startswith("# ")), "")

"""`syncpoint audit verify|show`: show an audit log, and check its integrity.

Place: on files, of any server; nothing has to run.
"""

from __future__ import annotations

from pathlib import Path

import click

from syncpoint.base.model.wording import counted
from syncpoint.programs.cli.errors import Problem
from syncpoint.programs.cli.help_text import Group
from syncpoint.programs.cli.output import inform, print_answer
from syncpoint.programs.cli.settings import Settings, with_settings

_FILES = click.argument(
    "files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="FILE..."
)


@click.group(cls=Group)
def audit() -> None:
    """Read audit logs: who asked for what, and whether it was allowed.

    FILE... are the files of one log: those that were full, and the one being written.
    """


_NO_LOG = (
    "Give all files of the log and no others: the file that `audit` names in the --auth file, and its rotated "
    "files (NAME.NUMBER). Entries after this point cannot be trusted."
)


@audit.command()
@_FILES
@click.option("--hash", "known", metavar="HASH", help="A hash printed earlier; it must still be in the chain.")
@with_settings
def verify(settings: Settings, files: tuple[Path, ...], known: str | None) -> None:
    """Check that no line was changed, removed or inserted since it was written. Exit code 1 if one was.

    Store the printed hash elsewhere: with --hash, a later check detects a log that was truncated.

    \b
    Example:
      syncpoint audit verify audit.jsonl
    """
    from syncpoint.catalog.access import audit as logs

    try:
        ordered = logs.in_order(files)
        lines, last = logs.verify(ordered)
        seen = known is None or known == last or any(line.entry["before"] == known for line in logs.lines(ordered))
    except logs.Broken as broken:
        raise Problem(f"the log was changed: {broken}", _NO_LOG) from None
    if not seen:
        raise Problem(f"lines are missing at the end: no line has the hash {known}", _NO_LOG)
    if not print_answer(settings.format, {"lines": lines, "hash": last}):
        inform(f"{counted(lines, 'line')}, one chain; the last has the hash {last}.")


@audit.command()
@_FILES
@click.option("--who", default="", help="Only callers whose name contains this.")
@click.option("--resource", default="", help="Only resources whose name contains this.")
@click.option("--denied", is_flag=True, help="Only refused requests.")
@click.option("--limit", type=click.IntRange(min=1), default=1000, show_default=True, help="Show the last N entries.")
@with_settings
def show(settings: Settings, files: tuple[Path, ...], who: str, resource: str, denied: bool, limit: int) -> None:
    """Show access decisions.

    \b
    Example:
      syncpoint audit show audit.jsonl --denied
    """
    from syncpoint.catalog.access import audit as logs

    try:
        found = [
            line.entry
            for line in logs.lines(logs.in_order(files))
            if who in line.entry.get("who", "")
            and resource in line.entry.get("resource", "")
            and (not denied or line.entry.get("allowed") is False)
        ][-limit:]
    except logs.Broken as broken:
        raise Problem(f"the log was changed: {broken}", _NO_LOG) from None
    rows = [
        [
            one["time"],
            one.get("who", "") or "-",
            "-" if "allowed" not in one else "yes" if one["allowed"] else "no",
            one["method"].rpartition("/")[2],
            one.get("resource", ""),
            one.get("why", ""),
        ]
        for one in found
    ]
    print_answer(settings.format, found, ["TIME", "WHO", "ALLOWED", "METHOD", "RESOURCE", "REASON"], rows)

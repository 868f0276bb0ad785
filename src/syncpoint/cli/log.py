"""`syncpoint log verify|dump`: look into the disks of a server that is stopped.

Place: beside storage, whose own scan and decisions do the work (`syncpoint.storage.inspect`); nothing is written.
Promise: exit code 1 when something acknowledged is damaged or missing, or when a server has the disks open.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import click

from syncpoint.cli.errors import Problem
from syncpoint.cli.output import count, print_json, print_table, said
from syncpoint.cli.serve import default_data
from syncpoint.cli.settings import Settings, with_settings

# heading, key in an entry, width; entries are printed as they are read, so the widths are fixed.
COLUMNS = (
    ("LOG", "log", 5),
    ("POSITION", "position", 10),
    ("KIND", "kind", 16),
    ("BYTES", "bytes", 10),
    ("SOURCE", "source", 12),
    ("OFFSET", "first_offset", 12),
    ("COUNT", "count", 7),
    ("SEGMENT", "segment", 7),
)

OF_A_DISK = ("disk.json", "marks.json", "logs", "lock")
"""A folder with none of these was never a disk, or was wiped."""

disk_folder = click.Path(exists=True, file_okay=False, path_type=Path)


def which_disks(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that name the disks."""
    data = click.option("--data", type=click.Path(path_type=Path), help="The server's data folder, as given to serve.")
    disks = click.option("--disk", "disks", multiple=True, type=disk_folder, help="Its disks, as given to serve.")
    return data(disks(command))


@click.group()
def log() -> None:
    """Look into a stopped server's disks: verify them, dump them."""


@log.command()
@which_disks
@with_settings
def verify(settings: Settings, data: Path | None, disks: tuple[Path, ...]) -> None:
    """Read every byte of every segment and say what is damaged or missing.

    \b
    Example:
      syncpoint log verify --disk /mnt/a/sp --disk /mnt/b/sp --disk /mnt/c/sp
    """
    from syncpoint.storage.inspect import verify as verify_disks

    report: dict[str, Any] = verify_disks(_stopped(data, disks))
    if settings.format == "json":
        print_json(report)
    else:
        rows = [
            (
                str(one["log"]),
                str(segment["segment"]),
                f"{segment['first_position']}-{segment['last_position']}",
                "yes" if segment["sealed"] else "no",
                f"{segment['good_copies']} of {len(segment['copies'])}",
            )
            for one in report["logs"]
            for segment in one["segments"]
        ]
        print_table(["LOG", "SEGMENT", "POSITIONS", "SEALED", "GOOD COPIES"], rows)
        click.echo("\nAll is well." if report["ok"] else "\n" + "\n".join(report["problems"]))
    if not report["ok"]:
        raise Problem(
            count(len(report["problems"]), "problem"),
            "A copy that is bad on one disk is repaired from the others when the server starts. "
            "Where no good copy is left, restore the disk from a backup before you start it.",
        )


@log.command()
@which_disks
@click.option("--log", "number", type=click.IntRange(min=1), help="Only this log.")
@click.option("--source", type=int, help="Only messages of this source, as `topics state` names it.")
@click.option("--payloads", is_flag=True, help="With the entries' bytes, in hexadecimal (json only).")
@click.option("--limit", type=click.IntRange(min=1), help="At most this many entries.")
@with_settings
def dump(
    settings: Settings,
    data: Path | None,
    disks: tuple[Path, ...],
    number: int | None,
    source: int | None,
    payloads: bool,
    limit: int | None,
) -> None:
    """Print the entries of the log, in order; with --format json one JSON object per line."""
    from syncpoint.storage.inspect import dump as dump_disks

    entries = dump_disks(_stopped(data, disks), log=number, source=source, payloads=payloads)
    as_json = settings.format == "json"
    if not as_json:
        click.echo("  ".join(heading.ljust(width) for heading, _, width in COLUMNS).rstrip())
    for entry in islice(entries, limit):
        if as_json:
            click.echo(json.dumps(entry))
        else:
            click.echo("  ".join(str(entry.get(key, "")).ljust(width) for _, key, width in COLUMNS).rstrip())


def _stopped(data: Path | None, disks: tuple[Path, ...]) -> tuple[Path, ...]:
    """The folders of the disks. Raises Problem when there are none, or when a server has one of them open."""
    folders = disks or ((data or default_data()) / "disk-1",)
    strangers = [folder for folder in folders if folder.is_dir() and not any((folder / n).exists() for n in OF_A_DISK)]
    if strangers:
        what = f"no server has kept anything in {', '.join(map(str, strangers))}"
        advice = "Name the folders that `serve` got as --disk; without --disk it is DATA/disk-1."
        if len(strangers) == len(folders):
            raise Problem(what, advice)
        said(f"{what}: a wiped disk, or another folder than meant?")
    for folder in folders:
        if not folder.is_dir():
            raise Problem(f"{folder} is not there", "Name the server's disks: --disk, or --data when it has one only.")
        lock = folder / "lock"
        if lock.exists():
            with lock.open() as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                except BlockingIOError:
                    raise Problem(
                        f"a server has {folder} open",
                        "Stop it first; of a running server, `syncpoint disks list` tells how its disks are.",
                    ) from None
    return folders

"""`syncpoint log verify|dump|recover`: look into the disks of a server that is stopped, or give up what is lost.

Place: beside storage, whose own scan and decisions do the work (`log.storage.disk.inspect_disks` and `losses`).
Only `recover --accept-loss` writes anything.
Promise: exit code 1 when something acknowledged is damaged or missing, or when a server has the disks open.
"""

from __future__ import annotations

import fcntl
import getpass
import json
import platform
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from syncpoint.base.model.wording import counted
from syncpoint.base.runtime.environment import Environment
from syncpoint.programs.cli.errors import Problem
from syncpoint.programs.cli.help_text import Group
from syncpoint.programs.cli.output import inform, print_answer, print_json, print_table
from syncpoint.programs.cli.serve import default_data
from syncpoint.programs.cli.settings import Settings, with_settings

if TYPE_CHECKING:
    from syncpoint.log.storage.disk.losses import Losses

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


@click.group(cls=Group)
def log() -> None:
    """Look into a stopped server's disks: verify them, dump them, and give up what is lost for good."""


@log.command()
@which_disks
@with_settings
def verify(settings: Settings, data: Path | None, disks: tuple[Path, ...]) -> None:
    """Read every segment in full and report damaged or missing data.

    \b
    Example:
      syncpoint log verify --disk /mnt/a/sp --disk /mnt/b/sp --disk /mnt/c/sp
    """
    from syncpoint.log.storage.disk.inspect_disks import verify as verify_disks

    report: dict[str, Any] = verify_disks(_stopped(data, disks))
    if not print_answer(settings.format, report):
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
            counted(len(report["problems"]), "problem"),
            "A damaged copy is repaired from the other disks when the server starts. If no intact copy is left, "
            "restore the disk from a backup before you start the server.",
        )


@log.command()
@which_disks
@click.option("--log", "number", type=click.IntRange(min=1), help="Only this log.")
@click.option("--source", type=int, help="Only messages of this source, as shown by `topics state`.")
@click.option("--payloads", is_flag=True, help="Include the entries' bytes in hexadecimal (json only).")
@click.option("--limit", type=click.IntRange(min=1), help="Maximum number of entries to print.")
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
    """Print the entries of the log, in order; with --format json one JSON object per line.

    \b
    Example:
      syncpoint log dump --data /srv/syncpoint --limit 20
    """
    from syncpoint.log.storage.disk.inspect_disks import dump as dump_disks

    entries = dump_disks(_stopped(data, disks), log=number, source=source, payloads=payloads)
    as_json = settings.format == "json"
    if not as_json:
        click.echo("  ".join(heading.ljust(width) for heading, _, width in COLUMNS).rstrip())
    for entry in islice(entries, limit):
        if as_json:
            click.echo(json.dumps(entry))
        else:
            click.echo("  ".join(str(entry.get(key, "")).ljust(width) for _, key, width in COLUMNS).rstrip())


@log.command()
@which_disks
@click.option("--accept-loss", is_flag=True, help="Accept the loss, so that the server starts without the lost data.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@with_settings
def recover(settings: Settings, data: Path | None, disks: tuple[Path, ...], accept_loss: bool, yes: bool) -> None:
    """Show what would be lost if only these disks are left, and accept the loss on request.

    Use an empty folder for each disk that is lost for good. The accepted loss is recorded in audit/ on every disk, with
    your name. Disks that return later are ignored: recover all disks you can first.

    \b
    Example:
      syncpoint log recover --disk /mnt/a/sp --disk /mnt/new/sp --disk /mnt/c/sp
      syncpoint log recover --disk /mnt/a/sp --disk /mnt/new/sp --disk /mnt/c/sp --accept-loss
    """
    from syncpoint.base.model.errors import SyncpointError
    from syncpoint.base.runtime.os_files import OsFiles
    from syncpoint.base.runtime.random import SystemRandom
    from syncpoint.log.storage.disk.losses import accept, arrange, assess

    files, random = OsFiles(), SystemRandom()
    folders = _stopped(data, disks)
    try:
        roots, rule = arrange([folder.absolute() for folder in folders], files)
        losses = assess(roots, rule, files=files, random=random)
    except (ValueError, SyncpointError) as error:
        raise Problem(str(error), "Nothing was changed.") from error
    if settings.format == "json" and not accept_loss:
        print_json(losses.to_values())
    else:
        _report(losses)
    if not losses.any:
        if settings.format != "json":
            click.echo("Nothing acknowledged is lost: start the server, it recovers automatically.")
        return
    if not accept_loss:
        raise Problem(
            counted(len(losses.problems), "problem"),
            "Recover every disk that may have these data. Accept the loss of the rest with --accept-loss.",
        )
    if not yes:
        click.confirm("\nAccept the loss of all of this?", abort=True)
    who = {"user": getpass.getuser(), "host": platform.node(), "command": "syncpoint log recover --accept-loss"}
    try:
        written = accept(losses, Environment(random=random, files=files), who=who)
    except SyncpointError as error:
        raise Problem(str(error), "Losses accepted until then are recorded in audit/ on the disks.") from error
    if not print_answer(settings.format, {**losses.to_values(), "audit": written}):
        click.echo(
            "\nThe server will start without these data. Recorded in:\n" + "\n".join(f"  {path}" for path in written)
        )


def _report(losses: Losses) -> None:
    for problem in losses.problems:
        click.echo(f"LOST  {problem}")
    if losses.at_risk:
        click.echo("\nMessages at risk, by source:")
        for one in losses.at_risk:
            click.echo(f"  {one['source']}: {', '.join(map(str, one['ids']))}")
    if losses.any:
        click.echo(
            "\nAcknowledgements and other facts at the same positions are also lost: acknowledged messages may be"
            " redelivered, and topics without any remaining data are not listed here."
        )


def _stopped(data: Path | None, disks: tuple[Path, ...]) -> tuple[Path, ...]:
    """The folders of the disks. Raises Problem when there are none, or when a server has one of them open."""
    folders = disks or ((data or default_data()) / "disk-1",)
    strangers = [folder for folder in folders if folder.is_dir() and not any((folder / n).exists() for n in OF_A_DISK)]
    if strangers:
        what = f"no server has kept anything in {', '.join(map(str, strangers))}"
        advice = "Name the --disk folders of `serve`; without --disk it is DATA/disk-1."
        if len(strangers) == len(folders):
            raise Problem(what, advice)
        inform(f"{what}: a wiped disk, or the wrong folder?")
    for folder in folders:
        if not folder.is_dir():
            raise Problem(
                f"{folder} does not exist", "Name the server's disks with --disk, or --data if it has only one."
            )
        lock = folder / "lock"
        if lock.exists():
            with lock.open() as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                except BlockingIOError:
                    raise Problem(
                        f"a server has {folder} open",
                        "Stop it first; for a running server, use `syncpoint disks list`.",
                    ) from None
    return folders

"""`syncpoint serve`: run a server in the foreground.

Place: the door to `syncpoint.node`; this module reads options and hands them over, nothing more.
Promise: once the server can be called, one line `syncpoint ready on HOST:PORT` stands on standard output.
"""

from __future__ import annotations

import os
from pathlib import Path

import click

from syncpoint.cli.errors import Problem
from syncpoint.cli.output import said


def default_data() -> Path:
    """The data folder when none is given: $SYNCPOINT_DATA, else the user's data folder."""
    chosen = os.environ.get("SYNCPOINT_DATA")
    if chosen:
        return Path(chosen)
    home = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    return Path(home) / "syncpoint"


folder = click.Path(file_okay=False, path_type=Path)
key_file = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on; 0.0.0.0 for all.")
@click.option("--port", default=8085, show_default=True, type=click.IntRange(0, 65_535), help="0 takes a free one.")
@click.option(
    "--data", type=folder, help="Folder for everything the server keeps [SYNCPOINT_DATA, or your data folder]."
)
@click.option("--disk", "disks", multiple=True, type=folder, help="Folder on a disk; give 1, 3, 5... [DATA/disk-1].")
@click.option(
    "--durability",
    type=click.Choice(["sync", "async", "memory"]),
    default="sync",
    show_default=True,
    help="When a message counts as stored: synced to a majority of disks, written to it, or held in memory.",
)
@click.option("--tls-cert", type=key_file, help="Certificate chain (PEM); serves TLS.")
@click.option("--tls-key", type=key_file, help="The certificate's private key (PEM).")
def serve(
    host: str,
    port: int,
    data: Path | None,
    disks: tuple[Path, ...],
    durability: str,
    tls_cert: Path | None,
    tls_key: Path | None,
) -> None:
    """Run a server until it is told to stop (Ctrl-C or SIGTERM: it ends what it is doing first).

    \b
    Examples:
      syncpoint serve
      syncpoint serve --port 9000 --data /srv/syncpoint
      syncpoint serve --disk /mnt/a/sp --disk /mnt/b/sp --disk /mnt/c/sp
    """
    if disks and len(disks) % 2 == 0:
        raise click.UsageError(f"{len(disks)} disks cannot outvote each other; give an odd number of --disk folders.")
    if len({disk.resolve() for disk in disks}) != len(disks):
        raise click.UsageError("Each --disk must be a folder of its own.")
    if (tls_cert is None) != (tls_key is None):
        raise click.UsageError("--tls-cert and --tls-key belong together.")

    from syncpoint.node.serve import run
    from syncpoint.node.settings import ServeSettings

    data = data or default_data()
    settings = ServeSettings(
        host=host, port=port, data=data, disks=disks, durability=durability, tls_cert=tls_cert, tls_key=tls_key
    )
    said(f"Serving {data.absolute()}, durability {durability}; Ctrl-C ends it.")
    if tls_cert is None:  # clients speak plain text to what PUBSUB_EMULATOR_HOST names
        where = "" if (host, port) == ("127.0.0.1", 8085) else f" --endpoint {host}:{port or 'PORT'}"
        said(f'In another terminal: eval "$(syncpoint env-init{where})"')
    if run(settings):  # it has said why
        words = [
            "syncpoint doctor",
            f"--port {port}" if port else "",
            f"--data {data}",
            *(f"--disk {d}" for d in disks),
        ]
        raise Problem("the server did not start", f"`{' '.join(filter(None, words))}` finds what is in the way.")

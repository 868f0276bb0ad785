"""`syncpoint cluster restart`: all processes of a cluster on this machine, one after another, unnoticed.

Place: over `node.cluster.rolling`.
Promise: it stops at the first process that does not come back as it was.
"""

from __future__ import annotations

from pathlib import Path

import click

from syncpoint.cli.cluster import folder_option
from syncpoint.cli.errors import Problem
from syncpoint.cli.output import said


@click.command()
@folder_option
@click.argument("process", nargs=-1, metavar="[PROCESS|ROLE]...")
def restart(folder: Path, process: tuple[str, ...]) -> None:
    """Restart processes one after another, each politely; none named: all of them.

    The next one is stopped only when the one before listens again and all is as it was.

    \b
    Examples:
      syncpoint cluster restart --dir /tmp/demo proxy
      syncpoint cluster restart --dir /tmp/demo storage-c1 router
    """
    from syncpoint.model.errors import FailedPrecondition, InvalidArgument, Unavailable
    from syncpoint.node.cluster import rolling
    from syncpoint.node.cluster.local import LocalCluster

    made = LocalCluster(folder)
    try:
        names = rolling.chosen(made, process)
    except InvalidArgument as error:
        raise click.UsageError(error.message) from error
    try:
        rolling.restart(made, names, said)
    except (Unavailable, FailedPrecondition) as error:
        raise Problem(
            error.message,
            f"The processes after it were left alone. `syncpoint cluster status --dir {folder}` shows what is wrong.",
        ) from error
    said(f"Restarted: {', '.join(names)}.")

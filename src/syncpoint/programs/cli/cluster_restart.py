"""`syncpoint cluster restart`: all processes of a cluster on this machine, one after another, unnoticed.

Place: over `programs.clusters.rolling`.
Promise: it stops at the first process that does not come back as it was. Processes that somebody else supervises are
left to them: a command that ended them could not start them again.
"""

from __future__ import annotations

from typing import Any

import click

from syncpoint.programs.cli.cluster import cluster_at, place_options
from syncpoint.programs.cli.errors import Problem
from syncpoint.programs.cli.names import processes
from syncpoint.programs.cli.output import inform


@click.command()
@place_options
@click.argument("process", nargs=-1, metavar="[PROCESS|ROLE]...", shell_complete=processes())
def restart(process: tuple[str, ...], **place: Any) -> None:
    """Restart processes that `cluster up` started, one after another and gracefully; all of them if none is named.

    Each process is stopped only after the previous one is ready and the cluster is as healthy as before. Restart
    processes that a supervisor started (systemd, Kubernetes) through it: one after another, each after `cluster status`
    exits with 0 again.

    \b
    Examples:
      syncpoint cluster restart --dir /tmp/demo proxy
      syncpoint cluster restart --dir /tmp/demo storage-c1 router
    """
    from syncpoint.base.model.errors import FailedPrecondition, InvalidArgument, Unavailable
    from syncpoint.programs.clusters import rolling

    made = cluster_at(**place)
    try:
        names = rolling.chosen(made.settings, process)
    except InvalidArgument as error:
        raise click.UsageError(error.message) from error
    strangers = [name for name in names if made.local is None or not made.local.started(name)]
    if strangers or made.local is None:
        raise Problem(
            f"{', '.join(strangers) or 'its processes'}: not started by `syncpoint cluster up`",
            "Nothing was stopped. Restart them through their supervisor, one after another, each after `syncpoint "
            "cluster status` of this cluster exits with 0 again.",
        )
    look = f"syncpoint cluster status --config {made.shown_as}"
    try:
        rolling.restart(made.local, names, inform)
    except (Unavailable, FailedPrecondition) as error:
        raise Problem(
            error.message,
            f"The remaining processes were not restarted. `{look}` shows what is wrong; "
            f"`syncpoint cluster up --dir {made.local.folder}` starts stopped processes.",
        ) from error
    inform(f"Restarted: {', '.join(names)}.")

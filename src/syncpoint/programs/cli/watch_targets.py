"""`syncpoint monitor`: watch over servers, probers and clusters from a process of its own, by their pages of metrics.

Place: beside `serve` and `run`, for a second pair of eyes, or where several servers are watched at once. The same
methods of syncpoint.admin.v1 are answered that a server has for its own monitor.
"""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.option(
    "--config",
    "path",
    required=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The monitor's file: targets, objectives and receivers of alerts.",
)
@click.option(
    "--data",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for history and alerts.",
)
@click.option(
    "--listen", default="127.0.0.1:8086", show_default=True, metavar="HOST:PORT", help="The address to listen on."
)
def monitor(path: Path, data: Path, listen: str) -> None:
    """Monitor servers by their metrics, until stopped.

    \b
    Examples:
      syncpoint monitor --config monitor.yaml --data /var/lib/syncpoint-monitor
      syncpoint alerts list --endpoint 127.0.0.1:8086
    """
    from syncpoint.base.model.errors import SyncpointError
    from syncpoint.node.process_monitor import run
    from syncpoint.programs.cli.errors import Problem
    from syncpoint.watch.monitor.monitor_settings import load_monitor
    from syncpoint.wire.transport.network import split_address

    try:
        split_address(listen)
    except ValueError as error:
        raise click.UsageError(f"--listen {listen}: {error}") from error
    settings = load_monitor(path)
    if not settings.targets and not settings.target_files:
        raise Problem(
            f"{path} names no targets", "Give `targets` or `target_files` (`syncpoint docs operations/alerts`)."
        )
    try:
        run(settings, data, listen)
    except SyncpointError as error:
        raise Problem(f"the monitor did not start: {error.message}") from error

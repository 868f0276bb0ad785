"""`syncpoint dashboards`: dashboards for Grafana, made from the families and indicators of this version.

Place: asks no server.
"""

from __future__ import annotations

import json
from pathlib import Path

import click

from syncpoint.base.model.wording import counted
from syncpoint.programs.cli.help_text import Group
from syncpoint.programs.cli.output import inform


@click.group(cls=Group)
def dashboards() -> None:
    """Export dashboards for Grafana."""


@dashboards.command()
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path), metavar="DIR")
@click.option(
    "--monitor",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The monitor's file, for its objectives [the built-in ones].",
)
def export(folder: Path, monitor: Path | None) -> None:
    """Write dashboards as JSON files for import or provisioning in Grafana, with Prometheus as data source.

    \b
    Example:
      syncpoint dashboards export /etc/grafana/dashboards
    """
    from syncpoint.watch.monitor.grafana_dashboards import dashboards as made
    from syncpoint.watch.monitor.monitor_settings import defaults, load_monitor

    settings = defaults() if monitor is None else load_monitor(monitor)
    folder.mkdir(parents=True, exist_ok=True)
    written = made(settings.objectives)
    for name, content in written.items():
        (folder / f"{name}.json").write_text(json.dumps(content, indent=2) + "\n")
    inform(f"{counted(len(written), 'dashboard')} in {folder}.")

"""`syncpoint federation acks`: which subscriptions have their acknowledgements exchanged, and how that goes.

Place: beside `federation`; shows what the running program has written into the state folder.
"""

from __future__ import annotations

import time
from pathlib import Path

import click

from syncpoint.programs.cli.errors import Problem
from syncpoint.programs.cli.federation_file import file_argument, load_file
from syncpoint.programs.cli.output import print_json, print_table
from syncpoint.programs.cli.settings import Settings, with_settings


@click.command()
@file_argument
@with_settings
def acks(settings: Settings, file: Path) -> None:
    """Show the exchange of acknowledgements, by flow and subscription.

    \b
    Example:
      syncpoint federation acks federation.yaml
    """
    from syncpoint.programs.federation.state import StateFolder

    found, links = load_file(file)
    if not any(link.acks for link in links):
        raise Problem(
            f"No task in {file} exchanges acknowledgements.", "Set `acks: true` in a namespace or a `replicate` task."
        )
    state = StateFolder(found.runtime.state)
    shown = state.acks()
    if settings.format == "json":
        print_json(shown)
        return
    now = time.time()
    rows = [
        (
            one["flow"],
            one["subscription"],
            one["source"],
            one["target"],
            f"{one['brought']:,}",
            str(one["seeks"]),
            f"{max(0.0, now - one['at']):.0f} s ago" if one["at"] else "never",
            one["why"] or "; ".join(["exchanged", *(f"snapshot {note}" for note in one.get("notes", ()))]),
        )
        for one in shown
    ]
    print_table(["FLOW", "SUBSCRIPTION", "SOURCE", "TARGET", "BROUGHT", "SEEKS", "ROUND", "STATE"], rows)
    if state.supervisor() is None:
        raise Problem("The federation does not run here.", f"Start it with `syncpoint federation run {file}`.")

"""The file that commands of `syncpoint federation` are given, and the flows it comes to.

Place: under those commands. A mistake in the file is reported with its place, and where its keys are explained.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from syncpoint.programs.cli.errors import Problem, explained_by

if TYPE_CHECKING:
    from syncpoint.programs.federation.flow_plan import FederationLink, Flow
    from syncpoint.programs.federation.servers import Servers
    from syncpoint.programs.federation.spec import Federation

file_argument = click.argument(
    "file", type=click.Path(exists=True, dir_okay=False, path_type=Path), default="federation.yaml"
)


def load_file(file: Path, *, conditions: bool = False) -> tuple[Federation, list[FederationLink]]:
    """The contents of the file, and its links. `conditions`: with their columns checked. Raises `Problem`."""
    from syncpoint.programs.federation.patterns.registry import links_of
    from syncpoint.programs.federation.spec import load

    with explained_by("federation", file):
        found = load(file)
        links = links_of(found)
        if conditions:
            from syncpoint.programs.federation.condition_columns import check_conditions

            check_conditions(links)
        return found, links


def flow_named(servers: Servers, links: list[FederationLink], name: str, file: Path) -> Flow:
    """The flow of this name. Raises `Problem`."""
    found = next((one for one in servers.flows(links) if one.name == name), None)
    if found is None:
        raise Problem(f"There is no flow {name}.", f"`syncpoint federation plan {file}` lists them.")
    return found

"""`syncpoint apply` and `diff`: make resources match a file; `syncpoint topology graph`: draw existing resources.

Place: over `syncpoint.programs.topology`, which plans without a server.
Promise: nothing is changed before the plan was shown and agreed to, nothing deleted without --prune; a second `apply`
finds nothing to do.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from syncpoint.base.model.wording import counted
from syncpoint.programs.cli.help_text import Group
from syncpoint.programs.cli.output import inform, print_answer, show
from syncpoint.programs.cli.settings import Settings, with_settings
from syncpoint.programs.cli.values import SecondsType

if TYPE_CHECKING:
    from syncpoint.front.client.client import Client
    from syncpoint.programs.topology.topology_file import WantedTopology
    from syncpoint.programs.topology.topology_plan import PlanStep

SIGNS = {"+": "green", "~": "yellow", "-": "red"}
WORDS = {"+": "create", "~": "change", "-": "delete"}

_FILE = click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
_PRUNE = click.option(
    "--prune", is_flag=True, help="Delete resources in the file's projects that the file does not name."
)


@click.command()
@_FILE
@_PRUNE
@with_settings
def diff(settings: Settings, file: Path, prune: bool) -> None:
    """Preview `apply`. The exit code is 1 where that is anything.

    \b
    Example:
      syncpoint diff topology.yaml
    """
    with settings.client() as client:
        _, steps = _planned(settings, client, file, prune=prune)
    _print(settings, steps)
    if steps:
        raise click.exceptions.Exit(1)


@click.command()
@_FILE
@_PRUNE
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option("--dry-run", is_flag=True, help="Show the plan, and change nothing.")
@with_settings
def apply(settings: Settings, file: Path, prune: bool, yes: bool, dry_run: bool) -> None:
    """Apply topics, queues, subscriptions, schemas, rules and grants from a file.

    Settings that the file omits are not changed. After an interruption, run it again to continue.

    \b
    Examples:
      syncpoint apply topology.yaml
      syncpoint apply topology.yaml --prune --yes
    """
    from syncpoint.programs.topology.topology_live import carry_out

    with settings.client() as client:
        _, steps = _planned(settings, client, file, prune=prune)
        _print(settings, steps)
        if dry_run or not steps:
            return
        if not yes:
            click.confirm("Apply this?", abort=True, err=True)
        carry_out(client, steps, lambda step: inform(f"{WORDS[step.sign].capitalize()}d {step.kind} [{step.name}]."))


@click.group(cls=Group)
def topology() -> None:
    """Look at how topics and subscriptions hang together."""


@topology.command()
@click.option("--output", "-o", type=click.Path(dir_okay=False, path_type=Path), required=True, help="The SVG file.")
@click.option(
    "--seconds", type=SecondsType(0, 60), default="2s", help="Time over which rates are measured (default 2s)."
)
@with_settings
def graph(settings: Settings, output: Path, seconds: float) -> None:
    """Draw a project: topics, queues, subscriptions, their forwarding and dead-letter targets, and rates.

    \b
    Example:
      syncpoint topology graph -o topology.svg
    """
    from syncpoint.programs.topology.topology_drawing import drawn
    from syncpoint.programs.topology.topology_flows import flows, project_graph

    with settings.client() as client:
        found = project_graph(client, f"projects/{settings.project}")
        before, began = flows(client, found), time.monotonic()
        if seconds:
            time.sleep(seconds)
        after = flows(client, found)
    found.measure(before, after, time.monotonic() - began if seconds else 0.0)
    output.write_text(drawn(found), encoding="utf-8")
    inform(
        f"Wrote {output}: {counted(len(found.topics), 'topic')}, {counted(len(found.subscriptions), 'subscription')}."
    )


def _planned(settings: Settings, client: Client, file: Path, *, prune: bool) -> tuple[WantedTopology, list[PlanStep]]:
    from syncpoint.programs.topology.topology_checks import check
    from syncpoint.programs.topology.topology_file import load
    from syncpoint.programs.topology.topology_live import read
    from syncpoint.programs.topology.topology_plan import plan

    wanted = load(file, settings.project_or_none)
    live = read(client, wanted)
    check(wanted, live)
    return wanted, plan(wanted, live, prune=prune)


def _print(settings: Settings, steps: list[PlanStep]) -> None:
    if print_answer(settings.format, [_as_dict(step) for step in steps]):
        return
    if not steps:
        inform("Nothing to do: everything matches the file.")
        return
    for step in steps:
        click.echo(f"{click.style(step.sign, fg=SIGNS[step.sign])} {step.kind} {step.name}")
        width = max((len(one.name) for one in step.differences), default=0)
        for one in step.differences:
            new = "(none)" if one.new is None else show(one.new)
            old = "" if step.sign == "+" else f"{'(none)' if one.old is None else show(one.old)} -> "
            click.echo(f"    {one.name.ljust(width)}  {old}{new}")
    inform(", ".join(f"{sum(step.sign == sign for step in steps)} to {word}" for sign, word in WORDS.items()) + ".")


def _as_dict(step: PlanStep) -> dict[str, Any]:
    fields = [{"field": one.name, "old": one.old, "new": one.new} for one in step.differences]
    return {"action": WORDS[step.sign], "kind": step.kind, "name": step.name, "fields": fields}

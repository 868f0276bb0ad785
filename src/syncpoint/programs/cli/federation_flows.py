"""`syncpoint federation pause`, `resume` and `accept-gap`: what a person decides about one flow.

Place: beside `federation`. What is decided stands in the state folder, where the supervisor finds it, whether it runs
now or later; a gap that is accepted is recorded at the target.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from syncpoint.base.model.errors import Code
from syncpoint.programs.cli.errors import Problem
from syncpoint.programs.cli.federation_file import file_argument, flow_named, load_file
from syncpoint.programs.cli.output import inform, print_table
from syncpoint.programs.cli.settings import Settings, with_settings

if TYPE_CHECKING:
    from syncpoint.programs.federation.flow_plan import Flow
    from syncpoint.programs.federation.servers import Servers
    from syncpoint.programs.federation.spec import Federation
    from syncpoint.programs.federation.state import StateFolder

LOSSES = (
    "DataLossError",
    "OUT_OF_RANGE",
)  # by which the job reports that a source deleted messages before they were copied


@click.command()
@click.argument("flow")
@file_argument
@with_settings
def pause(settings: Settings, flow: str, file: Path) -> None:
    """Pause a FLOW until `resume`; messages wait at the source.

    \b
    Example:
      syncpoint federation pause FLOW federation.yaml
    """
    from syncpoint.programs.federation import shared_run
    from syncpoint.programs.federation.flow_status import advised
    from syncpoint.programs.federation.servers import Servers

    whole, links = load_file(file)
    with Servers() as servers:
        flow_named(servers, links, flow, file)
    shared_run.pause(whole, flow)
    inform(f"{flow} is paused; {advised(f'resume {flow}', file)} resumes it.")


@click.command()
@click.argument("flow")
@file_argument
@with_settings
def resume(settings: Settings, flow: str, file: Path) -> None:
    """Resume a paused FLOW at its position.

    \b
    Example:
      syncpoint federation resume FLOW federation.yaml
    """
    from syncpoint.programs.federation import shared_run

    whole, _ = load_file(file)
    if not shared_run.resume(whole, flow):
        raise Problem(f"{flow} is not paused.", f"`syncpoint federation status {file}` lists paused flows.")
    inform(f"{flow} is running again.")


@click.command("accept-gap")
@click.argument("flow")
@file_argument
@with_settings
def accept_gap(settings: Settings, flow: str, file: Path) -> None:
    """Let a FLOW continue after missing messages. The skipped messages are recorded and counted permanently.

    \b
    Example:
      syncpoint federation accept-gap FLOW federation.yaml
    """
    from syncpoint.programs.federation.servers import Servers
    from syncpoint.programs.federation.state import StateFolder
    from syncpoint.programs.federation.streams.stream_ends import FileStream

    whole, links = load_file(file)
    _runs_here(whole, flow)
    with Servers() as servers:
        found = flow_named(servers, links, flow, file)
        if found.link.target.stream is not None or isinstance(found.link.source.stream, FileStream):
            raise Problem(f"{flow} has no gaps to accept.", "`status` shows what blocks it, and what to do.")
        lost = servers.lost(found)
        if lost:
            # The source cannot be read where the flow is: it restarts after the gap, which the target records.
            StateFolder(whole.runtime.state).accept(flow, "\n".join(map(str, lost)))
            gaps = lost
        else:
            gaps = _accept_at_target(servers, found, StateFolder(whole.runtime.state))
    skipped = [[str(one.source), str(one.begin), str(one.end - 1), f"{one.end - one.begin:,}"] for one in gaps]
    print_table(["SOURCE", "FROM", "TO", "MESSAGES SKIPPED"], skipped)


def _runs_here(federation: Federation, flow: str) -> None:
    """Return unless another program that shares the federation runs it. Raises `Problem`."""
    from syncpoint.programs.federation.shared_run import SharedFederations
    from syncpoint.programs.federation.state import StateFolder

    running = StateFolder(federation.runtime.state).supervisor()
    if federation.runtime.shared and (running is None or running.standby):
        holders = {one.holder for one in SharedFederations(federation).look().answers.values() if one.left.seconds}
        if holders:
            raise Problem(
                f"{', '.join(sorted(holders))} runs the federation.", f"Accept the gap of {flow} on that machine."
            )


def _accept_at_target(servers: Servers, flow: Flow, state: StateFolder) -> list[Any]:
    """Gaps that the target has skipped now. Where it has refused none, but the flow cannot read again what it was
    about to copy, the flow begins anew where its target is: a gap is found, and recorded, when it does.
    """
    from syncpoint.base.model.errors import SyncpointError

    try:
        return list(servers.accept_gap(flow).skipped)
    except SyncpointError as error:
        shown = state.flows().get(flow.name)
        if error.code is not Code.FAILED_PRECONDITION or shown is None or not any(one in shown.error for one in LOSSES):
            raise
        state.accept(flow.name, shown.error)
        inform(f"{flow.name} restarts at its target's position.")
        return []

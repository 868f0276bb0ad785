"""`syncpoint drain TARGET` and `undrain`: take a process, a cluster or a region out of service, unnoticed.

Place: the operator's side of the command line; calls of syncpoint.admin.v1.Admin.
Promise: `drain` returns when nothing is connected to the target any more and no chain is open there, and shows in the
meantime what is left, whenever that changes; interrupted, or when it takes too long, the drain stays in force.
"""

from __future__ import annotations

import time
from typing import Any

import click

from syncpoint.base.model.wording import counted
from syncpoint.programs.cli.constraints import refusals_explained
from syncpoint.programs.cli.errors import Problem
from syncpoint.programs.cli.names import others
from syncpoint.programs.cli.output import as_dict, inform, print_answer
from syncpoint.programs.cli.settings import Settings, with_settings
from syncpoint.programs.cli.values import DurationType

POLL_S = 0.5


@click.command()
@click.argument("target", required=False, shell_complete=others("processes"))
@click.option("--comment", default="", help="The reason, shown in the list.")
@click.option("--wait/--no-wait", default=True, help="Return once the target is empty (the default), or immediately.")
@click.option("--within", type=DurationType(), default="10m", show_default=True, help="Wait at most this long.")
@with_settings
def drain(settings: Settings, target: str | None, comment: str, wait: bool, within: tuple[int, int]) -> None:
    """Take a process, a cluster or a region out of service. Without TARGET: list active drains.

    TARGET is the name of a process, cluster/NAME (or a zone of that name), or region/NAME. Connected clients move to
    other processes without errors, and no message is lost. A drain that would leave a topic without a forwarder is
    refused.

    \b
    Examples:
      syncpoint drain publish-forwarder-2 --comment "new disks"
      syncpoint drain region/us
    """
    from syncpoint.wire.protobuf.messages import admin

    with settings.client() as client:
        if target is None:
            _print_all(list(client.call("Admin.ListDrains", admin.ListDrainsRequest()).drains), settings.format)
            return
        with refusals_explained():
            state = client.call("Admin.Drain", admin.DrainRequest(target=target, comment=comment))
        inform(f"Draining [{target}]: {', '.join(state.members) or 'no matching process'}.")
        begun = time.monotonic()
        end = begun + within[0]
        shown = ""
        while wait and (state.connections or state.chains):
            now = f"{counted(state.connections, 'connection')}, {counted(state.chains, 'chain')} left"
            if now != shown:
                inform(now)
                shown = now
            if time.monotonic() >= end:
                raise Problem(
                    f"[{target}] is not empty yet: {now}",
                    f"The drain continues. `syncpoint drain {target}` waits again, `syncpoint undrain {target}` "
                    f"ends it.",
                )
            time.sleep(POLL_S)
            state = client.call("Admin.GetDrain", admin.GetDrainRequest(target=target))
            if not state.draining:
                raise Problem(f"Someone else ended the drain of [{target}].")
    if wait:
        inform(f"Drained [{target}] in {time.monotonic() - begun:.1f} s.")
    print_answer(settings.format, state)


@click.command()
@click.argument("target", shell_complete=others("processes"))
@with_settings
def undrain(settings: Settings, target: str) -> None:
    """Put a process, a cluster or a region back into service.

    \b
    Example:
      syncpoint undrain storage-c2
    """
    from syncpoint.wire.protobuf.messages import admin

    state = settings.call("Admin.Undrain", admin.UndrainRequest(target=target))
    inform(f"Back in service: [{target}].")
    print_answer(settings.format, state)


def _print_all(drains: list[Any], form: str) -> None:
    print_answer(
        form,
        drains,
        ["TARGET", "PROCESSES", "CONNECTIONS", "CHAINS", "SINCE", "COMMENT"],
        [
            [
                one.target,
                ", ".join(one.members),
                f"{one.connections:,}",
                f"{one.chains:,}",
                as_dict(one).get("createTime", ""),
                one.comment,
            ]
            for one in drains
        ],
    )

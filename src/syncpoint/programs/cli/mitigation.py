"""`syncpoint mitigation status|pause|resume` and `syncpoint headroom`: what a cluster does about sick processes by
itself, and whether it could do without a zone.

Place: calls of syncpoint.admin.v1.
"""

from __future__ import annotations

from typing import Any

import click

from syncpoint.programs.cli.help_text import Group
from syncpoint.programs.cli.output import as_dict, inform, print_answer, print_json, print_table
from syncpoint.programs.cli.settings import Settings, with_settings


@click.group(cls=Group)
def mitigation() -> None:
    """Look at, pause and resume the draining of sick processes."""


@mitigation.command()
@with_settings
def status(settings: Settings) -> None:
    """Show the health of each process, and decisions, newest first.

    \b
    Example:
      syncpoint mitigation status
    """
    from syncpoint.wire.protobuf.messages import admin

    found = settings.call("Admin.GetMitigation", admin.GetMitigationRequest())
    _show(settings, found)


@mitigation.command()
@click.option("--comment", default="", help="Why.")
@with_settings
def pause(settings: Settings, comment: str) -> None:
    """Report decisions without acting on them, until resumed. Drained processes stay drained.

    \b
    Example:
      syncpoint mitigation pause --comment "replacing a switch"
    """
    from syncpoint.wire.protobuf.messages import admin

    found = settings.call("Admin.PauseMitigation", admin.PauseMitigationRequest(comment=comment))
    _show(settings, found)


@mitigation.command()
@with_settings
def resume(settings: Settings) -> None:
    """Resume mitigation in the mode set in cluster.yaml.

    \b
    Example:
      syncpoint mitigation resume
    """
    from syncpoint.wire.protobuf.messages import admin

    found = settings.call("Admin.ResumeMitigation", admin.ResumeMitigationRequest())
    _show(settings, found)


@click.command()
@with_settings
def headroom(settings: Settings) -> None:
    """Check whether the other zones (or, without zones, racks) could carry the load if one was lost. The exit code is 1
    if not.

    \b
    Example:
      syncpoint headroom
    """
    from syncpoint.wire.protobuf.messages import admin

    found = settings.call("Admin.GetHeadroom", admin.GetHeadroomRequest())
    if settings.format == "json":
        print_json(as_dict(found))
    elif not found.rows:
        inform("All processes are in one place, so no other zone or rack can take over.")
    else:
        rows = [
            [one.domain, one.role, f"{one.left} of {one.members}", _share(one.busy), _share(one.busy_after), _word(one)]
            for one in found.rows
        ]
        print_table(["IF THIS WERE LOST", "ROLE", "LEFT", "BUSY NOW", "BUSY THEN", ""], rows)
    if any(one.short for one in found.rows):
        raise click.exceptions.Exit(1)


def _share(busy: float) -> str:
    return f"{100 * busy:.0f}%"


def _word(row: Any) -> str:
    word = "none left" if not row.left else "overloaded" if row.short else "enough"
    return word + (f", {row.unknown} not reporting" if row.unknown else "")


def _show(settings: Settings, found: Any) -> None:
    if print_answer(settings.format, found):
        return
    inform(f"Mode: {found.mode}{', paused' if found.paused else ''}.")
    print_table(["PROCESS", "IS"], [[one.name, one.verdict] for one in found.processes])
    if found.records:
        rows = [[one.time.ToJsonString(), one.action, one.process, one.outcome, one.reason] for one in found.records]
        print_table(["TIME", "DECISION", "PROCESS", "OUTCOME", "REASON"], rows)

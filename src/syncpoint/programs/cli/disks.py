"""`syncpoint disks list`: how the disks of the running server, or of a cluster, are.

Place: the operator's side of the command line; a call of syncpoint.admin.v1.Admin.
Promise: exit code 1 when a disk has failed or is damaged, so that a script need not read the table.
"""

from __future__ import annotations

from typing import Any

import click

from syncpoint.base.model.wording import counted
from syncpoint.programs.cli.errors import Problem
from syncpoint.programs.cli.help_text import Group
from syncpoint.programs.cli.output import inform, print_answer, print_table
from syncpoint.programs.cli.settings import Settings, with_settings

DAMAGED_ADVICE = (
    "Damaged entries are kept, skipped, and read again later in case they become readable; the rest is delivered. "
    "`syncpoint log verify`, while the server is stopped, names every place. With three disks, a damaged disk is "
    "repaired from the others."
)


@click.group(cls=Group)
def disks() -> None:
    """Show the state of the server's disks."""


@disks.command("list")
@with_settings
def list_all(settings: Settings) -> None:
    """List the disks with their state, position, free space and missing entries.

    \b
    Example:
      syncpoint disks list
    """
    from syncpoint.wire.protobuf.messages import admin

    answer = settings.call("Admin.ListDisks", admin.ListDisksRequest())
    if not print_answer(settings.format, answer):
        rows = [
            (
                disk.path,
                _state(disk),
                _position(disk),
                f"{disk.under_replicated:,}",
                f"{disk.damaged:,}",
                gigabytes(disk.free_bytes) if disk.HasField("free_bytes") else "unknown",
                _incarnation(disk),
                disk.reason,
            )
            for disk in answer.disks
        ]
        print_table(["DISK", "STATE", "POSITION", "MISSING", "DAMAGED", "FREE", "INCARNATION", "REASON"], rows)
        for who in answer.unknown:
            inform(f"unknown: {who}")
    failed = [f"{disk.path} ({_state(disk)})" for disk in answer.disks if _state(disk) in LOST]
    damaged = [f"{disk.path} ({disk.reason})" for disk in answer.disks if _state(disk) == "damaged"]
    if damaged and not failed:
        raise Problem(f"damaged: {', '.join(damaged)}", DAMAGED_ADVICE)
    if failed:
        raise Problem(f"failed or missing: {', '.join(failed)}", failed_advice(answer.disks))


LOST = ("failed", "away")


def failed_advice(found: Any) -> str:
    """What follows from the states of one server's disks; which of a cluster's disks go together is not known here."""
    repair = (
        "A disk that was only disconnected is used again once it returns; otherwise repair or replace {}, "
        "then restart the server"
    )
    if any(disk.chains and not disk.path.startswith("/") for disk in found):  # PROCESS/DISK
        chains = (
            "Each chain accepts writes while enough of its disks are healthy; `syncpoint cluster status` shows it. "
        )
        mended = " (of a cluster: the process that serves it): the disk is brought up to date from the others."
        return f"{chains}{repair.format('the disk')}{mended}"
    failed = sum(_state(disk) in LOST for disk in found)
    if 2 * failed < len(found):
        effect = "Publishing continues, since a majority of disks is healthy. "
        return f"{effect}{repair.format('the disk')}: it is brought up to date from the others."
    effect = f"Publishing is refused: {failed} of {counted(len(found), 'disk')} failed; a majority must be healthy. "
    return f"{effect}{repair.format('what failed')}."


def gigabytes(count: int) -> str:
    """Bytes in GiB, one digit."""
    return f"{count / 2**30:,.1f} GiB"


def _position(disk: Any) -> str:
    """Format the position of a disk; on a cluster's disk, of each chain."""
    if not disk.chains:
        return f"{disk.position:,}"
    each = (f"{one.position:,}" if one.HasField("position") else "unknown" for one in disk.chains)
    return ", ".join(f"chain {one.chain}: {position}" for one, position in zip(disk.chains, each, strict=True))


def _incarnation(disk: Any) -> str:
    """Format the incarnation of a disk; on a cluster's disk, of each chain."""
    if not disk.chains:
        return str(disk.incarnation[:8])
    return ", ".join(f"chain {one.chain}: {one.incarnation[:8] or 'unknown'}" for one in disk.chains)


def _state(disk: object) -> str:
    """A disk's state as a word."""
    descriptor = disk.DESCRIPTOR.fields_by_name["state"].enum_type  # type: ignore[attr-defined]
    return str(descriptor.values_by_number[disk.state].name).lower()  # type: ignore[attr-defined]

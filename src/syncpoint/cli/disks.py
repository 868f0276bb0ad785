"""`syncpoint disks list`: how the running server's disks are.

Place: the operator's side of the command line; a call of syncpoint.admin.v1.Admin.
Promise: exit code 1 when a disk has failed, so that a script need not read the table.
"""

from __future__ import annotations

import click

from syncpoint.cli.errors import Problem
from syncpoint.cli.output import print_message, print_table
from syncpoint.cli.settings import Settings, with_settings


@click.group()
def disks() -> None:
    """How the server's disks are."""


@disks.command("list")
@with_settings
def list_all(settings: Settings) -> None:
    """List the disks: state, position, free space, and what each still misses."""
    from syncpoint.wire.messages import admin

    with settings.client() as client:
        answer = client.call("Admin.ListDisks", admin.ListDisksRequest())
    if settings.format == "json":
        print_message(answer, "json")
    else:
        rows = [
            (
                disk.path,
                _state(disk),
                f"{disk.position:,}",
                f"{disk.under_replicated:,}",
                gigabytes(disk.free_bytes),
                disk.incarnation[:8],
                disk.reason,
            )
            for disk in answer.disks
        ]
        print_table(["DISK", "STATE", "POSITION", "MISSING", "FREE", "INCARNATION", "REASON"], rows)
    failed = [disk.path for disk in answer.disks if _state(disk) == "failed"]
    if failed:
        raise Problem(
            f"failed: {', '.join(failed)}",
            "The server goes on while a majority of disks is well. Repair or replace the disk, then restart the "
            "server: the disk is brought up to date from the others.",
        )


def gigabytes(count: int) -> str:
    """Bytes in GiB, one digit."""
    return f"{count / 2**30:,.1f} GiB"


def _state(disk: object) -> str:
    """A disk's state as a word."""
    descriptor = disk.DESCRIPTOR.fields_by_name["state"].enum_type  # type: ignore[attr-defined]
    return str(descriptor.values_by_number[disk.state].name).lower()  # type: ignore[attr-defined]

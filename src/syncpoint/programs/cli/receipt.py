"""`syncpoint receipt`: which disks hold a message.

Place: one call of syncpoint.admin.v1. The exit code is 1 where the disks that hold it could not have acknowledged it.
"""

from __future__ import annotations

import click

from syncpoint.programs.cli.names import names
from syncpoint.programs.cli.output import inform, print_answer, print_table
from syncpoint.programs.cli.settings import Settings, with_settings


@click.command()
@click.argument("message_id")
@click.option("--topic", required=True, shell_complete=names("topics"), help="The topic it was published to.")
@with_settings
def receipt(settings: Settings, message_id: str, topic: str) -> None:
    """Show which disks hold a message; every copy is read and its checksum verified.

    \b
    held         synced there, and in good order
    late         not synced there yet
    damaged      not what was written; another disk's copy takes its place
    unreachable  the disk cannot be asked
    absent       the disk was not there, and is not filled yet

    The exit code is 1 if fewer disks hold it than an acknowledgement requires.

    \b
    Example:
      syncpoint receipt 321451587981216777216000000000000 --topic orders
    """
    from syncpoint.wire.protobuf.messages import admin

    with settings.client() as client:
        request = admin.GetReceiptRequest(topic=settings.name("topics", topic), message_id=message_id)
        found = client.call("Admin.GetReceipt", request)
    held = sum(one.state == admin.DiskCopy.HELD for one in found.copies)
    if not print_answer(settings.format, found):
        rows = [[one.disk, admin.DiskCopy.State.Name(one.state).lower(), one.reason] for one in found.copies]
        print_table(["DISK", "STATE", *(["REASON"] if any(row[2] for row in rows) else [])], rows)
        where = f"chain {found.chain}, log {found.log}" if found.chain else f"log {found.log}"
        inform(
            f"{held} of {len(found.copies)} disks hold it ({where}, entry {found.position}, {found.entry_bytes} bytes)."
        )
        if not found.suffices:
            inform("An acknowledgement requires more: `syncpoint disks list` shows what is wrong with the others.")
    if not found.suffices:
        raise click.exceptions.Exit(1)

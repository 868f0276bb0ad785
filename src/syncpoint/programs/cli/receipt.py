"""`syncpoint receipt`: which disks hold a message, signed where that is to be shown to others, and checked offline.

Place: calls of syncpoint.admin.v1; `verify` calls nobody. The exit code is 1 where the disks that hold it could not
have acknowledged it, or a receipt is not what it claims to be.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from syncpoint.programs.cli.errors import Problem
from syncpoint.programs.cli.federation_file import load_file
from syncpoint.programs.cli.help_text import Group
from syncpoint.programs.cli.names import names
from syncpoint.programs.cli.output import inform, print_answer, print_table
from syncpoint.programs.cli.settings import Settings, with_settings


class _ReceiptGroup(Group):
    """Takes a message id in place of a command for `show`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and not args[0].startswith("-") and args[0] not in self.commands:
            args = ["show", *args]
        return super().parse_args(ctx, args)


@click.group(cls=_ReceiptGroup)
def receipt() -> None:
    """Show which disks hold a message; every copy is read and its checksum verified.

    `syncpoint receipt MESSAGE_ID --topic TOPIC` is short for `syncpoint receipt show`.
    """


@receipt.command()
@click.argument("message_id")
@click.option("--topic", required=True, shell_complete=names("topics"), help="The topic it was published to.")
@click.option("--output", type=click.Path(dir_okay=False, path_type=Path), help="Write a signed receipt to this file.")
@click.option(
    "--federation",
    "file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Also show the copies of the message that the flows of this file have made.",
)
@with_settings
def show(settings: Settings, message_id: str, topic: str, output: Path | None, file: Path | None) -> None:
    """Show which disks hold a message; every copy is read and its checksum verified.

    \b
    held         synced there, and in good order
    late         not synced there yet
    damaged      not what was written; another disk's copy takes its place
    unreachable  the disk cannot be asked
    absent       the disk was not there, and is not filled yet

    The exit code is 1 if fewer disks hold it than an acknowledgement requires.

    \b
    Examples:
      syncpoint receipt show 321451587981216777216000000000000 --topic orders
      syncpoint receipt show 321451587981216777216000000000000 --topic orders --output order-7.receipt
    """
    from syncpoint.wire.protobuf.messages import admin

    name, signs = settings.name("topics", topic), output is not None
    request = admin.GetReceiptRequest(topic=name, message_id=message_id, sign=signs)
    found = settings.call("Admin.GetReceipt", request)
    copies = {} if file is None else _copies(file, name, message_id, signs=signs)
    if output is not None:
        output.write_text("".join(f"{one.signed}\n" for one in (found, *copies.values())), encoding="utf-8")
    if not print_answer(settings.format, {"receipt": found, "sites": copies} if copies else found):
        _print_receipt(found)
        for site, one in copies.items():
            inform(f"At {site}, of which a link has made a copy:")
            _print_receipt(one)
    if not found.suffices:
        raise click.exceptions.Exit(1)


def _print_receipt(found: Any) -> None:
    from syncpoint.wire.protobuf.messages import admin

    held = sum(one.state == admin.DiskCopy.HELD for one in found.copies)
    rows = [[one.disk, admin.DiskCopy.State.Name(one.state).lower(), one.reason] for one in found.copies]
    headings = ["DISK", "STATE", *(["REASON"] if any(row[2] for row in rows) else [])]
    print_table(headings, [row[: len(headings)] for row in rows])
    where = f"chain {found.chain}, log {found.log}" if found.chain else f"log {found.log}"
    inform(f"{held} of {len(found.copies)} disks hold it ({where}, entry {found.position}, {found.entry_bytes} bytes).")
    if not found.suffices:
        inform("An acknowledgement requires more: `syncpoint disks list` shows what is wrong with the others.")


def _copies(file: Path, topic: str, message_id: str, *, signs: bool) -> dict[str, Any]:
    """Receipts of the copies that flows have made, by site."""
    from syncpoint.base.model.identity import parse_message_id
    from syncpoint.programs.federation.servers import Servers
    from syncpoint.wire.protobuf.messages import admin, pipeline

    _, source, offset = parse_message_id(message_id)
    _, links = load_file(file)
    found: dict[str, Any] = {}
    with Servers() as servers:
        for flow in [one for one in servers.flows(links) if one.source_topic == topic]:
            target = flow.link.target
            if servers.link_of(flow) is None:
                continue
            asked = pipeline.MapOffsetsRequest(link=flow.name, source=source, begin=offset, end=offset + 1)
            for one in servers.call(target, "EpochWriter.MapOffsets", asked).mappings:
                place = admin.ReceiptPlace(source=one.to[0].source, offset=one.to[0].begin)
                request = admin.GetReceiptRequest(
                    topic=flow.target_topic, message_id=message_id, place=place, sign=signs
                )
                found[target.name] = servers.call(target, "Admin.GetReceipt", request)
    return found


@receipt.command()
@with_settings
def keys(settings: Settings) -> None:
    """Print the public keys that receipts are checked with, to be kept beside them.

    \b
    Example:
      syncpoint receipt keys > receipt-keys.json
    """
    from syncpoint.wire.protobuf.messages import admin

    click.echo(settings.call("Admin.ListReceiptKeys", admin.ListReceiptKeysRequest()).jwks)


@receipt.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--keys",
    "key_files",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    multiple=True,
    required=True,
    help="File of `receipt keys`; may be repeated, for several sites.",
)
@with_settings
def verify(settings: Settings, file: Path, key_files: tuple[Path, ...]) -> None:
    """Check signed receipts of a FILE, one a line, without a server.

    \b
    Example:
      syncpoint receipt verify order-7.receipt --keys receipt-keys.json
    """
    from syncpoint.front.client.signed_receipts import read_receipt

    sets = [one.read_bytes() for one in key_files]
    found = [read_receipt(line, sets) for line in file.read_text(encoding="utf-8").split()]
    if not found:
        advice = "`syncpoint receipt MESSAGE_ID --topic TOPIC --output FILE` makes one."
        raise Problem(f"{file} has no receipt.", advice)
    if not print_answer(settings.format, found):
        for one in found:
            runs = [first if count == 1 else f"{first} and {count - 1} more" for first, count in one["messages"]]
            signed = f"signed {one['signed_at']} by the installation {one['iss']}"
            inform(f"{one['topic']}: {', '.join(runs)}; {signed}")
            rows = [
                [copy["disk"], copy["state"].lower(), f"chain {entry['chain']}, log {entry['log']}"]
                for entry in one["entries"]
                for copy in entry["copies"]
            ]
            print_table(["DISK", "STATE", "WHERE"], rows)
    if not all(entry["suffices"] for one in found for entry in one["entries"]):
        raise Problem("Fewer disks held it than an acknowledgement requires.")

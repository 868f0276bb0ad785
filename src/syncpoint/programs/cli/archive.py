"""`syncpoint archive`: a topic as Parquet files, and back.

Place: the outermost room; `federation.archive` on a local Spark does the work.
Promise: what is archived can be held against its checksums without a server and without Spark.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from syncpoint.base.model.wording import counted
from syncpoint.programs.cli.errors import Problem
from syncpoint.programs.cli.help_text import Group
from syncpoint.programs.cli.names import names
from syncpoint.programs.cli.output import inform, print_answer, print_table, progress_bar
from syncpoint.programs.cli.settings import Settings, with_settings
from syncpoint.programs.cli.spark_session import local_spark, master_option, server_of

if TYPE_CHECKING:
    from syncpoint.programs.federation.manifest import Manifest

FOLDER = click.Path(file_okay=False, path_type=Path)


@click.group(cls=Group)
def archive() -> None:
    """Keep a topic's messages as Parquet files, and publish them again.

    \b
    Examples:
      syncpoint archive create orders --to backups/orders
      syncpoint archive verify backups/orders
      syncpoint archive restore backups/orders --endpoint other:8085
    """


@archive.command()
@click.argument("topic", shell_complete=names("topics"))
@click.option("--to", "folder", type=FOLDER, required=True, help="The archive's folder, new or from earlier runs.")
@click.option("--rows-per-part", type=click.IntRange(min=1), default=500_000, show_default=True)
@master_option
@with_settings
def create(settings: Settings, topic: str, folder: Path, rows_per_part: int, master: str) -> None:
    """Archive TOPIC, or add newer messages to its archive.

    A cursor on the server retains messages that are not archived yet, within its limits (`syncpoint cursors list`).
    After an interruption, run the command again to continue.

    \b
    Example:
      syncpoint archive create orders --to /backup/orders
    """
    settings.called = True  # by the work, through clients of its own
    from syncpoint.programs.federation.archive import archive as work

    with local_spark("syncpoint archive", master) as spark, progress_bar("archiving") as progress:
        done = work(
            spark, server_of(settings), settings.name("topics", topic), folder, progress, rows_per_part=rows_per_part
        )
    inform(f"{counted(done.rows, 'message')} in {counted(done.parts, 'part')} added to {folder}.")


@archive.command()
@click.argument("folder", type=FOLDER)
@click.option("--topic", default="", help="Publish to this topic; the default is the archived topic's name.")
@master_option
@with_settings
def restore(settings: Settings, folder: Path, topic: str, master: str) -> None:
    """Publish the messages of the archive in FOLDER, in order, each exactly once, with their original ids and times.

    The topic is created when it does not exist. After an interruption, run it again: no message is published twice.

    \b
    Example:
      syncpoint archive restore /backup/orders --topic orders-restored
    """
    from syncpoint.base.model.errors import Code, SyncpointError
    from syncpoint.programs.federation.archive import restore as work
    from syncpoint.wire.protobuf.messages import pubsub

    found = _manifest(folder)
    name = settings.name("topics", topic) if topic else found.topic
    with settings.client() as client:
        try:
            client.call("Publisher.CreateTopic", pubsub.Topic(name=name))
            inform(f"created {name}")
        except SyncpointError as error:
            if error.code is not Code.ALREADY_EXISTS:
                raise
    with local_spark("syncpoint archive", master) as spark, progress_bar("restoring") as progress:
        done = work(spark, server_of(settings), folder, name, progress)
    inform(f"{name} has {counted(done.rows, 'message')} of {counted(done.parts, 'part')}.")


@archive.command()
@click.argument("folder", type=FOLDER)
@with_settings
def verify(settings: Settings, folder: Path) -> None:
    """Check every file in FOLDER against its checksum.

    \b
    Example:
      syncpoint archive verify /backup/orders
    """
    from syncpoint.programs.federation.manifest import verify as work

    found = _manifest(folder)
    with progress_bar("verifying") as progress:
        rows = 0

        def one(part: Any) -> None:
            nonlocal rows
            rows += part.rows
            progress(rows, found.rows)

        progress(0, found.rows)
        work(folder, found, one)
    inform(
        f"{counted(sum(len(part.files) for part in found.parts), 'file')}, {counted(found.rows, 'message')}: "
        "all intact."
    )


@archive.command()
@click.argument("folder", type=FOLDER)
@with_settings
def describe(settings: Settings, folder: Path) -> None:
    """Describe the archive in FOLDER.

    \b
    Example:
      syncpoint archive describe /backup/orders
    """
    found = _manifest(folder)
    if print_answer(
        settings.format,
        {
            "topic": found.topic,
            "rows": found.rows,
            "parts": [
                {"number": one.number, "rows": one.rows, "bytes": sum(file.bytes for file in one.files)}
                for one in found.parts
            ],
        },
    ):
        return
    inform(f"{found.topic}: {counted(found.rows, 'message')}")
    rows = [
        [
            f"{part.number:06}",
            f"{part.rows:,}",
            f"{sum(file.bytes for file in part.files) / 1e6:,.1f}",
            ", ".join(f"{one.source}: {one.begin} to {one.end - 1}" for one in part.stretches),
        ]
        for part in found.parts
    ]
    print_table(["PART", "MESSAGES", "MB", "SOURCES"], rows)


def _manifest(folder: Path) -> Manifest:
    from syncpoint.programs.federation.manifest import load

    found = load(folder)
    if found is None:
        raise Problem(
            f"There is no archive in {folder}.", "`syncpoint archive create TOPIC --to FOLDER` creates an archive."
        )
    return found

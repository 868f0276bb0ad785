"""`syncpoint cursors ...`: named readers of topics, and what is kept for them.

Place: the operator's side of the command line; each command is a call of syncpoint.pipeline.v1.LogReader. A cursor is
made by the first call of its reader, so there is no command for that.
"""

from __future__ import annotations

from typing import Any

import click

from syncpoint.programs.cli.help_text import Group
from syncpoint.programs.cli.names import names, others
from syncpoint.programs.cli.output import inform, print_answer
from syncpoint.programs.cli.settings import Settings, with_settings

HEADINGS = ("NAME", "TOPIC", "LAG", "LAG BYTES", "LOST", "USED")


@click.group(cls=Group)
def cursors() -> None:
    """Named readers of topics, such as data pipelines: how far they lag, and what is kept for them."""


@cursors.command("list")
@click.option("--topic", shell_complete=names("topics"), help="Only cursors of this topic.")
@with_settings
def list_all(settings: Settings, topic: str | None) -> None:
    """List the cursors of a project, or of a topic.

    LAG counts messages after the cursor, LAG BYTES estimates their size, and LOST counts messages that were deleted
    before the cursor passed them.

    \b
    Example:
      syncpoint cursors list --topic orders
    """
    from syncpoint.wire.protobuf.messages import pipeline

    if topic:
        request = pipeline.ListCursorsRequest(topic=settings.name("topics", topic))
    else:
        request = pipeline.ListCursorsRequest(project=f"projects/{settings.project}")
    found = list(settings.call("LogReader.ListCursors", request).cursors)
    print_answer(settings.format, found, HEADINGS, [_row(one) for one in found])


def _row(cursor: Any) -> tuple[str, ...]:
    lost = sum(one.end - one.begin for one in cursor.lost)
    used = cursor.used.ToDatetime().strftime("%Y-%m-%d %H:%M:%S")
    return cursor.name, cursor.topic, str(cursor.lag_messages), str(cursor.lag_bytes), str(lost), used


@cursors.command()
@click.argument("cursor", nargs=-1, required=True, shell_complete=others("cursors"))
@click.option("--topic", required=True, shell_complete=names("topics"), help="The topic of the cursors.")
@with_settings
def delete(settings: Settings, cursor: tuple[str, ...], topic: str) -> None:
    """Delete cursors of a topic, and messages that only they retain.

    A reader that returns creates a new cursor at its position; messages deleted in between are lost to it.

    \b
    Example:
      syncpoint cursors delete nightly-export --topic orders
    """
    from syncpoint.wire.protobuf.messages import pipeline

    with settings.client() as client:
        for name in cursor:
            request = pipeline.DeleteCursorRequest(topic=settings.name("topics", topic), name=name)
            client.call("LogReader.DeleteCursor", request)
            inform(f"Deleted cursor [{name}].")

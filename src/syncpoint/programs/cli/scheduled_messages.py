"""`syncpoint scheduled ...`: messages that wait for their time to be published.

Place: calls of syncpoint.admin.v1.Admin; `topics publish --at` and `--in` schedule them.
"""

from __future__ import annotations

from typing import Any

import click

from syncpoint.programs.cli.help_text import Group
from syncpoint.programs.cli.names import names
from syncpoint.programs.cli.output import as_dict, dig, inform, print_answer, print_table, show
from syncpoint.programs.cli.settings import Settings, with_settings
from syncpoint.programs.cli.streaming import data_text

COLUMNS = [("MESSAGE_ID", "messageId"), ("ENQUEUE_TIME", "enqueueTime")]

topic_option = click.option(
    "--topic", required=True, shell_complete=names("topics"), help="The topic of the scheduled messages."
)


@click.group(cls=Group)
def scheduled() -> None:
    """List, show and cancel scheduled messages.

    A message waits when it is published with --at or --in, or by any client with the attribute
    sys.ScheduledEnqueueTimeUtc.
    """


@scheduled.command("list")
@topic_option
@click.option(
    "--limit", default=100, show_default=True, type=click.IntRange(1, 1_000_000), help="Maximum number to show."
)
@with_settings
def list_(settings: Settings, topic: str, limit: int) -> None:
    """List scheduled messages, by time.

    \b
    Example:
      syncpoint scheduled list --topic orders
    """
    from syncpoint.wire.protobuf.messages import admin

    request = admin.ListScheduledMessagesRequest(topic=settings.name("topics", topic))
    found: list[Any] = []
    more = True
    with settings.client() as client:
        while more and len(found) < limit:
            request.page_size = min(1000, limit - len(found))
            answer = client.call("Admin.ListScheduledMessages", request)
            found += answer.messages
            request.page_token, more = answer.next_page_token, bool(answer.next_page_token)
    if print_answer(settings.format, found):
        return
    rows = [[show(dig(as_dict(one), path)) for _, path in COLUMNS] for one in found]
    print_table([heading for heading, _ in COLUMNS], rows)
    if more:
        inform(f"(there are more; --limit is {limit})")


@scheduled.command("show")
@click.argument("message_id")
@topic_option
@with_settings
def show_(settings: Settings, message_id: str, topic: str) -> None:
    """Show a scheduled message with its content.

    \b
    Example:
      syncpoint scheduled show MESSAGE_ID --topic orders
    """
    from syncpoint.wire.protobuf.messages import admin

    request = admin.GetScheduledMessageRequest(topic=settings.name("topics", topic), message_id=message_id)
    found = settings.call("Admin.GetScheduledMessage", request)
    value = as_dict(found)
    rows = [[data_text(found.message.data), show(dig(value, "message.attributes")), show(dig(value, "enqueueTime"))]]
    print_answer(settings.format, found, ["DATA", "ATTRIBUTES", "ENQUEUE_TIME"], rows)


@scheduled.command()
@click.argument("message_id", nargs=-1, required=True)
@topic_option
@with_settings
def cancel(settings: Settings, message_id: tuple[str, ...], topic: str) -> None:
    """Cancel scheduled messages, so that they are not published.

    \b
    Example:
      syncpoint scheduled cancel 216803646975316777217000000000000 --topic orders
    """
    from syncpoint.wire.protobuf.messages import admin

    name = settings.name("topics", topic)
    with settings.client() as client:
        for one in message_id:
            client.call("Admin.CancelScheduledMessage", admin.CancelScheduledMessageRequest(topic=name, message_id=one))
            inform(f"Cancelled [{one}].")

"""`syncpoint topics peek` and `syncpoint subscriptions peek`: messages without consuming them.

Place: under `topics` and `subscriptions`; each command is calls of syncpoint.admin.v1, page by page.
Promise: nothing is delivered, leased or counted.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import click

from syncpoint.programs.cli.names import names
from syncpoint.programs.cli.output import as_dict, dig, inform, print_answer, print_table, show, without_empty_columns
from syncpoint.programs.cli.settings import Settings, with_settings
from syncpoint.programs.cli.streaming import data_text
from syncpoint.programs.cli.values import TimeType, put_time

COLUMNS = [
    ("MESSAGE_ID", "message.messageId"),
    ("ORDERING_KEY", "message.orderingKey"),
    ("ATTRIBUTES", "message.attributes"),
    ("PUBLISH_TIME", "message.publishTime"),
    ("SOURCE", "source"),
    ("OFFSET", "offset"),
]


def _options(command: Any) -> Any:
    for option in reversed((
        click.option(
            "--limit", default=10, show_default=True, type=click.IntRange(1, 9_999), help="Maximum number to show."
        ),
        click.option("--since", type=TimeType(), help="Only messages published since: 2026-11-21T03:00:00Z, or -10m."),
        click.option("--message-filter", default="", metavar="FILTER", help="Only messages whose attributes match."),
        click.option("--ordering-key", default="", metavar="KEY", help="Only messages with this ordering key."),
    )):  # fmt: skip
        command = option(command)
    return command


@click.command()
@click.argument("topic", shell_complete=names("topics"))
@_options
@click.option("--offset", type=click.IntRange(min=0), help="Start at this offset, in each source of the topic.")
@click.option("--message-id", default="", metavar="ID", help="Start at this message, in its source only.")
@with_settings
def peek_topic(settings: Settings, topic: str, offset: int | None, message_id: str, **chosen: Any) -> None:
    """Show stored messages of a topic, by source and offset.

    A topic without retention holds only messages that a subscription still needs.

    \b
    Examples:
      syncpoint topics peek orders --since -10m --message-filter 'attributes.region = "eu"'
      syncpoint topics peek orders --message-id 321451587981216777216000000000000 --limit 1
    """
    from syncpoint.wire.protobuf.messages import admin

    request = admin.PeekTopicRequest(
        topic=settings.name("topics", topic), start_offset=offset or 0, message_id=message_id
    )
    _show(settings, "PeekTopic", request, **chosen)


@click.command()
@click.argument("subscription", shell_complete=names("subscriptions"))
@_options
@with_settings
def peek_subscription(settings: Settings, subscription: str, **chosen: Any) -> None:
    """Show a subscription's unacknowledged messages, including messages outstanding at subscribers.

    The subscription's transforms are not applied.

    \b
    Example:
      syncpoint subscriptions peek billing --ordering-key customer-7 --limit 100
    """
    from syncpoint.wire.protobuf.messages import admin

    request = admin.PeekSubscriptionRequest(subscription=settings.name("subscriptions", subscription))
    _show(settings, "PeekSubscription", request, **chosen)


def _show(
    settings: Settings, method: str, request: Any, *, limit: int, since: datetime | None, message_filter: str,
    ordering_key: str,
) -> None:  # fmt: skip
    if since is not None:
        put_time(request.start_time, since)
    request.filter, request.ordering_key = message_filter, ordering_key
    found: list[Any] = []
    unknown: dict[str, None] = {}
    more = True
    with settings.client() as client:
        while more and len(found) < limit:
            request.page_size = min(1000, limit - len(found))
            answer = client.call(f"Admin.{method}", request)
            found += answer.messages
            unknown |= dict.fromkeys(answer.unknown)
            request.page_token, more = answer.next_page_token, bool(answer.next_page_token)
    if not print_answer(settings.format, found):
        values = [as_dict(one, with_zeros=True) for one in found]
        rows = [
            [data_text(one.message.data), *[show(dig(value, path)) for _, path in COLUMNS]]
            for one, value in zip(found, values, strict=True)
        ]
        print_table(*without_empty_columns(["DATA", *[heading for heading, _ in COLUMNS]], rows))
        if more:
            inform(f"(there may be more; --limit is {limit})")
    for one in unknown:
        inform(f"Not shown: {one}")

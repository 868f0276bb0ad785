"""`syncpoint subscriptions clients` and `syncpoint topics publishers`: who is connected.

Place: under `subscriptions` and `topics`; each command is one call of syncpoint.admin.v1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from syncpoint.programs.cli.names import names
from syncpoint.programs.cli.output import as_dict, dig, inform, print_answer, print_table, show, without_empty_columns
from syncpoint.programs.cli.settings import Settings, with_settings

_WHO = [("PEER", "peer"), ("PRINCIPAL", "principal"), ("PROCESS", "process"), ("CLIENT_ID", "clientId")]
_LIBRARY = [("USER_AGENT", "userAgent"), ("API_CLIENT", "apiClient")]
_TIMES = [("SINCE", "connectTime"), ("LAST_CALL", "lastCallTime")]
SUBSCRIBER_COLUMNS = [
    ("KIND", "kind"),
    *_WHO,
    *_TIMES,
    ("OUTSTANDING", "outstandingMessages"),
    ("MAX", "maxOutstandingMessages"),
    ("BYTES", "outstandingBytes"),
    ("MAX_BYTES", "maxOutstandingBytes"),
    *_LIBRARY,
]
PUBLISHER_COLUMNS = [*_WHO, *_TIMES, *_LIBRARY]


@click.command()
@click.argument("subscription", shell_complete=names("subscriptions"))
@with_settings
def subscription_clients(settings: Settings, subscription: str) -> None:
    """Show connected clients: open streams, and clients that pulled in the last minute.

    \b
    Example:
      syncpoint subscriptions clients billing
    """
    from syncpoint.wire.protobuf.messages import admin

    request = admin.ListSubscriptionClientsRequest(subscription=settings.name("subscriptions", subscription))
    found = settings.call("Admin.ListSubscriptionClients", request)
    _print(found, found.clients, SUBSCRIBER_COLUMNS, settings.format)


@click.command()
@click.argument("topic", shell_complete=names("topics"))
@with_settings
def topic_publishers(settings: Settings, topic: str) -> None:
    """Show clients that published in the last minute.

    \b
    Example:
      syncpoint topics publishers orders
    """
    from syncpoint.wire.protobuf.messages import admin

    request = admin.ListTopicPublishersRequest(topic=settings.name("topics", topic))
    found = settings.call("Admin.ListTopicPublishers", request)
    _print(found, found.publishers, PUBLISHER_COLUMNS, settings.format)


def _print(answer: Any, clients: Sequence[Any], columns: Sequence[tuple[str, str]], form: str) -> None:
    if print_answer(form, answer):
        return
    rows = [[show(dig(as_dict(one), path)) for _, path in columns] for one in clients]
    headings = [heading for heading, _ in columns]
    print_table(*without_empty_columns(headings, rows))
    if answer.more:
        inform(f"({answer.more:,} more are not shown)")
    for one in answer.unknown:
        inform(f"Unknown: {one}")
    if answer.addresses_hidden:
        inform("Addresses and principals are hidden: seeing them requires syncpoint.server.get on the server.")

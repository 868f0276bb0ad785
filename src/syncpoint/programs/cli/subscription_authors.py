"""`syncpoint subscriptions authors`: by whose rights the server sends messages on.

Place: under `subscriptions`; a call of syncpoint.admin.v1 for each subscription whose messages go somewhere, and for
each topic.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import click

from syncpoint.programs.cli.names import listing
from syncpoint.programs.cli.output import print_answer
from syncpoint.programs.cli.settings import Settings, with_settings


class _Sending(NamedTuple):
    """Something that the server does by itself; the names are the keys of the JSON."""

    resource: str
    what: str
    target: str
    author: str


@click.command()
@click.option("--nobody", is_flag=True, help="Only settings made by unidentified callers.")
@with_settings
def authors(settings: Settings, nobody: bool) -> None:
    """Show who configured each destination of messages (push, export, forward, dead letters, delivery records) and the
    identity for model transforms.

    The server keeps checking the permissions of these principals. Before you revoke a grant or delete an account, have
    someone else set the listed configuration again.

    \b
    Examples:
      syncpoint subscriptions authors
      syncpoint subscriptions authors --nobody
    """
    rows: list[_Sending] = []
    with settings.client() as client:
        for one in listing(client, settings, "subscriptions"):
            rows += _of_subscription(client, one)
        for one in listing(client, settings, "topics"):
            rows += _of_topic(client, one)
    found = [row for row in rows if row.target and not (nobody and row.author)]
    print_answer(settings.format, [row._asdict() for row in found], [name.upper() for name in _Sending._fields], found)


def _of_subscription(client: Any, one: Any) -> Iterator[_Sending]:
    from syncpoint.wire.protobuf.messages import admin

    options = client.call("Admin.GetSubscriptionOptions", admin.GetSubscriptionOptionsRequest(subscription=one.name))
    yield _Sending(one.name, "push", one.push_config.push_endpoint, options.delivery_author)
    yield _Sending(one.name, "export", one.cloud_storage_config.bucket, options.delivery_author)
    yield _Sending(one.name, "forward", options.forward_to, options.delivery_author)
    yield _Sending(one.name, "dead letters", one.dead_letter_policy.dead_letter_topic, options.letter_author)
    yield _asking(one, options)


def _of_topic(client: Any, one: Any) -> Iterable[_Sending]:
    from syncpoint.wire.protobuf.messages import admin

    options = client.call("Admin.GetTopicOptions", admin.GetTopicOptionsRequest(topic=one.name))
    return _Sending(one.name, "delivery records", options.records_topic, options.records_author), _asking(one, options)


def _asking(one: Any, options: Any) -> _Sending:
    from syncpoint.catalog.metadata.message_rules import accounts_asked_as

    accounts = accounts_asked_as(one.message_transforms)
    return _Sending(one.name, "query models as", ", ".join(accounts), options.transform_author)

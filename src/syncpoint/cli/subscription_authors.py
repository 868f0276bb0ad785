"""`syncpoint subscriptions authors`: by whose rights the server sends messages on.

Place: under `subscriptions`; a call of syncpoint.admin.v1 for each subscription whose messages go somewhere.
"""

from __future__ import annotations

from typing import Any

import click

from syncpoint.cli.names import listing
from syncpoint.cli.output import print_json, print_table
from syncpoint.cli.settings import Settings, with_settings

COLUMNS = ("SUBSCRIPTION", "GOES_TO", "AUTHOR", "DEAD_LETTERS_TO", "LETTER_AUTHOR")


@click.command()
@click.option("--nobody", is_flag=True, help="Only settings made when callers were not identified.")
@with_settings
def authors(settings: Settings, nobody: bool) -> None:
    """Show who said where messages are pushed, exported or forwarded, and where dead letters go.

    The server asks for the rights of these principals for as long as it sends messages there. Before you take a grant
    back or delete an account, let somebody else set again what shows here.

    \b
    Examples:
      syncpoint subscriptions authors
      syncpoint subscriptions authors --nobody
    """
    from syncpoint.wire.messages import admin

    rows = []
    with settings.client() as client:
        for one in listing(client, settings, "subscriptions"):
            request = admin.GetSubscriptionOptionsRequest(subscription=one.name)
            options = client.call("Admin.GetSubscriptionOptions", request)
            goes_to = one.push_config.push_endpoint or one.cloud_storage_config.bucket or options.forward_to
            letters_to = one.dead_letter_policy.dead_letter_topic
            row = (one.name, goes_to, options.delivery_author, letters_to, options.letter_author)
            unknown = (goes_to and not options.delivery_author) or (letters_to and not options.letter_author)
            if unknown if nobody else goes_to or letters_to:
                rows.append(row)
    if settings.format == "json":
        print_json([_as_dict(row) for row in rows])
    else:
        print_table(COLUMNS, rows)


def _as_dict(row: tuple[Any, ...]) -> dict[str, Any]:
    keys = ("subscription", "goesTo", "author", "deadLettersTo", "letterAuthor")
    return dict(zip(keys, row, strict=True))

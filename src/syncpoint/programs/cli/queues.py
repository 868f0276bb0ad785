"""`syncpoint queues ...`: create, list, describe and delete queues.

Place: a topic and its one subscription as one thing; each command is one call of syncpoint.admin.v1. Messages go in
with `topics publish` and come out with `subscriptions pull`, under the queue's name.
"""

from __future__ import annotations

from itertools import islice
from typing import Any

import click

from syncpoint.programs.cli.errors import for_each
from syncpoint.programs.cli.names import others
from syncpoint.programs.cli.output import as_dict, inform, print_answer, print_fields, print_messages
from syncpoint.programs.cli.resources import ResourceGroup, labels_option, limit_option
from syncpoint.programs.cli.settings import Settings, with_settings
from syncpoint.programs.cli.subscription_options import configure, queue_options, readable
from syncpoint.programs.cli.values import parse_pairs

COLUMNS = [
    ("NAME", "topic.name"),
    ("ORDERING", "subscription.enableMessageOrdering"),
    ("EXACTLY_ONCE", "subscription.enableExactlyOnceDelivery"),
    ("SEND_SUSPENDED", "sendSuspended"),
    ("RECEIVE_SUSPENDED", "receiveSuspended"),
]


@click.group(cls=ResourceGroup)
def queues() -> None:
    """Create and list queues: topics with exactly one subscription each, of the same name."""


@queues.command()
@click.argument("queue", nargs=-1, required=True)
@click.option("--enable-message-ordering", "ordering", is_flag=True, help="Deliver each ordering key in order.")
@queue_options
@labels_option
@with_settings
def create(settings: Settings, queue: tuple[str, ...], ordering: bool, labels: tuple[str, ...], **chosen: Any) -> None:
    """Create one or more queues. The topic and its subscription are created together; neither can be deleted alone, and
    no other subscription can be added.

    \b
    Example:
      syncpoint queues create jobs --ack-deadline 60 --dead-letter-topic failed --max-delivery-attempts 10
    """
    from syncpoint.wire.protobuf.messages import admin

    made = []
    with settings.client() as client:
        for given in queue:
            request = admin.CreateQueueRequest()
            request.topic.name = settings.name("topics", given)
            request.topic.labels.update(parse_pairs(labels, "--labels"))
            request.subscription.labels.update(parse_pairs(labels, "--labels"))
            request.subscription.enable_message_ordering = ordering
            configure(request.subscription, settings, chosen)
            made.append(client.call("Admin.CreateQueue", request))
            inform(f"Created queue [{made[-1].topic.name}].")
    print_answer(settings.format, made)


@queues.command("list")
@limit_option
@with_settings
def list_all(settings: Settings, limit: int | None) -> None:
    """List the queues of a project.

    \b
    Example:
      syncpoint queues list
    """
    from syncpoint.wire.protobuf.messages import admin

    request = admin.ListQueuesRequest(project=f"projects/{settings.project}")
    with settings.client() as client:
        found = list(islice(client.pages("Admin.ListQueues", request, "queues"), limit))
    print_messages(found, settings.format, COLUMNS)


@queues.command()
@click.argument("queue", shell_complete=others("queues"))
@with_settings
def describe(settings: Settings, queue: str) -> None:
    """Show a queue: its topic, its subscription, and whether it is suspended.

    \b
    Example:
      syncpoint queues describe jobs
    """
    from syncpoint.wire.protobuf.messages import admin

    found = settings.call("Admin.GetQueue", admin.GetQueueRequest(topic=settings.name("topics", queue)))
    shown = as_dict(found)
    if not print_answer(settings.format, shown):
        print_fields({**shown, "subscription": readable(shown["subscription"])})


@queues.command()
@click.argument("queue", nargs=-1, required=True, shell_complete=others("queues"))
@with_settings
def delete(settings: Settings, queue: tuple[str, ...]) -> None:
    """Delete one or more queues, with the messages they hold.

    \b
    Example:
      syncpoint queues delete jobs
    """
    from syncpoint.wire.protobuf.messages import admin

    with settings.client() as client:

        def one(name: str) -> None:
            client.call("Admin.DeleteQueue", admin.DeleteQueueRequest(topic=name))
            inform(f"Deleted queue [{name}].")

        for_each([settings.name("topics", given) for given in queue], one)

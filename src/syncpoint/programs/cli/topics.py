"""`syncpoint topics ...`: create, list, describe, delete and change topics, publish to them.

Place: the publisher's side of the command line; each command is one call of google.pubsub.v1.Publisher.
"""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import click

from syncpoint.programs.cli.connected import topic_publishers
from syncpoint.programs.cli.message_transforms import changed_transforms, clear_option, file_option, read_transforms
from syncpoint.programs.cli.names import names, others
from syncpoint.programs.cli.output import as_dict, inform, print_answer, print_described, print_message
from syncpoint.programs.cli.peek import peek_topic
from syncpoint.programs.cli.resources import (
    Kind,
    OwnOptions,
    ResourceGroup,
    label_changes,
    labels_option,
    limit_option,
    require_change,
)
from syncpoint.programs.cli.settings import Settings, with_settings
from syncpoint.programs.cli.topic_publishing import publish
from syncpoint.programs.cli.values import DurationType, change_labels, parse_list, parse_pairs, put_duration

COLUMNS = [("NAME", "name"), ("LABELS", "labels"), ("RETENTION", "messageRetentionDuration"), ("STATE", "state")]

suspend_option = click.option(
    "--suspend/--resume",
    "suspend",
    default=None,
    help="Suspend or resume publishing. Stored messages are still delivered.",
)
durability_class_option = click.option(
    "--durability-class",
    "durability_class",
    shell_complete=others("durability classes"),
    metavar="NAME",
    help="In a cluster: store new messages with this class from cluster.yaml.",
)
duplicate_window_option = click.option(
    "--duplicate-window",
    type=DurationType(),
    help="Drop messages whose attribute sys.MessageId was already published within this window (20s to 7d).",
)
default_ttl_option = click.option(
    "--default-ttl", type=DurationType(), help="Expire messages after this time, delivered or not (at least 1s)."
)
records_topic_option = click.option(
    "--records-topic",
    "records_topic",
    shell_complete=names("topics"),
    metavar="TOPIC",
    help="Topic for delivery records, which `syncpoint trace` reads; it needs a retention.",
)
schema_option = click.option(
    "--schema", shell_complete=names("schemas"), help="The schema that its messages must match."
)
encoding_option = click.option(
    "--message-encoding",
    "encoding",
    type=click.Choice(["json", "binary"], case_sensitive=False),
    help="The encoding of messages with a schema.",
)
first_revision_option = click.option(
    "--first-revision-id", "first_revision", metavar="ID", help="The oldest revision that may be used; '' for any."
)
last_revision_option = click.option(
    "--last-revision-id", "last_revision", metavar="ID", help="The newest revision that may be used; '' for any."
)


@click.group(cls=ResourceGroup)
def topics() -> None:
    """Create, change and list topics; publish to them."""


TOPIC = Kind("topic", "Publisher", "topic", "orders")
OWN = OwnOptions(
    TOPIC,
    default_ttl="default_ttl",
    duplicate_window="duplicate_detection_window",
    durability_class="durability_class",
    records_topic="records_topic",
    suspend="send_suspended",
)
topics.add_command(peek_topic, "peek")
topics.add_command(topic_publishers, "publishers")
topics.add_command(publish)
TOPIC.add_list(topics, COLUMNS)
TOPIC.add_delete(topics, "Delete one or more topics. Their subscriptions and undelivered messages remain.")


@topics.command()
@click.argument("topic", nargs=-1, required=True)
@click.option(
    "--message-retention-duration",
    "retention",
    type=DurationType(),
    help="Keep messages this long, so that a subscription can seek back to them (10m to 31d).",
)
@click.option(
    "--message-storage-policy-allowed-regions",
    "--allowed-region",
    "regions",
    multiple=True,
    metavar="REGION,...",
    help="In a cluster: store messages only in these regions.",
)
@schema_option
@encoding_option
@first_revision_option
@last_revision_option
@file_option
@durability_class_option
@default_ttl_option
@duplicate_window_option
@records_topic_option
@labels_option
@with_settings
def create(
    settings: Settings,
    topic: tuple[str, ...],
    retention: tuple[int, int] | None,
    regions: tuple[str, ...],
    schema: str | None,
    encoding: str | None,
    first_revision: str | None,
    last_revision: str | None,
    transforms_file: Path | None,
    labels: tuple[str, ...],
    **chosen: Any,
) -> None:
    """Create one or more topics. A durability class, time to live and records topic are validated first, and set after
    the topic is created.

    \b
    Example:
      syncpoint topics create orders --message-retention-duration 7d --labels team=shop
    """
    from syncpoint.wire.protobuf.messages import pubsub

    if (schema is None) != (encoding is None) or (schema is None and (first_revision or last_revision)):
        raise click.UsageError("--schema and --message-encoding must be given together.")
    made, transforms, options = [], read_transforms(transforms_file), OWN.take(settings, chosen)
    with settings.client() as client:
        for given in topic if options else ():
            OWN.change(client, settings.name("topics", given), options, validate_only=True)
        for given in topic:
            request = pubsub.Topic(name=settings.name("topics", given), labels=parse_pairs(labels, "--labels"))
            if retention is not None:
                put_duration(request.message_retention_duration, retention)
            request.message_storage_policy.allowed_persistence_regions.extend(parse_list(regions))
            if not regions:
                request.ClearField("message_storage_policy")
            request.message_transforms.extend(transforms)
            if schema is not None and encoding is not None:
                bound = settings.name("schemas", schema), encoding, first_revision, last_revision
                _fill_schema_settings(request.schema_settings, *bound)
            made.append(client.call("Publisher.CreateTopic", request))
            inform(f"Created topic [{made[-1].name}].")
            if options:
                OWN.change(client, made[-1].name, options)
    print_answer(settings.format, made)


@topics.command()
@click.argument("topic", shell_complete=names("topics"))
@with_settings
def describe(settings: Settings, topic: str) -> None:
    """Show a topic's configuration, including Syncpoint's own options.

    \b
    Example:
      syncpoint topics describe orders
    """
    from syncpoint.wire.protobuf.messages import admin

    name = settings.name("topics", topic)
    with settings.client() as client:
        found = as_dict(TOPIC.call(client, "Get", name))
        options = client.call("Admin.GetTopicOptions", admin.GetTopicOptionsRequest(topic=name))
        advice: list[str] = []
        if options.records_author or options.transform_author:
            known = client.call("Admin.GetTopicState", admin.GetTopicStateRequest(topic=name))
            advice = [one for one in (known.records_advice, known.transform_advice) if one]
    options.ClearField("topic")
    print_described(found, as_dict(options), settings.format)
    for one in advice:
        inform(one)


@topics.command()
@click.argument("topic", shell_complete=names("topics"))
@with_settings
def state(settings: Settings, topic: str) -> None:
    """Show where messages are stored.

    \b
    Example:
      syncpoint topics state orders
    """
    from syncpoint.wire.protobuf.messages import admin

    found = settings.call("Admin.GetTopicState", admin.GetTopicStateRequest(topic=settings.name("topics", topic)))
    print_message(found, settings.format, with_zeros=True, last=("incarnation", "sources"))


@topics.command()
@click.argument("topic", shell_complete=names("topics"))
@click.option("--message-retention-duration", "retention", type=DurationType(), help="Keep messages this long.")
@click.option(
    "--clear-message-retention-duration", "clear_retention", is_flag=True, help="Keep no messages for seeking."
)
@schema_option
@encoding_option
@first_revision_option
@last_revision_option
@click.option("--clear-schema-settings", "clear_schema", is_flag=True, help="Accept messages in any format.")
@file_option
@clear_option
@durability_class_option
@click.option("--clear-durability-class", is_flag=True, help="Store new messages with the default class.")
@default_ttl_option
@click.option("--clear-default-ttl", is_flag=True, help="Remove the time to live.")
@duplicate_window_option
@click.option("--clear-duplicate-window", is_flag=True, help="Turn duplicate detection off.")
@records_topic_option
@click.option("--clear-records-topic", is_flag=True, help="Turn delivery records off.")
@suspend_option
@label_changes
@with_settings
def update(
    settings: Settings,
    topic: str,
    retention: tuple[int, int] | None,
    clear_retention: bool,
    schema: str | None,
    encoding: str | None,
    first_revision: str | None,
    last_revision: str | None,
    clear_schema: bool,
    transforms_file: Path | None,
    clear_transforms: bool,
    update_labels: tuple[str, ...],
    remove_labels: tuple[str, ...],
    clear_labels: bool,
    **chosen: Any,
) -> None:
    """Change a topic.

    \b
    Examples:
      syncpoint topics update orders --message-retention-duration 7d
      syncpoint topics update orders --update-labels team=shop --default-ttl 1h
    """
    from syncpoint.wire.protobuf.messages import pubsub

    name = settings.name("topics", topic)
    request = pubsub.UpdateTopicRequest(topic=pubsub.Topic(name=name))
    if retention is not None:
        put_duration(request.topic.message_retention_duration, retention)
    if retention is not None or clear_retention:
        request.update_mask.paths.append("message_retention_duration")
    full = None if schema is None else settings.name("schemas", schema)
    fields = _fill_schema_settings(request.topic.schema_settings, full, encoding, first_revision, last_revision)
    if clear_schema and fields:
        raise click.UsageError("--clear-schema-settings cannot be combined with other schema settings.")
    request.update_mask.paths.extend(["schema_settings"] if clear_schema else fields)
    transforms = changed_transforms(transforms_file, clear_transforms)
    if transforms is not None:
        request.topic.message_transforms.extend(transforms)
        request.update_mask.paths.append("message_transforms")
    with settings.client() as client:
        if update_labels or remove_labels or clear_labels:
            current = TOPIC.call(client, "Get", name)
            for key, value in current.labels.items():
                request.topic.labels[key] = value
            change_labels(request.topic.labels, update_labels, remove_labels, clear_labels)
            request.update_mask.paths.append("labels")
        options = OWN.take(settings, chosen)
        if options:
            OWN.change(client, name, options)
            if not request.update_mask.paths:
                changed = TOPIC.call(client, "Get", name)
        else:
            require_change(request.update_mask.paths)
        if request.update_mask.paths:
            changed = client.call("Publisher.UpdateTopic", request)
    inform(f"Updated topic [{name}].")
    print_answer(settings.format, changed)


@topics.command("list-subscriptions")
@click.argument("topic", shell_complete=names("topics"))
@limit_option
@with_settings
def list_subscriptions(settings: Settings, topic: str, limit: int | None) -> None:
    """List the subscriptions of a topic.

    \b
    Example:
      syncpoint topics list-subscriptions orders
    """
    from syncpoint.wire.protobuf.messages import pubsub

    _print_names_of(settings, topic, limit, "subscriptions", pubsub.ListTopicSubscriptionsRequest)


@topics.command("list-snapshots")
@click.argument("topic", shell_complete=names("topics"))
@limit_option
@with_settings
def list_snapshots(settings: Settings, topic: str, limit: int | None) -> None:
    """List the snapshots of a topic.

    \b
    Example:
      syncpoint topics list-snapshots orders
    """
    from syncpoint.wire.protobuf.messages import pubsub

    _print_names_of(settings, topic, limit, "snapshots", pubsub.ListTopicSnapshotsRequest)


def _print_names_of(settings: Settings, topic: str, limit: int | None, collection: str, request: Any) -> None:
    """Print what there is of a topic: names of its subscriptions or snapshots."""
    asked = request(topic=settings.name("topics", topic))
    with settings.client() as client:
        found = list(islice(client.pages(f"Publisher.ListTopic{collection.capitalize()}", asked, collection), limit))
    print_answer(settings.format, found, ["NAME"], [[one] for one in found])


@topics.command("detach-subscription")
@click.argument("subscription", nargs=-1, required=True, shell_complete=names("subscriptions"))
@with_settings
def detach_subscription(settings: Settings, subscription: tuple[str, ...]) -> None:
    """Detach subscriptions from their topic. They remain, but receive no more messages and lose their backlog.

    \b
    Example:
      syncpoint topics detach-subscription billing
    """
    from syncpoint.wire.protobuf.messages import pubsub

    with settings.client() as client:
        for given in subscription:
            name = settings.name("subscriptions", given)
            client.call("Publisher.DetachSubscription", pubsub.DetachSubscriptionRequest(subscription=name))
            inform(f"Detached subscription [{name}].")


def _fill_schema_settings(
    made: Any, schema: str | None, encoding: str | None, first_revision: str | None, last_revision: str | None
) -> list[str]:
    """Set what is given; returns the paths of that in a topic."""
    given = {
        "schema": schema,
        "encoding": None if encoding is None else encoding.upper(),
        "first_revision_id": first_revision,
        "last_revision_id": last_revision,
    }
    fields = {name: value for name, value in given.items() if value is not None}
    made.MergeFrom(type(made)(**fields))
    return [f"schema_settings.{name}" for name in fields]

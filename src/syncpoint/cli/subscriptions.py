"""`syncpoint subscriptions create|list|describe|update|delete|...`: what a subscription is.

Place: the subscriber's side of the command line; each command is one call of google.pubsub.v1.Subscriber. What is
done with the messages of a subscription (pull, ack, seek) stands in `syncpoint.cli.deliveries`.
"""

from __future__ import annotations

import copy
from typing import Any

import click

from syncpoint.cli import deliveries
from syncpoint.cli.message_transforms import changed_transforms, clear_option, file_option
from syncpoint.cli.names import names
from syncpoint.cli.output import as_dict, print_described, print_json, print_message, said
from syncpoint.cli.resources import Kind, label_changes, labels_option, require_change
from syncpoint.cli.settings import Settings, with_settings
from syncpoint.cli.values import DurationType, change_labels, parse_pairs, put_duration

COLUMNS = [
    ("NAME", "name"),
    ("TOPIC", "topic"),
    ("ACK_DEADLINE_S", "ackDeadlineSeconds"),
    ("FILTER", "filter"),
    ("ORDERING", "enableMessageOrdering"),
    ("EXACTLY_ONCE", "enableExactlyOnceDelivery"),
]

STORAGE_OPTIONS = (
    click.option("--cloud-storage-bucket", metavar="BUCKET", help="Write messages to files in this bucket."),
    click.option("--cloud-storage-file-prefix", metavar="TEXT", help="How the names of files begin."),
    click.option("--cloud-storage-file-suffix", metavar="TEXT", help="How the names of files end."),
    click.option(
        "--cloud-storage-file-datetime-format", metavar="FORMAT", help="Their time (default YYYY-MM-DDThh:mm:ss+00:00)."
    ),
    click.option("--cloud-storage-max-duration", type=DurationType(), help="Longest time in a file (1m to 10m)."),
    click.option("--cloud-storage-max-bytes", type=int, metavar="BYTES", help="Most bytes in a file (from 1000)."),
    click.option("--cloud-storage-max-messages", type=int, metavar="N", help="Most messages in a file (from 1000)."),
    click.option("--cloud-storage-output-format", type=click.Choice(["text", "avro"]), help="By default text."),
    click.option(
        "--cloud-storage-write-metadata/--no-cloud-storage-write-metadata",
        default=None,
        help="Avro: with attributes and metadata.",
    ),
    click.option(
        "--cloud-storage-service-account-email", metavar="EMAIL", help="Write as this service account (kept, not used)."
    ),
    click.option(
        "--cloud-storage-use-topic-schema/--no-cloud-storage-use-topic-schema",
        default=None,
        help="Avro: by the schema of the topic.",
    ),
)
PUSH_OPTIONS = (
    click.option("--push-endpoint", metavar="URL", help="Push messages to this address (https); '' has them pulled."),
    click.option("--push-auth-service-account", metavar="EMAIL", help="Sign pushes as this service account."),
    click.option("--push-auth-token-audience", metavar="TEXT", help="For whom tokens are; by default the endpoint."),
    click.option(
        "--push-no-wrapper/--push-wrapper", "no_wrapper", default=None, help="Push the data alone, not JSON around it."
    ),
    click.option(
        "--push-no-wrapper-write-metadata/--no-push-no-wrapper-write-metadata",
        "write_metadata",
        default=None,
        help="Without a wrapper: attributes and metadata in headers.",
    ),
)
OPTIONS = (
    click.option(
        "--ack-deadline", type=int, metavar="SECONDS", help="Time to acknowledge a message (10 to 600; default 10)."
    ),
    click.option(
        "--enable-exactly-once-delivery/--no-enable-exactly-once-delivery",
        "exactly_once",
        default=None,
        help="An acknowledgement that succeeded is final: the message never comes again.",
    ),
    click.option(
        "--message-retention-duration",
        "retention",
        type=DurationType(),
        help="Keep unacknowledged messages this long (10m to 31d; default 7d).",
    ),
    click.option(
        "--retain-acked-messages/--no-retain-acked-messages",
        "retain_acked",
        default=None,
        help="Keep acknowledged messages too, so that a seek can bring them back.",
    ),
    click.option(
        "--dead-letter-topic",
        shell_complete=names("topics"),
        metavar="TOPIC",
        help="Where messages go that nobody acknowledges.",
    ),
    click.option("--max-delivery-attempts", type=int, metavar="N", help="Attempts before that (5 to 100; default 5)."),
    click.option("--min-retry-delay", type=DurationType(), help="First pause before a redelivery (0 to 600s)."),
    click.option("--max-retry-delay", type=DurationType(), help="Longest pause before a redelivery (0 to 600s)."),
    click.option(
        "--expiration-period",
        type=DurationType(never=True),
        help="Delete it when unused this long (from 1d), or never.",
    ),
    click.option(
        "--early-delivery/--no-early-delivery",
        "early_delivery",
        default=None,
        help="Deliver while the write is under way: faster, but a message may be seen whose publish fails in the end.",
    ),
    file_option,
    *PUSH_OPTIONS,
    *STORAGE_OPTIONS,
)
_PUSH = {"push_endpoint", "push_auth_service_account", "push_auth_token_audience", "no_wrapper", "write_metadata"}
_STORAGE = "cloud_storage_"
_STORAGE_FIELDS = {
    "bucket": "bucket",
    "file_prefix": "filename_prefix",
    "file_suffix": "filename_suffix",
    "file_datetime_format": "filename_datetime_format",
    "max_bytes": "max_bytes",
    "max_messages": "max_messages",
    "service_account_email": "service_account_email",
}
FIELDS = {
    "ack_deadline": "ack_deadline_seconds",
    "exactly_once": "enable_exactly_once_delivery",
    "retain_acked": "retain_acked_messages",
}


def configuration_options(command: Any) -> Any:
    """The options that both `create` and `update` have."""
    for option in reversed(OPTIONS):
        command = option(command)
    return command


def push_options(command: Any) -> Any:
    """The options of pushes alone."""
    for option in reversed(PUSH_OPTIONS):
        command = option(command)
    return command


@click.group()
def subscriptions() -> None:
    """Create, change and list subscriptions; pull, acknowledge and seek."""


SUBSCRIPTION = Kind("subscription", "Subscriber", "subscription")
SUBSCRIPTION.add_list(subscriptions, COLUMNS)
SUBSCRIPTION.add_delete(
    subscriptions, "Delete one or more subscriptions, with the messages they have not acknowledged."
)


for verb in (deliveries.pull, deliveries.ack, deliveries.modify_ack_deadline, deliveries.seek):
    subscriptions.add_command(verb)
shorter = copy.copy(deliveries.modify_ack_deadline)
shorter.hidden = True
subscriptions.add_command(shorter, "modify-ack-deadline")


@subscriptions.command()
@click.argument("subscription", nargs=-1, required=True)
@click.option(
    "--topic",
    shell_complete=names("topics"),
    required=True,
    help="The topic; also projects/P/topics/T of another project.",
)
@click.option("--message-filter", default="", metavar="FILTER", help="Only messages whose attributes match.")
@click.option("--enable-message-ordering", "ordering", is_flag=True, help="Deliver each ordering key in order.")
@configuration_options
@labels_option
@with_settings
def create(
    settings: Settings,
    subscription: tuple[str, ...],
    topic: str,
    message_filter: str,
    ordering: bool,
    labels: tuple[str, ...],
    early_delivery: bool | None,
    **chosen: Any,
) -> None:
    """Create one or more subscriptions of a topic. They get every message published from now on.

    \b
    Examples:
      syncpoint subscriptions create billing --topic orders --ack-deadline 60
      syncpoint subscriptions create europe --topic orders --message-filter 'attributes.region = "eu"'
      syncpoint subscriptions create careful --topic orders --dead-letter-topic failed --max-delivery-attempts 10
    """
    from syncpoint.wire.messages import pubsub

    made = []
    with settings.client() as client:
        for given in subscription:
            request = pubsub.Subscription(
                name=settings.name("subscriptions", given),
                topic=settings.name("topics", topic),
                filter=message_filter,
                enable_message_ordering=ordering,
                labels=parse_pairs(labels, "--labels"),
            )
            configure(request, settings, chosen)
            made.append(client.call("Subscriber.CreateSubscription", request))
            said(f"Created subscription [{made[-1].name}].")
            if early_delivery:
                _deliver_early(client, made[-1].name, early_delivery)
    if settings.format == "json":
        print_json([as_dict(one) for one in made])


@subscriptions.command()
@click.argument("subscription", shell_complete=names("subscriptions"))
@with_settings
def describe(settings: Settings, subscription: str) -> None:
    """Show a subscription's configuration, and early delivery where it is on."""
    from syncpoint.wire.messages import admin

    name = settings.name("subscriptions", subscription)
    with settings.client() as client:
        found = as_dict(SUBSCRIPTION.call(client, "Get", name))
        request = admin.GetSubscriptionStateRequest(subscription=name, ranges_max=1)
        known = client.call("Admin.GetSubscriptionState", request)
    if settings.format != "json" and found.get("expirationPolicy") == {}:
        found["expirationPolicy"] = "never"  # what a policy without a period means
    print_described(found, {"earlyDelivery": known.options.early_delivery}, settings.format)
    if known.export.advice:
        said(f"Nothing is exported: {known.export.state}. {known.export.advice}")


@subscriptions.command()
@click.argument("subscription", shell_complete=names("subscriptions"))
@with_settings
def state(settings: Settings, subscription: str) -> None:
    """Show where a subscription stands: its backlog, what is outstanding, what is acknowledged."""
    from syncpoint.wire.messages import admin

    request = admin.GetSubscriptionStateRequest(subscription=settings.name("subscriptions", subscription))
    with settings.client() as client:
        found = client.call("Admin.GetSubscriptionState", request)
    print_message(found, settings.format, with_zeros=True, last=("incarnation", "generation", "sources"))


@subscriptions.command()
@click.argument("subscription", shell_complete=names("subscriptions"))
@configuration_options
@clear_option
@click.option("--clear-dead-letter-policy", is_flag=True, help="Deliver for ever instead.")
@click.option("--clear-retry-policy", is_flag=True, help="Redeliver at once.")
@label_changes
@with_settings
def update(
    settings: Settings,
    subscription: str,
    clear_dead_letter_policy: bool,
    clear_retry_policy: bool,
    update_labels: tuple[str, ...],
    remove_labels: tuple[str, ...],
    clear_labels: bool,
    early_delivery: bool | None,
    **chosen: Any,
) -> None:
    """Change a subscription. Topic, filter and ordering are fixed when it is created.

    \b
    Example:
      syncpoint subscriptions update billing --ack-deadline 120 --min-retry-delay 5s
    """
    from syncpoint.wire.messages import pubsub

    name = settings.name("subscriptions", subscription)
    request = pubsub.UpdateSubscriptionRequest()
    with settings.client() as client:
        # Policies are replaced as a whole, so what is not given is taken from what is there.
        current = SUBSCRIPTION.call(client, "Get", name)
        request.subscription.CopyFrom(current)
        changed = configure(request.subscription, settings, chosen)
        for clear, policy in ((clear_dead_letter_policy, "dead_letter_policy"), (clear_retry_policy, "retry_policy")):
            if clear:
                request.subscription.ClearField(policy)
                changed.append(policy)
        if change_labels(request.subscription.labels, update_labels, remove_labels, clear_labels):
            changed.append("labels")
        if early_delivery is None:
            require_change(changed)
        else:
            _deliver_early(client, name, early_delivery)
        answer = current
        if changed:
            request.update_mask.paths.extend(dict.fromkeys(changed))
            answer = client.call("Subscriber.UpdateSubscription", request)
    said(f"Updated subscription [{name}].")
    if settings.format == "json":
        print_message(answer, "json")


@subscriptions.command("modify-push-config")
@click.argument("subscription", shell_complete=names("subscriptions"))
@push_options
@with_settings
def modify_push_config(settings: Settings, subscription: str, push_endpoint: str, **chosen: Any) -> None:
    """Push a subscription's messages to an endpoint, or have them pulled again; replaces how it was pushed.

    \b
    Examples:
      syncpoint subscriptions modify-push-config billing --push-endpoint https://billing.example/orders
      syncpoint subscriptions modify-push-config billing --push-endpoint ""
    """
    from syncpoint.wire.messages import pubsub

    name = settings.name("subscriptions", subscription)
    request = pubsub.ModifyPushConfigRequest(subscription=name)
    given = {key: value for key, value in chosen.items() if value is not None}
    _push(request.push_config, {"push_endpoint": push_endpoint or "", **given})
    with settings.client() as client:
        client.call("Subscriber.ModifyPushConfig", request)
    said(f"Updated subscription [{name}].")


def _deliver_early(client: Any, name: str, early: bool) -> None:
    from syncpoint.wire.messages import admin

    request = admin.UpdateSubscriptionOptionsRequest()
    request.options.subscription, request.options.early_delivery = name, early
    request.update_mask.paths.append("early_delivery")
    client.call("Admin.UpdateSubscriptionOptions", request)


def configure(target: Any, settings: Settings, chosen: dict[str, Any]) -> list[str]:
    """Write the options that were given into a Subscription; returns the names of the fields they belong to."""
    given = {key: value for key, value in chosen.items() if value is not None}
    changed = []
    transforms = changed_transforms(given.pop("transforms_file", None), given.pop("clear_transforms", False))
    if transforms is not None:
        target.message_transforms.extend(transforms)
        changed.append("message_transforms")
    for option, field in FIELDS.items():
        if option in given:
            setattr(target, field, given[option])
            changed.append(field)
    if "retention" in given:
        put_duration(target.message_retention_duration, given["retention"])
        changed.append("message_retention_duration")
    if "expiration_period" in given:
        # A policy without a period means: never.
        target.expiration_policy.Clear()
        target.expiration_policy.SetInParent()
        if given["expiration_period"][0] is not None:
            put_duration(target.expiration_policy.ttl, given["expiration_period"])
        changed.append("expiration_policy")
    changed += _dead_letter(target, settings, given)
    for option, field in (("min_retry_delay", "minimum_backoff"), ("max_retry_delay", "maximum_backoff")):
        if option in given:
            put_duration(getattr(target.retry_policy, field), given[option])
            changed.append("retry_policy")
    return changed + _push(target.push_config, given) + _storage(target, given)


def _push(config: Any, given: dict[str, Any]) -> list[str]:
    """Write the options of pushes that were given; "" as the endpoint means pull."""
    before = config.SerializeToString()
    if given.get("push_endpoint") == "":
        config.Clear()
        return ["push_config"]
    if "push_endpoint" in given:
        config.push_endpoint = given["push_endpoint"]
    if "push_auth_service_account" in given:
        config.oidc_token.service_account_email = given["push_auth_service_account"]
    if "push_auth_token_audience" in given:
        config.oidc_token.audience = given["push_auth_token_audience"]
    if given.get("no_wrapper") is False:
        config.ClearField("no_wrapper")
    elif given.get("no_wrapper") or "write_metadata" in given:
        config.no_wrapper.write_metadata = given.get("write_metadata", config.no_wrapper.write_metadata)
    if config.SerializeToString() != before and not config.push_endpoint:
        raise click.UsageError("Options of pushes need --push-endpoint.")
    return ["push_config"] if given.keys() & _PUSH else []


def _storage(target: Any, given: dict[str, Any]) -> list[str]:
    """Write the options of exports to buckets that were given; "" as the bucket means pull."""
    chosen = {key.removeprefix(_STORAGE): value for key, value in given.items() if key.startswith(_STORAGE)}
    if not chosen:
        return []
    if chosen.get("bucket") == "":
        target.ClearField("cloud_storage_config")
        return ["cloud_storage_config"]
    config = target.cloud_storage_config
    for option, field in _STORAGE_FIELDS.items():
        if option in chosen:
            setattr(config, field, chosen[option])
    if "max_duration" in chosen:
        put_duration(config.max_duration, chosen["max_duration"])
    if "output_format" in chosen:
        getattr(config, f"{chosen['output_format']}_config").SetInParent()
    avro = {key: chosen[key] for key in ("write_metadata", "use_topic_schema") if key in chosen}
    if avro and config.WhichOneof("output_format") != "avro_config":
        raise click.UsageError("Metadata and schemas need --cloud-storage-output-format avro.")
    for field, value in avro.items():
        setattr(config.avro_config, field, value)
    if not config.bucket:
        raise click.UsageError("Options of Cloud Storage need --cloud-storage-bucket.")
    return ["cloud_storage_config"]


def _dead_letter(target: Any, settings: Settings, given: dict[str, Any]) -> list[str]:
    if "dead_letter_topic" in given:
        target.dead_letter_policy.dead_letter_topic = settings.name("topics", given["dead_letter_topic"])
    if "max_delivery_attempts" in given:
        if not target.dead_letter_policy.dead_letter_topic:
            raise click.UsageError("--max-delivery-attempts needs --dead-letter-topic.")
        target.dead_letter_policy.max_delivery_attempts = given["max_delivery_attempts"]
    return ["dead_letter_policy"] if {"dead_letter_topic", "max_delivery_attempts"} & set(given) else []

"""What a subscription can be set to: the options of `create` and `update`, and how they become fields.

Place: under `subscriptions`.
"""

from __future__ import annotations

from typing import Any

import click

from syncpoint.programs.cli.message_transforms import changed_transforms, file_option
from syncpoint.programs.cli.names import names
from syncpoint.programs.cli.settings import Settings
from syncpoint.programs.cli.values import DurationType, SecondsType, put_duration

STORAGE_OPTIONS = (
    click.option("--cloud-storage-bucket", metavar="BUCKET", help="Write messages to files in this bucket."),
    click.option("--cloud-storage-file-prefix", metavar="TEXT", help="The prefix of file names."),
    click.option("--cloud-storage-file-suffix", metavar="TEXT", help="The suffix of file names."),
    click.option(
        "--cloud-storage-file-datetime-format",
        metavar="FORMAT",
        help="The format of the time in file names (default YYYY-MM-DDThh:mm:ss+00:00).",
    ),
    click.option(
        "--cloud-storage-max-duration", type=DurationType(), help="Start a new file after this long (1m to 10m)."
    ),
    click.option(
        "--cloud-storage-max-bytes",
        type=int,
        metavar="BYTES",
        help="Start a new file after this many bytes (at least 1000).",
    ),
    click.option(
        "--cloud-storage-max-messages",
        type=int,
        metavar="N",
        help="Start a new file after this many messages (at least 1000).",
    ),
    click.option("--cloud-storage-output-format", type=click.Choice(["text", "avro"]), help="By default text."),
    click.option(
        "--cloud-storage-write-metadata/--no-cloud-storage-write-metadata",
        default=None,
        help="Avro: include attributes and metadata.",
    ),
    click.option(
        "--cloud-storage-service-account-email",
        metavar="EMAIL",
        help="Write as this service account (stored, not used).",
    ),
    click.option(
        "--cloud-storage-use-topic-schema/--no-cloud-storage-use-topic-schema",
        default=None,
        help="Avro: use the topic's schema.",
    ),
)
PUSH_OPTIONS = (
    click.option(
        "--push-endpoint", metavar="URL", help="Push messages to this URL (https); an empty value switches to pull."
    ),
    click.option("--push-auth-service-account", metavar="EMAIL", help="Sign pushes as this service account."),
    click.option(
        "--push-auth-token-audience", metavar="TEXT", help="The audience of tokens; the default is the endpoint."
    ),
    click.option(
        "--push-no-wrapper/--push-wrapper",
        "no_wrapper",
        default=None,
        help="Push the bare data, without the JSON wrapper.",
    ),
    click.option(
        "--push-no-wrapper-write-metadata/--no-push-no-wrapper-write-metadata",
        "write_metadata",
        default=None,
        help="Without a wrapper: attributes and metadata in headers.",
    ),
)
QUEUE_OPTIONS = (
    click.option(
        "--ack-deadline", type=SecondsType(whole=True), help="Time to acknowledge a message (10s to 10m; default 10s)."
    ),
    click.option(
        "--enable-exactly-once-delivery/--no-enable-exactly-once-delivery",
        "exactly_once",
        default=None,
        help="A successful acknowledgement is final: the message is never redelivered.",
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
        help="The topic for messages that are not acknowledged.",
    ),
    click.option(
        "--max-delivery-attempts",
        type=int,
        metavar="N",
        help="Delivery attempts before a message is dead-lettered (5 to 100; default 5).",
    ),
    click.option("--min-retry-delay", type=DurationType(), help="First pause before a redelivery (0 to 600s)."),
    click.option("--max-retry-delay", type=DurationType(), help="Longest pause before a redelivery (0 to 600s)."),
)
OPTIONS = (
    *QUEUE_OPTIONS,
    click.option(
        "--expiration-period",
        type=DurationType(never=True),
        help="Delete it when unused this long (from 1d, and not less than it retains messages), or never.",
    ),
    click.option(
        "--early-delivery/--no-early-delivery",
        "early_delivery",
        default=None,
        help="Deliver while the write is under way: faster, but a delivered message's publish may still fail.",
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


def queue_options(command: Any) -> Any:
    """Those of them by which a queue is received from."""
    for option in reversed(QUEUE_OPTIONS):
        command = option(command)
    return command


def time_to_live_options(command: Any) -> Any:
    """How long messages live for a subscription, and what becomes of them then."""
    command = click.option(
        "--dead-letter-expired/--drop-expired",
        "dead_letter_expired",
        default=None,
        help="Dead-letter expired messages, or drop them.",
    )(command)
    command = click.option(
        "--dead-letter-rule-errors/--no-dead-letter-rule-errors",
        "dead_letter_rule_errors",
        default=None,
        help="Dead-letter messages on which a rule fails, or skip them.",
    )(command)
    ttl = click.option(
        "--ttl", type=DurationType(), help="The longest time to live of messages, for this subscription."
    )
    return ttl(command)


def forward_options(command: Any) -> Any:
    """Whether messages go to another topic."""
    return click.option(
        "--forward-to",
        shell_complete=names("topics"),
        metavar="TOPIC",
        help="Publish its messages to this topic or queue instead of delivering them.",
    )(command)


def readable(subscription: dict[str, Any]) -> dict[str, Any]:
    """A subscription as people are shown it, from its fields as JSON has them."""
    # A policy without a period means: never.
    return {**subscription, "expirationPolicy": "never"} if subscription.get("expirationPolicy") == {} else subscription


def push_options(command: Any) -> Any:
    """The options of pushes alone."""
    for option in reversed(PUSH_OPTIONS):
        command = option(command)
    return command


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
    return changed + configure_push(target.push_config, given) + _storage(target, given)


def configure_push(config: Any, given: dict[str, Any]) -> list[str]:
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
        raise click.UsageError("Push options require --push-endpoint.")
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
        raise click.UsageError("Cloud Storage options require --cloud-storage-bucket.")
    return ["cloud_storage_config"]


def _dead_letter(target: Any, settings: Settings, given: dict[str, Any]) -> list[str]:
    if "dead_letter_topic" in given:
        target.dead_letter_policy.dead_letter_topic = settings.name("topics", given["dead_letter_topic"])
    if "max_delivery_attempts" in given:
        if not target.dead_letter_policy.dead_letter_topic:
            raise click.UsageError("--max-delivery-attempts needs --dead-letter-topic.")
        target.dead_letter_policy.max_delivery_attempts = given["max_delivery_attempts"]
    return ["dead_letter_policy"] if {"dead_letter_topic", "max_delivery_attempts"} & set(given) else []

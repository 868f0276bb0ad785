"""Subscriptions that export into tables and buckets, and topics that are fed from elsewhere: settings and states.

Place: pure functions under `subscriptions` and `topics`.
Promise: settings are checked as the service checks them and come back as they were given. Where a bucket is, the
operator configures, and the process that is asked sees whether it can be written to. What this deployment has nothing
for is shown in the states of the interface as what it is, a table, bucket or stream that is not found: never as active
while nothing happens. Messages of such a subscription wait for as long as it retains them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

from syncpoint.broker.export.object_names import bad_format
from syncpoint.catalog.metadata.records import Subscription
from syncpoint.front.api.validate import duration, in_bounds, refused, seconds_of
from syncpoint.wire.protobuf.messages import pubsub

EXPORTS: Final = ("bigquery_config", "cloud_storage_config", "bigtable_config")
INGESTION: Final = "ingestion_data_source_settings"
ExportStateOf = Callable[[Subscription, pubsub.CloudStorageConfig], int]
"""The state of an export to a bucket."""

_BIGQUERY_TABLE = re.compile(r"(?:[\w.-]+:)?[\w-]+\.\w{1,1024}\.[^\s./\\:`]{1,1024}")
_BIGTABLE_TABLE = re.compile(r"projects/[^/\s]+/instances/[^/\s]+/tables/[^/\s]+")
_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]", re.ASCII)
_EMAIL = re.compile(r"[^@\s/]{1,128}@[A-Za-z0-9][A-Za-z0-9.-]{0,252}", re.ASCII)
_OBJECT_NAME_BYTES_MAX: Final = 1024
_MAX_DURATION_S, _MAX_DURATION_S_DEFAULT = (60, 600), 300
_MAX_BYTES = (1_000, 10 << 30)
_MAX_MESSAGES = (1_000, (1 << 63) - 1)

# By source: what must be given, and the state of one that is not there.
_SOURCES: Final = {
    "aws_kinesis": (("stream_arn", "consumer_arn", "aws_role_arn", "gcp_service_account"), "STREAM_NOT_FOUND"),
    "cloud_storage": (("bucket",), "BUCKET_NOT_FOUND"),
    "azure_event_hubs": (
        ("resource_group", "namespace", "event_hub", "client_id", "tenant_id", "subscription_id",
         "gcp_service_account"),
        "NAMESPACE_NOT_FOUND",
    ),
    "aws_msk": (("cluster_arn", "topic", "aws_role_arn", "gcp_service_account"), "CLUSTER_NOT_FOUND"),
    "confluent_cloud": (
        ("bootstrap_server", "cluster_id", "topic", "identity_pool_id", "gcp_service_account"),
        "UNREACHABLE_BOOTSTRAP_SERVER",
    ),
}  # fmt: skip


# -- subscriptions -----------------------------------------------------------------------------------------------------


def check_exports(message: pubsub.Subscription) -> None:
    """Check where a subscription exports to, fill in defaults, and drop what is not a caller's to say. An empty message
    asks for nothing. Raises `InvalidArgument`."""
    for field in EXPORTS:
        if message.HasField(field) and getattr(message, field).ByteSize() == 0:
            message.ClearField(field)
    given = [field for field in EXPORTS if message.HasField(field)]
    if message.push_config.push_endpoint:
        given.insert(0, "push_config")
    if len(given) > 1:
        raise refused(given[1], f"At most one of push_config, {', '.join(EXPORTS)} may be set, not {', '.join(given)}.")
    for field in given:
        if field == "push_config":
            continue
        config = getattr(message, field)
        config.ClearField("state")
        _CHECKS[field](config)
        if config.service_account_email and not _EMAIL.fullmatch(config.service_account_email):
            raise refused(
                field,
                f"The service_account_email of the {field} is not an email address: {config.service_account_email!r}.",
            )


def show_export(message: pubsub.Subscription, record: Subscription, state_of: ExportStateOf | None = None) -> None:
    """Say in the states whether it is exported. `state_of`: None: nothing is exported to buckets. A message without
    exports stays as it is."""
    for field in EXPORTS:
        if message.HasField(field):
            config = getattr(message, field)
            config.state = type(config).NOT_FOUND
            if field == "cloud_storage_config" and state_of is not None:
                config.state = state_of(record, config)
            if config.state != type(config).ACTIVE:
                message.state = pubsub.Subscription.RESOURCE_ERROR


def is_exported_by(message: pubsub.Subscription) -> bool:
    """Whether a configuration makes a subscription export."""
    return any(message.HasField(field) for field in EXPORTS)


@lru_cache(maxsize=4_096)
def _exports(config: bytes) -> bool:
    return is_exported_by(pubsub.Subscription.FromString(config))


def is_exported(record: Subscription) -> bool:
    """Whether a subscription exports, so that nobody pulls; cheap enough to be asked at every pull."""
    return bool(record.config) and _exports(record.config)


def _check_bigquery(config: pubsub.BigQueryConfig) -> None:
    if not _BIGQUERY_TABLE.fullmatch(config.table):
        raise refused(
            "bigquery_config.table",
            f"Invalid BigQuery table: {config.table!r} is not of the form PROJECT.DATASET.TABLE.",
        )
    if config.use_topic_schema and config.use_table_schema:
        raise refused("bigquery_config", "At most one of use_topic_schema and use_table_schema may be set.")


def _check_bigtable(config: pubsub.BigtableConfig) -> None:
    if not _BIGTABLE_TABLE.fullmatch(config.table):
        form = "projects/PROJECT/instances/INSTANCE/tables/TABLE"
        raise refused("bigtable_config.table", f"Invalid Bigtable table: {config.table!r} is not of the form {form}.")


def _check_cloud_storage(config: pubsub.CloudStorageConfig) -> None:
    _check_bucket("cloud_storage_config.bucket", config.bucket)
    for field in ("filename_prefix", "filename_suffix", "filename_datetime_format"):
        text = getattr(config, field)
        if len(text.encode()) > _OBJECT_NAME_BYTES_MAX or not text.isprintable():
            raise refused(
                f"cloud_storage_config.{field}", f"The {field} must be printable and at most 1024 bytes long."
            )
    if config.filename_suffix.endswith("/"):
        raise refused("cloud_storage_config.filename_suffix", 'The filename_suffix must not end in "/".')
    if config.filename_datetime_format and (problem := bad_format(config.filename_datetime_format)):
        raise refused("cloud_storage_config.filename_datetime_format", f"The filename_datetime_format {problem}.")
    seconds = seconds_of(config, "max_duration")
    if seconds is None:
        config.max_duration.CopyFrom(duration(_MAX_DURATION_S_DEFAULT))
    else:
        in_bounds("max_duration", seconds, *_MAX_DURATION_S, "s")
    if config.max_bytes:
        in_bounds("max_bytes", config.max_bytes, *_MAX_BYTES)
    if config.max_messages:
        in_bounds("max_messages", config.max_messages, *_MAX_MESSAGES)
    if config.WhichOneof("output_format") is None:
        config.text_config.SetInParent()


def _check_bucket(field: str, name: str) -> None:
    if not _BUCKET.fullmatch(name):
        raise refused(field, f"Invalid bucket name: {name!r}. Follow the naming rules of Cloud Storage, without gs://.")


_CHECKS: Final[dict[str, Any]] = {
    "bigquery_config": _check_bigquery,
    "bigtable_config": _check_bigtable,
    "cloud_storage_config": _check_cloud_storage,
}  # fmt: skip


# -- topics ------------------------------------------------------------------------------------------------------------


def check_ingestion(message: pubsub.Topic) -> None:
    """Check what feeds a topic, fill in defaults, and drop what is not a caller's to say. An empty message asks for
    nothing. Raises `InvalidArgument`."""
    settings = message.ingestion_data_source_settings
    if settings.ByteSize() == 0:
        message.ClearField(INGESTION)
        return
    name = settings.WhichOneof("source")
    if name is None:
        return
    source = getattr(settings, name)
    source.ClearField("state")
    required, _ = _SOURCES[name]
    if missing := [field for field in required if not getattr(source, field)]:
        kind = source.DESCRIPTOR.name
        raise refused(
            f"{INGESTION}.{name}", f"Missing required fields for {kind} ingestion settings: {', '.join(missing)}"
        )
    if name == "cloud_storage":
        _check_bucket(f"{INGESTION}.cloud_storage.bucket", source.bucket)
        if len(source.text_format.delimiter) > 1:
            raise refused(f"{INGESTION}.cloud_storage.text_format", "The delimiter must be a single character.")
        if source.WhichOneof("input_format") is None:
            source.text_format.SetInParent()


def show_ingestion(message: pubsub.Topic) -> None:
    """Say in the states that nothing feeds the topic. One without a source stays as it is."""
    settings = message.ingestion_data_source_settings
    name = settings.WhichOneof("source")
    if name is not None:
        source = getattr(settings, name)
        source.state = type(source).State.Value(_SOURCES[name][1])
        message.state = pubsub.Topic.INGESTION_RESOURCE_ERROR

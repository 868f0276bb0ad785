"""All Cloud Storage subscriptions of a process: the driver over `inner`, feeds and buckets.

Place: one in every process that may export, on `inner.inner_driver`.
Promise: a subscription of ours is subscribed to while its bucket can be written to, the service's own identity may read
it, whoever named the bucket may still name it, and the schema that its files are to be written by is one of Avro. It
goes on by itself once that is so again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache, partial
from typing import Any

from syncpoint.base.model.errors import FailedPrecondition, PermissionDenied
from syncpoint.base.model.names import SERVICE_IDENTITY, project_of
from syncpoint.broker.export.bucket_files import BucketFile
from syncpoint.broker.export.buckets import Buckets, error_kind
from syncpoint.broker.export.contents import Contents, SchemaUnusable, TopicAvro
from syncpoint.broker.export.file_kind import FileKind, FileLimits
from syncpoint.broker.export.object_names import object_name
from syncpoint.broker.inner.inner_consumer import InnerConsumer, Send, SendOutcome
from syncpoint.broker.inner.inner_driver import ConsumingProcess, Ended, InnerDriver, InnerSubscription
from syncpoint.broker.inner.pace import Pace, PaceLimits
from syncpoint.catalog.metadata.catalog import Catalog
from syncpoint.catalog.metadata.records import Feature, Subscription
from syncpoint.catalog.schemas.stored import definition, find_schema
from syncpoint.catalog.schemas.validators import Encoding
from syncpoint.wire.protobuf.messages import pubsub

LEASE_S = 20.0  # extended while a file waits; what a dead process held comes back after it
HELD_MAX = 64 << 20  # bytes of messages in memory; a piece of a file has a quarter of it
HELD_TOTAL = 256 << 20  # of the files of all subscriptions
HELD_LEAST = 2 << 20
_STATES = pubsub.CloudStorageConfig

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ExportState:
    """What may be known of an export from here."""

    subscription: str
    bucket: str
    state: int  # as the API calls it
    files: int
    acknowledged: int
    refused: int
    held: int
    last_error: str


class ExportDriver(InnerDriver[pubsub.CloudStorageConfig, "ExportSubscription"]):
    """Run all Cloud Storage subscriptions of a process."""

    feature = Feature.STORAGE

    def __init__(self, process: ConsumingProcess, buckets: Buckets) -> None:
        super().__init__(process)
        self.buckets = buckets
        self.stored_files = self.failed_writes = 0

    def config_of(self, record: Subscription) -> pubsub.CloudStorageConfig | None:
        return storage_config_of(record)

    def new(self, record: Subscription, config: pubsub.CloudStorageConfig) -> ExportSubscription:
        return ExportSubscription(self, record, config)

    def share(self) -> None:
        self.share_memory(HELD_TOTAL, HELD_LEAST, HELD_MAX)

    def states(self) -> list[ExportState]:
        """How each subscription of ours is doing, by name."""
        return sorted((one.state() for one in self.ours.values()), key=lambda state: state.subscription)

    def state(self, incarnation: int) -> ExportState | None:
        """How a subscription of ours is doing; None for one that is not exported from here."""
        one = self.ours.get(incarnation)
        return None if one is None else one.state()

    def totals(self) -> dict[str, int]:
        """Numbers for operators, over all subscriptions exported from here."""
        states = self.states()
        return {
            "exported_subscriptions": len(states),
            "exported_files": sum(one.files for one in states),
            "exported_messages": sum(one.acknowledged for one in states),
            "export_held": sum(one.held for one in states),
        }


class ExportSubscription(InnerSubscription[pubsub.CloudStorageConfig]):
    """One of them: its machine, and the file that is being stored."""

    driver: ExportDriver
    doing = "Exporting"

    def __init__(self, driver: ExportDriver, record: Subscription, config: pubsub.CloudStorageConfig) -> None:
        pace = Pace(PaceLimits(1, 1, 1), driver.process.random)
        self._written: dict[int, BucketFile] = {}  # that are written in pieces
        self._kind = FileKind(_limits(config))
        machine = InnerConsumer(self._kind, pace, lease_s=LEASE_S, memory_max=HELD_MAX)
        super().__init__(driver, record, config, machine)

    def state(self) -> ExportState:
        counts = self.machine.counts
        state = self._current()[0]
        return ExportState(
            self.record.name, self.config.bucket, state, counts["batches"], counts["acknowledged"], counts["refused"],
            self.machine.held, self.last_error,
        )  # fmt: skip

    @property
    def lease_s(self) -> float:
        return LEASE_S

    def reconfigure(self, record: Subscription, config: pubsub.CloudStorageConfig) -> None:
        super().reconfigure(record, config)
        self._kind.limits = _limits(config)

    def check(self, now: float) -> None:
        state, text = self._current()
        if state == _STATES.PERMISSION_DENIED:
            raise PermissionDenied(text)
        if state != _STATES.ACTIVE:
            raise FailedPrecondition(text)

    def _current(self) -> tuple[int, str]:
        driver = self.driver
        return export_state(
            self.record, self.config, driver.process.copy.catalog, driver.buckets, driver.process.refusal
        )

    def free(self) -> Callable[[], int]:
        return lambda: self.machine.free

    def parted(self) -> None:
        self.perform(self.machine.end_gathering(self.driver.process.clock.monotonic()))

    def send(self, effect: Send) -> Coroutine[Any, Any, Ended]:
        return self._store(effect, self.config)

    async def _store(self, effect: Send, config: pubsub.CloudStorageConfig) -> Ended:
        driver = self.driver
        try:
            written = self._written.get(effect.number) or self._new_file(effect.begun, config)
            if not effect.last:
                self._written[effect.number] = written
            unfit = await driver.buckets.store(config.bucket, partial(written.add, effect.lent, last=effect.last))
        except Exception as error:
            log.warning("%s: a file was not stored: %s: %s", self.record.name, type(error).__name__, error)
            self.last_error = error_kind(error)
            driver.failed_writes += 1
            if driver.ours.get(self.record.incarnation) is self:  # nothing before the bucket can be written to again
                self.review(self.record, self.config, driver.process.clock.monotonic())
            return Ended(SendOutcome.UNKNOWN)
        if effect.last:
            self._written.pop(effect.number, None)
            driver.stored_files += 1
        self.last_error = "" if not unfit else "messages do not fit the topic's schema"
        return Ended(SendOutcome.STORED, unfit=unfit)

    async def discard(self, number: int) -> None:
        written = self._written.pop(number, None)
        if written is not None:
            await self.driver.buckets.blocking(written.discard)

    def _new_file(self, begun: float, config: pubsub.CloudStorageConfig) -> BucketFile:
        driver = self.driver
        began_s = driver.process.clock.time_ns() / 1e9 - (driver.process.clock.monotonic() - begun)
        name = object_name(
            config.filename_prefix,
            config.filename_suffix,
            config.filename_datetime_format,
            datetime.fromtimestamp(began_s, UTC),
            driver.process.random.token(16),
        )
        topic = topic_avro(driver.process.copy.catalog, self.record, config)
        return driver.buckets.file(config.bucket, name, Contents(config, self.record.name, topic))


def export_state(
    record: Subscription,
    config: pubsub.CloudStorageConfig,
    catalog: Catalog,
    buckets: Buckets,
    refusal_of: Callable[[Subscription], str],
) -> tuple[int, str]:
    """The state of an export as the API calls it, and why it is not active."""
    if refusal := refusal_of(record):
        return _STATES.PERMISSION_DENIED, refusal
    if not buckets.may_use(project_of(record.name), config.bucket):
        return _STATES.PERMISSION_DENIED, BUCKET_REFUSED
    topic_record = catalog.topic_of(record)
    if topic_record is not None and topic_record.enforce_in_transit:
        place = buckets.places.get(config.bucket)
        if place is not None and place.region and place.region not in topic_record.regions:
            return (
                _STATES.IN_TRANSIT_LOCATION_RESTRICTION,
                "The bucket is not in a region that the topic's message_storage_policy allows.",
            )
    state = buckets.state(config.bucket)
    if state != _STATES.ACTIVE:
        return state, buckets.error(config.bucket)
    try:
        topic = topic_avro(catalog, record, config)
        if topic is not None:
            topic.schema(config.avro_config.write_metadata)
    except SchemaUnusable as error:
        return _STATES.SCHEMA_MISMATCH, str(error)
    return _STATES.ACTIVE, ""


BUCKET_REFUSED = "The project may not use this bucket. Ask the operator to list it under `buckets` in the --auth file."
_ADVICE: dict[int, str] = {
    _STATES.NOT_FOUND: "The operator must configure the bucket {0} (`syncpoint serve --bucket`, `buckets` in a"
    " cluster.yaml) and create it; the server's log has the reason. Exporting begins within seconds after that.",
    _STATES.PERMISSION_DENIED: "With --auth, grant roles/pubsub.subscriber on the subscription to the server's own"
    f" identity, {SERVICE_IDENTITY} unless the file names another; the operator must list the project for the bucket"
    " {0} (`buckets` in that file) and let the server write to it.",
    _STATES.IN_TRANSIT_LOCATION_RESTRICTION: "Choose a bucket in a region that the topic's message_storage_policy"
    " allows, or change the policy.",
    _STATES.SCHEMA_MISMATCH: "Give the topic an Avro schema (with write_metadata: a record without fields named like"
    " metadata), or unset use_topic_schema.",
}


def advice(state: int, bucket: str) -> str:
    """What is to be done about a state; "" for one that is active."""
    return _ADVICE.get(state, "").format(bucket)


def topic_avro(catalog: Catalog, record: Subscription, config: pubsub.CloudStorageConfig) -> TopicAvro | None:
    """By what a file is written where it is to be written by the topic's schema; None: it is not, or there is none.
    Raises `SchemaUnusable`."""
    topic = catalog.topic_of(record)
    if not config.avro_config.use_topic_schema or topic is None or topic.schema is None:
        return None
    name = topic.schema.name
    schema = find_schema(catalog, name)
    revisions = [] if schema is None else schema.within(topic.schema)
    if schema is None or not revisions:
        raise SchemaUnusable("the topic's schema was deleted")
    if schema.type != pubsub.Schema.AVRO:
        raise SchemaUnusable("the topic's schema is not an Avro schema")

    by = revisions[0]

    def older(identifier: str) -> str | None:
        known, now = find_schema(catalog, name), catalog.topic_of(record)
        found = None if known is None else known.revision(identifier)
        if known is None or found is None:
            return None
        if found.number > by.number and now is not None and now.schema is not None:
            newest = next(iter(known.within(now.schema)), by)
            if newest.number > by.number:  # the next file has its fields, too
                raise ValueError(f"the file is written by revision {by.id}, which is older")
        return definition(catalog, name, identifier)[0].definition

    return TopicAvro(definition(catalog, name, by.id)[0].definition, topic.schema.encoding == Encoding.BINARY, older)


@lru_cache(maxsize=4_096)
def _config(stored: bytes) -> pubsub.CloudStorageConfig | None:
    message = pubsub.Subscription.FromString(stored)
    return message.cloud_storage_config if message.HasField("cloud_storage_config") else None


def storage_config_of(record: Subscription) -> pubsub.CloudStorageConfig | None:
    """How a subscription is exported to a bucket; None: it is not, or is detached."""
    return None if record.detached or not record.config else _config(record.config)


def _limits(config: pubsub.CloudStorageConfig) -> FileLimits:
    return FileLimits(config.max_duration.ToNanoseconds() / 1e9, config.max_bytes, config.max_messages)

"""Families of what stands around messages: the catalog, pushes, exports, schemas, transforms, dead letters by upkeep,
delivery records, and who was refused.

Place: in every process that has the part; a part that is not there shows nothing.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from syncpoint.broker.export.export_driver import ExportDriver
from syncpoint.broker.forward.forward_driver import ForwardDriver
from syncpoint.broker.push.push_config import is_pushed
from syncpoint.broker.push.push_driver import PushDriver
from syncpoint.broker.recording.recorder import Recorder
from syncpoint.catalog.access.gate import Gate
from syncpoint.catalog.metadata.catalog import Catalog
from syncpoint.catalog.metadata.records import Subscription
from syncpoint.catalog.schemas.publishing import SchemaGate
from syncpoint.catalog.transforms.message_transforms import Transformer
from syncpoint.front.api.exports import is_exported
from syncpoint.front.api.letter_attendant import LetterAttendant
from syncpoint.watch.metrics.family import Family, MetricKind, QuickCollector, Samples

_C, _G, _H = MetricKind.COUNTER, MetricKind.GAUGE, MetricKind.HISTOGRAM
CATALOG_FAMILIES: Final = (
    Family("syncpoint_catalog_topics", _G, "", (), "Topics."),
    Family("syncpoint_catalog_subscriptions", _G, "", ("kind",), "Subscriptions: pull, push, bucket or detached."),
    Family("syncpoint_catalog_snapshots", _G, "", (), "Snapshots."),
    Family("syncpoint_catalog_revision", _G, "", (), "Catalog changes."),
)  # fmt: skip
CONSUMPTION_FAMILIES: Final = (
    Family("syncpoint_push_subscriptions", _G, "", (), "Push subscriptions served by this process."),
    Family("syncpoint_push_paused", _G, "", (), "Push subscriptions paused because their endpoint is failing."),
    Family("syncpoint_push_under_way", _G, "", (), "Pushes waiting for a response."),
    Family("syncpoint_push_total", _C, "", ("result",), "Pushes, by outcome: acknowledged or refused."),
    Family("syncpoint_push_seconds", _H, "seconds", (), "Response time of push endpoints."),
    Family("syncpoint_export_subscriptions", _G, "", (), "Bucket subscriptions served by this process."),
    Family("syncpoint_export_held_bytes", _G, "bytes", (), "Bytes of messages not written to a file yet."),
    Family("syncpoint_export_files_total", _C, "", (), "Files stored."),
    Family(
        "syncpoint_consumption_refused", _G, "", ("kind",),
        "Subscriptions not pushed, exported or forwarded because of a missing permission.",
    ),
    Family("syncpoint_export_failures_total", _C, "", (), "Failed writes to buckets; they are retried."),
)  # fmt: skip
PREPARATION_FAMILIES: Final = (
    Family("syncpoint_schema_requests_total", _C, "", (), "Publish requests checked against a schema."),
    Family("syncpoint_schema_refused_total", _C, "", (), "Publish requests that did not match the schema."),
    Family("syncpoint_transform_messages_total", _C, "", (), "Messages processed by transforms."),
    Family("syncpoint_transform_dropped_total", _C, "", (), "Messages dropped by a transform."),
    Family("syncpoint_transform_failed_total", _C, "", (), "Messages on which a transform failed."),
)  # fmt: skip
LETTER_FAMILIES: Final = (
    Family("syncpoint_attended_letters_total", _C, "", (), "Dead letters created without a delivery to a subscriber."),
)  # fmt: skip
RECORDING_FAMILIES: Final = (
    Family(
        "syncpoint_delivery_records_total", _C, "", ("result",),
        "Delivery records of recorded topics, by outcome: published, or lost because the records topic refused them.",
    ),
    Family("syncpoint_delivery_records_waiting", _G, "", (), "Delivery records not published yet."),
)  # fmt: skip
ACCESS_FAMILIES: Final = (
    Family(
        "syncpoint_access_refused_total",
        _C,
        "",
        ("reason",),
        "Calls refused, by reason: no credentials, invalid credentials, no permission, or over quota.",
    ),
    Family("syncpoint_access_callers", _G, "", (), "Cached tokens and certificates."),
)
FAMILIES: Final = (
    *CATALOG_FAMILIES,
    *CONSUMPTION_FAMILIES,
    *PREPARATION_FAMILIES,
    *LETTER_FAMILIES,
    *RECORDING_FAMILIES,
    *ACCESS_FAMILIES,
)


class CatalogRoom(QuickCollector):
    """What there is. Subscriptions are counted by kind again when the catalog has changed."""

    name = "catalog"

    def __init__(self, catalog: Catalog) -> None:
        self._catalog, self._revision = catalog, -1
        self._known: dict[int, tuple[Subscription, str]] = {}  # of each the kind: its options are read once
        self._kinds: Counter[str] = Counter()

    def collect(self, samples: Samples) -> None:
        catalog = self._catalog
        topics, _, snapshots = catalog.counts()
        if catalog.revision != self._revision:
            self._revision, before = catalog.revision, self._known
            self._known = {}
            for record in catalog.subscriptions():
                known = before.get(record.incarnation)
                self._known[record.incarnation] = known if known and known[0] is record else (record, _kind(record))
            self._kinds = Counter(kind for _, kind in self._known.values())
        samples.put("syncpoint_catalog_topics", topics)
        samples.put("syncpoint_catalog_snapshots", snapshots)
        samples.put("syncpoint_catalog_revision", catalog.revision)
        for kind in ("pull", "push", "bucket", "detached"):
            samples.put("syncpoint_catalog_subscriptions", self._kinds[kind], kind)


def _kind(record: Subscription) -> str:
    if record.detached:
        return "detached"
    return "push" if is_pushed(record) else "bucket" if is_exported(record) else "pull"


class ConsumptionRoom(QuickCollector):
    """Subscriptions that the process consumes itself."""

    name = "pushes and exports"

    def __init__(self, pushes: PushDriver, exports: ExportDriver, forwards: ForwardDriver) -> None:
        self._pushes, self._exports, self._forwards = pushes, exports, forwards

    def collect(self, samples: Samples) -> None:
        pushes, exports = self._pushes, self._exports
        found, held = pushes.totals(), exports.totals()
        samples.put("syncpoint_push_subscriptions", found["pushed_subscriptions"])
        samples.put("syncpoint_push_paused", found["pushes_paused"])
        samples.put("syncpoint_push_under_way", found["pushes_under_way"])
        samples.put("syncpoint_push_total", pushes.acknowledged, "acknowledged")
        samples.put("syncpoint_push_total", pushes.refused, "refused")
        samples.put_histogram("syncpoint_push_seconds", pushes.latency)
        samples.put("syncpoint_export_subscriptions", held["exported_subscriptions"])
        samples.put("syncpoint_export_held_bytes", held["export_held"])
        samples.put("syncpoint_export_files_total", exports.stored_files)
        samples.put("syncpoint_export_failures_total", exports.failed_writes)
        samples.put("syncpoint_consumption_refused", pushes.refused_now, "push")
        samples.put("syncpoint_consumption_refused", exports.refused_now, "export")
        samples.put("syncpoint_consumption_refused", self._forwards.refused_now, "forward")


class PreparationRoom(QuickCollector):
    """What topics do to messages before they are stored."""

    name = "schemas and transforms"

    def __init__(self, schemas: SchemaGate | None, transformer: Transformer) -> None:
        self._schemas, self._transformer = schemas, transformer

    def collect(self, samples: Samples) -> None:
        if self._schemas is not None:
            samples.put("syncpoint_schema_requests_total", self._schemas.checked)
            samples.put("syncpoint_schema_refused_total", self._schemas.refused)
        samples.put("syncpoint_transform_messages_total", self._transformer.given)
        samples.put("syncpoint_transform_dropped_total", self._transformer.dropped)
        samples.put("syncpoint_transform_failed_total", self._transformer.failed)


class LetterRoom(QuickCollector):
    """What upkeep moves to dead-letter topics."""

    name = "dead letters"

    def __init__(self, attendant: LetterAttendant) -> None:
        self._attendant = attendant

    def collect(self, samples: Samples) -> None:
        samples.put("syncpoint_attended_letters_total", self._attendant.moved)


class RecordingRoom(QuickCollector):
    """What becomes of the delivery records that the process notes."""

    name = "delivery records"

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def collect(self, samples: Samples) -> None:
        recorder = self._recorder
        samples.put("syncpoint_delivery_records_total", recorder.records_published, "published")
        samples.put("syncpoint_delivery_records_total", recorder.records_lost, "lost")
        samples.put("syncpoint_delivery_records_waiting", recorder.waiting())


class AccessRoom(QuickCollector):
    """Who was refused at a listener."""

    name = "access"

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    def collect(self, samples: Samples) -> None:
        gate = self._gate
        refused = {
            "no_credentials": gate.unauthenticated,
            "not_believed": gate.invalid,
            "not_allowed": gate.denied,
            "quota": gate.over_quota,
        }
        for reason, number in refused.items():
            samples.put("syncpoint_access_refused_total", number, reason)
        samples.put("syncpoint_access_callers", gate.sessions)

"""Every field of every resource of Pub/Sub is accounted for: kept, set by the server alone, or refused by its name."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.message import Message

from syncpoint.base.model.errors import Code, SyncpointError
from syncpoint.testing.rigs.servicer_harness import ServicerHarness, simulated
from syncpoint.wire.protobuf.messages import pubsub

pytestmark = pytest.mark.shows("limits")

TOPIC, SUB = "projects/p/topics/mine", "projects/p/subscriptions/mine"
SCHEMA, SNAP = "projects/p/schemas/mine", "projects/p/snapshots/mine"
UNKNOWN = b"\xfa\xff\x07\x03new"  # field 16383, of a later version

KEPT: dict[str, dict[str, Any]] = {
    "Topic": {
        "labels": {"a": "b"},
        "message_storage_policy": {"allowed_persistence_regions": ["r1"], "enforce_in_transit": True},
        "message_retention_duration": {"seconds": 700},
        "schema_settings": {"schema": SCHEMA, "encoding": "JSON"},
        "message_transforms": [
            {"compression": {"compression_algorithm": "ZSTD", "compression_mode": "COMPRESS"}, "disabled": True}
        ],
        "ingestion_data_source_settings": {
            "aws_kinesis": {
                "stream_arn": "arn:aws:kinesis:us-east-1:111122223333:stream/one",
                "consumer_arn": "arn:aws:kinesis:us-east-1:111122223333:stream/one/consumer/two:3",
                "aws_role_arn": "arn:aws:iam::111122223333:role/reader",
                "gcp_service_account": "app@example.com",
            }
        },
    },
    "Subscription": {
        "push_config": {
            "push_endpoint": "https://example.com/in",
            "attributes": {"x-goog-version": "v1"},
            "oidc_token": {"service_account_email": "app@example.com", "audience": "me"},
            "no_wrapper": {"write_metadata": True},
        },
        "ack_deadline_seconds": 30,
        "retain_acked_messages": True,
        "message_retention_duration": {"seconds": 700},
        "labels": {"a": "b"},
        "enable_message_ordering": True,
        "expiration_policy": {"ttl": {"seconds": 1_000_000}},
        "filter": "attributes:a",
        "dead_letter_policy": {"dead_letter_topic": TOPIC + "-dead", "max_delivery_attempts": 7},
        "message_transforms": [
            {"compression": {"compression_algorithm": "ZSTD", "compression_mode": "COMPRESS"}, "disabled": True}
        ],
        "retry_policy": {"minimum_backoff": {"seconds": 1}, "maximum_backoff": {"seconds": 2}},
        "enable_exactly_once_delivery": True,
        "bigquery_config": {"table": "p-1.data_set.my-table", "use_table_schema": True},
        "bigtable_config": {"table": "projects/p/instances/i/tables/t", "app_profile_id": "a", "write_metadata": True},
        "cloud_storage_config": {"bucket": "bucket", "text_config": {}, "max_duration": {"seconds": 600}},
    },
    "Snapshot": {"labels": {"a": "b"}},
    "Schema": {"type": "AVRO", "definition": '"string"'},
}
REFUSED: dict[str, dict[str, tuple[Any, Code]]] = {
    "Topic": {
        "kms_key_name": ("projects/p/key", Code.FAILED_PRECONDITION),
    },
    "Subscription": {},
    "Snapshot": {},
    "Schema": {},
}
# By the server alone, or for the request alone. `compiled_proto_schema` stands in for `definition`.
OTHERS = {
    "Topic": {"name", "satisfies_pzs", "state", "tags"},
    "Subscription": {
        "name", "topic", "detached", "topic_message_retention_duration", "state",
        "analytics_hub_subscription_info", "tags",
    },
    "Snapshot": {"name", "topic", "expire_time"},
    "Schema": {"name", "revision_id", "revision_create_time", "compiled_proto_schema"},
}  # fmt: skip


async def prepared(harness: ServicerHarness) -> None:
    schema = {"type": "AVRO", "definition": '"string"'}
    await harness.call("CreateSchema", parent="projects/p", schema_id="mine", schema=schema)
    for name in (TOPIC + "-base", TOPIC + "-dead"):
        await harness.call("CreateTopic", name=name)


async def created(harness: ServicerHarness, kind: str, fields: dict[str, Any]) -> Message:
    """A resource with these fields and one that nobody knows, as it is read back."""
    if kind == "Topic":
        made = pubsub.Topic(name=TOPIC, **fields)
        made.MergeFromString(UNKNOWN)
        await harness.call_with("CreateTopic", made)
        return await harness.call("GetTopic", topic=TOPIC)
    if kind == "Subscription":
        made = pubsub.Subscription(name=SUB, topic=TOPIC + "-base", **fields)
        made.MergeFromString(UNKNOWN)
        await harness.call_with("CreateSubscription", made)
        return await harness.call("GetSubscription", subscription=SUB)
    if kind == "Snapshot":
        await harness.call("CreateSubscription", name=SUB, topic=TOPIC + "-base")
        request = pubsub.CreateSnapshotRequest(name=SNAP, subscription=SUB, **fields)
        await harness.call_with("CreateSnapshot", request)
        return await harness.call("GetSnapshot", snapshot=SNAP)
    request = pubsub.CreateSchemaRequest(parent="projects/p", schema_id="other", schema=pubsub.Schema(**fields))
    request.schema.MergeFromString(UNKNOWN)
    await harness.call_with("CreateSchema", request)
    return await harness.call("GetSchema", name="projects/p/schemas/other")


def without_states(resource: Any, field: str) -> Any:
    """The value of a field without what the server says of it, at the first two levels."""
    value = getattr(resource, field)
    if not isinstance(value, Message):
        return value
    for inner, one in [*value.ListFields(), (None, value)]:
        holder = one if inner is None else getattr(value, inner.name)
        if isinstance(holder, Message) and "state" in holder.DESCRIPTOR.fields_by_name:
            holder.ClearField("state")
    return value


@pytest.mark.parametrize("kind", list(KEPT))
def test_every_field_is_accounted_for(kind: str) -> None:
    groups = [set(KEPT[kind]), set(REFUSED[kind]), OTHERS[kind]]
    assert set.union(*groups) == set(getattr(pubsub, kind).DESCRIPTOR.fields_by_name)
    assert sum(map(len, groups)) == len(set.union(*groups))


@pytest.mark.parametrize(("kind", "field"), [(kind, field) for kind in KEPT for field in KEPT[kind]])
@simulated()
async def test_what_is_kept_is_read_back_as_it_was_given(harness: ServicerHarness, *, kind: str, field: str) -> None:
    await prepared(harness)
    value = KEPT[kind][field]
    fields = {**({"type": "AVRO", "definition": '"int"'} if kind == "Schema" else {}), field: value}
    found = await created(harness, kind, fields)
    given = getattr(pubsub, kind)(**{field: value})
    assert without_states(found, field) == without_states(given, field)


@pytest.mark.parametrize(("kind", "field"), [(kind, field) for kind in REFUSED for field in REFUSED[kind]])
@simulated()
async def test_what_is_refused_is_refused_by_its_name(harness: ServicerHarness, *, kind: str, field: str) -> None:
    await prepared(harness)
    value, code = REFUSED[kind][field]
    with pytest.raises(SyncpointError, match=field) as refused:
        await created(harness, kind, {field: value})
    assert refused.value.code is code


@pytest.mark.parametrize("kind", ["Topic", "Subscription", "Schema"])
@simulated()
async def test_fields_of_a_later_version_survive(harness: ServicerHarness, *, kind: str) -> None:
    await prepared(harness)
    fields = {"type": "AVRO", "definition": '"int"'} if kind == "Schema" else {}
    found = await created(harness, kind, fields)
    assert UNKNOWN in found.SerializeToString()
    labels, mask = {"c": "d"}, {"paths": ["labels"]}
    if kind == "Topic":
        await harness.call("UpdateTopic", topic={"name": TOPIC, "labels": labels}, update_mask=mask)
        found = await harness.call("GetTopic", topic=TOPIC)
    elif kind == "Subscription":
        change = {"name": SUB, "labels": labels}
        await harness.call("UpdateSubscription", subscription=change, update_mask=mask)
        found = await harness.call("GetSubscription", subscription=SUB)
    else:
        found = await harness.call("RollbackSchema", name=found.name, revision_id=found.revision_id)  # type: ignore[attr-defined]
    assert UNKNOWN in found.SerializeToString()

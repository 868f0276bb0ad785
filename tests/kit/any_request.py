"""Requests drawn from the descriptors: half of them nearly legal, others with whatever the types allow.

Names come from a small set, so that requests meet; numbers and texts lie at limits and beside them.
"""

from __future__ import annotations

from random import Random
from typing import Any

from google.protobuf.descriptor import FieldDescriptor

from syncpoint.wire.protobuf.methods import Method

PROJECTS = ("projects/p", "projects/q")
RESOURCES = {
    kind: [f"{project}/{kind}/{name}" for project in PROJECTS for name in names]
    for kind, names in {
        "topics": ("orders", "bills"),
        "subscriptions": ("billing", "audit"),
        "snapshots": ("first", "second"),
        "schemas": ("record", "other"),
    }.items()
}
KINDS = ("topic", "subscription", "snapshot", "schema")
KIND_OF = {
    "topic": "topics", "dead_letter_topic": "topics", "Topic.name": "topics",
    "subscription": "subscriptions", "Subscription.name": "subscriptions",
    "snapshot": "snapshots", "Snapshot.name": "snapshots", "CreateSnapshotRequest.name": "snapshots",
    "schema": "schemas", "GetSchemaRequest.name": "schemas",
    "ListSchemaRevisionsRequest.name": "schemas", "CommitSchemaRequest.name": "schemas",
    "RollbackSchemaRequest.name": "schemas", "DeleteSchemaRevisionRequest.name": "schemas",
    "DeleteSchemaRequest.name": "schemas", "ValidateMessageRequest.name": "schemas",
}  # fmt: skip
AVRO = [
    '{"type": "record", "name": "R", "fields": [{"name": "a", "type": "string"}' + more + "]}"
    for more in ("", ', {"name": "b", "type": "int", "default": 1}', ', {"name": "c", "type": "int"}')
]
TEXTS = {
    "definition": [*AVRO * 3, "{", '"int"', '{"type": "record", "name": "R", "fields": []}'],
    "schema_id": ["record", "record", "other", "other", "", "9", "x" * 256],
    "filter": ['attributes.a = "b"', "NOT attributes:a", "attributes.a =", "", "x" * 300],
    "push_endpoint": ["", "https://push.example/x", "ftp://x", "https://", "http://127.0.0.1:1/"],
    "page_token": ["", "", "nonsense", "MQ", "ä"],
    "role": ["roles/pubsub.viewer", "roles/none", ""],
    "members": ["allUsers", "user:a@b.example", "nobody"],
    "permissions": ["pubsub.topics.get", "pubsub.topics.publish", "none"],
}
ANY_TEXT = ["", "a", "ab", "goog", "projects/p", "ä", "\0", "x" * 300, "-", "a" * 1025]
BYTES = [b"", b"a", b"\xff\x00", b"x" * 2000, b'{"a": "b"}', b"\x02a"]
SECONDS = [0, 1, 9, 10, 59, 600, 601, 3600, 86_399, 86_400, 604_800, 2_678_400, 2_678_401, -1, 1 << 40, -(1 << 62)]
NANOS = [0, 0, 0, 0, 1, 999_999_999, 1_000_000_000, -1]
INTEGERS = [0, 1, 2, 5, 9, 10, 60, 100, 101, 600, 601, 1000, -1, (1 << 31) - 1, -(1 << 31)]
MASKS = ["", "name", "state", "labels.a", "nonsense", "messageRetentionDuration", "expiration_policy.ttl", "tags",
         "topic",
         "dead_letter_policy.max_delivery_attempts", "retry_policy.minimum_backoff", "push_config.push_endpoint",
         "schema_settings.encoding", "schema_settings.first_revision_id", "filter", "enable_message_ordering",
         "labels", "ack_deadline_seconds", "retain_acked_messages", "expiration_policy"]  # fmt: skip
LEGAL_MASKS = {
    "UpdateTopicRequest": [
        "labels", "message_retention_duration", "message_storage_policy", "schema_settings.encoding",
    ],
    "UpdateSnapshotRequest": ["labels"],
    "UpdateSubscriptionRequest": [
        "labels", "ack_deadline_seconds", "retain_acked_messages", "message_retention_duration", "expiration_policy",
        "expiration_policy.ttl", "dead_letter_policy", "dead_letter_policy.max_delivery_attempts", "retry_policy",
        "retry_policy.minimum_backoff", "enable_exactly_once_delivery", "push_config",
    ],
    "SetIamPolicyRequest": ["bindings", "etag"],
}  # fmt: skip
#: What a nearly legal request leaves out: not served, or legal only in special company.
SELDOM = {
    "ingestion_data_source_settings", "message_transforms", "kms_key_name", "bigquery_config", "cloud_storage_config",
    "bigtable_config", "tags", "analytics_hub_subscription_info", "schema_settings", "push_config", "filter",
    "dead_letter_policy", "page_token", "message_storage_policy", "compiled_proto_schema", "bigtable", "attributes",
}  # fmt: skip


class Drawing:
    """Requests from one seed. `ack_ids`, `revisions`: what earlier answers gave out."""

    def __init__(self, seed: int, ack_ids: list[str], revisions: list[str]) -> None:
        self.random = Random(seed)
        self.wild = self.random.random() < 0.35
        self._ack_ids, self._revisions, self._masks = ack_ids, revisions, MASKS

    def request(self, method: Method) -> bytes:
        """A serialised request, now and then damaged."""
        message = method.request()
        self._masks = LEGAL_MASKS.get(method.request.DESCRIPTOR.name, MASKS)
        self._fill(message, 0)
        data = bytearray(message.SerializeToString())
        if self.random.random() < 0.06:
            self._damage(data)
        return bytes(data)

    def message(self, kind: Any) -> Any:
        message = kind()
        self._fill(message, 0)
        return message

    def _damage(self, data: bytearray) -> None:
        match self.random.randrange(3):
            case 0 if data:
                data[self.random.randrange(len(data))] ^= 1 << self.random.randrange(8)
            case 1 if data:
                del data[self.random.randrange(len(data)) :]
            case _:
                data += b"\xba\x3e\x01x"  # a field that nobody knows

    def _fill(self, message: Any, depth: int, name: str = "") -> None:
        named = message.DESCRIPTOR.full_name
        if named in ("google.protobuf.Duration", "google.protobuf.Timestamp"):
            message.seconds, message.nanos = self.random.choice(SECONDS), self.random.choice(NANOS)
            if not self.wild:
                legal = {"minimum_backoff": (1, 10), "maximum_backoff": (60, 600), "ttl": (86_400, 1 << 30)}
                message.seconds, message.nanos = self.random.choice(legal.get(name, (600, 86_400, 604_800))), 0
            return
        if named == "google.protobuf.FieldMask":
            wanted = [] if self.wild and self.random.random() < 0.3 else range(self.random.randrange(1, 4))
            message.paths.extend(self.random.choice(MASKS if self.wild else self._masks) for _ in wanted)
            return
        for field in message.DESCRIPTOR.fields:
            if self.random.random() < self._chance(field, depth):
                self._set(message, field, depth)

    def _chance(self, field: FieldDescriptor, depth: int) -> float:
        if depth == 0 and field.message_type is not None and field.name in KINDS:
            return 1.0
        if field.full_name == "google.pubsub.v1.Schema.name":
            return 0.05
        if self._kind(field) or field.name in ("project", "parent", "resource", "paths", "update_mask", "ack_ids"):
            return 0.97
        if self.wild:
            return 0.4 if depth < 2 else 0.2
        if field.name in (
            "definition",
            "type",
            "target",
            "max_messages",
            "data",
            "messages",
            "schema_id",
            "policy",
            "encoding",
        ):
            return 0.95
        return 0.02 if field.name in SELDOM else 0.2

    def _kind(self, field: FieldDescriptor) -> str | None:
        if field.type != FieldDescriptor.TYPE_STRING:
            return None
        return KIND_OF.get(f"{field.containing_type.name}.{field.name}") or KIND_OF.get(field.name)

    def _set(self, message: Any, field: FieldDescriptor, depth: int) -> None:
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            entries = getattr(message, field.name)
            if field.message_type.fields_by_name["value"].message_type is None:
                for _ in range(self.random.randrange(3)):
                    entries[self.random.choice(ANY_TEXT if self.wild else ["a", "b"])] = self._map_value(field)
        elif field.is_repeated:
            for _ in range(self.random.randrange(1, 3)):
                if field.message_type is not None:
                    if depth < 4:
                        self._fill(getattr(message, field.name).add(), depth + 1, field.name)
                else:
                    getattr(message, field.name).append(self._scalar(field))
        elif field.message_type is not None:
            if depth < 4:
                getattr(message, field.name).SetInParent()
                self._fill(getattr(message, field.name), depth + 1, field.name)
        else:
            setattr(message, field.name, self._scalar(field))

    def _map_value(self, field: FieldDescriptor) -> Any:
        value = field.message_type.fields_by_name["value"]
        if value.type == FieldDescriptor.TYPE_STRING:
            return self.random.choice(ANY_TEXT if self.wild else ["x", "y"])
        return self._scalar(value)

    def _scalar(self, field: FieldDescriptor) -> Any:
        choose = self.random.choice
        match field.type:
            case FieldDescriptor.TYPE_STRING:
                return self._text(field)
            case FieldDescriptor.TYPE_BYTES:
                return choose(BYTES)
            case FieldDescriptor.TYPE_BOOL:
                return choose((True, False))
            case FieldDescriptor.TYPE_ENUM:
                numbers = [value.number for value in field.enum_type.values]
                if self.wild:
                    return choose([*numbers, 99])
                return 2 if field.containing_type.name == "Schema" else 1  # Avro, and whatever comes first
            case FieldDescriptor.TYPE_DOUBLE | FieldDescriptor.TYPE_FLOAT:
                return choose((0.0, 1.5, -1.0, float("nan"), float("inf")))
            case FieldDescriptor.TYPE_UINT32 | FieldDescriptor.TYPE_UINT64 | FieldDescriptor.TYPE_FIXED64:
                return choose([one for one in INTEGERS if one >= 0])
            case _:
                return choose(INTEGERS if self.wild else (10, 60, 100))

    def _text(self, field: FieldDescriptor) -> str:
        choose, kind = self.random.choice, self._kind(field)
        if self.wild and self.random.random() < 0.15:
            return choose(ANY_TEXT)
        if kind == "schemas" and (self.wild or "Get" in field.full_name) and self.random.random() < 0.3:
            return choose(self._revisions or [""])
        if kind is not None:
            names = RESOURCES[kind]
            return choose(names[: len(names) // 2] if self.random.random() < 0.8 else names)
        if field.name in ("project", "parent"):
            return PROJECTS[self.random.random() > 0.8]
        if field.name == "resource":
            return choose([one for names in RESOURCES.values() for one in names])
        if field.name == "revision_id" and self._revisions:
            return choose(self._revisions).partition("@")[2]
        if field.name in ("ack_ids", "modify_deadline_ack_ids") and self._ack_ids:
            return choose(self._ack_ids)
        return choose(TEXTS.get(field.name, ANY_TEXT))

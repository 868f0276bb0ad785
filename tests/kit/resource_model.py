"""A plain model of topics, subscriptions, snapshots and schemas: what is there after each answer, and what lists show.

It knows nothing of the server's code. What a server chooses (revision ids, times of expiry) is taken from its answers.
Whether a request is legal it does not judge, only what follows from an answer.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count
from typing import Any

from syncpoint.wire.protobuf.messages import pubsub

DELETED_TOPIC, DELETED_SCHEMA = "_deleted-topic_", "_deleted-schema_"
EXPORTS = ("bigquery_config", "cloud_storage_config", "bigtable_config")
DAY = 24 * 3600
_INCARNATIONS = count(1)


@dataclass
class Kept:
    """A resource: its message, which life of its name it is, and of which one of its topic or schema."""

    message: Any
    of: int = 0
    life: int = field(default_factory=lambda: next(_INCARNATIONS))


class ResourceModel:
    """`applied` takes each answer; `shown` is what lists should show."""

    def __init__(self) -> None:
        self.topics: dict[str, Kept] = {}
        self.subscriptions: dict[str, Kept] = {}
        self.snapshots: dict[str, Kept] = {}
        self.schemas: dict[str, Kept] = {}
        self.revisions: dict[str, list[Any]] = {}

    # -- what an answer means ----------------------------------------------------------------------------------------

    def applied(self, method: str, asked: Any, answer: Any) -> None:
        """A call was answered well."""
        change = getattr(self, f"_{method}", None)
        if change is not None:
            change(asked, answer)

    def _CreateTopic(self, asked: Any, answer: Any) -> None:
        assert asked.name not in self.topics
        message = pubsub.Topic.FromString(asked.SerializeToString())
        self.topics[asked.name] = Kept(_topic(message))
        self._bind(asked.name)

    def _UpdateTopic(self, asked: Any, answer: Any) -> None:
        kept = self.topics[asked.topic.name]
        before = kept.message.schema_settings.schema
        masked(kept.message, asked.topic, asked.update_mask.paths)
        _topic(kept.message)
        if kept.message.schema_settings.schema != before or "schema_settings" in asked.update_mask.paths:
            self._bind(asked.topic.name)

    def _bind(self, topic: str) -> None:
        kept = self.topics[topic]
        schema = self.schemas.get(kept.message.schema_settings.schema)
        kept.of = schema.life if schema else 0

    def _DeleteTopic(self, asked: Any, answer: Any) -> None:
        del self.topics[asked.topic]

    def _CreateSubscription(self, asked: Any, answer: Any) -> None:
        name = asked.name or answer.name
        assert name not in self.subscriptions
        message = pubsub.Subscription.FromString(asked.SerializeToString())
        message.name = name
        self.subscriptions[name] = Kept(_subscription(message), self.topics[asked.topic].life)

    def _UpdateSubscription(self, asked: Any, answer: Any) -> None:
        kept = self.subscriptions[asked.subscription.name]
        masked(kept.message, asked.subscription, asked.update_mask.paths)
        _subscription(kept.message, kept.message.detached)

    def _ModifyPushConfig(self, asked: Any, answer: Any) -> None:
        kept = self.subscriptions[asked.subscription]
        kept.message.push_config.CopyFrom(asked.push_config)
        _subscription(kept.message, kept.message.detached)

    def _DetachSubscription(self, asked: Any, answer: Any) -> None:
        self.subscriptions[asked.subscription].message.detached = True

    def _DeleteSubscription(self, asked: Any, answer: Any) -> None:
        del self.subscriptions[asked.subscription]

    def _CreateQueue(self, asked: Any, answer: Any) -> None:
        self._CreateTopic(asked.topic, answer.topic)
        wanted = _copy(asked.subscription)
        wanted.name, wanted.topic = queue_part(asked.topic.name), asked.topic.name
        wanted.expiration_policy.SetInParent()
        self._CreateSubscription(wanted, answer.subscription)

    def _DeleteQueue(self, asked: Any, answer: Any) -> None:
        del self.topics[asked.topic], self.subscriptions[queue_part(asked.topic)]

    def _CreateSnapshot(self, asked: Any, answer: Any) -> None:
        name, source = asked.name or answer.name, self.subscriptions[asked.subscription]
        assert name not in self.snapshots
        message = pubsub.Snapshot(name=name, topic=source.message.topic, labels=dict(asked.labels))
        message.expire_time.CopyFrom(answer.expire_time)
        self.snapshots[name] = Kept(message, source.of)

    def _UpdateSnapshot(self, asked: Any, answer: Any) -> None:
        masked(self.snapshots[asked.snapshot.name].message, asked.snapshot, asked.update_mask.paths)

    def _DeleteSnapshot(self, asked: Any, answer: Any) -> None:
        del self.snapshots[asked.snapshot]

    def _CreateSchema(self, asked: Any, answer: Any) -> None:
        assert answer.name not in self.schemas
        assert answer.name.startswith(f"{asked.parent}/schemas/{asked.schema_id}")
        assert (answer.type, answer.definition) == (asked.schema.type, asked.schema.definition)
        self.schemas[answer.name] = Kept(answer)
        self.revisions[answer.name] = [answer]

    def _CommitSchema(self, asked: Any, answer: Any) -> None:
        assert (answer.type, answer.definition) == (asked.schema.type, asked.schema.definition)
        self._add_revision(asked.name, answer)

    def _RollbackSchema(self, asked: Any, answer: Any) -> None:
        old = next(one for one in self.revisions[asked.name] if one.revision_id == asked.revision_id)
        assert answer.definition == old.definition
        self._add_revision(asked.name, answer)

    def _add_revision(self, name: str, answer: Any) -> None:
        assert answer.name.partition("@")[0] == name
        assert answer.revision_id not in {one.revision_id for one in self.revisions[name]}
        self.revisions[name].append(answer)

    def _DeleteSchemaRevision(self, asked: Any, answer: Any) -> None:
        name, _, revision = asked.name.partition("@")
        revision = revision or asked.revision_id
        left = [one for one in self.revisions[name] if one.revision_id != revision]
        assert len(left) == len(self.revisions[name]) - 1 > 0
        self.revisions[name] = left

    def _DeleteSchema(self, asked: Any, answer: Any) -> None:
        del self.schemas[asked.name], self.revisions[asked.name]

    # -- what there is -----------------------------------------------------------------------------------------------

    def exists(self, name: str) -> bool:
        """Whether a resource of that name is there; a schema also with a revision of its own."""
        schema, _, revision = name.partition("@")
        if revision:
            return any(one.revision_id == revision for one in self.revisions.get(schema, ()))
        return any(name in one for one in (self.topics, self.subscriptions, self.snapshots, self.schemas))

    def shown(self) -> dict[str, Any]:
        """By name."""
        found: dict[str, Any] = {}
        for name, kept in self.topics.items():
            message = found[name] = _copy(kept.message)
            schema = self.schemas.get(message.schema_settings.schema)
            if message.HasField("schema_settings") and kept.of and (schema is None or schema.life != kept.of):
                message.schema_settings.schema = DELETED_SCHEMA
        for name, kept in self.subscriptions.items():
            message = found[name] = _copy(kept.message)
            topic = self._topic_of(kept, message)
            if topic is not None and topic.message.HasField("message_retention_duration"):
                message.topic_message_retention_duration.CopyFrom(topic.message.message_retention_duration)
            if (
                message.HasField("dead_letter_policy")
                and message.dead_letter_policy.dead_letter_topic not in self.topics
            ):
                message.dead_letter_policy.dead_letter_topic = DELETED_TOPIC
        for name, kept in self.snapshots.items():
            message = found[name] = _copy(kept.message)
            self._topic_of(kept, message)
        for name, revisions in self.revisions.items():
            found[name] = (revisions[-1].type, revisions[-1].definition, revisions[-1].revision_id)
        return found

    def _topic_of(self, kept: Kept, message: Any) -> Kept | None:
        topic = self.topics.get(message.topic)
        if topic is None or topic.life != kept.of:
            message.topic = DELETED_TOPIC
            return None
        return topic

    def attached(self, topic: str) -> list[str]:
        """Names of the subscriptions that ListTopicSubscriptions shows."""
        life, found = self.topics[topic].life, self.subscriptions.items()
        return sorted(name for name, kept in found if kept.of == life and not kept.message.detached)

    def snapshots_of(self, topic: str) -> list[str]:
        """Names of the snapshots that ListTopicSnapshots shows."""
        return sorted(name for name, kept in self.snapshots.items() if kept.of == self.topics[topic].life)


def queue_part(topic: str) -> str:
    """The name of a queue's subscription."""
    return topic.replace("/topics/", "/subscriptions/")


def masked(target: Any, source: Any, paths: Any) -> None:
    """What an update mask means: each path is replaced, or cleared where the request has nothing there."""
    for path in paths:
        into, given = target, source
        *parents, last = path.split(".")
        absent = False
        for name in parents:
            absent = absent or not (into.HasField(name) or given.HasField(name))
            if given.HasField(name):
                getattr(into, name).SetInParent()
            into, given = getattr(into, name), getattr(given, name)
        if absent:
            continue
        into.ClearField(last)
        descriptor = into.DESCRIPTOR.fields_by_name[last]
        if descriptor.is_repeated:
            getattr(into, last).MergeFrom(getattr(given, last))
        elif descriptor.message_type is not None:
            if given.HasField(last):
                getattr(into, last).CopyFrom(getattr(given, last))
        elif not descriptor.has_presence or given.HasField(last):
            setattr(into, last, getattr(given, last))


def _copy(message: Any) -> Any:
    return type(message).FromString(message.SerializeToString())


def _drop_empty(message: Any, *names: str) -> None:
    """What is set to nothing asks for nothing."""
    for name in names:
        if message.HasField(name) and getattr(message, name).ByteSize() == 0:
            message.ClearField(name)


def _topic(message: Any) -> Any:
    for name in ("satisfies_pzs", "tags"):
        message.ClearField(name)
    message.state = pubsub.Topic.ACTIVE
    _drop_empty(message, "ingestion_data_source_settings")
    return message


def _subscription(message: Any, detached: bool = False) -> Any:
    for name in ("topic_message_retention_duration", "analytics_hub_subscription_info", "tags"):
        message.ClearField(name)
    message.state, message.detached = pubsub.Subscription.ACTIVE, detached
    message.ack_deadline_seconds = message.ack_deadline_seconds or 10
    if not message.HasField("message_retention_duration"):
        message.message_retention_duration.seconds = 7 * DAY
    if not message.HasField("expiration_policy"):
        message.expiration_policy.ttl.seconds = 31 * DAY
    if message.HasField("dead_letter_policy"):
        if message.dead_letter_policy.ByteSize() == 0:
            message.ClearField("dead_letter_policy")
        else:
            message.dead_letter_policy.max_delivery_attempts = message.dead_letter_policy.max_delivery_attempts or 5
    if message.HasField("retry_policy"):
        for name, seconds in (("minimum_backoff", 10), ("maximum_backoff", 600)):
            if not message.retry_policy.HasField(name):
                getattr(message.retry_policy, name).seconds = seconds
    _drop_empty(message, *EXPORTS)
    if not message.push_config.push_endpoint:
        message.ClearField("push_config")
    message.push_config.SetInParent()
    return message

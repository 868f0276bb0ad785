"""The records of the catalog, and changes to them, as immutable values with one stored form.

Place: made by the api from requests, persisted by the log, read by publish and subscribe forwarders.
Promise: what the data plane needs is an attribute, so that no protobuf is parsed on its path; everything else a user
gave stays in `config`, unknown fields included. A record is some hundreds of bytes, because there may be a hundred
thousand.
Source of the stored form: proto/syncpoint/catalog/v1/catalog.proto.
"""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from syncpoint.catalog.metadata.entity_options import (
    NO_SUBSCRIPTION_OPTIONS,
    NO_TOPIC_OPTIONS,
    SubscriptionOptions,
    TopicOptions,
)
from syncpoint.catalog.metadata.message_rules import Transforms, stamp_of, subscription_transforms, topic_transforms
from syncpoint.catalog.metadata.stored_options import (
    fill_subscription_options,
    fill_topic_options,
    subscription_options_of,
    topic_options_of,
)
from syncpoint.wire.protobuf.messages import catalog as _stored
from syncpoint.wire.protobuf.messages import pubsub


class DeadLetter(NamedTuple):
    """Where messages go that were delivered `max_attempts` times in vain. `topic` is a full name."""

    topic: str
    max_attempts: int


class Retry(NamedTuple):
    """Bounds of the delay before a message is delivered again, in seconds."""

    min_s: float
    max_s: float


class Author(NamedTuple):
    """The caller who set where messages go, whose rights are checked again when they go there. `principal`: as bindings
    call it, with the uid of an account of the catalog; `groups`: those that its token named.
    """

    principal: str
    groups: tuple[str, ...] = ()


class Feature(enum.Flag):
    """What a subscription may ask for, and most do not."""

    PUSH = enum.auto()
    STORAGE = enum.auto()
    FORWARD = enum.auto()
    LETTERS = enum.auto()  # of what runs out, or no rule can judge


class SeekTarget(NamedTuple):
    """Where the newest seek went: to a time, or to the snapshot of that incarnation. One of the two is set."""

    time_ns: int | None = None
    snapshot: int | None = None


class TopicSchema(NamedTuple):
    """What the messages of a topic must fit: revisions with numbers from `first` to `last` (0: no bound) of the very
    schema `uid`, in one of the encodings of google.pubsub.v1.Encoding.
    """

    name: str
    uid: int
    encoding: int
    first: int = 0
    last: int = 0


ACTIVE = "active"
CREATING = "creating"
COPYING = "copying"


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic. `incarnation` distinguishes it from earlier ones of the same name; `retention_s` 0 means none of its
    own.

    Of a cluster: `durability` names its class ("" is the default one), `regions` are those that may store its messages
    (none named: all), `enforce_in_transit` keeps them from other regions on their way, too.
    """

    incarnation: int
    name: str
    config: bytes = b""
    retention_s: int = 0
    created_ns: int = 0
    durability: str = ""
    regions: tuple[str, ...] = ()
    enforce_in_transit: bool = False
    schema: TopicSchema | None = None
    options: TopicOptions = NO_TOPIC_OPTIONS
    records_author: Author | None = None
    transform_author: Author | None = None
    plain: bool = field(init=False, repr=False, compare=False)
    """Nothing comes between a client's publish and the log: the topic has no options, no schema, and no config, which
    may have transforms."""
    _transforms: Transforms | None = field(default=None, init=False, repr=False, compare=False)
    _stamp: int | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        plain = self.options is NO_TOPIC_OPTIONS and self.schema is None and not self.config
        object.__setattr__(self, "plain", plain)

    @property
    def transforms(self) -> Transforms:
        """Those in its config, unless all are disabled. Found once."""
        found = self._transforms
        if found is None:
            found = topic_transforms(self.config)
            object.__setattr__(self, "_transforms", found)
        return found

    @property
    def stamp(self) -> int:
        """A number for its schema and transforms, by which the process that stores messages sees what the process that
        checked them went by. 0: it has neither. Made once.
        """
        found = self._stamp
        if found is None:
            found = stamp_of(self.schema, self.transforms)
            object.__setattr__(self, "_stamp", found)
        return found


@dataclass(frozen=True, slots=True)
class Subscription:
    """A subscription, bound to one incarnation of a topic for ever.

    `topic_name` is the name that topic had; whether the topic still exists is for `Catalog.topic_of` to say.
    `generation` counts seeks, `target` is where the newest one went, `created_revision` is the catalog revision that
    introduced the subscription. `expiration_s` None means never. Of a cluster: `state` is CREATING until every chain
    that holds sources of the topic has persisted where it begins. `delivery_author` set where messages are pushed,
    exported or forwarded, `letter_author` where dead letters go, `transform_author` as whom models are asked; None:
    callers were not identified then.
    """

    incarnation: int
    name: str
    topic_incarnation: int
    topic_name: str
    config: bytes = b""
    created_ns: int = 0
    ack_deadline_s: int = 10
    retention_s: int = 7 * 24 * 3_600
    retain_acked: bool = False
    ordered: bool = False
    exactly_once: bool = False
    filter_text: str = ""
    dead_letter: DeadLetter | None = None
    retry: Retry | None = None
    detached: bool = False
    generation: int = 0
    early_delivery: bool = False
    expiration_s: int | None = None
    state: str = ACTIVE
    created_revision: int = 0
    target: SeekTarget | None = None
    changed_ns: int = 0
    options: SubscriptionOptions = NO_SUBSCRIPTION_OPTIONS
    delivery_author: Author | None = None
    letter_author: Author | None = None
    transform_author: Author | None = None
    _transforms: Transforms | None = field(default=None, init=False, repr=False, compare=False)
    _features: Feature | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def features(self) -> Feature:
        """What it asks for that others are notified of. Found once."""
        found = self._features
        if found is None:
            found = _features_of(self)
            object.__setattr__(self, "_features", found)
        return found

    @property
    def transforms(self) -> Transforms:
        """Those in its config, unless all are disabled. Found once."""
        found = self._transforms
        if found is None:
            found = subscription_transforms(self.config)
            object.__setattr__(self, "_transforms", found)
        return found

    @property
    def destination(self) -> bytes:
        """What distinguishes where its messages are pushed, exported or forwarded from where they were before a change.
        Other changes of what its owner sees make another one, too.
        """
        return hashlib.blake2b(self.options.forward_to.encode() + b"\0" + self.config, digest_size=16).digest()

    @property
    def touched_ns(self) -> int:
        """When it was created, or last changed or moved: what its time of expiration counts from without later use."""
        return max(self.created_ns, self.changed_ns)


def _features_of(record: Subscription) -> Feature:
    found, options = Feature(0), record.options
    if record.config:
        config = pubsub.Subscription.FromString(record.config)
        found |= Feature.PUSH if config.HasField("push_config") else found
        found |= Feature.STORAGE if config.HasField("cloud_storage_config") else found
    if options.forward_to:
        found |= Feature.FORWARD
    if options.dead_letter_expired or options.dead_letter_rule_errors:
        found |= Feature.LETTERS
    return found


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a subscription had acknowledged at one moment.

    Each chain keeps its part; of a cluster, `status` is CREATING until all of them have, and of a copy of another
    site's COPYING until it is whole. `generation` is the subscription's at its creation.
    """

    incarnation: int
    name: str
    topic_incarnation: int
    topic_name: str
    config: bytes = b""
    created_ns: int = 0
    expire_ns: int = 0
    status: str = ACTIVE
    subscription: int = 0
    generation: int | None = None


@dataclass(frozen=True, slots=True)
class Setting:
    """A named value of the whole server, such as its flow control limits."""

    name: str
    value: bytes = b""


Record = Topic | Subscription | Snapshot | Setting


class ChangeOp(enum.Enum):
    """What a change does with its record."""

    PUT = "put"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class CatalogChange:
    """One step of the catalog. Revisions are dense: 1, 2, 3, ...; 0 means that none is assigned yet."""

    revision: int
    op: ChangeOp
    record: Record

    @staticmethod
    def put(record: Record) -> CatalogChange:
        """Create the record, or replace the one of the same identity."""
        return CatalogChange(0, ChangeOp.PUT, record)

    @staticmethod
    def delete(record: Record) -> CatalogChange:
        """Remove the record."""
        return CatalogChange(0, ChangeOp.DELETE, record)

    def at(self, revision: int) -> CatalogChange:
        """Return a copy of this change with its revision assigned."""
        return replace(self, revision=revision)


def encode_changes(changes: Iterable[CatalogChange], writer: str = "") -> bytes:
    """Changes as the payload of one log entry, or of one commit by `writer`."""
    stored = _stored.Changes(writer=writer)
    for change in changes:
        added = stored.changes.add(revision=change.revision, deleted=change.op is ChangeOp.DELETE)
        _fill(added.record, change.record)
    encoded: bytes = stored.SerializeToString()
    return encoded


def decode_changes(payload: bytes) -> list[CatalogChange]:
    """The changes of a log entry. Raises protobuf's `DecodeError` or `ValueError` when it holds something else."""
    return [
        CatalogChange(change.revision, ChangeOp.DELETE if change.deleted else ChangeOp.PUT, _read(change.record))
        for change in _stored.Changes.FromString(payload).changes
    ]


def decode_commit(payload: bytes) -> tuple[list[CatalogChange], str]:
    """As `decode_changes`, with the writer."""
    return decode_changes(payload), _stored.Changes.FromString(payload).writer


def encode_record(record: Record) -> bytes:
    """One record in its stored form."""
    stored = _stored.Record()
    _fill(stored, record)
    encoded: bytes = stored.SerializeToString()
    return encoded


def decode_record(data: bytes) -> Record:
    """A record from its stored form. Raises protobuf's `DecodeError` or `ValueError` when it is none."""
    return _read(_stored.Record.FromString(data))


def encode_header(revision: int, incarnation: int, records: int) -> bytes:
    """What stands before the records of a checkpoint."""
    encoded: bytes = _stored.Header(revision=revision, incarnation=incarnation, records=records).SerializeToString()
    return encoded


def decode_header(data: bytes) -> tuple[int, int, int]:
    """(revision, highest incarnation, number of records)."""
    header = _stored.Header.FromString(data)
    return header.revision, header.incarnation, header.records


def _fill(stored: Any, record: Record) -> None:
    match record:
        case Topic():
            stored.topic.SetInParent()
            _copy(stored.topic, record, _TOPIC_FIELDS)
            stored.topic.regions.extend(record.regions)
            if record.schema is not None:
                for name, value in record.schema._asdict().items():
                    setattr(stored.topic.schema, name, value)
            if record.options != NO_TOPIC_OPTIONS:
                fill_topic_options(stored.topic.options, record.options)
            _fill_author(stored.topic.records_author, record.records_author)
            _fill_author(stored.topic.transform_author, record.transform_author)
        case Subscription():
            _copy(stored.subscription, record, _SUBSCRIPTION_FIELDS)
            if record.dead_letter is not None:
                stored.subscription.dead_letter_topic, stored.subscription.dead_letter_attempts = record.dead_letter
            if record.retry is not None:
                stored.subscription.retry = True
                stored.subscription.retry_min_s, stored.subscription.retry_max_s = record.retry
            stored.subscription.expiration_s = record.expiration_s or 0
            stored.subscription.state = _shortened(record.state)
            if record.target is not None:
                stored.subscription.target.SetInParent()
                if record.target.time_ns is not None:
                    stored.subscription.target.time_ns = record.target.time_ns
                if record.target.snapshot is not None:
                    stored.subscription.target.snapshot = record.target.snapshot
            if record.options != NO_SUBSCRIPTION_OPTIONS:
                fill_subscription_options(stored.subscription.options, record.options)
            _fill_author(stored.subscription.delivery_author, record.delivery_author)
            _fill_author(stored.subscription.letter_author, record.letter_author)
            _fill_author(stored.subscription.transform_author, record.transform_author)
        case Snapshot():
            _copy(stored.snapshot, record, _SNAPSHOT_FIELDS)
            stored.snapshot.status = _shortened(record.status)
            if record.generation is not None:
                stored.snapshot.generation = record.generation
        case Setting():
            stored.setting.SetInParent()
            _copy(stored.setting, record, ("name", "value"))


def _read(stored: Any) -> Record:
    kind = stored.WhichOneof("kind")
    if kind == "topic":
        found = stored.topic
        schema = TopicSchema(**_values(found.schema, TopicSchema._fields)) if found.HasField("schema") else None
        return Topic(
            **_values(found, _TOPIC_FIELDS),
            regions=tuple(found.regions),
            schema=schema,
            options=topic_options_of(found.options) if found.HasField("options") else NO_TOPIC_OPTIONS,
            records_author=_author(found, "records_author"),
            transform_author=_author(found, "transform_author"),
        )
    if kind == "subscription":
        found = stored.subscription
        return Subscription(
            **_values(found, _SUBSCRIPTION_FIELDS),
            dead_letter=DeadLetter(found.dead_letter_topic, found.dead_letter_attempts)
            if found.dead_letter_topic
            else None,
            retry=Retry(found.retry_min_s, found.retry_max_s) if found.retry else None,
            expiration_s=found.expiration_s or None,
            state=found.state or ACTIVE,
            target=_target(found.target) if found.HasField("target") else None,
            options=subscription_options_of(found.options) if found.HasField("options") else NO_SUBSCRIPTION_OPTIONS,
            delivery_author=_author(found, "delivery_author"),
            letter_author=_author(found, "letter_author"),
            transform_author=_author(found, "transform_author"),
        )
    if kind == "snapshot":
        found = stored.snapshot
        generation = found.generation if found.HasField("generation") else None
        return Snapshot(**_values(found, _SNAPSHOT_FIELDS), status=found.status or ACTIVE, generation=generation)
    if kind == "setting":
        return Setting(stored.setting.name, stored.setting.value)
    raise ValueError("a catalog record of an unknown kind: written by a newer version?")


def _target(stored: Any) -> SeekTarget:
    return SeekTarget(
        stored.time_ns if stored.HasField("time_ns") else None,
        stored.snapshot if stored.HasField("snapshot") else None,
    )


def _fill_author(stored: Any, author: Author | None) -> None:
    if author is not None:
        stored.principal = author.principal
        stored.groups.extend(author.groups)


def _author(stored: Any, field: str) -> Author | None:
    if not stored.HasField(field):
        return None
    author = getattr(stored, field)
    return Author(author.principal, tuple(author.groups))


def _shortened(state: str) -> str:
    """What is usual is not stored, so that records of one node stay as short, and as they were."""
    return "" if state == ACTIVE else state


_TOPIC_FIELDS = (
    "incarnation", "name", "config", "retention_s", "created_ns", "durability", "enforce_in_transit",
)  # fmt: skip
_SUBSCRIPTION_FIELDS = (
    "incarnation", "name", "topic_incarnation", "topic_name", "config", "created_ns", "ack_deadline_s", "retention_s",
    "retain_acked", "ordered", "exactly_once", "filter_text", "detached", "generation", "early_delivery",
    "created_revision", "changed_ns",
)  # fmt: skip
_SNAPSHOT_FIELDS = (
    "incarnation", "name", "topic_incarnation", "topic_name", "config", "created_ns", "expire_ns",
    "subscription",
)  # fmt: skip


def _copy(stored: Any, record: Record, fields: Sequence[str]) -> None:
    for name in fields:
        setattr(stored, name, getattr(record, name))


def _values(stored: Any, fields: Sequence[str]) -> dict[str, Any]:
    return {name: getattr(stored, name) for name in fields}

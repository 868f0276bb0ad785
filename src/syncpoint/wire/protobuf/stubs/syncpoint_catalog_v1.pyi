from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union
class Topic(_message.Message):
    incarnation: int
    name: str
    config: bytes
    retention_s: int
    created_ns: int
    durability: str
    regions: _containers.RepeatedScalarFieldContainer[str]
    enforce_in_transit: bool
    schema: TopicSchema
    options: TopicOptions
    records_author: Author
    transform_author: Author
    def __init__(self, incarnation: _Optional[int] = ..., name: _Optional[str] = ..., config: _Optional[bytes] = ..., retention_s: _Optional[int] = ..., created_ns: _Optional[int] = ..., durability: _Optional[str] = ..., regions: _Optional[_Iterable[str]] = ..., enforce_in_transit: _Optional[bool] = ..., schema: _Optional[_Union[TopicSchema, _Mapping]] = ..., options: _Optional[_Union[TopicOptions, _Mapping]] = ..., records_author: _Optional[_Union[Author, _Mapping]] = ..., transform_author: _Optional[_Union[Author, _Mapping]] = ...) -> None: ...
class TopicOptions(_message.Message):
    queue: bool
    send_suspended: bool
    default_ttl_s: int
    duplicate_window_s: int
    records_topic: str
    writer: int
    def __init__(self, queue: _Optional[bool] = ..., send_suspended: _Optional[bool] = ..., default_ttl_s: _Optional[int] = ..., duplicate_window_s: _Optional[int] = ..., records_topic: _Optional[str] = ..., writer: _Optional[int] = ...) -> None: ...
class TopicSchema(_message.Message):
    name: str
    uid: int
    encoding: int
    first: int
    last: int
    def __init__(self, name: _Optional[str] = ..., uid: _Optional[int] = ..., encoding: _Optional[int] = ..., first: _Optional[int] = ..., last: _Optional[int] = ...) -> None: ...
class Subscription(_message.Message):
    incarnation: int
    name: str
    topic_incarnation: int
    topic_name: str
    config: bytes
    created_ns: int
    ack_deadline_s: int
    retention_s: int
    retain_acked: bool
    ordered: bool
    exactly_once: bool
    filter_text: str
    dead_letter_topic: str
    dead_letter_attempts: int
    retry: bool
    retry_min_s: float
    retry_max_s: float
    detached: bool
    generation: int
    early_delivery: bool
    expiration_s: int
    state: str
    created_revision: int
    target: SeekTarget
    changed_ns: int
    options: SubscriptionOptions
    delivery_author: Author
    letter_author: Author
    transform_author: Author
    def __init__(self, incarnation: _Optional[int] = ..., name: _Optional[str] = ..., topic_incarnation: _Optional[int] = ..., topic_name: _Optional[str] = ..., config: _Optional[bytes] = ..., created_ns: _Optional[int] = ..., ack_deadline_s: _Optional[int] = ..., retention_s: _Optional[int] = ..., retain_acked: _Optional[bool] = ..., ordered: _Optional[bool] = ..., exactly_once: _Optional[bool] = ..., filter_text: _Optional[str] = ..., dead_letter_topic: _Optional[str] = ..., dead_letter_attempts: _Optional[int] = ..., retry: _Optional[bool] = ..., retry_min_s: _Optional[float] = ..., retry_max_s: _Optional[float] = ..., detached: _Optional[bool] = ..., generation: _Optional[int] = ..., early_delivery: _Optional[bool] = ..., expiration_s: _Optional[int] = ..., state: _Optional[str] = ..., created_revision: _Optional[int] = ..., target: _Optional[_Union[SeekTarget, _Mapping]] = ..., changed_ns: _Optional[int] = ..., options: _Optional[_Union[SubscriptionOptions, _Mapping]] = ..., delivery_author: _Optional[_Union[Author, _Mapping]] = ..., letter_author: _Optional[_Union[Author, _Mapping]] = ..., transform_author: _Optional[_Union[Author, _Mapping]] = ...) -> None: ...
class Author(_message.Message):
    principal: str
    groups: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, principal: _Optional[str] = ..., groups: _Optional[_Iterable[str]] = ...) -> None: ...
class SubscriptionOptions(_message.Message):
    receive_suspended: bool
    ttl_s: int
    dead_letter_expired: bool
    dead_letter_rule_errors: bool
    lanes: _containers.RepeatedCompositeFieldContainer[RuleLane]
    next_lane: int
    forward_to: str
    keys_elsewhere: bytes
    drained: _containers.RepeatedScalarFieldContainer[int]
    rules: _containers.RepeatedCompositeFieldContainer[MessageRule]
    def __init__(self, receive_suspended: _Optional[bool] = ..., ttl_s: _Optional[int] = ..., dead_letter_expired: _Optional[bool] = ..., dead_letter_rule_errors: _Optional[bool] = ..., lanes: _Optional[_Iterable[_Union[RuleLane, _Mapping]]] = ..., next_lane: _Optional[int] = ..., forward_to: _Optional[str] = ..., keys_elsewhere: _Optional[bytes] = ..., drained: _Optional[_Iterable[int]] = ..., rules: _Optional[_Iterable[_Union[MessageRule, _Mapping]]] = ...) -> None: ...
class RuleLane(_message.Message):
    number: int
    rules: _containers.RepeatedCompositeFieldContainer[MessageRule]
    revision: int
    stopped: int
    dropped: int
    copy_of: _containers.RepeatedScalarFieldContainer[int]
    places: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, number: _Optional[int] = ..., rules: _Optional[_Iterable[_Union[MessageRule, _Mapping]]] = ..., revision: _Optional[int] = ..., stopped: _Optional[int] = ..., dropped: _Optional[int] = ..., copy_of: _Optional[_Iterable[int]] = ..., places: _Optional[_Iterable[int]] = ...) -> None: ...
class MessageRule(_message.Message):
    name: str
    sql: str
    correlation: _containers.RepeatedCompositeFieldContainer[CorrelationPair]
    action: str
    parameters: _containers.RepeatedCompositeFieldContainer[RuleParameter]
    def __init__(self, name: _Optional[str] = ..., sql: _Optional[str] = ..., correlation: _Optional[_Iterable[_Union[CorrelationPair, _Mapping]]] = ..., action: _Optional[str] = ..., parameters: _Optional[_Iterable[_Union[RuleParameter, _Mapping]]] = ...) -> None: ...
class CorrelationPair(_message.Message):
    name: str
    text: str
    def __init__(self, name: _Optional[str] = ..., text: _Optional[str] = ...) -> None: ...
class RuleParameter(_message.Message):
    name: str
    text: str
    integer: int
    number: float
    truth: bool
    def __init__(self, name: _Optional[str] = ..., text: _Optional[str] = ..., integer: _Optional[int] = ..., number: _Optional[float] = ..., truth: _Optional[bool] = ...) -> None: ...
class SeekTarget(_message.Message):
    time_ns: int
    snapshot: int
    def __init__(self, time_ns: _Optional[int] = ..., snapshot: _Optional[int] = ...) -> None: ...
class Snapshot(_message.Message):
    incarnation: int
    name: str
    topic_incarnation: int
    topic_name: str
    config: bytes
    created_ns: int
    expire_ns: int
    status: str
    subscription: int
    generation: int
    def __init__(self, incarnation: _Optional[int] = ..., name: _Optional[str] = ..., topic_incarnation: _Optional[int] = ..., topic_name: _Optional[str] = ..., config: _Optional[bytes] = ..., created_ns: _Optional[int] = ..., expire_ns: _Optional[int] = ..., status: _Optional[str] = ..., subscription: _Optional[int] = ..., generation: _Optional[int] = ...) -> None: ...
class Setting(_message.Message):
    name: str
    value: bytes
    def __init__(self, name: _Optional[str] = ..., value: _Optional[bytes] = ...) -> None: ...
class Schema(_message.Message):
    uid: int
    type: int
    revisions: _containers.RepeatedCompositeFieldContainer[SchemaRevision]
    last_number: int
    def __init__(self, uid: _Optional[int] = ..., type: _Optional[int] = ..., revisions: _Optional[_Iterable[_Union[SchemaRevision, _Mapping]]] = ..., last_number: _Optional[int] = ...) -> None: ...
class SchemaRevision(_message.Message):
    id: str
    number: int
    created_ns: int
    def __init__(self, id: _Optional[str] = ..., number: _Optional[int] = ..., created_ns: _Optional[int] = ...) -> None: ...
class SchemaDefinition(_message.Message):
    schema: bytes
    compiled: bytes
    def __init__(self, schema: _Optional[bytes] = ..., compiled: _Optional[bytes] = ...) -> None: ...
class Record(_message.Message):
    topic: Topic
    subscription: Subscription
    snapshot: Snapshot
    setting: Setting
    def __init__(self, topic: _Optional[_Union[Topic, _Mapping]] = ..., subscription: _Optional[_Union[Subscription, _Mapping]] = ..., snapshot: _Optional[_Union[Snapshot, _Mapping]] = ..., setting: _Optional[_Union[Setting, _Mapping]] = ...) -> None: ...
class Change(_message.Message):
    revision: int
    deleted: bool
    record: Record
    def __init__(self, revision: _Optional[int] = ..., deleted: _Optional[bool] = ..., record: _Optional[_Union[Record, _Mapping]] = ...) -> None: ...
class Changes(_message.Message):
    changes: _containers.RepeatedCompositeFieldContainer[Change]
    writer: str
    def __init__(self, changes: _Optional[_Iterable[_Union[Change, _Mapping]]] = ..., writer: _Optional[str] = ...) -> None: ...
class Header(_message.Message):
    revision: int
    incarnation: int
    records: int
    def __init__(self, revision: _Optional[int] = ..., incarnation: _Optional[int] = ..., records: _Optional[int] = ...) -> None: ...

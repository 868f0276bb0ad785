import datetime
from syncpoint.wire.protobuf.stubs import google_api
from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import empty_pb2 as _empty_pb2
from google.protobuf import field_mask_pb2 as _field_mask_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from syncpoint.wire.protobuf.stubs import google_pubsub_v1
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union
class Durability(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    DURABILITY_UNSPECIFIED: _ClassVar[Durability]
    SYNC: _ClassVar[Durability]
    ASYNC: _ClassVar[Durability]
    MEMORY: _ClassVar[Durability]
class RuleScope(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    RULE_SCOPE_UNSPECIFIED: _ClassVar[RuleScope]
    NEW_MESSAGES: _ClassVar[RuleScope]
    ALL_MESSAGES: _ClassVar[RuleScope]
DURABILITY_UNSPECIFIED: Durability
SYNC: Durability
ASYNC: Durability
MEMORY: Durability
RULE_SCOPE_UNSPECIFIED: RuleScope
NEW_MESSAGES: RuleScope
ALL_MESSAGES: RuleScope
class GetServerRequest(_message.Message):
    def __init__(self) -> None: ...
class Server(_message.Message):
    version: str
    universe: int
    log_counter: int
    start_time: _timestamp_pb2.Timestamp
    uptime: _duration_pb2.Duration
    durability: Durability
    compiled_kernel: bool
    appended_position: int
    persisted_position: int
    topics: int
    subscriptions: int
    snapshots: int
    under_replicated: int
    draining: bool
    catalog_copy_error: str
    def __init__(self, version: _Optional[str] = ..., universe: _Optional[int] = ..., log_counter: _Optional[int] = ..., start_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., uptime: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., durability: _Optional[_Union[Durability, int, str]] = ..., compiled_kernel: _Optional[bool] = ..., appended_position: _Optional[int] = ..., persisted_position: _Optional[int] = ..., topics: _Optional[int] = ..., subscriptions: _Optional[int] = ..., snapshots: _Optional[int] = ..., under_replicated: _Optional[int] = ..., draining: _Optional[bool] = ..., catalog_copy_error: _Optional[str] = ...) -> None: ...
class ListDisksRequest(_message.Message):
    def __init__(self) -> None: ...
class ListDisksResponse(_message.Message):
    disks: _containers.RepeatedCompositeFieldContainer[Disk]
    under_replicated: int
    unknown: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, disks: _Optional[_Iterable[_Union[Disk, _Mapping]]] = ..., under_replicated: _Optional[int] = ..., unknown: _Optional[_Iterable[str]] = ...) -> None: ...
class Disk(_message.Message):
    class State(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        STATE_UNSPECIFIED: _ClassVar[Disk.State]
        OK: _ClassVar[Disk.State]
        FAILED: _ClassVar[Disk.State]
        HEALING: _ClassVar[Disk.State]
        UNKNOWN: _ClassVar[Disk.State]
        AWAY: _ClassVar[Disk.State]
        DAMAGED: _ClassVar[Disk.State]
    STATE_UNSPECIFIED: Disk.State
    OK: Disk.State
    FAILED: Disk.State
    HEALING: Disk.State
    UNKNOWN: Disk.State
    AWAY: Disk.State
    DAMAGED: Disk.State
    path: str
    state: Disk.State
    reason: str
    incarnation: str
    free_bytes: int
    position: int
    under_replicated: int
    chains: _containers.RepeatedCompositeFieldContainer[DiskChain]
    damaged: int
    def __init__(self, path: _Optional[str] = ..., state: _Optional[_Union[Disk.State, int, str]] = ..., reason: _Optional[str] = ..., incarnation: _Optional[str] = ..., free_bytes: _Optional[int] = ..., position: _Optional[int] = ..., under_replicated: _Optional[int] = ..., chains: _Optional[_Iterable[_Union[DiskChain, _Mapping]]] = ..., damaged: _Optional[int] = ...) -> None: ...
class DiskChain(_message.Message):
    chain: int
    state: Disk.State
    reason: str
    position: int
    under_replicated: int
    incarnation: str
    def __init__(self, chain: _Optional[int] = ..., state: _Optional[_Union[Disk.State, int, str]] = ..., reason: _Optional[str] = ..., position: _Optional[int] = ..., under_replicated: _Optional[int] = ..., incarnation: _Optional[str] = ...) -> None: ...
class FlowLimit(_message.Message):
    messages: int
    bytes: int
    def __init__(self, messages: _Optional[int] = ..., bytes: _Optional[int] = ...) -> None: ...
class Limits(_message.Message):
    class TopicsEntry(_message.Message):
        key: str
        value: FlowLimit
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[FlowLimit, _Mapping]] = ...) -> None: ...
    class SubscriptionsEntry(_message.Message):
        key: str
        value: FlowLimit
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[FlowLimit, _Mapping]] = ...) -> None: ...
    system: FlowLimit
    topic: FlowLimit
    subscriber: FlowLimit
    topics: _containers.MessageMap[str, FlowLimit]
    subscriptions: _containers.MessageMap[str, FlowLimit]
    def __init__(self, system: _Optional[_Union[FlowLimit, _Mapping]] = ..., topic: _Optional[_Union[FlowLimit, _Mapping]] = ..., subscriber: _Optional[_Union[FlowLimit, _Mapping]] = ..., topics: _Optional[_Mapping[str, FlowLimit]] = ..., subscriptions: _Optional[_Mapping[str, FlowLimit]] = ...) -> None: ...
class GetLimitsRequest(_message.Message):
    def __init__(self) -> None: ...
class UpdateLimitsRequest(_message.Message):
    limits: Limits
    update_mask: _field_mask_pb2.FieldMask
    def __init__(self, limits: _Optional[_Union[Limits, _Mapping]] = ..., update_mask: _Optional[_Union[_field_mask_pb2.FieldMask, _Mapping]] = ...) -> None: ...
class SourceState(_message.Message):
    source: int
    log_counter: int
    source_number: int
    first_offset: int
    next_offset: int
    chain: int
    def __init__(self, source: _Optional[int] = ..., log_counter: _Optional[int] = ..., source_number: _Optional[int] = ..., first_offset: _Optional[int] = ..., next_offset: _Optional[int] = ..., chain: _Optional[int] = ...) -> None: ...
class GetTopicStateRequest(_message.Message):
    topic: str
    def __init__(self, topic: _Optional[str] = ...) -> None: ...
class TopicState(_message.Message):
    topic: str
    incarnation: int
    sources: _containers.RepeatedCompositeFieldContainer[SourceState]
    subscriptions: int
    snapshots: int
    unknown: _containers.RepeatedScalarFieldContainer[str]
    records_advice: str
    transform_advice: str
    def __init__(self, topic: _Optional[str] = ..., incarnation: _Optional[int] = ..., sources: _Optional[_Iterable[_Union[SourceState, _Mapping]]] = ..., subscriptions: _Optional[int] = ..., snapshots: _Optional[int] = ..., unknown: _Optional[_Iterable[str]] = ..., records_advice: _Optional[str] = ..., transform_advice: _Optional[str] = ...) -> None: ...
class OffsetRange(_message.Message):
    begin: int
    end: int
    def __init__(self, begin: _Optional[int] = ..., end: _Optional[int] = ...) -> None: ...
class AckState(_message.Message):
    source: int
    start_offset: int
    first_unacked_offset: int
    next_offset: int
    acked_messages: int
    acked: _containers.RepeatedCompositeFieldContainer[OffsetRange]
    ranges_total: int
    chain: int
    universe: int
    copies: int
    def __init__(self, source: _Optional[int] = ..., start_offset: _Optional[int] = ..., first_unacked_offset: _Optional[int] = ..., next_offset: _Optional[int] = ..., acked_messages: _Optional[int] = ..., acked: _Optional[_Iterable[_Union[OffsetRange, _Mapping]]] = ..., ranges_total: _Optional[int] = ..., chain: _Optional[int] = ..., universe: _Optional[int] = ..., copies: _Optional[int] = ...) -> None: ...
class GetSubscriptionStateRequest(_message.Message):
    subscription: str
    ranges_max: int
    def __init__(self, subscription: _Optional[str] = ..., ranges_max: _Optional[int] = ...) -> None: ...
class SubscriptionState(_message.Message):
    subscription: str
    incarnation: int
    backlog_messages: int
    backlog_bytes: int
    oldest_unacked_age: _duration_pb2.Duration
    outstanding_messages: int
    outstanding_bytes: int
    subscribers: int
    generation: int
    sources: _containers.RepeatedCompositeFieldContainer[AckState]
    options: SubscriptionOptions
    unknown: _containers.RepeatedScalarFieldContainer[str]
    push: PushState
    export: ExportState
    dead_letter_advice: str
    forward: ForwardState
    delivery_advice: str
    transform_advice: str
    home: str
    leaving_messages: int
    def __init__(self, subscription: _Optional[str] = ..., incarnation: _Optional[int] = ..., backlog_messages: _Optional[int] = ..., backlog_bytes: _Optional[int] = ..., oldest_unacked_age: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., outstanding_messages: _Optional[int] = ..., outstanding_bytes: _Optional[int] = ..., subscribers: _Optional[int] = ..., generation: _Optional[int] = ..., sources: _Optional[_Iterable[_Union[AckState, _Mapping]]] = ..., options: _Optional[_Union[SubscriptionOptions, _Mapping]] = ..., unknown: _Optional[_Iterable[str]] = ..., push: _Optional[_Union[PushState, _Mapping]] = ..., export: _Optional[_Union[ExportState, _Mapping]] = ..., dead_letter_advice: _Optional[str] = ..., forward: _Optional[_Union[ForwardState, _Mapping]] = ..., delivery_advice: _Optional[str] = ..., transform_advice: _Optional[str] = ..., home: _Optional[str] = ..., leaving_messages: _Optional[int] = ...) -> None: ...
class ListSubscriptionClientsRequest(_message.Message):
    subscription: str
    def __init__(self, subscription: _Optional[str] = ...) -> None: ...
class ListSubscriptionClientsResponse(_message.Message):
    clients: _containers.RepeatedCompositeFieldContainer[ConnectedClient]
    more: int
    unknown: _containers.RepeatedScalarFieldContainer[str]
    addresses_hidden: bool
    def __init__(self, clients: _Optional[_Iterable[_Union[ConnectedClient, _Mapping]]] = ..., more: _Optional[int] = ..., unknown: _Optional[_Iterable[str]] = ..., addresses_hidden: _Optional[bool] = ...) -> None: ...
class ListTopicPublishersRequest(_message.Message):
    topic: str
    def __init__(self, topic: _Optional[str] = ...) -> None: ...
class ListTopicPublishersResponse(_message.Message):
    publishers: _containers.RepeatedCompositeFieldContainer[ConnectedClient]
    more: int
    unknown: _containers.RepeatedScalarFieldContainer[str]
    addresses_hidden: bool
    def __init__(self, publishers: _Optional[_Iterable[_Union[ConnectedClient, _Mapping]]] = ..., more: _Optional[int] = ..., unknown: _Optional[_Iterable[str]] = ..., addresses_hidden: _Optional[bool] = ...) -> None: ...
class ConnectedClient(_message.Message):
    class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        KIND_UNSPECIFIED: _ClassVar[ConnectedClient.Kind]
        STREAM: _ClassVar[ConnectedClient.Kind]
        PULL: _ClassVar[ConnectedClient.Kind]
        PUBLISHER: _ClassVar[ConnectedClient.Kind]
    KIND_UNSPECIFIED: ConnectedClient.Kind
    STREAM: ConnectedClient.Kind
    PULL: ConnectedClient.Kind
    PUBLISHER: ConnectedClient.Kind
    kind: ConnectedClient.Kind
    process: str
    peer: str
    principal: str
    user_agent: str
    api_client: str
    client_id: str
    connect_time: _timestamp_pb2.Timestamp
    last_call_time: _timestamp_pb2.Timestamp
    max_outstanding_messages: int
    max_outstanding_bytes: int
    outstanding_messages: int
    outstanding_bytes: int
    def __init__(self, kind: _Optional[_Union[ConnectedClient.Kind, int, str]] = ..., process: _Optional[str] = ..., peer: _Optional[str] = ..., principal: _Optional[str] = ..., user_agent: _Optional[str] = ..., api_client: _Optional[str] = ..., client_id: _Optional[str] = ..., connect_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., last_call_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., max_outstanding_messages: _Optional[int] = ..., max_outstanding_bytes: _Optional[int] = ..., outstanding_messages: _Optional[int] = ..., outstanding_bytes: _Optional[int] = ...) -> None: ...
class PushState(_message.Message):
    endpoint: str
    pushed_by: str
    window: int
    under_way: int
    pause: _duration_pb2.Duration
    acknowledged: int
    refused: int
    last_status: int
    last_error: str
    def __init__(self, endpoint: _Optional[str] = ..., pushed_by: _Optional[str] = ..., window: _Optional[int] = ..., under_way: _Optional[int] = ..., pause: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., acknowledged: _Optional[int] = ..., refused: _Optional[int] = ..., last_status: _Optional[int] = ..., last_error: _Optional[str] = ...) -> None: ...
class ExportState(_message.Message):
    bucket: str
    exported_by: str
    state: str
    advice: str
    files: int
    acknowledged: int
    refused: int
    held: int
    last_error: str
    def __init__(self, bucket: _Optional[str] = ..., exported_by: _Optional[str] = ..., state: _Optional[str] = ..., advice: _Optional[str] = ..., files: _Optional[int] = ..., acknowledged: _Optional[int] = ..., refused: _Optional[int] = ..., held: _Optional[int] = ..., last_error: _Optional[str] = ...) -> None: ...
class ForwardState(_message.Message):
    topic: str
    forwarded_by: str
    forwarded: int
    given_up: int
    kept: int
    held: int
    last_error: str
    def __init__(self, topic: _Optional[str] = ..., forwarded_by: _Optional[str] = ..., forwarded: _Optional[int] = ..., given_up: _Optional[int] = ..., kept: _Optional[int] = ..., held: _Optional[int] = ..., last_error: _Optional[str] = ...) -> None: ...
class SubscriptionOptions(_message.Message):
    subscription: str
    early_delivery: bool
    ttl: _duration_pb2.Duration
    dead_letter_expired: bool
    dead_letter_rule_errors: bool
    receive_suspended: bool
    forward_to: str
    delivery_author: str
    letter_author: str
    transform_author: str
    def __init__(self, subscription: _Optional[str] = ..., early_delivery: _Optional[bool] = ..., ttl: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., dead_letter_expired: _Optional[bool] = ..., dead_letter_rule_errors: _Optional[bool] = ..., receive_suspended: _Optional[bool] = ..., forward_to: _Optional[str] = ..., delivery_author: _Optional[str] = ..., letter_author: _Optional[str] = ..., transform_author: _Optional[str] = ...) -> None: ...
class GetSubscriptionOptionsRequest(_message.Message):
    subscription: str
    def __init__(self, subscription: _Optional[str] = ...) -> None: ...
class UpdateSubscriptionOptionsRequest(_message.Message):
    options: SubscriptionOptions
    update_mask: _field_mask_pb2.FieldMask
    def __init__(self, options: _Optional[_Union[SubscriptionOptions, _Mapping]] = ..., update_mask: _Optional[_Union[_field_mask_pb2.FieldMask, _Mapping]] = ...) -> None: ...
class ListMembersRequest(_message.Message):
    def __init__(self) -> None: ...
class ListMembersResponse(_message.Message):
    members: _containers.RepeatedCompositeFieldContainer[Member]
    def __init__(self, members: _Optional[_Iterable[_Union[Member, _Mapping]]] = ...) -> None: ...
class Member(_message.Message):
    name: str
    roles: _containers.RepeatedScalarFieldContainer[str]
    address: str
    incarnation: str
    region: str
    zone: str
    rack: str
    cluster: str
    disks: _containers.RepeatedScalarFieldContainer[str]
    version: str
    draining: bool
    connections: int
    messages_per_second: float
    bytes_per_second: float
    chains: int
    weight: float
    def __init__(self, name: _Optional[str] = ..., roles: _Optional[_Iterable[str]] = ..., address: _Optional[str] = ..., incarnation: _Optional[str] = ..., region: _Optional[str] = ..., zone: _Optional[str] = ..., rack: _Optional[str] = ..., cluster: _Optional[str] = ..., disks: _Optional[_Iterable[str]] = ..., version: _Optional[str] = ..., draining: _Optional[bool] = ..., connections: _Optional[int] = ..., messages_per_second: _Optional[float] = ..., bytes_per_second: _Optional[float] = ..., chains: _Optional[int] = ..., weight: _Optional[float] = ...) -> None: ...
class ListChainsRequest(_message.Message):
    def __init__(self) -> None: ...
class ListChainsResponse(_message.Message):
    chains: _containers.RepeatedCompositeFieldContainer[Chain]
    def __init__(self, chains: _Optional[_Iterable[_Union[Chain, _Mapping]]] = ...) -> None: ...
class Chain(_message.Message):
    number: int
    name: str
    durability_class: str
    region: str
    home: str
    owner: str
    epoch: int
    disks: _containers.RepeatedCompositeFieldContainer[ChainDisk]
    below_policy: bool
    def __init__(self, number: _Optional[int] = ..., name: _Optional[str] = ..., durability_class: _Optional[str] = ..., region: _Optional[str] = ..., home: _Optional[str] = ..., owner: _Optional[str] = ..., epoch: _Optional[int] = ..., disks: _Optional[_Iterable[_Union[ChainDisk, _Mapping]]] = ..., below_policy: _Optional[bool] = ...) -> None: ...
class ChainDisk(_message.Message):
    cluster: str
    disk: str
    process: str
    rack: str
    zone: str
    def __init__(self, cluster: _Optional[str] = ..., disk: _Optional[str] = ..., process: _Optional[str] = ..., rack: _Optional[str] = ..., zone: _Optional[str] = ...) -> None: ...
class DurabilityClass(_message.Message):
    name: str
    clusters: int
    disks: int
    within: str
    over: str
    durability: Durability
    placement: str
    racks_min: int
    spans_regions: bool
    def __init__(self, name: _Optional[str] = ..., clusters: _Optional[int] = ..., disks: _Optional[int] = ..., within: _Optional[str] = ..., over: _Optional[str] = ..., durability: _Optional[_Union[Durability, int, str]] = ..., placement: _Optional[str] = ..., racks_min: _Optional[int] = ..., spans_regions: _Optional[bool] = ...) -> None: ...
class ListDurabilityClassesRequest(_message.Message):
    def __init__(self) -> None: ...
class ListDurabilityClassesResponse(_message.Message):
    durability_classes: _containers.RepeatedCompositeFieldContainer[DurabilityClass]
    def __init__(self, durability_classes: _Optional[_Iterable[_Union[DurabilityClass, _Mapping]]] = ...) -> None: ...
class CreateDurabilityClassRequest(_message.Message):
    durability_class: DurabilityClass
    validate_only: bool
    def __init__(self, durability_class: _Optional[_Union[DurabilityClass, _Mapping]] = ..., validate_only: _Optional[bool] = ...) -> None: ...
class TopicOptions(_message.Message):
    topic: str
    durability_class: str
    default_ttl: _duration_pb2.Duration
    duplicate_detection_window: _duration_pb2.Duration
    queue: bool
    send_suspended: bool
    records_topic: str
    records_author: str
    transform_author: str
    writer: str
    def __init__(self, topic: _Optional[str] = ..., durability_class: _Optional[str] = ..., default_ttl: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., duplicate_detection_window: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., queue: _Optional[bool] = ..., send_suspended: _Optional[bool] = ..., records_topic: _Optional[str] = ..., records_author: _Optional[str] = ..., transform_author: _Optional[str] = ..., writer: _Optional[str] = ...) -> None: ...
class GetTopicOptionsRequest(_message.Message):
    topic: str
    def __init__(self, topic: _Optional[str] = ...) -> None: ...
class UpdateTopicOptionsRequest(_message.Message):
    options: TopicOptions
    update_mask: _field_mask_pb2.FieldMask
    validate_only: bool
    def __init__(self, options: _Optional[_Union[TopicOptions, _Mapping]] = ..., update_mask: _Optional[_Union[_field_mask_pb2.FieldMask, _Mapping]] = ..., validate_only: _Optional[bool] = ...) -> None: ...
class Queue(_message.Message):
    topic: google_pubsub_v1.Topic
    subscription: google_pubsub_v1.Subscription
    send_suspended: bool
    receive_suspended: bool
    def __init__(self, topic: _Optional[_Union[google_pubsub_v1.Topic, _Mapping]] = ..., subscription: _Optional[_Union[google_pubsub_v1.Subscription, _Mapping]] = ..., send_suspended: _Optional[bool] = ..., receive_suspended: _Optional[bool] = ...) -> None: ...
class CreateQueueRequest(_message.Message):
    topic: google_pubsub_v1.Topic
    subscription: google_pubsub_v1.Subscription
    def __init__(self, topic: _Optional[_Union[google_pubsub_v1.Topic, _Mapping]] = ..., subscription: _Optional[_Union[google_pubsub_v1.Subscription, _Mapping]] = ...) -> None: ...
class GetQueueRequest(_message.Message):
    topic: str
    def __init__(self, topic: _Optional[str] = ...) -> None: ...
class ListQueuesRequest(_message.Message):
    project: str
    page_size: int
    page_token: str
    def __init__(self, project: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...
class ListQueuesResponse(_message.Message):
    queues: _containers.RepeatedCompositeFieldContainer[Queue]
    next_page_token: str
    def __init__(self, queues: _Optional[_Iterable[_Union[Queue, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...
class DeleteQueueRequest(_message.Message):
    topic: str
    def __init__(self, topic: _Optional[str] = ...) -> None: ...
class DeleteQueueResponse(_message.Message):
    def __init__(self) -> None: ...
class PeekTopicRequest(_message.Message):
    topic: str
    start_time: _timestamp_pb2.Timestamp
    start_offset: int
    message_id: str
    filter: str
    ordering_key: str
    page_size: int
    page_token: str
    def __init__(self, topic: _Optional[str] = ..., start_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., start_offset: _Optional[int] = ..., message_id: _Optional[str] = ..., filter: _Optional[str] = ..., ordering_key: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...
class PeekSubscriptionRequest(_message.Message):
    subscription: str
    start_time: _timestamp_pb2.Timestamp
    filter: str
    ordering_key: str
    page_size: int
    page_token: str
    def __init__(self, subscription: _Optional[str] = ..., start_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., filter: _Optional[str] = ..., ordering_key: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...
class GetMitigationRequest(_message.Message):
    def __init__(self) -> None: ...
class PauseMitigationRequest(_message.Message):
    comment: str
    def __init__(self, comment: _Optional[str] = ...) -> None: ...
class ResumeMitigationRequest(_message.Message):
    def __init__(self) -> None: ...
class Mitigation(_message.Message):
    mode: str
    paused: bool
    processes: _containers.RepeatedCompositeFieldContainer[ProcessVerdict]
    records: _containers.RepeatedCompositeFieldContainer[MitigationRecord]
    def __init__(self, mode: _Optional[str] = ..., paused: _Optional[bool] = ..., processes: _Optional[_Iterable[_Union[ProcessVerdict, _Mapping]]] = ..., records: _Optional[_Iterable[_Union[MitigationRecord, _Mapping]]] = ...) -> None: ...
class ProcessVerdict(_message.Message):
    name: str
    verdict: str
    def __init__(self, name: _Optional[str] = ..., verdict: _Optional[str] = ...) -> None: ...
class MitigationRecord(_message.Message):
    time: _timestamp_pb2.Timestamp
    action: str
    process: str
    reason: str
    outcome: str
    def __init__(self, time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., action: _Optional[str] = ..., process: _Optional[str] = ..., reason: _Optional[str] = ..., outcome: _Optional[str] = ...) -> None: ...
class GetHeadroomRequest(_message.Message):
    def __init__(self) -> None: ...
class Headroom(_message.Message):
    rows: _containers.RepeatedCompositeFieldContainer[RoleHeadroom]
    busy_max: float
    def __init__(self, rows: _Optional[_Iterable[_Union[RoleHeadroom, _Mapping]]] = ..., busy_max: _Optional[float] = ...) -> None: ...
class RoleHeadroom(_message.Message):
    domain: str
    role: str
    members: int
    left: int
    busy: float
    busy_after: float
    short: bool
    unknown: int
    def __init__(self, domain: _Optional[str] = ..., role: _Optional[str] = ..., members: _Optional[int] = ..., left: _Optional[int] = ..., busy: _Optional[float] = ..., busy_after: _Optional[float] = ..., short: _Optional[bool] = ..., unknown: _Optional[int] = ...) -> None: ...
class GetAtRiskRequest(_message.Message):
    disks: _containers.RepeatedScalarFieldContainer[str]
    processes: _containers.RepeatedScalarFieldContainer[str]
    clusters: _containers.RepeatedScalarFieldContainer[str]
    zones: _containers.RepeatedScalarFieldContainer[str]
    regions: _containers.RepeatedScalarFieldContainer[str]
    ranges_max: int
    def __init__(self, disks: _Optional[_Iterable[str]] = ..., processes: _Optional[_Iterable[str]] = ..., clusters: _Optional[_Iterable[str]] = ..., zones: _Optional[_Iterable[str]] = ..., regions: _Optional[_Iterable[str]] = ..., ranges_max: _Optional[int] = ...) -> None: ...
class AtRisk(_message.Message):
    failures: _containers.RepeatedCompositeFieldContainer[Failure]
    unknown: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, failures: _Optional[_Iterable[_Union[Failure, _Mapping]]] = ..., unknown: _Optional[_Iterable[str]] = ...) -> None: ...
class Failure(_message.Message):
    class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        KIND_UNSPECIFIED: _ClassVar[Failure.Kind]
        DISK: _ClassVar[Failure.Kind]
        PROCESS: _ClassVar[Failure.Kind]
        CLUSTER: _ClassVar[Failure.Kind]
        ZONE: _ClassVar[Failure.Kind]
        REGION: _ClassVar[Failure.Kind]
        SEVERAL: _ClassVar[Failure.Kind]
    KIND_UNSPECIFIED: Failure.Kind
    DISK: Failure.Kind
    PROCESS: Failure.Kind
    CLUSTER: Failure.Kind
    ZONE: Failure.Kind
    REGION: Failure.Kind
    SEVERAL: Failure.Kind
    kind: Failure.Kind
    name: str
    lost: RiskCount
    unavailable: RiskCount
    twice: RiskCount
    topics: _containers.RepeatedCompositeFieldContainer[TopicRisk]
    stopped: _containers.RepeatedScalarFieldContainer[str]
    facts: int
    def __init__(self, kind: _Optional[_Union[Failure.Kind, int, str]] = ..., name: _Optional[str] = ..., lost: _Optional[_Union[RiskCount, _Mapping]] = ..., unavailable: _Optional[_Union[RiskCount, _Mapping]] = ..., twice: _Optional[_Union[RiskCount, _Mapping]] = ..., topics: _Optional[_Iterable[_Union[TopicRisk, _Mapping]]] = ..., stopped: _Optional[_Iterable[str]] = ..., facts: _Optional[int] = ...) -> None: ...
class RiskCount(_message.Message):
    messages: int
    bytes: int
    oldest_publish_time: _timestamp_pb2.Timestamp
    ranges: _containers.RepeatedCompositeFieldContainer[RiskRange]
    ranges_total: int
    def __init__(self, messages: _Optional[int] = ..., bytes: _Optional[int] = ..., oldest_publish_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., ranges: _Optional[_Iterable[_Union[RiskRange, _Mapping]]] = ..., ranges_total: _Optional[int] = ...) -> None: ...
class RiskRange(_message.Message):
    chain: int
    source: int
    first_offset: int
    last_offset: int
    subscription: str
    def __init__(self, chain: _Optional[int] = ..., source: _Optional[int] = ..., first_offset: _Optional[int] = ..., last_offset: _Optional[int] = ..., subscription: _Optional[str] = ...) -> None: ...
class TopicRisk(_message.Message):
    topic: str
    lost: RiskCount
    unavailable: RiskCount
    twice: RiskCount
    def __init__(self, topic: _Optional[str] = ..., lost: _Optional[_Union[RiskCount, _Mapping]] = ..., unavailable: _Optional[_Union[RiskCount, _Mapping]] = ..., twice: _Optional[_Union[RiskCount, _Mapping]] = ...) -> None: ...
class GetReceiptRequest(_message.Message):
    topic: str
    message_id: str
    place: ReceiptPlace
    sign: bool
    def __init__(self, topic: _Optional[str] = ..., message_id: _Optional[str] = ..., place: _Optional[_Union[ReceiptPlace, _Mapping]] = ..., sign: _Optional[bool] = ...) -> None: ...
class ReceiptPlace(_message.Message):
    source: int
    offset: int
    def __init__(self, source: _Optional[int] = ..., offset: _Optional[int] = ...) -> None: ...
class ListReceiptKeysRequest(_message.Message):
    def __init__(self) -> None: ...
class ReceiptKeys(_message.Message):
    jwks: str
    def __init__(self, jwks: _Optional[str] = ...) -> None: ...
class Receipt(_message.Message):
    message_id: str
    publish_time: _timestamp_pb2.Timestamp
    chain: int
    log: int
    position: int
    entry_bytes: int
    suffices: bool
    needed: int
    copies: _containers.RepeatedCompositeFieldContainer[DiskCopy]
    signed: str
    def __init__(self, message_id: _Optional[str] = ..., publish_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., chain: _Optional[int] = ..., log: _Optional[int] = ..., position: _Optional[int] = ..., entry_bytes: _Optional[int] = ..., suffices: _Optional[bool] = ..., needed: _Optional[int] = ..., copies: _Optional[_Iterable[_Union[DiskCopy, _Mapping]]] = ..., signed: _Optional[str] = ...) -> None: ...
class DiskCopy(_message.Message):
    class State(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        STATE_UNSPECIFIED: _ClassVar[DiskCopy.State]
        HELD: _ClassVar[DiskCopy.State]
        LATE: _ClassVar[DiskCopy.State]
        DAMAGED: _ClassVar[DiskCopy.State]
        UNREACHABLE: _ClassVar[DiskCopy.State]
        ABSENT: _ClassVar[DiskCopy.State]
    STATE_UNSPECIFIED: DiskCopy.State
    HELD: DiskCopy.State
    LATE: DiskCopy.State
    DAMAGED: DiskCopy.State
    UNREACHABLE: DiskCopy.State
    ABSENT: DiskCopy.State
    disk: str
    state: DiskCopy.State
    reason: str
    def __init__(self, disk: _Optional[str] = ..., state: _Optional[_Union[DiskCopy.State, int, str]] = ..., reason: _Optional[str] = ...) -> None: ...
class PeekResponse(_message.Message):
    messages: _containers.RepeatedCompositeFieldContainer[PeekedMessage]
    next_page_token: str
    unknown: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, messages: _Optional[_Iterable[_Union[PeekedMessage, _Mapping]]] = ..., next_page_token: _Optional[str] = ..., unknown: _Optional[_Iterable[str]] = ...) -> None: ...
class PreviewSeekRequest(_message.Message):
    subscription: str
    time: _timestamp_pb2.Timestamp
    snapshot: str
    def __init__(self, subscription: _Optional[str] = ..., time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., snapshot: _Optional[str] = ...) -> None: ...
class SeekPreview(_message.Message):
    backlog_messages: int
    returning_messages: int
    acknowledged_messages: int
    unknown: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, backlog_messages: _Optional[int] = ..., returning_messages: _Optional[int] = ..., acknowledged_messages: _Optional[int] = ..., unknown: _Optional[_Iterable[str]] = ...) -> None: ...
class PeekedMessage(_message.Message):
    message: google_pubsub_v1.PubsubMessage
    source: int
    offset: int
    chain: int
    def __init__(self, message: _Optional[_Union[google_pubsub_v1.PubsubMessage, _Mapping]] = ..., source: _Optional[int] = ..., offset: _Optional[int] = ..., chain: _Optional[int] = ...) -> None: ...
class Constraint(_message.Message):
    class Action(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        ACTION_UNSPECIFIED: _ClassVar[Constraint.Action]
        ALLOW: _ClassVar[Constraint.Action]
        DENY: _ClassVar[Constraint.Action]
    ACTION_UNSPECIFIED: Constraint.Action
    ALLOW: Constraint.Action
    DENY: Constraint.Action
    name: str
    action: Constraint.Action
    clients: str
    forwarders: str
    topics: str
    priority: int
    comment: str
    create_time: _timestamp_pb2.Timestamp
    def __init__(self, name: _Optional[str] = ..., action: _Optional[_Union[Constraint.Action, int, str]] = ..., clients: _Optional[str] = ..., forwarders: _Optional[str] = ..., topics: _Optional[str] = ..., priority: _Optional[int] = ..., comment: _Optional[str] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...
class CreateConstraintRequest(_message.Message):
    constraint: Constraint
    def __init__(self, constraint: _Optional[_Union[Constraint, _Mapping]] = ...) -> None: ...
class ListConstraintsRequest(_message.Message):
    def __init__(self) -> None: ...
class ListConstraintsResponse(_message.Message):
    constraints: _containers.RepeatedCompositeFieldContainer[Constraint]
    def __init__(self, constraints: _Optional[_Iterable[_Union[Constraint, _Mapping]]] = ...) -> None: ...
class DeleteConstraintRequest(_message.Message):
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...
class DeleteConstraintResponse(_message.Message):
    def __init__(self) -> None: ...
class TestConstraintRequest(_message.Message):
    constraint: Constraint
    def __init__(self, constraint: _Optional[_Union[Constraint, _Mapping]] = ...) -> None: ...
class TestConstraintResponse(_message.Message):
    refusal: str
    clients: _containers.RepeatedScalarFieldContainer[str]
    forwarders: _containers.RepeatedScalarFieldContainer[str]
    topics: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, refusal: _Optional[str] = ..., clients: _Optional[_Iterable[str]] = ..., forwarders: _Optional[_Iterable[str]] = ..., topics: _Optional[_Iterable[str]] = ...) -> None: ...
class DrainRequest(_message.Message):
    target: str
    comment: str
    def __init__(self, target: _Optional[str] = ..., comment: _Optional[str] = ...) -> None: ...
class GetDrainRequest(_message.Message):
    target: str
    def __init__(self, target: _Optional[str] = ...) -> None: ...
class ListDrainsRequest(_message.Message):
    def __init__(self) -> None: ...
class ListDrainsResponse(_message.Message):
    drains: _containers.RepeatedCompositeFieldContainer[DrainState]
    def __init__(self, drains: _Optional[_Iterable[_Union[DrainState, _Mapping]]] = ...) -> None: ...
class UndrainRequest(_message.Message):
    target: str
    def __init__(self, target: _Optional[str] = ...) -> None: ...
class DrainState(_message.Message):
    target: str
    draining: bool
    members: _containers.RepeatedScalarFieldContainer[str]
    connections: int
    chains: int
    comment: str
    create_time: _timestamp_pb2.Timestamp
    def __init__(self, target: _Optional[str] = ..., draining: _Optional[bool] = ..., members: _Optional[_Iterable[str]] = ..., connections: _Optional[int] = ..., chains: _Optional[int] = ..., comment: _Optional[str] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...
class Rule(_message.Message):
    class ParametersEntry(_message.Message):
        key: str
        value: RuleParameter
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[RuleParameter, _Mapping]] = ...) -> None: ...
    name: str
    sql: str
    correlation: CorrelationFilter
    action: str
    parameters: _containers.MessageMap[str, RuleParameter]
    def __init__(self, name: _Optional[str] = ..., sql: _Optional[str] = ..., correlation: _Optional[_Union[CorrelationFilter, _Mapping]] = ..., action: _Optional[str] = ..., parameters: _Optional[_Mapping[str, RuleParameter]] = ...) -> None: ...
class CorrelationFilter(_message.Message):
    class PropertiesEntry(_message.Message):
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    properties: _containers.ScalarMap[str, str]
    def __init__(self, properties: _Optional[_Mapping[str, str]] = ...) -> None: ...
class RuleParameter(_message.Message):
    text: str
    integer: int
    number: float
    truth: bool
    def __init__(self, text: _Optional[str] = ..., integer: _Optional[int] = ..., number: _Optional[float] = ..., truth: _Optional[bool] = ...) -> None: ...
class CreateRuleRequest(_message.Message):
    subscription: str
    rule: Rule
    scope: RuleScope
    def __init__(self, subscription: _Optional[str] = ..., rule: _Optional[_Union[Rule, _Mapping]] = ..., scope: _Optional[_Union[RuleScope, int, str]] = ...) -> None: ...
class UpdateRuleRequest(_message.Message):
    subscription: str
    rule: Rule
    scope: RuleScope
    def __init__(self, subscription: _Optional[str] = ..., rule: _Optional[_Union[Rule, _Mapping]] = ..., scope: _Optional[_Union[RuleScope, int, str]] = ...) -> None: ...
class ListRulesRequest(_message.Message):
    subscription: str
    def __init__(self, subscription: _Optional[str] = ...) -> None: ...
class ListRulesResponse(_message.Message):
    rules: _containers.RepeatedCompositeFieldContainer[Rule]
    def __init__(self, rules: _Optional[_Iterable[_Union[Rule, _Mapping]]] = ...) -> None: ...
class DeleteRuleRequest(_message.Message):
    subscription: str
    name: str
    scope: RuleScope
    def __init__(self, subscription: _Optional[str] = ..., name: _Optional[str] = ..., scope: _Optional[_Union[RuleScope, int, str]] = ...) -> None: ...
class DeleteRuleResponse(_message.Message):
    def __init__(self) -> None: ...
class TestRuleRequest(_message.Message):
    subscription: str
    rule: Rule
    message: google_pubsub_v1.PubsubMessage
    explain: bool
    def __init__(self, subscription: _Optional[str] = ..., rule: _Optional[_Union[Rule, _Mapping]] = ..., message: _Optional[_Union[google_pubsub_v1.PubsubMessage, _Mapping]] = ..., explain: _Optional[bool] = ...) -> None: ...
class TestRuleResponse(_message.Message):
    selected: bool
    copies: _containers.RepeatedCompositeFieldContainer[google_pubsub_v1.PubsubMessage]
    parts: _containers.RepeatedCompositeFieldContainer[RulePart]
    def __init__(self, selected: _Optional[bool] = ..., copies: _Optional[_Iterable[_Union[google_pubsub_v1.PubsubMessage, _Mapping]]] = ..., parts: _Optional[_Iterable[_Union[RulePart, _Mapping]]] = ...) -> None: ...
class RulePart(_message.Message):
    rule: str
    depth: int
    text: str
    result: str
    def __init__(self, rule: _Optional[str] = ..., depth: _Optional[int] = ..., text: _Optional[str] = ..., result: _Optional[str] = ...) -> None: ...
class ListScheduledMessagesRequest(_message.Message):
    topic: str
    page_size: int
    page_token: str
    def __init__(self, topic: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...
class ListScheduledMessagesResponse(_message.Message):
    messages: _containers.RepeatedCompositeFieldContainer[ScheduledMessage]
    next_page_token: str
    def __init__(self, messages: _Optional[_Iterable[_Union[ScheduledMessage, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...
class GetScheduledMessageRequest(_message.Message):
    topic: str
    message_id: str
    def __init__(self, topic: _Optional[str] = ..., message_id: _Optional[str] = ...) -> None: ...
class ScheduledMessage(_message.Message):
    message_id: str
    enqueue_time: _timestamp_pb2.Timestamp
    message: google_pubsub_v1.PubsubMessage
    chain: int
    def __init__(self, message_id: _Optional[str] = ..., enqueue_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., message: _Optional[_Union[google_pubsub_v1.PubsubMessage, _Mapping]] = ..., chain: _Optional[int] = ...) -> None: ...
class CancelScheduledMessageRequest(_message.Message):
    topic: str
    message_id: str
    def __init__(self, topic: _Optional[str] = ..., message_id: _Optional[str] = ...) -> None: ...
class CancelScheduledMessageResponse(_message.Message):
    def __init__(self) -> None: ...
class DeadLetterMessagesRequest(_message.Message):
    subscription: str
    ack_ids: _containers.RepeatedScalarFieldContainer[str]
    reason: str
    description: str
    def __init__(self, subscription: _Optional[str] = ..., ack_ids: _Optional[_Iterable[str]] = ..., reason: _Optional[str] = ..., description: _Optional[str] = ...) -> None: ...
class DeadLetterMessagesResponse(_message.Message):
    moved: int
    failures: _containers.RepeatedCompositeFieldContainer[DeadLetterFailure]
    def __init__(self, moved: _Optional[int] = ..., failures: _Optional[_Iterable[_Union[DeadLetterFailure, _Mapping]]] = ...) -> None: ...
class DeadLetterFailure(_message.Message):
    ack_id: str
    invalid: bool
    reason: str
    def __init__(self, ack_id: _Optional[str] = ..., invalid: _Optional[bool] = ..., reason: _Optional[str] = ...) -> None: ...
class DeadLetterSelection(_message.Message):
    subscription: str
    source: str
    reason: str
    filter: str
    start_time: _timestamp_pb2.Timestamp
    message_ids: _containers.RepeatedScalarFieldContainer[str]
    end_time: _timestamp_pb2.Timestamp
    def __init__(self, subscription: _Optional[str] = ..., source: _Optional[str] = ..., reason: _Optional[str] = ..., filter: _Optional[str] = ..., start_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., message_ids: _Optional[_Iterable[str]] = ..., end_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...
class DeadLetter(_message.Message):
    message: google_pubsub_v1.PubsubMessage
    source: str
    reason: str
    description: str
    delivery_attempts: int
    original_message_id: str
    original_publish_time: _timestamp_pb2.Timestamp
    redrives: int
    def __init__(self, message: _Optional[_Union[google_pubsub_v1.PubsubMessage, _Mapping]] = ..., source: _Optional[str] = ..., reason: _Optional[str] = ..., description: _Optional[str] = ..., delivery_attempts: _Optional[int] = ..., original_message_id: _Optional[str] = ..., original_publish_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., redrives: _Optional[int] = ...) -> None: ...
class ListDeadLettersRequest(_message.Message):
    selection: DeadLetterSelection
    page_size: int
    page_token: str
    def __init__(self, selection: _Optional[_Union[DeadLetterSelection, _Mapping]] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...
class ListDeadLettersResponse(_message.Message):
    letters: _containers.RepeatedCompositeFieldContainer[DeadLetter]
    next_page_token: str
    unknown: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, letters: _Optional[_Iterable[_Union[DeadLetter, _Mapping]]] = ..., next_page_token: _Optional[str] = ..., unknown: _Optional[_Iterable[str]] = ...) -> None: ...
class RedriveDeadLettersRequest(_message.Message):
    class DataEntry(_message.Message):
        key: str
        value: bytes
        def __init__(self, key: _Optional[str] = ..., value: _Optional[bytes] = ...) -> None: ...
    selection: DeadLetterSelection
    topic: str
    dry_run: bool
    page_size: int
    page_token: str
    action: str
    data: _containers.ScalarMap[str, bytes]
    def __init__(self, selection: _Optional[_Union[DeadLetterSelection, _Mapping]] = ..., topic: _Optional[str] = ..., dry_run: _Optional[bool] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., action: _Optional[str] = ..., data: _Optional[_Mapping[str, bytes]] = ...) -> None: ...
class RedriveDeadLettersResponse(_message.Message):
    letters: _containers.RepeatedCompositeFieldContainer[DeadLetter]
    redriven: int
    failures: _containers.RepeatedScalarFieldContainer[str]
    next_page_token: str
    topic: str
    time: _timestamp_pb2.Timestamp
    published: _containers.RepeatedCompositeFieldContainer[google_pubsub_v1.PubsubMessage]
    def __init__(self, letters: _Optional[_Iterable[_Union[DeadLetter, _Mapping]]] = ..., redriven: _Optional[int] = ..., failures: _Optional[_Iterable[str]] = ..., next_page_token: _Optional[str] = ..., topic: _Optional[str] = ..., time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., published: _Optional[_Iterable[_Union[google_pubsub_v1.PubsubMessage, _Mapping]]] = ...) -> None: ...
class QueryHistoryRequest(_message.Message):
    family: str
    labels: _containers.RepeatedScalarFieldContainer[str]
    group_by: _containers.RepeatedScalarFieldContainer[str]
    start_time: _timestamp_pb2.Timestamp
    end_time: _timestamp_pb2.Timestamp
    step: _duration_pb2.Duration
    quantile: float
    def __init__(self, family: _Optional[str] = ..., labels: _Optional[_Iterable[str]] = ..., group_by: _Optional[_Iterable[str]] = ..., start_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., end_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., step: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., quantile: _Optional[float] = ...) -> None: ...
class QueryHistoryResponse(_message.Message):
    start_time: _timestamp_pb2.Timestamp
    step: _duration_pb2.Duration
    kind: str
    unit: str
    series: _containers.RepeatedCompositeFieldContainer[HistorySeries]
    def __init__(self, start_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., step: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., kind: _Optional[str] = ..., unit: _Optional[str] = ..., series: _Optional[_Iterable[_Union[HistorySeries, _Mapping]]] = ...) -> None: ...
class HistorySeries(_message.Message):
    class LabelsEntry(_message.Message):
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    labels: _containers.ScalarMap[str, str]
    values: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, labels: _Optional[_Mapping[str, str]] = ..., values: _Optional[_Iterable[float]] = ...) -> None: ...
class ListSlisRequest(_message.Message):
    def __init__(self) -> None: ...
class ListSlisResponse(_message.Message):
    slis: _containers.RepeatedCompositeFieldContainer[Sli]
    def __init__(self, slis: _Optional[_Iterable[_Union[Sli, _Mapping]]] = ...) -> None: ...
class Sli(_message.Message):
    class State(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        STATE_UNSPECIFIED: _ClassVar[Sli.State]
        MEASURED: _ClassVar[Sli.State]
        NO_DATA: _ClassVar[Sli.State]
        NOT_APPLICABLE: _ClassVar[Sli.State]
    STATE_UNSPECIFIED: Sli.State
    MEASURED: Sli.State
    NO_DATA: Sli.State
    NOT_APPLICABLE: Sli.State
    name: str
    title: str
    definition: str
    unit: str
    families: _containers.RepeatedScalarFieldContainer[str]
    window: _duration_pb2.Duration
    state: Sli.State
    value: float
    events: float
    query: str
    parts: _containers.RepeatedCompositeFieldContainer[HistoryPart]
    def __init__(self, name: _Optional[str] = ..., title: _Optional[str] = ..., definition: _Optional[str] = ..., unit: _Optional[str] = ..., families: _Optional[_Iterable[str]] = ..., window: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., state: _Optional[_Union[Sli.State, int, str]] = ..., value: _Optional[float] = ..., events: _Optional[float] = ..., query: _Optional[str] = ..., parts: _Optional[_Iterable[_Union[HistoryPart, _Mapping]]] = ...) -> None: ...
class HistoryPart(_message.Message):
    title: str
    family: str
    labels: _containers.RepeatedScalarFieldContainer[str]
    group_by: _containers.RepeatedScalarFieldContainer[str]
    quantile: float
    def __init__(self, title: _Optional[str] = ..., family: _Optional[str] = ..., labels: _Optional[_Iterable[str]] = ..., group_by: _Optional[_Iterable[str]] = ..., quantile: _Optional[float] = ...) -> None: ...
class ListSlosRequest(_message.Message):
    def __init__(self) -> None: ...
class ListSlosResponse(_message.Message):
    slos: _containers.RepeatedCompositeFieldContainer[Slo]
    burn_rules: _containers.RepeatedCompositeFieldContainer[BurnRule]
    def __init__(self, slos: _Optional[_Iterable[_Union[Slo, _Mapping]]] = ..., burn_rules: _Optional[_Iterable[_Union[BurnRule, _Mapping]]] = ...) -> None: ...
class BurnRule(_message.Message):
    severity: Alert.Severity
    rate: float
    long_window: _duration_pb2.Duration
    short_window: _duration_pb2.Duration
    def __init__(self, severity: _Optional[_Union[Alert.Severity, int, str]] = ..., rate: _Optional[float] = ..., long_window: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., short_window: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...
class Slo(_message.Message):
    name: str
    sli: str
    objective: str
    target: float
    threshold: float
    window: _duration_pb2.Duration
    state: Sli.State
    good_ratio: float
    events: float
    budget_left: float
    burn_rates: _containers.RepeatedCompositeFieldContainer[BurnRate]
    runbook: str
    def __init__(self, name: _Optional[str] = ..., sli: _Optional[str] = ..., objective: _Optional[str] = ..., target: _Optional[float] = ..., threshold: _Optional[float] = ..., window: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., state: _Optional[_Union[Sli.State, int, str]] = ..., good_ratio: _Optional[float] = ..., events: _Optional[float] = ..., budget_left: _Optional[float] = ..., burn_rates: _Optional[_Iterable[_Union[BurnRate, _Mapping]]] = ..., runbook: _Optional[str] = ...) -> None: ...
class BurnRate(_message.Message):
    window: _duration_pb2.Duration
    rate: float
    def __init__(self, window: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., rate: _Optional[float] = ...) -> None: ...
class GetSlaReportRequest(_message.Message):
    month: str
    def __init__(self, month: _Optional[str] = ...) -> None: ...
class SlaReport(_message.Message):
    month: str
    complete: bool
    measured_ratio: float
    lines: _containers.RepeatedCompositeFieldContainer[SlaLine]
    credit_percent: float
    def __init__(self, month: _Optional[str] = ..., complete: _Optional[bool] = ..., measured_ratio: _Optional[float] = ..., lines: _Optional[_Iterable[_Union[SlaLine, _Mapping]]] = ..., credit_percent: _Optional[float] = ...) -> None: ...
class SlaLine(_message.Message):
    slo: str
    objective: str
    promised: float
    measured: float
    events: float
    credit_percent: float
    state: Sli.State
    def __init__(self, slo: _Optional[str] = ..., objective: _Optional[str] = ..., promised: _Optional[float] = ..., measured: _Optional[float] = ..., events: _Optional[float] = ..., credit_percent: _Optional[float] = ..., state: _Optional[_Union[Sli.State, int, str]] = ...) -> None: ...
class ListAlertsRequest(_message.Message):
    resolved: bool
    page_size: int
    def __init__(self, resolved: _Optional[bool] = ..., page_size: _Optional[int] = ...) -> None: ...
class ListAlertsResponse(_message.Message):
    alerts: _containers.RepeatedCompositeFieldContainer[Alert]
    def __init__(self, alerts: _Optional[_Iterable[_Union[Alert, _Mapping]]] = ...) -> None: ...
class Alert(_message.Message):
    class State(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        STATE_UNSPECIFIED: _ClassVar[Alert.State]
        FIRING: _ClassVar[Alert.State]
        ACKNOWLEDGED: _ClassVar[Alert.State]
        RESOLVED: _ClassVar[Alert.State]
    STATE_UNSPECIFIED: Alert.State
    FIRING: Alert.State
    ACKNOWLEDGED: Alert.State
    RESOLVED: Alert.State
    class Severity(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        SEVERITY_UNSPECIFIED: _ClassVar[Alert.Severity]
        TICKET: _ClassVar[Alert.Severity]
        PAGE: _ClassVar[Alert.Severity]
    SEVERITY_UNSPECIFIED: Alert.Severity
    TICKET: Alert.Severity
    PAGE: Alert.Severity
    class LabelsEntry(_message.Message):
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    alert: str
    rule: str
    labels: _containers.ScalarMap[str, str]
    severity: Alert.Severity
    state: Alert.State
    summary: str
    runbook: str
    start_time: _timestamp_pb2.Timestamp
    acknowledge_time: _timestamp_pb2.Timestamp
    acknowledged_by: str
    resolve_time: _timestamp_pb2.Timestamp
    acknowledge_deadline: _timestamp_pb2.Timestamp
    level: int
    notified: _containers.RepeatedScalarFieldContainer[str]
    silenced: bool
    events: _containers.RepeatedCompositeFieldContainer[AlertEvent]
    follows: str
    cause: str
    def __init__(self, alert: _Optional[str] = ..., rule: _Optional[str] = ..., labels: _Optional[_Mapping[str, str]] = ..., severity: _Optional[_Union[Alert.Severity, int, str]] = ..., state: _Optional[_Union[Alert.State, int, str]] = ..., summary: _Optional[str] = ..., runbook: _Optional[str] = ..., start_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., acknowledge_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., acknowledged_by: _Optional[str] = ..., resolve_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., acknowledge_deadline: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., level: _Optional[int] = ..., notified: _Optional[_Iterable[str]] = ..., silenced: _Optional[bool] = ..., events: _Optional[_Iterable[_Union[AlertEvent, _Mapping]]] = ..., follows: _Optional[str] = ..., cause: _Optional[str] = ...) -> None: ...
class AlertEvent(_message.Message):
    time: _timestamp_pb2.Timestamp
    text: str
    def __init__(self, time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., text: _Optional[str] = ...) -> None: ...
class AcknowledgeAlertRequest(_message.Message):
    alert: str
    by: str
    comment: str
    def __init__(self, alert: _Optional[str] = ..., by: _Optional[str] = ..., comment: _Optional[str] = ...) -> None: ...
class Silence(_message.Message):
    class LabelsEntry(_message.Message):
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    silence: str
    rule: str
    labels: _containers.ScalarMap[str, str]
    end_time: _timestamp_pb2.Timestamp
    by: str
    comment: str
    def __init__(self, silence: _Optional[str] = ..., rule: _Optional[str] = ..., labels: _Optional[_Mapping[str, str]] = ..., end_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., by: _Optional[str] = ..., comment: _Optional[str] = ...) -> None: ...
class CreateSilenceRequest(_message.Message):
    silence: Silence
    def __init__(self, silence: _Optional[_Union[Silence, _Mapping]] = ...) -> None: ...
class ListSilencesRequest(_message.Message):
    def __init__(self) -> None: ...
class ListSilencesResponse(_message.Message):
    silences: _containers.RepeatedCompositeFieldContainer[Silence]
    def __init__(self, silences: _Optional[_Iterable[_Union[Silence, _Mapping]]] = ...) -> None: ...
class DeleteSilenceRequest(_message.Message):
    silence: str
    def __init__(self, silence: _Optional[str] = ...) -> None: ...
class GetOnCallRequest(_message.Message):
    def __init__(self) -> None: ...
class OnCall(_message.Message):
    people: _containers.RepeatedCompositeFieldContainer[OnCallPerson]
    sites: _containers.RepeatedCompositeFieldContainer[OnCallSite]
    acknowledge_time: _duration_pb2.Duration
    def __init__(self, people: _Optional[_Iterable[_Union[OnCallPerson, _Mapping]]] = ..., sites: _Optional[_Iterable[_Union[OnCallSite, _Mapping]]] = ..., acknowledge_time: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...
class OnCallPerson(_message.Message):
    name: str
    site: str
    ways: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, name: _Optional[str] = ..., site: _Optional[str] = ..., ways: _Optional[_Iterable[str]] = ...) -> None: ...
class OnCallSite(_message.Message):
    name: str
    time_zone: str
    hours: str
    on_call: bool
    people: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, name: _Optional[str] = ..., time_zone: _Optional[str] = ..., hours: _Optional[str] = ..., on_call: _Optional[bool] = ..., people: _Optional[_Iterable[str]] = ...) -> None: ...
class ListProbersRequest(_message.Message):
    def __init__(self) -> None: ...
class ListProbersResponse(_message.Message):
    probers: _containers.RepeatedCompositeFieldContainer[Prober]
    unknown: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, probers: _Optional[_Iterable[_Union[Prober, _Mapping]]] = ..., unknown: _Optional[_Iterable[str]] = ...) -> None: ...
class Prober(_message.Message):
    class StepsEntry(_message.Message):
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    prober: str
    title: str
    planes: _containers.RepeatedScalarFieldContainer[str]
    endpoint: str
    process: str
    runs: int
    last_run: _timestamp_pb2.Timestamp
    metrics: _containers.RepeatedCompositeFieldContainer[ProberMetric]
    steps: _containers.ScalarMap[str, float]
    failures: _containers.RepeatedCompositeFieldContainer[ProberFailure]
    def __init__(self, prober: _Optional[str] = ..., title: _Optional[str] = ..., planes: _Optional[_Iterable[str]] = ..., endpoint: _Optional[str] = ..., process: _Optional[str] = ..., runs: _Optional[int] = ..., last_run: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., metrics: _Optional[_Iterable[_Union[ProberMetric, _Mapping]]] = ..., steps: _Optional[_Mapping[str, float]] = ..., failures: _Optional[_Iterable[_Union[ProberFailure, _Mapping]]] = ...) -> None: ...
class ProberMetric(_message.Message):
    class Verdict(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        VERDICT_UNSPECIFIED: _ClassVar[ProberMetric.Verdict]
        UNKNOWN: _ClassVar[ProberMetric.Verdict]
        EXPECTED: _ClassVar[ProberMetric.Verdict]
        UNEXPECTED: _ClassVar[ProberMetric.Verdict]
    VERDICT_UNSPECIFIED: ProberMetric.Verdict
    UNKNOWN: ProberMetric.Verdict
    EXPECTED: ProberMetric.Verdict
    UNEXPECTED: ProberMetric.Verdict
    name: str
    measure: str
    verdict: ProberMetric.Verdict
    value: float
    limit: float
    text: str
    def __init__(self, name: _Optional[str] = ..., measure: _Optional[str] = ..., verdict: _Optional[_Union[ProberMetric.Verdict, int, str]] = ..., value: _Optional[float] = ..., limit: _Optional[float] = ..., text: _Optional[str] = ...) -> None: ...
class ProberFailure(_message.Message):
    time: _timestamp_pb2.Timestamp
    text: str
    def __init__(self, time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., text: _Optional[str] = ...) -> None: ...
class ListOwnershipsRequest(_message.Message):
    start_time: _timestamp_pb2.Timestamp
    def __init__(self, start_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...
class ListOwnershipsResponse(_message.Message):
    changes: _containers.RepeatedCompositeFieldContainer[OwnerChange]
    kept_since: _timestamp_pb2.Timestamp
    def __init__(self, changes: _Optional[_Iterable[_Union[OwnerChange, _Mapping]]] = ..., kept_since: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...
class OwnerChange(_message.Message):
    time: _timestamp_pb2.Timestamp
    chain: int
    epoch: int
    owner: str
    late: bool
    def __init__(self, time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., chain: _Optional[int] = ..., epoch: _Optional[int] = ..., owner: _Optional[str] = ..., late: _Optional[bool] = ...) -> None: ...
class GetRolloutRequest(_message.Message):
    def __init__(self) -> None: ...
class Rollout(_message.Message):
    class SharesEntry(_message.Message):
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    class FiguresEntry(_message.Message):
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    name: str
    version: str
    commit: str
    state: str
    step: str
    steps: _containers.RepeatedScalarFieldContainer[str]
    deployed: bool
    watched: _duration_pb2.Duration
    watch: _duration_pb2.Duration
    begin_time: _timestamp_pb2.Timestamp
    look_time: _timestamp_pb2.Timestamp
    end_time: _timestamp_pb2.Timestamp
    restarting: str
    restart_time: _timestamp_pb2.Timestamp
    waits_for: str
    reason: str
    shares: _containers.ScalarMap[str, float]
    figures: _containers.ScalarMap[str, float]
    problems: _containers.RepeatedScalarFieldContainer[str]
    events: _containers.RepeatedCompositeFieldContainer[RolloutEvent]
    controller: str
    aborted_by: str
    def __init__(self, name: _Optional[str] = ..., version: _Optional[str] = ..., commit: _Optional[str] = ..., state: _Optional[str] = ..., step: _Optional[str] = ..., steps: _Optional[_Iterable[str]] = ..., deployed: _Optional[bool] = ..., watched: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., watch: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., begin_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., look_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., end_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., restarting: _Optional[str] = ..., restart_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., waits_for: _Optional[str] = ..., reason: _Optional[str] = ..., shares: _Optional[_Mapping[str, float]] = ..., figures: _Optional[_Mapping[str, float]] = ..., problems: _Optional[_Iterable[str]] = ..., events: _Optional[_Iterable[_Union[RolloutEvent, _Mapping]]] = ..., controller: _Optional[str] = ..., aborted_by: _Optional[str] = ...) -> None: ...
class RolloutEvent(_message.Message):
    time: _timestamp_pb2.Timestamp
    text: str
    def __init__(self, time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., text: _Optional[str] = ...) -> None: ...
class AbortRolloutRequest(_message.Message):
    by: str
    reason: str
    def __init__(self, by: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...
import datetime
from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union
class SharedFederation(_message.Message):
    project: str
    federation: str
    holder: str
    term: int
    left: _duration_pb2.Duration
    version: int
    state: str
    def __init__(self, project: _Optional[str] = ..., federation: _Optional[str] = ..., holder: _Optional[str] = ..., term: _Optional[int] = ..., left: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., version: _Optional[int] = ..., state: _Optional[str] = ...) -> None: ...
class HoldFederationRequest(_message.Message):
    project: str
    federation: str
    holder: str
    term: int
    ttl: _duration_pb2.Duration
    def __init__(self, project: _Optional[str] = ..., federation: _Optional[str] = ..., holder: _Optional[str] = ..., term: _Optional[int] = ..., ttl: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...
class GetFederationRequest(_message.Message):
    project: str
    federation: str
    def __init__(self, project: _Optional[str] = ..., federation: _Optional[str] = ...) -> None: ...
class PutFederationStateRequest(_message.Message):
    project: str
    federation: str
    version: int
    state: str
    def __init__(self, project: _Optional[str] = ..., federation: _Optional[str] = ..., version: _Optional[int] = ..., state: _Optional[str] = ...) -> None: ...
import datetime
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union
class DisasterClass(_message.Message):
    name: str
    writer: str
    source: str
    since: _timestamp_pb2.Timestamp
    def __init__(self, name: _Optional[str] = ..., writer: _Optional[str] = ..., source: _Optional[str] = ..., since: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...
class ListDisasterClassesRequest(_message.Message):
    def __init__(self) -> None: ...
class ListDisasterClassesResponse(_message.Message):
    classes: _containers.RepeatedCompositeFieldContainer[DisasterClassTerms]
    def __init__(self, classes: _Optional[_Iterable[_Union[DisasterClassTerms, _Mapping]]] = ...) -> None: ...
class DisasterClassTerms(_message.Message):
    name: str
    does: str
    buys: str
    costs: str
    def __init__(self, name: _Optional[str] = ..., does: _Optional[str] = ..., buys: _Optional[str] = ..., costs: _Optional[str] = ...) -> None: ...
class ListClassedProjectsRequest(_message.Message):
    page_size: int
    page_token: str
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...
class ListClassedProjectsResponse(_message.Message):
    projects: _containers.RepeatedCompositeFieldContainer[ClassedProject]
    next_page_token: str
    def __init__(self, projects: _Optional[_Iterable[_Union[ClassedProject, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...
class ClassedProject(_message.Message):
    project: str
    disaster_class: DisasterClass
    def __init__(self, project: _Optional[str] = ..., disaster_class: _Optional[_Union[DisasterClass, _Mapping]] = ...) -> None: ...
class SetDisasterClassRequest(_message.Message):
    resource: str
    disaster_class: DisasterClass
    tenant: str
    def __init__(self, resource: _Optional[str] = ..., disaster_class: _Optional[_Union[DisasterClass, _Mapping]] = ..., tenant: _Optional[str] = ...) -> None: ...
class GetProjectRequest(_message.Message):
    project: str
    tenant: str
    def __init__(self, project: _Optional[str] = ..., tenant: _Optional[str] = ...) -> None: ...
class Project(_message.Message):
    project: str
    tenant: str
    disaster_class: DisasterClass
    terms: DisasterClassTerms
    topics: int
    recorded_topics: int
    records_topics: _containers.RepeatedScalarFieldContainer[str]
    homes: _containers.RepeatedCompositeFieldContainer[SubscriptionHome]
    last_reconciliation: Reconciliation
    lacking: _containers.RepeatedScalarFieldContainer[str]
    last_drill: Drill
    def __init__(self, project: _Optional[str] = ..., tenant: _Optional[str] = ..., disaster_class: _Optional[_Union[DisasterClass, _Mapping]] = ..., terms: _Optional[_Union[DisasterClassTerms, _Mapping]] = ..., topics: _Optional[int] = ..., recorded_topics: _Optional[int] = ..., records_topics: _Optional[_Iterable[str]] = ..., homes: _Optional[_Iterable[_Union[SubscriptionHome, _Mapping]]] = ..., last_reconciliation: _Optional[_Union[Reconciliation, _Mapping]] = ..., lacking: _Optional[_Iterable[str]] = ..., last_drill: _Optional[_Union[Drill, _Mapping]] = ...) -> None: ...
class SubscriptionHome(_message.Message):
    subscription: str
    site: str
    home: str
    epoch: int
    def __init__(self, subscription: _Optional[str] = ..., site: _Optional[str] = ..., home: _Optional[str] = ..., epoch: _Optional[int] = ...) -> None: ...
class Drill(_message.Message):
    class State(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        STATE_UNSPECIFIED: _ClassVar[Drill.State]
        RUNNING: _ClassVar[Drill.State]
        DONE: _ClassVar[Drill.State]
        ABORTED: _ClassVar[Drill.State]
    STATE_UNSPECIFIED: Drill.State
    RUNNING: Drill.State
    DONE: Drill.State
    ABORTED: Drill.State
    project: str
    drill: str
    kind: str
    target: str
    state: Drill.State
    start_time: _timestamp_pb2.Timestamp
    end_time: _timestamp_pb2.Timestamp
    deadline: _timestamp_pb2.Timestamp
    abort: bool
    reason: str
    certificate: DrillCertificate
    def __init__(self, project: _Optional[str] = ..., drill: _Optional[str] = ..., kind: _Optional[str] = ..., target: _Optional[str] = ..., state: _Optional[_Union[Drill.State, int, str]] = ..., start_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., end_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., deadline: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., abort: _Optional[bool] = ..., reason: _Optional[str] = ..., certificate: _Optional[_Union[DrillCertificate, _Mapping]] = ...) -> None: ...
class DrillCertificate(_message.Message):
    confirmed: int
    received: int
    lost: int
    twice: int
    not_copied: int
    publish_gap_ms: int
    receive_gap_ms: int
    def __init__(self, confirmed: _Optional[int] = ..., received: _Optional[int] = ..., lost: _Optional[int] = ..., twice: _Optional[int] = ..., not_copied: _Optional[int] = ..., publish_gap_ms: _Optional[int] = ..., receive_gap_ms: _Optional[int] = ...) -> None: ...
class RecordDrillRequest(_message.Message):
    drill: Drill
    def __init__(self, drill: _Optional[_Union[Drill, _Mapping]] = ...) -> None: ...
class GetDrillRequest(_message.Message):
    project: str
    drill: str
    def __init__(self, project: _Optional[str] = ..., drill: _Optional[str] = ...) -> None: ...
class ListDrillsRequest(_message.Message):
    project: str
    def __init__(self, project: _Optional[str] = ...) -> None: ...
class ListDrillsResponse(_message.Message):
    drills: _containers.RepeatedCompositeFieldContainer[Drill]
    def __init__(self, drills: _Optional[_Iterable[_Union[Drill, _Mapping]]] = ...) -> None: ...
class AbortDrillRequest(_message.Message):
    project: str
    drill: str
    def __init__(self, project: _Optional[str] = ..., drill: _Optional[str] = ...) -> None: ...
class ReportReconciliationRequest(_message.Message):
    project: str
    reconciliation: Reconciliation
    def __init__(self, project: _Optional[str] = ..., reconciliation: _Optional[_Union[Reconciliation, _Mapping]] = ...) -> None: ...
class Reconciliation(_message.Message):
    time: _timestamp_pb2.Timestamp
    topics: int
    messages: int
    findings_total: int
    findings: _containers.RepeatedCompositeFieldContainer[ReconciliationFinding]
    unknown: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., topics: _Optional[int] = ..., messages: _Optional[int] = ..., findings_total: _Optional[int] = ..., findings: _Optional[_Iterable[_Union[ReconciliationFinding, _Mapping]]] = ..., unknown: _Optional[_Iterable[str]] = ...) -> None: ...
class ReconciliationFinding(_message.Message):
    hop: str
    kind: str
    message_id: str
    topic: str
    subscription: str
    def __init__(self, hop: _Optional[str] = ..., kind: _Optional[str] = ..., message_id: _Optional[str] = ..., topic: _Optional[str] = ..., subscription: _Optional[str] = ...) -> None: ...
import datetime
from google.protobuf import field_mask_pb2 as _field_mask_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union
class Tenant(_message.Message):
    class ProjectQuotasEntry(_message.Message):
        key: str
        value: TenantQuota
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[TenantQuota, _Mapping]] = ...) -> None: ...
    name: str
    display_name: str
    owners: _containers.RepeatedScalarFieldContainer[str]
    projects: _containers.RepeatedScalarFieldContainer[str]
    allowed_regions: _containers.RepeatedScalarFieldContainer[str]
    etag: str
    create_time: _timestamp_pb2.Timestamp
    update_time: _timestamp_pb2.Timestamp
    quota: TenantQuota
    project_quotas: _containers.MessageMap[str, TenantQuota]
    weight: int
    def __init__(self, name: _Optional[str] = ..., display_name: _Optional[str] = ..., owners: _Optional[_Iterable[str]] = ..., projects: _Optional[_Iterable[str]] = ..., allowed_regions: _Optional[_Iterable[str]] = ..., etag: _Optional[str] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., update_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., quota: _Optional[_Union[TenantQuota, _Mapping]] = ..., project_quotas: _Optional[_Mapping[str, TenantQuota]] = ..., weight: _Optional[int] = ...) -> None: ...
class TenantQuota(_message.Message):
    requests_per_s: float
    bytes_per_s: float
    outstanding_bytes: int
    connections: int
    streams: int
    topics: int
    subscriptions: int
    cpu: float
    def __init__(self, requests_per_s: _Optional[float] = ..., bytes_per_s: _Optional[float] = ..., outstanding_bytes: _Optional[int] = ..., connections: _Optional[int] = ..., streams: _Optional[int] = ..., topics: _Optional[int] = ..., subscriptions: _Optional[int] = ..., cpu: _Optional[float] = ...) -> None: ...
class CreateTenantRequest(_message.Message):
    tenant: Tenant
    def __init__(self, tenant: _Optional[_Union[Tenant, _Mapping]] = ...) -> None: ...
class GetTenantRequest(_message.Message):
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...
class ListTenantsRequest(_message.Message):
    page_size: int
    page_token: str
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...
class ListTenantsResponse(_message.Message):
    tenants: _containers.RepeatedCompositeFieldContainer[Tenant]
    next_page_token: str
    def __init__(self, tenants: _Optional[_Iterable[_Union[Tenant, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...
class UpdateTenantRequest(_message.Message):
    tenant: Tenant
    update_mask: _field_mask_pb2.FieldMask
    def __init__(self, tenant: _Optional[_Union[Tenant, _Mapping]] = ..., update_mask: _Optional[_Union[_field_mask_pb2.FieldMask, _Mapping]] = ...) -> None: ...
class DeleteTenantRequest(_message.Message):
    name: str
    etag: str
    def __init__(self, name: _Optional[str] = ..., etag: _Optional[str] = ...) -> None: ...
class GetTenantMetricsRequest(_message.Message):
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...
class TenantMetrics(_message.Message):
    text: str
    def __init__(self, text: _Optional[str] = ...) -> None: ...
class UpdateProjectQuotaRequest(_message.Message):
    tenant: str
    project: str
    quota: TenantQuota
    etag: str
    def __init__(self, tenant: _Optional[str] = ..., project: _Optional[str] = ..., quota: _Optional[_Union[TenantQuota, _Mapping]] = ..., etag: _Optional[str] = ...) -> None: ...
class GetEffectivePolicyRequest(_message.Message):
    resource: str
    tenant: str
    def __init__(self, resource: _Optional[str] = ..., tenant: _Optional[str] = ...) -> None: ...
class EffectivePolicy(_message.Message):
    resource: str
    tenant: str
    settings: _containers.RepeatedCompositeFieldContainer[EffectiveSetting]
    def __init__(self, resource: _Optional[str] = ..., tenant: _Optional[str] = ..., settings: _Optional[_Iterable[_Union[EffectiveSetting, _Mapping]]] = ...) -> None: ...
class EffectiveSetting(_message.Message):
    name: str
    value: str
    source: str
    def __init__(self, name: _Optional[str] = ..., value: _Optional[str] = ..., source: _Optional[str] = ...) -> None: ...

from syncpoint.wire.protobuf.stubs import syncpoint_admin_v1
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union
class PublishBatch(_message.Message):
    chain: int
    epoch: int
    keyed: bool
    sender: int
    batch: int
    resent: bool
    topic: int
    schema: int
    within: bool
    forwarded: bool
    scheduled: bool
    request: bytes
    def __init__(self, chain: _Optional[int] = ..., epoch: _Optional[int] = ..., keyed: _Optional[bool] = ..., sender: _Optional[int] = ..., batch: _Optional[int] = ..., resent: _Optional[bool] = ..., topic: _Optional[int] = ..., schema: _Optional[int] = ..., within: _Optional[bool] = ..., forwarded: _Optional[bool] = ..., scheduled: _Optional[bool] = ..., request: _Optional[bytes] = ...) -> None: ...
class PublishAnswer(_message.Message):
    def __init__(self) -> None: ...
class ToChains(_message.Message):
    hello: Hello
    attach: Attach
    detach: Detach
    wants: Wants
    fetch: Fetch
    acknowledge: Acknowledge
    heartbeat: Heartbeat
    released: Released
    serves: Serves
    note_attempts: NoteAttempts
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., attach: _Optional[_Union[Attach, _Mapping]] = ..., detach: _Optional[_Union[Detach, _Mapping]] = ..., wants: _Optional[_Union[Wants, _Mapping]] = ..., fetch: _Optional[_Union[Fetch, _Mapping]] = ..., acknowledge: _Optional[_Union[Acknowledge, _Mapping]] = ..., heartbeat: _Optional[_Union[Heartbeat, _Mapping]] = ..., released: _Optional[_Union[Released, _Mapping]] = ..., serves: _Optional[_Union[Serves, _Mapping]] = ..., note_attempts: _Optional[_Union[NoteAttempts, _Mapping]] = ...) -> None: ...
class Hello(_message.Message):
    member: str
    incarnation: int
    version: int
    registered: int
    stream: int
    def __init__(self, member: _Optional[str] = ..., incarnation: _Optional[int] = ..., version: _Optional[int] = ..., registered: _Optional[int] = ..., stream: _Optional[int] = ...) -> None: ...
class Serves(_message.Message):
    subscriptions: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, subscriptions: _Optional[_Iterable[int]] = ...) -> None: ...
class Attach(_message.Message):
    subscription: int
    wanted: bool
    grants: _containers.RepeatedCompositeFieldContainer[Grant]
    def __init__(self, subscription: _Optional[int] = ..., wanted: _Optional[bool] = ..., grants: _Optional[_Iterable[_Union[Grant, _Mapping]]] = ...) -> None: ...
class Grant(_message.Message):
    source: int
    grant: int
    def __init__(self, source: _Optional[int] = ..., grant: _Optional[int] = ...) -> None: ...
class Detach(_message.Message):
    subscription: int
    def __init__(self, subscription: _Optional[int] = ...) -> None: ...
class Wants(_message.Message):
    subscription: int
    wanted: bool
    def __init__(self, subscription: _Optional[int] = ..., wanted: _Optional[bool] = ...) -> None: ...
class Fetch(_message.Message):
    id: int
    subscription: int
    source: int
    begin: int
    max_bytes: int
    grant: int
    generation: int
    def __init__(self, id: _Optional[int] = ..., subscription: _Optional[int] = ..., source: _Optional[int] = ..., begin: _Optional[int] = ..., max_bytes: _Optional[int] = ..., grant: _Optional[int] = ..., generation: _Optional[int] = ...) -> None: ...
class Acknowledge(_message.Message):
    id: int
    subscription: int
    generation: int
    source: int
    runs: bytes
    urgent: bool
    grant: int
    def __init__(self, id: _Optional[int] = ..., subscription: _Optional[int] = ..., generation: _Optional[int] = ..., source: _Optional[int] = ..., runs: _Optional[bytes] = ..., urgent: _Optional[bool] = ..., grant: _Optional[int] = ...) -> None: ...
class Heartbeat(_message.Message):
    number: int
    chains: _containers.RepeatedCompositeFieldContainer[OwnedChain]
    def __init__(self, number: _Optional[int] = ..., chains: _Optional[_Iterable[_Union[OwnedChain, _Mapping]]] = ...) -> None: ...
class OwnedChain(_message.Message):
    chain: int
    age_ms: int
    def __init__(self, chain: _Optional[int] = ..., age_ms: _Optional[int] = ...) -> None: ...
class Released(_message.Message):
    subscription: int
    source: int
    grant: int
    def __init__(self, subscription: _Optional[int] = ..., source: _Optional[int] = ..., grant: _Optional[int] = ...) -> None: ...
class FromChains(_message.Message):
    sources: Sources
    data: Data
    revoke: Revoke
    reset: Reset
    removed: Removed
    fetched: Fetched
    acknowledged: Acknowledged
    heartbeat: Heartbeat
    owned: Owned
    displaced: Displaced
    def __init__(self, sources: _Optional[_Union[Sources, _Mapping]] = ..., data: _Optional[_Union[Data, _Mapping]] = ..., revoke: _Optional[_Union[Revoke, _Mapping]] = ..., reset: _Optional[_Union[Reset, _Mapping]] = ..., removed: _Optional[_Union[Removed, _Mapping]] = ..., fetched: _Optional[_Union[Fetched, _Mapping]] = ..., acknowledged: _Optional[_Union[Acknowledged, _Mapping]] = ..., heartbeat: _Optional[_Union[Heartbeat, _Mapping]] = ..., owned: _Optional[_Union[Owned, _Mapping]] = ..., displaced: _Optional[_Union[Displaced, _Mapping]] = ...) -> None: ...
class Source(_message.Message):
    number: int
    begin: int
    sealed: bool
    epoch: int
    chain: int
    grant: int
    done: bool
    def __init__(self, number: _Optional[int] = ..., begin: _Optional[int] = ..., sealed: _Optional[bool] = ..., epoch: _Optional[int] = ..., chain: _Optional[int] = ..., grant: _Optional[int] = ..., done: _Optional[bool] = ...) -> None: ...
class Sources(_message.Message):
    subscription: int
    generation: int
    sources: _containers.RepeatedCompositeFieldContainer[Source]
    chain: int
    all: bool
    epoch: int
    age_ms: int
    def __init__(self, subscription: _Optional[int] = ..., generation: _Optional[int] = ..., sources: _Optional[_Iterable[_Union[Source, _Mapping]]] = ..., chain: _Optional[int] = ..., all: _Optional[bool] = ..., epoch: _Optional[int] = ..., age_ms: _Optional[int] = ...) -> None: ...
class Displaced(_message.Message):
    def __init__(self) -> None: ...
class Data(_message.Message):
    subscription: int
    source: int
    def __init__(self, subscription: _Optional[int] = ..., source: _Optional[int] = ...) -> None: ...
class Revoke(_message.Message):
    subscription: int
    source: int
    grant: int
    def __init__(self, subscription: _Optional[int] = ..., source: _Optional[int] = ..., grant: _Optional[int] = ...) -> None: ...
class Reset(_message.Message):
    subscription: int
    generation: int
    chain: int
    def __init__(self, subscription: _Optional[int] = ..., generation: _Optional[int] = ..., chain: _Optional[int] = ...) -> None: ...
class Removed(_message.Message):
    subscription: int
    chain: int
    def __init__(self, subscription: _Optional[int] = ..., chain: _Optional[int] = ...) -> None: ...
class Fetched(_message.Message):
    id: int
    batches: _containers.RepeatedCompositeFieldContainer[Batch]
    error: str
    code: int
    passed: _containers.RepeatedCompositeFieldContainer[Range]
    attempts: _containers.RepeatedCompositeFieldContainer[Attempts]
    expired: _containers.RepeatedCompositeFieldContainer[Range]
    freshness: Freshness
    def __init__(self, id: _Optional[int] = ..., batches: _Optional[_Iterable[_Union[Batch, _Mapping]]] = ..., error: _Optional[str] = ..., code: _Optional[int] = ..., passed: _Optional[_Iterable[_Union[Range, _Mapping]]] = ..., attempts: _Optional[_Iterable[_Union[Attempts, _Mapping]]] = ..., expired: _Optional[_Iterable[_Union[Range, _Mapping]]] = ..., freshness: _Optional[_Union[Freshness, _Mapping]] = ...) -> None: ...
class Freshness(_message.Message):
    now_ns: int
    live_ns: int
    soonest_ns: int
    def __init__(self, now_ns: _Optional[int] = ..., live_ns: _Optional[int] = ..., soonest_ns: _Optional[int] = ...) -> None: ...
class Range(_message.Message):
    begin: int
    end: int
    def __init__(self, begin: _Optional[int] = ..., end: _Optional[int] = ...) -> None: ...
class Attempts(_message.Message):
    begin: int
    end: int
    times: int
    rest_ms: int
    def __init__(self, begin: _Optional[int] = ..., end: _Optional[int] = ..., times: _Optional[int] = ..., rest_ms: _Optional[int] = ...) -> None: ...
class NoteAttempts(_message.Message):
    subscription: int
    generation: int
    source: int
    runs: _containers.RepeatedCompositeFieldContainer[Attempts]
    def __init__(self, subscription: _Optional[int] = ..., generation: _Optional[int] = ..., source: _Optional[int] = ..., runs: _Optional[_Iterable[_Union[Attempts, _Mapping]]] = ...) -> None: ...
class Batch(_message.Message):
    source: int
    first_offset: int
    begin: int
    end: int
    skip: bytes
    time_ns: int
    payload: bytes
    def __init__(self, source: _Optional[int] = ..., first_offset: _Optional[int] = ..., begin: _Optional[int] = ..., end: _Optional[int] = ..., skip: _Optional[bytes] = ..., time_ns: _Optional[int] = ..., payload: _Optional[bytes] = ...) -> None: ...
class Acknowledged(_message.Message):
    id: int
    error: str
    code: int
    def __init__(self, id: _Optional[int] = ..., error: _Optional[str] = ..., code: _Optional[int] = ...) -> None: ...
class Owned(_message.Message):
    chains: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, chains: _Optional[_Iterable[int]] = ...) -> None: ...
class ConfirmRequest(_message.Message):
    chain: int
    topic: int
    revision: int
    assignment: int
    subscription: int
    def __init__(self, chain: _Optional[int] = ..., topic: _Optional[int] = ..., revision: _Optional[int] = ..., assignment: _Optional[int] = ..., subscription: _Optional[int] = ...) -> None: ...
class ListMessageIdsRequest(_message.Message):
    chain: int
    topic: int
    forwarded: bool
    begin: int
    batches: bool
    def __init__(self, chain: _Optional[int] = ..., topic: _Optional[int] = ..., forwarded: _Optional[bool] = ..., begin: _Optional[int] = ..., batches: _Optional[bool] = ...) -> None: ...
class ListMessageIdsResponse(_message.Message):
    ids: bytes
    next: int
    batches: bytes
    def __init__(self, ids: _Optional[bytes] = ..., next: _Optional[int] = ..., batches: _Optional[bytes] = ...) -> None: ...
class ConfirmResponse(_message.Message):
    revision: int
    drained: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, revision: _Optional[int] = ..., drained: _Optional[_Iterable[int]] = ...) -> None: ...
class DescribeRequest(_message.Message):
    topic: int
    subscription: int
    ranges_max: int
    seek: ForeseenSeek
    def __init__(self, topic: _Optional[int] = ..., subscription: _Optional[int] = ..., ranges_max: _Optional[int] = ..., seek: _Optional[_Union[ForeseenSeek, _Mapping]] = ...) -> None: ...
class ForeseenSeek(_message.Message):
    subscription: int
    time_ns: int
    snapshot: int
    def __init__(self, subscription: _Optional[int] = ..., time_ns: _Optional[int] = ..., snapshot: _Optional[int] = ...) -> None: ...
class SeekChange(_message.Message):
    unacknowledged: int
    returning: int
    acknowledged: int
    unknown: str
    def __init__(self, unacknowledged: _Optional[int] = ..., returning: _Optional[int] = ..., acknowledged: _Optional[int] = ..., unknown: _Optional[str] = ...) -> None: ...
class DescribeResponse(_message.Message):
    chains: _containers.RepeatedCompositeFieldContainer[DescribedChain]
    def __init__(self, chains: _Optional[_Iterable[_Union[DescribedChain, _Mapping]]] = ...) -> None: ...
class PeekRequest(_message.Message):
    topic: int
    subscription: int
    source: int
    begin: int
    since_ns: int
    programs: _containers.RepeatedScalarFieldContainer[bytes]
    ordering_key: str
    messages_max: int
    given_up: int
    def __init__(self, topic: _Optional[int] = ..., subscription: _Optional[int] = ..., source: _Optional[int] = ..., begin: _Optional[int] = ..., since_ns: _Optional[int] = ..., programs: _Optional[_Iterable[bytes]] = ..., ordering_key: _Optional[str] = ..., messages_max: _Optional[int] = ..., given_up: _Optional[int] = ...) -> None: ...
class PeekResponse(_message.Message):
    messages: _containers.RepeatedCompositeFieldContainer[PeekedPlace]
    next: int
    end: bool
    unreadable: int
    soonest_ns: int
    generation: int
    def __init__(self, messages: _Optional[_Iterable[_Union[PeekedPlace, _Mapping]]] = ..., next: _Optional[int] = ..., end: _Optional[bool] = ..., unreadable: _Optional[int] = ..., soonest_ns: _Optional[int] = ..., generation: _Optional[int] = ...) -> None: ...
class PeekedPlace(_message.Message):
    place: int
    message: bytes
    expired: bool
    def __init__(self, place: _Optional[int] = ..., message: _Optional[bytes] = ..., expired: _Optional[bool] = ...) -> None: ...
class ChainFailure(_message.Message):
    gone: _containers.RepeatedScalarFieldContainer[str]
    silent: _containers.RepeatedScalarFieldContainer[str]
    owner: bool
    def __init__(self, gone: _Optional[_Iterable[str]] = ..., silent: _Optional[_Iterable[str]] = ..., owner: _Optional[bool] = ...) -> None: ...
class AtRiskRequest(_message.Message):
    failures: _containers.RepeatedCompositeFieldContainer[ChainFailure]
    def __init__(self, failures: _Optional[_Iterable[_Union[ChainFailure, _Mapping]]] = ...) -> None: ...
class RiskSum(_message.Message):
    topic: int
    subscription: int
    messages: int
    bytes: int
    oldest_ns: int
    ranges: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, topic: _Optional[int] = ..., subscription: _Optional[int] = ..., messages: _Optional[int] = ..., bytes: _Optional[int] = ..., oldest_ns: _Optional[int] = ..., ranges: _Optional[_Iterable[int]] = ...) -> None: ...
class ChainOutcome(_message.Message):
    lost: _containers.RepeatedCompositeFieldContainer[RiskSum]
    unavailable: _containers.RepeatedCompositeFieldContainer[RiskSum]
    twice: _containers.RepeatedCompositeFieldContainer[RiskSum]
    stops: str
    facts: int
    def __init__(self, lost: _Optional[_Iterable[_Union[RiskSum, _Mapping]]] = ..., unavailable: _Optional[_Iterable[_Union[RiskSum, _Mapping]]] = ..., twice: _Optional[_Iterable[_Union[RiskSum, _Mapping]]] = ..., stops: _Optional[str] = ..., facts: _Optional[int] = ...) -> None: ...
class ChainRisk(_message.Message):
    chain: int
    outcomes: _containers.RepeatedCompositeFieldContainer[ChainOutcome]
    unseen: _containers.RepeatedScalarFieldContainer[str]
    unknown: str
    def __init__(self, chain: _Optional[int] = ..., outcomes: _Optional[_Iterable[_Union[ChainOutcome, _Mapping]]] = ..., unseen: _Optional[_Iterable[str]] = ..., unknown: _Optional[str] = ...) -> None: ...
class AtRiskResponse(_message.Message):
    chains: _containers.RepeatedCompositeFieldContainer[ChainRisk]
    def __init__(self, chains: _Optional[_Iterable[_Union[ChainRisk, _Mapping]]] = ...) -> None: ...
class LentRequest(_message.Message):
    def __init__(self) -> None: ...
class LentResponse(_message.Message):
    lent: _containers.RepeatedCompositeFieldContainer[RiskSum]
    def __init__(self, lent: _Optional[_Iterable[_Union[RiskSum, _Mapping]]] = ...) -> None: ...
class ReceiptRequest(_message.Message):
    topic: int
    source: int
    offset: int
    def __init__(self, topic: _Optional[int] = ..., source: _Optional[int] = ..., offset: _Optional[int] = ...) -> None: ...
class ReceiptResponse(_message.Message):
    log: int
    position: int
    bytes: int
    time_ns: int
    suffices: bool
    needed: int
    copies: _containers.RepeatedCompositeFieldContainer[CopyState]
    def __init__(self, log: _Optional[int] = ..., position: _Optional[int] = ..., bytes: _Optional[int] = ..., time_ns: _Optional[int] = ..., suffices: _Optional[bool] = ..., needed: _Optional[int] = ..., copies: _Optional[_Iterable[_Union[CopyState, _Mapping]]] = ...) -> None: ...
class CopyState(_message.Message):
    folder: str
    state: str
    reason: str
    def __init__(self, folder: _Optional[str] = ..., state: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...
class DescribedChain(_message.Message):
    chain: int
    sources: _containers.RepeatedCompositeFieldContainer[DescribedSource]
    generation: int
    backlog_messages: int
    backlog_bytes: int
    oldest_age_s: float
    unreadable: str
    seek: SeekChange
    def __init__(self, chain: _Optional[int] = ..., sources: _Optional[_Iterable[_Union[DescribedSource, _Mapping]]] = ..., generation: _Optional[int] = ..., backlog_messages: _Optional[int] = ..., backlog_bytes: _Optional[int] = ..., oldest_age_s: _Optional[float] = ..., unreadable: _Optional[str] = ..., seek: _Optional[_Union[SeekChange, _Mapping]] = ...) -> None: ...
class DescribedSource(_message.Message):
    source: int
    first_offset: int
    next_offset: int
    start_offset: int
    first_unacked_offset: int
    acked_messages: int
    acked: _containers.RepeatedScalarFieldContainer[int]
    ranges_total: int
    universe: int
    copies: int
    def __init__(self, source: _Optional[int] = ..., first_offset: _Optional[int] = ..., next_offset: _Optional[int] = ..., start_offset: _Optional[int] = ..., first_unacked_offset: _Optional[int] = ..., acked_messages: _Optional[int] = ..., acked: _Optional[_Iterable[int]] = ..., ranges_total: _Optional[int] = ..., universe: _Optional[int] = ..., copies: _Optional[int] = ...) -> None: ...
class DescribeDeliveryRequest(_message.Message):
    subscription: int
    revision: int
    def __init__(self, subscription: _Optional[int] = ..., revision: _Optional[int] = ...) -> None: ...
class DescribeDeliveryResponse(_message.Message):
    messages: int
    bytes: int
    subscribers: int
    leaving: int
    def __init__(self, messages: _Optional[int] = ..., bytes: _Optional[int] = ..., subscribers: _Optional[int] = ..., leaving: _Optional[int] = ...) -> None: ...
class LendRequest(_message.Message):
    subscription: str
    messages: int
    seconds: int
    destination: bytes
    def __init__(self, subscription: _Optional[str] = ..., messages: _Optional[int] = ..., seconds: _Optional[int] = ..., destination: _Optional[bytes] = ...) -> None: ...
class LendResponse(_message.Message):
    received_messages: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, received_messages: _Optional[_Iterable[bytes]] = ...) -> None: ...
class TakeBackRequest(_message.Message):
    subscription: str
    ack_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, subscription: _Optional[str] = ..., ack_ids: _Optional[_Iterable[str]] = ...) -> None: ...
class TakeBackResponse(_message.Message):
    def __init__(self) -> None: ...
class TurnRequest(_message.Message):
    request: bytes
    done: bool
    dropped: _containers.RepeatedScalarFieldContainer[str]
    failed: _containers.RepeatedScalarFieldContainer[str]
    untried: _containers.RepeatedScalarFieldContainer[str]
    lend: LendRequest
    def __init__(self, request: _Optional[bytes] = ..., done: _Optional[bool] = ..., dropped: _Optional[_Iterable[str]] = ..., failed: _Optional[_Iterable[str]] = ..., untried: _Optional[_Iterable[str]] = ..., lend: _Optional[_Union[LendRequest, _Mapping]] = ...) -> None: ...
class DescribeConsumptionRequest(_message.Message):
    subscription: int
    def __init__(self, subscription: _Optional[int] = ...) -> None: ...
class DescribeConsumptionResponse(_message.Message):
    state: syncpoint_admin_v1.PushState
    export: syncpoint_admin_v1.ExportState
    forward: syncpoint_admin_v1.ForwardState
    def __init__(self, state: _Optional[_Union[syncpoint_admin_v1.PushState, _Mapping]] = ..., export: _Optional[_Union[syncpoint_admin_v1.ExportState, _Mapping]] = ..., forward: _Optional[_Union[syncpoint_admin_v1.ForwardState, _Mapping]] = ...) -> None: ...
class VoidRequest(_message.Message):
    chain: int
    sender: int
    batches: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, chain: _Optional[int] = ..., sender: _Optional[int] = ..., batches: _Optional[_Iterable[int]] = ...) -> None: ...
class VoidResponse(_message.Message):
    batches: int
    messages: int
    late: int
    def __init__(self, batches: _Optional[int] = ..., messages: _Optional[int] = ..., late: _Optional[int] = ...) -> None: ...
class HandOverRequest(_message.Message):
    chain: int
    to: str
    def __init__(self, chain: _Optional[int] = ..., to: _Optional[str] = ...) -> None: ...
class HandOverResponse(_message.Message):
    def __init__(self) -> None: ...
class StatusRequest(_message.Message):
    def __init__(self) -> None: ...
class StatusResponse(_message.Message):
    json: str
    def __init__(self, json: _Optional[str] = ...) -> None: ...
class MetricsRequest(_message.Message):
    def __init__(self) -> None: ...
class MetricsResponse(_message.Message):
    text: bytes
    def __init__(self, text: _Optional[bytes] = ...) -> None: ...
class PingRequest(_message.Message):
    payload: bytes
    def __init__(self, payload: _Optional[bytes] = ...) -> None: ...
class PingResponse(_message.Message):
    payload: bytes
    def __init__(self, payload: _Optional[bytes] = ...) -> None: ...
class RouteRequest(_message.Message):
    proxy: str
    region: str
    topics: _containers.RepeatedScalarFieldContainer[int]
    subscriptions: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, proxy: _Optional[str] = ..., region: _Optional[str] = ..., topics: _Optional[_Iterable[int]] = ..., subscriptions: _Optional[_Iterable[int]] = ...) -> None: ...
class WatchRequest(_message.Message):
    proxy: str
    region: str
    def __init__(self, proxy: _Optional[str] = ..., region: _Optional[str] = ...) -> None: ...
class RouteResponse(_message.Message):
    topics: _containers.RepeatedCompositeFieldContainer[TopicRoute]
    subscriptions: _containers.RepeatedCompositeFieldContainer[SubscriptionRoute]
    revision: int
    def __init__(self, topics: _Optional[_Iterable[_Union[TopicRoute, _Mapping]]] = ..., subscriptions: _Optional[_Iterable[_Union[SubscriptionRoute, _Mapping]]] = ..., revision: _Optional[int] = ...) -> None: ...
class TopicRoute(_message.Message):
    topic: int
    epoch: int
    chains: _containers.RepeatedScalarFieldContainer[int]
    alternatives: _containers.RepeatedScalarFieldContainer[int]
    nearest: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, topic: _Optional[int] = ..., epoch: _Optional[int] = ..., chains: _Optional[_Iterable[int]] = ..., alternatives: _Optional[_Iterable[int]] = ..., nearest: _Optional[_Iterable[int]] = ...) -> None: ...
class SubscriptionRoute(_message.Message):
    subscription: int
    epoch: int
    members: _containers.RepeatedScalarFieldContainer[str]
    others: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, subscription: _Optional[int] = ..., epoch: _Optional[int] = ..., members: _Optional[_Iterable[str]] = ..., others: _Optional[_Iterable[str]] = ...) -> None: ...
class ScheduledListRequest(_message.Message):
    topic: int
    after: ScheduledEntry
    messages_max: int
    source: int
    offset: int
    def __init__(self, topic: _Optional[int] = ..., after: _Optional[_Union[ScheduledEntry, _Mapping]] = ..., messages_max: _Optional[int] = ..., source: _Optional[int] = ..., offset: _Optional[int] = ...) -> None: ...
class ScheduledListResponse(_message.Message):
    chains: _containers.RepeatedCompositeFieldContainer[ScheduledOfChain]
    def __init__(self, chains: _Optional[_Iterable[_Union[ScheduledOfChain, _Mapping]]] = ...) -> None: ...
class ScheduledOfChain(_message.Message):
    chain: int
    messages: _containers.RepeatedCompositeFieldContainer[ScheduledEntry]
    def __init__(self, chain: _Optional[int] = ..., messages: _Optional[_Iterable[_Union[ScheduledEntry, _Mapping]]] = ...) -> None: ...
class ScheduledEntry(_message.Message):
    due_ns: int
    source: int
    offset: int
    message: bytes
    def __init__(self, due_ns: _Optional[int] = ..., source: _Optional[int] = ..., offset: _Optional[int] = ..., message: _Optional[bytes] = ...) -> None: ...
class ScheduledCancelRequest(_message.Message):
    topic: int
    source: int
    offset: int
    def __init__(self, topic: _Optional[int] = ..., source: _Optional[int] = ..., offset: _Optional[int] = ...) -> None: ...
class ScheduledCancelResponse(_message.Message):
    chains: _containers.RepeatedScalarFieldContainer[int]
    here: bool
    cancelled: bool
    def __init__(self, chains: _Optional[_Iterable[int]] = ..., here: _Optional[bool] = ..., cancelled: _Optional[bool] = ...) -> None: ...
class DeadLetterRequest(_message.Message):
    subscription: str
    ack_ids: _containers.RepeatedScalarFieldContainer[str]
    reason: str
    description: str
    def __init__(self, subscription: _Optional[str] = ..., ack_ids: _Optional[_Iterable[str]] = ..., reason: _Optional[str] = ..., description: _Optional[str] = ...) -> None: ...
class DeadLetterResponse(_message.Message):
    failed: _containers.RepeatedCompositeFieldContainer[KeptMessage]
    def __init__(self, failed: _Optional[_Iterable[_Union[KeptMessage, _Mapping]]] = ...) -> None: ...
class KeptMessage(_message.Message):
    ack_id: str
    invalid: bool
    reason: str
    def __init__(self, ack_id: _Optional[str] = ..., invalid: _Optional[bool] = ..., reason: _Optional[str] = ...) -> None: ...
class AcknowledgeSeenRequest(_message.Message):
    subscription: int
    source: int
    runs: bytes
    generation: int
    def __init__(self, subscription: _Optional[int] = ..., source: _Optional[int] = ..., runs: _Optional[bytes] = ..., generation: _Optional[int] = ...) -> None: ...
class AcknowledgeSeenResponse(_message.Message):
    def __init__(self) -> None: ...
class ClientsRequest(_message.Message):
    subscription: str
    topic: str
    clients_max: int
    def __init__(self, subscription: _Optional[str] = ..., topic: _Optional[str] = ..., clients_max: _Optional[int] = ...) -> None: ...
class ClientsResponse(_message.Message):
    clients: _containers.RepeatedCompositeFieldContainer[SeenClient]
    more: int
    def __init__(self, clients: _Optional[_Iterable[_Union[SeenClient, _Mapping]]] = ..., more: _Optional[int] = ...) -> None: ...
class SeenClient(_message.Message):
    client: syncpoint_admin_v1.ConnectedClient
    stream: str
    def __init__(self, client: _Optional[_Union[syncpoint_admin_v1.ConnectedClient, _Mapping]] = ..., stream: _Optional[str] = ...) -> None: ...
class StreamsRequest(_message.Message):
    subscription: int
    def __init__(self, subscription: _Optional[int] = ...) -> None: ...
class StreamsResponse(_message.Message):
    streams: _containers.RepeatedCompositeFieldContainer[HeldStream]
    def __init__(self, streams: _Optional[_Iterable[_Union[HeldStream, _Mapping]]] = ...) -> None: ...
class HeldStream(_message.Message):
    stream: str
    messages: int
    bytes: int
    def __init__(self, stream: _Optional[str] = ..., messages: _Optional[int] = ..., bytes: _Optional[int] = ...) -> None: ...
class AuditRequest(_message.Message):
    who: str
    method: str
    resource: str
    outcome: str
    since: str
    until: str
    before: int
    lines_max: int
    verify: bool
    def __init__(self, who: _Optional[str] = ..., method: _Optional[str] = ..., resource: _Optional[str] = ..., outcome: _Optional[str] = ..., since: _Optional[str] = ..., until: _Optional[str] = ..., before: _Optional[int] = ..., lines_max: _Optional[int] = ..., verify: _Optional[bool] = ...) -> None: ...
class AuditResponse(_message.Message):
    file: str
    lines: _containers.RepeatedScalarFieldContainer[bytes]
    next: int
    read_time: str
    verified: int
    hash: str
    broken: str
    def __init__(self, file: _Optional[str] = ..., lines: _Optional[_Iterable[bytes]] = ..., next: _Optional[int] = ..., read_time: _Optional[str] = ..., verified: _Optional[int] = ..., hash: _Optional[str] = ..., broken: _Optional[str] = ...) -> None: ...
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union
class MetadataKeyValue(_message.Message):
    key: str
    value: bytes
    create_revision: int
    revision: int
    version: int
    lease: int
    def __init__(self, key: _Optional[str] = ..., value: _Optional[bytes] = ..., create_revision: _Optional[int] = ..., revision: _Optional[int] = ..., version: _Optional[int] = ..., lease: _Optional[int] = ...) -> None: ...
class MetadataGetRequest(_message.Message):
    key: str
    def __init__(self, key: _Optional[str] = ...) -> None: ...
class MetadataGetResponse(_message.Message):
    item: MetadataKeyValue
    def __init__(self, item: _Optional[_Union[MetadataKeyValue, _Mapping]] = ...) -> None: ...
class MetadataRangeRequest(_message.Message):
    prefix: str
    after: str
    limit: int
    def __init__(self, prefix: _Optional[str] = ..., after: _Optional[str] = ..., limit: _Optional[int] = ...) -> None: ...
class MetadataRangeResponse(_message.Message):
    items: _containers.RepeatedCompositeFieldContainer[MetadataKeyValue]
    revision: int
    more: bool
    def __init__(self, items: _Optional[_Iterable[_Union[MetadataKeyValue, _Mapping]]] = ..., revision: _Optional[int] = ..., more: _Optional[bool] = ...) -> None: ...
class MetadataCompare(_message.Message):
    key: str
    what: str
    relation: str
    value: bytes
    number: int
    def __init__(self, key: _Optional[str] = ..., what: _Optional[str] = ..., relation: _Optional[str] = ..., value: _Optional[bytes] = ..., number: _Optional[int] = ...) -> None: ...
class MetadataOperation(_message.Message):
    key: str
    value: bytes
    lease: int
    def __init__(self, key: _Optional[str] = ..., value: _Optional[bytes] = ..., lease: _Optional[int] = ...) -> None: ...
class MetadataTxnRequest(_message.Message):
    compares: _containers.RepeatedCompositeFieldContainer[MetadataCompare]
    then: _containers.RepeatedCompositeFieldContainer[MetadataOperation]
    orelse: _containers.RepeatedCompositeFieldContainer[MetadataOperation]
    def __init__(self, compares: _Optional[_Iterable[_Union[MetadataCompare, _Mapping]]] = ..., then: _Optional[_Iterable[_Union[MetadataOperation, _Mapping]]] = ..., orelse: _Optional[_Iterable[_Union[MetadataOperation, _Mapping]]] = ...) -> None: ...
class MetadataTxnResponse(_message.Message):
    ok: bool
    revision: int
    def __init__(self, ok: _Optional[bool] = ..., revision: _Optional[int] = ...) -> None: ...
class MetadataCountRequest(_message.Message):
    key: str
    by: int
    def __init__(self, key: _Optional[str] = ..., by: _Optional[int] = ...) -> None: ...
class MetadataCountResponse(_message.Message):
    value: int
    def __init__(self, value: _Optional[int] = ...) -> None: ...
class MetadataGrantRequest(_message.Message):
    ttl_s: float
    def __init__(self, ttl_s: _Optional[float] = ...) -> None: ...
class MetadataGrantResponse(_message.Message):
    id: int
    def __init__(self, id: _Optional[int] = ...) -> None: ...
class MetadataLeaseRequest(_message.Message):
    id: int
    def __init__(self, id: _Optional[int] = ...) -> None: ...
class MetadataLeaseResponse(_message.Message):
    alive: bool
    def __init__(self, alive: _Optional[bool] = ...) -> None: ...
class MetadataWatchRequest(_message.Message):
    prefix: str
    from_revision: int
    def __init__(self, prefix: _Optional[str] = ..., from_revision: _Optional[int] = ...) -> None: ...
class MetadataEvent(_message.Message):
    revision: int
    key: str
    value: bytes
    def __init__(self, revision: _Optional[int] = ..., key: _Optional[str] = ..., value: _Optional[bytes] = ...) -> None: ...
class MetadataWatchResponse(_message.Message):
    events: _containers.RepeatedCompositeFieldContainer[MetadataEvent]
    more: bool
    resync: int
    def __init__(self, events: _Optional[_Iterable[_Union[MetadataEvent, _Mapping]]] = ..., more: _Optional[bool] = ..., resync: _Optional[int] = ...) -> None: ...
class MetadataCompactRequest(_message.Message):
    before: int
    def __init__(self, before: _Optional[int] = ...) -> None: ...
class MetadataCompactResponse(_message.Message):
    def __init__(self) -> None: ...
class MetadataStatusRequest(_message.Message):
    def __init__(self) -> None: ...
class MetadataStatusResponse(_message.Message):
    store: str
    revision: int
    compacted: int
    keys: int
    bytes: int
    def __init__(self, store: _Optional[str] = ..., revision: _Optional[int] = ..., compacted: _Optional[int] = ..., keys: _Optional[int] = ..., bytes: _Optional[int] = ...) -> None: ...

import datetime
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union
class Column(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    COLUMN_UNSPECIFIED: _ClassVar[Column]
    MESSAGE_ID: _ClassVar[Column]
    OFFSET: _ClassVar[Column]
    PUBLISH_TIME: _ClassVar[Column]
    DATA: _ClassVar[Column]
    ATTRIBUTES: _ClassVar[Column]
    ORDERING_KEY: _ClassVar[Column]
    ORIGIN: _ClassVar[Column]
    VISITED: _ClassVar[Column]
    SIZE: _ClassVar[Column]
COLUMN_UNSPECIFIED: Column
MESSAGE_ID: Column
OFFSET: Column
PUBLISH_TIME: Column
DATA: Column
ATTRIBUTES: Column
ORDERING_KEY: Column
ORIGIN: Column
VISITED: Column
SIZE: Column
class SourceRange(_message.Message):
    source: int
    begin: int
    end: int
    chain: int
    def __init__(self, source: _Optional[int] = ..., begin: _Optional[int] = ..., end: _Optional[int] = ..., chain: _Optional[int] = ...) -> None: ...
class SourcePosition(_message.Message):
    source: int
    epoch: int
    chain: int
    begin: int
    end: int
    sealed: bool
    start: int
    mean_bytes: int
    def __init__(self, source: _Optional[int] = ..., epoch: _Optional[int] = ..., chain: _Optional[int] = ..., begin: _Optional[int] = ..., end: _Optional[int] = ..., sealed: _Optional[bool] = ..., start: _Optional[int] = ..., mean_bytes: _Optional[int] = ...) -> None: ...
class Cursor(_message.Message):
    topic: str
    name: str
    retention_seconds: int
    retention_bytes: int
    expiration_seconds: int
    ranges: _containers.RepeatedCompositeFieldContainer[SourceRange]
    used: _timestamp_pb2.Timestamp
    lag_messages: int
    lag_bytes: int
    lost: _containers.RepeatedCompositeFieldContainer[SourceRange]
    def __init__(self, topic: _Optional[str] = ..., name: _Optional[str] = ..., retention_seconds: _Optional[int] = ..., retention_bytes: _Optional[int] = ..., expiration_seconds: _Optional[int] = ..., ranges: _Optional[_Iterable[_Union[SourceRange, _Mapping]]] = ..., used: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., lag_messages: _Optional[int] = ..., lag_bytes: _Optional[int] = ..., lost: _Optional[_Iterable[_Union[SourceRange, _Mapping]]] = ...) -> None: ...
class GetPositionsRequest(_message.Message):
    topic: str
    subscription: str
    topic_incarnation: int
    cursor: Cursor
    processed: _containers.RepeatedCompositeFieldContainer[SourceRange]
    first: bool
    latest: bool
    time: _timestamp_pb2.Timestamp
    snapshot: str
    backlog: bool
    exclusive_reader: str
    exclusive_seconds: float
    generation: int
    known: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, topic: _Optional[str] = ..., subscription: _Optional[str] = ..., topic_incarnation: _Optional[int] = ..., cursor: _Optional[_Union[Cursor, _Mapping]] = ..., processed: _Optional[_Iterable[_Union[SourceRange, _Mapping]]] = ..., first: _Optional[bool] = ..., latest: _Optional[bool] = ..., time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., snapshot: _Optional[str] = ..., backlog: _Optional[bool] = ..., exclusive_reader: _Optional[str] = ..., exclusive_seconds: _Optional[float] = ..., generation: _Optional[int] = ..., known: _Optional[_Iterable[int]] = ...) -> None: ...
class Positions(_message.Message):
    topic: str
    topic_incarnation: int
    universe: str
    sources: _containers.RepeatedCompositeFieldContainer[SourcePosition]
    time: _timestamp_pb2.Timestamp
    lost: _containers.RepeatedCompositeFieldContainer[SourceRange]
    generation: int
    ended: _containers.RepeatedCompositeFieldContainer[SourceRange]
    def __init__(self, topic: _Optional[str] = ..., topic_incarnation: _Optional[int] = ..., universe: _Optional[str] = ..., sources: _Optional[_Iterable[_Union[SourcePosition, _Mapping]]] = ..., time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., lost: _Optional[_Iterable[_Union[SourceRange, _Mapping]]] = ..., generation: _Optional[int] = ..., ended: _Optional[_Iterable[_Union[SourceRange, _Mapping]]] = ...) -> None: ...
class ReadRangeRequest(_message.Message):
    topic: str
    topic_incarnation: int
    source: int
    begin: int
    end: int
    columns: _containers.RepeatedScalarFieldContainer[Column]
    filter: str
    origins: _containers.RepeatedScalarFieldContainer[str]
    not_visited: str
    skip_subscription: str
    skip_snapshot: str
    frame_bytes: int
    chain: int
    def __init__(self, topic: _Optional[str] = ..., topic_incarnation: _Optional[int] = ..., source: _Optional[int] = ..., begin: _Optional[int] = ..., end: _Optional[int] = ..., columns: _Optional[_Iterable[_Union[Column, int, str]]] = ..., filter: _Optional[str] = ..., origins: _Optional[_Iterable[str]] = ..., not_visited: _Optional[str] = ..., skip_subscription: _Optional[str] = ..., skip_snapshot: _Optional[str] = ..., frame_bytes: _Optional[int] = ..., chain: _Optional[int] = ...) -> None: ...
class ReadFrame(_message.Message):
    batch: bytes
    rows: int
    next_offset: int
    def __init__(self, batch: _Optional[bytes] = ..., rows: _Optional[int] = ..., next_offset: _Optional[int] = ...) -> None: ...
class ListCursorsRequest(_message.Message):
    topic: str
    project: str
    def __init__(self, topic: _Optional[str] = ..., project: _Optional[str] = ...) -> None: ...
class ListCursorsResponse(_message.Message):
    cursors: _containers.RepeatedCompositeFieldContainer[Cursor]
    def __init__(self, cursors: _Optional[_Iterable[_Union[Cursor, _Mapping]]] = ...) -> None: ...
class DeleteCursorRequest(_message.Message):
    topic: str
    name: str
    def __init__(self, topic: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...
class DeleteCursorResponse(_message.Message):
    def __init__(self) -> None: ...
class ReleaseSubscriptionRequest(_message.Message):
    subscription: str
    exclusive_reader: str
    def __init__(self, subscription: _Optional[str] = ..., exclusive_reader: _Optional[str] = ...) -> None: ...
class ReleaseSubscriptionResponse(_message.Message):
    def __init__(self) -> None: ...
class Run(_message.Message):
    query: str
    run: str
    def __init__(self, query: _Optional[str] = ..., run: _Optional[str] = ...) -> None: ...
class StageHeader(_message.Message):
    run: Run
    epoch: int
    partition: int
    attempt: str
    via: str
    here: str
    keep_identity: bool
    link: str
    def __init__(self, run: _Optional[_Union[Run, _Mapping]] = ..., epoch: _Optional[int] = ..., partition: _Optional[int] = ..., attempt: _Optional[str] = ..., via: _Optional[str] = ..., here: _Optional[str] = ..., keep_identity: _Optional[bool] = ..., link: _Optional[str] = ...) -> None: ...
class StageFrame(_message.Message):
    topic: str
    columns: _containers.RepeatedScalarFieldContainer[Column]
    batch: bytes
    source: int
    topic_incarnation: int
    def __init__(self, topic: _Optional[str] = ..., columns: _Optional[_Iterable[_Union[Column, int, str]]] = ..., batch: _Optional[bytes] = ..., source: _Optional[int] = ..., topic_incarnation: _Optional[int] = ...) -> None: ...
class StageRequest(_message.Message):
    header: StageHeader
    frame: StageFrame
    def __init__(self, header: _Optional[_Union[StageHeader, _Mapping]] = ..., frame: _Optional[_Union[StageFrame, _Mapping]] = ...) -> None: ...
class StageResponse(_message.Message):
    rows: int
    bytes: int
    dropped: int
    def __init__(self, rows: _Optional[int] = ..., bytes: _Optional[int] = ..., dropped: _Optional[int] = ...) -> None: ...
class StageName(_message.Message):
    partition: int
    attempt: str
    def __init__(self, partition: _Optional[int] = ..., attempt: _Optional[str] = ...) -> None: ...
class CommitEpochRequest(_message.Message):
    run: Run
    epoch: int
    stages: _containers.RepeatedCompositeFieldContainer[StageName]
    link: str
    source_topic: str
    planned: _containers.RepeatedCompositeFieldContainer[SourceRange]
    accept_gaps: bool
    topic: str
    def __init__(self, run: _Optional[_Union[Run, _Mapping]] = ..., epoch: _Optional[int] = ..., stages: _Optional[_Iterable[_Union[StageName, _Mapping]]] = ..., link: _Optional[str] = ..., source_topic: _Optional[str] = ..., planned: _Optional[_Iterable[_Union[SourceRange, _Mapping]]] = ..., accept_gaps: _Optional[bool] = ..., topic: _Optional[str] = ...) -> None: ...
class TopicRange(_message.Message):
    topic: str
    source: int
    begin: int
    end: int
    def __init__(self, topic: _Optional[str] = ..., source: _Optional[int] = ..., begin: _Optional[int] = ..., end: _Optional[int] = ...) -> None: ...
class EpochResult(_message.Message):
    stored: _containers.RepeatedCompositeFieldContainer[TopicRange]
    rows: int
    repeated_epoch: bool
    duplicates_dropped: int
    def __init__(self, stored: _Optional[_Iterable[_Union[TopicRange, _Mapping]]] = ..., rows: _Optional[int] = ..., repeated_epoch: _Optional[bool] = ..., duplicates_dropped: _Optional[int] = ...) -> None: ...
class AbortEpochRequest(_message.Message):
    run: Run
    epoch: int
    def __init__(self, run: _Optional[_Union[Run, _Mapping]] = ..., epoch: _Optional[int] = ...) -> None: ...
class AbortEpochResponse(_message.Message):
    def __init__(self) -> None: ...
class Link(_message.Message):
    name: str
    source_topic: str
    base: _containers.RepeatedCompositeFieldContainer[SourceRange]
    committed: _containers.RepeatedCompositeFieldContainer[SourceRange]
    refused: _containers.RepeatedCompositeFieldContainer[SourceRange]
    skipped: _containers.RepeatedCompositeFieldContainer[SourceRange]
    rows: int
    bytes: int
    epochs: int
    duplicates_dropped: int
    gaps_refused: int
    committed_at: _timestamp_pb2.Timestamp
    def __init__(self, name: _Optional[str] = ..., source_topic: _Optional[str] = ..., base: _Optional[_Iterable[_Union[SourceRange, _Mapping]]] = ..., committed: _Optional[_Iterable[_Union[SourceRange, _Mapping]]] = ..., refused: _Optional[_Iterable[_Union[SourceRange, _Mapping]]] = ..., skipped: _Optional[_Iterable[_Union[SourceRange, _Mapping]]] = ..., rows: _Optional[int] = ..., bytes: _Optional[int] = ..., epochs: _Optional[int] = ..., duplicates_dropped: _Optional[int] = ..., gaps_refused: _Optional[int] = ..., committed_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...
class ListLinksRequest(_message.Message):
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...
class ListLinksResponse(_message.Message):
    links: _containers.RepeatedCompositeFieldContainer[Link]
    def __init__(self, links: _Optional[_Iterable[_Union[Link, _Mapping]]] = ...) -> None: ...
class AcceptGapRequest(_message.Message):
    link: str
    def __init__(self, link: _Optional[str] = ...) -> None: ...
class MapOffsetsRequest(_message.Message):
    link: str
    source: int
    begin: int
    end: int
    def __init__(self, link: _Optional[str] = ..., source: _Optional[int] = ..., begin: _Optional[int] = ..., end: _Optional[int] = ...) -> None: ...
class OffsetMapping(_message.Message):
    to: _containers.RepeatedCompositeFieldContainer[TopicRange]
    def __init__(self, to: _Optional[_Iterable[_Union[TopicRange, _Mapping]]] = ..., **kwargs) -> None: ...
class MapOffsetsResponse(_message.Message):
    mappings: _containers.RepeatedCompositeFieldContainer[OffsetMapping]
    next_offset: int
    def __init__(self, mappings: _Optional[_Iterable[_Union[OffsetMapping, _Mapping]]] = ..., next_offset: _Optional[int] = ...) -> None: ...
class SeekStamp(_message.Message):
    number: int
    site: str
    def __init__(self, number: _Optional[int] = ..., site: _Optional[str] = ...) -> None: ...
class KnownAcks(_message.Message):
    source: int
    count: int
    prefix: int
    def __init__(self, source: _Optional[int] = ..., count: _Optional[int] = ..., prefix: _Optional[int] = ...) -> None: ...
class AckChangesRequest(_message.Message):
    subscription: str
    link: str
    source_topic: str
    generation: int
    known: _containers.RepeatedCompositeFieldContainer[KnownAcks]
    homes_only: bool
    snapshot: str
    snapshots_seen: int
    def __init__(self, subscription: _Optional[str] = ..., link: _Optional[str] = ..., source_topic: _Optional[str] = ..., generation: _Optional[int] = ..., known: _Optional[_Iterable[_Union[KnownAcks, _Mapping]]] = ..., homes_only: _Optional[bool] = ..., snapshot: _Optional[str] = ..., snapshots_seen: _Optional[int] = ...) -> None: ...
class SiteSnapshot(_message.Message):
    class LabelsEntry(_message.Message):
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    snapshot: str
    identity: str
    unfinished: bool
    copying: bool
    checked: bool
    expire_time: _timestamp_pb2.Timestamp
    labels: _containers.ScalarMap[str, str]
    known_at: _containers.RepeatedScalarFieldContainer[str]
    incarnation: int
    def __init__(self, snapshot: _Optional[str] = ..., identity: _Optional[str] = ..., unfinished: _Optional[bool] = ..., copying: _Optional[bool] = ..., checked: _Optional[bool] = ..., expire_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., labels: _Optional[_Mapping[str, str]] = ..., known_at: _Optional[_Iterable[str]] = ..., incarnation: _Optional[int] = ...) -> None: ...
class HeldSource(_message.Message):
    source: int
    end: int
    runs: bytes
    def __init__(self, source: _Optional[int] = ..., end: _Optional[int] = ..., runs: _Optional[bytes] = ...) -> None: ...
class AckedSource(_message.Message):
    source: int
    count: int
    prefix: int
    runs: bytes
    def __init__(self, source: _Optional[int] = ..., count: _Optional[int] = ..., prefix: _Optional[int] = ..., runs: _Optional[bytes] = ...) -> None: ...
class AckChangesResponse(_message.Message):
    generation: int
    stamp: SeekStamp
    stamped_generation: int
    seek_time: _timestamp_pb2.Timestamp
    source_topic: str
    sources: _containers.RepeatedCompositeFieldContainer[AckedSource]
    more: bool
    home: str
    home_epoch: int
    keys: _containers.RepeatedCompositeFieldContainer[KeyRange]
    snapshots: _containers.RepeatedCompositeFieldContainer[SiteSnapshot]
    snapshots_at: int
    place: str
    held: _containers.RepeatedCompositeFieldContainer[HeldSource]
    def __init__(self, generation: _Optional[int] = ..., stamp: _Optional[_Union[SeekStamp, _Mapping]] = ..., stamped_generation: _Optional[int] = ..., seek_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., source_topic: _Optional[str] = ..., sources: _Optional[_Iterable[_Union[AckedSource, _Mapping]]] = ..., more: _Optional[bool] = ..., home: _Optional[str] = ..., home_epoch: _Optional[int] = ..., keys: _Optional[_Iterable[_Union[KeyRange, _Mapping]]] = ..., snapshots: _Optional[_Iterable[_Union[SiteSnapshot, _Mapping]]] = ..., snapshots_at: _Optional[int] = ..., place: _Optional[str] = ..., held: _Optional[_Iterable[_Union[HeldSource, _Mapping]]] = ...) -> None: ...
class KeyRange(_message.Message):
    first: int
    last: int
    home: str
    epoch: int
    taken_from: str
    def __init__(self, first: _Optional[int] = ..., last: _Optional[int] = ..., home: _Optional[str] = ..., epoch: _Optional[int] = ..., taken_from: _Optional[str] = ...) -> None: ...
class AckedRuns(_message.Message):
    source: int
    runs: bytes
    def __init__(self, source: _Optional[int] = ..., runs: _Optional[bytes] = ...) -> None: ...
class MergeAcksRequest(_message.Message):
    subscription: str
    link: str
    source_topic: str
    generation: int
    sources: _containers.RepeatedCompositeFieldContainer[AckedRuns]
    snapshot: str
    held: _containers.RepeatedCompositeFieldContainer[HeldSource]
    check: bool
    copy: int
    def __init__(self, subscription: _Optional[str] = ..., link: _Optional[str] = ..., source_topic: _Optional[str] = ..., generation: _Optional[int] = ..., sources: _Optional[_Iterable[_Union[AckedRuns, _Mapping]]] = ..., snapshot: _Optional[str] = ..., held: _Optional[_Iterable[_Union[HeldSource, _Mapping]]] = ..., check: _Optional[bool] = ..., copy: _Optional[int] = ...) -> None: ...
class MergeAcksResponse(_message.Message):
    newly: int
    refused: int
    lacking: int
    not_copied: int
    def __init__(self, newly: _Optional[int] = ..., refused: _Optional[int] = ..., lacking: _Optional[int] = ..., not_copied: _Optional[int] = ...) -> None: ...
class FollowSnapshotRequest(_message.Message):
    class Step(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        STEP_UNSPECIFIED: _ClassVar[FollowSnapshotRequest.Step]
        BEGIN: _ClassVar[FollowSnapshotRequest.Step]
        CHECKED: _ClassVar[FollowSnapshotRequest.Step]
        FINISH: _ClassVar[FollowSnapshotRequest.Step]
        DROP: _ClassVar[FollowSnapshotRequest.Step]
        KNOWN: _ClassVar[FollowSnapshotRequest.Step]
    STEP_UNSPECIFIED: FollowSnapshotRequest.Step
    BEGIN: FollowSnapshotRequest.Step
    CHECKED: FollowSnapshotRequest.Step
    FINISH: FollowSnapshotRequest.Step
    DROP: FollowSnapshotRequest.Step
    KNOWN: FollowSnapshotRequest.Step
    class LabelsEntry(_message.Message):
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    subscription: str
    snapshot: str
    identity: str
    step: FollowSnapshotRequest.Step
    expire_time: _timestamp_pb2.Timestamp
    labels: _containers.ScalarMap[str, str]
    known_at: _containers.RepeatedScalarFieldContainer[str]
    copy: int
    def __init__(self, subscription: _Optional[str] = ..., snapshot: _Optional[str] = ..., identity: _Optional[str] = ..., step: _Optional[_Union[FollowSnapshotRequest.Step, int, str]] = ..., expire_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., labels: _Optional[_Mapping[str, str]] = ..., known_at: _Optional[_Iterable[str]] = ..., copy: _Optional[int] = ...) -> None: ...
class FollowSnapshotResponse(_message.Message):
    copy: int
    def __init__(self, copy: _Optional[int] = ...) -> None: ...
class FollowSeekRequest(_message.Message):
    subscription: str
    generation: int
    stamp: SeekStamp
    time: _timestamp_pb2.Timestamp
    def __init__(self, subscription: _Optional[str] = ..., generation: _Optional[int] = ..., stamp: _Optional[_Union[SeekStamp, _Mapping]] = ..., time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...
class FollowSeekResponse(_message.Message):
    generation: int
    def __init__(self, generation: _Optional[int] = ...) -> None: ...
class SetHomeRequest(_message.Message):
    subscription: str
    site: str
    home: str
    epoch: int
    keys: _containers.RepeatedCompositeFieldContainer[KeyRange]
    instead_of: str
    def __init__(self, subscription: _Optional[str] = ..., site: _Optional[str] = ..., home: _Optional[str] = ..., epoch: _Optional[int] = ..., keys: _Optional[_Iterable[_Union[KeyRange, _Mapping]]] = ..., instead_of: _Optional[str] = ...) -> None: ...
class SetHomeResponse(_message.Message):
    home: str
    epoch: int
    keys: _containers.RepeatedCompositeFieldContainer[KeyRange]
    def __init__(self, home: _Optional[str] = ..., epoch: _Optional[int] = ..., keys: _Optional[_Iterable[_Union[KeyRange, _Mapping]]] = ...) -> None: ...

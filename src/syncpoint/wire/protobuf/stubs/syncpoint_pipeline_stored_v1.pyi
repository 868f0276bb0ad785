from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union
class Fact(_message.Message):
    run: Run
    query: Query
    stage: Stage
    dropped: Dropped
    decision: Decision
    applied: Applied
    done: Done
    link: Link
    copied: Copied
    forgotten: Forgotten
    def __init__(self, run: _Optional[_Union[Run, _Mapping]] = ..., query: _Optional[_Union[Query, _Mapping]] = ..., stage: _Optional[_Union[Stage, _Mapping]] = ..., dropped: _Optional[_Union[Dropped, _Mapping]] = ..., decision: _Optional[_Union[Decision, _Mapping]] = ..., applied: _Optional[_Union[Applied, _Mapping]] = ..., done: _Optional[_Union[Done, _Mapping]] = ..., link: _Optional[_Union[Link, _Mapping]] = ..., copied: _Optional[_Union[Copied, _Mapping]] = ..., forgotten: _Optional[_Union[Forgotten, _Mapping]] = ...) -> None: ...
class Run(_message.Message):
    query: str
    run: str
    used_ns: int
    def __init__(self, query: _Optional[str] = ..., run: _Optional[str] = ..., used_ns: _Optional[int] = ...) -> None: ...
class Query(_message.Message):
    name: str
    run: str
    earlier: _containers.RepeatedScalarFieldContainer[int]
    committed_end: int
    used_ns: int
    results: _containers.RepeatedCompositeFieldContainer[Result]
    def __init__(self, name: _Optional[str] = ..., run: _Optional[str] = ..., earlier: _Optional[_Iterable[int]] = ..., committed_end: _Optional[int] = ..., used_ns: _Optional[int] = ..., results: _Optional[_Iterable[_Union[Result, _Mapping]]] = ...) -> None: ...
class Result(_message.Message):
    epoch: int
    result: bytes
    def __init__(self, epoch: _Optional[int] = ..., result: _Optional[bytes] = ...) -> None: ...
class Topic(_message.Message):
    incarnation: int
    name: str
    def __init__(self, incarnation: _Optional[int] = ..., name: _Optional[str] = ...) -> None: ...
class Piece(_message.Message):
    topic: int
    first_offset: int
    count: int
    size: int
    link_source: int
    runs: bytes
    complete: bool
    def __init__(self, topic: _Optional[int] = ..., first_offset: _Optional[int] = ..., count: _Optional[int] = ..., size: _Optional[int] = ..., link_source: _Optional[int] = ..., runs: _Optional[bytes] = ..., complete: _Optional[bool] = ...) -> None: ...
class Stage(_message.Message):
    id: int
    query: str
    run: str
    epoch: int
    partition: int
    attempt: str
    made_ns: int
    dropped: int
    staging: int
    topics: _containers.RepeatedCompositeFieldContainer[Topic]
    pieces: _containers.RepeatedCompositeFieldContainer[Piece]
    def __init__(self, id: _Optional[int] = ..., query: _Optional[str] = ..., run: _Optional[str] = ..., epoch: _Optional[int] = ..., partition: _Optional[int] = ..., attempt: _Optional[str] = ..., made_ns: _Optional[int] = ..., dropped: _Optional[int] = ..., staging: _Optional[int] = ..., topics: _Optional[_Iterable[_Union[Topic, _Mapping]]] = ..., pieces: _Optional[_Iterable[_Union[Piece, _Mapping]]] = ...) -> None: ...
class Dropped(_message.Message):
    stages: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, stages: _Optional[_Iterable[int]] = ...) -> None: ...
class Floor(_message.Message):
    source: int
    offset: int
    def __init__(self, source: _Optional[int] = ..., offset: _Optional[int] = ...) -> None: ...
class Decision(_message.Message):
    id: int
    query: str
    epoch: int
    stages: _containers.RepeatedScalarFieldContainer[int]
    link: str
    floors: _containers.RepeatedCompositeFieldContainer[Floor]
    decided_ns: int
    link_after: Link
    dropped: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, id: _Optional[int] = ..., query: _Optional[str] = ..., epoch: _Optional[int] = ..., stages: _Optional[_Iterable[int]] = ..., link: _Optional[str] = ..., floors: _Optional[_Iterable[_Union[Floor, _Mapping]]] = ..., decided_ns: _Optional[int] = ..., link_after: _Optional[_Union[Link, _Mapping]] = ..., dropped: _Optional[_Iterable[int]] = ...) -> None: ...
class Applied(_message.Message):
    decision: int
    index: int
    places: _containers.RepeatedCompositeFieldContainer[Place]
    def __init__(self, decision: _Optional[int] = ..., index: _Optional[int] = ..., places: _Optional[_Iterable[_Union[Place, _Mapping]]] = ...) -> None: ...
class Place(_message.Message):
    source: int
    first_offset: int
    count: int
    def __init__(self, source: _Optional[int] = ..., first_offset: _Optional[int] = ..., count: _Optional[int] = ...) -> None: ...
class Done(_message.Message):
    decision: int
    result: bytes
    def __init__(self, decision: _Optional[int] = ..., result: _Optional[bytes] = ...) -> None: ...
class Interval(_message.Message):
    source: int
    chain: int
    base: int
    begin: int
    end: int
    def __init__(self, source: _Optional[int] = ..., chain: _Optional[int] = ..., base: _Optional[int] = ..., begin: _Optional[int] = ..., end: _Optional[int] = ...) -> None: ...
class Range(_message.Message):
    source: int
    begin: int
    end: int
    chain: int
    def __init__(self, source: _Optional[int] = ..., begin: _Optional[int] = ..., end: _Optional[int] = ..., chain: _Optional[int] = ...) -> None: ...
class Finished(_message.Message):
    chain: int
    source: int
    def __init__(self, chain: _Optional[int] = ..., source: _Optional[int] = ...) -> None: ...
class Link(_message.Message):
    name: str
    source_topic: str
    intervals: _containers.RepeatedCompositeFieldContainer[Interval]
    finished: _containers.RepeatedCompositeFieldContainer[Finished]
    refused: _containers.RepeatedCompositeFieldContainer[Range]
    skipped: _containers.RepeatedCompositeFieldContainer[Range]
    rows: int
    bytes: int
    epochs: int
    duplicates: int
    gaps_refused: int
    committed_ns: int
    def __init__(self, name: _Optional[str] = ..., source_topic: _Optional[str] = ..., intervals: _Optional[_Iterable[_Union[Interval, _Mapping]]] = ..., finished: _Optional[_Iterable[_Union[Finished, _Mapping]]] = ..., refused: _Optional[_Iterable[_Union[Range, _Mapping]]] = ..., skipped: _Optional[_Iterable[_Union[Range, _Mapping]]] = ..., rows: _Optional[int] = ..., bytes: _Optional[int] = ..., epochs: _Optional[int] = ..., duplicates: _Optional[int] = ..., gaps_refused: _Optional[int] = ..., committed_ns: _Optional[int] = ...) -> None: ...
class Copied(_message.Message):
    link: str
    link_source: int
    source: int
    first_offset: int
    count: int
    runs: bytes
    topic: str
    def __init__(self, link: _Optional[str] = ..., link_source: _Optional[int] = ..., source: _Optional[int] = ..., first_offset: _Optional[int] = ..., count: _Optional[int] = ..., runs: _Optional[bytes] = ..., topic: _Optional[str] = ...) -> None: ...
class Forgotten(_message.Message):
    queries: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, queries: _Optional[_Iterable[str]] = ...) -> None: ...
class Acked(_message.Message):
    subscription: int
    link: str
    generation: int
    source: int
    runs: bytes
    passed: bool
    used_ns: int
    def __init__(self, subscription: _Optional[int] = ..., link: _Optional[str] = ..., generation: _Optional[int] = ..., source: _Optional[int] = ..., runs: _Optional[bytes] = ..., passed: _Optional[bool] = ..., used_ns: _Optional[int] = ...) -> None: ...

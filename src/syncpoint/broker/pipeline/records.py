"""Values of epochs: query runs, stages, decisions and links."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from syncpoint.broker.pipeline.links import LinkState

RUNS_MAX = 1024  # runs of a query that are remembered; an older one would pass for a new one
RESULTS_MAX = 8  # newest epochs of a query whose results are remembered


class QueryRun(NamedTuple):
    """One start of a query."""

    query: str
    run: str


class Piece(NamedTuple):
    """Messages [first_offset, first_offset + count) of a staging source, `size` bytes, for one topic (incarnation).

    Of a link: `link_source` is where they were read, `runs` are their offsets there. `complete`: each has an id and a
    time already.
    """

    topic: int
    first_offset: int
    count: int  # type: ignore[assignment]  # shadows tuple.count, which nobody wants here
    size: int
    link_source: int = 0
    runs: bytes = b""
    complete: bool = False


@dataclass(frozen=True, slots=True)
class Stage:
    """One finished attempt of one partition of an epoch. `staging`: the source that holds its messages; `dropped`: rows
    that had come through this server; `topics`: incarnation -> name; `stamps`: by which settings of them its rows were
    checked (`Topic.stamp`), which is not in the log.
    """

    id: int
    query: str
    run: str
    epoch: int
    partition: int
    attempt: str
    made_ns: int
    staging: int
    topics: Mapping[int, str]
    pieces: tuple[Piece, ...]
    dropped: int = 0
    stamps: Mapping[int, int] = field(default_factory=dict, compare=False)

    @property
    def name(self) -> tuple[int, str]:
        return self.partition, self.attempt

    @property
    def rows(self) -> int:
        return sum(piece.count for piece in self.pieces)

    @property
    def bytes(self) -> int:
        return sum(piece.size for piece in self.pieces)


class EpochPlace(NamedTuple):
    """Where a piece lies: [first_offset, first_offset + count) of a source. Count 0: nothing was to be stored."""

    source: int
    first_offset: int
    count: int  # type: ignore[assignment]  # shadows tuple.count, which nobody wants here


@dataclass(slots=True)
class EpochDecision:
    """A committed epoch on its way into its topics. `places`: by the number of the piece."""

    id: int
    query: str
    epoch: int
    stages: tuple[Stage, ...]
    link: str
    floors: Mapping[int, int]
    decided_ns: int
    link_after: LinkState | None
    dropped: tuple[int, ...]
    places: dict[int, EpochPlace] = field(default_factory=dict)

    @property
    def stage_ids(self) -> tuple[int, ...]:
        return tuple(stage.id for stage in self.stages)

    @property
    def topics(self) -> set[int]:
        """The incarnations of all topics it has messages for."""
        return {topic for stage in self.stages for topic in stage.topics}


@dataclass(slots=True)
class Query:
    """A query: its latest run, digests of those before, its epochs below `committed_end`, its newest results."""

    name: str
    run: str = ""
    earlier: dict[int, None] = field(default_factory=dict)
    committed_end: int = 0
    used_ns: int = 0
    results: dict[int, bytes] = field(default_factory=dict)

    def knows(self, run: str) -> bool:
        """Whether a run is the latest or one before it."""
        return run == self.run or digest(run) in self.earlier

    def become(self, run: str) -> None:
        """A run that was never seen is the latest from now on."""
        if self.run:
            self.earlier[digest(self.run)] = None
            if len(self.earlier) > RUNS_MAX:
                del self.earlier[next(iter(self.earlier))]
        self.run = run

    def committed(self, epoch: int, result: bytes) -> None:
        """An epoch is done."""
        self.committed_end = max(self.committed_end, epoch + 1)
        self.results.pop(epoch, None)
        self.results[epoch] = result
        while len(self.results) > RESULTS_MAX:
            del self.results[next(iter(self.results))]


def digest(run: str) -> int:
    """What is kept of a run's name."""
    return int.from_bytes(hashlib.blake2b(run.encode(), digest_size=8).digest(), "little")

"""What simulated jobs of Spark did and saw: the material of `pipeline_checkers`.

Every row that is staged names its query, epoch, attempt and the place it was read from, so that what a topic holds
says by itself whose it is.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from syncpoint.testing.simulation.coverage import Coverage

PADDING = b"." * 60


class SourcePlace(NamedTuple):
    """The source and offset of a message."""

    source: int
    offset: int


class Row(NamedTuple):
    """A staged row, read from its data."""

    query: str
    epoch: int
    attempt: str
    place: SourcePlace

    def encode(self) -> bytes:
        """As a message."""
        text = f"{self.query}|{self.epoch}|{self.attempt}|{self.place.source}|{self.place.offset}|"
        return text.encode() + PADDING

    @staticmethod
    def decode(data: bytes) -> Row:
        """Raises `ValueError` for what nobody staged."""
        query, epoch, attempt, source, offset, rest = data.decode().split("|")
        if rest.encode() != PADDING:
            raise ValueError("the row has been changed")
        return Row(query, int(epoch), attempt, SourcePlace(int(source), int(offset)))


@dataclass(eq=False)
class EpochAttempt:
    """What one attempt staged, by topic, in order."""

    name: str
    query: str
    run: str
    epoch: int
    rows: Mapping[str, Sequence[Row]]


@dataclass(eq=False)
class Spoken:
    """One call for a run, and the stamps around it; `ended` 0: without an answer that says it was done."""

    query: str
    run: str
    method: str
    begun: int
    ended: int = 0


@dataclass(eq=False)
class CommitCall(Spoken):
    """A commit that was asked for; `result`: what was reported."""

    epoch: int = 0
    attempts: tuple[str, ...] = ()
    link: str = ""
    planned: tuple[tuple[int, int, int], ...] = ()  # (source, begin, end)
    result: Any = None


@dataclass(eq=False)
class ReaderHistory:
    """One reader of the subscription: the query it is of, and the generation it reads in."""

    query: str
    generation: int


@dataclass(eq=False)
class SeekSpan:
    """A seek of the subscription: to the beginning, or to when it was asked for. `kept`: the topic keeps what is
    acknowledged.
    """

    back: bool
    kept: bool
    begun: int
    ended: int = 0


@dataclass
class PipelineHistory:
    """The pipeline events of one seed. `stamp` orders them with the history of publishes."""

    stamp: Callable[[], int]
    coverage: Coverage
    attempts: dict[str, EpochAttempt] = field(default_factory=dict)
    spoken: list[Spoken] = field(default_factory=list)
    commits: list[CommitCall] = field(default_factory=list)
    readers: list[ReaderHistory] = field(default_factory=list)
    seeks: list[SeekSpan] = field(default_factory=list)
    seen: dict[str, dict[SourcePlace, int]] = field(default_factory=lambda: defaultdict(dict))  # topic -> place -> crc
    data: dict[SourcePlace, bytes] = field(default_factory=dict)  # of the topic that is read
    gaps_begun: int = 0  # how often a link's reader began after what the link had

    def was_reset_since(self, stamp: int) -> bool:
        """Whether a seek was not over then, or came later."""
        return any(not one.ended or one.ended > stamp for one in self.seeks)

    def saw(self, topic: str, place: SourcePlace, data: bytes) -> None:
        """Somebody read this there; it is the same for everybody and for ever."""
        crc = zlib.crc32(data)
        known = self.seen[topic].setdefault(place, crc)
        self.coverage.always("what was read stays", known == crc, f"{topic} {place}")

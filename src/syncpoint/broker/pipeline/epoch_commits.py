"""Commits of epochs as values: what a commit asks for, what is wrong with it at sight, and what deciding it came to.

Place: under `epochs`, which decides commits and keeps what they are compared with.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from syncpoint.base.model.errors import InvalidArgument, OutOfRange
from syncpoint.broker.pipeline import links, offset_runs
from syncpoint.broker.pipeline.links import LinkState, PlannedRange
from syncpoint.broker.pipeline.records import EpochDecision, Piece, QueryRun, Stage

NAME_BYTES_MAX = 1024


@dataclass(frozen=True, slots=True)
class CommitRequest:
    """A commit, as it is asked for. `stages`: partition and attempt of each."""

    run: QueryRun
    epoch: int
    stages: Sequence[tuple[int, str]] = ()
    link: str = ""
    source_topic: str = ""
    planned: tuple[PlannedRange, ...] = ()
    accept_gaps: bool = False


class Repeated(NamedTuple):
    """The epoch was committed before. `result`: what was answered then; b"" when that was long ago."""

    result: bytes
    released: tuple[Stage, ...]
    facts: list[bytes]


class GapRefused(NamedTuple):
    """The plan leaves a gap. The fact remembers it."""

    error: OutOfRange
    facts: list[bytes]


class Decided(NamedTuple):
    """The epoch is committed as soon as the facts are persisted."""

    decision: EpochDecision
    released: tuple[Stage, ...]
    facts: list[bytes]


class Work(NamedTuple):
    """One piece of a decision: store it without its first `skip` rows."""

    number: int
    stage: Stage
    piece: Piece
    skip: int


@dataclass(slots=True)
class Dropped:
    """Stages that nobody can commit any more."""

    stages: tuple[Stage, ...] = ()
    facts: list[bytes] = field(default_factory=list)


def work_of(decision: EpochDecision) -> list[Work]:
    """What a decision stores, in its order: the same whenever it is asked."""
    found: list[Work] = []
    for stage in decision.stages:
        for piece in stage.pieces:
            skip = offset_runs.below(piece.runs, decision.floors[piece.link_source]) if decision.link else 0
            found.append(Work(len(found), stage, piece, skip))
    return found


def check_name(field: str, name: str) -> None:
    """Raises `InvalidArgument` for what cannot be the name of a query, a run or a link."""
    if not name or len(name.encode()) > NAME_BYTES_MAX:
        raise InvalidArgument(field, f"must have 1 to {NAME_BYTES_MAX} bytes")


def check_commit(ask: CommitRequest, link: LinkState | None) -> None:
    """Raises `InvalidArgument` for what no commit may ask for, and what the plan of its link raises."""
    if ask.epoch < 0:
        raise InvalidArgument("epoch", "must not be negative")
    partitions = [partition for partition, _ in ask.stages]
    for index, partition in enumerate(partitions):
        if partition in partitions[:index]:
            raise InvalidArgument(f"stages[{index}]", f"partition {partition} must be named with one attempt only")
    if ask.link:
        check_name("link", ask.link)
        check_name("source_topic", ask.source_topic)
        links.check_plan(link, ask.source_topic, ask.planned)
    elif ask.planned or ask.source_topic:
        raise InvalidArgument("link", "must be set when planned or source_topic is set")


def check_rows(stages: Sequence[Stage], planned: Sequence[PlannedRange]) -> None:
    """Every row of a link lies in what was planned, or intervals would say nothing about it."""
    by_source = {one.source: one for one in planned}
    for stage in stages:
        for piece in stage.pieces:
            plan = by_source.get(piece.link_source)
            first, end = offset_runs.bounds(piece.runs)
            if plan is None or not plan.begin <= first <= end <= plan.end:
                raise InvalidArgument(
                    "planned",
                    f"partition {stage.partition} has rows [{first}, {end}) of source {piece.link_source}, which are"
                    " not planned",
                )


def gap_refused(link: LinkState, found: Sequence[PlannedRange]) -> OutOfRange:
    """What a caller is shown."""
    return OutOfRange(
        f"Link {link.name} has a gap: {', '.join(map(str, found))} of {link.source_topic} was never copied and is not"
        " planned. Nothing was stored. Read from there, or accept the loss with AcceptGap."
    )

"""The facts of epochs and links in the log, written and read. Source of the stored form:
proto/syncpoint/pipeline/stored/v1/epochs.proto.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from syncpoint.pipeline.copied_intervals import OffsetBlock
from syncpoint.pipeline.links import Interval, LinkState, PlannedRange
from syncpoint.pipeline.records import EpochDecision, EpochPlace, Piece, Query, QueryRun, Stage
from syncpoint.wire.messages import stored_epochs as _stored


class RunBegan(NamedTuple):
    """A run was seen for the first time."""

    run: QueryRun
    used_ns: int


class StagesDropped(NamedTuple):
    ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Bare:
    """A decision whose stages are known by number."""

    id: int
    query: str
    epoch: int
    ids: tuple[int, ...]
    link: str
    floors: dict[int, int]
    decided_ns: int
    link_after: LinkState | None
    dropped: tuple[int, ...]

    def with_stages(self, stages: Iterable[Stage]) -> EpochDecision:
        return EpochDecision(
            self.id, self.query, self.epoch, tuple(stages), self.link, self.floors, self.decided_ns, self.link_after,
            self.dropped,
        )  # fmt: skip


class DecisionFact(NamedTuple):
    bare: Bare


class PlacesFound(NamedTuple):
    """Pieces of a decision, from `index` on, lie there."""

    decision: int
    first: int
    places: tuple[EpochPlace, ...]


class DecisionDone(NamedTuple):
    decision: int
    result: bytes


class QueriesForgotten(NamedTuple):
    names: tuple[str, ...]


Found = (
    RunBegan | Query | Stage | StagesDropped | DecisionFact | PlacesFound | DecisionDone | LinkState | OffsetBlock
    | QueriesForgotten
)  # fmt: skip


def _fact(**kind: Any) -> bytes:
    encoded: bytes = _stored.Fact(**kind).SerializeToString()
    return encoded


def run(began: QueryRun, used_ns: int) -> bytes:
    return _fact(run=_stored.Run(query=began.query, run=began.run, used_ns=used_ns))


def query(known: Query) -> bytes:
    results = [_stored.Result(epoch=epoch, result=result) for epoch, result in known.results.items()]
    return _fact(
        query=_stored.Query(
            name=known.name,
            run=known.run,
            earlier=known.earlier,
            committed_end=known.committed_end,
            used_ns=known.used_ns,
            results=results,
        )
    )


def stage(made: Stage) -> bytes:
    stored = _stored.Stage(
        id=made.id,
        query=made.query,
        run=made.run,
        epoch=made.epoch,
        partition=made.partition,
        attempt=made.attempt,
        made_ns=made.made_ns,
        dropped=made.dropped,
        staging=made.staging,
    )
    for incarnation, name in made.topics.items():
        stored.topics.add(incarnation=incarnation, name=name)
    for piece in made.pieces:
        stored.pieces.add(**piece._asdict())
    return _fact(stage=stored)


def dropped(ids: Iterable[int]) -> bytes:
    return _fact(dropped=_stored.Dropped(stages=ids))


def decision(made: EpochDecision) -> bytes:
    stored = _stored.Decision(
        id=made.id,
        query=made.query,
        epoch=made.epoch,
        stages=made.stage_ids,
        link=made.link,
        decided_ns=made.decided_ns,
        dropped=made.dropped,
        link_after=None if made.link_after is None else _link(made.link_after),
    )
    for source, offset in made.floors.items():
        stored.floors.add(source=source, offset=offset)
    return _fact(decision=stored)


def applied(number: int, index: int, places: Sequence[EpochPlace]) -> bytes:
    return _fact(
        applied=_stored.Applied(decision=number, index=index, places=[_stored.Place(**one._asdict()) for one in places])
    )


def applied_all(made: EpochDecision) -> bytes:
    """What is applied of a decision so far; pieces get their places in order."""
    return applied(made.id, 0, [made.places[index] for index in range(len(made.places))])


def done(number: int, result: bytes) -> bytes:
    return _fact(done=_stored.Done(decision=number, result=result))


def _link(known: LinkState) -> _stored.Link:
    stored = _stored.Link(
        name=known.name,
        source_topic=known.source_topic,
        rows=known.rows,
        bytes=known.bytes,
        epochs=known.epochs,
        duplicates=known.duplicates,
        gaps_refused=known.gaps_refused,
        committed_ns=known.committed_ns,
    )
    for source, one in known.intervals.items():
        stored.intervals.add(source=source, chain=one.chain, base=one.base, begin=one.begin, end=one.end)
    for chain, source in known.finished.items():
        stored.finished.add(chain=chain, source=source)
    for gap in known.refused:
        stored.refused.add(**gap._asdict())
    for gap in known.skipped:
        stored.skipped.add(**gap._asdict())
    return stored


def link(known: LinkState) -> bytes:
    return _fact(link=_link(known))


def copied(block: OffsetBlock) -> bytes:
    return _fact(
        copied=_stored.Copied(
            link=block.link,
            link_source=block.link_source,
            source=block.source,
            topic=block.topic,
            first_offset=block.first,
            count=block.count,
            runs=block.runs,
        )
    )


def forgotten(names: Sequence[str]) -> bytes:
    return _fact(forgotten=_stored.Forgotten(queries=names))


def decode(payload: bytes) -> Found:
    """A fact from its stored form. Raises protobuf's `DecodeError`, or `ValueError` for one of a newer version."""
    fact = _stored.Fact.FromString(payload)
    kind = fact.WhichOneof("kind")
    match kind:
        case "run":
            return RunBegan(QueryRun(fact.run.query, fact.run.run), fact.run.used_ns)
        case "query":
            found = fact.query
            return Query(
                found.name, found.run, dict.fromkeys(found.earlier), found.committed_end, found.used_ns,
                {one.epoch: one.result for one in found.results},
            )  # fmt: skip
        case "stage":
            return _read_stage(fact.stage)
        case "dropped":
            return StagesDropped(tuple(fact.dropped.stages))
        case "decision":
            return DecisionFact(_read_decision(fact.decision))
        case "applied":
            places = tuple(EpochPlace(one.source, one.first_offset, one.count) for one in fact.applied.places)
            return PlacesFound(fact.applied.decision, fact.applied.index, places)
        case "done":
            return DecisionDone(fact.done.decision, fact.done.result)
        case "link":
            return _read_link(fact.link)
        case "copied":
            one = fact.copied
            return OffsetBlock(one.link, one.link_source, one.source, one.topic, one.first_offset, one.count, one.runs)
        case "forgotten":
            return QueriesForgotten(tuple(fact.forgotten.queries))
    raise ValueError("a fact about epochs of an unknown kind: written by a newer version?")


def _read_stage(stored: _stored.Stage) -> Stage:
    pieces = tuple(
        Piece(one.topic, one.first_offset, one.count, one.size, one.link_source, one.runs, one.complete)
        for one in stored.pieces
    )
    return Stage(
        stored.id, stored.query, stored.run, stored.epoch, stored.partition, stored.attempt, stored.made_ns,
        stored.staging, {one.incarnation: one.name for one in stored.topics}, pieces, stored.dropped,
    )  # fmt: skip


def _read_decision(stored: _stored.Decision) -> Bare:
    return Bare(
        stored.id, stored.query, stored.epoch, tuple(stored.stages), stored.link,
        {one.source: one.offset for one in stored.floors}, stored.decided_ns,
        _read_link(stored.link_after) if stored.HasField("link_after") else None, tuple(stored.dropped),
    )  # fmt: skip


def _read_link(stored: _stored.Link) -> LinkState:
    return LinkState(
        stored.name,
        stored.source_topic,
        {one.source: Interval(one.chain, one.base, one.begin, one.end) for one in stored.intervals},
        {one.chain: one.source for one in stored.finished},
        tuple(PlannedRange(one.source, one.begin, one.end, one.chain) for one in stored.refused),
        [PlannedRange(one.source, one.begin, one.end, one.chain) for one in stored.skipped],
        stored.rows,
        stored.bytes,
        stored.epochs,
        stored.duplicates,
        stored.gaps_refused,
        stored.committed_ns,
    )

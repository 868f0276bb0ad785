"""The facts of epochs and links in the log, written and read. Source of the stored form:
proto/syncpoint/pipeline/stored/v1/epochs.proto.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from syncpoint.broker.pipeline.copied_intervals import OffsetBlock
from syncpoint.broker.pipeline.links import Interval, LinkState, PlannedRange
from syncpoint.broker.pipeline.records import EpochDecision, EpochPlace, Piece, Query, QueryRun, Stage
from syncpoint.wire.protobuf.messages import stored_epochs as _stored


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


# What stands in the stored form under the same names as here.
_QUERY = ("name", "run", "committed_end", "used_ns")
_STAGE = ("id", "query", "run", "epoch", "partition", "attempt", "made_ns", "dropped", "staging")
_DECISION = ("id", "query", "epoch", "link", "decided_ns")
_LINK = (
    "name", "source_topic", "rows", "bytes", "epochs", "duplicates", "gaps_refused", "committed_ns",
)  # fmt: skip
_INTERVAL = ("chain", "base", "begin", "end")


def _values(of: object, names: Iterable[str]) -> dict[str, Any]:
    return {name: getattr(of, name) for name in names}


def _fact(**kind: Any) -> bytes:
    encoded: bytes = _stored.Fact(**kind).SerializeToString()
    return encoded


def run(began: QueryRun, used_ns: int) -> bytes:
    return _fact(run=_stored.Run(query=began.query, run=began.run, used_ns=used_ns))


def query(known: Query) -> bytes:
    results = [_stored.Result(epoch=epoch, result=result) for epoch, result in known.results.items()]
    return _fact(query=_stored.Query(**_values(known, _QUERY), earlier=known.earlier, results=results))


def stage(made: Stage) -> bytes:
    stored = _stored.Stage(**_values(made, _STAGE))
    for incarnation, name in made.topics.items():
        stored.topics.add(incarnation=incarnation, name=name)
    for piece in made.pieces:
        stored.pieces.add(**piece._asdict())
    return _fact(stage=stored)


def dropped(ids: Iterable[int]) -> bytes:
    return _fact(dropped=_stored.Dropped(stages=ids))


def decision(made: EpochDecision) -> bytes:
    stored = _stored.Decision(
        **_values(made, _DECISION),
        stages=made.stage_ids,
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
    stored = _stored.Link(**_values(known, _LINK))
    for source, one in known.intervals.items():
        stored.intervals.add(source=source, **_values(one, _INTERVAL))
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
            results = {one.epoch: one.result for one in found.results}
            return Query(**_values(found, _QUERY), earlier=dict.fromkeys(found.earlier), results=results)
        case "stage":
            return _read_stage(fact.stage)
        case "dropped":
            return StagesDropped(tuple(fact.dropped.stages))
        case "decision":
            return DecisionFact(_read_decision(fact.decision))
        case "applied":
            places = tuple(EpochPlace(**_values(one, EpochPlace._fields)) for one in fact.applied.places)
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
    return Stage(
        **_values(stored, _STAGE),
        topics={one.incarnation: one.name for one in stored.topics},
        pieces=tuple(Piece(**_values(one, Piece._fields)) for one in stored.pieces),
    )


def _read_decision(stored: _stored.Decision) -> Bare:
    return Bare(
        **_values(stored, _DECISION),
        ids=tuple(stored.stages),
        floors={one.source: one.offset for one in stored.floors},
        link_after=_read_link(stored.link_after) if stored.HasField("link_after") else None,
        dropped=tuple(stored.dropped),
    )


def _read_link(stored: _stored.Link) -> LinkState:
    return LinkState(
        **_values(stored, _LINK),
        intervals={one.source: Interval(**_values(one, _INTERVAL)) for one in stored.intervals},
        finished={one.chain: one.source for one in stored.finished},
        refused=tuple(PlannedRange(**_values(one, PlannedRange._fields)) for one in stored.refused),
        skipped=[PlannedRange(**_values(one, PlannedRange._fields)) for one in stored.skipped],
    )

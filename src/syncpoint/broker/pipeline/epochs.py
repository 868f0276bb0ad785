"""Epochs: which runs may write, what they have staged, and which stages became visible, once each.

Place: the state machine of the EpochWriter service. `writing` drives it: it writes the facts it is given into the log
in that order, and carries out what is decided. No clock, no log, no catalog in here.
Promises: runs of a query are ordered by first appearance, and only the latest may do anything. An epoch is decided
once; asked again it is answered with what was done. What a decision stores follows from facts written before it, so
any process that reads the log finishes it the same way. Each fact may be applied twice, and over a later checkpoint.
"""

from collections.abc import Callable, Iterator, Sequence

from syncpoint.base.model.errors import Aborted, FailedPrecondition, NotFound
from syncpoint.broker.pipeline import facts, links, offset_runs
from syncpoint.broker.pipeline.copied_intervals import Copies, OffsetBlock
from syncpoint.broker.pipeline.epoch_commits import (
    CommitRequest,
    Decided,
    Dropped,
    GapRefused,
    Repeated,
    Work,
    check_commit,
    check_name,
    check_rows,
    gap_refused,
    work_of,
)
from syncpoint.broker.pipeline.links import LinkState
from syncpoint.broker.pipeline.records import EpochDecision, EpochPlace, Query, QueryRun, Stage

STALE_NS = 3600 * 10**9  # a stage is dropped after its query was silent for this long
QUERY_NS = 31 * 24 * STALE_NS  # a query is forgotten after it was unused for this long


class EpochState:
    """All queries, stages, decisions and links of one log."""

    def __init__(self) -> None:
        self.queries: dict[str, Query] = {}
        self.stages: dict[int, Stage] = {}
        self.decisions: dict[int, EpochDecision] = {}
        self.links: dict[str, LinkState] = {}
        self.copies = Copies()
        self.on_copied: Callable[[OffsetBlock], None] | None = None  # these messages have their places
        self._next = 1

    def new_id(self) -> int:
        """A number that no stage or decision of this log has."""
        self._next += 1
        return self._next - 1

    # -- runs --------------------------------------------------------------------------------------------------------

    def on_run(self, run: QueryRun, now_ns: int) -> Dropped:
        """Somebody speaks for a run. The first time it becomes the query's latest, and what earlier runs have staged
        is dropped. Raises `Aborted` for a run that is not the latest.
        """
        check_name("run.query", run.query)
        check_name("run.run", run.run)
        query = self.queries.get(run.query)
        if query is not None and query.run != run.run:
            self._fence(query, run)
        if query is not None and query.run == run.run:
            query.used_ns = max(query.used_ns, now_ns)
            return Dropped()
        self._begin(run, now_ns)
        superseded = self._staged(run.query, lambda stage: stage.run != run.run)
        return Dropped(superseded, [facts.run(run, now_ns), *self.drop(superseded)])

    def _fence(self, query: Query, run: QueryRun) -> None:
        if query.knows(run.run):
            raise Aborted(
                f"Run {run.run} of query {run.query} was superseded by run {query.run} and may not write any more."
            )

    def _begin(self, run: QueryRun, now_ns: int) -> None:
        query = self.queries.setdefault(run.query, Query(run.query))
        query.become(run.run)
        query.used_ns = max(query.used_ns, now_ns)

    # -- stages ------------------------------------------------------------------------------------------------------

    def stage(self, stage: Stage) -> Dropped:
        """A stage is complete. An earlier one of the same partition and attempt is replaced."""
        replaced = self._staged(stage.query, lambda one: (one.epoch, one.name) == (stage.epoch, stage.name))
        written = self.drop(replaced)
        self.stages[stage.id] = stage
        return Dropped(replaced, [*written, facts.stage(stage)])

    def _staged(self, query: str, wanted: Callable[[Stage], bool]) -> tuple[Stage, ...]:
        """Stages of a query that no decision needs."""
        decided = {id for decision in self.decisions.values() for id in decision.stage_ids}
        return tuple(
            stage
            for stage in self.stages.values()
            if stage.query == query and stage.id not in decided and wanted(stage)
        )

    def drop(self, stages: Sequence[Stage]) -> list[bytes]:
        """Forget stages; returns the fact that records it, if there are any."""
        for stage in stages:
            self.stages.pop(stage.id, None)
        return [facts.dropped(stage.id for stage in stages)] if stages else []

    def abort(self, run: QueryRun, epoch: int) -> Dropped:
        """Drop what was staged for an epoch."""
        gone = self._staged(run.query, lambda stage: stage.epoch == epoch)
        return Dropped(gone, self.drop(gone))

    def silent(self, now_ns: int) -> list[str]:
        """Queries that nobody has used for a month."""
        decided = {one.query for one in self.decisions.values()}
        return [
            one.name for one in self.queries.values() if now_ns - one.used_ns >= QUERY_NS and one.name not in decided
        ]

    def tidy(self, now_ns: int, may_forget: Callable[[str], bool] = lambda query: True) -> Dropped:
        """Drop stages of queries that have been silent for an hour, forget those silent for a month that may be."""
        silent = [name for name in self.silent(now_ns) if may_forget(name)]
        gone: list[Stage] = []
        written: list[bytes] = []
        for query in list(self.queries.values()):
            silent_ns = now_ns - query.used_ns
            if silent_ns >= STALE_NS:
                gone += self._staged(query.name, lambda stage: now_ns - stage.made_ns >= STALE_NS)
            if query.name in silent:
                del self.queries[query.name]
                written.append(facts.forgotten([query.name]))
        return Dropped(tuple(gone), self.drop(gone) + written)

    # -- commits -----------------------------------------------------------------------------------------------------

    def decide(
        self,
        ask: CommitRequest,
        now_ns: int,
        exists: Callable[[int], bool],
        check: Callable[[Stage], None] = lambda stage: None,
    ) -> Decided | Repeated | GapRefused:
        """Commit an epoch. `exists(incarnation)`: whether a topic is still there; `check`: raises for a stage that must
        not become visible any more. Nothing is changed when it raises.

        Raises `NotFound` for a topic that was deleted, `FailedPrecondition` for a stage that is not here, and
        `InvalidArgument` for a request that cannot be right.
        """
        query, link = self.queries[ask.run.query], self.links.get(ask.link) if ask.link else None
        check_commit(ask, link)
        if self._is_committed(query, ask, link):
            gone = self._staged(query.name, lambda stage: stage.epoch <= ask.epoch)
            return Repeated(query.results.get(ask.epoch, b""), gone, self.drop(gone))
        chosen = self._chosen(ask)
        for stage in chosen:
            for incarnation, name in stage.topics.items():
                if not exists(incarnation):
                    raise NotFound(name)
            check(stage)
        after, floors = None, {}
        if ask.link:
            after = link.copy() if link is not None else LinkState(ask.link, ask.source_topic)
            found = links.gaps(after, ask.planned)
            if found and not ask.accept_gaps:
                links.refuse(after, found)
                self.links[after.name] = after
                return GapRefused(gap_refused(after, found), [facts.link(after)])
            check_rows(chosen, ask.planned)
            floors = {one.source: links.floor(after, one) for one in ask.planned}
            links.advance(after, ask.planned, found)
        lost = self._staged(query.name, lambda stage: stage.epoch <= ask.epoch and stage not in chosen)
        decision = EpochDecision(
            self.new_id(), query.name, ask.epoch, chosen, ask.link, floors, now_ns, after, tuple(s.id for s in lost)
        )
        if after is not None:
            _count(after, decision)
            self.links[after.name] = after
        self.drop(lost)
        self.decisions[decision.id] = decision
        return Decided(decision, lost, [facts.decision(decision)])

    def _is_committed(self, query: Query, ask: CommitRequest, link: LinkState | None) -> bool:
        """Check whether an epoch is committed.

        For a link its intervals decide, because an old number may plan new ranges after a checkpoint was rolled back.
        """
        if ask.epoch >= query.committed_end:
            return False
        return not ask.link or (link is not None and links.is_done(link, ask.planned))

    def topics_of(self, ask: CommitRequest) -> set[int]:
        """The incarnations of the topics that the named attempts have messages for."""
        staged = self._attempts(ask)
        return {topic for name in ask.stages if name in staged for topic in staged[name].topics}

    def _attempts(self, ask: CommitRequest) -> dict[tuple[int, str], Stage]:
        """What the run has staged of the epoch, by name."""
        return {
            stage.name: stage
            for stage in self.stages.values()
            if (stage.query, stage.run, stage.epoch) == (ask.run.query, ask.run.run, ask.epoch)
        }

    def _chosen(self, ask: CommitRequest) -> tuple[Stage, ...]:
        """The named attempts, and none of the others."""
        staged = self._attempts(ask)
        for partition, attempt in ask.stages:
            if (partition, attempt) not in staged:
                raise FailedPrecondition(
                    f"Partition {partition}, attempt {attempt!r} of epoch {ask.epoch} is not staged: it was not"
                    " finished"
                    " or was dropped after an hour. Stage it again."
                )
        return tuple(staged[name] for name in ask.stages)

    def applied(self, decision: EpochDecision, index: int, places: Sequence[EpochPlace]) -> bytes:
        """Pieces from `index` on get these places; their messages must follow the fact at once."""
        for number, place in enumerate(places, index):
            decision.places[number] = place
        return facts.applied(decision.id, index, places)

    def keep_found(self, decision: EpochDecision, end_of: Callable[[int], int]) -> None:
        """After a restart: forget the places whose messages were not persisted, they begin beyond the `end_of` their
        source. In the log they come last, so everything from the first one on must be written again.
        """
        for number in range(len(decision.places)):
            place = decision.places[number]
            if place.count and end_of(place.source) < place.first_offset + place.count:
                decision.places = {index: decision.places[index] for index in range(number)}
                return

    def done(self, decision: EpochDecision, result: bytes) -> bytes:
        """All pieces have their places. `result`: what is answered, now and again."""
        self._finish(decision, result)
        return facts.done(decision.id, result)

    def _finish(self, decision: EpochDecision, result: bytes) -> None:
        del self.decisions[decision.id]
        query = self.queries.get(decision.query)
        if query is not None:
            query.committed(decision.epoch, result)
        for work in work_of(decision):
            block = block_of(decision, work, decision.places[work.number])
            if block is not None:
                self.copies.add(block)
                if self.on_copied is not None:
                    self.on_copied(block)
        for stage in decision.stages:
            self.stages.pop(stage.id, None)

    # -- links -------------------------------------------------------------------------------------------------------

    def accept_gap(self, name: str) -> list[bytes]:
        """Continue after the gaps that were last refused. Raises `NotFound`, or `FailedPrecondition` without any."""
        link = self.links.get(name)
        if link is None:
            raise NotFound(name, f"Link not found (resource={name}).")
        if not link.refused:
            raise FailedPrecondition(f"Link {name} has no gap to accept: none was found since its last commit.")
        links.accept(link, link.refused)
        return [facts.link(link)]

    # -- the log -----------------------------------------------------------------------------------------------------

    def facts(self) -> Iterator[bytes]:
        """All of it, for a checkpoint, drawn over many turns: what is written in the meantime is read after all of
        this.

        The order matters. A decision that is done while this is drawn is either among the first of these, or what it
        did is among the later ones. Links come last, because decisions carry older states of them.
        """
        for decision in list(self.decisions.values()):
            for stage in decision.stages:
                yield facts.stage(stage)
            yield facts.decision(decision)
            yield facts.applied_all(decision)
        for stage in list(self.stages.values()):
            yield facts.stage(stage)
        for query in list(self.queries.values()):
            yield facts.query(query)
        for block in self.copies.blocks():
            yield facts.copied(block)
        for link in list(self.links.values()):
            yield facts.link(link)

    def apply(self, payload: bytes) -> None:
        """Read one fact back. Raises `ValueError` for one of a newer version."""
        match facts.decode(payload):
            case facts.RunBegan(run, used_ns):
                known = self.queries.get(run.query)
                if known is None or not known.knows(run.run):
                    self._begin(run, used_ns)
            case Query() as query:
                self.queries[query.name] = query
            case Stage() as stage:
                self.stages[stage.id] = stage
                self._next = max(self._next, stage.id + 1)
                self._used(stage.query, stage.made_ns)
            case facts.StagesDropped(ids):
                for id in ids:
                    self.stages.pop(id, None)
            case facts.DecisionFact(bare):
                self._next = max(self._next, bare.id + 1)
                self._used(bare.query, bare.decided_ns)
                if bare.link_after is not None:
                    self.links[bare.link] = bare.link_after
                for id in bare.dropped:
                    self.stages.pop(id, None)
                if all(id in self.stages for id in bare.ids):
                    self.decisions[bare.id] = bare.with_stages([self.stages[id] for id in bare.ids])
            case facts.PlacesFound(id, index, places):
                if id in self.decisions:
                    self.decisions[id].places.update(enumerate(places, index))
            case facts.DecisionDone(id, result):
                if id in self.decisions:
                    self._finish(self.decisions[id], result)
            case LinkState() as link:
                self.links[link.name] = link
            case OffsetBlock() as block:
                self.copies.add(block)
            case facts.QueriesForgotten(names):
                for name in names:
                    self.queries.pop(name, None)

    def _used(self, query: str, now_ns: int) -> None:
        """Not every call leaves a fact; each fact shows that its query was alive."""
        known = self.queries.get(query)
        if known is not None:
            known.used_ns = max(known.used_ns, now_ns)


def block_of(decision: EpochDecision, work: Work, place: EpochPlace) -> OffsetBlock | None:
    """Which messages of a link's source lie at a place; None: no link has copied them."""
    if not place.count or not decision.link or not work.piece.link_source:
        return None
    return OffsetBlock(
        decision.link,
        work.piece.link_source,
        place.source,
        work.stage.topics[work.piece.topic],
        place.first_offset,
        place.count,
        offset_runs.behind(work.piece.runs, work.skip),
    )


def _count(link: LinkState, decision: EpochDecision) -> None:
    link.epochs += 1
    link.committed_ns = decision.decided_ns
    for work in work_of(decision):
        kept = work.piece.count - work.skip
        link.rows += kept
        link.duplicates += work.skip
        link.bytes += work.piece.size * kept // work.piece.count

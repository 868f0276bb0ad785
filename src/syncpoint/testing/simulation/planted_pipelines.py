"""Bugs planted into what serves pipelines; see `planted_bugs`. Each is noticed in the simulation of
`simulated_node`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from syncpoint.base.kernel import stamps
from syncpoint.broker.pipeline import epoch_apply as applying_module
from syncpoint.broker.pipeline import epochs, facts, links, reading, writing
from syncpoint.broker.pipeline.cursors import Cursors
from syncpoint.broker.pipeline.epoch_apply import EpochApply
from syncpoint.broker.pipeline.epochs import EpochState
from syncpoint.broker.pipeline.records import EpochDecision
from syncpoint.broker.pipeline.staging import StageStream
from syncpoint.log.storage.store import Store
from syncpoint.testing.simulation.planted import planted
from syncpoint.testing.simulation.scaled import patched
from syncpoint.testing.simulation.sim_runs import RunResult
from syncpoint.testing.simulation.simulated_jobs import ALONE, LINK, PLAIN, PipelineShape

ALONE_KEPT = PipelineShape(queries=(ALONE,), kept=True)
ONE_LINK = PipelineShape(queries=(LINK,))
ONE_PLAIN = PipelineShape(queries=(PLAIN,))
LARGE = PipelineShape(queries=(PLAIN,), small=False)


def run(seed: int, *, shape: PipelineShape | None, kinds: tuple[str, ...], beyond: bool = False) -> RunResult:
    """One seed of this simulation, as `planted_bugs` runs it."""
    from syncpoint.testing.simulation.pipeline_runs import run_pipelines  # needs pyspark

    return run_pipelines(seed, shape=shape, kinds=kinds)


@planted(ALONE_KEPT, "crash", "disk slow", seed=1, run=run)
def a_reader_undoes_a_seek() -> AbstractContextManager[None]:
    """What an exclusive reader has processed before a seek counts as acknowledged after it."""
    return patched(reading, check_generation=lambda publish, record, generation: None)


@planted(ONE_PLAIN, "connections broken", "crash", seed=1, run=run)
def older_runs_are_let_in() -> AbstractContextManager[None]:
    """A run that was superseded may go on."""
    return patched(EpochState, _fence=lambda self, query, run: None)


@planted(ONE_PLAIN, "crash in a commit", "disk slow", seed=5, run=run)
def a_commit_is_answered_before_it_is_persisted() -> AbstractContextManager[None]:
    """A commit is answered once it is decided and applied in memory."""

    def at_once(self: EpochApply, fact: bytes, done: Callable[[Exception | None], None] | None = None) -> None:
        append(self, fact)
        if done is not None:
            self._soon(lambda: done(None))

    append = EpochApply._append_fact
    return patched(EpochApply, _append_fact=at_once)


@planted(ONE_PLAIN, "crash", seed=0, run=run)
def staged_rows_are_seen_early() -> AbstractContextManager[None]:
    """What a task stages is stored in its topic at once, too."""
    take = StageStream._frame

    def both(self: StageStream, frame: Any) -> None:
        area: Any = self.area
        put, publish = area.put, self.publish
        topic = publish.catalog.topic(frame.topic)

        def put_twice(payload: bytes, count: int, done: Callable[[Exception | None], None]) -> tuple[int, int]:
            assert topic is not None
            source, (seconds, nanos) = publish.open_source(topic.incarnation), publish.commit.turn_time()
            stored, stamped = stamps.stamp(payload, source.prefix, source.end, seconds, nanos, 0)
            publish.commit.append_batch(source, stamped, stored, lambda error: None)
            found: tuple[int, int] = put(payload, count, done)
            return found

        area.put = put_twice
        try:
            take(self, frame)
        finally:
            del area.put

    return patched(StageStream, _frame=both)


@planted(ONE_LINK, "crash", seed=0, run=run)
def a_link_counts_twice_after_a_restart() -> AbstractContextManager[None]:
    """A decision that is read back is counted again."""
    apply = EpochState.apply

    def counting(self: EpochState, payload: bytes) -> None:
        apply(self, payload)
        fact = facts.decode(payload)
        if isinstance(fact, facts.DecisionFact) and fact.bare.link and fact.bare.id in self.decisions:
            epochs._count(self.links[fact.bare.link], self.decisions[fact.bare.id])

    return patched(EpochState, apply=counting)


@planted(ONE_PLAIN, "crash", "stop", seed=0, run=run)
def cursors_hold_nothing() -> AbstractContextManager[None]:
    """Deletion does not ask for cursors."""
    return patched(Cursors, holds=lambda self, source, first_offset, end, time_ns: False)


@planted(ONE_PLAIN, "crash in a commit", "disk slow", seed=9, run=run)
def an_epoch_is_applied_twice() -> AbstractContextManager[None]:
    """After a restart a decision is carried out from its beginning, whatever of it is there."""

    def nothing(self: EpochState, decision: EpochDecision, end_of: Callable[[int], int]) -> None:
        decision.places = {}

    return patched(EpochState, keep_found=nothing)


@planted(ONE_LINK, "connections broken", "crash", seed=15, run=run)
def gaps_are_not_refused() -> AbstractContextManager[None]:
    """A link takes what does not follow directly on what it has."""
    return patched(links, gaps=lambda link, planned: ())


class _ByOffset(dict[tuple[int, int], Any]):
    """Finds what was read of any source."""

    def pop(self, place: tuple[int, int], default: Any = None) -> Any:
        known = next((one for one in self if one[1] == place[1]), None)
        return default if known is None else super().pop(known)


@planted(ONE_PLAIN, "crash in a commit", "stop", seed=160, run=run)
def what_was_read_ahead_is_of_any_source() -> AbstractContextManager[None]:
    """What was read ahead of one staging source is taken for another's."""
    take = EpochApply._take

    def mixed(self: EpochApply, work: Any, answer: Any) -> bool:
        found = take(self, work, answer)
        self._ahead = _ByOffset(self._ahead)
        return found

    return patched(EpochApply, _take=mixed)


@planted(ONE_PLAIN, "disk fails", seed=1, run=run)
def a_failed_log_has_nothing_to_read() -> AbstractContextManager[None]:
    """Where no disk is live, nothing is stored."""
    read = Store.read

    def blind(self: Store, source: int, begin: int, max_bytes: int, reply: Any, *, early: bool = False) -> None:
        if self._log.live:
            read(self, source, begin, max_bytes, reply, early=early)
        else:
            reply(self._cache.get(source, begin, max_bytes, self._log.persisted) or [])

    return patched(Store, read=blind)


@planted(LARGE, "disk fails in a commit", seed=1, run=run)
def a_lost_commit_is_reported_as_repeated() -> AbstractContextManager[None]:
    """What is answered of an epoch rests on memory alone."""

    async def at_once(publish: Any) -> None:
        """Nobody waits."""

    return patched(writing, persisted=at_once)


@planted(ONE_PLAIN, "disk fails", "crash in a commit", seed=27, run=run)
def unreadable_means_lost() -> AbstractContextManager[None]:
    """A staged message that cannot be read once is given up."""
    return patched(applying_module, DAMAGED_TRIES=1)

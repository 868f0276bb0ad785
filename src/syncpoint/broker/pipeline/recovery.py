"""Recovery of the writing side: the machine from its facts, and decided epochs finished before anything is served."""

import logging
from collections.abc import Awaitable, Callable

from syncpoint.broker.pipeline.epoch_apply import NUMBER
from syncpoint.broker.pipeline.epochs import EpochState
from syncpoint.broker.pipeline.home import Home
from syncpoint.broker.pipeline.records import EpochDecision, Stage
from syncpoint.broker.pipeline.staging import StagingArea
from syncpoint.broker.publish.facts import records
from syncpoint.broker.publish.facts.recovery import of_this_format
from syncpoint.broker.publish.intake.forwarder import PublishForwarder
from syncpoint.log.storage.record import EntryKind

log = logging.getLogger(__name__)


def read_back(publish: PublishForwarder, area: StagingArea) -> EpochState:
    """The machine, restored from the log. Raises `ForeignDisk` for facts in another format."""
    state = EpochState()
    with of_this_format(lambda: "a fact of epochs in the log"):
        for fact in publish.memory.extensions.pop(NUMBER, []):
            state.apply(fact)
    for decision in state.decisions.values():
        state.keep_found(decision, lambda source: _end(publish, source))
        for stage in decision.stages:
            area.hold(stage)
    torn = [stage for stage in state.stages.values() if not _whole(publish, stage)]
    decided = {id for decision in state.decisions.values() for id in decision.stage_ids}
    for fact in state.drop([stage for stage in torn if stage.id not in decided]):
        publish.commit.append_fact(EntryKind.LEDGER, records.encode_extension(NUMBER, fact))
    for stage in state.stages.values():
        area.hold(stage)
    for source in {block.source for block in state.copies.blocks()}:
        if source not in publish.sources.by_number:
            state.copies.forget(source)
    return state


def _end(publish: PublishForwarder, source: int) -> int:
    """The end of what recovery found of a source."""
    found = publish.sources.by_number.get(source)
    return 0 if found is None else found.visible


def _whole(publish: PublishForwarder, stage: Stage) -> bool:
    """Whether all messages of a stage are there. They were persisted before its fact; what nobody held may be gone."""
    if not stage.pieces:
        return True
    bounds = publish.store.bounds(stage.staging)
    last = stage.pieces[-1]
    return (
        bounds is not None and bounds[0] <= stage.pieces[0].first_offset and last.first_offset + last.count <= bounds[1]
    )


async def finish(
    state: EpochState,
    home: Home,
    apply: Callable[[EpochDecision], None],
    finished: Callable[[EpochDecision], Awaitable[object]],
) -> None:
    """Finish every decision. Raises `Unavailable` when the log fails."""
    waiting = []
    for decision in sorted(state.decisions.values(), key=lambda one: one.id):
        log.info("finishing epoch %d of query %s", decision.epoch, decision.query)
        await home.pin(decision.topics)
        waiting.append(finished(decision))
        apply(decision)
    for one in waiting:
        await one

"""Each guard is needed: with it a scenario stores every message once, without it messages are lost or come twice.

The scenarios drive the whole service over disks in memory. `guarded` runs one as it is; `unguarded` takes the guard out
and expects the same judge to find the damage it names.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from syncpoint.base.model.errors import Code, SyncpointError
from syncpoint.broker.pipeline import links, staging, writing
from syncpoint.broker.pipeline.epoch_commits import CommitRequest
from syncpoint.broker.pipeline.epochs import EpochState
from syncpoint.wire.protobuf.messages import pipeline
from tests.kit.epochs import ONE, DieAt, Died, Harness, frame

Scenario = Callable[[Harness], set[int]]
"""Does what Spark may do, and returns the numbers that must be there once each."""


@pytest.fixture
def harness() -> Iterator[Harness]:
    made = Harness(commit_bytes_max=500)
    made.subscribe(1, "one", 11)
    yield made
    made.close()


def damage(harness: Harness, scenario: Scenario) -> tuple[set[int], set[int]]:
    """(lost, duplicated) numbers."""
    wanted = scenario(harness)
    stored = Counter(int(data) for data in harness.data(1))
    return wanted - set(stored), {number for number, times in stored.items() if times > 1}


def stage(harness: Harness, run: str, epoch: int, rows: range, attempt: str = "x", source: int = 0) -> None:
    columns: dict[str, Any] = {"data": [b"%d" % row for row in rows]}
    if source:
        columns["offset"] = list(rows)
    harness.stage(run, epoch, 0, attempt, frame(ONE, source, **columns))


def commit(harness: Harness, run: str, epoch: int, attempt: str = "x", plan: range | None = None) -> Any:
    more: dict[str, Any] = {}
    if plan is not None:
        ranges = [pipeline.SourceRange(source=5, begin=plan.start, end=plan.stop)]
        more = {"link": "l", "source_topic": "u/t-1", "planned": ranges}
    return harness.commit_epoch(run, epoch, (0, attempt), **more)


@contextlib.contextmanager
def refused(code: Code) -> Iterator[None]:
    """What a caller may be notified; without the guard nothing is said."""
    try:
        yield
    except SyncpointError as error:
        if error.code is not code:
            raise


# -- the run fence ----------------------------------------------------------------------------------------------------


def a_zombie_commits_after_its_successor_began(harness: Harness) -> set[int]:
    """Run a hangs with half of epoch 0 staged; run b plans the epoch anew, larger; then run a wakes up."""
    stage(harness, "a", 0, range(5))
    stage(harness, "b", 0, range(9), "y")
    with refused(Code.ABORTED):
        stage(harness, "a", 0, range(5), "z")
        commit(harness, "a", 0, "z")
    with refused(Code.FAILED_PRECONDITION):
        commit(harness, "b", 0, "y")
    return set(range(9))


def test_guarded_by_the_run_fence(harness: Harness) -> None:
    assert damage(harness, a_zombie_commits_after_its_successor_began) == (set(), set())


def test_without_the_run_fence_a_zombie_makes_its_successor_lose(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(EpochState, "_fence", lambda state, query, run: None)
    lost, _ = damage(harness, a_zombie_commits_after_its_successor_began)
    assert lost == set(range(5, 9))


# -- overlap of intervals ---------------------------------------------------------------------------------------------


def a_rolled_back_checkpoint(harness: Harness) -> set[int]:
    """Epochs 0 and 1 are committed; then the checkpoint is lost, and all is planned again as epoch 0."""
    stage(harness, "a", 0, range(4), source=5)
    commit(harness, "a", 0, plan=range(4))
    stage(harness, "a", 1, range(4, 8), source=5)
    commit(harness, "a", 1, plan=range(4, 8))
    stage(harness, "b", 0, range(11), source=5)
    commit(harness, "b", 0, plan=range(11))
    return set(range(11))


def test_guarded_by_intervals(harness: Harness) -> None:
    assert damage(harness, a_rolled_back_checkpoint) == (set(), set())


def test_without_intervals_a_rolled_back_checkpoint_duplicates(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(links, "floor", lambda link, planned: 0)
    _, duplicated = damage(harness, a_rolled_back_checkpoint)
    assert duplicated == set(range(8))


# -- refusal of gaps ---------------------------------------------------------------------------------------------------


def a_plan_that_leaves_a_gap(harness: Harness) -> set[int]:
    """The reader comes back too far ahead. Reported so, it reads what is missing first."""
    stage(harness, "a", 0, range(4), source=5)
    commit(harness, "a", 0, plan=range(4))
    stage(harness, "b", 1, range(7, 9), source=5)
    try:
        commit(harness, "b", 1, plan=range(7, 9))
    except SyncpointError as error:
        if error.code is not Code.OUT_OF_RANGE:
            raise
        stage(harness, "c", 1, range(4, 9), source=5)
        commit(harness, "c", 1, plan=range(4, 9))
    return set(range(9))


def test_guarded_by_the_refusal_of_gaps(harness: Harness) -> None:
    assert damage(harness, a_plan_that_leaves_a_gap) == (set(), set())


def test_without_the_refusal_of_gaps_messages_are_lost(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "gaps", lambda link, planned: ())
    lost, _ = damage(harness, a_plan_that_leaves_a_gap)
    assert lost == {4, 5, 6}


# -- idempotent epochs -------------------------------------------------------------------------------------------------


def killed_between_commit_and_checkpoint(harness: Harness) -> set[int]:
    """The epoch is committed, the driver dies before it has noted that, and the next run does it again."""
    stage(harness, "a", 0, range(6))
    commit(harness, "a", 0)
    harness.restart()
    stage(harness, "b", 0, range(6), "y")
    commit(harness, "b", 0, "y")
    return set(range(6))


def test_guarded_by_idempotent_epochs(harness: Harness) -> None:
    assert damage(harness, killed_between_commit_and_checkpoint) == (set(), set())


def test_without_idempotent_epochs_a_second_commit_duplicates(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(EpochState, "_is_committed", lambda state, query, ask, link: False)
    _, duplicated = damage(harness, killed_between_commit_and_checkpoint)
    assert duplicated == set(range(6))


# -- the choice of the attempt -----------------------------------------------------------------------------------------


def two_attempts_of_a_partition(harness: Harness) -> set[int]:
    """The first attempt staged everything before its worker was given up; the second one is named in the commit."""
    stage(harness, "a", 0, range(6), "first")
    stage(harness, "a", 0, range(6), "second")
    commit(harness, "a", 0, "second")
    return set(range(6))


def test_guarded_by_the_choice_of_the_attempt(harness: Harness) -> None:
    assert damage(harness, two_attempts_of_a_partition) == (set(), set())


def test_without_the_choice_of_the_attempt_both_are_stored(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    def everything(state: EpochState, ask: CommitRequest) -> tuple[Any, ...]:
        return tuple(stage for stage in state.stages.values() if stage.epoch == ask.epoch)

    monkeypatch.setattr(EpochState, "_chosen", everything)
    _, duplicated = damage(harness, two_attempts_of_a_partition)
    assert duplicated == set(range(6))


# -- what a crash leaves -----------------------------------------------------------------------------------------------


def every_crash_of_a_commit(harness: Harness) -> set[int]:
    """At each write of a commit the power goes; the driver does the epoch again, with another run."""
    wanted: set[int] = set()
    for calls in range(12):
        rows = range(10 * calls, 10 * calls + 10)
        stage(harness, f"a{calls}", calls, rows)
        harness.files.faults.append(DieAt(calls))
        with contextlib.suppress(Died):
            commit(harness, f"a{calls}", calls)
        harness.restart()
        stage(harness, f"b{calls}", calls, rows, "y")
        commit(harness, f"b{calls}", calls, "y")
        wanted |= set(rows)
    return wanted


@pytest.fixture
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "PIECE_BYTES", 40)


@pytest.mark.usefixtures("_small_pieces")
def test_guarded_by_recovery(harness: Harness) -> None:
    assert damage(harness, every_crash_of_a_commit) == (set(), set())


@pytest.mark.usefixtures("_small_pieces")
def test_without_the_end_of_decided_epochs_at_the_start_messages_are_lost(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nothing(*_: object) -> None:
        return

    def done_all(state: EpochState, fact: bytes) -> None:
        apply(state, fact)
        for decision in list(state.decisions.values()):
            del state.decisions[decision.id]
            state.queries[decision.query].committed(decision.epoch, b"")

    apply = EpochState.apply
    monkeypatch.setattr(writing, "finish", nothing)
    monkeypatch.setattr(EpochState, "apply", done_all)
    lost, _ = damage(harness, every_crash_of_a_commit)
    assert lost


@pytest.mark.usefixtures("_small_pieces")
def test_without_a_look_at_what_is_there_messages_are_lost(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EpochState, "keep_found", lambda state, decision, end_of: None)
    lost, _ = damage(harness, every_crash_of_a_commit)
    assert lost


@pytest.mark.usefixtures("_small_pieces")
def test_without_places_in_the_log_messages_come_twice(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    def forget(state: EpochState, decision: Any, end_of: object) -> None:
        decision.places.clear()

    monkeypatch.setattr(EpochState, "keep_found", forget)
    _, duplicated = damage(harness, every_crash_of_a_commit)
    assert duplicated

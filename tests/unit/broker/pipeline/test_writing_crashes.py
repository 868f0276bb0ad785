"""The power goes after every write of a commit over several topics and pieces: all targets or none, once each."""

from __future__ import annotations

import contextlib

import pytest

from syncpoint.broker.pipeline import epoch_apply, staging
from syncpoint.wire.protobuf.messages import pipeline
from tests.kit.epochs import ONE, TWO, DieAt, Died, Harness, frame

OFFSETS = list(range(10, 34))
FIRST, SECOND = [one for one in OFFSETS if one % 3], [one for one in OFFSETS if not one % 3]


@pytest.fixture(autouse=True)
def _small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "PIECE_BYTES", 400)
    monkeypatch.setattr(epoch_apply, "TURN_BYTES", 900)
    monkeypatch.setattr(epoch_apply, "UNPERSISTED_BYTES_MAX", 1500)


def body(offset: int) -> bytes:
    return b"%d" % offset + b"." * 80


def frames(low: int, high: int) -> list[object]:
    found = []
    for topic, offsets in ((ONE, FIRST), (TWO, SECOND)):
        mine = [offset for offset in offsets if low <= offset < high]
        found.append(frame(topic, 5, data=[body(offset) for offset in mine], offset=mine))
    return found


def stage(harness: Harness, run: str, epoch: int = 1) -> None:
    for partition, (low, high) in enumerate(((10, 20), (20, 34))):
        harness.stage(run, epoch, partition, run, *frames(low, high))


def commit(harness: Harness, run: str, epoch: int = 1) -> object:
    return harness.commit_epoch(
        run, epoch, (0, run), (1, run), link="l", source_topic="u/t-1",
        planned=[pipeline.SourceRange(source=5, begin=10, end=34)],
    )  # fmt: skip


def made(seed: int) -> Harness:
    harness = Harness(seed, commit_bytes_max=500)  # a write holds an entry or two
    harness.subscribe(1, "one", 11)
    harness.subscribe(2, "two", 12)
    harness.stage("a", 0, 0, "a", frame(ONE, data=[b"before"]))
    harness.commit_epoch("a", 0, (0, "a"))
    return harness


def numbers(harness: Harness, topic: int) -> list[int]:
    return [int(data.split(b".")[0]) for data in harness.data(topic) if data != b"before"]


def check(harness: Harness, answered: bool) -> bool:
    """All or none; returns which."""
    one, two = numbers(harness, 1), numbers(harness, 2)
    assert (one, two) in (([], []), (FIRST, SECOND)), (one, two)
    assert one or not answered
    (known,) = harness.writer.state.links.values() if harness.writer.state.links else (None,)
    assert (known is not None) == bool(one)
    if known is not None:
        assert (known.rows, known.epochs, known.intervals[5].end) == (24, 1, 34)
    assert not harness.writer.state.decisions
    return bool(one)


def crash_points(power: bool, step: int, first: int = 0) -> tuple[int, int]:
    """Die at every `step`th write; returns how often nothing and how often everything was there."""
    none = all_of_it = 0
    for calls in range(first, 10_000, step):
        harness = made(calls)
        stage(harness, "a")
        if calls % 4 == 1:
            harness.checkpoint()
        harness.files.faults.append(DieAt(calls))
        answered = finished = False
        try:
            commit(harness, "a")
            answered = True
            harness.rest(20)
            finished = True
        except Died:
            pass
        harness.restart(power)
        if check(harness, answered):
            all_of_it += 1
        else:
            none += 1
        if calls % 3 == 0:
            harness.checkpoint()
        # Spark begins anew: the epoch is staged and committed once more, by another run.
        stage(harness, "b")
        commit(harness, "b")
        assert check(harness, True)
        harness.restart(power)
        assert check(harness, True)
        assert commit(harness, "b").repeated_epoch  # type: ignore[attr-defined]
        found = harness.writer.state.copies.find("l", 5, 0, 100, 100)
        assert sum(one.count for one in found) == 24
        harness.close()
        if finished:
            return none, all_of_it
    raise AssertionError("the commit never came to its end")


@pytest.mark.parametrize("power", [True, False], ids=["power cut", "kill"])
def test_a_crash_after_every_write_of_a_commit(power: bool) -> None:
    none, all_of_it = crash_points(power, 1)
    assert none
    assert all_of_it > 10  # decided, and cut off before its end


def test_a_crash_in_the_middle_of_the_recovery_of_a_crash() -> None:
    """What is finished after a crash is itself cut off, again and again."""
    for calls in range(3, 20, 2):
        harness = made(calls)
        stage(harness, "a")
        harness.files.faults.append(DieAt(calls))
        answered = False
        try:
            commit(harness, "a")
            answered = True
        except Died:
            pass
        for again in range(8, 40, 8):
            harness.crash(power=bool(again % 16))
            harness.files.faults.append(DieAt(again))
            try:
                harness.open()
                break
            except Died:
                continue
        harness.restart()
        done = check(harness, answered)
        stage(harness, "b")
        assert commit(harness, "b").repeated_epoch == done  # type: ignore[attr-defined]
        assert check(harness, True)
        harness.close()


def test_a_crash_while_staging_leaves_nothing_that_counts() -> None:
    for calls in range(0, 40, 3):
        harness = made(calls)
        harness.files.faults.append(DieAt(calls))
        with contextlib.suppress(Died):
            stage(harness, "a")
        harness.restart()
        assert not check(harness, False)
        stage(harness, "b")
        commit(harness, "b")
        assert check(harness, True)
        harness.close()

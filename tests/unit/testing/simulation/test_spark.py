"""What a simulated reader takes for lost with good reason, and what not."""

import asyncio
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest

from pyspark_pubsub.offsets import Offsets, SourceRange
from syncpoint.base.runtime.random import SeededRandom
from syncpoint.testing.simulation.coverage import Coverage
from syncpoint.testing.simulation.pipeline_calls import GapFound
from syncpoint.testing.simulation.pipeline_history import PipelineHistory, SeekSpan
from syncpoint.testing.simulation.simulated_jobs import ALONE, LINK
from syncpoint.testing.simulation.spark import Driver
from syncpoint.testing.simulation.spark_jobs import Concurrent, SimJob

PIECE = SourceRange(7, 10, 20)


class Read:
    """A driver that has planned batch 0, and reads it."""

    def __init__(self, kind: str) -> None:
        self.coverage, stamps = Coverage(), count(1)
        self.stamp = lambda: next(stamps)
        self.history = PipelineHistory(self.stamp, self.coverage)
        sim: Any = SimpleNamespace(pipelines=self.history, coverage=self.coverage, random=SeededRandom(1), note=str)
        self.job = SimJob(sim, kind)
        self.driver = Driver(self.job, self.job.checkpoint, "r1")

    def plan(self) -> None:
        self.job.checkpoint.plan(0, Offsets("t", 1, "u", {7: 20}, begins={7: 10}), self.stamp())

    def seek(self) -> SeekSpan:
        self.history.seeks.append(SeekSpan(back=False, kept=True, begun=self.stamp()))
        return self.history.seeks[-1]

    def gap(self) -> bool:
        """Whether the reader takes a gap for a loss."""
        self.driver._gap(0, PIECE, GapFound("gone", PIECE.begin, []))
        return bool(self.coverage.violations)


@pytest.mark.parametrize("kind", [ALONE, LINK])
def test_a_gap_is_a_loss(kind: str) -> None:
    read = Read(kind)
    read.plan()
    assert read.gap()


def test_a_seek_that_was_over_before_the_batch_was_planned_excuses_no_gap() -> None:
    read = Read(ALONE)
    read.seek().ended = read.stamp()
    read.plan()
    assert read.gap()


@pytest.mark.parametrize("ended", [False, True])
def test_a_seek_that_came_later_or_was_not_over_excuses_it(ended: bool) -> None:
    read = Read(ALONE)
    seek_span = read.seek()
    read.plan()
    seek_span.ended = read.stamp() if ended else 0
    assert not read.gap()


def test_a_seek_excuses_no_gap_of_who_reads_the_topic() -> None:
    read = Read(LINK)
    read.plan()
    read.seek()
    assert read.gap()


@pytest.mark.parametrize(("end", "lost"), [(10, True), (11, False)])
def test_what_was_processed_before_may_be_gone_also_where_a_checkpoint_has_lost_files(end: int, lost: bool) -> None:
    read = Read(LINK)
    read.job.processed(read.job.checkpoint)[7] = end
    read.job.fresh()
    read.driver = Driver(read.job, read.job.checkpoint, "r2")
    read.plan()
    assert read.gap() is lost


def test_a_batch_that_is_over_is_another_drivers() -> None:
    read = Read(LINK)
    read.plan()
    checkpoint = read.job.checkpoint
    checkpoint.over(0, checkpoint.offsets[0])
    with pytest.raises(Concurrent):
        read.gap()


def test_a_task_goes_on_behind_what_is_gone() -> None:
    read = Read(LINK)
    read.job.processed(read.job.checkpoint)[7] = 13
    read.plan()
    asked: list[int] = []

    async def stored(_topic: str, _incarnation: int, _source: int, begin: int, *_: Any) -> list[tuple[int, bytes]]:
        asked.append(begin)
        if begin < 13:
            raise GapFound("gone", 12, [(11, b"read before")])
        return [(13, b"behind")]

    async def positions(**_: Any) -> Any:
        return SimpleNamespace(sources=[SimpleNamespace(source=7, begin=13)])

    calls: Any = SimpleNamespace(read=stored, positions=positions)
    read.driver.calls = calls
    planned = Offsets("t", 1, "u", {7: 20}, begins={7: 10}, places={7: (0, 1)})
    assert asyncio.run(read.driver._rows(0, PIECE, planned)) == [(11, b"read before"), (13, b"behind")]
    assert asked == [10, 13]
    assert not read.coverage.violations

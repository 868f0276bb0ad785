"""A decided epoch on its way into its topics, while disks do not answer, topics go and callers give up."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from syncpoint.metadata.records import CatalogChange
from syncpoint.pipeline import epoch_apply, staging
from syncpoint.storage.errors import CopiesUnreachable, StorageDamaged
from syncpoint.wire.messages import pipeline
from tests.kit.epochs import ONE, TWO, World, frame

PATH = "/syncpoint.pipeline.v1.EpochWriter/CommitEpoch"
COMMIT = pipeline.CommitEpochRequest(
    run=pipeline.Run(query="q", run="a"), stages=[pipeline.StageName(attempt="x")]
).SerializeToString()


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setattr(staging, "PIECE_BYTES", 100)
    monkeypatch.setattr(epoch_apply, "TURN_BYTES", 100)
    made = World()
    made.subscribe(1, "one", 11)
    made.subscribe(2, "two", 12)
    made.stage("a", 0, 0, "x", frame(ONE, data=rows(0, 10)), frame(TWO, data=rows(10, 20)))
    yield made
    made.close()


def rows(begin: int, end: int) -> list[bytes]:
    return [b"%02d" % number + b"x" * 90 for number in range(begin, end)]


class Reads:
    """Stands in front of the store's reads: the nth one of the staging source gets `answer`, and so do further ones."""

    def __init__(self, world: World, number: int, answer: Exception | None, times: int = 1) -> None:
        self.world, self.number, self.answer, self.read = world, number, answer, world.store.read
        self.times = times
        self.held: list[Any] = []
        world.store.read = self  # type: ignore[method-assign]

    def __call__(self, source: int, begin: int, max_bytes: int, reply: Any, **more: Any) -> None:
        self.number -= 1
        if -self.times < self.number <= 0 and self.answer is not None:
            reply(self.answer)
        elif self.number == 0:
            self.held.append(lambda: self.read(source, begin, max_bytes, reply, **more))
        else:
            self.read(source, begin, max_bytes, reply, **more)


def test_what_can_not_be_read_for_now_is_read_later(world: World) -> None:
    Reads(world, 3, CopiesUnreachable("away"))

    async def commit() -> Any:
        call = asyncio.ensure_future(world.channel.unary(PATH, COMMIT))
        for _ in range(50):
            await asyncio.sleep(0)
        assert not call.done()
        for act in list(world.timers):
            act()
        return await call

    assert pipeline.EpochResult.FromString(world.run(commit())).rows == 20
    assert (world.data(1), world.data(2)) == (rows(0, 10), rows(10, 20))


async def committed(world: World, pauses: int) -> Any:
    """Commit, over so many pauses after which a read is tried again."""
    call = asyncio.ensure_future(world.channel.unary(PATH, COMMIT))
    for _ in range(pauses):
        for _ in range(50):
            await asyncio.sleep(0)
        assert not call.done()
        for act in list(world.timers):
            world.timers.remove(act)
            act()
    return pipeline.EpochResult.FromString(await call)


def test_what_is_lost_is_told_and_the_rest_is_stored(
    world: World, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(epoch_apply, "DAMAGED_TRIES", 3)
    Reads(world, 3, StorageDamaged("rotten"), times=3)
    world.timers.clear()
    with caplog.at_level(logging.ERROR):
        result = world.run(committed(world, 2))
    assert "2 messages of epoch 0 of query q are lost" in caplog.text
    assert result.rows == 18
    assert len(world.data(1)) + len(world.data(2)) == 18


def test_a_disk_that_can_not_be_read_for_a_while_loses_nothing(world: World) -> None:
    Reads(world, 3, StorageDamaged("EIO, for now"), times=2)
    world.timers.clear()
    assert world.run(committed(world, 2)).rows == 20
    assert (world.data(1), world.data(2)) == (rows(0, 10), rows(10, 20))


def test_a_topic_that_is_deleted_meanwhile_gets_nothing_more(world: World) -> None:
    reads = Reads(world, 3, None)

    async def commit() -> Any:
        call = asyncio.ensure_future(world.channel.unary(PATH, COMMIT))
        while not reads.held:
            await asyncio.sleep(0)
        topic = world.publish.catalog.topic(TWO)
        assert topic is not None
        world.publish.catalog.apply(world.publish.catalog.assign([CatalogChange.delete(topic)])[0])
        reads.held.pop()()
        return await call

    assert pipeline.EpochResult.FromString(world.run(commit())).rows == 10
    assert (world.data(1), world.data(2)) == (rows(0, 10), [])


def test_a_caller_that_gives_up_changes_nothing(world: World) -> None:
    reads = Reads(world, 3, None)

    async def commit() -> None:
        stream = world.channel.stream(PATH)
        await stream.send(COMMIT)
        while not reads.held:
            await asyncio.sleep(0)
        stream.cancel()
        await asyncio.sleep(0)
        reads.held.pop()()

    world.run(commit())
    world.settle()
    assert (world.data(1), world.data(2)) == (rows(0, 10), rows(10, 20))
    assert world.commit_epoch("a", 0, (0, "x")).repeated_epoch


def test_what_is_stored_is_kept_until_the_epoch_is_done(world: World) -> None:
    reads = Reads(world, 3, None)

    async def commit() -> None:
        call = asyncio.ensure_future(world.channel.unary(PATH, COMMIT))
        while not reads.held:
            await asyncio.sleep(0)
        (source,) = world.publish.sources.of_topic(1)
        assert world.writer.holds(source, 0, 1, 0)
        assert not world.writer.holds(source, 0, 0, 0)
        reads.held.pop()()
        await call
        assert not world.writer.holds(source, 0, 1, 0)

    world.run(commit())


def test_an_epoch_that_was_staged_over_a_restart_is_stored_as_it_was_staged(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pieces of its stages have the same offsets, in two staging sources."""
    monkeypatch.setattr(staging, "PIECE_BYTES", 100)
    world = World()
    world.subscribe(1, "one", 11)
    world.stage("a", 0, 0, "given up", frame(ONE, data=rows(30, 33)))
    world.stage("a", 0, 0, "x", frame(ONE, data=rows(0, 3)))
    world.restart()
    world.stage("a", 0, 1, "y", frame(ONE, data=rows(10, 13)))
    world.stage("a", 0, 2, "z", frame(ONE, data=rows(20, 26)))
    result = world.commit_epoch("a", 0, (1, "y"), (0, "x"), (2, "z"))
    assert result.rows == 12
    assert world.data(1) == [*rows(10, 13), *rows(0, 3), *rows(20, 26)]
    world.close()

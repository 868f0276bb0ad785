"""A decided epoch on its way into its topics, while disks do not answer, topics go and callers give up."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from syncpoint.broker.pipeline import epoch_apply, staging
from syncpoint.catalog.metadata.records import CatalogChange
from syncpoint.log.storage.errors import CopiesUnreachable, StorageDamaged
from syncpoint.wire.protobuf.messages import pipeline
from tests.kit.epochs import ONE, TWO, Harness, frame

PATH = "/syncpoint.pipeline.v1.EpochWriter/CommitEpoch"
COMMIT = pipeline.CommitEpochRequest(
    run=pipeline.Run(query="q", run="a"), stages=[pipeline.StageName(attempt="x")]
).SerializeToString()


@pytest.fixture
def harness(monkeypatch: pytest.MonkeyPatch) -> Iterator[Harness]:
    monkeypatch.setattr(staging, "PIECE_BYTES", 100)
    monkeypatch.setattr(epoch_apply, "TURN_BYTES", 100)
    made = Harness()
    made.subscribe(1, "one", 11)
    made.subscribe(2, "two", 12)
    made.stage("a", 0, 0, "x", frame(ONE, data=rows(0, 10)), frame(TWO, data=rows(10, 20)))
    yield made
    made.close()


def rows(begin: int, end: int) -> list[bytes]:
    return [b"%02d" % number + b"x" * 90 for number in range(begin, end)]


class Reads:
    """Stands in front of the store's reads: the nth one of the staging source gets `answer`, and so do further ones."""

    def __init__(self, harness: Harness, number: int, answer: Exception | None, times: int = 1) -> None:
        self.harness, self.number, self.answer, self.read = harness, number, answer, harness.store.read
        self.times = times
        self.held: list[Any] = []
        harness.store.read = self  # type: ignore[method-assign]

    def __call__(self, source: int, begin: int, max_bytes: int, reply: Any, **more: Any) -> None:
        self.number -= 1
        if -self.times < self.number <= 0 and self.answer is not None:
            reply(self.answer)
        elif self.number == 0:
            self.held.append(lambda: self.read(source, begin, max_bytes, reply, **more))
        else:
            self.read(source, begin, max_bytes, reply, **more)


def test_what_can_not_be_read_for_now_is_read_later(harness: Harness) -> None:
    Reads(harness, 3, CopiesUnreachable("away"))

    async def commit() -> Any:
        call = asyncio.ensure_future(harness.channel.unary(PATH, COMMIT))
        for _ in range(50):
            await asyncio.sleep(0)
        assert not call.done()
        for act in list(harness.timers):
            act()
        return await call

    assert pipeline.EpochResult.FromString(harness.run(commit())).rows == 20
    assert (harness.data(1), harness.data(2)) == (rows(0, 10), rows(10, 20))


async def committed(harness: Harness, pauses: int) -> Any:
    """Commit, over so many pauses after which a read is tried again."""
    call = asyncio.ensure_future(harness.channel.unary(PATH, COMMIT))
    for _ in range(pauses):
        for _ in range(50):
            await asyncio.sleep(0)
        assert not call.done()
        for act in list(harness.timers):
            harness.timers.remove(act)
            act()
    return pipeline.EpochResult.FromString(await call)


def test_what_is_lost_is_reported_and_the_rest_is_stored(
    harness: Harness, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(epoch_apply, "DAMAGED_TRIES", 3)
    Reads(harness, 3, StorageDamaged("rotten"), times=3)
    harness.timers.clear()
    with caplog.at_level(logging.ERROR):
        result = harness.run(committed(harness, 2))
    assert "2 messages of epoch 0 of query q are lost" in caplog.text
    assert result.rows == 18
    assert len(harness.data(1)) + len(harness.data(2)) == 18


def test_a_disk_that_can_not_be_read_for_a_while_loses_nothing(harness: Harness) -> None:
    Reads(harness, 3, StorageDamaged("EIO, for now"), times=2)
    harness.timers.clear()
    assert harness.run(committed(harness, 2)).rows == 20
    assert (harness.data(1), harness.data(2)) == (rows(0, 10), rows(10, 20))


def test_a_topic_that_is_deleted_meanwhile_gets_nothing_more(harness: Harness) -> None:
    reads = Reads(harness, 3, None)

    async def commit() -> Any:
        call = asyncio.ensure_future(harness.channel.unary(PATH, COMMIT))
        while not reads.held:
            await asyncio.sleep(0)
        topic = harness.publish.catalog.topic(TWO)
        assert topic is not None
        harness.publish.catalog.apply(harness.publish.catalog.assign([CatalogChange.delete(topic)])[0])
        reads.held.pop()()
        return await call

    assert pipeline.EpochResult.FromString(harness.run(commit())).rows == 10
    assert (harness.data(1), harness.data(2)) == (rows(0, 10), [])


def test_a_caller_that_gives_up_changes_nothing(harness: Harness) -> None:
    reads = Reads(harness, 3, None)

    async def commit() -> None:
        stream = harness.channel.stream(PATH)
        await stream.send(COMMIT)
        while not reads.held:
            await asyncio.sleep(0)
        stream.cancel()
        await asyncio.sleep(0)
        reads.held.pop()()

    harness.run(commit())
    harness.rest()
    assert (harness.data(1), harness.data(2)) == (rows(0, 10), rows(10, 20))
    assert harness.commit_epoch("a", 0, (0, "x")).repeated_epoch


def test_what_is_stored_is_kept_until_the_epoch_is_done(harness: Harness) -> None:
    reads = Reads(harness, 3, None)

    async def commit() -> None:
        call = asyncio.ensure_future(harness.channel.unary(PATH, COMMIT))
        while not reads.held:
            await asyncio.sleep(0)
        (source,) = harness.publish.sources.of_topic(1)
        assert harness.writer.holds(source, 0, 1, 0)
        assert not harness.writer.holds(source, 0, 0, 0)
        reads.held.pop()()
        await call
        assert not harness.writer.holds(source, 0, 1, 0)

    harness.run(commit())


def test_an_epoch_that_was_staged_over_a_restart_is_stored_as_it_was_staged(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pieces of its stages have the same offsets, in two staging sources."""
    monkeypatch.setattr(staging, "PIECE_BYTES", 100)
    harness = Harness()
    harness.subscribe(1, "one", 11)
    harness.stage("a", 0, 0, "given up", frame(ONE, data=rows(30, 33)))
    harness.stage("a", 0, 0, "x", frame(ONE, data=rows(0, 3)))
    harness.restart()
    harness.stage("a", 0, 1, "y", frame(ONE, data=rows(10, 13)))
    harness.stage("a", 0, 2, "z", frame(ONE, data=rows(20, 26)))
    result = harness.commit_epoch("a", 0, (1, "y"), (0, "x"), (2, "z"))
    assert result.rows == 12
    assert harness.data(1) == [*rows(10, 13), *rows(0, 3), *rows(20, 26)]
    harness.close()

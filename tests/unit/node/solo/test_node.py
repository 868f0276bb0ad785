"""One node whole, without sockets: a host with one chain over disks in memory, through several lives."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from syncpoint.base.model.errors import Code, SyncpointError
from syncpoint.base.model.identity import parse_message_id
from syncpoint.base.runtime.clock import ManualClock
from syncpoint.base.runtime.random import SeededRandom
from syncpoint.base.runtime.step_workers import ManualWorkers
from syncpoint.log.storage.errors import DisksMissing
from syncpoint.log.storage.settings import StorageSettings
from syncpoint.node.node_environment import NodeEnvironment
from syncpoint.node.settings import ServeSettings
from syncpoint.node.solo.node import Node
from syncpoint.testing.rigs.memory_files import FailOn, MemoryFiles
from syncpoint.testing.rigs.plain_tests import Work, plain_test
from syncpoint.testing.rigs.simulated_loop import run_simulated
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.methods import Method
from syncpoint.wire.transport.memory import MemoryChannel

TOPIC, SUB = "projects/p/topics/orders", "projects/p/subscriptions/billing"
DISKS = ("/a", "/b", "/c")
STORAGE = StorageSettings(
    segment_bytes=64 * 1024, pool_segments=1, pool_segments_max=2, reserve_bytes=0, scrub_bytes_s=0,
)  # fmt: skip


class NoLocks:
    """Nobody else is here."""

    def take(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)

    def release(self) -> None:
        """There is none."""


class Opened:
    """What is served, and where: a channel in memory."""

    host, port = "node", 443

    def __init__(self, served: Any) -> None:
        self.channel = MemoryChannel(served)

    async def drain(self, grace_s: float) -> None:
        await self.channel.close()

    async def close(self) -> None:
        await self.channel.close()


async def at_once(work: Callable[[], Any]) -> Any:
    return work()


class NodeHarness:
    """A machine with three disks, and the node on it."""

    def __init__(self, clock: ManualClock, folder: Path) -> None:
        self.clock, self.files = clock, MemoryFiles()
        self.settings = ServeSettings(data=folder, disks=tuple(map(Path, DISKS)), storage=STORAGE)
        self.workers: list[ManualWorkers] = []
        self.node: Node
        self.channel: MemoryChannel
        self._pump = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        """The threads of storage: writers and readers often, maintainers of disks now and then."""
        for turn in count():
            await asyncio.sleep(0.004)
            for workers in self.workers:
                for name in list(workers.steps):
                    if name in workers.steps and (turn % 20 == 0 or "-keep-" not in name):
                        workers.run(name)

    def _workers(self) -> ManualWorkers:
        self.workers.append(ManualWorkers())
        return self.workers[-1]

    async def _serve(self, served: Any, host: str, port: int, **_: Any) -> Opened:
        opened = Opened(served)
        self.channel = opened.channel
        return opened

    async def start(self) -> None:
        environment = NodeEnvironment(
            self.clock,
            SeededRandom(3),
            self.files,
            self._workers,
            asyncio.get_running_loop().call_soon,
            at_once,
            make_locks=NoLocks,
            serve=self._serve,
            keep_memory=lambda: None,
            freeze_memory=lambda: None,
        )
        self.node = Node(self.settings, environment)
        await self.node.start()

    async def crash(self) -> None:
        """kill -9, and all that was in memory is gone; then a start."""
        self.workers.clear()
        for task in self.node.log.host.rounds.tasks:
            task.cancel()
        self.node.common.metadata.close()
        self.files.kill()
        await self.start()

    async def close(self) -> None:
        self._pump.cancel()
        await self.node.log.host.rounds.stop()
        self.node.common.metadata.close()

    async def call(self, method: Method, **fields: Any) -> Any:
        answer = await self.channel.unary(method, method.request(**fields).SerializeToString(), timeout=8.0)
        return method.response.FromString(answer)

    async def create(self) -> None:
        await self.call(methods.PUBLISHER.CreateTopic, name=TOPIC)
        await self.call(methods.SUBSCRIBER.CreateSubscription, name=SUB, topic=TOPIC)

    async def publish(self, *data: str) -> list[str]:
        messages = [{"data": one.encode()} for one in data]
        return list((await self.call(methods.PUBLISHER.Publish, topic=TOPIC, messages=messages)).message_ids)

    async def pull(self, *, ack: bool = False) -> list[str]:
        found = await self.call(methods.SUBSCRIBER.Pull, subscription=SUB, max_messages=100)
        if ack:
            ids = [one.ack_id for one in found.received_messages]
            await self.call(methods.SUBSCRIBER.Acknowledge, subscription=SUB, ack_ids=ids)
        return [one.message.data.decode() for one in found.received_messages]

    async def is_serving(self, service: str = "") -> bool:
        found = await self.call(methods.HEALTH.Check, service=service)
        return bool(found.status == found.SERVING)


def run(work: Work) -> None:
    clock = ManualClock()

    async def main(folder: str) -> None:
        harness = NodeHarness(clock, Path(folder))
        try:
            await work(harness)
        finally:
            await harness.close()

    with TemporaryDirectory() as folder:
        run_simulated(clock, main(folder))


simulated = plain_test(run)


@simulated
async def test_what_was_acknowledged_and_what_was_not_outlive_a_kill_and_an_orderly_end(harness: NodeHarness) -> None:
    await harness.start()
    await harness.create()
    (first,) = await harness.publish("a")
    assert await harness.pull(ack=True) == ["a"]
    await harness.publish("b")
    logs = [harness.node.log.store.log_counter]
    await harness.crash()
    logs.append(harness.node.log.store.log_counter)
    assert await harness.pull() == ["b"]
    (third,) = await harness.publish("c")
    assert parse_message_id(third).universe == parse_message_id(first).universe
    await harness.node.stop()
    assert list(harness.node.log.host.chains) == []
    await harness.start()
    assert harness.node.log.store.recovered.cut == []  # it was sealed
    logs.append(harness.node.log.store.log_counter)
    assert sorted(set(logs)) == logs
    assert sorted([*await harness.pull(), *await harness.pull()]) == ["b", "c"]


@simulated
async def test_disks_that_were_all_emptied_do_not_pass_for_new_ones(harness: NodeHarness) -> None:
    await harness.start()
    await harness.create()
    await harness.node.stop()
    for disk in DISKS:
        harness.files.wipe(disk)
    with pytest.raises(DisksMissing):
        await harness.start()
    assert harness.node.log.host.chains == {}


@simulated
async def test_who_balances_load_is_reported_a_log_that_failed(harness: NodeHarness) -> None:
    await harness.start()
    await harness.create()
    await harness.publish("a")
    assert await harness.is_serving()
    for disk in DISKS:
        harness.files.faults.append(FailOn(disk, errno.EIO, ("pwritev", "fdatasync")))
    with pytest.raises(SyncpointError) as refused:
        await harness.publish("b")
    assert refused.value.code is Code.UNAVAILABLE
    assert not await harness.is_serving()
    assert not await harness.is_serving(methods.PUBLISHER.name)
    assert await harness.is_serving(methods.SUBSCRIBER.name)
    assert await harness.pull() == ["a"]
    harness.files.faults.clear()
    await harness.crash()
    assert await harness.is_serving()
    assert "a" in await harness.pull()


@simulated
async def test_no_fact_in_the_log_is_read_by_two(harness: NodeHarness) -> None:
    await harness.start()
    numbers = [one.number for one in harness.node.log.publish.extensions]
    assert len(numbers) >= 5
    assert len(set(numbers)) == len(numbers)


@simulated
async def test_a_change_of_the_catalog_is_followed_once(harness: NodeHarness) -> None:
    await harness.start()
    followed: list[int] = []
    chain = harness.node.log.host.chain(0)
    changed = chain.follower.changed
    chain.follower.changed = lambda change: (followed.append(change.revision), changed(change))[1]  # type: ignore
    await harness.create()
    assert followed == sorted(set(followed))
    assert len(followed) == 2

"""Publish forwarder processes with everything of `control` in them, over a simulated network and imagined disks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from syncpoint.base.model.cluster import PUBLISH, STORAGE, ChainRecord, DiskPlace, Member
from syncpoint.base.runtime.clock import ManualClock
from syncpoint.base.runtime.files import DiskFenced
from syncpoint.base.runtime.random import SeededRandom
from syncpoint.catalog.metadata.contract import Put
from syncpoint.catalog.metadata.layout import CHAINS, MEMBERS
from syncpoint.catalog.metadata.local import LocalShared
from syncpoint.catalog.metadata.memory import MemoryStore
from syncpoint.catalog.metadata.view import ClusterView
from syncpoint.cluster.control.hand_over import hand_over_methods
from syncpoint.cluster.control.membership import Membership, new_incarnation
from syncpoint.cluster.control.ownership_driver import OwnershipDriver
from syncpoint.cluster.control.peer_channels import PeerChannels, process_methods
from syncpoint.log.storage.quorum import AckRule
from syncpoint.testing.rigs.plain_tests import Work, plain_test
from syncpoint.testing.simulation.loop import ProcessLoop, SimProcess, run_in_loop
from syncpoint.testing.simulation.sim_network import SimNetwork


class Disks:
    """The highest epoch that opened each chain."""

    def __init__(self) -> None:
        self.epochs: dict[int, int] = {}
        self.hosts: list[FakeHost] = []

    def writers(self) -> dict[int, str]:
        """Who could still write to each chain. One at most: that is what epochs are for."""
        found: dict[int, str] = {}
        for host in self.hosts:
            for chain, epoch in host.open_at.items():
                if host.process.alive and self.epochs[chain] == epoch:
                    assert chain not in found, f"chain {chain} has two writers"
                    found[chain] = host.name
        return found


class FakeHost:
    """Opens chains after a moment, and notices soon when it was shut out."""

    def __init__(self, disks: Disks, name: str, process: SimProcess) -> None:
        self.disks, self.name, self.process = disks, name, process
        self.open_at: dict[int, int] = {}
        self.ended: Callable[[int, Exception], None]
        self.opens = 0
        disks.hosts.append(self)

    async def open(self, record: ChainRecord, epoch: int) -> None:
        self.opens += 1
        await asyncio.sleep(0.02)
        if self.disks.epochs.get(record.number, 0) >= epoch:
            raise RuntimeError("not opened") from DiskFenced(5, "a higher epoch")
        self.disks.epochs[record.number] = epoch
        self.open_at[record.number] = epoch
        await asyncio.sleep(0.1)

    async def close(self, number: int) -> None:
        await asyncio.sleep(0.02)
        self.open_at.pop(number, None)

    async def watch(self) -> None:
        while True:
            await asyncio.sleep(0.05)
            for chain, epoch in list(self.open_at.items()):
                if self.disks.epochs[chain] > epoch:
                    self.ended(chain, DiskFenced(5, "fenced"))


class Forwarder:
    """One process."""

    def __init__(self, harness: ControlHarness, name: str) -> None:
        self.harness, self.name = harness, name
        self.process = SimProcess(harness.loop, name)
        self.host = FakeHost(harness.disks, name, self.process)
        self.store = LocalShared(harness.store, harness.clock)
        self.methods: dict[bytes, Any] = {}
        self.driver: OwnershipDriver
        self.membership: Membership
        self.started = self.process.start(self._start())

    async def _start(self) -> None:
        harness = self.harness
        listening = await harness.network.serve(self.methods, "10.0.0.1", harness.ports.setdefault(self.name, 0))
        harness.ports[self.name] = listening.port
        member = Member(
            self.name, (PUBLISH,), f"10.0.0.1:{listening.port}", new_incarnation(harness.random), region="r"
        )  # fmt: skip
        self.peers = PeerChannels(harness.network)
        self.view = ClusterView(self.store)
        await self.view.start()
        self.membership = Membership(self.store, member, ping=self.peers.ping)
        self.membership.heed(self.view.members)
        await self.membership.start()
        self.driver = OwnershipDriver(self.view, self.membership, self.host, self.peers, harness.clock)
        self.host.ended = self.driver.ended
        self.methods |= {**process_methods(lambda: {"name": self.name}), **hand_over_methods(self.driver)}
        self.driver.start()
        self.watching = asyncio.create_task(self.host.watch())

    async def stop(self) -> None:
        """As a process that is asked to end."""
        await self.driver.stop()
        await self.membership.stop()
        await self.view.close()
        await self.peers.close()
        self.crash()

    def crash(self) -> None:
        self.process.crash()
        self.harness.network.ended(self.process)


class ControlHarness:
    """Some forwarders and the chains that are at home there."""

    def __init__(self, loop: ProcessLoop, clock: ManualClock, seed: int) -> None:
        self.loop, self.clock = loop, clock
        self.random = SeededRandom(seed)
        self.store = MemoryStore(clock=clock, random=self.random)
        self.network = SimNetwork(self.random)
        self.disks = Disks()
        self.ports: dict[str, int] = {}
        self.forwarders: dict[str, Forwarder] = {}
        self.homes: dict[int, str] = {}

    async def store_at(self, *names: str) -> None:
        """Storage processes with a disk each; every chain lies on all of them."""
        for number, name in enumerate(names):
            process = SimProcess(self.loop, name)
            serving = await process.start(self.network.serve(process_methods(dict), f"10.0.1.{number}", 1))
            member = Member(name, (STORAGE,), f"10.0.1.{number}:{serving.port}", number + 1, region="r", cluster=name)
            self.store.txn([], [Put(MEMBERS.key(name), member.encode())])
        places = tuple(DiskPlace(name, "d", name) for name in names)
        rule = AckRule(tuple(range(len(names)))).to_values()
        for item in self.store.range(CHAINS).items:
            record = replace(ChainRecord.decode(item.value), places=places, rule=rule)
            self.store.txn([], [Put(item.key, record.encode())])

    def start(self, *names: str) -> None:
        for name in names:
            self.forwarders[name] = Forwarder(self, name)

    def found(self, names: Iterable[str], each: int = 1) -> None:
        """Make chains."""
        for name in names:
            for _ in range(each):
                number = len(self.homes) + 1
                record = ChainRecord(number, f"{name}/default", "default", "r", name)
                self.store.txn([], [Put(CHAINS.key(number), record.encode())])
                self.homes[number] = name

    def crash(self, name: str) -> None:
        self.forwarders[name].crash()

    async def run(self, seconds: float) -> None:
        """Let time pass, with an eye on the writers."""
        end = self.loop.time() + seconds
        while self.loop.time() < end:
            await asyncio.sleep(0.05)
            self.disks.writers()


def in_harness(
    seed: int = 1, names: Iterable[str] = ("f1", "f2", "f3"), each: int = 1
) -> Callable[[Work], Callable[..., None]]:
    """A decorator: a coroutine function over a running harness as a plain test."""

    def run(work: Work) -> None:
        clock = ManualClock()

        async def main(loop: ProcessLoop) -> None:
            harness = ControlHarness(loop, clock, seed)
            harness.found(names, each)
            harness.start(*names)
            await work(harness)

        run_in_loop(clock, main)

    return plain_test(run)

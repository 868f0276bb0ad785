"""Chains stay owned over a real etcd and real sockets: a leader is killed, a forwarder vanishes, another one leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from syncpoint.base.model.cluster import PUBLISH, ChainRecord, Member
from syncpoint.base.runtime.clock import SystemClock
from syncpoint.base.runtime.files import DiskFenced
from syncpoint.base.runtime.random import SystemRandom
from syncpoint.catalog.metadata.etcd import EtcdStore, open_etcd
from syncpoint.catalog.metadata.layout import OWNERS
from syncpoint.catalog.metadata.store_client import read_all
from syncpoint.catalog.metadata.view import ClusterView
from syncpoint.cluster.control.chain_creation import ChainCreator, ChainPlan
from syncpoint.cluster.control.hand_over import hand_over_methods
from syncpoint.cluster.control.membership import Membership, new_incarnation
from syncpoint.cluster.control.ownership_driver import OwnershipDriver
from syncpoint.cluster.control.peer_channels import PeerChannels, process_methods
from syncpoint.testing.rigs import etcd
from syncpoint.wire.transport.network import TcpNetwork, join_address

pytestmark = [
    pytest.mark.skipif(etcd.why_not() is not None, reason=etcd.why_not() or ""),
    pytest.mark.shows("ownership"),
]

CLOCK, RANDOM = SystemClock(), SystemRandom()


class Host:
    """Opens chains on disks that are a dictionary of epochs."""

    def __init__(self, disks: dict[int, int]) -> None:
        self.disks = disks
        self.open_at: dict[int, int] = {}

    async def open(self, record: ChainRecord, epoch: int) -> None:
        if self.disks.get(record.number, 0) >= epoch:
            raise DiskFenced(5, "a higher epoch")
        self.disks[record.number] = self.open_at[record.number] = epoch

    async def close(self, number: int) -> None:
        self.open_at.pop(number, None)


class Forwarder:
    """Everything of control that a publish forwarder has."""

    def __init__(self, name: str, disks: dict[int, int]) -> None:
        self.name, self.host = name, Host(disks)

    async def start(self, endpoints: list[str]) -> Forwarder:
        network, methods = TcpNetwork(), {}  # type: ignore[var-annotated]
        self.listening = await network.serve(methods, "127.0.0.1", 0)
        self.store: EtcdStore = await open_etcd(endpoints, network, clock=CLOCK, random=RANDOM)
        address = join_address(self.listening.host, self.listening.port)
        me = Member(self.name, (PUBLISH,), address, new_incarnation(RANDOM), region="r")
        self.peers, self.view = PeerChannels(network), ClusterView(self.store)
        await self.view.start()
        self.membership = Membership(self.store, me)
        await self.membership.start()
        self.membership.heed(self.view.members)
        self.founder = ChainCreator(
            self.store, self.membership, ["default"], lambda klass, known: ChainPlan((), {}, "sync")
        )
        self.founder.start()
        self.driver = OwnershipDriver(self.view, self.membership, self.host, self.peers, CLOCK)
        methods.update({**process_methods(dict), **hand_over_methods(self.driver)})
        self.driver.start()
        return self

    async def vanish(self) -> None:
        """As a killed process: nothing is given back, and its address refuses."""
        for task in (*self.driver._loops, *self.membership._tasks, *self.founder._tasks):
            task.cancel()
        await self.listening.close()
        await self.peers.close()
        await self.view.close()
        await self.store.close()
        self.host.open_at.clear()

    async def stop(self) -> None:
        await self.founder.stop()
        await self.driver.stop()
        await self.membership.stop()
        await self.listening.close()
        await self.peers.close()
        await self.view.close()
        await self.store.close()


async def until(what: Callable[[], bool], seconds: float = 20.0) -> None:
    async with asyncio.timeout(seconds):
        while not what():
            await asyncio.sleep(0.02)


@pytest.mark.long
def test_owners_through_faults_of_the_metadata_and_their_own(tmp_path: Path) -> None:
    async def run(cluster: etcd.EtcdCluster) -> None:
        disks: dict[int, int] = {}
        names = ("f1", "f2", "f3")
        forwarders = {name: await Forwarder(name, disks).start(cluster.endpoints) for name in names}
        hosts = [one.host for one in forwarders.values()]
        await until(lambda: [len(host.open_at) for host in hosts] == [1, 1, 1])
        await asyncio.sleep(2.5)

        await asyncio.to_thread(cluster.kill, cluster.leader())
        await asyncio.sleep(6)
        assert set(disks.values()) == {1}, "a leader's death moves nothing"
        await asyncio.to_thread(cluster.start)

        victim = forwarders.pop("f1")
        (chain,) = victim.host.open_at
        await victim.vanish()
        await until(lambda: disks[chain] == 2)
        assert sum(chain in one.host.open_at for one in forwarders.values()) == 1

        await forwarders.pop("f2").stop()
        await until(lambda: len(forwarders["f3"].host.open_at) == 3)
        found, _ = await read_all(forwarders["f3"].store, OWNERS)
        assert len(found) == 3
        await forwarders["f3"].stop()

    with etcd.EtcdCluster(tmp_path, members=3).start() as cluster:
        asyncio.run(run(cluster))

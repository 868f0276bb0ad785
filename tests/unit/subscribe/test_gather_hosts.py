"""Subscribe forwarders before real publish hosts, over the transport's twin and chains of nine disks each."""

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import Any

import pytest

from syncpoint.model.errors import SyncpointError
from syncpoint.publish.service import ChainsService
from syncpoint.runtime.random import SeededRandom
from syncpoint.subscribe.gather import Gatherer
from syncpoint.subscribe.lease_holder import lender_of
from syncpoint.subscribe.link import ServeLink
from syncpoint.subscribe.peers import Peer
from syncpoint.subscribe.subscribe_forwarder import SubscribeForwarder
from syncpoint.transport.memory import Faults, MemoryChannel
from tests.kit.chain import ChainWorld, Process, simulated
from tests.kit.subscribers import Client, hash_of


class Cluster:
    """What `subscribers.Client` and the gatherers want to know; the directory and the network of all forwarders."""

    def __init__(self, world: ChainWorld, seed: int) -> None:
        self.world, self.clock, self.random = world, world.clock, SeededRandom(seed)
        self.record: Any = None
        self.delivered: list[str] = []
        self.confirmed: list[str] = []
        self.nodes: list[Node] = []

    def owners(self) -> Mapping[int, str]:
        return {number: process.name for process in self.world.processes for number in process.host.chains}

    def chains_of(self, topic: int) -> Collection[int]:
        return sorted(chain for of, chain in self.world.registered if of == topic)

    def look(self, topic: int, reply: Callable[[Collection[int] | None], None]) -> None:
        found = self.chains_of(topic)
        asyncio.get_running_loop().call_later(0.02, lambda: reply(found))

    def channel(self, address: str) -> MemoryChannel:
        for process in self.world.processes:
            if process.name == address:
                faults = Faults(self.random, delay_s_max=0.02)
                return MemoryChannel(ChainsService(process.host).methods(), faults)
        return MemoryChannel({})

    async def serve(self, *_: Any) -> Any:
        raise NotImplementedError

    def changed(self) -> None:
        for node in self.nodes:
            node.gatherer.changed()


class Node:
    """A subscribe forwarder process."""

    def __init__(self, cluster: Cluster, member: str, incarnation: int) -> None:
        self.cluster, self.member = cluster, member
        self.links: list[ServeLink] = []
        catalog = cluster.world.master
        self.gatherer = Gatherer(
            member, incarnation, catalog, cluster, cluster.clock, connect=self._connect, publish=lambda *_: None
        )
        self.subscribe = SubscribeForwarder(
            self.gatherer, catalog, cluster.clock, key=bytes(32), random=cluster.random,
            soon=asyncio.get_running_loop().call_soon, lender=lender_of(member, incarnation), linger_s=10.0,
        )  # fmt: skip
        self._ticking = asyncio.get_running_loop().create_task(self._tick())

    def _connect(self, address: str, peer: Peer) -> ServeLink:
        self.links.append(ServeLink(self.cluster, address, peer))
        return self.links[-1]

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(0.1)
            self.cluster.changed()
            self.gatherer.tick()
            self.subscribe.tick()


async def publish(world: ChainWorld, cluster: Cluster, text: str, key: str) -> None:
    """As a proxy does: to the key's chain of the current assignment, again until it is known to be stored."""
    while True:
        assignment = world.assignments[1]
        chain = assignment.chains[hash_of(key) % len(assignment.chains)]
        try:
            await world.owner(chain).publish(text, chain=chain, key=key, epoch=assignment.epoch, timeout=5)
            return
        except (SyncpointError, StopIteration):
            await asyncio.sleep(0.2)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("ordered", "once"), [(False, False), (True, False), (False, True), (True, True)])
def test_dying_hosts_and_spreading_topics_lose_nothing_and_keep_order(ordered: bool, once: bool, seed: int) -> None:
    @simulated
    async def run(world: ChainWorld) -> None:
        first, second = world.process("f1"), world.process("f2")
        for chain in (1, 2):
            await first.open(chain)
        await second.open(3)
        world.assign(1, 2)
        cluster = Cluster(world, seed)
        await first.publish("before", chain=1)  # so that a chain is registered
        cluster.record = await world.subscribe(ordered=ordered, exactly_once=once)
        cluster.nodes = [Node(cluster, name, 100 + at) for at, name in enumerate("abc")]
        clients = [Client(cluster, node, most=20) for node in cluster.nodes]  # type: ignore[arg-type]

        async def work() -> None:
            while True:
                await asyncio.sleep(0.1)
                for client in clients:
                    for ack_id in list(client.held):
                        if ack_id in client.held and cluster.random.random() < 0.5:
                            client.ack(ack_id)

        working = asyncio.get_running_loop().create_task(work())
        sent: list[str] = []

        async def some(count: int) -> None:
            for _ in range(count):
                key = "abc"[cluster.random.randrange(0, 3)]
                sent.append(f"{key}:{len(sent)}")
                await publish(world, cluster, sent[-1], key)

        await some(10)
        world.assign(1, 2, 3)
        await some(10)
        await asyncio.sleep(cluster.random.random())
        await adopt(world, first, second)
        await some(10)
        world.assign(3)
        await some(10)
        for _ in range(300):
            await asyncio.sleep(0.2)
            if set(cluster.confirmed) >= set(sent):
                break
        await asyncio.sleep(15)  # what was lent and lost would come again
        working.cancel()
        delivered = [text for text in cluster.delivered if text != "before"]
        assert set(delivered) == set(sent)
        left = {client.forwarder.member: client.held for client in clients if client.held}
        assert not left
        if once:
            assert len(cluster.confirmed) == len(set(cluster.confirmed))
        if ordered:
            for key in "abc":
                seen = list(dict.fromkeys(text for text in delivered if text.startswith(key)))
                assert seen == [text for text in sent if text.startswith(key)]

    run()


async def adopt(world: ChainWorld, dying: Process, heir: Process) -> None:
    """A process dies with its chains; another opens them under the next epochs."""
    chains = sorted(dying.host.chains)
    await dying.crash()
    await asyncio.sleep(1)
    for chain in chains:
        await heir.open(chain)

"""The life of a message in a cluster: the files that lie between those of one node.

A simulated cluster (`syncpoint.testing.simulation`) without faults and without delays: every role as it ships, 3 x 3
disks, sealed data, an exactly-once subscription. What its processes do as well while no message is under way is left
out, function by function.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from tracing import NO_STATIONS, Rows, Trace, Way, enter, traced

from syncpoint.base.runtime.random import SeededRandom
from syncpoint.testing.simulation import simulated_cluster as cluster_module
from syncpoint.testing.simulation.api_clients import TOPIC
from syncpoint.testing.simulation.loop import here
from syncpoint.testing.simulation.sim_runs import SimRun, simulate
from syncpoint.testing.simulation.sim_workers import SimWorkers
from syncpoint.testing.simulation.simulated_cluster import SimulatedCluster
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import pubsub

STRETCHES = ("published", "delivered", "acknowledged")
NAME, SUBSCRIPTION = "billing", "projects/p/subscriptions/billing"
NOT_BETWEEN = (*NO_STATIONS, "base/kernel/", "base/runtime/", "wire/transport/")
DISKS = "testing/simulation/simulated_disks"  # stands for the socket of a storage process
DISKS_ROLE = "storage"


class OneMessage(SimRun[SimulatedCluster]):
    """A run in which nothing goes wrong."""

    def __init__(self, sim: SimulatedCluster) -> None:
        super().__init__(sim, 1, SeededRandom(1))
        self.found: dict[str, Trace] = {}

    async def run(self) -> None:
        sim = self.sim
        sim.network.delay_s_max = 0.0
        for name in sim.settings.processes:
            sim.begin(name)
            await asyncio.sleep(0.01)
        await self.within([sim.create_topic()], 60)
        await self.within([sim.subscribe(NAME, exactly_once=True)], 60)
        await self.within([self._follow()], 60)
        await sim.close()

    async def _follow(self) -> None:
        proxy = self.sim.network.channel("proxy0:443")
        note = partial(traced, self.found, kind=self._role)

        async def publish(data: bytes) -> None:
            request = pubsub.PublishRequest(topic=TOPIC, messages=[pubsub.PubsubMessage(data=data)])
            await proxy.unary(methods.PUBLISHER.Publish, request.SerializeToString(), timeout=5.0)

        async def acknowledge(received: Any) -> None:
            ack_ids = [one.ack_id for one in received]
            request = pubsub.AcknowledgeRequest(subscription=SUBSCRIPTION, ack_ids=ack_ids)
            await proxy.unary(methods.SUBSCRIBER.Acknowledge, request.SerializeToString(), timeout=5.0)

        async def receive() -> Any:
            data = await stream.receive()
            assert data is not None
            return pubsub.StreamingPullResponse.FromString(data).received_messages

        stream = proxy.stream(methods.SUBSCRIBER.StreamingPull)
        first = pubsub.StreamingPullRequest(subscription=SUBSCRIPTION, stream_ack_deadline_seconds=600)
        await stream.send(first.SerializeToString())
        await asyncio.sleep(3)
        for _ in range(4):  # both chains have a source of the topic, then
            await publish(b"earlier")
            await acknowledge(await receive())
        await asyncio.sleep(5)
        with note("idle"):
            await asyncio.sleep(20)
        with note("published"):
            await publish(b"hello")
        with note("delivered"):
            received = await receive()
        with note("acknowledged"):
            await acknowledge(received)

    def _role(self, way: Way) -> str:
        """In which process this runs: its first role."""
        if any(file == DISKS for file, _ in way):
            return DISKS_ROLE
        process = here()
        found = self.sim.settings.processes.get(process.name) if process is not None else None
        return found.roles[0] if found is not None else "client"


def stations(known: set[str]) -> dict[str, Rows]:
    """Per stretch the files that are not `known`, in their order; `where` is the role of their process."""
    runs: list[OneMessage] = []

    def make(loop: Any, clock: Any) -> OneMessage:
        runs.append(OneMessage(SimulatedCluster(loop, clock, 1, None, 3, sealed=True)))
        return runs[0]

    inner: Any = cluster_module
    inner.SimWorkers = lambda *parts, stops: SimWorkers(*parts, stops=0.0)  # no threads: what runs there is not traced
    result = simulate(1, make, None)
    if result.violations or not runs[0].found:
        raise RuntimeError(f"the simulated cluster does not work: {result.violations}")
    found = runs[0].found
    tables: dict[str, Rows] = {name: {} for name in STRETCHES}
    for name in STRETCHES:
        for (place, role), way in found[name].ways.items():
            if (place, role) not in found["idle"].ways and role != "client":
                begin = next((at + 1 for at, (file, _) in enumerate(way) if file == DISKS), 0)
                early = name == "published" and role == "subscribe-forwarder"  # while the publisher is answered
                enter(tables["delivered" if early else name], way, begin=begin, where=role, left_out=NOT_BETWEEN)
    for rows in tables.values():
        for file in known & set(rows):
            del rows[file]
    return tables

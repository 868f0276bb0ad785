"""How long can a client without retries not publish when the forwarder it publishes through is killed?

One request is due every 20 ms, whatever became of those before it (open loop), and is sent once. Before each kill the
requests of half a second show which publish forwarder takes them: that one gets SIGKILL. The gap is the longest time
without a confirmed publish from just before the kill on; the victim is started again when publishing has been
seen to work for a while, and the longest time without a confirmed publish after that is a figure of its own.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections import Counter
from dataclasses import dataclass, field

from bench.clusters import ClusterUnderTest
from bench.harness import Bench, Target
from bench.process import Failed
from syncpoint.base.model.errors import SyncpointError
from syncpoint.cluster.control.peer_channels import PeerChannels
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import internal, pubsub
from syncpoint.wire.transport.network import AnyChannel, TcpNetwork

STATUS = methods.PROCESS.GetStatus
TOPIC = "projects/bench/topics/failover-"  # and the case
EVERY_S = 0.02
TIMEOUT_S = 30.0
_SEEK_S = 0.5  # of publishing shows who takes it
_PAUSE_S = 2.0  # between one kill's end and the next
_WATCH_S = 3.0  # publishing is watched at least as long after a kill
_STEADY_S = 1.0  # and how long without a gap before the victim comes back
_LONGEST_S = 30.0
_ROLE = "publish-forwarder"


@dataclass
class Client:
    """Requests on a schedule, each sent once; when they were confirmed, how long they took, what failed."""

    channel: AnyChannel
    body: bytes
    confirmed: list[float] = field(default_factory=list)
    slowest: float = 0.0
    failed: Counter[str] = field(default_factory=Counter)

    async def run(self) -> None:
        """Until it is cancelled."""
        begun, under_way = time.monotonic(), set()
        try:
            for number in itertools.count():
                await asyncio.sleep(max(0.0, begun + number * EVERY_S - time.monotonic()))
                task = asyncio.create_task(self._publish(begun + number * EVERY_S))
                under_way.add(task)
                task.add_done_callback(under_way.discard)
        finally:
            for task in under_way:
                task.cancel()

    async def _publish(self, due: float) -> None:
        try:
            await self.channel.unary("/google.pubsub.v1.Publisher/Publish", self.body, timeout=TIMEOUT_S)
        except SyncpointError as error:
            self.failed[error.code.name] += 1
            return
        now = time.monotonic()
        self.confirmed.append(now)
        self.slowest = max(self.slowest, now - due)

    def gap(self, since: float) -> float:
        """The longest time without a confirmed publish, from the last one before `since` until now."""
        before = max((at for at in self.confirmed if at <= since), default=since)
        times = [before, *(at for at in self.confirmed if at > since), time.monotonic()]
        return max(after - at for at, after in itertools.pairwise(times))


@dataclass(frozen=True)
class Kill:
    """One kill: the gap, the slowest confirmed request, how many failed, and the gap when the victim came back."""

    gap: float
    slowest: float
    failed: int
    return_gap: float


def failover(bench: Bench, cluster: ClusterUnderTest, kills: int) -> None:
    """The gap around each kill, without and with an ordering key."""
    for case, key in (("without key", ""), ("with an ordering key", "k")):
        measured, failed = asyncio.run(_kills(cluster, kills, key))
        case = f"kill -9, {case}"
        gaps = [one.gap for one in measured]
        bench.row(case, "publish gap p50", "s", gaps, Target(1.5), f"of {len(gaps)} kills")
        bench.row(case, "publish gap p99: the longest", "s", max(gaps), Target(4.0), f"of {len(gaps)} kills")
        bench.row(case, "slowest request confirmed", "s", [one.slowest for one in measured], None, "due to confirmed")
        shown = ", ".join(f"{count} {code}" for code, count in failed.most_common())
        bench.row(case, "requests failed per kill", "", [float(one.failed) for one in measured], None, shown)
        bench.row(case, "gap when the killed one is back", "s", [one.return_gap for one in measured])


async def _kills(cluster: ClusterUnderTest, kills: int, key: str) -> tuple[list[Kill], Counter[str]]:
    network = TcpNetwork()
    channel, peers = network.channel(cluster.address), PeerChannels(network)
    try:
        topic = pubsub.Topic(name=TOPIC + ("keyed" if key else "keyless"))
        try:
            await channel.unary("/google.pubsub.v1.Publisher/CreateTopic", topic.SerializeToString(), timeout=TIMEOUT_S)
        except SyncpointError as error:
            if error.code.name != "ALREADY_EXISTS":
                raise
        body = pubsub.PublishRequest(topic=topic.name, messages=[{"data": b"x" * 1024, "ordering_key": key}])
        client = Client(channel, body.SerializeToString())
        publishing = asyncio.create_task(client.run())
        try:
            found = [await _kill(cluster, peers, client) for _ in range(kills)]
        finally:
            publishing.cancel()
            await asyncio.gather(publishing, return_exceptions=True)
        return found, client.failed
    finally:
        await peers.close()
        await channel.close()


async def _kill(cluster: ClusterUnderTest, peers: PeerChannels, client: Client) -> Kill:
    await asyncio.sleep(_PAUSE_S)
    victim = await _taker(cluster, peers)
    failed = client.failed.total()
    client.slowest = 0.0
    client.confirmed = client.confirmed[-10:]
    begun = time.monotonic()
    await asyncio.to_thread(cluster.cluster.kill, victim)
    while (now := time.monotonic()) < begun + _LONGEST_S:
        await asyncio.sleep(0.1)
        if now > begun + _WATCH_S and client.gap(now - _STEADY_S) < _STEADY_S:
            break
    gap, slowest, failed = client.gap(begun), client.slowest, client.failed.total() - failed
    back = time.monotonic()
    await asyncio.to_thread(cluster.cluster.start, victim)
    await asyncio.sleep(_PAUSE_S)
    return Kill(gap, slowest, failed, client.gap(back))


async def _taker(cluster: ClusterUnderTest, peers: PeerChannels) -> str:
    """The publish forwarder that takes most of what is published. Raises Failed when none takes anything."""
    end = time.monotonic() + _LONGEST_S
    while time.monotonic() < end:
        before = await _taken(cluster, peers)
        await asyncio.sleep(_SEEK_S)
        after = await _taken(cluster, peers)
        name = max(after, key=lambda one: after[one] - before.get(one, 0))
        if after[name] > before.get(name, 0):
            return name
    raise Failed(f"no publish forwarder took anything in {_LONGEST_S:g} s: {after}")


async def _taken(cluster: ClusterUnderTest, peers: PeerChannels) -> dict[str, int]:
    """Messages each publish forwarder has taken, by the chains it has open."""
    states = await asyncio.to_thread(cluster.cluster.states)
    taken = {}
    for one in states:
        if _ROLE in one.roles and one.pid is not None:
            answer = internal.StatusResponse.FromString(await peers.call(one.address, STATUS, b"", timeout_s=5.0))
            chains = json.loads(answer.json)["roles"][_ROLE]["chains"]
            taken[one.name] = sum(chain["published"] for chain in chains)
    return taken

"""What a gateway costs beside a cluster's proxy, and how long clients wait when a site is lost.

CPU of the process alone, for each message: a node behind a gateway, two nodes behind a gateway with a dual topic, and a
small cluster behind its proxy, with the same load by the same client: requests of one message, requests of 100, and
a streaming pull with acknowledgements. Then the home is killed, or stopped, again and again, while one publisher
publishes message after message with Google's client: the longest publish of each time.

Usage: python -m bench.gateway [--requests 2000] [--losses 10]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench import machine
from syncpoint.programs.clusters.local import LocalCluster, Shape
from syncpoint.testing.rigs import official
from syncpoint.testing.server_process import ServerProcess
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import pubsub
from syncpoint.wire.transport.client import Channel
from syncpoint.wire.transport.network import split_address

TOPIC, SUBSCRIPTION = "projects/bench/topics/orders", "projects/bench/subscriptions/billing"
SIZE, BATCH, AT_ONCE = 1024, 100, 16


@contextmanager
def gateway(folder: Path, servers: list[ServerProcess], *, dual: bool) -> Iterator[tuple[str, int]]:
    """Its address and process."""
    sites = {f"s{n}": {"endpoint": one.endpoint, "weight": 200 - n} for n, one in enumerate(servers)}
    file = {"version": 1, "listen": "127.0.0.1:0", "admin": {"listen": "127.0.0.1:0"}, "sites": sites}
    file |= {"limits": {"bytes_per_caller": 1 << 30}, "budget": {"changes": 1000}}
    if dual:
        file["dual"] = [{"topics": TOPIC}]
    path = folder / "gateway.yaml"
    path.write_text(json.dumps(file))
    line = [sys.executable, "-m", "syncpoint.programs.cli", "gateway", "run", "--config", str(path)]
    with (folder / "gateway.log").open("w") as log:
        process = subprocess.Popen(line, stderr=log)
    try:
        found = None
        while found is None and process.poll() is None:
            time.sleep(0.05)
            found = re.search(r"clients: (\S+) ", (folder / "gateway.log").read_text())
        if found is None:
            raise RuntimeError((folder / "gateway.log").read_text())
        yield found[1], process.pid
    finally:
        process.terminate()
        process.wait(20)


async def load(address: str, pid: int, requests: int) -> dict[str, float]:
    """Microseconds of CPU of a process, for each message of each kind of load."""
    channel = Channel(*split_address(address))
    found: dict[str, float] = {}

    async def publish(count: int, size: int) -> float:
        message = pubsub.PubsubMessage(data=os.urandom(SIZE))
        request = pubsub.PublishRequest(topic=TOPIC, messages=[message] * size).SerializeToString()
        left = [count]

        async def one() -> None:
            while left[0] > 0:
                left[0] -= 1
                await channel.unary(methods.PUBLISHER.Publish, request, timeout=60)

        before = machine.cpu_seconds(pid)
        await asyncio.gather(*(one() for _ in range(AT_ONCE)))
        return (machine.cpu_seconds(pid) - before) * 1e6 / (count * size)

    async def receive(total: int) -> float:
        stream = channel.stream(methods.SUBSCRIBER.StreamingPull)
        opening = pubsub.StreamingPullRequest(
            subscription=SUBSCRIPTION, stream_ack_deadline_seconds=60, max_outstanding_messages=10_000
        )
        before, got, acks = machine.cpu_seconds(pid), 0, []
        await stream.send(opening.SerializeToString())
        while got < total:
            response = await stream.receive()
            assert response is not None
            ids = [one.ack_id for one in pubsub.StreamingPullResponse.FromString(response).received_messages]
            got += len(ids)
            request = pubsub.AcknowledgeRequest(subscription=SUBSCRIPTION, ack_ids=ids).SerializeToString()
            acks.append(asyncio.ensure_future(channel.unary(methods.SUBSCRIBER.Acknowledge, request, timeout=60)))
        await asyncio.gather(*acks)
        used = machine.cpu_seconds(pid) - before
        stream.cancel()
        return used * 1e6 / got

    topic = pubsub.Topic(name=TOPIC).SerializeToString()
    await channel.unary(methods.PUBLISHER.CreateTopic, topic, timeout=60)
    await publish(200, 1)
    subscription = pubsub.Subscription(name=SUBSCRIPTION, topic=TOPIC).SerializeToString()
    await channel.unary(methods.SUBSCRIBER.CreateSubscription, subscription, timeout=60)
    found["publish, 1 message"] = await publish(requests, 1)
    found["publish, 100 messages"] = await publish(requests // 5, BATCH)
    found["streaming pull and acknowledge"] = await receive(requests + requests // 5 * BATCH)
    await channel.close()
    return found


def waits(folder: Path, losses: int, *, hang: bool) -> list[float]:
    """The longest publish of each loss of the home."""
    servers = [ServerProcess(folder / f"wait-{hang}-{n}").start() for n in range(2)]
    found = []
    try:
        with gateway(folder, servers, dual=False) as (address, _):
            api = official.Api(address)
            api.create_topic({"name": TOPIC})
            api.close()
            publisher = official.publisher(address)
            for _ in range(losses):
                publisher.publish(TOPIC, b"x").result(60)
                pid = servers[0].pid or 0
                os.kill(pid, signal.SIGSTOP) if hang else servers[0].kill9()
                longest, until = 0.0, time.monotonic() + 3
                while time.monotonic() < until:
                    began = time.monotonic()
                    publisher.publish(TOPIC, b"x").result(60)
                    longest = max(longest, time.monotonic() - began)
                found.append(longest)
                if hang:
                    os.kill(pid, signal.SIGCONT)
                else:
                    servers[0].start()
                time.sleep(5)
            publisher.stop()
    finally:
        for one in servers:
            one.close()
    return found


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description="What a gateway costs, and how long clients wait.")
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--losses", type=int, default=10)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder, costs = Path(name), {}
        for kind, count in (("gateway", 1), ("gateway, dual", 2)):
            servers = [ServerProcess(folder / f"{count}-{n}").start() for n in range(count)]
            with gateway(folder, servers, dual=count == 2) as (address, pid):
                costs[kind] = asyncio.run(load(address, pid, options.requests))
            for one in servers:
                one.close()
        cluster = LocalCluster(folder / "cluster")
        cluster.create(Shape(clusters=1, disks=1, forwarders=1, routers=1, proxies=1))
        cluster.up()
        try:
            proxy = next(one for one in cluster.states() if "proxy" in one.roles)
            costs["proxy"] = asyncio.run(load(proxy.address, proxy.pid or 0, options.requests))
        finally:
            cluster.down()
        for kind, found in costs.items():
            print(f"{kind:15}" + "  ".join(f"{what}: {each:.1f} µs" for what, each in found.items()), flush=True)
        for hang in (False, True):
            longest = waits(folder, options.losses, hang=hang)
            how = "hung" if hang else "killed"
            print(f"{how}: p50 {statistics.median(longest):.2f} s, most {max(longest):.2f} s", flush=True)


if __name__ == "__main__":
    main()

"""One process that publishes for some seconds and then receives what it published, by one of the Python clients.

    python -m bench.client_load CLIENT HOST:PORT --seconds S --run N

Prints one JSON object, as the load generator does. CLIENT: `bulk` (publish_many, batches), `single` (publish,
messages), `callback` (publish from coroutines, callbacks in threads), `google` (the official client, with its own
defaults but for batches of 100 within 10 ms and 10,000 messages outstanding, as ours has).
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import resource
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from syncpoint.client import AsyncPublisher, Publisher, Subscriber
from syncpoint.front.client.client import Client
from syncpoint.wire.protobuf.messages import pubsub

BYTES = 1000
WAIT_S = 30.0
AHEAD = 20_000  # futures that a publisher keeps before it waits for the oldest
IDLE_S = 3.0

Publish = Callable[[str, str, float], int]
"""Publishes to a topic of an address for so many seconds; how many were confirmed."""
Receive = Callable[[str, str, int], list[str]]
"""Receives and acknowledges so many; their ids."""


def body() -> bytes:
    return os.urandom(BYTES)


def until(end_s: float, data: bytes) -> Iterator[bytes]:
    """The same data again and again, until then."""
    while time.monotonic() < end_s:
        yield from itertools.repeat(data, 1000)


def publish_bulk(address: str, topic: str, seconds: float) -> int:
    with Publisher(address) as publisher:
        return len(publisher.publish_many(topic, until(time.monotonic() + seconds, body())))


def publish_singly(publish: Callable[[str, bytes], Any], topic: str, seconds: float) -> int:
    """With any client whose `publish` returns a future."""
    waiting: deque[Any] = deque()
    confirmed = 0
    for data in until(time.monotonic() + seconds, body()):
        waiting.append(publish(topic, data))
        if len(waiting) >= AHEAD:
            waiting.popleft().result(WAIT_S)
            confirmed += 1
    for one in waiting:
        one.result(WAIT_S)
    return confirmed + len(waiting)


def publish_single(address: str, topic: str, seconds: float) -> int:
    with Publisher(address) as publisher:
        return publish_singly(publisher.publish, topic, seconds)


def publish_google(address: str, topic: str, seconds: float) -> int:
    from google.cloud import pubsub_v1

    client = pubsub_v1.PublisherClient(pubsub_v1.types.BatchSettings(max_messages=100, max_latency=0.01))
    try:
        return publish_singly(client.publish, topic, seconds)
    finally:
        client.stop()


def publish_coroutines(address: str, topic: str, seconds: float) -> int:
    data, end_s = body(), time.monotonic() + seconds

    async def work() -> int:
        confirmed = 0

        async def one() -> None:
            nonlocal confirmed
            while time.monotonic() < end_s:
                await publisher.publish(topic, data)
                confirmed += 1

        async with AsyncPublisher(address) as publisher:
            await asyncio.gather(*(one() for _ in range(1000)))
        return confirmed

    return asyncio.run(work())


def receive_bulk(address: str, subscription: str, count: int) -> list[str]:
    found: list[str] = []
    with Subscriber(address) as subscriber:
        for batch in subscriber.batches(subscription, timeout=IDLE_S):
            found += batch.ack_ids  # each names one delivery
            if sum(map(len, batch.data)) != BYTES * len(batch):
                raise SystemExit("data of another size")
            batch.ack()
            if len(found) >= count:
                break
    return found


def receive_single(address: str, subscription: str, count: int) -> list[str]:
    found: list[str] = []
    with Subscriber(address) as subscriber:
        for message in subscriber.messages(subscription, timeout=IDLE_S):
            found.append(message.message_id)
            message.ack()
            if len(found) >= count:
                break
    return found


class Counting:
    """A callback that counts up to a number."""

    def __init__(self, count: int) -> None:
        self.found: list[str] = []
        self.full = threading.Event()
        self._count = count

    def __call__(self, message: Any) -> None:
        self.found.append(message.message_id)
        message.ack()
        if len(self.found) >= self._count:
            self.full.set()


def receive_callback(address: str, subscription: str, count: int) -> list[str]:
    counting = Counting(count)
    with Subscriber(address) as subscriber:
        future = subscriber.subscribe(subscription, counting)
        counting.full.wait(WAIT_S)
        future.cancel()
        future.result(WAIT_S)
    return counting.found


def receive_google(address: str, subscription: str, count: int) -> list[str]:
    from google.cloud import pubsub_v1

    counting = Counting(count)
    with pubsub_v1.SubscriberClient() as client:
        flow = pubsub_v1.types.FlowControl(max_messages=10_000)
        future = client.subscribe(subscription, counting, flow_control=flow)
        counting.full.wait(2 * WAIT_S)
        future.cancel()
        future.result(WAIT_S)
    return counting.found


CLIENTS: dict[str, tuple[Publish, Receive]] = {
    "bulk": (publish_bulk, receive_bulk),
    "single": (publish_single, receive_single),
    "callback": (publish_coroutines, receive_callback),
    "google": (publish_google, receive_google),
}


def used_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("client", choices=CLIENTS)
    parser.add_argument("address")
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--run", default="0")
    options = parser.parse_args()
    os.environ["PUBSUB_EMULATOR_HOST"] = options.address
    topic, subscription = (f"projects/bench/{kind}/client-{options.run}" for kind in ("topics", "subscriptions"))
    with Client(options.address) as admin:
        admin.call("Publisher.CreateTopic", pubsub.Topic(name=topic))
        made = pubsub.Subscription(name=subscription, topic=topic, ack_deadline_seconds=60)
        admin.call("Subscriber.CreateSubscription", made)
    publish, receive = CLIENTS[options.client]
    wall, cpu = time.monotonic(), used_s()
    published = publish(options.address, topic, options.seconds)
    wall_published, cpu_published = time.monotonic(), used_s()
    found = receive(options.address, subscription, published)
    wall_received, cpu_received = time.monotonic(), used_s()
    distinct = len(set(found))
    report = {
        "published": published,
        "received": len(found),
        "missing": published - distinct,
        "duplicates": len(found) - distinct,
        "errors": 0,
        "publish_per_s": published / (wall_published - wall),
        "receive_per_s": len(found) / (wall_received - wall_published),
        "publish_cpu_us": (cpu_published - cpu) * 1e6 / max(1, published),
        "receive_cpu_us": (cpu_received - cpu_published) * 1e6 / max(1, len(found)),
        "generator_cpu_seconds": used_s(),
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main()

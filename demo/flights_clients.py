"""The processes of the demonstration: one publisher and one per subscription, each with Google's official client.

Every process notes what it sees on the scoreboard, which lies in memory they share, so that nothing they would have to
report each other disturbs what is measured. Times are those of the system's monotonic clock, in seconds; all processes
read the same clock.
"""

from __future__ import annotations

import mmap
import os
import signal
import struct
import threading
import time
from collections.abc import Mapping, Sequence
from multiprocessing.synchronize import Event
from typing import Any, Literal

from flights_data import Record

PUBLISH_ROUNDS = 5
"""How often a message whose publish failed is published again by this program, after the client's own retries."""
OUTSTANDING_PUBLISHES = 4_000
OUTSTANDING_DELIVERIES = 10_000
LISTENING_S_MAX = 20.0


class Seen:
    """What one subscription received: per record how often, and when first; and what should not have come."""

    def __init__(self, records: int) -> None:
        self.times: Any = _shared(records, "B")
        self.first_at: Any = _shared(records, "d")
        self.tallies: Any = _shared(3, "q")  # distinct records, all deliveries, data that nobody published


class Scoreboard:
    """What the publisher did with each record, and what each subscription saw of it."""

    def __init__(self, records: int, subscriptions: Sequence[str]) -> None:
        self.sent_at: Any = _shared(records, "d")
        self.stored_at: Any = _shared(records, "d")
        self.stored: Any = _shared(1, "q")
        self.seen = {name: Seen(records) for name in subscriptions}


def _shared(count: int, kind: Literal["B", "d", "q"]) -> Any:
    """Zeroed memory that forked processes share, as an array of bytes, floats or integers."""
    return memoryview(mmap.mmap(-1, count * struct.calcsize(kind))).cast(kind)


def publish(
    board: Scoreboard,
    records: Sequence[Record],
    environment: Any,
    topic: str,
    subscriptions: Mapping[str, str],
    ready: Event,
    listening: Sequence[Event],
) -> None:
    """Make the topic and its subscriptions (name -> filter), then publish every record until it is stored.

    `ready` reports the receivers that their subscriptions exist; `listening` reports that they are connected, so that
    their start does not count as latency.
    """
    os.environ.update(_begin(environment))
    from google.cloud import pubsub_v1

    types = pubsub_v1.types
    publisher = pubsub_v1.PublisherClient(
        batch_settings=types.BatchSettings(max_messages=1000, max_bytes=1_000_000, max_latency=0.01),
        publisher_options=types.PublisherOptions(
            flow_control=types.PublishFlowControl(
                message_limit=OUTSTANDING_PUBLISHES,
                byte_limit=100_000_000,
                limit_exceeded_behavior=types.LimitExceededBehavior.BLOCK,
            )
        ),
    )
    publisher.create_topic(name=topic)
    with pubsub_v1.SubscriberClient() as subscriber:
        for name, text in subscriptions.items():
            subscriber.create_subscription(request={"name": name, "topic": topic, "filter": text})
    ready.set()
    for one in listening:
        one.wait(LISTENING_S_MAX)

    lock = threading.Lock()
    failed: list[int] = []

    def complete(future: Any, row: int) -> None:
        now = time.monotonic()
        bad = future.exception() is not None
        with lock:
            if bad:
                failed.append(row)
            else:
                board.stored_at[row] = now
                board.stored[0] += 1

    rows: Sequence[int] = range(len(records))
    for _ in range(PUBLISH_ROUNDS):
        futures = []
        for row in rows:
            record = records[row]
            if not board.sent_at[row]:
                board.sent_at[row] = time.monotonic()
            future = publisher.publish(
                topic, record.data, carrier=record.carrier, origin=record.origin, dest=record.dest
            )
            future.add_done_callback(lambda done, row=row: complete(done, row))
            futures.append(future)
        for future in futures:
            future.exception()
        with lock:
            rows, failed[:] = sorted(failed), []
        if not rows:
            break
    publisher.stop()


def receive(
    board: Scoreboard,
    records: Sequence[Record],
    environment: Any,
    name: str,
    ready: Event,
    listening: Event,
    stop: Event,
) -> None:
    """Receive one subscription by streaming pull and acknowledge everything, until asked to stop."""
    os.environ.update(_begin(environment))
    from google.cloud import pubsub_v1

    row_of = {record.data: row for row, record in enumerate(records)}
    ready.wait()
    seen = board.seen[name]
    lock = threading.Lock()

    def take(message: Any) -> None:
        now = time.monotonic()
        row = row_of.get(message.data)
        genuine = row is not None and message.attributes.get("carrier") == records[row].carrier
        with lock:
            seen.tallies[1] += 1
            if row is None or not genuine:
                seen.tallies[2] += 1
            elif seen.times[row] == 0:
                seen.times[row] = 1
                seen.first_at[row] = now
                seen.tallies[0] += 1
            else:
                seen.times[row] = min(seen.times[row] + 1, 255)
        message.ack()

    flow = pubsub_v1.types.FlowControl(max_messages=OUTSTANDING_DELIVERIES, max_bytes=100_000_000)
    with pubsub_v1.SubscriberClient() as subscriber:
        pull = subscriber.subscribe(name, callback=take, flow_control=flow, await_callbacks_on_shutdown=True)
        listening.set()
        while not stop.wait(0.2):
            if pull.done():
                pull.result()
        pull.cancel()
        pull.result()


def _begin(environment: Any) -> dict[str, str]:
    """Wait for the server's address. Ctrl-C is the parent's matter; it ends its children."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    given: dict[str, str] = environment.recv()
    return given

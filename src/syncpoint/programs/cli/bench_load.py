"""Load from one process: as many publishes, or as many deliveries, as a server and this process can do together.

Place: under `syncpoint bench`, on machines of users; a publisher or subscriber of `syncpoint.client` for each
connection. The project's own figures come from a faster generator (see `bench/`).
Promise: a message counts once its publish was answered with its id, or once it was received and acknowledged. What is
refused for a moment is sent again and counted; any other failure ends the run and is raised.
"""

from __future__ import annotations

import asyncio
import os
import resource
import time
from array import array
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import cycle
from math import inf
from typing import Any

from syncpoint.base.model.errors import InvalidArgument
from syncpoint.client import (
    AsyncPublisher,
    AsyncSubscriber,
    BatchSettings,
    BulkPublishError,
    FlowControl,
    MessageBatch,
    MessageTooLargeError,
)

END_S = 5.0
FLOW = FlowControl(max_messages=20_000, max_bytes=64 << 20)  # of one stream
LATENCIES_MAX = 1_000_000

Reach = Mapping[str, Any]
"""Arguments of a publisher or subscriber: addresses, TLS, credentials."""


@dataclass
class LoadResult:
    """What one run did. Times in seconds; `cpu_s`: of this process."""

    messages: int = 0
    payload_bytes: int = 0
    again: int = 0  # calls that were refused for a moment
    seconds: float = 0.0
    cpu_s: float = 0.0
    latencies_s: array[float] = field(default_factory=lambda: array("d"))

    def latency_s(self, share: float) -> float:
        """The latency that so large a share of calls stays within; 0 where there was none."""
        ordered = sorted(self.latencies_s)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0

    def note(self, latency_s: float) -> None:
        """Keep a latency, up to LATENCIES_MAX of them."""
        if len(self.latencies_s) < LATENCIES_MAX:
            self.latencies_s.append(latency_s)


Progress = Callable[[int], None]
"""Called with the number of messages that are done."""


class _Clock:
    """Wall and processor time of a run."""

    def __init__(self) -> None:
        self._cpu_s, self._wall_s = self._used_s(), time.perf_counter()

    @staticmethod
    def _used_s() -> float:
        used = resource.getrusage(resource.RUSAGE_SELF)
        return used.ru_utime + used.ru_stime

    def stop(self, result: LoadResult) -> None:
        """Note what it took until now."""
        result.seconds = time.perf_counter() - self._wall_s
        result.cpu_s = self._used_s() - self._cpu_s


class _Pace:
    """When requests may begin, so that all together send `rate` messages a second; 0: at once. Who is late catches up:
    what was due and waited for its turn is counted as waiting.
    """

    def __init__(self, rate: float) -> None:
        self._each_s = 1 / rate if rate else 0.0
        self._due_s = time.perf_counter()

    async def turn(self, count: int) -> float:
        """Wait for the turn of a request of this many messages; returns when it was due."""
        if not self._each_s:
            return time.perf_counter()
        due_s = self._due_s
        self._due_s += count * self._each_s
        await asyncio.sleep(max(due_s - time.perf_counter(), 0.0))
        return due_s


@dataclass(frozen=True)
class PublishLoad:
    """`messages` of `size` bytes in requests of `batch`, over this many connections with `window` requests each under
    way, and for `seconds` at most; `keys`: how many ordering keys take turns, 0 for none; `rate`: messages a second
    over all connections, 0 for as many as possible.
    """

    topic: str
    messages: float
    size: int = 1_000
    batch: int = 100
    connections: int = 1
    window: int = 4
    keys: int = 0
    rate: float = 0.0
    seconds: float = inf


async def publish(reach: Reach, load: PublishLoad, progress: Progress = lambda done: None) -> LoadResult:
    """Publish as fast as answers come, or at the rate wished for; then a latency begins when its request was due.
    Raises `SyncpointError`.
    """
    result, left = LoadResult(), load.messages
    pace, end_s = _Pace(load.rate), time.perf_counter() + load.seconds
    data = os.urandom(load.size)
    keys = cycle([f"key-{number}" for number in range(load.keys)] or [""])

    async def work(publisher: AsyncPublisher) -> None:
        nonlocal left
        while left > 0:
            count = int(min(load.batch, left))
            left -= count
            begun = await pace.turn(count)
            if time.perf_counter() >= end_s:
                return
            await publisher.publish_many(load.topic, [data] * count, next(keys))
            result.note(time.perf_counter() - begun)
            result.messages += count
            result.payload_bytes += count * load.size
            progress(result.messages)

    settings = BatchSettings(max_messages=load.batch, max_bytes=10_000_000, max_latency=0)
    publishers = [AsyncPublisher(**reach, batch_settings=settings) for _ in range(load.connections)]
    clock = _Clock()
    try:
        async with asyncio.TaskGroup() as group:
            for publisher in publishers:
                for _ in range(load.window):
                    group.create_task(work(publisher))
    except* (BulkPublishError, MessageTooLargeError) as failed:
        first = failed.exceptions[0]
        raise first.error if isinstance(first, BulkPublishError) else InvalidArgument("size", str(first)) from None
    finally:
        clock.stop(result)
        result.again = sum(one.repeats for one in publishers)
        for publisher in publishers:
            await publisher.stop(0)
    return result


@dataclass(frozen=True)
class ReceiveLoad:
    """`messages` of a subscription over this many streams; it ends earlier once nothing has come for `idle_s`, or
    `seconds` after the first message.
    """

    subscription: str
    messages: float
    connections: int = 1
    idle_s: float = 5.0
    seconds: float = inf


async def receive(reach: Reach, load: ReceiveLoad, progress: Progress = lambda done: None) -> LoadResult:
    """Receive and acknowledge; latencies are from publish time to arrival. Raises `SyncpointError`."""
    result, over = LoadResult(), asyncio.Event()
    clock: _Clock | None = None  # from the first message on
    began = last = time.perf_counter()

    def count(batch: MessageBatch, now: float) -> None:
        nonlocal clock, began, last
        last = time.perf_counter()
        if clock is None:
            clock, began = _Clock(), last
        clock.stop(result)
        result.note(now - batch.received[0].message.publish_time.ToNanoseconds() / 1e9)
        result.messages += len(batch)
        result.payload_bytes += sum(map(len, batch.data))
        progress(result.messages)
        if result.messages >= load.messages:
            over.set()

    async def keep_receiving(subscriber: AsyncSubscriber) -> None:
        async for batch in subscriber.batches(load.subscription):
            if over.is_set():
                batch.nack()
            else:
                batch.ack()
                count(batch, time.time())

    subscribers = [AsyncSubscriber(**reach, flow_control=FLOW) for _ in range(load.connections)]
    tasks: list[asyncio.Task[Any]] = [asyncio.create_task(keep_receiving(one)) for one in subscribers]
    tasks.append(asyncio.create_task(over.wait()))
    try:
        while not over.is_set():
            done, _ = await asyncio.wait(tasks, timeout=0.2, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
            now = time.perf_counter()
            if now - last > load.idle_s or (clock is not None and now - began > load.seconds):
                over.set()
    finally:
        result.again = sum(one.repeats for one in subscribers)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        with suppress(TimeoutError):
            async with asyncio.timeout(END_S):
                await asyncio.gather(*(one.close() for one in subscribers))
    return result

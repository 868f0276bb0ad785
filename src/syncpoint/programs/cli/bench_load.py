"""Load from one process: as many publishes, or as many deliveries, as a server and this process can do together.

Place: under `syncpoint bench`, for users' own machines; requests are built once and sent again and again, so that most
of what is measured is the server. The project's own figures come from a faster generator (see `bench/`).
Promise: a message counts once its publish was answered with its id, or once it was received and its acknowledgement was
sent. What is refused for a moment is sent again and counted; any other failure ends the run and is raised.
"""

from __future__ import annotations

import asyncio
import os
import resource
import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from math import inf
from typing import Any

from syncpoint.base.model.errors import Code, SyncpointError
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import pubsub
from syncpoint.wire.transport.client import Channel, ClientStream, MetadataItems

AGAIN = (Code.UNAVAILABLE, Code.RESOURCE_EXHAUSTED, Code.ABORTED)
"""Refusals that pass by themselves."""
PAUSE_S = 0.05
END_S = 5.0
IDS_MAX = 1_000  # of a request
CALL_S = 60.0
LEASE_S = 60
OUTSTANDING_MESSAGES, OUTSTANDING_BYTES = 20_000, 64 << 20  # of one stream
LATENCIES_MAX = 1_000_000

OpenChannel = Callable[[], Channel]


@dataclass(frozen=True)
class Target:
    """A server: how to connect, and what goes with each call."""

    open: OpenChannel
    metadata: Callable[[], MetadataItems] = lambda: ()


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
        """One latency more; as many as there is room for."""
        if len(self.latencies_s) < LATENCIES_MAX:
            self.latencies_s.append(latency_s)


Progress = Callable[[int], None]
"""Is called with how many messages are done."""


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


async def publish(target: Target, load: PublishLoad, progress: Progress = lambda done: None) -> LoadResult:
    """Publish as fast as answers come, or at the rate wished for; then a latency begins when its request was due.
    Raises `SyncpointError`.
    """
    result, left = LoadResult(), load.messages
    pace, end_s = _Pace(load.rate), time.perf_counter() + load.seconds
    data = os.urandom(load.size)
    keys = [f"key-{number}" for number in range(load.keys)] or [""]

    def request(count: int, key: str) -> bytes:
        one = pubsub.PubsubMessage(data=data, ordering_key=key)
        return bytes(pubsub.PublishRequest(topic=load.topic, messages=[one] * count).SerializeToString())

    full: Iterator[bytes] = cycle([request(load.batch, key) for key in keys])

    async def work(channel: Channel) -> None:
        nonlocal left
        while left > 0:
            count = int(min(load.batch, left))
            left -= count
            begun = await pace.turn(count)
            if time.perf_counter() >= end_s:
                return
            message = next(full) if count == load.batch else request(count, keys[0])
            while not await _published(target, channel, message):
                result.again += 1
                await asyncio.sleep(PAUSE_S)
            result.note(time.perf_counter() - begun)
            result.messages += count
            result.payload_bytes += count * load.size
            progress(result.messages)

    channels = [target.open() for _ in range(load.connections)]
    clock = _Clock()
    try:
        async with asyncio.TaskGroup() as group:
            for channel in channels:
                for _ in range(load.window):
                    group.create_task(work(channel))
    except* SyncpointError as failed:
        raise failed.exceptions[0] from None
    finally:
        clock.stop(result)
        for channel in channels:
            await channel.close()
    return result


async def _published(target: Target, channel: Channel, message: bytes) -> bool:
    try:
        await channel.unary(methods.PUBLISHER.Publish, message, metadata=target.metadata(), timeout=CALL_S)
    except SyncpointError as error:
        if error.code not in AGAIN:
            raise
        return False
    return True


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


async def receive(target: Target, load: ReceiveLoad, progress: Progress = lambda done: None) -> LoadResult:
    """Receive and acknowledge; latencies are from publish time to arrival. Raises `SyncpointError`."""
    return await _Receiving(target, load, progress).run()


class _Receiving:
    """One run of `receive`."""

    def __init__(self, target: Target, load: ReceiveLoad, progress: Progress) -> None:
        self._target, self._load, self._progress = target, load, progress
        self._result = LoadResult()
        self._clock: _Clock | None = None  # from the first message on
        self._began = self._last = time.perf_counter()
        self._over = asyncio.Event()
        self._streams: set[ClientStream] = set()
        self._unwanted: list[str] = []  # ack ids of what came when there was enough

    async def run(self) -> LoadResult:
        channels = [self._target.open() for _ in range(self._load.connections)]
        tasks = [asyncio.create_task(self._keep_receiving(channel)) for channel in channels]
        over: asyncio.Task[Any] = asyncio.create_task(self._over.wait())
        try:
            while not self._over.is_set():
                await asyncio.wait([*tasks, over], timeout=0.2, return_when=asyncio.FIRST_COMPLETED)
                for task in tasks:
                    if task.done():
                        task.result()
                if time.perf_counter() - self._last > self._load.idle_s or self._took_s() > self._load.seconds:
                    self._over.set()
            for stream in list(self._streams):
                await stream.end()  # the server takes the last acknowledgements before it ends its side
            await asyncio.wait(tasks, timeout=END_S)
            await self._give_back(channels[0])
        finally:
            for task in (*tasks, over):
                task.cancel()
            await asyncio.gather(*tasks, over, return_exceptions=True)
            for channel in channels:
                await channel.close()
        return self._result

    def _took_s(self) -> float:
        return time.perf_counter() - self._began if self._clock else 0.0

    async def _keep_receiving(self, channel: Channel) -> None:
        while not self._over.is_set():  # a server may end a stream at any time
            stream = channel.stream(methods.SUBSCRIBER.StreamingPull, self._target.metadata())
            self._streams.add(stream)
            try:
                await self._receive(stream)
            except SyncpointError as error:
                if error.code not in AGAIN:
                    raise
                self._result.again += 1
            finally:
                self._streams.discard(stream)
                stream.cancel()
            await asyncio.sleep(PAUSE_S)

    async def _receive(self, stream: ClientStream) -> None:
        await stream.send(
            pubsub.StreamingPullRequest(
                subscription=self._load.subscription,
                stream_ack_deadline_seconds=LEASE_S,
                max_outstanding_messages=OUTSTANDING_MESSAGES,
                max_outstanding_bytes=OUTSTANDING_BYTES,
            ).SerializeToString()
        )
        while (payload := await stream.receive()) is not None:
            got = pubsub.StreamingPullResponse.FromString(payload).received_messages
            if not got:
                continue
            if self._over.is_set():
                self._unwanted += [one.ack_id for one in got]
                continue
            now = time.time()
            await stream.send(pubsub.StreamingPullRequest(ack_ids=[one.ack_id for one in got]).SerializeToString())
            self._count(got, now)

    async def _give_back(self, channel: Channel) -> None:
        """So that others need not wait for the end of its lease."""
        for begin in range(0, len(self._unwanted), IDS_MAX):
            ids = self._unwanted[begin : begin + IDS_MAX]
            request = pubsub.ModifyAckDeadlineRequest(subscription=self._load.subscription, ack_ids=ids)
            await channel.unary(
                methods.SUBSCRIBER.ModifyAckDeadline,
                request.SerializeToString(),
                metadata=self._target.metadata(),
                timeout=CALL_S,
            )

    def _count(self, got: Sequence[pubsub.ReceivedMessage], now: float) -> None:
        result = self._result
        self._last = time.perf_counter()
        if self._clock is None:
            self._clock, self._began = _Clock(), self._last
        self._clock.stop(result)
        result.note(now - got[0].message.publish_time.ToNanoseconds() / 1e9)
        result.messages += len(got)
        result.payload_bytes += sum(len(one.message.data) for one in got)
        self._progress(result.messages)
        if result.messages >= self._load.messages:
            self._over.set()

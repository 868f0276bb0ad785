"""The life of a message in a node of one process.

It serves in simulated time, with real files and with the kernel as Python, so that every call can be traced. A client
of a few lines publishes a message on one connection, and receives and acknowledges it on another. Time passes only when
nothing is left to do: what runs between two steps of the client runs because of the message. Deletion waits for the
clock; of what the clock does then, what it does as well while nothing can be deleted is left out. At the end the
client creates a subscription, as one that created others before.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import hpack
from tracing import Rows, Trace, Way, enter, traced

from syncpoint.base.runtime import clock as clocks
from syncpoint.base.runtime.call_queues import CallQueue, InlineCalls
from syncpoint.base.runtime.clock import Clock, ManualClock
from syncpoint.base.runtime.random import SeededRandom
from syncpoint.base.runtime.step_workers import Result, Step, one_by_one
from syncpoint.broker.publish.keep.upkeep import LogUpkeep
from syncpoint.log.storage.disk.maintenance import DiskMaintainer
from syncpoint.log.storage.settings import StorageSettings
from syncpoint.node.node_environment import NodeEnvironment
from syncpoint.node.settings import ServeSettings
from syncpoint.node.solo.node import Node
from syncpoint.testing.rigs.simulated_loop import run_simulated
from syncpoint.testing.simulation.scaled import patched
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import pubsub
from syncpoint.wire.transport.server import Server

DATA, HEADERS, SETTINGS, PING, GOAWAY = 0, 1, 4, 6, 7  # kinds of frames
TOPIC, SUBSCRIPTION = "projects/demo/topics/orders", "projects/demo/subscriptions/billing"
STRETCHES = ("published", "delivered", "acknowledged", "deleted", "created")
SEGMENT_ENTRIES = 20
COLLECT = LogUpkeep.collect.__qualname__  # what deletes, by the clock
MAINTAINER = DiskMaintainer.__module__.removeprefix("syncpoint.").replace(".", "/")  # ... and what does so on a disk
IN_A_MOMENT_S = 1e-6  # less than any timer: everything that can happen now has happened
BEFORE_A_TICK_S = 0.015  # more than acknowledgements wait for company, less than to the next tick


class InlineWorkers:
    """Workers whose steps run on the loop, when it is their turn."""

    at_once = False

    def start(self, name: str, step: Step, *, waits: bool = False) -> InlineWorker:
        return InlineWorker(step)

    def call_queue(self, name: str, clock: Clock) -> CallQueue:
        return InlineCalls()

    def together(self, calls: Sequence[Callable[[], Result]]) -> list[Result | Exception]:
        return one_by_one(calls)


class InlineWorker:
    def __init__(self, step: Step) -> None:
        self._step, self._loop = step, asyncio.get_running_loop()
        self._ended = False
        self._due: asyncio.Handle | None = None
        self.wake()

    def wake(self) -> None:
        if not self._ended:
            self._again(0.0)

    def stop(self, timeout_s: float) -> bool:
        self._ended = True
        return True

    def _again(self, delay: float) -> None:
        if self._due is not None:
            self._due.cancel()
        self._due = self._loop.call_later(delay, self._run) if delay else self._loop.call_soon(self._run)

    def _run(self) -> None:
        self._due = None
        if not self._ended:
            delay = self._step()
            if delay is not None and self._due is None:
                self._again(delay)


class Client(asyncio.Protocol):
    """As much of gRPC over HTTP/2 as one message needs, and nothing of the product's code."""

    def __init__(self) -> None:
        self._encoder, self._buffer, self._next = hpack.Encoder(), b"", 1
        self.bodies: dict[int, bytes] = {}
        self._news = asyncio.Event()

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        transport.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + self._frame(SETTINGS, 0, 0, b""))

    @staticmethod
    def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
        return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload

    def close(self) -> None:
        self._transport.close()

    def begin(self, path: str, message: Any, *, end: bool) -> int:
        """Send the head and one message of a call; returns its stream."""
        stream, self._next = self._next, self._next + 2
        self.bodies[stream] = b""
        head = [(":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "a"),
                ("content-type", "application/grpc"), ("te", "trailers")]  # fmt: skip
        self._transport.write(self._frame(HEADERS, 4, stream, self._encoder.encode(head)))
        self.send(stream, message, end=end)
        return stream

    def send(self, stream: int, message: Any, *, end: bool = False) -> None:
        body = message.SerializeToString()
        self._transport.write(self._frame(DATA, int(end), stream, struct.pack(">BI", 0, len(body)) + body))

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while len(self._buffer) >= 9:
            length = int.from_bytes(self._buffer[:3], "big")
            if len(self._buffer) < 9 + length:
                return
            kind, flags, stream = self._buffer[3], self._buffer[4], int.from_bytes(self._buffer[5:9], "big")
            payload = self._buffer[9 : 9 + length]
            if kind == DATA:
                self.bodies[stream] += payload
            elif kind == PING and not flags:
                self._transport.write(self._frame(PING, 1, 0, payload))
            elif kind == GOAWAY or (kind == HEADERS and flags & 1 and payload.count(b"grpc-status\x010") != 1):
                raise RuntimeError(f"the server refuses: {payload!r}")
            self._buffer = self._buffer[9 + length :]
        self._news.set()

    async def answer(self, stream: int) -> bytes:
        """The next message of a stream."""
        while True:
            body = self.bodies[stream]
            if len(body) >= 5 and len(body) >= 5 + int.from_bytes(body[1:5], "big"):
                end = 5 + int.from_bytes(body[1:5], "big")
                self.bodies[stream] = body[end:]
                return body[5:end]
            self._news.clear()
            await self._news.wait()

    async def call(self, path: str, message: Any) -> bytes:
        return await self.answer(self.begin(path, message, end=True))


def messages(*data: bytes) -> Any:
    return pubsub.PublishRequest(topic=TOPIC, messages=[pubsub.PubsubMessage(data=one) for one in data])


def delivering(way: Way) -> int | None:
    """At which step of a way a subscribe forwarder begins to deliver."""
    return next((at for at, (file, _) in enumerate(way) if file.startswith("broker/subscribe/")), None)


def kind(way: Way) -> str:
    return "delivering" if delivering(way) is not None else ""


async def at_once(work: Callable[[], Any]) -> Any:
    return work()


async def follow(folder: Path, clock: ManualClock) -> dict[str, Trace]:
    """The life of one message: what ran in each stretch of it, and while nothing could be deleted ("idle")."""
    servers: list[Server] = []

    async def serve(methods: Any, host: str, port: int, *, tls: object, limits: Any, on_fallback: Any) -> Server:
        servers.append(Server(methods, limits, None, asyncio.get_running_loop()))
        return servers[0]

    environment = NodeEnvironment(
        clock,
        SeededRandom(1),
        make_workers=InlineWorkers,
        notify=asyncio.get_running_loop().call_soon,
        blocking=at_once,
        serve=serve,
        measures_itself=False,  # nothing of the clock's, so that it goes the same way on every machine
        keep_memory=lambda: None,
        freeze_memory=lambda: None,
    )
    storage = StorageSettings(
        segment_bytes=64 * 1024, segment_entries_max=SEGMENT_ENTRIES, pool_segments=1, reserve_bytes=0
    )
    node = Node(ServeSettings(data=folder, storage=storage), environment)
    await node.start()
    loop = asyncio.get_running_loop()

    async def connected() -> Client:
        near, far = socket.socketpair()
        await loop.connect_accepted_socket(servers[0].make_connection, near)
        _, client = await loop.create_connection(Client, sock=far)
        return client

    publisher, client = await connected(), await connected()  # as those of official clients, one each
    await client.call(methods.PUBLISHER.CreateTopic, pubsub.Topic(name=TOPIC))
    await client.call(methods.SUBSCRIBER.CreateSubscription, pubsub.Subscription(name=SUBSCRIPTION, topic=TOPIC))
    pull = client.begin(
        methods.SUBSCRIBER.StreamingPull,
        pubsub.StreamingPullRequest(subscription=SUBSCRIPTION, stream_ack_deadline_seconds=600),
        end=False,
    )

    async def receive() -> list[str]:
        response = pubsub.StreamingPullResponse.FromString(await client.answer(pull))
        return [one.ack_id for one in response.received_messages]

    def acknowledge(ack_ids: list[str]) -> None:
        client.send(pull, pubsub.StreamingPullRequest(ack_ids=ack_ids))

    found: dict[str, Trace] = {}
    note = partial(traced, found, kind=kind)
    await publisher.call(methods.PUBLISHER.Publish, messages(b"the first one opens the source"))
    first = await receive()
    await asyncio.sleep(70.041)  # between two ticks; what is due once a minute has been done
    await publisher.call(methods.PUBLISHER.Publish, messages(b"its publisher is noted once a second"))
    before = await receive()
    await asyncio.sleep(IN_A_MOMENT_S)
    with note("published"):
        await publisher.call(methods.PUBLISHER.Publish, messages(b"hello"))
        await asyncio.sleep(IN_A_MOMENT_S)
    with note("delivered"):
        followed = await receive()
        await asyncio.sleep(IN_A_MOMENT_S)
    others: list[str] = []
    for _ in range(SEGMENT_ENTRIES):  # its segment ends
        await publisher.call(methods.PUBLISHER.Publish, messages(b"another"))
        others += await receive()
    with note("idle"):
        acknowledge(first + before)
        await asyncio.sleep(10)
    with note("acknowledged"):
        acknowledge(followed + others)
        await asyncio.sleep(BEFORE_A_TICK_S)
    with note("deleted"):
        await asyncio.sleep(10)
    for number in range(3):
        with note("created"):  # the last one counts
            other = pubsub.Subscription(name=f"{SUBSCRIPTION}-{number}", topic=TOPIC)
            await publisher.call(methods.SUBSCRIBER.CreateSubscription, other)
            await asyncio.sleep(IN_A_MOMENT_S)
    publisher.close()
    client.close()
    await node.stop()
    return found


def stations() -> dict[str, Rows]:
    """Per stretch the files in their order."""
    clock = ManualClock()
    with patched(clocks, _PHASE_S=0.0), tempfile.TemporaryDirectory() as folder:  # else beats fall by the process id
        found = run_simulated(clock, asyncio.wait_for(follow(Path(folder) / "data", clock), 1000))
    tables: dict[str, Rows] = {name: {} for name in STRETCHES}
    for name in STRETCHES:
        for key, way in found[name].ways.items():
            collected = COLLECT in {function for _, function in way}
            kept = MAINTAINER in {file for file, _ in way} and key not in found["idle"].ways
            if not ((collected or kept) if name == "deleted" else not collected):
                continue
            begin = delivering(way) if name == "published" else None  # delivery begins while the publisher is answered
            enter(tables[name if begin is None else "delivered"], way, begin=begin or 0)
    return tables

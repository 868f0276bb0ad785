"""Every servicer over both forwarders and a log in memory, reached through the transport's twin without sockets.

Place: `forwarder_harness.ForwarderHarness` with the listeners of a node put on: control plane, upkeep, method table,
channel. Runs on a `SimulatedLoop`, so deadlines, leases and checkpoints take no time.
Promise: what a call meets here is the code of production from the method table down to the store. The disks persist a
turn after a flush, unless `disks_rest` is set: then when `persist` is called.
Leaves out: sockets, and with them windows; `BareStream` stands in for a stream that is held back.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from syncpoint.base.model.errors import SyncpointError
from syncpoint.base.runtime.clock import ManualClock
from syncpoint.base.runtime.random import SeededRandom
from syncpoint.broker.publish.intake.message_preparation import MessagePreparation
from syncpoint.broker.publish.keep.upkeep import LogUpkeep, Rounds
from syncpoint.broker.push.addresses import Vetting
from syncpoint.catalog.access.policy import Policies
from syncpoint.catalog.metadata.memory import MemoryStore as MemoryMetadata
from syncpoint.catalog.metadata.mirror import CatalogMirror
from syncpoint.catalog.schemas.compiler import compile_proto
from syncpoint.catalog.schemas.publishing import SchemaGate
from syncpoint.catalog.transforms.message_transforms import Transformer
from syncpoint.catalog.transforms.publish_requests import PublishTransforms
from syncpoint.cluster.control.log_commit import LogCommit
from syncpoint.cluster.control.plane import ControlPlane
from syncpoint.front.api.admin_handlers import CatalogService
from syncpoint.front.api.home_request import home_methods
from syncpoint.front.api.iam import IamService
from syncpoint.front.api.node_admin import LocalInquiry, NodeAdmin
from syncpoint.front.api.options_admin import LIMITS, take_limits
from syncpoint.front.api.publisher import PublisherService
from syncpoint.front.api.schema_handlers import SchemaService
from syncpoint.front.api.seek_request import seek_methods
from syncpoint.front.api.snapshot_request import snapshot_copy_methods
from syncpoint.front.api.streaming_pull import StreamingPullService
from syncpoint.front.api.subscriber import SubscriberService
from syncpoint.node.upkeep import Upkeep
from syncpoint.node.uses import anchor_ns
from syncpoint.testing.rigs.forwarder_harness import SUB, TOPIC, ForwarderHarness
from syncpoint.testing.rigs.memory_store import StoreInMemory
from syncpoint.testing.rigs.plain_tests import Work, plain_test
from syncpoint.testing.rigs.simulated_loop import run_simulated
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import pubsub
from syncpoint.wire.transport.calls import Methods
from syncpoint.wire.transport.memory import MemoryChannel, MemoryStream


class ServicerHarness(ForwarderHarness):
    """A node's servicers over the harness of the forwarders; one topic and one subscription exist."""

    def compiler(self, text: str) -> bytes:
        """Compile a schema in Protocol Buffers."""
        return compile_proto(text)

    def __init__(self, clock: ManualClock, **options: Any) -> None:
        self.disks_rest = False
        self.metadata = MemoryMetadata(clock=clock, random=SeededRandom(2))
        self.channel: MemoryChannel
        self.upkeep: Upkeep
        super().__init__(clock=clock, **options)

    def run_soon(self, act: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_soon(act)

    def run_later(self, seconds: float, act: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_later(seconds, act)

    def _build(self, store: StoreInMemory) -> None:
        super()._build(store)
        store.on_flush = lambda: self.run_soon(lambda: None if self.disks_rest else store.persist())
        stored = self.memory.catalog.setting(LIMITS)
        if stored is not None:
            take_limits(self.limits, stored)
        self.publish.clock.known(anchor_ns(self.memory))
        self.mirror = CatalogMirror(self.metadata)
        self.commits = LogCommit(self.follower, self.mirror, [self.follower.changed])
        self.commits.act_by = self.subscribe.act_by
        self.control = ControlPlane(self.commits, self.publish.clock, self.random)
        self.transformer = Transformer.of({})
        transforms = PublishTransforms(self.transformer, self.clock, self.random)
        self.preparation = MessagePreparation(SchemaGate(self.publish.catalog), transforms)
        self.publisher = PublisherService(self.publish, self.preparation)
        self.streams = StreamingPullService(self.subscribe, self.limits)
        self.admin = NodeAdmin(
            self.control,
            self.publish,
            LocalInquiry(self.publish, self.subscribe),
            self.limits,
            "sync",
            self.clock.time_ns(),
        )
        self.admin.letters.prepare = self.preparation.schemas.marked_apart
        self.table: Methods = {
            **self.publisher.methods(),
            **SubscriberService(self.subscribe).methods(),
            **self.streams.methods(),
            **self.streams.internal_methods(),
            **seek_methods(self.control),
            **home_methods(self.control),
            **snapshot_copy_methods(self.control),
            **CatalogService(self.control, Vetting(), transformer=self.transformer).methods(),
            **SchemaService(self.control, self.compiler, _at_once).methods(),
            **IamService(self.control, Policies(self.control.catalog)).methods(),
            **self.admin.methods(),
        }
        self.channel = MemoryChannel(self.table)
        log = LogUpkeep(store, self.publish, self.follower.checkpoint_parts, self.clock.monotonic())  # type: ignore[arg-type]
        rounds = Rounds(self.clock, lambda: [log], lambda: [log])
        self.upkeep = Upkeep(log, rounds, self.subscribe, self.control, self.mirror, self.clock)
        rounds.start()
        self.upkeep.start()

    def quiesce(self) -> None:
        """Nothing: the loop runs what is due."""

    def persist(self) -> None:
        """The disks have caught up."""
        self.store.persist()

    async def crash(self) -> None:
        """Everything in memory is lost, and what was not persisted; then a start."""
        await self.close()
        self.restart()

    async def close(self) -> None:
        await self.upkeep.stop()
        await self.channel.close()

    # -- calls -------------------------------------------------------------------------------------------------------

    async def call(self, method: str, *, timeout: float | None = None, **fields: Any) -> Any:
        """Call a method by its short name with the fields of its request. Raises `SyncpointError`."""
        return await self.call_with(method, _path(method).request(**fields), timeout=timeout)

    async def call_with(self, method: str, request: Any, *, timeout: float | None = None) -> Any:
        """Call a method by its short name with a request."""
        path = _path(method)
        return path.response.FromString(await self.channel.unary(path, request.SerializeToString(), timeout=timeout))

    async def put(self, *data: str, key: str = "", topic: str = TOPIC) -> list[str]:
        """Publish; returns the ids."""
        messages = [pubsub.PubsubMessage(data=one.encode(), ordering_key=key) for one in data]
        return list((await self.call("Publish", topic=topic, messages=messages)).message_ids)

    async def pull(self, most: int = 1000, *, subscription: str = SUB, timeout: float | None = 8.0) -> list[Any]:
        """One pull; empty when nothing came in time."""
        answer = await self.call("Pull", subscription=subscription, max_messages=most, timeout=timeout)
        return list(answer.received_messages)

    async def stream(self, subscription: str = SUB, **first: Any) -> "HarnessStream":
        """An open streaming pull whose first message was sent."""
        opened = HarnessStream(self.channel.stream(methods.SUBSCRIBER.StreamingPull))
        await opened.send(subscription=subscription, **{"stream_ack_deadline_seconds": 10, **first})
        return opened

    def bare(self, **first: Any) -> "BareStream":
        """An open one at its server's end, whose connection the test plays."""
        stream = BareStream()
        self.streams.open(stream)  # type: ignore[arg-type]
        stream.receive(subscription=SUB, **{"stream_ack_deadline_seconds": 10, **first})
        return stream


async def _at_once(work: Callable[[], Any]) -> Any:
    """What production does beside the loop."""
    return work()


def _path(method: str) -> methods.Method:
    services = (methods.ADMIN, methods.PUBLISHER, methods.SUBSCRIBER, methods.SCHEMAS)
    return next(one for one in services if method in one)[method]


class HarnessStream:
    """The subscriber's end of a streaming pull."""

    def __init__(self, raw: MemoryStream) -> None:
        self.raw = raw

    async def send(self, **fields: Any) -> None:
        await self.raw.send(pubsub.StreamingPullRequest(**fields).SerializeToString())

    async def response(self, within: float = 5.0) -> Any:
        """The next response, or None at the end. Raises `SyncpointError`, or `TimeoutError` when nothing comes."""
        async with asyncio.timeout(within):
            raw = await self.raw.receive()
        return None if raw is None else pubsub.StreamingPullResponse.FromString(raw)

    async def messages(self, count: int) -> list[Any]:
        """Received messages, exactly `count`."""
        got: list[Any] = []
        while len(got) < count:
            got += (await self.response()).received_messages
        assert len(got) == count, [one.message.data for one in got]
        return got

    async def silent(self, seconds: float = 1.0) -> bool:
        """Whether nothing comes within this time."""
        try:
            await self.response(seconds)
        except TimeoutError:
            return True
        return False

    async def error(self) -> SyncpointError:
        """The error the stream ends with, after whatever was sent before it."""
        try:
            while await self.response() is not None:
                pass
        except SyncpointError as error:
            return error
        raise AssertionError("the stream ended well")


def ids(received: Sequence[Any]) -> list[str]:
    """The ack ids of what was received."""
    return [one.ack_id for one in received]


class BareStream:
    """The server's end of a stream whose connection the test plays: see `transport.calls.StreamingCall`."""

    def __init__(self) -> None:
        self.path, self.metadata, self.deadline, self.peer = b"", dict[bytes, bytes](), None, "test"
        self.began, self.noted = 0.0, dict[str, float]()
        self.cancelled = False
        self.writable = True
        self.on_message: Callable[[bytes], None] | None = None
        self.on_end: Callable[[], None] | None = None
        self.on_cancel: Callable[[], object] | None = None
        self.on_writable: Callable[[], None] | None = None
        self.on_drain: Callable[[], object] | None = None
        self.sent: list[Any] = []
        self.tokens: list[object] = []
        self.finished: list[SyncpointError | None] = []

    def send(self, message: Any, token: object = None) -> None:
        self.sent.append(pubsub.StreamingPullResponse.FromString(b"".join(map(bytes, message))
                         if isinstance(message, (list, tuple)) else bytes(message)))  # fmt: skip
        self.tokens.append(token)

    def finish(self, error: SyncpointError | None = None) -> None:
        self.finished.append(error)

    def take_back(self) -> list[object]:
        back, self.tokens = [one for one in self.tokens if one is not None], []
        return back

    def receive(self, **fields: Any) -> None:
        """The subscriber's message arrives."""
        assert self.on_message is not None
        self.on_message(pubsub.StreamingPullRequest(**fields).SerializeToString())

    def break_off(self) -> None:
        """The connection is lost."""
        self.cancelled = True
        assert self.on_cancel is not None
        self.on_cancel()

    @property
    def data(self) -> list[str]:
        return [one.message.data.decode() for response in self.sent for one in response.received_messages]


def simulated(**options: Any) -> Callable[[Work], Callable[..., None]]:
    """A decorator: a coroutine function over a `ServicerHarness` (with the subscription's options) as a plain test."""

    def run(work: Work) -> None:
        clock = ManualClock()

        async def main() -> None:
            harness = ServicerHarness(clock, **options)
            try:
                await work(harness)
            finally:
                await harness.close()

        run_simulated(clock, main())

    return plain_test(run)

"""Both forwarders over a log in memory, driven step by step: the harness of the delivery tests."""

from collections import deque
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from syncpoint.base.model.delivery import PublishSide
from syncpoint.base.model.flow import FlowLimits
from syncpoint.base.runtime.clock import ManualClock
from syncpoint.base.runtime.random import SeededRandom
from syncpoint.broker.publish.facts.recovery import replay
from syncpoint.broker.publish.intake.firing import ScheduledFiring
from syncpoint.broker.publish.intake.follow import Follower
from syncpoint.broker.publish.intake.forwarder import PublishForwarder
from syncpoint.broker.subscribe.consumer import Consumer
from syncpoint.broker.subscribe.subscribe_forwarder import SubscribeForwarder
from syncpoint.catalog.metadata.records import CatalogChange, ChangeOp, Snapshot, Subscription, Topic, encode_changes
from syncpoint.log.storage.record import EntryKind
from syncpoint.testing.rigs.lossy_link import LossyLink
from syncpoint.testing.rigs.memory_store import StoreInMemory
from syncpoint.wire.protobuf.messages import pubsub

TOPIC = "projects/p/topics/orders"
SUB = "projects/p/subscriptions/billing"


class HarnessCaller:
    """Waits for the answer to a publish."""

    def __init__(self) -> None:
        self.ids: list[str] | None = None
        self.error: Exception | None = None

    def reply(self, message: bytes) -> None:
        self.ids = list(pubsub.PublishResponse.FromString(message).message_ids)

    def fail(self, error: Exception) -> None:
        self.error = error


class HarnessSubscriber:
    """Takes messages and remembers them by data."""

    def __init__(
        self, harness: "ForwarderHarness", *, max_messages: int = 1000, max_bytes: int = 1 << 30, single: bool = False
    ) -> None:
        self.harness, self.gone = harness, False
        self.received: list[Any] = []
        self.responses = 0
        self.consumer: Consumer = harness.subscribe.join(
            harness.record, self._send, max_messages=max_messages, max_bytes=max_bytes, deadline_s=10,
            gone=self._gone, single=single,
        )  # fmt: skip
        self.held: dict[str, str] = {}  # ack id -> data
        self.unknown: list[bytes] = []  # ack ids of which nobody knew in time whether they were recorded

    def _gone(self) -> None:
        self.gone = True

    def _send(self, parts: Sequence[bytes], serials: Sequence[int]) -> None:
        self.responses += 1
        for message in pubsub.PullResponse.FromString(b"".join(parts)).received_messages:
            self.received.append(message)
            self.held[message.ack_id] = message.message.data.decode()

    @property
    def data(self) -> list[str]:
        return [message.message.data.decode() for message in self.received]

    def ack(self, *ack_ids: str) -> list[bytes]:
        """Acknowledge (everything held if none are given); returns the failed ids, if it was confirmed by now."""
        ids = list(ack_ids or self.held)
        for one in ids:
            self.held.pop(one, None)
        failed: list[bytes] = []
        request = pubsub.AcknowledgeRequest(subscription=SUB, ack_ids=ids).SerializeToString()

        def confirmed(refused: list[bytes], unknown: list[bytes]) -> None:
            failed.extend(refused)
            self.unknown.extend(unknown)

        self.harness.leases.acknowledge(request, 2, self.harness.clock.monotonic(), confirmed)
        self.harness.quiesce()
        return failed

    def nack(self, *ack_ids: str) -> None:
        for one in ack_ids:
            self.held.pop(one, None)
        request = pubsub.ModifyAckDeadlineRequest(subscription=SUB, ack_ids=ack_ids).SerializeToString()
        self.harness.leases.modify(request, 4, 0, self.harness.clock.monotonic())
        self.harness.quiesce()


Subscriber = HarnessSubscriber  # its short name in tests


class _HarnessHome:
    """`firing.PublishedHere` of the one log."""

    def __init__(self, publish: PublishForwarder) -> None:
        self.open_source = publish.open_source

    def admits(self, topic: int) -> bool:
        return True

    def note_load(self, topic: int, messages: int, nbytes: int) -> None:
        """Nobody asks."""


class ForwarderHarness:
    """One topic, one subscription, both forwarders."""

    def __init__(
        self,
        *,
        loss: float = 0.0,
        delay_s: float = 0.0,
        seed: int = 1,
        clock: ManualClock | None = None,
        **options: object,
    ) -> None:
        self.clock, self.random = clock or ManualClock(), SeededRandom(seed)
        self.soon: deque[Callable[[], None]] = deque()
        self.timers: list[tuple[float, Callable[[], None]]] = []
        self.loss, self.delay_s = loss, delay_s
        self._build(StoreInMemory())
        self.record = Subscription(2, SUB, 1, TOPIC, **options)  # type: ignore[arg-type]
        self.commit(CatalogChange.put(Topic(1, TOPIC)), CatalogChange.put(self.record))

    def run_soon(self, act: Callable[[], None]) -> None:
        """Where the forwarders put what is for the end of the turn."""
        self.soon.append(act)

    def run_later(self, seconds: float, act: Callable[[], None]) -> None:
        """Where they put what is for later."""
        self.timers.append((self.clock.monotonic() + seconds, act))

    def _build(self, store: StoreInMemory) -> None:
        self.store, self.limits = store, FlowLimits()
        self.memory = replay(store)  # type: ignore[arg-type]
        self.publish = PublishForwarder(
            store, self.memory, self.clock, self.limits, self.run_soon, self.run_later,  # type: ignore[arg-type]
        )  # fmt: skip
        self.follower = Follower(self.publish, whole=True)
        self.follower.reconcile()
        self.firing = ScheduledFiring(self.publish, _HarnessHome(self.publish), self.run_soon)
        self.link: PublishSide = self.publish.server
        if self.loss or self.delay_s:
            self.link = LossyLink(self.publish.server, self.clock, self.random, loss=self.loss, delay_s=self.delay_s)
        self.subscribe = SubscribeForwarder(
            self.link, self.publish.catalog, self.clock, key=bytes(32), random=self.random, soon=self.run_soon
        )

    def restart(self) -> None:
        """Crash: what was not persisted is lost; both forwarders begin anew."""
        self.soon.clear()
        self.timers.clear()
        self._build(self.store.reopened())
        found = self.publish.catalog.subscription(SUB)
        assert found is not None
        self.record = found

    def commit(self, *changes: CatalogChange) -> None:
        catalog = self.publish.catalog
        assigned = catalog.assign(changes)
        self.publish.commit.append_fact(EntryKind.CATALOG, encode_changes(assigned))
        for change in assigned:
            catalog.apply(change)
            self.follower.changed(change)
            if change.op is ChangeOp.PUT and isinstance(change.record, Subscription) and change.record.name == SUB:
                self.record = change.record
        self.quiesce()

    def take_snapshot(self, number: int = 9, name: str = "projects/p/snapshots/n", expire_ns: int = 1 << 62) -> None:
        """Create a snapshot of the subscription's unacknowledged messages."""
        subscription = self.record.incarnation
        self.commit(CatalogChange.put(Snapshot(number, name, 1, TOPIC, expire_ns=expire_ns, subscription=subscription)))

    @property
    def leases(self):  # type: ignore[no-untyped-def]
        return self.subscribe.delivery(self.record).leases

    def send(
        self, *data: str, key: str = "", topic: str = TOPIC, quiesce: bool = True, **attributes: str
    ) -> HarnessCaller:
        caller = HarnessCaller()
        messages = [pubsub.PubsubMessage(data=one.encode(), ordering_key=key, attributes=attributes) for one in data]
        self.publish.intake.publish_request(
            caller, pubsub.PublishRequest(topic=topic, messages=messages).SerializeToString()
        )
        if quiesce:
            self.quiesce()
        return caller

    def quiesce(self) -> None:
        """Run everything that needs no time, disks included."""
        for _ in range(1000):
            while self.soon:
                self.soon.popleft()()
            self.store.persist()
            if isinstance(self.link, LossyLink):
                self.link.run()
            if not self.soon:
                return
        raise AssertionError("the harness does not come to rest")

    def ahead(self, seconds: float) -> str:
        """A time so far ahead, as clients write it."""
        us = (self.clock.time_ns() + round(seconds * 1e9)) // 1000
        return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=us)).isoformat().replace("+00:00", "Z")

    def checkpoint(self) -> None:
        """Write all that a log's next owner would otherwise recover from entries."""
        written = self.store.checkpoint(self.follower.checkpoint_parts())
        while not written.step():
            pass
        self.publish.ends_written()
        self.quiesce()

    def advance(self, seconds: float) -> None:
        """Let time pass in ticks."""
        for _ in range(max(1, round(seconds * 10))):
            self.clock.advance(0.1)
            due = [fn for at, fn in self.timers if at <= self.clock.monotonic()]
            self.timers = [(at, fn) for at, fn in self.timers if at > self.clock.monotonic()]
            for fn in due:
                fn()
            self.subscribe.tick()
            self.firing.tick()
            self.quiesce()

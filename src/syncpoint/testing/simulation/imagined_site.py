"""A site as a gateway sees it: Pub/Sub's calls over a log in memory, and everything that can become of a site.

Place: the sites of `gateway_runs`. A model, not the server: what servers do is proven in the other simulations; here it
is what a gateway may rely on. A message is stored, or an acknowledgement kept, before its answer; leases die with the
process; identities are dropped as duplicates; a key has one message under way after the other, and what was lent after
one that comes back is taken back.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from syncpoint.base.model import reserved
from syncpoint.base.model.errors import AlreadyExists, ConnectionRefused, NotFound, SyncpointError, Unavailable
from syncpoint.base.model.identity import UNIVERSE_MIN, format_message_id
from syncpoint.base.runtime.clock import ManualClock
from syncpoint.base.runtime.random import Random
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import admin, health, pubsub
from syncpoint.wire.protobuf.methods import Method
from syncpoint.wire.protobuf.status import ack_failure
from syncpoint.wire.transport.calls import Methods, Streaming, Unary
from syncpoint.wire.transport.client import MetadataItems
from syncpoint.wire.transport.memory import Faults, MemoryChannel, MemoryStream

ACK_ID_CHARACTERS = 48
RANGES = 4
Stream = Any  # `calls.StreamingCall`, of a client or of a gateway


@dataclass
class ImaginedTopic:
    """A topic, and its log."""

    record: Any
    window_s: int = 0
    log: list[Any] = field(default_factory=list)
    known: dict[str, str] = field(default_factory=dict)  # message ids by identity


@dataclass
class _Lease:
    stream: Stream
    number: int
    timer: asyncio.TimerHandle


@dataclass
class ImaginedSubscription:
    """A subscription, since an offset. `left`: offsets that are not acknowledged."""

    record: Any
    start: int = 0
    left: dict[int, None] = field(default_factory=dict)
    leases: dict[int, _Lease] = field(default_factory=dict)
    streams: dict[Stream, float] = field(default_factory=dict)  # with the deadline of what is lent on it
    attempts: Counter[int] = field(default_factory=Counter)

    @property
    def exactly_once(self) -> bool:
        return bool(self.record.enable_exactly_once_delivery)


class _SiteChannel(MemoryChannel):
    """Connections to a site, which nobody accepts while it is dead."""

    def __init__(self, site: ImaginedSite, faults: Faults) -> None:
        super().__init__(site.methods(), faults)
        self._site = site

    def stream(self, path: str, metadata: MetadataItems = (), timeout: float | None = None) -> MemoryStream:
        if not self._site.alive:
            raise ConnectionRefused(f"Nobody listens at {self._site.name}.")
        return super().stream(path, metadata, timeout)


class ImaginedSite:
    """One site. `alive`: its process runs; `hung`: it takes calls in, and does them when it wakes."""

    def __init__(self, name: str, clock: ManualClock, random: Random) -> None:
        self.name, self.clock, self.random = name, clock, random
        self.alive, self.hung = True, False
        self.ways: list[Faults] = []
        self.disks_lost_s: list[float] = []
        self._late: list[Callable[[], None]] = []
        self._calls: dict[Any, None] = {}
        self._leased = 0
        self.topics: dict[str, ImaginedTopic] = {}
        self.subscriptions: dict[str, ImaginedSubscription] = {}

    def opens(self, faults: Faults) -> Callable[[], MemoryChannel]:
        """What makes channels to here, over a way of a gateway."""
        self.ways.append(faults)
        return lambda: _SiteChannel(self, faults)

    # -- what becomes of it -------------------------------------------------------------------------------------------

    def kill(self) -> None:
        """The process dies: nobody's call is answered, nothing is lent any more."""
        self.alive = self.hung = False
        self._late.clear()
        for one in list(self._calls):
            one.finish(Unavailable("The connection was lost."))
        self._calls.clear()
        for subscription in self.subscriptions.values():
            for lease in subscription.leases.values():
                lease.timer.cancel()
            subscription.leases.clear()
            subscription.streams.clear()

    def lose_disks(self) -> None:
        """Lose everything that is stored. Only while the site is dead."""
        self.disks_lost_s.append(asyncio.get_running_loop().time())
        self.topics.clear()
        self.subscriptions.clear()

    def wake(self) -> None:
        """Go on with all that came in the meantime."""
        self.hung = False
        late, self._late = self._late, []
        for act in late:
            act()

    def _when_awake(self, act: Callable[[], None]) -> None:
        if self.hung:
            self._late.append(act)
        elif self.alive:
            act()

    # -- calls --------------------------------------------------------------------------------------------------------

    def methods(self) -> Methods:
        """What it serves."""
        answers: dict[Any, Callable[[Any], Any]] = {
            methods.HEALTH.Check: lambda asked: health.HealthCheckResponse(status=health.HealthCheckResponse.SERVING),
            methods.PUBLISHER.CreateTopic: self._create_topic,
            methods.PUBLISHER.GetTopic: lambda asked: self._topic(asked.topic).record,
            methods.PUBLISHER.ListTopics: lambda asked: pubsub.ListTopicsResponse(
                topics=[one.record for one in self.topics.values()]
            ),
            methods.PUBLISHER.ListTopicSubscriptions: lambda asked: pubsub.ListTopicSubscriptionsResponse(
                subscriptions=[one.record.name for one in self._of_topic(asked.topic)]
            ),
            methods.PUBLISHER.Publish: self._publish,
            methods.SUBSCRIBER.CreateSubscription: self._create_subscription,
            methods.SUBSCRIBER.GetSubscription: lambda asked: self._subscription(asked.subscription).record,
            methods.SUBSCRIBER.Acknowledge: self._acknowledge,
            methods.SUBSCRIBER.ModifyAckDeadline: self._modify,
            methods.ADMIN.GetTopicOptions: lambda asked: self._options(asked.topic),
            methods.ADMIN.UpdateTopicOptions: self._update_options,
            methods.ADMIN.GetSubscriptionState: lambda asked: self._state(self._subscription(asked.subscription)),
            methods.IAM.TestIamPermissions: lambda asked: methods.IAM.TestIamPermissions.response(
                permissions=asked.permissions
            ),
        }
        table: dict[bytes, Unary | Streaming] = {
            method.encode(): Unary(partial(self._unary, method, answer)) for method, answer in answers.items()
        }
        table[methods.SUBSCRIBER.StreamingPull.encode()] = Streaming(self._opened)
        return table

    def _unary(self, method: Method, answer: Callable[[Any], Any], call: Any, request: bytes) -> None:
        def act() -> None:
            self._calls.pop(call, None)
            try:
                found = answer(method.request.FromString(request))
            except SyncpointError as error:
                call.fail(error)
            else:
                call.reply(found.SerializeToString())

        self._calls[call] = None
        self._when_awake(act)

    # -- topics and subscriptions -------------------------------------------------------------------------------------

    def _topic(self, name: str) -> ImaginedTopic:
        if name not in self.topics:
            raise NotFound(name)
        return self.topics[name]

    def _subscription(self, name: str) -> ImaginedSubscription:
        if name not in self.subscriptions:
            raise NotFound(name)
        return self.subscriptions[name]

    def _of_topic(self, name: str) -> list[ImaginedSubscription]:
        return [one for one in self.subscriptions.values() if one.record.topic == name]

    def _create_topic(self, record: Any) -> Any:
        if record.name in self.topics:
            raise AlreadyExists(record.name)
        self.topics[record.name] = ImaginedTopic(record)
        return record

    def _create_subscription(self, record: Any) -> Any:
        if record.name in self.subscriptions:
            raise AlreadyExists(record.name)
        topic = self._topic(record.topic)
        self.subscriptions[record.name] = ImaginedSubscription(record, len(topic.log))
        return record

    def _options(self, topic: str) -> Any:
        return admin.TopicOptions(topic=topic, duplicate_detection_window={"seconds": self._topic(topic).window_s})

    def _update_options(self, asked: Any) -> Any:
        self._topic(asked.options.topic).window_s = asked.options.duplicate_detection_window.seconds
        return asked.options

    @property
    def _universe(self) -> int:
        return UNIVERSE_MIN + len(self.disks_lost_s)

    def _source_of(self, topic: ImaginedTopic) -> int:
        return list(self.topics).index(topic.record.name)

    def _state(self, one: ImaginedSubscription) -> Any:
        """Which messages are acknowledged: the first ranges alone, as servers do it."""
        topic = self.topics[one.record.topic]
        ends = [*one.left, len(topic.log)]
        acked = [(before + 1, end) for before, end in itertools.pairwise([-1, *ends]) if before + 1 < end]
        source = admin.AckState(
            universe=self._universe,
            source=self._source_of(topic),
            copies=1,
            start_offset=one.start,
            first_unacked_offset=ends[0],
            next_offset=len(topic.log),
            acked=[admin.OffsetRange(begin=begin, end=end) for begin, end in acked[:RANGES]],
        )
        name = one.record.name
        return admin.SubscriptionState(
            subscription=name, incarnation=1, backlog_messages=len(one.left), sources=[source]
        )

    # -- publishing ---------------------------------------------------------------------------------------------------

    def _publish(self, asked: Any) -> Any:
        topic = self._topic(asked.topic)
        return pubsub.PublishResponse(message_ids=[self.store(topic, one) for one in asked.messages])

    def store(self, topic: ImaginedTopic, message: Any, *, own: bool = False) -> str:
        """Store a message, unless it is known by its identity; its id. `own`: the site publishes it."""
        identity = message.attributes.get(reserved.IDENTITY, "") if topic.window_s else ""
        if own and not identity.startswith(reserved.DERIVED):
            identity = ""
        if identity in topic.known:
            return topic.known[identity]
        stored = pubsub.PubsubMessage.FromString(message.SerializeToString())
        stored.message_id = format_message_id(self._universe, self._source_of(topic), len(topic.log))
        stored.publish_time.FromNanoseconds(self.clock.time_ns())
        if identity:
            topic.known[identity] = stored.message_id
        topic.log.append(stored)
        for one in self._of_topic(topic.record.name):
            one.left[len(topic.log) - 1] = None
            self._lend(one)
        return str(stored.message_id)

    # -- delivering ---------------------------------------------------------------------------------------------------

    def _opened(self, stream: Stream) -> None:
        found: list[ImaginedSubscription] = []

        def first(request: bytes) -> None:
            asked = pubsub.StreamingPullRequest.FromString(request)
            if found or stream.over:
                return
            try:
                found.append(self._subscription(asked.subscription))
            except SyncpointError as error:
                stream.finish(error)
                return
            subscription = found[0]
            properties = {"exactly_once_delivery_enabled": subscription.exactly_once}
            stream.send(pubsub.StreamingPullResponse(subscription_properties=properties).SerializeToString())
            subscription.streams[stream] = asked.stream_ack_deadline_seconds
            self._lend(subscription)

        def ended() -> None:
            over()
            stream.finish()

        def over() -> None:
            self._calls.pop(stream, None)
            for one in found:
                one.streams.pop(stream, None)

        def cancelled() -> None:
            over()
            for one in found:
                self._give_back(one, [at for at, lease in one.leases.items() if lease.stream is stream], tried=False)

        self._calls[stream] = None
        stream.on_message = lambda request: self._when_awake(partial(first, request))
        stream.on_end = lambda: self._when_awake(ended)
        stream.on_cancel = lambda: self._when_awake(cancelled)

    def _lend(self, one: ImaginedSubscription) -> None:
        """Lend all that may be lent now."""
        if not one.streams:
            return
        log, held = self.topics[one.record.topic].log, dict[str, Stream]()
        for offset in list(one.left):
            lease, key = one.leases.get(offset), log[offset].ordering_key
            if lease is not None:
                held[key] = lease.stream
                continue
            ordered = key and one.record.enable_message_ordering
            streams = list(one.streams)
            stream = held[key] if ordered and key in held else streams[self.random.randrange(0, len(streams))]
            if stream not in one.streams:
                continue  # the key waits for what a stream that is over was lent
            held[key] = stream
            self._lease(one, offset, stream, log[offset])

    def _lease(self, one: ImaginedSubscription, offset: int, stream: Stream, message: Any) -> None:
        self._leased += 1
        deadline_s = one.streams[stream] or 10
        one.leases[offset] = _Lease(stream, self._leased, self._timer(one, offset, self._leased, deadline_s))
        ack_id = f"{len(self.disks_lost_s)}:{offset}:{self._leased}:".ljust(ACK_ID_CHARACTERS, "-")
        response = pubsub.StreamingPullResponse(received_messages=[{"ack_id": ack_id, "message": message}])
        stream.send(response.SerializeToString())

    def _timer(self, one: ImaginedSubscription, offset: int, number: int, seconds: float) -> asyncio.TimerHandle:
        def over() -> None:
            lease = one.leases.get(offset)
            if lease is not None and lease.number == number:
                self._give_back(one, [offset])

        return asyncio.get_running_loop().call_later(seconds, lambda: self._when_awake(over))

    def _give_back(self, one: ImaginedSubscription, offsets: Iterable[int], *, tried: bool = True) -> None:
        """Lend these no more, nor what was lent of their keys after them. `tried`: that counts as an attempt."""
        log, policy = self.topics[one.record.topic].log, one.record.dead_letter_policy
        for offset in offsets:
            key = log[offset].ordering_key if one.record.enable_message_ordering else ""
            later = [at for at in one.leases if key and at > offset and log[at].ordering_key == key]
            lent = one.leases.get(offset)
            for at in (offset, *later):
                lease = one.leases.pop(at, None)
                if lease is not None:
                    lease.timer.cancel()
            # what a gateway holds counts in earnest: `docs/missing.md`
            one.attempts[offset] += tried and lent is not None and b"authorization" in lent.stream.metadata
            if (
                one.attempts[offset] >= policy.max_delivery_attempts > 0
                and offset in one.left
                and policy.dead_letter_topic in self.topics
            ):
                self._bury(one, offset, log[offset])
        self._lend(one)

    def _bury(self, one: ImaginedSubscription, offset: int, message: Any) -> None:
        """Make a letter, as `subscribe.dead_letter` does, then acknowledge its message."""
        dead = pubsub.PubsubMessage(data=message.data, attributes=message.attributes)
        reserved.derive_identity(dead.attributes, "dead", one.record.name, 0, 0)
        self.store(self.topics[one.record.dead_letter_policy.dead_letter_topic], dead, own=True)
        del one.left[offset]

    # -- what comes back ----------------------------------------------------------------------------------------------

    def _named(self, ack_id: str) -> tuple[int, int]:
        """Offset and lease; offset -1: of disks that are gone."""
        life, offset, number, _ = ack_id.split(":")
        return (int(offset) if int(life) == len(self.disks_lost_s) else -1), int(number)

    def _valid(self, one: ImaginedSubscription, ack_ids: Iterable[str]) -> tuple[list[int], list[str]]:
        """The offsets of ack ids that count, and those ids that do not."""
        good, bad = [], []
        for ack_id in ack_ids:
            offset, number = self._named(ack_id)
            lease = one.leases.get(offset)
            if lease is not None and lease.number == number:
                good.append(offset)
            elif one.exactly_once:
                bad.append(ack_id)
            elif offset >= 0:
                good.append(offset)
        return good, bad

    def _acknowledge(self, asked: Any) -> Any:
        one = self._subscription(asked.subscription)
        good, bad = self._valid(one, asked.ack_ids)
        for offset in good:
            one.left.pop(offset, None)
            lease = one.leases.pop(offset, None)
            if lease is not None:
                lease.timer.cancel()
        self._lend(one)
        if bad:
            raise ack_failure(bad)
        return methods.SUBSCRIBER.Acknowledge.response()

    def _modify(self, asked: Any) -> Any:
        one = self._subscription(asked.subscription)
        good, bad = self._valid(one, asked.ack_ids)
        for offset in [at for at in good if at in one.leases]:
            if asked.ack_deadline_seconds:
                lease = one.leases[offset]
                lease.timer.cancel()
                lease.timer = self._timer(one, offset, lease.number, asked.ack_deadline_seconds)
            else:
                self._give_back(one, [offset])
        if bad:
            raise ack_failure(bad)
        return methods.SUBSCRIBER.ModifyAckDeadline.response()

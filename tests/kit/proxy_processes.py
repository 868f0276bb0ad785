"""The processes around a proxy, in simulated time: what stores, lends and assigns."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from syncpoint.base.kernel import ackids
from syncpoint.base.model.cluster import PUBLISH, ROUTER, SUBSCRIBE, ChainOwner, Member
from syncpoint.base.model.errors import NotFound, OtherSchema, OtherTopic, StaleEpoch, SyncpointError, Unavailable
from syncpoint.broker.publish.intake.envelope import PublishBatch, read_publish
from syncpoint.broker.subscribe.lease_holder import lender_of
from syncpoint.catalog.metadata.contract import Delete, Put
from syncpoint.catalog.metadata.layout import MEMBERS, OWNERS
from syncpoint.cluster.control.peer_channels import process_methods
from syncpoint.testing.simulation.loop import SimProcess
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import internal, pubsub
from syncpoint.wire.transport.calls import Call, Methods, Streaming, StreamingCall, Unary
from syncpoint.wire.transport.tasks import unary_async

if TYPE_CHECKING:
    from tests.kit.proxy import ProxyHarness

SUBSCRIBER = "/google.pubsub.v1.Subscriber/"
KEY = b"0123456789abcdef"


class Process:
    """A process with a name, registered as a member."""

    roles: tuple[str, ...] = ()

    def __init__(self, harness: ProxyHarness, name: str, region: str = "r1") -> None:
        self.harness, self.name, self.region = harness, name, region
        self.process = SimProcess(harness.loop, name)
        self.address = f"{name}:1"
        self.incarnation = harness.next_number()
        self.member = Member(name, self.roles, self.address, self.incarnation, region)
        self.pings = 0

    def methods(self) -> Methods:
        return {}

    async def serve(self) -> None:
        await self.process.start(self._serve())
        self.harness.store.txn([], [Put(MEMBERS + self.name, self.member.encode())])

    async def _serve(self) -> None:
        await self.harness.network.serve({**process_methods(dict), **self.methods()}, self.name, 1)

    def crash(self) -> None:
        self.process.crash()
        self.harness.network.ended(self.process)

    def lease_ends(self) -> None:
        owned = [
            Delete(item.key)
            for item in self.harness.store.range(OWNERS).items
            if ChainOwner.decode(item.value).member == self.name
        ]
        self.harness.store.txn([], [Delete(MEMBERS + self.name), *owned])


class PublishProcess(Process):
    """Stores batches in `harness.stored`, which outlives it as disks do."""

    roles = (PUBLISH,)

    def __init__(self, harness: ProxyHarness, name: str, region: str = "r1") -> None:
        super().__init__(harness, name, region)
        self.refusals: list[SyncpointError] = []
        self.refuse_voids: SyncpointError | None = None
        self.before_answer: Callable[[PublishBatch], None] = lambda batch: None
        self.commit_s = 0.002
        self.epochs: dict[int, int] = {}
        self.catalog = harness.catalog

    def methods(self) -> Methods:
        return {
            methods.CHAINS.Publish.encode(): unary_async(self._publish),
            methods.CHAINS.Void.encode(): unary_async(self._void),
        }

    async def _void(self, call: Call, request: bytes) -> bytes:
        asked = internal.VoidRequest.FromString(request)
        owner = self.harness.store.get(OWNERS.key(asked.chain))
        if owner is None or ChainOwner.decode(owner.value).member != self.name:
            raise Unavailable(f"Chain {asked.chain} is not open here.")
        if self.refuse_voids is not None:
            raise self.refuse_voids
        self.harness.voided += [(asked.chain, batch) for batch in asked.batches]
        stored = self.harness.stored.get(asked.chain, {})
        found = [stored[asked.sender, one][1] for one in asked.batches if (asked.sender, one) in stored]
        answer = internal.VoidResponse(batches=len(found), messages=sum(map(len, found)), late=len(found))
        encoded: bytes = answer.SerializeToString()
        return encoded

    async def _publish(self, call: Call, request: bytes) -> bytes:
        batch = read_publish(request)
        owner = self.harness.store.get(OWNERS.key(batch.chain))
        if owner is None or ChainOwner.decode(owner.value).member != self.name:
            raise Unavailable(f"Chain {batch.chain} is not open here.")
        if self.refusals:
            raise self.refusals.pop(0)
        if batch.keyed and batch.epoch != self.epochs.get(batch.chain, batch.epoch):
            raise StaleEpoch("it is another one")
        stored = self.harness.stored.setdefault(batch.chain, {})
        known = (batch.sender, batch.batch)
        if known not in stored:
            asked = pubsub.PublishRequest.FromString(bytes(batch.request))
            known_topic = self.catalog.topic(asked.topic)
            if known_topic is None:
                raise NotFound(asked.topic)
            if batch.topic != known_topic.incarnation:
                raise OtherTopic(f"it is {known_topic.incarnation}")
            if not batch.origin.accepted and batch.schema != known_topic.stamp:
                raise OtherSchema("it is another one")
            ids = [str(self.harness.next_number()) for _ in asked.messages]
            stored[known] = (bytes(batch.request), ids)
        await asyncio.sleep(self.commit_s)
        self.before_answer(batch)
        answer: bytes = pubsub.PublishResponse(message_ids=stored[known][1]).SerializeToString()
        return answer


class Session:
    """One stream at a subscribe forwarder."""

    def __init__(self, stream: StreamingCall, first: Any) -> None:
        self.stream, self.first = stream, first
        self.later: list[Any] = []
        self.turns: list[Any] = []  # of one that lends in turns
        self.cancelled = self.ended = False


class SubscribeProcess(Process):
    """Serves one message after the other to whoever streams or pulls."""

    roles = (SUBSCRIBE,)

    def __init__(self, harness: ProxyHarness, name: str, region: str = "r1") -> None:
        super().__init__(harness, name, region)
        self.sessions: list[Session] = []
        self.calls: list[Any] = []
        self.refuse: SyncpointError | None = None
        self.refuse_acks: SyncpointError | None = None
        self.subscribers = self.outstanding = 0
        self.revisions: list[int] = []  # of the catalog, as those who asked about deliveries know it
        self.offset = 0
        self.to_lend: list[bytes] = []
        self.asking_streams: list[StreamingCall] = []  # streams by which messages were asked for, each once
        self.outcomes: list[Any] = []  # what became of responses on these streams

    def methods(self) -> Methods:
        prefix = SUBSCRIBER.encode()
        return {
            prefix + b"StreamingPull": Streaming(self._open),
            prefix + b"Pull": Unary(self._pull),
            prefix + b"Acknowledge": Unary(self._acknowledge),
            prefix + b"ModifyAckDeadline": Unary(self._modify),
            methods.DELIVERIES.Describe.encode(): Unary(self._describe),
            methods.DELIVERIES.LendInTurns.encode(): Streaming(self._open_in_turns),
            methods.DELIVERIES.TakeBack.encode(): Unary(self._take_back),
        }

    def _describe(self, call: Call, request: bytes) -> None:
        if self.refuse is not None:
            raise self.refuse
        self.revisions.append(internal.DescribeDeliveryRequest.FromString(request).revision)
        answer = internal.DescribeDeliveryResponse(subscribers=self.subscribers, messages=self.outstanding)
        call.reply(answer.SerializeToString())

    @property
    def open_sessions(self) -> list[Session]:
        return [one for one in self.sessions if not (one.cancelled or one.ended)]

    def message(self, data: bytes) -> Any:
        self.offset += 1
        lender = lender_of(self.name, self.incarnation)
        ack_id = ackids.encode(KEY, 1, self.offset, 1, lender << 16, 0).decode()
        return pubsub.ReceivedMessage(ack_id=ack_id, message=pubsub.PubsubMessage(data=data))

    def send(self, *data: bytes) -> None:
        """To all its streams."""
        for session in self.open_sessions:
            response = pubsub.StreamingPullResponse(received_messages=[self.message(one) for one in data])
            session.stream.send(response.SerializeToString())

    def _open(self, stream: StreamingCall) -> None:
        session: Session | None = None

        def message(request: bytes) -> None:
            nonlocal session
            asked = pubsub.StreamingPullRequest.FromString(request)
            if session is not None:
                session.later.append(asked)
                return
            if self.refuse is not None:
                stream.finish(self.refuse)
                return
            session = Session(stream, asked)
            self.sessions.append(session)
            self.send_greeting(session)

        def end() -> None:
            assert session is not None
            session.ended = True
            stream.finish()

        def cancel() -> None:
            if session is not None:
                session.cancelled = True

        stream.on_message, stream.on_end, stream.on_cancel = message, end, cancel

    def _open_in_turns(self, stream: StreamingCall) -> None:
        self._open(stream)
        requests = stream.on_message
        assert requests is not None

        def message(request: bytes) -> None:
            turn = internal.TurnRequest.FromString(request)
            if turn.HasField("lend"):
                self._lend(stream, turn.lend)
            if turn.HasField("request"):
                requests(turn.request)
            if turn.done and stream in self.asking_streams:
                self.outcomes.append(turn)
            elif turn.done:
                next(one for one in self.sessions if one.stream is stream).turns.append(turn)

        stream.on_message = message

    def send_greeting(self, session: Session) -> None:
        response = pubsub.StreamingPullResponse(received_messages=[self.message(self.name.encode())])
        session.stream.send(response.SerializeToString())

    def _pull(self, call: Call, request: bytes) -> None:
        if self.refuse is not None:
            raise self.refuse
        self.calls.append(pubsub.PullRequest.FromString(request))
        response = pubsub.PullResponse(received_messages=[self.message(self.name.encode())])
        call.reply(response.SerializeToString())

    def _lend(self, stream: StreamingCall, asked: Any) -> None:
        """What `to_lend` has; a turn that comes when there is nothing waits."""
        if self.refuse is not None:
            stream.finish(self.refuse)
            return
        stream.on_end = stream.finish
        self.calls.append(asked)
        if stream not in self.asking_streams:
            self.asking_streams.append(stream)
        if self.to_lend:
            given, self.to_lend = self.to_lend[: asked.messages], self.to_lend[asked.messages :]
            self.lend(*given)

    def lend(self, *data: bytes) -> None:
        """To whoever asked last."""
        response = pubsub.StreamingPullResponse(received_messages=map(self.message, data))
        self.asking_streams[-1].send(response.SerializeToString())

    def _take_back(self, call: Call, request: bytes) -> None:
        self._noted(call, internal.TakeBackRequest.FromString(request))

    def _acknowledge(self, call: Call, request: bytes) -> None:
        self._noted(call, pubsub.AcknowledgeRequest.FromString(request))

    def _modify(self, call: Call, request: bytes) -> None:
        self._noted(call, pubsub.ModifyAckDeadlineRequest.FromString(request))

    def _noted(self, call: Call, asked: Any) -> None:
        self.calls.append(asked)
        if self.refuse_acks is not None:
            raise self.refuse_acks
        call.reply(b"")


class RouterProcess(Process):
    """Says what it is given to."""

    roles = (ROUTER,)

    def __init__(self, harness: ProxyHarness, name: str, region: str = "r1") -> None:
        super().__init__(harness, name, region)
        self.topics: dict[int, Any] = {}
        self.subscriptions: dict[int, Any] = {}
        self.asked: list[Any] = []
        self.watchers: list[StreamingCall] = []

    def methods(self) -> Methods:
        prefix = b"/syncpoint.internal.v1.Router/"
        return {prefix + b"Route": Unary(self._route), prefix + b"Watch": Streaming(self._watch)}

    def _route(self, call: Call, request: bytes) -> None:
        asked = internal.RouteRequest.FromString(request)
        self.asked.append(asked)
        answer = internal.RouteResponse(
            topics=[self.topics[one] for one in asked.topics if one in self.topics],
            subscriptions=[self.subscriptions[one] for one in asked.subscriptions if one in self.subscriptions],
        )
        call.reply(answer.SerializeToString())

    def _watch(self, stream: StreamingCall) -> None:
        stream.on_message = lambda request: self.watchers.append(stream)

    def set_topic(self, topic: int, epoch: int, chains: Iterable[int], alternatives: Iterable[int] = ()) -> None:
        self.topics[topic] = internal.TopicRoute(
            topic=topic, epoch=epoch, chains=chains, nearest=chains, alternatives=alternatives
        )
        self.notify(internal.RouteResponse(topics=[self.topics[topic]]))

    def notify(self, answer: Any) -> None:
        for stream in self.watchers:
            stream.send(answer.SerializeToString())

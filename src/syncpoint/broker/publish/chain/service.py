"""The methods of internal.v1.Chains, in front of the host.

Place: in the method table of every publish forwarder process. Publish and Serve are on the path of every message and
run without a task of their own; the others are not.
Promise: what is asked of a chain that is not open here is refused as UNAVAILABLE, with nothing done.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from google.protobuf.message import DecodeError

from syncpoint.base.kernel.errors import Malformed
from syncpoint.base.model.delivery import AttemptRun
from syncpoint.base.model.errors import FailedPrecondition, InvalidArgument, NotFound, SyncpointError, Unavailable
from syncpoint.base.runtime.tasks import outcome_of
from syncpoint.broker.publish.chain.chain_risk import chain_risk
from syncpoint.broker.publish.chain.entry_receipt import receipt
from syncpoint.broker.publish.chain.host import ChainHost
from syncpoint.broker.publish.chain.source_peek import acknowledge_seen, peek
from syncpoint.broker.publish.intake.envelope import fetched_message, heartbeat_message, read_publish
from syncpoint.broker.publish.intake.scheduled_calls import cancel_scheduled, list_scheduled
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import internal
from syncpoint.wire.protobuf.serving import served
from syncpoint.wire.transport.calls import Call, Methods, Streaming, StreamingCall, Unary
from syncpoint.wire.transport.stream_state import Message

log = logging.getLogger(__name__)
OBEYED_MS = 100  # how long after its disks have obeyed it an owner lists what waits: no other one can have taken any


class ChainsService:
    """Publish, Serve, Confirm, Describe, Void, Peek, AcknowledgeSeen, Receipt, AtRisk, ListMessageIds, ListScheduled,
    CancelScheduled. For HandOver see `control.hand_over`.
    """

    def __init__(self, host: ChainHost) -> None:
        self.host = host

    def methods(self) -> Methods:
        """By path."""
        return {
            methods.CHAINS.Publish.encode(): Unary(self._publish),
            methods.CHAINS.Serve.encode(): Streaming(lambda stream: _ServeStream(self.host, stream).begin()),
            **served(
                {
                    methods.CHAINS.Confirm: self._confirm,
                    methods.CHAINS.Describe: self._describe,
                    methods.CHAINS.Void: self._void,
                    methods.CHAINS.Peek: self._peek,
                    methods.CHAINS.Receipt: self._receipt,
                    methods.CHAINS.AtRisk: self._at_risk,
                    methods.CHAINS.ListMessageIds: self._list_message_ids,
                    methods.CHAINS.ListScheduled: self._list_scheduled,
                    methods.CHAINS.CancelScheduled: self._cancel_scheduled,
                    methods.CHAINS.AcknowledgeSeen: self._acknowledge_seen,
                }
            ),
        }

    def _publish(self, call: Call, request: bytes) -> None:
        try:
            batch = read_publish(request)
        except Malformed:
            raise InvalidArgument("", "the request is not a PublishBatch") from None
        self.host.chain(batch.chain).ingress.publish(call, batch)

    async def _confirm(self, asked: internal.ConfirmRequest) -> internal.ConfirmResponse:
        revision = await self.host.confirm(asked.chain, asked.topic, asked.revision, asked.assignment)
        drained = await self.host.drained(asked.chain, asked.subscription) if asked.subscription else ()
        return internal.ConfirmResponse(revision=revision, drained=drained)

    async def _list_message_ids(self, asked: internal.ListMessageIdsRequest) -> internal.ListMessageIdsResponse:
        forwarder = self.host.chain(asked.chain).forwarder
        if asked.batches:
            found, at = forwarder.batches.rows_of(asked.topic, asked.begin)
            return internal.ListMessageIdsResponse(batches=found, next=at)
        found, at = forwarder.ids.rows_of(asked.topic, asked.forwarded, asked.begin)
        return internal.ListMessageIdsResponse(ids=found, next=at)

    async def _void(self, asked: internal.VoidRequest) -> internal.VoidResponse:
        found = await self.host.void(asked.chain, asked.sender, list(asked.batches))
        return internal.VoidResponse(**found._asdict())

    async def _describe(self, asked: internal.DescribeRequest) -> internal.DescribeResponse:
        seek = asked.seek if asked.HasField("seek") else None
        found = await self.host.describe(asked.topic, asked.subscription, asked.ranges_max, seek)
        return internal.DescribeResponse(chains=found)

    async def _peek(self, asked: internal.PeekRequest) -> internal.PeekResponse:
        chain = self.host.chain_of(asked.source)
        if chain is not None:
            return await peek(chain.forwarder, asked)
        if self.host.chain_that_had(asked.source) is not None:
            return internal.PeekResponse(next=asked.begin, end=True)
        raise Unavailable("No chain here has the source.")

    async def _receipt(self, asked: internal.ReceiptRequest) -> internal.ReceiptResponse:
        chain = self.host.chain_of(asked.source)
        if chain is not None:
            return await receipt(chain.forwarder, asked)
        if self.host.chain_that_had(asked.source) is not None:
            return internal.ReceiptResponse()
        raise Unavailable("No chain here has the source.")

    async def _at_risk(self, asked: internal.AtRiskRequest) -> internal.AtRiskResponse:
        answer = internal.AtRiskResponse()
        for number, chain in list(self.host.chains.items()):
            names = [f"/{place.cluster}/{place.disk}" for place in chain.record.places]
            answer.chains.append(await chain_risk(number, chain.forwarder, names, asked))
        return answer

    async def _list_scheduled(self, asked: internal.ScheduledListRequest) -> internal.ScheduledListResponse:
        answer = internal.ScheduledListResponse()
        for number, chain in list(self.host.chains.items()):
            if chain.holders.owned_age_ms() > OBEYED_MS:
                await chain.confirm()  # a later owner may know of more
            answer.chains.append(await list_scheduled(chain.forwarder, number, asked))
        return answer

    async def _cancel_scheduled(self, asked: internal.ScheduledCancelRequest) -> internal.ScheduledCancelResponse:
        answer = internal.ScheduledCancelResponse(chains=list(self.host.chains))
        chain = self.host.chain_of(asked.source)
        if chain is None:
            return answer
        answer.here = True
        persisted, on_outcome = outcome_of("cancel a message that waits")
        try:
            cancel_scheduled(chain.forwarder, asked.topic, asked.source, asked.offset, on_outcome)
        except NotFound:
            await chain.confirm()  # what it was may not be persisted yet
            return answer
        await persisted
        answer.cancelled = True
        return answer

    async def _acknowledge_seen(self, asked: internal.AcknowledgeSeenRequest) -> internal.AcknowledgeSeenResponse:
        chain = self.host.chain_of(asked.source)
        if chain is not None:
            await acknowledge_seen(chain.forwarder, asked)
        elif self.host.chain_that_had(asked.source) is None:
            raise Unavailable("No chain here has the source.")
        return internal.AcknowledgeSeenResponse()


class _ServeStream:
    """One Serve stream: a session of the host, from its Hello on."""

    def __init__(self, host: ChainHost, stream: StreamingCall) -> None:
        self._host, self._stream = host, stream
        self.incarnation = self.registered = self.stream = 0
        self._over = False
        self._takes: dict[str, Callable[[Any], None]] = {
            "attach": self._on_attach,
            "detach": self._on_detach,
            "serves": self._on_serves,
            "wants": self._on_wants,
            "fetch": self._on_fetch,
            "acknowledge": self._on_acknowledge,
            "note_attempts": self._on_note_attempts,
            "heartbeat": self._on_heartbeat,
            "released": self._on_released,
        }

    def begin(self) -> None:
        stream = self._stream
        stream.on_message = self._message
        stream.on_end = self._end
        stream.on_cancel = self._lost
        stream.on_drain = self._end

    def send(self, message: Message) -> None:
        """`sessions.Session`."""
        if not self._over:
            self._stream.send(message)

    def _message(self, data: bytes) -> None:
        if self._over:
            return
        try:
            message = internal.ToChains.FromString(data)
        except DecodeError:
            self._refuse(InvalidArgument("", "not a message to chains"))
            return
        kind = message.WhichOneof("what")
        if kind is None:
            return  # of a newer version
        if kind == "hello":
            self._hello(message.hello)
        elif not self.incarnation:
            self._refuse(FailedPrecondition("The first message of a stream is its Hello."))
        elif self._host.heeds(self):
            self._takes[kind](getattr(message, kind))

    def _hello(self, hello: internal.Hello) -> None:
        if self.incarnation or not hello.incarnation:
            self._refuse(FailedPrecondition("A stream has one Hello, with the incarnation of its process."))
            return
        self.incarnation, self.registered, self.stream = hello.incarnation, hello.registered, hello.stream
        self._host.session_began(self, hello.member)

    def _on_attach(self, asked: internal.Attach) -> None:
        claims = {grant.source: grant.grant for grant in asked.grants}
        self._host.attach(self, asked.subscription, asked.wanted, claims)

    def _on_detach(self, asked: internal.Detach) -> None:
        self._host.detach(self, asked.subscription)

    def _on_serves(self, asked: internal.Serves) -> None:
        self._host.serves(self, asked.subscriptions)

    def _on_wants(self, asked: internal.Wants) -> None:
        self._host.wants(self, asked.subscription, asked.wanted)

    def _on_fetch(self, asked: internal.Fetch) -> None:
        chain = self._host.chain_of(asked.source)
        if chain is not None:
            chain.dispatcher.fetch(self, asked)
            return
        if self._host.chain_that_had(asked.source) is not None:  # all of it was acknowledged, by others perhaps
            self.send(fetched_message(asked.id, ()))
            return
        error = Unavailable("No chain here has the source.")
        fetched = internal.Fetched(id=asked.id, error=error.message, code=error.code)
        self.send(internal.FromChains(fetched=fetched).SerializeToString())

    def _on_acknowledge(self, asked: internal.Acknowledge) -> None:
        chain = self._host.chain_of(asked.source) or self._host.chain_that_had(asked.source)
        if chain is not None:
            chain.dispatcher.acknowledge(self, asked)
        else:
            error = Unavailable("No chain here has the source.")
            answer = internal.Acknowledged(id=asked.id, error=error.message, code=error.code)
            self.send(internal.FromChains(acknowledged=answer).SerializeToString())

    def _on_note_attempts(self, asked: internal.NoteAttempts) -> None:
        chain = self._host.chain_of(asked.source)
        if chain is not None:
            runs = [AttemptRun(one.begin, one.end, one.times, one.rest_ms) for one in asked.runs if one.begin < one.end]
            chain.forwarder.server.note_attempts(asked.subscription, asked.generation, asked.source, runs)

    def _on_heartbeat(self, asked: internal.Heartbeat) -> None:
        self._host.on_session_alive(self)
        self.send(heartbeat_message(asked.number, self._host.owned_ages_ms()))

    def _on_released(self, asked: internal.Released) -> None:
        for chain in self._host.chains.values():
            chain.holders.on_released(asked.subscription, asked.source, asked.grant)

    def _refuse(self, error: SyncpointError) -> None:
        self._lost()
        self._stream.finish(error)

    def _end(self) -> None:
        self._lost()
        self._stream.finish()

    def _lost(self) -> None:
        if not self._over:
            self._over = True
            if self.incarnation:
                self._host.session_lost(self)

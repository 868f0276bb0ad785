"""Calls of clients that trace: spans of publishes, deliveries and acknowledgements, in the traces that clients began.

Place: around the methods that clients call, of a node or a proxy; the rooms below know nothing of it. Where nothing is
traced, methods are served as they are.
Promise: a call is answered as without, in the same turn. Requests and responses are looked through as a whole; only
those that hold a sampled context are decoded.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any, Final, NamedTuple, cast

from syncpoint.base.model.errors import SyncpointError
from syncpoint.base.tracing.trace_context import ATTRIBUTE, TraceContext, found, span_context, traceparent
from syncpoint.base.tracing.tracer import (
    ACK,
    DELIVER,
    MESSAGES_MAX,
    NACK,
    PUBLISH,
    AttributeValue,
    FinishedSpan,
    Tracer,
    named,
)
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import pubsub
from syncpoint.wire.transport.calls import Call, Methods, Streaming, StreamingCall, Unary
from syncpoint.wire.transport.stream_state import Message

OUTSTANDING_MAX: Final = 10_000


class _Lent(NamedTuple):
    """A delivery that may be acknowledged. `span`: of the delivery."""

    span: TraceContext
    subscription: str
    message_id: str
    ended_ns: int


class CallTraces:
    """Record spans of traced calls; one instance per process."""

    def __init__(self, tracer: Tracer, outstanding_max: int = OUTSTANDING_MAX) -> None:
        self._tracer, self._outstanding_max = tracer, outstanding_max
        self._lent: OrderedDict[str, _Lent] = OrderedDict()  # by ack id, the oldest first

    def traced(self, table: Methods) -> Methods:
        """Wrap methods so that traced calls record spans."""
        unary: dict[str, Callable[[Callable[[Call, bytes], None], Call, bytes], None]] = {
            methods.PUBLISHER.Publish: self._publish,
            methods.SUBSCRIBER.Pull: self._pull,
            methods.SUBSCRIBER.Acknowledge: self._acknowledge,
            methods.SUBSCRIBER.ModifyAckDeadline: self._modify,
        }
        followed = dict(table)
        for path, follow in unary.items():
            method = table[path.encode()]
            assert isinstance(method, Unary)
            followed[path.encode()] = method.guarded_by(partial(follow, method.handler))
        pulls = methods.SUBSCRIBER.StreamingPull.encode()
        streaming = table[pulls]
        assert isinstance(streaming, Streaming)
        followed[pulls] = replace(streaming, handler=partial(self._stream, streaming.handler))
        return followed

    # -- publishing --------------------------------------------------------------------------------------------------

    def _publish(self, handler: Callable[[Call, bytes], None], call: Call, request: bytes) -> None:
        followed = found(request, MESSAGES_MAX)
        if not followed:
            whole = self._parent(call)
            if whole is None:
                handler(call, request)
                return
            handler(cast(Call, _Answered(call, self._published(request, [], whole))), request)
            return
        handler(cast(Call, _Answered(call, self._published(request, followed, None))), request)

    def _parent(self, call: Call) -> TraceContext | None:
        """What a publish continues that carries no context in its messages."""
        header = call.metadata.get(b"traceparent")
        known = traceparent(header) if header else None
        if known is not None:
            return known if known.sampled else None
        return self._tracer.begun()

    def _published(
        self, request: bytes, followed: list[TraceContext], whole: TraceContext | None
    ) -> Callable[[Message | None, str], None]:
        begun_ns = self._tracer.clock.time_ns()

        def over(response: Message | None, failure: str) -> None:
            asked = pubsub.PublishRequest.FromString(request)
            ids = [] if response is None else pubsub.PublishResponse.FromString(_joined(response)).message_ids
            shared = {
                **named(PUBLISH, asked.topic),
                "messaging.operation.type": "send",
                "messaging.batch.message_count": len(asked.messages),
            }
            name, ended_ns = f"{PUBLISH} {_short(asked.topic)}", self._tracer.clock.time_ns()
            if whole is not None:
                span = span_context(whole, PUBLISH)
                self._tracer.record(
                    FinishedSpan(name, span, whole, begun_ns, ended_ns, shared, server=True, failure=failure)
                )
                return
            wanted = set(followed)
            for number, message in enumerate(asked.messages):
                context = traceparent(message.attributes[ATTRIBUTE]) if ATTRIBUTE in message.attributes else None
                if context is None or context not in wanted:
                    continue
                own: dict[str, AttributeValue] = {"messaging.message.body.size": len(message.data)}
                if number < len(ids):
                    own["messaging.message.id"] = ids[number]
                if message.ordering_key:
                    own["messaging.gcp_pubsub.message.ordering_key"] = message.ordering_key
                span = span_context(context, PUBLISH)
                self._tracer.record(
                    FinishedSpan(name, span, context, begun_ns, ended_ns, shared | own, server=True, failure=failure)
                )

        return over

    # -- delivering --------------------------------------------------------------------------------------------------

    def _pull(self, handler: Callable[[Call, bytes], None], call: Call, request: bytes) -> None:
        def over(response: Message | None, failure: str) -> None:
            if response is not None and found(data := _joined(response), 1):
                name = pubsub.PullRequest.FromString(request).subscription
                self._delivered(name, pubsub.PullResponse.FromString(data).received_messages)

        handler(cast(Call, _Answered(call, over)), request)

    def _stream(self, handler: Callable[[StreamingCall], None], call: StreamingCall) -> None:
        handler(cast(StreamingCall, _FollowedStream(call, self)))

    def sent(self, subscription: str, message: Message) -> None:
        """A response of a stream leaves."""
        if found(data := _joined(message), 1):
            self._delivered(subscription, pubsub.StreamingPullResponse.FromString(data).received_messages)

    def _delivered(self, subscription: str, received: Iterable[pubsub.ReceivedMessage]) -> None:
        ended_ns, name, left = self._tracer.clock.time_ns(), f"{DELIVER} {_short(subscription)}", MESSAGES_MAX
        for one in received:
            message = one.message
            context = traceparent(message.attributes[ATTRIBUTE]) if ATTRIBUTE in message.attributes else None
            if context is None or not context.sampled:
                continue
            attributes: dict[str, AttributeValue] = {
                **named(DELIVER, subscription),
                "messaging.message.id": message.message_id,
                "messaging.message.body.size": len(message.data),
            }
            if message.ordering_key:
                attributes["messaging.gcp_pubsub.message.ordering_key"] = message.ordering_key
            if one.delivery_attempt:
                attributes["messaging.gcp_pubsub.message.delivery_attempt"] = one.delivery_attempt
            span, parent = span_context(context, f"{DELIVER} {one.ack_id}"), span_context(context, PUBLISH)
            begun_ns = message.publish_time.ToNanoseconds()
            self._tracer.record(FinishedSpan(name, span, parent, begun_ns, ended_ns, attributes))
            self._lent[one.ack_id] = _Lent(span, subscription, message.message_id, ended_ns)
            left -= 1
            if not left:
                break
        while len(self._lent) > self._outstanding_max:
            self._lent.popitem(last=False)

    # -- acknowledging -----------------------------------------------------------------------------------------------

    def _acknowledge(self, handler: Callable[[Call, bytes], None], call: Call, request: bytes) -> None:
        if self._lent:
            self._ended(ACK, pubsub.AcknowledgeRequest.FromString(request).ack_ids)
        handler(call, request)

    def _modify(self, handler: Callable[[Call, bytes], None], call: Call, request: bytes) -> None:
        if self._lent:
            asked = pubsub.ModifyAckDeadlineRequest.FromString(request)
            if not asked.ack_deadline_seconds:
                self._ended(NACK, asked.ack_ids)
        handler(call, request)

    def came(self, request: bytes) -> str:
        """A request of a stream came; returns the subscription that it names, "" for none."""
        asked = pubsub.StreamingPullRequest.FromString(request)
        if self._lent:
            self._ended(ACK, asked.ack_ids)
            pairs = zip(asked.modify_deadline_ack_ids, asked.modify_deadline_seconds, strict=False)
            self._ended(NACK, [ack_id for ack_id, seconds in pairs if not seconds])
        return asked.subscription

    def _ended(self, how: str, ack_ids: Iterable[str]) -> None:
        """Deliveries are over. An ack id that comes again has no span."""
        ended_ns = self._tracer.clock.time_ns()
        for ack_id in ack_ids:
            lent = self._lent.pop(ack_id, None)
            if lent is not None:
                attributes = {
                    **named(how, lent.subscription),
                    "messaging.operation.type": "settle",
                    "messaging.message.id": lent.message_id,
                }
                name, span = f"{how} {_short(lent.subscription)}", span_context(lent.span, how)
                self._tracer.record(
                    FinishedSpan(name, span, lent.span, lent.ended_ns, ended_ns, attributes, server=True)
                )


class _Passing:
    """A call as its handler sees it: everything goes to the call it stands for."""

    def __init__(self, call: Any) -> None:
        object.__setattr__(self, "_call", call)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._call, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._call, name, value)


class _Answered(_Passing):
    """A unary call whose answer is examined before it is given, once."""

    def __init__(self, call: Call, over: Callable[[Message | None, str], None]) -> None:
        super().__init__(call)
        object.__setattr__(self, "_over", over)

    def reply(self, message: Message) -> None:
        self._once(message, "")
        self._call.reply(message)

    def fail(self, error: SyncpointError) -> None:
        self._once(None, str(error))
        self._call.fail(error)

    def _once(self, message: Message | None, failure: str) -> None:
        over = self._over
        object.__setattr__(self, "_over", lambda message, failure: None)
        over(message, failure)


class _FollowedStream(_Passing):
    """A streaming pull whose messages are examined on their way."""

    def __init__(self, call: StreamingCall, traces: CallTraces) -> None:
        super().__init__(call)
        object.__setattr__(self, "_traces", traces)
        object.__setattr__(self, "_subscription", "")

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, partial(self._came, value) if name == "on_message" and value else value)

    def send(self, message: Message, token: object = None) -> None:
        self._call.send(message, token)
        self._traces.sent(self._subscription, message)

    def _came(self, handler: Callable[[bytes], None], request: bytes) -> None:
        name = self._traces.came(request)
        if name:
            object.__setattr__(self, "_subscription", name)
        handler(request)


def _joined(message: Message) -> bytes:
    return bytes(message) if isinstance(message, (bytes, bytearray, memoryview)) else b"".join(cast(Any, message))


def _short(name: str) -> str:
    return name.rpartition("/")[2]

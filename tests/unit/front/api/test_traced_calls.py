"""Calls of clients that trace: which spans come of them, and that a call is answered as without."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from syncpoint.base.model.errors import NotFound
from syncpoint.base.tracing.trace_context import ATTRIBUTE, TraceContext, span_context
from syncpoint.base.tracing.tracer import MESSAGES_MAX
from syncpoint.front.api.traced_calls import CallTraces
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import pubsub
from syncpoint.wire.transport.calls import Streaming, Unary
from tests.kit.spans import KeptSpans

TOPIC, SUB = "projects/shop/topics/orders", "projects/shop/subscriptions/billing"
CONTEXT = TraceContext(7, 9, True)


def text(context: TraceContext) -> str:
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.sampled:02x}"


class FakeCall:
    """A call of either kind; what is said to the caller is kept."""

    def __init__(self, **metadata: bytes) -> None:
        self.metadata = {name.encode(): value for name, value in metadata.items()}
        self.said: list[Any] = []
        self.on_message: Any = None

    def reply(self, message: Any) -> None:
        self.said.append(message)

    def fail(self, error: Exception) -> None:
        self.said.append(error)

    def send(self, message: Any, token: object = None) -> None:
        self.said.append((message, token))


class Server:
    """Methods that keep the calls they are given, followed."""

    def __init__(self, outstanding_max: int = 100) -> None:
        self.tracer = KeptSpans()
        self.calls: list[Any] = []
        take = Unary(lambda call, request: self.calls.append(call))
        names = (
            methods.PUBLISHER.Publish,
            methods.SUBSCRIBER.Pull,
            methods.SUBSCRIBER.Acknowledge,
            methods.SUBSCRIBER.ModifyAckDeadline,
        )
        table: dict[bytes, Any] = {name.encode(): take for name in names}
        table[methods.SUBSCRIBER.StreamingPull.encode()] = Streaming(self.stream)
        self.table = CallTraces(self.tracer, outstanding_max).traced(table)
        self.requests: list[bytes] = []

    def stream(self, call: Any) -> None:
        call.on_message = self.requests.append
        self.calls.append(call)

    def unary(self, path: str, request: Any, call: FakeCall | None = None) -> FakeCall:
        call = call or FakeCall()
        self.table[path.encode()].handler(call, request.SerializeToString())  # type: ignore[arg-type]
        return call

    def pulling(self) -> FakeCall:
        """An open stream of the subscription."""
        call = FakeCall()
        self.table[methods.SUBSCRIBER.StreamingPull.encode()].handler(call)  # type: ignore[call-arg, arg-type]
        call.on_message(pubsub.StreamingPullRequest(subscription=SUB).SerializeToString())
        return call


@pytest.fixture
def server() -> Server:
    return Server()


def publish(*contexts: TraceContext | None) -> pubsub.PublishRequest:
    request = pubsub.PublishRequest(topic=TOPIC)
    for context in contexts:
        request.messages.add(data=b"x", attributes={} if context is None else {ATTRIBUTE: text(context)})
    return request


def test_a_publish_has_a_span_for_each_message_that_is_followed(server: Server) -> None:
    other, unsampled = TraceContext(8, 1, True), TraceContext(9, 1, False)
    call = server.unary(methods.PUBLISHER.Publish, publish(None, CONTEXT, unsampled, other))
    assert server.tracer.spans == [], "it is not over"
    answer = pubsub.PublishResponse(message_ids=["1", "2", "3", "4"]).SerializeToString()
    server.calls[0].reply(answer)
    assert call.said == [answer]
    found = [(one.name, one.parent, one.attributes["messaging.message.id"]) for one in server.tracer.spans]
    assert found == [("publish orders", CONTEXT, "2"), ("publish orders", other, "4")]
    assert server.tracer.spans[0].attributes["messaging.batch.message_count"] == 4
    assert server.tracer.spans[0].attributes["gcp.project_id"] == "shop"


def test_what_fails_says_why_and_is_said_once(server: Server) -> None:
    call = server.unary(methods.PUBLISHER.Publish, publish(CONTEXT))
    server.calls[0].fail(NotFound(TOPIC))
    server.calls[0].fail(NotFound(TOPIC))
    assert [type(one) for one in call.said] == [NotFound, NotFound], "the call itself ignores the second"
    assert [bool(one.failure) for one in server.tracer.spans] == [True]


def test_what_nobody_follows_passes_untouched(server: Server) -> None:
    call = server.unary(methods.PUBLISHER.Publish, publish(None, TraceContext(1, 1, False)))
    assert server.calls == [call], "the very call, not one around it"
    server.unary(methods.PUBLISHER.Publish, publish(None), FakeCall(traceparent=text(CONTEXT)[:-1].encode() + b"0"))
    server.calls[1].reply(b"")
    assert server.tracer.spans == []


def test_without_a_context_in_messages_the_header_is_continued_or_a_trace_begun(server: Server) -> None:
    server.unary(methods.PUBLISHER.Publish, publish(None), FakeCall(traceparent=text(CONTEXT).encode()))
    server.tracer.beginning = TraceContext(20, 1, True)
    server.unary(methods.PUBLISHER.Publish, publish(None))
    for call in server.calls:
        call.reply(b"")
    assert [one.parent for one in server.tracer.spans] == [CONTEXT, server.tracer.beginning]


def received(ack_id: str, context: TraceContext = CONTEXT) -> Any:
    message = pubsub.PubsubMessage(data=b"x", attributes={ATTRIBUTE: text(context)}, message_id="5")
    return pubsub.ReceivedMessage(ack_id=ack_id, message=message)


def test_a_stream_s_deliveries_end_with_their_acks_and_nacks(server: Server) -> None:
    call = server.pulling()
    message = pubsub.StreamingPullResponse(received_messages=[received("a"), received("b")]).SerializeToString()
    server.calls[0].send([message[:10], message[10:]], "token")
    assert call.said == [([message[:10], message[10:]], "token")], "as it was given"
    acks = pubsub.StreamingPullRequest(ack_ids=["a", "z"], modify_deadline_ack_ids=["b", "b"])
    acks.modify_deadline_seconds.extend([10, 0])
    call.on_message(acks.SerializeToString())
    call.on_message(acks.SerializeToString())
    assert server.tracer.names == ["deliver billing", "deliver billing", "ack billing", "nack billing"]
    first, second, ack, nack = server.tracer.spans
    assert {first.parent, second.parent} == {span_context(CONTEXT, "publish")}, "known without asking anybody"
    assert (ack.parent, nack.parent) == (first.context, second.context)
    assert len({one.context.span_id for one in server.tracer.spans}) == 4
    assert len(server.requests) == 3


def test_unary_pulls_are_followed_too(server: Server) -> None:
    server.unary(methods.SUBSCRIBER.Pull, pubsub.PullRequest(subscription=SUB))
    server.calls[0].reply(pubsub.PullResponse(received_messages=[received("a"), received("b")]).SerializeToString())
    server.unary(methods.SUBSCRIBER.Acknowledge, pubsub.AcknowledgeRequest(subscription=SUB, ack_ids=["a"]))
    later = pubsub.ModifyAckDeadlineRequest(subscription=SUB, ack_ids=["b"], ack_deadline_seconds=10)
    server.unary(methods.SUBSCRIBER.ModifyAckDeadline, later)
    later.ack_deadline_seconds = 0
    server.unary(methods.SUBSCRIBER.ModifyAckDeadline, later)
    assert server.tracer.names[2:] == ["ack billing", "nack billing"]


def test_it_is_bounded() -> None:
    server = Server(outstanding_max=2)
    server.unary(methods.PUBLISHER.Publish, publish(*[TraceContext(number, 1, True) for number in range(1, 100)]))
    server.calls[0].reply(b"")
    assert len(server.tracer.spans) == MESSAGES_MAX
    call = server.pulling()
    response = pubsub.StreamingPullResponse(received_messages=[received(f"{number}") for number in range(3)])
    server.calls[1].send(response.SerializeToString())
    call.on_message(pubsub.StreamingPullRequest(ack_ids=["0", "1", "2"]).SerializeToString())
    assert server.tracer.names.count("ack billing") == 2, "the oldest was forgotten"


def test_a_call_s_other_sides_are_passed_on(server: Server) -> None:
    call = SimpleNamespace(metadata={}, peer="p", on_cancel=None)
    server.table[methods.SUBSCRIBER.Pull.encode()].handler(call, b"")  # type: ignore[arg-type]
    assert server.calls[0].peer == "p"
    server.calls[0].on_cancel = print
    assert call.on_cancel is print

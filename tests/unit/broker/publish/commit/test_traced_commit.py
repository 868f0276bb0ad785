"""The group commit that traces: a span for each message that is followed, once its fate is known."""

from __future__ import annotations

from syncpoint.base.tracing.trace_context import ATTRIBUTE, TraceContext, span_context
from syncpoint.broker.publish.commit.traced_commit import TracedCommit
from syncpoint.broker.publish.facts.source import Source
from syncpoint.testing.rigs.forwarder_harness import ForwarderHarness, HarnessCaller
from syncpoint.wire.protobuf.messages import pubsub
from tests.kit.spans import KeptSpans

IDS = pubsub.PublishResponse(message_ids=["7"]).SerializeToString()


def payload(context: TraceContext | None) -> bytes:
    attributes = {} if context is None else {ATTRIBUTE: f"00-{context.trace_id:032x}-{context.span_id:016x}-01"}
    return bytes(pubsub.PubsubMessage(data=b"x", attributes=attributes).SerializeToString())


def test_spans_come_once_it_is_known_what_became_of_it() -> None:
    house, tracer = ForwarderHarness(), KeptSpans()
    commit = TracedCommit(
        house.publish.store, house.publish.clock, house.publish.admission, house.run_soon, house.run_later,
        tracer, lambda topic: "projects/p/topics/orders",
    )  # fmt: skip
    source, context = Source(3, 1), TraceContext(5, 6, True)
    for number, one in enumerate((context, None)):
        caller = HarnessCaller()
        commit.turn_time()
        commit.add(source, 1, payload(one), caller, IDS)
        assert len(tracer.spans) == number
        house.quiesce()
        assert caller.ids == ["7"]
        assert tracer.names == ["persist orders"]
    (span,) = tracer.spans
    assert (span.context, span.parent) == (span_context(context, "persist"), span_context(context, "publish"))
    assert span.attributes["syncpoint.source"] == 3
    lost = HarnessCaller()
    commit.turn_time()
    commit.add(source, 1, payload(context), lost, IDS)
    commit.give_up(OSError("gone"))
    assert "gone" in tracer.spans[-1].failure

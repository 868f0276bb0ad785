"""Contexts: read, found in serialised batches, derived; and the limits of a tracer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncpoint.base.model.errors import InvalidArgument
from syncpoint.base.runtime.clock import ManualClock
from syncpoint.base.runtime.random import SeededRandom
from syncpoint.base.tracing.trace_context import ATTRIBUTE, TraceContext, found, span_context, traceparent
from syncpoint.base.tracing.tracer import SpanLimits, checked_tracing
from syncpoint.wire.protobuf.messages import pubsub

pytestmark = pytest.mark.shows("traces")

CONTEXTS = st.builds(TraceContext, st.integers(1, 2**128 - 1), st.integers(1, 2**64 - 1), st.booleans())


def text(context: TraceContext) -> str:
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.sampled:02x}"


@given(CONTEXTS)
def test_what_is_written_is_read(context: TraceContext) -> None:
    assert traceparent(text(context)) == traceparent(text(context).encode()) == context


def test_what_is_not_well_formed_is_none() -> None:
    good = text(TraceContext(1, 1, True))
    for bad in ("", good[:-1], good + "0", "01" + good[2:], good.replace("1", "g"), text(TraceContext(0, 1, True))):
        assert traceparent(bad) is None
    assert traceparent(text(TraceContext(1, 0, True))) is None


@given(st.lists(st.tuples(CONTEXTS | st.none(), st.binary(max_size=40), st.dictionaries(st.text(), st.text()))))
def test_sampled_contexts_are_found_in_any_request_in_the_order_of_its_messages(messages: list) -> None:
    request = pubsub.PublishRequest(topic="projects/p/topics/t")
    for context, data, attributes in messages:
        more = {} if context is None else {ATTRIBUTE: text(context)}
        request.messages.add(data=data, attributes={**attributes, **more})
    expected = [context for context, _, _ in messages if context is not None and context.sampled]
    data = request.SerializeToString()
    assert found(data, 1_000) == expected
    assert found(memoryview(data), 2) == expected[:2]


@given(CONTEXTS, st.text(), st.text())
def test_derived_ids_depend_on_their_arguments_alone(context: TraceContext, one: str, other: str) -> None:
    first = span_context(context, one)
    assert first == span_context(context, one)
    assert first.trace_id == context.trace_id
    assert 0 < first.span_id < 2**64
    assert (first == span_context(context, other)) == (one == other)


def test_no_more_spans_than_a_second_takes() -> None:
    clock = ManualClock()
    limits = SpanLimits(0.0, clock, SeededRandom(1), spans_s_max=3)
    assert [limits.admits() for _ in range(5)] == [True] * 3 + [False] * 2
    assert limits.dropped == 2
    clock.advance(1)
    assert limits.admits()


def test_a_ratio_begins_as_many_traces() -> None:
    clock = ManualClock()
    assert SpanLimits(0.0, clock, SeededRandom(1)).begun() is None
    begun = [SpanLimits(1.0, clock, SeededRandom(seed)).begun() for seed in range(20)]
    assert len({one for one in begun if one is not None}) == 20
    limits = SpanLimits(0.1, clock, SeededRandom(1))
    assert 50 < sum(limits.begun() is not None for _ in range(1_000)) < 150


def test_settings_that_cannot_be_right_name_their_field() -> None:
    assert checked_tracing("", 0, "a", "b").otlp == ""
    for otlp, ratio, field in (("collector:4318", 0, "a"), ("http://c", 2, "b"), ("", 0.5, "b")):
        with pytest.raises(InvalidArgument, match=f": {field}: "):
            checked_tracing(otlp, ratio, "a", "b")

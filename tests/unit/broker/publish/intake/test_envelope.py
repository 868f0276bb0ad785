"""The envelopes written by hand are what the schema says, both ways."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncpoint.base.kernel.errors import Malformed
from syncpoint.base.model.delivery import Batch, Fetched
from syncpoint.broker.publish.facts.origin import PublishOrigin
from syncpoint.broker.publish.intake import envelope
from syncpoint.broker.publish.intake.envelope import PublishBatch, read_publish, write_publish
from syncpoint.wire.protobuf.messages import internal, pubsub

u32, u64 = st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1)
batches = st.builds(
    PublishBatch, u32, u64, st.booleans(), u64, u64, st.booleans(), st.binary(max_size=300), u64, u64,
    st.sampled_from(PublishOrigin),
)  # fmt: skip


@given(batches)
def test_a_publish_comes_back_as_it_was_written(batch: PublishBatch) -> None:
    data = b"".join(write_publish(batch))
    assert read_publish(data)._replace(request=batch.request) == batch
    assert bytes(read_publish(data).request) == batch.request
    schema = internal.PublishBatch.FromString(data)
    fields, origin = batch._asdict(), batch.origin
    del fields["origin"]
    assert schema == internal.PublishBatch(
        within=origin in (PublishOrigin.SERVICE, PublishOrigin.FIRING),
        forwarded=origin is PublishOrigin.FORWARD,
        scheduled=origin is PublishOrigin.FIRING,
        **fields,
    )
    assert read_publish(schema.SerializeToString())._replace(request=b"") == batch._replace(request=b"")


def test_fields_of_newer_versions_are_passed_over() -> None:
    known = internal.PublishBatch(chain=3, request=b"r").SerializeToString()
    for unknown in (b"\x80\x01\x05", b"\x82\x01\x02ab", b"\x85\x01abcd", b"\x81\x01abcdefgh"):
        found = read_publish(unknown + known + unknown)
        assert (found.chain, bytes(found.request)) == (3, b"r")


@pytest.mark.parametrize("bad", [b"\x08", b"\x7a\x05ab", b"\x08" + b"\xff" * 11, b"\x21ab", b"\x0b", b"\x0d"])
def test_what_is_no_envelope_is_refused(bad: bytes) -> None:
    with pytest.raises(Malformed):
        read_publish(bad)


@given(st.binary(max_size=40))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    with contextlib.suppress(Malformed):
        read_publish(data)


@given(u64, u64)
def test_small_answers_are_what_the_schema_says(one: int, other: int) -> None:
    data = internal.FromChains.FromString(envelope.data_message(one, other)).data
    assert (data.subscription, data.source) == (one, other)
    assert internal.FromChains.FromString(envelope.acknowledged_message(one)).acknowledged.id == one
    beat = internal.FromChains.FromString(envelope.heartbeat_message(one, [(3, 1500), (300, 0)])).heartbeat
    assert beat.number == one
    assert [(chain.chain, chain.age_ms) for chain in beat.chains] == [(3, 1500), (300, 0)]


fetched = st.lists(
    st.builds(Batch, u64, u64, u64, u64, st.none() | st.binary(min_size=1, max_size=9), u64, st.binary(max_size=300)),
    max_size=4,
)


@given(u64, fetched, st.lists(st.tuples(u64, u64), max_size=3))
def test_batches_are_what_the_schema_says(
    number: int, given_batches: list[Batch], passed: list[tuple[int, int]]
) -> None:
    answer = Fetched(given_batches, passed) if passed else given_batches
    found = internal.FromChains.FromString(b"".join(envelope.fetched_message(number, answer))).fetched
    assert found.id == number
    assert [(one.begin, one.end) for one in found.passed] == passed
    assert [
        Batch(b.source, b.first_offset, b.begin, b.end, b.skip or None, b.time_ns, b.payload) for b in found.batches
    ] == given_batches


def test_ids_of_a_batch() -> None:
    found = pubsub.PublishResponse.FromString(envelope.publish_response(b"1000000000007" + b"16777216", 9, 2))
    assert list(found.message_ids) == ["100000000000716777216000000000009", "100000000000716777216000000000010"]

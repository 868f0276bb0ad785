"""StreamingPull: the protocol of its messages, keep-alives, confirmations and flow control."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncpoint.base.model.errors import Code
from syncpoint.base.model.flow import FlowLimit
from syncpoint.catalog.metadata.records import CatalogChange
from syncpoint.front.api.streaming_pull import only_ack_ids
from syncpoint.testing.rigs.forwarder_harness import SUB
from syncpoint.testing.rigs.servicer_harness import ServicerHarness, ids, simulated
from syncpoint.wire.protobuf.messages import pubsub

GONE = "projects/p/subscriptions/gone"


ACK_IDS = st.lists(st.text("abc-_9", min_size=48, max_size=48), max_size=3)
OTHERS = st.fixed_dictionaries(
    {},
    optional={
        "client_id": st.text("x", min_size=1, max_size=60),
        "subscription": st.just(SUB),
        "stream_ack_deadline_seconds": st.just(10),
        "modify_deadline_seconds": st.just([10]),
        "modify_deadline_ack_ids": st.lists(st.text("x", min_size=48, max_size=48), max_size=2),
        "protocol_version": st.just(1),
    },
)


@given(ack_ids=ACK_IDS, others=OTHERS)
def test_a_request_of_nothing_but_ack_ids_is_known_undecoded(ack_ids: list[str], others: dict[str, Any]) -> None:
    request = pubsub.StreamingPullRequest(ack_ids=ack_ids, **others)
    empty = not any(bool(value) for value in others.values())
    assert only_ack_ids(request.SerializeToString()) is (bool(ack_ids) and empty)


@given(st.lists(st.sampled_from([b"\x12\x30", b"\x12\x2f", b"\x22\x30", b"a" * 48, b"a"]), max_size=8).map(b"".join))
def test_what_passes_for_ack_ids_is_decoded_as_nothing_else(request_bytes: bytes) -> None:
    if only_ack_ids(request_bytes):
        found = pubsub.StreamingPullRequest.FromString(request_bytes)
        assert found == pubsub.StreamingPullRequest(ack_ids=found.ack_ids)
        assert len(found.ack_ids) == len(request_bytes) // 50


# -- the first message and the later ones ------------------------------------------------------------------------------

FIRST = [
    ({"subscription": ""}, Code.INVALID_ARGUMENT, "first message must set subscription"),
    (
        {"stream_ack_deadline_seconds": 0},
        Code.INVALID_ARGUMENT,
        "first message must set stream_ack_deadline_seconds",
    ),
    *(
        (
            {"stream_ack_deadline_seconds": seconds},
            Code.INVALID_ARGUMENT,
            "stream_ack_deadline_seconds must be between 10 and 600 seconds",
        )
        for seconds in (9, 601, -1)
    ),
    ({"subscription": GONE}, Code.NOT_FOUND, f"Resource not found (resource={GONE})."),
    ({"ack_ids": ["nonsense"]}, Code.INVALID_ARGUMENT, "Invalid ack id (ack_id=nonsense)"),
]
LATER = [
    ({"subscription": SUB}, "subscription may only be set in first message"),
    ({"max_outstanding_messages": 1}, "max_outstanding_messages may only be set in first message"),
    ({"max_outstanding_bytes": 1}, "max_outstanding_bytes may only be set in first message"),
    ({"protocol_version": 1}, "protocol_version may only be set in first message"),
    ({"client_id": "x"}, "client_id may only be set in first message"),
    ({"stream_ack_deadline_seconds": 9}, "stream_ack_deadline_seconds must be between 10 and 600 seconds"),
    ({"modify_deadline_ack_ids": ["x"]}, "ack IDs and deadlines must have the same size"),
    ({"modify_deadline_seconds": [1]}, "ack IDs and deadlines must have the same size"),
    (
        {"modify_deadline_ack_ids": ["x"], "modify_deadline_seconds": [-1]},
        "Ack deadline cannot be negative",
    ),
    (
        {"modify_deadline_ack_ids": ["x"], "modify_deadline_seconds": [601]},
        "modify_deadline_seconds: must be between 0 and 600 seconds, not 601",
    ),
    ({"modify_deadline_ack_ids": ["x"], "modify_deadline_seconds": [1]}, "Invalid ack id (ack_id=x)"),
    ({"ack_ids": ["y"]}, "Invalid ack id (ack_id=y)"),
]


@simulated()
async def test_a_bad_first_message_ends_the_stream(harness: ServicerHarness) -> None:
    for fields, code, words in FIRST:
        stream = await harness.stream(**{"subscription": SUB, **fields})
        error = await stream.error()
        assert (error.code, error.message) == (code, words)
    raw = harness.channel.stream("/google.pubsub.v1.Subscriber/StreamingPull")
    await raw.send(b"\xff")
    with pytest.raises(Exception, match="The request is not a valid StreamingPullRequest"):
        await raw.receive()
    assert not harness.streams.streams
    await asyncio.sleep(0.2)
    assert not harness.subscribe.deliveries


@simulated()
async def test_a_bad_later_message_ends_the_stream(harness: ServicerHarness) -> None:
    for fields, words in LATER:
        stream = await harness.stream()
        await stream.send(**fields)
        error = await stream.error()
        assert (error.code, error.message) == (Code.INVALID_ARGUMENT, words)
    assert not harness.streams.streams


@simulated()
async def test_a_detached_subscription_can_not_be_streamed(harness: ServicerHarness) -> None:
    await harness.call("DetachSubscription", subscription=SUB)
    assert (await (await harness.stream()).error()).code is Code.FAILED_PRECONDITION


# -- messages, keep-alives, properties ---------------------------------------------------------------------------------


@pytest.mark.parametrize("once", [False, True])
@pytest.mark.parametrize("ordered", [False, True])
def test_every_response_says_what_the_subscription_is(once: bool, ordered: bool) -> None:
    @simulated(exactly_once=once, ordered=ordered)
    async def run(harness: ServicerHarness) -> None:
        stream = await harness.stream(protocol_version=1)
        await harness.put("x")
        response = await stream.response()
        assert len(response.received_messages) == 1
        await stream.send()
        for one in (response, await stream.response()):
            assert one.subscription_properties.exactly_once_delivery_enabled is once
            assert one.subscription_properties.message_ordering_enabled is ordered

    run()


@simulated()
async def test_properties_change_under_an_open_stream(harness: ServicerHarness) -> None:
    stream = await harness.stream()
    assert await stream.silent(0.1)
    harness.commit(CatalogChange.put(replace(harness.record, exactly_once=True)))
    response = await stream.response(within=0.2)  # before there is any message
    assert response.subscription_properties.exactly_once_delivery_enabled
    await harness.put("x")
    response = await stream.response()
    assert response.subscription_properties.exactly_once_delivery_enabled
    await stream.send(ack_ids=ids(response.received_messages))
    assert (await stream.response()).acknowledge_confirmation.ack_ids == ids(response.received_messages)


@simulated()
async def test_keep_alives_are_answered_to_those_who_understand(harness: ServicerHarness) -> None:
    new, old = await harness.stream(protocol_version=1), await harness.stream()
    assert await new.silent()  # the first message is none
    for stream in (new, old):
        await stream.send()
    assert (await new.response()).HasField("subscription_properties")
    assert await old.silent()
    await new.send(stream_ack_deadline_seconds=60)
    assert (await new.response()).HasField("subscription_properties")


@simulated()
async def test_the_streams_deadline_is_that_of_its_leases_and_may_change(harness: ServicerHarness) -> None:
    stream = await harness.stream(stream_ack_deadline_seconds=20)
    for seconds in (20, 50):
        await harness.put("x")
        begin = harness.clock.monotonic()
        await stream.messages(1)
        again = (await stream.response(within=100)).received_messages
        assert harness.clock.monotonic() - begin == pytest.approx(seconds, abs=0.3)
        await stream.send(ack_ids=ids(again), stream_ack_deadline_seconds=50)


@simulated()
async def test_acks_nacks_and_extensions_in_one_message(harness: ServicerHarness) -> None:
    stream = await harness.stream()
    await harness.put("a", "b", "c")
    a, b, c = await stream.messages(3)
    await stream.send(
        ack_ids=[a.ack_id], modify_deadline_ack_ids=[b.ack_id, c.ack_id], modify_deadline_seconds=[0, 600]
    )
    (again,) = await stream.messages(1)
    assert again.message.data == b"b"
    await stream.send(ack_ids=[again.ack_id])
    assert await stream.silent(500)
    await asyncio.sleep(0.1)
    await harness.crash()
    assert [one.message.data for one in await harness.pull()] == [b"c"]


@simulated()
async def test_acks_may_come_with_the_first_message(harness: ServicerHarness) -> None:
    await harness.put("a", "b")
    got = await harness.pull()
    stream = await harness.stream(
        ack_ids=[got[0].ack_id], modify_deadline_ack_ids=[got[1].ack_id], modify_deadline_seconds=[0]
    )
    assert [one.message.data for one in await stream.messages(1)] == [b"b"]


# -- exactly once ------------------------------------------------------------------------------------------------------


@simulated(exactly_once=True)
async def test_acks_are_confirmed_when_they_are_persisted(harness: ServicerHarness) -> None:
    stream = await harness.stream()
    await harness.put("a", "b")
    a, b = await stream.messages(2)
    harness.disks_rest = True
    await stream.send(ack_ids=[b.ack_id, a.ack_id])
    assert await stream.silent(5)
    harness.persist()
    confirmation = (await stream.response()).acknowledge_confirmation
    assert list(confirmation.ack_ids) == [b.ack_id, a.ack_id]
    assert not confirmation.invalid_ack_ids
    await stream.send(ack_ids=[a.ack_id])
    confirmation = (await stream.response()).acknowledge_confirmation
    assert (list(confirmation.ack_ids), list(confirmation.invalid_ack_ids)) == ([], [a.ack_id])


@simulated(exactly_once=True)
async def test_a_half_close_waits_for_confirmations(harness: ServicerHarness) -> None:
    stream = await harness.stream()
    await harness.put("a", "b")
    held = [one.ack_id for one in await stream.messages(2)]
    harness.disks_rest = True
    for one in held:
        await stream.send(ack_ids=[one])
    await stream.raw.end()
    assert await stream.silent(1)
    assert not harness.streams.streams, "nothing more is lent to it"
    harness.persist()
    for one in held:
        assert list((await stream.response()).acknowledge_confirmation.ack_ids) == [one]
    assert await stream.response() is None
    assert not harness.streams.streams


@simulated()
async def test_a_client_may_repeat_its_name(harness: ServicerHarness) -> None:
    stream = await harness.stream(client_id="me", protocol_version=1)
    await stream.send(client_id="me")
    assert (await stream.response()).HasField("subscription_properties")
    await stream.send(client_id="you")
    error = await stream.error()
    assert (error.code, error.message) == (Code.INVALID_ARGUMENT, "client_id may only be set in first message")


@simulated(exactly_once=True)
async def test_extensions_and_nacks_are_confirmed(harness: ServicerHarness) -> None:
    stream = await harness.stream()
    await harness.put("a", "b")
    a, b = await stream.messages(2)
    await stream.send(ack_ids=[a.ack_id])
    await stream.response()
    both = [a.ack_id, b.ack_id]
    await stream.send(modify_deadline_ack_ids=both, modify_deadline_seconds=[60, 60])
    confirmation = (await stream.response()).modify_ack_deadline_confirmation
    assert (list(confirmation.ack_ids), list(confirmation.invalid_ack_ids)) == ([b.ack_id], [a.ack_id])
    await stream.send(modify_deadline_ack_ids=[b.ack_id], modify_deadline_seconds=[0])
    got, confirmed = [], []
    while not (got and confirmed):
        response = await stream.response()
        got += response.received_messages
        confirmed += response.modify_ack_deadline_confirmation.ack_ids
    assert confirmed == [b.ack_id]
    assert got[0].ack_id != b.ack_id


@simulated(exactly_once=True)
async def test_confirmations_for_who_has_left_go_nowhere(harness: ServicerHarness) -> None:
    stream = harness.bare()
    await harness.put("a")
    await asyncio.sleep(0.01)
    harness.disks_rest = True
    stream.receive(ack_ids=ids(stream.sent[0].received_messages))
    stream.break_off()
    harness.persist()
    await asyncio.sleep(0.01)
    assert len(stream.sent) == 1
    assert not stream.finished


@simulated()
async def test_at_least_once_streams_confirm_nothing(harness: ServicerHarness) -> None:
    stream = await harness.stream()
    await harness.put("a")
    (a,) = await stream.messages(1)
    await stream.send(ack_ids=[a.ack_id], modify_deadline_ack_ids=[a.ack_id], modify_deadline_seconds=[10])
    assert await stream.silent(5)


# -- flow control ------------------------------------------------------------------------------------------------------

BOUNDS = [
    ({"max_outstanding_messages": 2}, None, None),
    ({"max_outstanding_bytes": 2100}, None, None),
    ({}, "subscriber", FlowLimit(messages=2)),
    ({}, "subscriber", FlowLimit(bytes=2100)),
    ({}, "subscriptions", FlowLimit(messages=2)),
    ({}, "subscriptions", FlowLimit(bytes=2100)),
    ({"max_outstanding_messages": 50}, "subscriber", FlowLimit(messages=2)),
    ({"max_outstanding_messages": 2}, "subscriber", FlowLimit(messages=50)),
    ({"max_outstanding_messages": -5}, "subscriber", FlowLimit(messages=2)),
]


@pytest.mark.parametrize(("first", "scope", "limit"), BOUNDS)
@simulated()
async def test_each_bound_binds_alone(
    harness: ServicerHarness, *, first: dict[str, int], scope: str | None, limit: FlowLimit
) -> None:
    harness.limits.subscriber = FlowLimit()
    if scope == "subscriptions":
        harness.limits.subscriptions[SUB] = limit
    elif scope:
        harness.limits.subscriber = limit
    stream = await harness.stream(**first)
    for _ in range(5):
        await harness.put("x" * 950)
    held = await stream.messages(2)
    for _ in range(3):
        assert await stream.silent(3)
        await stream.send(ack_ids=[held.pop(0).ack_id])
        held += await stream.messages(1)


@simulated()
async def test_changed_limits_reach_open_streams(harness: ServicerHarness) -> None:
    stream = await harness.stream(max_outstanding_messages=5)
    await harness.call("UpdateLimits", limits={"subscriber": {"messages": 1}}, update_mask={"paths": ["subscriber"]})
    await harness.put("a", "b", "c", "d", "e", "f")
    await stream.messages(1)
    assert await stream.silent(3)
    await harness.call("UpdateLimits", limits={"subscriber": {}}, update_mask={"paths": ["subscriber"]})
    await stream.messages(4)
    assert await stream.silent(3)


@simulated()
async def test_a_stream_that_is_held_back_is_given_no_more(harness: ServicerHarness) -> None:
    stream = harness.bare()
    stream.writable = False
    await harness.put("a")
    await asyncio.sleep(0.01)
    assert stream.data == ["a"]  # it said so only when it took this
    await harness.put("b")
    await asyncio.sleep(3)
    assert stream.data == ["a"]
    stream.writable = True
    assert stream.on_writable is not None
    stream.on_writable()
    await asyncio.sleep(0.01)
    assert stream.data == ["a", "b"]


@simulated()
async def test_a_stream_that_goes_on_keeps_to_the_newest_record(harness: ServicerHarness) -> None:
    stream = harness.bare()
    await harness.put("a")
    await asyncio.sleep(0.2)
    harness.commit(CatalogChange.put(replace(harness.record, exactly_once=True)))
    await asyncio.sleep(0.2)
    assert stream.on_writable is not None
    stream.on_writable()
    assert harness.subscribe.deliveries[2].record.exactly_once


@simulated()
async def test_streams_share_what_comes(harness: ServicerHarness) -> None:
    streams = [await harness.stream() for _ in range(4)]
    await asyncio.sleep(0.01)
    await harness.put(*map(str, range(100)))
    counts = [len((await stream.response()).received_messages) for stream in streams]
    assert sum(counts) == 100
    assert max(counts) <= 50

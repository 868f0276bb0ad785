"""Ends of StreamingPull: of either side, of the connection, of the subscription; and what is lent after them."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from syncpoint.base.model.errors import Code, Unavailable
from syncpoint.catalog.metadata.records import CatalogChange
from syncpoint.front.api.connected_clients import STREAM_NAME
from syncpoint.testing.rigs.forwarder_harness import SUB
from syncpoint.testing.rigs.servicer_harness import BareStream, ServicerHarness, ids, simulated


async def half_close(harness: ServicerHarness, stream: BareStream) -> None:
    assert stream.on_end is not None
    stream.on_end()


async def hand_over(harness: ServicerHarness, stream: BareStream) -> None:
    stream.metadata[STREAM_NAME] = b"proxy/1"
    await half_close(harness, stream)


async def break_off(harness: ServicerHarness, stream: BareStream) -> None:
    stream.break_off()


async def err(harness: ServicerHarness, stream: BareStream) -> None:
    stream.receive(ack_ids=["nonsense"])


async def cannot_record(harness: ServicerHarness, stream: BareStream) -> None:
    def check_writable() -> None:
        raise Unavailable("the disks are away")

    harness.subscribe.deliveries[2].leases.publish.check_writable = check_writable  # type: ignore[method-assign]
    stream.receive(ack_ids=ids(stream.sent[0].received_messages))


async def drain(harness: ServicerHarness, stream: BareStream) -> None:
    assert stream.on_drain is not None
    stream.on_drain()


async def become_forwarded(harness: ServicerHarness, stream: BareStream) -> None:
    options = harness.record.options._replace(forward_to="projects/p/topics/other")
    harness.commit(CatalogChange.put(replace(harness.record, options=options)))


async def detach(harness: ServicerHarness, stream: BareStream) -> None:
    await harness.call("DetachSubscription", subscription=SUB)


async def delete(harness: ServicerHarness, stream: BareStream) -> None:
    await harness.call("DeleteSubscription", subscription=SUB)


OVER, STAYS, VOID = "confirmed", "confirmed unconfirmed unsent", ""


ONCE = "confirmed unconfirmed"


# What is lent after the end: of a subscription, and of one that delivers exactly once; and how the call ends.
ENDS = [
    (half_close, OVER, ONCE, None),
    (break_off, OVER, ONCE, "not finished"),  # a client's deadline ends its stream in this way, too
    (err, OVER, ONCE, Code.INVALID_ARGUMENT),
    (become_forwarded, OVER, ONCE, Code.FAILED_PRECONDITION),
    (hand_over, STAYS, STAYS, None),
    (drain, STAYS, STAYS, Code.UNAVAILABLE),
    (cannot_record, STAYS, STAYS, Code.UNAVAILABLE),
    (detach, VOID, VOID, Code.FAILED_PRECONDITION),
    (delete, VOID, VOID, Code.NOT_FOUND),
]


@pytest.mark.parametrize("once", [False, True])
@pytest.mark.parametrize(("end", "plain", "exactly", "code"), ENDS)
def test_every_end_and_what_is_lent_after_it(once: bool, end: Any, plain: str, exactly: str, code: Any) -> None:
    @simulated(exactly_once=once)
    async def run(harness: ServicerHarness) -> None:
        stream = harness.bare()
        for kind in ("confirmed", "unconfirmed", "unsent"):
            await harness.put(kind)
            await asyncio.sleep(0.01)
        assert stream.data == ["confirmed", "unconfirmed", "unsent"]
        del stream.tokens[:2]
        confirmed = ids(stream.sent[0].received_messages)
        stream.receive(modify_deadline_ack_ids=confirmed, modify_deadline_seconds=[60])
        assert len(lent(harness)) == 3
        await end(harness, stream)
        await asyncio.sleep(0.3)
        kinds = ["confirmed", "unconfirmed", "unsent"]
        assert [kinds[offset] for offset in lent(harness)] == (exactly if once else plain).split()
        ends = ["not finished"] if not stream.finished else [one and one.code for one in stream.finished]
        assert ends == [code]

    run()


def lent(harness: ServicerHarness) -> list[int]:
    ranges = [one for _, _, found in harness.subscribe.lent() for one in found]
    return [offset for _, begin, stop in ranges for offset in range(begin, stop)]


@pytest.mark.parametrize("once", [False, True])
def test_a_seek_ends_all_that_is_lent(once: bool) -> None:
    @simulated(exactly_once=once)
    async def run(harness: ServicerHarness) -> None:
        stream = harness.bare()
        await harness.put("a", "b")
        await asyncio.sleep(0.01)
        stream.receive(modify_deadline_ack_ids=ids(stream.sent[0].received_messages), modify_deadline_seconds=[60, 60])
        await harness.call("Seek", subscription=SUB, time={"seconds": 1})
        await asyncio.sleep(0.3)
        assert stream.data == ["a", "b", "a", "b"]
        assert not stream.finished

    run()


@simulated()
async def test_a_half_close_is_answered_ok(harness: ServicerHarness) -> None:
    stream = await harness.stream()
    await harness.put("a")
    await stream.messages(1)
    await stream.raw.end()
    assert await stream.response() is None
    assert not harness.streams.streams
    assert [one.message.data for one in await harness.pull()] == [b"a"]  # nobody ever said to have received it


@simulated()
async def test_a_stream_that_breaks_off_gives_back_what_it_never_confirmed(harness: ServicerHarness) -> None:
    stream = await harness.stream()
    await harness.put("a", "b")
    got = await stream.messages(2)
    await stream.send(modify_deadline_ack_ids=[got[0].ack_id], modify_deadline_seconds=[10])
    stream.raw.cancel()
    begin = harness.clock.monotonic()
    again = await harness.pull()
    assert [one.message.data for one in again] == [b"b"]  # nobody ever said to have received it
    assert harness.clock.monotonic() - begin < 0.2
    await harness.call("Acknowledge", subscription=SUB, ack_ids=ids(again))
    assert [one.message.data for one in await harness.pull(timeout=None)] == [b"a"]
    assert harness.clock.monotonic() - begin == pytest.approx(10, abs=0.3)


@simulated()
async def test_a_half_close_before_the_first_message_is_an_error(harness: ServicerHarness) -> None:
    raw = harness.channel.stream("/google.pubsub.v1.Subscriber/StreamingPull")
    await raw.end()
    with pytest.raises(Exception, match="first message must set subscription"):
        await raw.receive()
    assert not harness.streams.streams


@pytest.mark.parametrize(
    ("method", "code"),
    [("DeleteSubscription", Code.NOT_FOUND), ("DetachSubscription", Code.FAILED_PRECONDITION)],
)
@simulated()
async def test_streams_end_with_their_subscription(harness: ServicerHarness, *, method: str, code: Code) -> None:
    streams = [await harness.stream() for _ in range(3)]
    await harness.put("a")
    await asyncio.sleep(0.1)
    await harness.call(method, subscription=SUB)
    for stream in streams:
        error = await stream.error()
        assert error.code is code
        assert SUB in error.message
    assert not harness.streams.streams


@simulated()
async def test_a_stream_ends_where_its_subscription_is_pushed_from_now_on(harness: ServicerHarness) -> None:
    stream = await harness.stream()
    assert await stream.silent(0.1)
    await harness.call("ModifyPushConfig", subscription=SUB, push_config={"push_endpoint": "https://push.example/x"})
    error = await stream.error()
    assert (error.code, error.message) == (
        Code.FAILED_PRECONDITION,
        f"Subscription is a push subscription: (resource={SUB}).",
    )


@simulated()
async def test_a_drain_sends_clients_elsewhere(harness: ServicerHarness) -> None:
    stream = harness.bare()
    assert stream.on_drain is not None
    stream.on_drain()
    (error,) = stream.finished
    assert error is not None
    assert error.code is Code.UNAVAILABLE
    assert not harness.streams.streams
    await harness.put("a")
    await asyncio.sleep(0.1)
    assert not stream.sent


@simulated()
async def test_what_was_never_sent_is_given_back_at_once(harness: ServicerHarness) -> None:
    stream = harness.bare()
    await harness.put("a")
    await asyncio.sleep(0.01)
    await harness.put("b")
    await asyncio.sleep(0.01)
    assert stream.data == ["a", "b"]
    stream.tokens.pop(0)  # the first response left, and arrived
    (first,) = ids(stream.sent[0].received_messages)
    stream.receive(modify_deadline_ack_ids=[first], modify_deadline_seconds=[10])
    stream.break_off()
    begin = harness.clock.monotonic()
    again = await harness.pull()
    assert [one.message.data for one in again] == [b"b"]
    assert harness.clock.monotonic() - begin < 0.2
    await harness.call("Acknowledge", subscription=SUB, ack_ids=ids(again))
    assert [one.message.data for one in await harness.pull(timeout=None)] == [b"a"]
    assert harness.clock.monotonic() - begin == pytest.approx(10, abs=0.3)


@simulated()
async def test_what_was_never_sent_before_an_end_is_given_back_too(harness: ServicerHarness) -> None:
    stream = harness.bare()
    await harness.put("a")
    await asyncio.sleep(0.01)
    assert stream.on_end is not None
    stream.on_end()
    stream.break_off()
    assert [one.message.data for one in await harness.pull(timeout=2.0)] == [b"a"]


@simulated(dead_letter=("projects/p/topics/dead", 5))
async def test_what_was_never_sent_counts_as_no_attempt(harness: ServicerHarness) -> None:
    await harness.put("a")
    for end in 3 * (break_off, half_close, err):
        stream = harness.bare()
        await asyncio.sleep(0.01)
        assert stream.data == ["a"]
        await end(harness, stream)
    assert [one.delivery_attempt for one in await harness.pull()] == [1]

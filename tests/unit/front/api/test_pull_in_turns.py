"""Streams to proxies that transform: one response at a time, and order behind a message that failed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from syncpoint.base.model.errors import Code
from syncpoint.catalog.metadata.records import CatalogChange
from syncpoint.testing.rigs.forwarder_harness import SUB
from syncpoint.testing.rigs.servicer_harness import HarnessStream, ServicerHarness, simulated
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import internal, pubsub


class Turns(HarnessStream):
    """The stream of a proxy."""

    async def send(self, **fields: Any) -> None:
        asked = pubsub.StreamingPullRequest(**fields).SerializeToString()
        await self.raw.send(internal.TurnRequest(request=asked).SerializeToString())

    async def done(self, **fields: Any) -> None:
        await self.raw.send(internal.TurnRequest(done=True, **fields).SerializeToString())

    async def one(self) -> Any:
        (received,) = (await self.response()).received_messages
        return received


async def opened(harness: ServicerHarness) -> Turns:
    stream = Turns(harness.channel.stream(methods.DELIVERIES.LendInTurns))
    await stream.send(subscription=SUB, stream_ack_deadline_seconds=60)
    return stream


@simulated(ordered=True)
async def test_nothing_is_lent_before_it_is_known_what_became_of_the_newest_response(harness: ServicerHarness) -> None:
    stream = await opened(harness)
    await harness.put("a", key="k")
    first = await stream.one()
    await harness.put("b", key="k")
    await harness.put("c", key="other")
    await stream.send()  # a keep-alive is no outcome
    assert await stream.silent()
    await stream.done(failed=[first.ack_id])
    got: list[Any] = []
    while len(got) < 3:
        got += (await stream.response()).received_messages
        await stream.done()
    assert [one.message.data for one in got if one.message.ordering_key == "k"] == [b"a", b"b"]
    assert first.ack_id not in {one.ack_id for one in got}


@simulated(ordered=True, dead_letter=("projects/p/topics/letters", 5))
async def test_only_what_failed_counts_as_an_attempt(harness: ServicerHarness) -> None:
    await harness.call("CreateTopic", name="projects/p/topics/letters")
    stream = await opened(harness)
    await harness.put("a", "b", key="k")
    for attempt in range(1, 4):
        received = await stream.messages(2)
        assert [one.delivery_attempt for one in received] == [attempt, 1]
        await stream.done(failed=[received[0].ack_id])
    received = await stream.messages(2)
    await stream.done(untried=[received[0].ack_id])
    assert [one.delivery_attempt for one in await stream.messages(2)] == [4, 1]


@simulated()
async def test_what_was_dropped_is_acknowledged(harness: ServicerHarness) -> None:
    stream = await opened(harness)
    await harness.put("a")
    await stream.done(dropped=[(await stream.one()).ack_id])
    await harness.put("b")
    assert (await stream.one()).message.data == b"b"
    assert harness.subscribe.outstanding()[0] == 1


@simulated()
async def test_what_is_no_turn_ends_the_stream(harness: ServicerHarness) -> None:
    stream = await opened(harness)
    await stream.done(failed=["nonsense"])
    assert (await stream.error()).code is Code.INVALID_ARGUMENT


@simulated(ordered=True)
async def test_who_asks_for_each_response_gets_more_of_a_key_before_the_first_is_acknowledged(
    harness: ServicerHarness,
) -> None:
    stream = Turns(harness.channel.stream(methods.DELIVERIES.LendInTurns))

    async def lend(messages: int) -> None:
        asked = internal.LendRequest(subscription=SUB, messages=messages, seconds=60)
        await stream.raw.send(internal.TurnRequest(lend=asked).SerializeToString())

    await harness.put("a", "b", "c", key="k")
    await lend(1)
    assert (await stream.one()).message.data == b"a"
    assert await stream.silent()
    await stream.done()  # is no request for more
    assert await stream.silent()
    await lend(2)
    assert [one.message.data for one in await stream.messages(2)] == [b"b", b"c"]
    assert harness.subscribe.outstanding()[0] == 3


class Lends(HarnessStream):
    """The stream of a proxy that forwards, and asks for each response."""

    async def ask(self, destination: bytes, messages: int = 10) -> None:
        lend = internal.LendRequest(subscription=SUB, messages=messages, seconds=60, destination=destination)
        await self.raw.send(internal.TurnRequest(lend=lend).SerializeToString())


@simulated()
async def test_nothing_is_lent_to_who_sends_it_elsewhere_than_is_known_here(harness: ServicerHarness) -> None:
    """The proxy's copy of the catalog is late: what it has goes where it was lent for, and more it gets by the newer
    one. Where the forwarder is late, it waits for that one.
    """

    def change(target: str) -> bytes:
        options = harness.record.options._replace(forward_to=f"projects/p/topics/{target}")
        change = CatalogChange.put(replace(harness.record, options=options))
        harness.commit(change)
        harness.subscribe.follow(change)
        return harness.record.destination

    def stream() -> Lends:
        return Lends(harness.channel.stream(methods.DELIVERIES.LendInTurns))

    first = change("a")
    proxy = stream()
    await proxy.ask(first)
    await harness.put("for a")
    (held,) = await proxy.messages(1)
    await proxy.ask(first)
    assert await proxy.silent()  # it has room by now
    second = change("b")
    assert not harness.subscribe.deliveries[harness.record.incarnation].consumers, "in the step in which it is known"
    await harness.put("for b")
    assert (await proxy.error()).code is Code.UNAVAILABLE
    late = stream()
    await late.ask(first)
    assert (await late.error()).code is Code.UNAVAILABLE
    for known in (second, b""):  # proxies of earlier versions do not say
        informed = stream()
        await informed.ask(known, messages=1)
        if known:
            (found,) = await informed.messages(1)
            assert found.message.data == b"for b"
    await harness.call("Acknowledge", subscription=SUB, ack_ids=[held.ack_id, found.ack_id])
    assert harness.subscribe.outstanding()[0] == 0


@simulated()
async def test_who_asks_for_each_response_keeps_what_it_was_sent_when_its_stream_breaks_off(
    harness: ServicerHarness,
) -> None:
    first, second = (Lends(harness.channel.stream(methods.DELIVERIES.LendInTurns)) for _ in range(2))
    await first.ask(b"")
    await harness.put("a")
    await first.messages(1)
    first.raw.cancel()
    await second.ask(b"")
    assert await second.silent(5), "it is still being pushed, forwarded or exported"

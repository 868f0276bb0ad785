"""Streams of one forwarder, old and new, in any order: only the newest counts, and a displaced one is notified."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

import pytest

from syncpoint.base.model.errors import Unavailable
from syncpoint.base.model.times import SESSION_S
from syncpoint.broker.publish.grants.sessions import Began, Sessions
from syncpoint.wire.protobuf.messages import internal
from syncpoint.wire.transport.stream_state import Message
from tests.kit.chain import SUB_NUMBER, ChainHarness, simulated
from tests.kit.chain_subscriber import Subscriber


class Stream(NamedTuple):
    incarnation: int
    registered: int
    stream: int

    def send(self, message: Message) -> None: ...


def test_streams_are_ordered_by_registration_and_number() -> None:
    sessions = Sessions()
    first, second = Stream(7, 50, 1), Stream(7, 50, 2)
    assert sessions.began(second, "s", 0.0) == Began(True)
    assert sessions.began(first, "s", 1.0) == Began(False)
    assert sessions.of(first) is None
    assert not sessions.lost(first, 1.0)
    assert sessions.of(second) is not None
    third = Stream(7, 50, 3)
    assert sessions.began(third, "s", 2.0) == Began(True, second)
    assert sessions.of(second) is None
    later_life = Stream(3, 60, 1)
    assert sessions.began(later_life, "s", 3.0) == Began(True, third, 7)
    assert sessions.began(Stream(7, 50, 9), "s", 4.0) == Began(False)
    assert [known.incarnation for known in sessions] == [3]


def test_nobody_has_precedence_for_ever() -> None:
    """The metadata of a cluster may have been restored: then revisions begin lower than before."""
    sessions = Sessions()
    sessions.began(Stream(7, 50, 1), "s", 0.0)
    assert not sessions.began(Stream(3, 10, 1), "s", SESSION_S - 1).taken
    assert sessions.began(Stream(3, 10, 1), "s", SESSION_S).over == 7
    held = Stream(8, 50, 1)
    sessions.began(held, "t", 0.0)
    assert sessions.lost(held, 1.0)
    assert sessions.forget_lost(SESSION_S) == []
    assert sessions.forget_lost(SESSION_S + 2) == [8]
    assert sessions.began(Stream(9, 10, 1), "t", SESSION_S + 2) == Began(True)


@simulated
async def test_late_words_of_an_older_stream_take_nothing_from_the_living_one(harness: ChainHarness) -> None:
    process = await harness.subscribed()
    await process.publish("first")
    old = await Subscriber(process, 11).start()
    await asyncio.sleep(0.1)
    new = await Subscriber(process, 11).attached()
    (source,) = new.granted
    assert await new.read(source) == ["first"]
    await old.attach()
    await old.send_message(wants=internal.Wants(subscription=SUB_NUMBER, wanted=False))
    await old.send_message(detach=internal.Detach(subscription=SUB_NUMBER))
    await asyncio.sleep(0.1)
    assert "displaced" in [kind for kind, _ in old.received]
    old.lose()
    new.data.clear()
    await process.publish("second")
    await asyncio.sleep(0.1)
    assert new.data == [source]
    assert await new.read(source, 1) == ["second"]


@simulated
async def test_a_late_hello_of_an_older_stream_or_life_is_reported_and_nothing_else(harness: ChainHarness) -> None:
    process = await harness.subscribed()
    await process.publish("first")
    dead, old = Subscriber(process, 5, "s11"), Subscriber(process, 11)
    new = await Subscriber(process, 11).attached()
    (source,) = new.granted
    await new.read(source)
    for late in (dead, old):
        await late.start()
        await late.attach()
        await asyncio.sleep(1.5)
        assert {kind for kind, _ in late.received} == {"displaced"}
        late.lose()
    new.data.clear()
    await process.publish("second")
    await asyncio.sleep(0.1)
    assert new.data == [source]
    assert [kind for kind, _ in new.received].count("heartbeat") >= 2


@simulated
async def test_words_of_a_forgotten_stream_are_answered_and_harm_nobody(harness: ChainHarness) -> None:
    process = await harness.subscribed()
    before = await Subscriber(process, 11, "s").attached()
    after = await Subscriber(process, 12, "s").start()
    await asyncio.sleep(0.1)
    await before.attach(1)
    await before.send_message(wants=internal.Wants(subscription=SUB_NUMBER, wanted=True))
    await before.send_message(detach=internal.Detach(subscription=SUB_NUMBER))
    await asyncio.sleep(1.5)
    assert [kind for kind, _ in before.received].count("displaced") >= 4
    assert not before.stream_ended
    await after.attach()
    await process.publish("a")
    await asyncio.sleep(0.1)
    assert await after.read_all() == ["a"]


@simulated
async def test_what_comes_while_nobody_is_there_to_be_reported_is_reported_later(harness: ChainHarness) -> None:
    process = harness.process()
    chain = await process.open()
    await harness.subscribe()
    await process.publish("a")
    holder = await Subscriber(process, 11).attached()
    (source,) = holder.granted
    await holder.read(source)
    session = chain.holders._sessions.pop(11)  # as between two streams
    holder.data.clear()
    await process.publish("b")
    await asyncio.sleep(0.1)
    assert holder.data == []
    chain.holders.on_connected(session)
    await process.publish("c")
    await asyncio.sleep(0.1)
    assert holder.data == [source]


@simulated
async def test_a_chain_that_can_not_follow_a_change_ends_and_confirms_nothing(
    harness: ChainHarness,
) -> None:
    process = harness.process()
    chain = await process.open()
    await harness.subscribe()
    await process.publish("a")

    def fails(change: object) -> None:
        raise RuntimeError("a bug")

    chain.follower.changed = fails
    revision = harness.update(generation=1)
    assert [number for number, _ in process.ended] == [1]
    with pytest.raises(Unavailable):
        await process.host.confirm(1, 1, revision)


@simulated
async def test_what_is_not_served_any_more_on_a_new_stream_goes_to_others(harness: ChainHarness) -> None:
    """A forwarder whose last subscriber left while it had no stream could not say so."""
    process = await harness.subscribed()
    await process.publish("a")
    before = await Subscriber(process, 11).attached()
    assert before.granted
    before.lose()
    again = await Subscriber(process, 11).start()
    await again.send_message(serves=internal.Serves(subscriptions=[]))
    other = await Subscriber(process, 12).attached()
    await asyncio.sleep(0.2)
    assert await other.read_all() == ["a"]

"""Messages to push, lent by subscribe forwarders to a proxy."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from syncpoint.model.errors import NotFound, Unavailable
from syncpoint.proxy.push_feeds import PushFeeds, RelayedFeed
from syncpoint.push.pusher import Lent
from syncpoint.wire.messages import pubsub
from tests.kit.proxy import ProxyHarness, ProxyProcess, SubscribeProcess, in_harness


class Pushing:
    """A proxy that has one subscription to push, and two forwarders."""

    async def start(self, harness: ProxyHarness, **options: Any) -> Pushing:
        self.one = await harness.start(SubscribeProcess, "s1")
        self.two = await harness.start(SubscribeProcess, "s2")
        harness.share(["s1"])
        self.process = await harness.start(ProxyProcess, "proxy", **options)
        await asyncio.sleep(0.1)
        self.held: list[Lent] = []
        self.gone = 0
        self.feeds = PushFeeds(self.process.proxy.relay)
        self.feed: RelayedFeed = self.feeds.open(
            harness.subscription, 15, self.received, self.ended, lambda: len(self.held)
        )
        return self

    def received(self, lent: Sequence[Lent]) -> None:
        self.held += lent

    def ended(self) -> None:
        self.gone += 1

    @property
    def data(self) -> list[bytes]:
        return [one.message.data for one in self.held]


def asked(one: SubscribeProcess) -> list[tuple[int, int]]:
    return [(call.messages, call.seconds) for call in one.calls if type(call).__name__ == "LendRequest"]


@in_harness()
async def test_as_much_is_asked_for_as_there_is_room(harness: ProxyHarness) -> None:
    push = await Pushing().start(harness)
    push.one.to_lend = [b"%d" % number for number in range(10)]
    push.feed.set_room(4)
    await asyncio.sleep(1)
    assert push.data == [b"0", b"1", b"2", b"3"]
    assert asked(push.one) == [(4, 15)]
    ended = [push.held.pop(0), push.held.pop(0)]
    push.feed.set_lease(25)
    push.feed.acknowledge([ended[0].ack_id])
    push.feed.refuse([ended[1].ack_id])
    await asyncio.sleep(1)
    assert push.data == [b"2", b"3", b"4", b"5"]
    assert asked(push.one) == [(4, 15), (2, 25)]
    back = [push.held.pop().ack_id]
    push.feed.set_room(0)
    push.feed.give_back(back)
    push.feed.extend([one.ack_id for one in push.held])
    await asyncio.sleep(1)
    found = [call for call in push.one.calls if type(call).__name__ != "LendRequest"]  # calls may overtake each other
    said = {(type(call).__name__, getattr(call, "ack_deadline_seconds", 0), *call.ack_ids) for call in found}
    assert said == {
        ("AcknowledgeRequest", 0, ended[0].ack_id),
        ("ModifyAckDeadlineRequest", 0, ended[1].ack_id),
        ("TakeBackRequest", 0, *back),
        ("ModifyAckDeadlineRequest", 25, *(one.ack_id for one in push.held)),
    }
    await push.feeds.close()


@in_harness()
async def test_another_forwarder_lends_when_one_dies_and_ack_ids_go_to_who_lent(harness: ProxyHarness) -> None:
    push = await Pushing().start(harness)
    push.one.to_lend, push.two.to_lend = [b"of one"], [b"of two"]
    push.feed.set_room(2)
    await asyncio.sleep(1)
    assert push.data == [b"of one"]
    harness.share(["s2"], epoch=2)
    push.one.process.hang()
    await asyncio.sleep(10)
    assert push.data == [b"of one", b"of two"]
    push.feed.acknowledge([push.held.pop().ack_id])
    await asyncio.sleep(1)
    assert [call.ack_ids for call in push.two.calls if isinstance(call, pubsub.AcknowledgeRequest)]
    await push.feeds.close()


@in_harness()
async def test_what_comes_too_late_is_given_back(harness: ProxyHarness) -> None:
    push = await Pushing().start(harness)
    push.one.to_lend = [b"late"]
    push.feed.set_room(1)
    while not push.one.calls:
        await asyncio.sleep(0.0001)
    push.feed.close()
    await asyncio.sleep(1)
    assert not push.held
    assert [type(call).__name__ for call in push.one.calls] == ["LendRequest", "TakeBackRequest"]
    await push.feeds.close()


@in_harness()
async def test_a_subscription_that_is_gone_ends_its_feed_and_what_is_only_unavailable_does_not(
    harness: ProxyHarness,
) -> None:
    push = await Pushing().start(harness)
    push.one.refuse = Unavailable("not now")
    push.two.refuse = Unavailable("not now")
    push.feed.set_room(1)
    await asyncio.sleep(60)
    assert not push.gone
    push.one.refuse = NotFound(harness.subscription.name)
    push.two.refuse = NotFound(harness.subscription.name)
    harness.delete(harness.subscription)
    await asyncio.sleep(60)
    assert push.gone == 1
    await push.feeds.close()


@in_harness()
async def test_sealed_data_is_opened(harness: ProxyHarness) -> None:
    push = await Pushing().start(harness, sealed=True)
    sealer = push.process.proxy.sealer
    request = pubsub.PublishRequest(topic="t", messages=[pubsub.PubsubMessage(data=b"secret")])
    sealed = await sealer.seal(harness.topic.incarnation, request.SerializeToString())
    push.one.to_lend = [pubsub.PublishRequest.FromString(sealed).messages[0].data]
    assert push.one.to_lend != [b"secret"]
    push.feed.set_room(1)
    await asyncio.sleep(1)
    assert push.data == [b"secret"]
    await push.feeds.close()

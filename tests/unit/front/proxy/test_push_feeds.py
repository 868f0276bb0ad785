"""Messages to push, lent by subscribe forwarders to a proxy."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from syncpoint.base.model.errors import NotFound, Unavailable
from syncpoint.broker.inner.feed import FeedTerms
from syncpoint.broker.inner.lent import Lent
from syncpoint.catalog.transforms.message_transforms import Outcome
from syncpoint.front.proxy.push_feeds import PushFeeds, RelayedFeed
from syncpoint.wire.protobuf.messages import pubsub
from tests.kit.proxy import SUBSCRIPTION, ProxyHarness, ProxyProcess, in_harness
from tests.kit.proxy_processes import SubscribeProcess
from tests.unit.front.proxy.test_transformed_streams import ANY, Played, with_config


class Pushing:
    """A proxy that has one subscription to push, and two forwarders."""

    async def start(self, harness: ProxyHarness, **options: Any) -> Pushing:
        self.one = await harness.start(SubscribeProcess, "s1")
        self.two = await harness.start(SubscribeProcess, "s2")
        harness.share(["s1"])
        self.process = await harness.start(ProxyProcess, "proxy", **options)
        await asyncio.sleep(0.1)
        self.held: list[Lent] = []
        self.gone = self.parted = 0
        self.feeds = PushFeeds(self.process.proxy.streams)
        record = harness.catalog.subscription(SUBSCRIPTION) or harness.subscription
        terms = FeedTerms(record, 15, self.received, self.ended, lambda: len(self.held), parted=self.part)
        self.feed: RelayedFeed = self.feeds.open(terms)
        return self

    def received(self, lent: Sequence[Lent]) -> None:
        self.held += lent

    def ended(self) -> None:
        self.gone += 1

    def part(self) -> None:
        self.parted += 1

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


@in_harness()
async def test_one_stream_lends_again_and_again(harness: ProxyHarness) -> None:
    push = await Pushing().start(harness)
    push.one.to_lend = [b"a", b"b", b"c"]
    for room in (1, 2, 3):
        push.feed.set_room(room)
        await asyncio.sleep(1)
        assert len(push.held) == room
    assert len(push.one.asking_streams) == 1
    push.feed.close()
    await push.feeds.close()


@in_harness()
async def test_what_transforms_leave_is_pushed_and_the_rest_said_before_more_is_asked_for(
    harness: ProxyHarness,
) -> None:
    with_config(harness, ANY)
    push = await Pushing().start(harness)
    push.process.proxy.relay.transformer = Played.of({})
    push.one.to_lend = [b"drop", b"a", b"fail", b"b"]
    push.feed.set_room(3)
    await asyncio.sleep(1)
    assert push.data == [b"a", b"b"]
    assert [(len(one.dropped), len(one.failed)) for one in push.one.outcomes] == [(1, 1), (0, 0)]
    assert asked(push.one) == [(3, 15), (2, 15), (1, 15)]
    assert len(push.one.calls) == 3, "what is said between responses would come too late"
    push.two.to_lend = [b"fail"]
    push.one.asking_streams[0].finish(Unavailable("gone"))
    await asyncio.sleep(1)
    assert [len(one.failed) for one in push.two.outcomes] == [1]
    assert push.parted == 1
    await push.feeds.close()


@in_harness()
async def test_what_comes_in_order_does_not_go_on_behind_what_was_refused(harness: ProxyHarness) -> None:
    with_config(harness, b"")
    push = await Pushing().start(harness)
    push.one.to_lend = [b"a"]
    push.feed.set_room(3)
    await asyncio.sleep(1)
    assert (push.data, push.parted) == ([b"a"], 0)
    push.feed.refuse([push.held.pop().ack_id])
    push.one.lend(b"behind it")  # on its way while the forwarder learns of the refusal
    await asyncio.sleep(1)
    assert (push.data, push.parted, len(push.one.asking_streams)) == ([], 1, 2)
    (back,) = [call for call in push.one.calls if type(call).__name__ == "TakeBackRequest"]
    assert len(back.ack_ids) == 1
    push.one.lend(b"a again")
    await asyncio.sleep(1)
    assert push.data == [b"a again"]
    await push.feeds.close()


@in_harness()
async def test_a_forwarder_that_is_suspected_is_left_at_once(harness: ProxyHarness) -> None:
    push = await Pushing().start(harness)
    push.feed.set_room(1)
    await asyncio.sleep(1)
    push.one.process.hang()
    push.two.to_lend = [b"of two"]
    began = asyncio.get_running_loop().time()
    while not push.held:
        await asyncio.sleep(0.05)
    assert asyncio.get_running_loop().time() - began < 3, "two pings that are not answered"
    push.held.clear()
    push.one.process.go_on()
    push.one.to_lend = [b"of one"]
    push.feed.set_room(2)
    await asyncio.sleep(10)
    assert push.data == [b"of one"]
    await push.feeds.close()


@in_harness()
async def test_ended_while_it_waits_for_keys_it_gives_back_what_it_was_lent(harness: ProxyHarness) -> None:
    push = await Pushing().start(harness, sealed=True)

    async def lost(response: bytes) -> bytes:
        raise Unavailable("no keys now")

    push.process.proxy.streams.sealer.open = lost
    push.one.to_lend = [b"a"]
    push.feed.set_room(1)
    await asyncio.sleep(1)
    push.feed.close()
    await push.feeds.close()
    await asyncio.sleep(1)
    assert not push.held
    assert [type(call).__name__ for call in push.one.calls] == ["LendRequest", "TakeBackRequest"]


@in_harness()
async def test_cut_off_while_functions_run_it_gives_back_what_it_was_lent(harness: ProxyHarness) -> None:
    with_config(harness, ANY)
    push = await Pushing().start(harness)

    class Slow(Played):
        async def apply(self, *asked: object, of: object = None) -> list[Outcome]:
            await asyncio.sleep(60)
            raise AssertionError("it is cut off")

    push.process.proxy.relay.transformer = Slow.of({})
    push.one.to_lend = [b"a"]
    push.feed.set_room(1)
    await asyncio.sleep(1)
    push.feed.close()
    await push.feeds.close()
    await asyncio.sleep(1)
    assert [type(call).__name__ for call in push.one.calls] == ["LendRequest", "TakeBackRequest"]

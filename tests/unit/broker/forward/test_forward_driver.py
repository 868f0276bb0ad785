"""Subscriptions that forward over both forwarders, in simulated time."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from syncpoint.base.model.errors import InvalidArgument, ResourceExhausted, SyncpointError, Unavailable
from syncpoint.base.model.reserved import FORWARD_COPIES, FORWARD_HOPS, FORWARDED_FROM
from syncpoint.broker.forward.forward_driver import LEASE_S, ForwardDriver, ForwardingProcess
from syncpoint.broker.forward.own_call import published
from syncpoint.broker.publish.facts.origin import PublishOrigin
from syncpoint.broker.publish.intake.seek import seek_to_time
from syncpoint.broker.subscribe import own_copies
from syncpoint.catalog.metadata.entity_options import NO_SUBSCRIPTION_OPTIONS, TopicOptions
from syncpoint.catalog.metadata.records import CatalogChange, DeadLetter, Subscription, Topic
from syncpoint.front.api.letter_moves import LetterMoves
from syncpoint.testing.rigs.forwarder_harness import SUB
from syncpoint.wire.protobuf.messages import pubsub
from syncpoint.wire.transport.calls import Call
from tests.kit.consuming import ConsumerHarness

pytestmark = pytest.mark.shows("forwarding")

TARGET, LETTERS = "projects/p/topics/archive", "projects/p/topics/letters"


class Harness(ConsumerHarness):
    """A subscription that forwards to a topic of the same log."""

    def __init__(self, *, made: bool = True, letters: bool = False, **options: Any) -> None:
        policy = DeadLetter(LETTERS, 5) if letters else None
        to = NO_SUBSCRIPTION_OPTIONS._replace(forward_to=TARGET)
        super().__init__(options=to, dead_letter=policy, **options)
        self.over_quota: SyncpointError | None = None
        self.charged = Counter[str]()  # bytes by topic
        self._read: dict[str, list[Any]] = {}
        self.failing: SyncpointError | None = None  # what a publish meets once it is persisted
        self.forwarders.commit(CatalogChange.put(Topic(6, LETTERS)))
        if made:
            self.forwarders.commit(CatalogChange.put(Topic(5, TARGET)))
        moves = LetterMoves(self.forwarders.subscribe)
        self.read(LETTERS)
        if made:
            self.read(TARGET)
        process = ForwardingProcess(
            self.consuming(), self.publish, lambda record, asked: moves.move(asked), self.charge
        )
        self.driver = ForwardDriver(process)

    def charge(self, topic: str, size: int) -> None:
        if self.over_quota is not None:
            raise self.over_quota
        self.charged[topic] += size

    async def publish(self, request: bytes) -> bytes:
        forwarder = self.forwarders.publish

        def take(call: Call, asked: bytes) -> None:
            forwarder.intake.publish_request(call, asked, PublishOrigin.FORWARD)

        answer = await published(take, request)
        if self.failing is not None:
            raise self.failing
        return answer

    def stored(self, topic: str = TARGET) -> list[pubsub.PubsubMessage]:
        """What was published to a topic since `read`."""
        return [one.message for one in self._read[topic]]

    def read(self, topic: str) -> None:
        """Begin to receive what is published to a topic."""
        record, found = self.catalog.topic(topic), list[Any]()
        assert record is not None
        self._read[topic] = found
        subscription = Subscription(20 + record.incarnation, f"projects/p/subscriptions/of-{record.incarnation}",
                                    record.incarnation, topic, ordered=True)  # fmt: skip
        self.forwarders.commit(CatalogChange.put(subscription))

        def take(parts: Sequence[bytes], serials: Sequence[int]) -> None:
            found.extend(pubsub.PullResponse.FromString(b"".join(parts)).received_messages)

        self.forwarders.subscribe.join(
            subscription, take, max_messages=10_000, max_bytes=1 << 30, deadline_s=600, gone=lambda: None
        )

    def data(self, topic: str = TARGET) -> list[str]:
        return [one.data.decode() for one in self.stored(topic)]

    def last_error(self) -> str:
        state = self.driver.state(2)
        assert state is not None
        return state.last_error


def test_messages_are_published_again_and_gone() -> None:
    harness = Harness(ordered=True)

    async def story() -> None:
        harness.forwarders.send("a", "b", key="k", own="kept")
        harness.forwarders.send("c")
        await asyncio.sleep(2)
        assert sorted(harness.data()) == ["a", "b", "c"]
        first = harness.stored()[0]
        assert first.attributes["own"] == "kept"
        assert first.attributes[FORWARD_HOPS] == "1"
        assert first.attributes[FORWARDED_FROM].startswith("2.0/")
        assert harness.forwarders.subscribe.outstanding()[0] == 3, "those that were received there"
        assert harness.driver.totals()["forwarded_messages"] == 3

    harness.run(story())


def test_what_is_stored_without_an_answer_is_stored_once_and_in_order() -> None:
    harness = Harness(ordered=True)

    async def story() -> None:
        harness.failing = Unavailable("The messages may or may not be stored.")
        harness.forwarders.send(*"abc", key="k")
        await asyncio.sleep(1)
        assert harness.data() == ["a", "b", "c"]
        assert harness.last_error() == "The messages may or may not be stored."
        harness.forwarders.send(*"de", key="k")
        await asyncio.sleep(30)
        harness.failing = None
        await asyncio.sleep(60)
        assert harness.data() == ["a", "b", "c", "d", "e"]
        assert harness.last_error() == ""
        assert harness.forwarders.leases.table.total()[0] == 0

    harness.run(story())


def test_what_a_seek_brings_back_is_forwarded_again_before_the_driver_learns_of_the_seek() -> None:
    harness = Harness(retain_acked=True)

    async def story() -> None:
        harness.forwarders.send(*"abc")
        await asyncio.sleep(2)
        for round_ in (2, 3, 4):
            seek_to_time(harness.forwarders.publish, harness.forwarders.record, 0, None)
            harness.forwarders.quiesce()
            await asyncio.sleep(2)
            assert sorted(harness.data()) == sorted("abc" * round_)
        assert harness.driver.ours[2].record.generation == 0, "its record is as it was"

    harness.run(story())


def test_after_a_change_of_the_target_nothing_goes_to_the_earlier_one() -> None:
    harness = Harness(ordered=True)
    publish, began = harness.publish, list[str]()

    async def slow(request: bytes) -> bytes:
        began.append(pubsub.PublishRequest.FromString(request).topic)
        await asyncio.sleep(0.5)
        return await publish(request)

    harness.driver.forwarding = replace(harness.driver.forwarding, publish=slow)

    async def story() -> None:
        harness.forwarders.send("a", key="k")
        await asyncio.sleep(1.2)
        harness.forwarders.send("b", key="k")
        await asyncio.sleep(0.1)
        harness.forwarders.send("c", key="k")  # lent, behind b
        await asyncio.sleep(0.1)
        to = replace(harness.forwarders.record, options=NO_SUBSCRIPTION_OPTIONS._replace(forward_to=LETTERS))
        harness.change(CatalogChange.put(to))
        assert began == [TARGET, TARGET]
        harness.forwarders.send("d", key="l")  # nothing of its key is under way: it could go at once
        await asyncio.sleep(10)
        assert harness.data() == ["a", "b"], "what was under way goes where it was lent for"
        assert sorted(harness.data(LETTERS)) == ["c", "d"]

    harness.run(story())


def test_messages_wait_while_the_target_does_not_take_them() -> None:
    harness = Harness(made=False)

    async def story() -> None:
        harness.forwarders.send("a")
        await asyncio.sleep(3)
        assert harness.last_error() == (
            f"Messages wait because the topic {TARGET}, which the subscription forwards to, does not exist."
        )
        made = Topic(5, TARGET, options=TopicOptions(send_suspended=True))
        harness.forwarders.commit(CatalogChange.put(made))
        harness.read(TARGET)
        await asyncio.sleep(3)
        assert "is suspended for sending" in harness.last_error()
        harness.refusal = "somebody may not"
        harness.forwarders.commit(CatalogChange.put(replace(made, options=TopicOptions())))
        await asyncio.sleep(3)
        assert harness.last_error() == "somebody may not"
        assert harness.data() == []
        harness.refusal = ""
        await asyncio.sleep(3)
        assert harness.data() == ["a"]

    harness.run(story())


def test_forwards_count_in_the_quota_of_their_target_and_wait_for_it() -> None:
    harness = Harness()

    async def story() -> None:
        harness.over_quota = ResourceExhausted("Quota exceeded.")
        harness.forwarders.send("a" * 100)
        await asyncio.sleep(30)
        assert (harness.data(), harness.last_error()) == ([], "Quota exceeded.")
        harness.over_quota = None
        await asyncio.sleep(60)
        assert harness.data() == ["a" * 100]
        assert harness.charged.keys() == {TARGET}
        assert harness.charged[TARGET] > 100

    harness.run(story())


def test_the_fifth_hop_is_a_letter() -> None:
    harness = Harness(letters=True)

    async def story() -> None:
        harness.forwarders.send("far", **{FORWARD_HOPS: "4"})
        harness.forwarders.send("near", **{FORWARD_HOPS: "3"})
        await asyncio.sleep(3)
        assert harness.data() == ["near"]
        (letter,) = harness.stored(LETTERS)
        assert letter.data == b"far"
        assert letter.attributes["sys.DeadLetterReason"] == "MaxTransferHopCountExceeded"
        assert harness.driver.totals()["forwards_given_up"] == 1

    harness.run(story())


def test_without_a_dead_letter_topic_it_waits_and_says_why() -> None:
    harness = Harness()

    async def story() -> None:
        harness.forwarders.send("far", **{FORWARD_HOPS: "4"})
        await asyncio.sleep(3)
        assert "MaxTransferHopCountExceeded" in harness.last_error()
        assert "Set a dead-letter topic on the subscription" in harness.last_error()
        harness.forwarders.send("near")
        await asyncio.sleep(3)
        assert harness.data() == ["near"]
        assert "MaxTransferHopCountExceeded" in harness.last_error(), "what passes says nothing of what waits"
        policy = DeadLetter(LETTERS, 5)
        harness.forwarders.commit(CatalogChange.put(replace(harness.forwarders.record, dead_letter=policy)))
        await asyncio.sleep(60)
        assert harness.data(LETTERS) == ["far"]
        assert harness.last_error() == ""

    harness.run(story())


def test_one_that_the_target_never_takes_is_a_letter_and_its_neighbours_pass() -> None:
    harness = Harness(letters=True, ordered=True)
    publish = harness.publish

    async def picky(request: bytes) -> bytes:
        if any(one.data == b"never" for one in pubsub.PublishRequest.FromString(request).messages):
            raise InvalidArgument("messages[0]", "no")
        return await publish(request)

    harness.driver.forwarding = replace(harness.driver.forwarding, publish=picky)

    async def story() -> None:
        harness.forwarders.send("a", "never", "b", key="k")
        await asyncio.sleep(3)
        assert harness.data() == ["a", "b"]
        (letter,) = harness.stored(LETTERS)
        assert letter.attributes["sys.DeadLetterReason"] == "ForwardingRefused"
        assert letter.attributes["sys.DeadLetterErrorDescription"] == "messages[0]: no"

    harness.run(story())


def test_an_error_that_nobody_thought_of_loses_nothing_and_is_named() -> None:
    harness = Harness()
    publish, broken = harness.publish, True

    async def breaks(request: bytes) -> bytes:
        if broken:
            raise ZeroDivisionError
        return await publish(request)

    harness.driver.forwarding = replace(harness.driver.forwarding, publish=breaks)

    async def story() -> None:
        nonlocal broken
        harness.forwarders.send("a")
        await asyncio.sleep(2)
        assert harness.data() == []
        assert harness.last_error().startswith("Forwarding failed: ZeroDivisionError")
        broken = False
        await asyncio.sleep(60)
        assert harness.data() == ["a"]

    harness.run(story())


def test_it_ends_when_the_subscription_forwards_no_more() -> None:
    harness = Harness()

    async def story() -> None:
        harness.forwarders.send("a")
        await asyncio.sleep(2)
        plain = replace(harness.forwarders.record, options=NO_SUBSCRIPTION_OPTIONS)
        for one in list(harness.on_change):
            one(CatalogChange.put(plain))
        harness.forwarders.commit(CatalogChange.put(plain))
        harness.forwarders.send("b")
        await asyncio.sleep(2)
        assert harness.data() == ["a"]
        assert harness.driver.state(2) is None
        assert 2 not in harness.forwarders.subscribe.deliveries, "nobody receives from it"

    harness.run(story())


@pytest.mark.parametrize("letters", [False, True])
def test_what_would_become_too_many_waits_until_fewer_forward(letters: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_copies, "COPIES_MAX", 2)
    harness = Harness(letters=letters)
    others = [replace(harness.forwarders.record, incarnation=number, name=f"{SUB}-{number}") for number in (50, 51)]
    harness.forwarders.commit(*map(CatalogChange.put, others))

    async def story() -> None:
        harness.forwarders.send("a")
        await asyncio.sleep(3)
        assert harness.last_error().startswith("A message waits (MaxForwardCopiesExceeded): The server makes at most")
        await asyncio.sleep(10 * LEASE_S)  # it is lent to the server more often than its attempts before a letter
        assert (harness.data(), harness.data(LETTERS)) == ([], [])
        harness.forwarders.commit(CatalogChange.delete(others[0]))
        await asyncio.sleep(3 * LEASE_S)
        assert (harness.data(), harness.data(LETTERS)) == (([], ["a", "a"]) if letters else (["a", "a"], []))
        copies = harness.stored(LETTERS if letters else TARGET)
        assert [one.attributes[FORWARD_COPIES] for one in copies] == ["0", "0"]

    harness.run(story())

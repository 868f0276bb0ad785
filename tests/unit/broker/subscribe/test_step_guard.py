"""Steps that fail in their middle: only what they were about begins anew, and nothing of it is left undone."""

import asyncio
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from syncpoint.base.kernel.errors import BadAckId
from syncpoint.broker.publish.keep.backlog import unacknowledged
from syncpoint.broker.subscribe.confirm import Confirmation
from syncpoint.broker.subscribe.delivery import Delivery
from syncpoint.broker.subscribe.fetch import FetchCursor
from syncpoint.broker.subscribe.lease import LeaseManager
from syncpoint.broker.subscribe.lease_batches import BatchLeasing
from syncpoint.broker.subscribe.step_guard import EVERYTHING
from syncpoint.catalog.metadata.records import CatalogChange, Subscription
from syncpoint.testing.rigs.forwarder_harness import SUB, TOPIC, ForwarderHarness, Subscriber
from syncpoint.wire.protobuf.messages import pubsub
from tests.kit.chain import SUB_NUMBER
from tests.kit.loops import in_simulated_time
from tests.kit.subscribers import Client, SubscribeHarness

OTHER = "projects/p/subscriptions/other"


def fails_once(
    patched: pytest.MonkeyPatch, owner: type, name: str, of: Callable[[Any], bool] = lambda it: True
) -> None:
    """The next call of this method fails, of an object that is meant."""
    right = getattr(owner, name)

    def fails(self: Any, *args: Any, **named: Any) -> Any:
        if of(self):
            patched.setattr(owner, name, right)
            raise MemoryError
        return right(self, *args, **named)

    patched.setattr(owner, name, fails)


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (FetchCursor, "received"),
        (Delivery, "on_sources"),
        (Delivery, "on_data"),
        (BatchLeasing, "lease"),
        (FetchCursor, "named"),
    ],
)
@in_simulated_time
async def test_what_fails_while_a_chain_is_followed_begins_its_subscription_anew_and_no_stream(
    *, owner: type, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = await SubscribeHarness.start(processes=1, chains=1)
    client = Client(harness, harness.forwarder("a"))
    await harness.publish("first")
    await asyncio.sleep(1)
    client.ack(next(iter(client.held)))
    fails_once(monkeypatch, owner, name)
    harness.chains.assign(1)  # so that the source is sealed and another one begins
    await harness.publish("m")
    for _ in range(100):
        if client.forwarder.gatherer.guard.failures:
            break
        await asyncio.sleep(0.005)
    assert client.forwarder.gatherer.guard.doubted == {SUB_NUMBER}
    await asyncio.sleep(2)
    assert client.data.count("m") >= 1
    assert len(harness.hellos) == 1


@pytest.mark.parametrize("exactly_once", [False, True])
@in_simulated_time
async def test_who_waits_for_an_acknowledgement_is_answered_where_taking_its_answer_fails(
    *, exactly_once: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = await SubscribeHarness.start(processes=1, chains=1, exactly_once=exactly_once)
    client = Client(harness, harness.forwarder("a"))
    await harness.publish("m")
    await asyncio.sleep(1)
    fails_once(monkeypatch, Confirmation, "persisted")
    client.ack(next(iter(client.held)))
    await asyncio.sleep(0.05)
    assert (harness.confirmed, client.unknown) == ([], [])
    await asyncio.sleep(6)
    assert (harness.confirmed, client.unknown) == ([], ["m"]) if exactly_once else (["m"], [])
    assert harness.all_done


class Two(ForwarderHarness):
    """A second subscription, with a subscriber."""

    def __init__(self, **options: bool) -> None:
        super().__init__(**options)
        self.commit(CatalogChange.put(Subscription(3, OTHER, 1, TOPIC)))
        self.others: list[str] = []
        other = self.publish.catalog.subscription(OTHER)
        assert other is not None
        self.other = other
        self.subscribe.join(
            other, self._take, max_messages=100, max_bytes=1 << 30, deadline_s=600, gone=lambda: None
        )  # fmt: skip

    def _take(self, parts: Any, serials: Any) -> None:
        for one in pubsub.PullResponse.FromString(b"".join(parts)).received_messages:
            self.others.append(one.message.data.decode())


@pytest.mark.parametrize(("owner", "name"), [(FetchCursor, "received"), (Delivery, "on_data"), (Delivery, "_look")])
def test_what_fails_for_one_subscription_begins_no_other_anew(
    owner: type, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = Two()
    subscriber = Subscriber(harness)
    harness.quiesce()
    mine = harness.subscribe.delivery(harness.record)
    fails_once(monkeypatch, owner, name, lambda it: it is mine or it in mine.reader.sources._cursors.values())
    caller = harness.send("a")
    assert caller.ids
    assert harness.subscribe.guard.doubted == {harness.record.incarnation}
    harness.advance(3)
    assert "a" in subscriber.data
    assert harness.others == ["a"], "what is lent there stands"
    assert harness.subscribe.delivery(harness.other).table.total()[0] == 1


def test_a_nack_that_fails_in_its_middle_is_reported_and_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = Two()
    subscriber = Subscriber(harness)
    harness.send("a")
    fails_once(monkeypatch, LeaseManager, "came_back")
    request = pubsub.ModifyAckDeadlineRequest(subscription=SUB, ack_ids=list(subscriber.held)).SerializeToString()
    with pytest.raises(MemoryError):
        harness.subscribe.modify(harness.record, request, 4, 0)
    harness.advance(0.2)
    assert subscriber.data == ["a", "a"]
    request = pubsub.AcknowledgeRequest(subscription=SUB, ack_ids=[*subscriber.held][-1:]).SerializeToString()
    harness.subscribe.acknowledge(harness.record, request, 2, None)
    harness.advance(0.2)
    assert unacknowledged(harness.publish, harness.record) == 0


@pytest.mark.parametrize(("owner", "name"), [(Delivery, "_want"), (Delivery, "start")])
def test_a_subscriber_whose_coming_fails_is_not_there_and_the_next_one_is_served(
    owner: type, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = ForwarderHarness()
    fails_once(monkeypatch, owner, name)
    with pytest.raises(MemoryError):
        Subscriber(harness)
    harness.quiesce()
    assert not any(delivery.consumers for delivery in harness.subscribe.deliveries.values())
    subscriber = Subscriber(harness)
    harness.send("a")
    harness.advance(0.2)
    assert set(subscriber.data) == {"a"}


def test_a_request_that_is_refused_begins_nothing_anew() -> None:
    harness = Two()
    Subscriber(harness)
    request = pubsub.AcknowledgeRequest(subscription=SUB, ack_ids=["forged"]).SerializeToString()
    with pytest.raises(BadAckId):
        harness.subscribe.acknowledge(harness.record, request, 2, None)
    assert harness.subscribe.guard.doubted == set()


def test_one_that_goes_on_failing_keeps_no_other_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = Two()
    subscriber = Subscriber(harness)
    other = harness.subscribe.delivery(harness.other)

    def fails(now: float) -> None:
        raise AssertionError("a bug")

    other.review = fails  # type: ignore[method-assign]
    harness.advance(20)
    fails_once(
        monkeypatch,
        FetchCursor,
        "received",
        lambda it: it in harness.subscribe.delivery(harness.record).reader.sources._cursors.values(),
    )
    harness.send("a")
    harness.advance(0.3)
    assert subscriber.data == ["a"]


@pytest.mark.parametrize("options", [{}, {"ordered": True}, {"exactly_once": True}])
def test_nothing_that_must_not_be_with_two_is_lent_before_it_is_begun_anew(options: dict[str, bool]) -> None:
    harness = ForwarderHarness(**options)
    subscriber = Subscriber(harness)
    harness.send("a", key="k")
    harness.subscribe.guard.run(fails, harness.record.incarnation)
    harness.send("b", key="k")
    assert subscriber.data == (["a"] if options else ["a", "b"])
    harness.advance(0.2)
    assert subscriber.data[-2:] == ["a", "b"]


def fails() -> None:
    raise MemoryError


@in_simulated_time
async def test_one_failing_step_does_not_end_heartbeats_or_the_others() -> None:
    _, client, _ = await SubscribeHarness.leasing(deadline_s=2)

    def fails(*_: object) -> None:
        raise AssertionError("a bug")

    gatherer, subscribe = client.forwarder.gatherer, client.forwarder.subscribe
    gatherer._refused.append((SUB_NUMBER, fails))
    gatherer._ask_again = fails  # type: ignore[method-assign]
    subscribe.deliveries[-1] = object()  # type: ignore[assignment]
    await asyncio.sleep(10)
    assert all(peer.up for peer in gatherer.peers.values())
    assert client.data.count("m") > 1, "its deadline is checked all the same"
    assert -1 not in subscribe.deliveries
    assert gatherer.guard.failures > 3


@pytest.mark.parametrize("exactly_once", [False, True])
@in_simulated_time
async def test_what_a_step_that_failed_in_its_middle_left_undone_is_delivered_again(*, exactly_once: bool) -> None:
    harness, client, _ = await SubscribeHarness.leasing(deadline_s=2, exactly_once=exactly_once)
    subscribe = client.forwarder.subscribe
    leases = subscribe.delivery(harness.record).leases

    def fails(*_: object, **__: object) -> None:
        raise MemoryError

    leases.came_back = fails  # type: ignore[method-assign]
    await asyncio.sleep(10)
    assert (subscribe.guard.failures, client.data.count("m") > 1) == (1, True)


@in_simulated_time
async def test_what_goes_on_failing_is_begun_anew_ever_more_seldom() -> None:
    harness, client, _ = await SubscribeHarness.leasing()
    subscribe = client.forwarder.subscribe
    delivery = subscribe.delivery(harness.record)
    begun: list[float] = []

    def fails(now: float) -> None:
        raise AssertionError("a bug")

    delivery.review = fails  # type: ignore[method-assign]
    delivery.begin_anew = lambda: begun.append(harness.clock.monotonic())  # type: ignore[method-assign]
    await asyncio.sleep(40)
    waits = [later - earlier for earlier, later in pairwise(begun)]
    assert 1 < len(begun) <= 7
    assert waits == sorted(waits)


@pytest.mark.parametrize("about", [EVERYTHING, SUB_NUMBER])
@in_simulated_time
async def test_however_long_steps_failed_delivery_goes_on_soon_after_the_last_one(*, about: int) -> None:
    harness, client, _ = await SubscribeHarness.leasing(exactly_once=True)
    guard = client.forwarder.subscribe.guard

    def fails() -> None:
        raise MemoryError

    for _ in range(35):
        guard.run(fails, about)
        await asyncio.sleep(1)
    client.data.clear()
    await harness.publish("n")
    await asyncio.sleep(12)
    assert "n" in client.data


@in_simulated_time
async def test_what_is_begun_anew_with_all_the_others_is_not_begun_anew_again_for_a_step_before() -> None:
    harness, client, _ = await SubscribeHarness.leasing()
    subscribe = client.forwarder.subscribe
    begun: list[float] = []
    subscribe.delivery(harness.record).begin_anew = lambda: begun.append(0)  # type: ignore[method-assign]

    def fails() -> None:
        raise MemoryError

    subscribe.guard.run(fails, SUB_NUMBER)
    await asyncio.sleep(0.5)
    assert len(begun) == 1
    subscribe.guard.run(fails, SUB_NUMBER)
    subscribe.guard.run(fails)
    await asyncio.sleep(20)
    assert len(begun) == 2
    assert not subscribe.guard.doubted

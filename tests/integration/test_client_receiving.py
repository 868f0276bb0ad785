"""Subscribers of `syncpoint.client` and a server: each form of receiving, leases, exactly once, kills."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import aclosing
from itertools import islice

import pytest

from syncpoint.client import (
    AcknowledgeError,
    AcknowledgeStatus,
    AsyncSubscriber,
    Code,
    FlowControl,
    Message,
    Publisher,
    Subscriber,
    SyncpointError,
)
from syncpoint.testing.rigs.official import eventually
from syncpoint.testing.server_process import ServerProcess
from tests.integration.conftest import Space

pytestmark = pytest.mark.shows("client")

BODIES = [b"%d" % n for n in range(500)]


@pytest.fixture
def subscriber(space: Space) -> Iterator[Subscriber]:
    with Subscriber(space.endpoint) as made:
        yield made


def left(space: Space, subscription: str) -> int:
    """How many messages are neither acknowledged nor lent."""
    return len(space.peek(subscription))


def test_a_message_is_received_with_all_that_it_has(space: Space, subscriber: Subscriber) -> None:
    topic, subscription = space.pair()
    (published,) = space.publish(topic, b"data", key="k", attributes={"color": "red"})
    message = next(subscriber.messages(subscription))
    assert (message.data, message.ordering_key, dict(message.attributes)) == (b"data", "k", {"color": "red"})
    assert (message.message_id, message.delivery_attempt) == (published, None)
    assert abs(message.publish_time.timestamp() - time.time()) < 60
    assert message.size > 4
    assert published in repr(message)
    message.ack()
    eventually(lambda: not left(space, subscription))


def test_messages_batches_and_callbacks_receive_everything_once(space: Space, subscriber: Subscriber) -> None:
    topic = space.topic()
    names = [space.subscription(topic, short) for short in ("one", "two", "three")]
    space.publish(topic, *BODIES)
    found = []
    for message in islice(subscriber.messages(names[0]), len(BODIES)):
        found.append(message.data)
        message.ack()
    assert sorted(found) == sorted(BODIES)
    found = []
    for batch in subscriber.batches(names[1]):
        found += batch.data
        assert [one.data for one in batch] == batch.data
        batch.ack()
        if len(found) >= len(BODIES):
            break
    assert sorted(found) == sorted(BODIES)
    called: list[bytes] = []

    def callback(message: Message) -> None:
        called.append(message.data)
        message.ack()

    future = subscriber.subscribe(names[2], callback)
    eventually(lambda: len(called) >= len(BODIES))
    assert future.cancel()
    future.result(20)
    assert not future.cancel()
    assert sorted(called) == sorted(BODIES)
    assert [left(space, name) for name in names] == [0, 0, 0]


def test_coroutines_receive_in_each_form(space: Space) -> None:
    topic = space.topic()
    names = [space.subscription(topic, short) for short in ("one", "two", "three")]
    space.publish(topic, *BODIES)

    async def work() -> list[list[bytes]]:
        one, two, three = [], [], []
        async with AsyncSubscriber(space.endpoint) as subscriber:
            async with aclosing(subscriber.messages(names[0])) as messages:  # type: ignore[type-var]
                async for message in messages:
                    one.append(message.data)
                    message.ack()
                    if len(one) >= len(BODIES):
                        break
            async with aclosing(subscriber.batches(names[1])) as batches:  # type: ignore[type-var]
                async for batch in batches:
                    two += batch.data
                    batch.ack()
                    if len(two) >= len(BODIES):
                        break

            async def callback(message: Message) -> None:
                if len(three) == 3:
                    three.append(b"again")
                    raise ValueError("comes again")
                three.append(message.data)
                message.ack()

            task = asyncio.create_task(subscriber.subscribe(names[2], callback))
            while len(three) < len(BODIES) + 1:
                await asyncio.sleep(0.01)
            task.cancel()
        return [one, two, three]

    one, two, three = asyncio.run(work())
    assert sorted(one) == sorted(two) == sorted(BODIES)
    assert sorted(three) == sorted([*BODIES, b"again"])
    assert [left(space, name) for name in names] == [0, 0, 0]


def test_what_is_given_back_comes_again_and_what_a_callback_fails_at_does(space: Space, subscriber: Subscriber) -> None:
    topic, subscription = space.pair()
    space.publish(topic, b"a", b"b")
    seen: Counter[bytes] = Counter()

    def callback(message: Message) -> None:
        seen[message.data] += 1
        if seen[message.data] == 1:
            if message.data == b"a":
                message.nack()
                return
            raise ValueError("not this time")
        message.ack()

    future = subscriber.subscribe(subscription, callback)
    eventually(lambda: seen == {b"a": 2, b"b": 2})
    future.cancel()
    future.result(20)
    assert left(space, subscription) == 0


def test_what_was_not_handed_out_is_given_back_at_once(space: Space, subscriber: Subscriber) -> None:
    topic, subscription = space.pair(ack_deadline_seconds=600)
    space.publish(topic, *BODIES)
    for message in subscriber.messages(subscription):
        message.ack()
        break
    eventually(lambda: left(space, subscription) == len(BODIES) - 1)


def test_leases_are_extended_while_a_message_is_handled(space: Space) -> None:
    topic, subscription = space.pair(ack_deadline_seconds=10)
    space.publish(topic, b"slow")
    with Subscriber(space.endpoint, flow_control=FlowControl(lease_duration=10)) as subscriber:
        message = next(iterator := subscriber.messages(subscription))
        end = time.monotonic() + 13
        while time.monotonic() < end:
            assert left(space, subscription) == 0
            time.sleep(0.5)
        message.ack()
        del iterator
    assert left(space, subscription) == 0


def test_no_more_is_held_than_wished_for(space: Space) -> None:
    topic, subscription = space.pair()
    space.publish(topic, *BODIES[:20])
    with Subscriber(space.endpoint, flow_control=FlowControl(max_messages=3)) as subscriber:
        messages = subscriber.messages(subscription)
        for _ in range(3):
            held = [next(messages) for _ in range(3)]
            eventually(lambda: space.asked("GetSubscriptionState", subscription=subscription).outstanding_messages == 3)
            for one in held:
                one.ack()


def test_keys_are_handled_in_order_by_many_threads(space: Space, subscriber: Subscriber) -> None:
    topic, subscription = space.pair(enable_message_ordering=True)
    with Publisher(space.endpoint) as publisher:
        for number in range(100):
            for key in ("a", "b", "c"):
                publisher.publish(topic, b"%d" % number, ordering_key=key)
    found: dict[str, list[int]] = {"a": [], "b": [], "c": []}
    running: Counter[str] = Counter()
    most: Counter[str] = Counter()

    def callback(message: Message) -> None:
        key = message.ordering_key
        running[key] += 1
        most[key] = max(most[key], running[key])
        time.sleep(0.0005)
        found[key].append(int(message.data))
        running[key] -= 1
        message.ack()

    future = subscriber.subscribe(subscription, callback)
    eventually(lambda: sum(map(len, found.values())) >= 300)
    future.cancel()
    future.result(20)
    assert found == {key: list(range(100)) for key in "abc"}
    assert set(most.values()) == {1}


def test_an_acknowledgement_of_exactly_once_is_confirmed_or_refused(space: Space, subscriber: Subscriber) -> None:
    topic, subscription = space.pair(enable_exactly_once_delivery=True)
    space.publish(topic, b"a", b"b")
    got = []
    for message in subscriber.messages(subscription):
        got.append(message)
        if len(got) == 2:
            first, second = got
            assert first.ack_with_response().result(20) is AcknowledgeStatus.SUCCESS
            space.api.seek({"subscription": subscription, "time": "2100-01-01T00:00:00Z"})
            with pytest.raises(AcknowledgeError) as caught:
                second.ack_with_response().result(20)
            assert caught.value.error_code is AcknowledgeStatus.INVALID_ACK_ID
            break


def test_a_refusal_that_lasts_ends_receiving_with_the_servers_word(space: Space, subscriber: Subscriber) -> None:
    nowhere = space.path("subscriptions", "nowhere")
    with pytest.raises(SyncpointError) as caught:
        next(subscriber.messages(nowhere))
    assert caught.value.code is Code.NOT_FOUND
    with pytest.raises(SyncpointError):
        subscriber.subscribe(nowhere, lambda message: None).result(20)

    async def work() -> None:
        async with AsyncSubscriber(space.endpoint) as other:
            await other.subscribe(nowhere, lambda message: asyncio.sleep(0))

    with pytest.raises(SyncpointError):
        asyncio.run(work())


def test_receiving_goes_on_over_kills_and_what_was_confirmed_does_not_come_again(
    boot: Callable[..., ServerProcess], enter: Callable[[str], Space]
) -> None:
    server = boot()
    space = enter(server.endpoint)
    topic, subscription = space.pair(enable_exactly_once_delivery=True)
    total, confirmed, again, unknown = 3_000, Counter[str](), [], set()
    lock = threading.Lock()

    def callback(message: Message) -> None:
        body = message.data.decode()
        with lock:
            if confirmed[body]:
                again.append(body)
        try:
            message.ack_with_response().result(60)
        except AcknowledgeError as error:
            if error.error_code is AcknowledgeStatus.OTHER:  # the answer was lost with the server: it may have counted
                unknown.add(body)
            return
        with lock:
            confirmed[body] += 1

    with (
        Publisher(server.endpoint) as publisher,
        Subscriber(server.endpoint, flow_control=FlowControl(max_messages=100, ack_timeout=10)) as subscriber,
    ):
        publisher.publish_many(topic, [b"%d" % n for n in range(total)])
        future = subscriber.subscribe(subscription, callback, workers=20)
        for share in (500, 1500):
            eventually(lambda wanted=share: len(confirmed) >= wanted, 60)
            server.kill9()
            server.start()
        eventually(lambda: len({*confirmed, *unknown}) >= total, 90)
        future.cancel()
        future.result(60)
    assert again == []
    assert len(unknown) <= 2 * 20
    assert set(confirmed.values()) == {1}

"""The high-level subscriber and publisher of the official client, used as programs use them."""

from __future__ import annotations

import threading
from collections import defaultdict

import pytest
from google.api_core import exceptions
from google.cloud.pubsub_v1.subscriber import exceptions as subscriber_exceptions
from google.cloud.pubsub_v1.types import FlowControl

from syncpoint.testing.rigs.official import eventually


class Inbox:
    """Collects messages in a callback."""

    def __init__(self, action="ack"):
        self.lock = threading.Lock()
        self.messages = []
        self.action = action

    def __call__(self, message):
        with self.lock:
            self.messages.append(message)
        if self.action:
            getattr(message, self.action)()

    @property
    def bodies(self):
        with self.lock:
            return [message.data for message in self.messages]

    def wait(self, count, within=60.0):
        eventually(lambda: len(self.messages) >= count, within, f"{count} messages")
        return self.bodies


def test_publish_receive_and_acknowledge(space):
    topic, subscription = space.pair()
    inbox = Inbox()
    space.listen(subscription, inbox)
    client = space.publisher()
    wanted = [b"%d" % number for number in range(1000)]
    for future in [client.publish(topic, body) for body in wanted]:
        future.result(timeout=30)
    assert sorted(inbox.wait(1000)) == sorted(wanted)
    later = space.publish(topic, b"barrier")
    inbox.wait(1001)
    assert len({message.message_id for message in inbox.messages}) == 1001
    assert inbox.messages[-1].message_id == later[0]


def test_client_flow_control_holds_callbacks_back(space):
    topic, subscription = space.pair()
    space.publish(topic, *[b"%d" % number for number in range(30)])
    lock, running, most, done = threading.Lock(), 0, 0, []
    go = threading.Event()

    def callback(message):
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        go.wait(60)
        with lock:
            running -= 1
            done.append(message.data)
        message.ack()

    space.listen(subscription, callback, flow_control=FlowControl(max_messages=5))
    eventually(lambda: running == 5)
    go.set()
    eventually(lambda: len(done) == 30)
    assert most <= 5


def test_a_nacked_message_comes_again(space):
    topic, subscription = space.pair()
    seen = []

    def callback(message):
        seen.append(message.message_id)
        if len(seen) < 3:
            message.nack()
        else:
            message.ack()

    space.listen(subscription, callback)
    (given,) = space.publish(topic, b"again")
    eventually(lambda: len(seen) >= 3)
    assert set(seen) == {given}


def test_receiving_from_a_missing_subscription_fails(space):
    future = space.subscriber().subscribe(space.path("subscriptions", "missing"), callback=Inbox())
    with pytest.raises(exceptions.NotFound, match="Resource not found"):
        future.result(timeout=20)


def test_deleting_the_subscription_ends_the_receiver(space):
    topic, subscription = space.pair()
    inbox = Inbox()
    future = space.subscriber().subscribe(subscription, callback=inbox)
    space.publish(topic, b"x")
    inbox.wait(1)
    space.api.delete_subscription({"subscription": subscription})
    with pytest.raises(exceptions.NotFound):
        future.result(timeout=20)


def test_ordered_publishing_and_receiving(space):
    topic, subscription = space.pair(enable_message_ordering=True)
    client = space.publisher(ordering=True, batch_messages=20)
    keys = [f"key-{number}" for number in range(5)]
    futures = [client.publish(topic, b"%d" % number, ordering_key=key) for number in range(100) for key in keys]
    for future in futures:
        future.result(timeout=30)
    by_key = defaultdict(list)
    inbox = Inbox()
    space.listen(subscription, inbox)
    inbox.wait(500)
    for message in inbox.messages:
        by_key[message.ordering_key].append(int(message.data))
    assert set(by_key) == set(keys)
    for key in keys:
        assert by_key[key] == list(range(100)), key


def test_exactly_once_acks_are_confirmed(space):
    topic, subscription = space.pair(enable_exactly_once_delivery=True)
    space.publish(topic, *[b"%d" % number for number in range(50)])
    inbox = Inbox(action=None)
    space.listen(subscription, inbox)
    inbox.wait(50)
    for future in [message.ack_with_response() for message in inbox.messages]:
        assert future.result(timeout=30) == subscriber_exceptions.AcknowledgeStatus.SUCCESS
    late = inbox.messages[0].ack_with_response()
    with pytest.raises(subscriber_exceptions.AcknowledgeError) as caught:
        late.result(timeout=30)
    assert caught.value.error_code == subscriber_exceptions.AcknowledgeStatus.INVALID_ACK_ID
    space.publish(topic, b"barrier")
    assert len(set(inbox.wait(51))) == 51


def test_a_receiver_that_stops_leaves_the_rest_to_the_next(space):
    """As in the client's own system tests: what the first receiver held or had not begun comes to a second one soon."""
    topic, subscription = space.pair(ack_deadline_seconds=600)
    first_done, holding = [], []
    stopping, lock = threading.Event(), threading.Lock()

    def slow(message):
        with lock:
            mine = first_done if len(first_done) < 3 else holding
            mine.append(message.data)
        if mine is first_done:
            message.ack()
        else:
            stopping.wait(60)
            message.nack()

    client = space.subscriber()
    future = client.subscribe(subscription, callback=slow, await_callbacks_on_shutdown=True)
    space.publish(topic, *[b"%d" % number for number in range(10)])
    eventually(lambda: len(first_done) + len(holding) == 10)
    future.cancel()
    stopping.set()
    future.result(timeout=30)
    inbox = Inbox()
    space.listen(subscription, inbox)
    rest = inbox.wait(7)
    assert sorted({*rest, *first_done}) == [b"%d" % number for number in range(10)]


def test_a_message_worked_on_for_long_is_not_sent_again(space):
    """The client extends the deadline while the callback runs: 13 s of work with a deadline of 10 s."""
    topic, subscription = space.pair(ack_deadline_seconds=10)
    seen = []
    stop = threading.Event()

    def callback(message):
        seen.append(message.message_id)
        stop.wait(13)
        message.ack()

    space.listen(subscription, callback)
    (given,) = space.publish(topic, b"slow work")
    eventually(lambda: seen)
    eventually(lambda: stop.is_set() or not stop.wait(13.5), within=20)
    barrier = space.publish(topic, b"barrier")[0]
    stop.set()
    eventually(lambda: barrier in seen)
    assert seen == [given, barrier]


def test_many_receivers_of_one_program_share_one_subscription(space):
    topic, subscription = space.pair()
    inboxes = [Inbox() for _ in range(4)]
    for inbox in inboxes:
        space.listen(subscription, inbox, flow_control=FlowControl(max_messages=10))
    space.attached(subscription, len(inboxes))
    ids = {one for _ in range(10) for one in space.publish(topic, *[b"x"] * 100)}
    eventually(lambda: sum(len(inbox.messages) for inbox in inboxes) >= 1000)
    got = [message.message_id for inbox in inboxes for message in inbox.messages]
    assert len(got) == 1000
    assert set(got) == ids
    assert all(inbox.messages for inbox in inboxes), "everyone gets a share"

"""The figure every description of the service begins with.

Two publishers, one topic. Subscription 1 has two subscribers, S1 and S2, who share its messages; subscription 2 has
one, S3, who gets them all.
"""

from __future__ import annotations

import threading

import pytest
from google.cloud.pubsub_v1.types import FlowControl

from syncpoint.testing.rigs.official import eventually

pytestmark = pytest.mark.shows("two-publishers")


class Subscriber:
    """A high-level subscriber that keeps what it gets; it acknowledges on request, or at once."""

    def __init__(self, space, subscription, *, at_once, **options):
        self.messages, self.lock, self.at_once = [], threading.Lock(), at_once
        space.listen(subscription, self.receive, **options)

    def receive(self, message):
        with self.lock:
            self.messages.append(message)
        if self.at_once:
            message.ack()

    @property
    def bodies(self):
        return [message.data for message in self.messages]


def test_message_a_and_message_b(space):
    topic = space.topic()
    sub_1, sub_2 = space.subscription(topic, "sub-1"), space.subscription(topic, "sub-2")
    one_each = {"at_once": False, "flow_control": FlowControl(max_messages=1)}
    s1, s2 = Subscriber(space, sub_1, **one_each), Subscriber(space, sub_1, **one_each)
    s3 = Subscriber(space, sub_2, at_once=True)
    space.publisher().publish(topic, b"A").result(timeout=20)
    space.publisher().publish(topic, b"B").result(timeout=20)
    eventually(lambda: len(s1.messages) + len(s2.messages) == 2 and len(s3.messages) == 2)
    assert sorted(s1.bodies + s2.bodies) == [b"A", b"B"]
    assert len(s1.messages) == len(s2.messages) == 1
    assert sorted(s3.bodies) == [b"A", b"B"]
    for message in s1.messages + s2.messages:
        message.ack()


def test_the_figure_with_two_thousand_messages(space):
    topic = space.topic()
    sub_1, sub_2 = space.subscription(topic, "sub-1"), space.subscription(topic, "sub-2")
    ten = FlowControl(max_messages=10)
    s1 = Subscriber(space, sub_1, at_once=True, flow_control=ten)
    s2 = Subscriber(space, sub_1, at_once=True, flow_control=ten)
    s3 = Subscriber(space, sub_2, at_once=True)
    futures = []
    for name in (b"A", b"B"):
        publisher = space.publisher(batch_messages=20)
        futures += [publisher.publish(topic, name + b"-%d" % number) for number in range(1000)]
    ids = {future.result(timeout=30) for future in futures}
    assert len(ids) == 2000
    eventually(lambda: len(s1.messages) + len(s2.messages) >= 2000 and len(s3.messages) >= 2000, within=40)
    first, second, third = ([message.message_id for message in one.messages] for one in (s1, s2, s3))
    assert set(first) | set(second) == ids
    assert not set(first) & set(second)
    assert len(first) + len(second) == 2000, "nothing came twice"
    assert first
    assert second
    assert sorted(third) == sorted(ids)

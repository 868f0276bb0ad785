"""The sync point: every publish that begins after CreateSubscription has returned reaches that subscription.

Publishers run all the time while subscriptions are created, so every creation races with publishes on their way.
"""

from __future__ import annotations

import threading

import pytest

from syncpoint.testing.rigs import checkers
from syncpoint.testing.rigs.history import History, MessageIdentity, Outcome, seal
from syncpoint.testing.rigs.official import Api, eventually

pytestmark = pytest.mark.shows("sync-point")


class Publisher:
    """Publishes small requests one after the other until stopped."""

    def __init__(self, endpoint, history, topic, name, batch):
        self.api, self.history, self.topic, self.name, self.batch = Api(endpoint), history, topic, name, batch
        self.rounds = 0
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        number = 0
        while not self.stop.is_set():
            identities = [MessageIdentity(self.name, number + index) for index in range(self.batch)]
            operations = [self.history.publishing(self.topic, identity) for identity in identities]
            messages = [{"data": seal(identity)} for identity in identities]
            ids = self.api.publish({"topic": self.topic, "messages": messages}).message_ids
            for operation, message_id in zip(operations, ids, strict=True):
                self.history.published(operation, message_id)
            number += self.batch
            self.rounds += 1

    def end(self):
        self.stop.set()
        self.thread.join()
        self.api.close()


def create(space, history, topic, name):
    operation = history.creating(name, topic)
    space.subscription(topic, name)
    history.end(operation, Outcome.OK)


def drain(space, history, topic, name):
    """Receive on a fresh subscription until everything owed has come."""
    path = space.path("subscriptions", name)
    created = next(one.ended for one in history.creations if one.subscription == name)
    owed = {one.identity for one in history.publishes if one.outcome is Outcome.OK and one.begun > created}
    idle = 0
    while owed and idle < 5:  # then the checker says what is missing
        got = space.pull_once(path, wait=3)
        idle = 0 if got else idle + 1
        for one in got:
            delivery = history.delivered(name, name, one.message.message_id, one.message.data)
            owed.discard(delivery.identity)
        if got:
            space.ack(path, *got)


def race(space, round_number, subscriptions=8, publishers=3):
    history = History()
    topic = space.topic(f"topic-{round_number}")
    running = [Publisher(space.endpoint, history, topic, f"p{n}", batch=1 + n) for n in range(publishers)]
    try:
        eventually(lambda: all(one.rounds >= 2 for one in running), what="publishers are at work")
        names = [f"sub-{round_number}-{number}" for number in range(subscriptions)]
        for name in names[::2]:  # half of them one after the other, half all at once
            create(space, history, topic, name)
        together = [threading.Thread(target=create, args=(space, history, topic, name)) for name in names[1::2]]
        for thread in together:
            thread.start()
        for thread in together:
            thread.join()
        marks = [one.rounds for one in running]
        eventually(lambda: all(one.rounds >= mark + 3 for one, mark in zip(running, marks, strict=True)))
    finally:
        for one in running:
            one.end()
    for name in names:
        drain(space, history, topic, name)
    return history


def test_publishes_that_begin_after_create_returns_all_arrive(space):
    total = 0
    for round_number in range(12):
        history = race(space, round_number)
        verdicts = checkers.check(history, checkers.sync_point)
        total += next(one.checked for one in verdicts if one.name == "sync point")
    assert total > 12 * 8 * 3


@pytest.mark.long
def test_the_race_again_and_again(space):
    for round_number in range(40):
        checkers.check(race(space, round_number, subscriptions=16), checkers.sync_point)


def test_a_subscription_made_again_under_the_same_name_begins_at_its_own_sync_point(space):
    topic = space.topic()
    for generation in range(10):
        subscription = space.subscription(topic, "again")
        space.publish(topic, b"%d" % generation)
        got = space.pull(subscription, ack=True)
        assert [one.message.data for one in got] == [b"%d" % generation]
        space.publish(topic, b"left behind")
        space.api.delete_subscription({"subscription": subscription})

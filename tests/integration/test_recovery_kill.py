"""kill -9 at any moment: what was confirmed is still there, and only that is gone which was acknowledged.

Clients work all the time with the client's calls and enter every outcome in a history: an answer that was lost is
*unknown*. At the end everything is received and the checkers judge.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter

import grpc
import pytest

from syncpoint.front.client.client import Client as Admin
from syncpoint.testing.rigs import checkers
from syncpoint.testing.rigs.history import History, MessageIdentity, Outcome, seal
from syncpoint.testing.rigs.official import Api, eventually
from syncpoint.wire.protobuf.messages import admin

pytestmark = pytest.mark.shows("kill")

CERTAIN_REFUSALS = ("INVALID_ARGUMENT", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "NOT_FOUND")


class Client:
    """A thread with a connection of its own that works until asked to stop, over any number of crashes."""

    def __init__(self, server, history, work):
        self.api, self.history, self.stop = Api(server.endpoint), history, threading.Event()
        self.failures = []
        self.thread = threading.Thread(target=self.run, args=(work,))
        self.thread.start()

    def run(self, work):
        try:
            while not self.stop.is_set():
                work(self)
        except Exception as error:
            self.failures.append(error)

    def end(self):
        self.stop.set()
        self.thread.join()
        self.api.close()
        if self.failures:
            raise self.failures[0]


def publishing(topic, name, *, batch=3, key="", filler=200):
    """Work that publishes batches with an ever rising number."""
    numbers = iter(range(10**9))

    def work(client):
        identities = [MessageIdentity(name, next(numbers)) for _ in range(batch)]
        operations = [client.history.publishing(topic, identity, key) for identity in identities]
        messages = [{"data": seal(identity, b"x" * filler), "ordering_key": key} for identity in identities]
        try:
            ids = client.api.publish({"topic": topic, "messages": messages}, timeout=5).message_ids
        except grpc.RpcError as error:
            certain = error.code().name in CERTAIN_REFUSALS
            for operation in operations:
                client.history.end(operation, Outcome.FAILED if certain else Outcome.UNKNOWN)
            client.stop.wait(0.05)
            return
        for operation, message_id in zip(operations, ids, strict=True):
            client.history.published(operation, message_id)

    return work


def consuming(subscription, receiver, *, keep=0.0, seed=1):
    """Work that pulls, and acknowledges all but a share `keep`, which it nacks."""
    chance = random.Random(seed)

    def work(client):
        try:
            answer = client.api.pull({"subscription": subscription, "max_messages": 100}, timeout=2)
        except grpc.RpcError:
            client.stop.wait(0.05)
            return
        acks, nacks = [], []
        for one in answer.received_messages:
            message = one.message
            client.history.delivered(subscription, receiver, message.message_id, message.data, message.ordering_key)
            (nacks if chance.random() < keep else acks).append(one)
        try:
            if nacks:
                ids = [one.ack_id for one in nacks]
                client.api.modify_ack_deadline(
                    {"subscription": subscription, "ack_ids": ids, "ack_deadline_seconds": 0}, timeout=5
                )
        except grpc.RpcError:
            pass
        if not acks:
            return
        operations = [client.history.acking(subscription, one.message.message_id) for one in acks]
        try:
            ids = [one.ack_id for one in acks]
            client.api.acknowledge({"subscription": subscription, "ack_ids": ids}, timeout=5)
            outcome = Outcome.OK
        except grpc.RpcError:
            outcome = Outcome.UNKNOWN
        for operation in operations:
            client.history.end(operation, outcome)

    return work


def subscribed(space, history, topic, short, **fields):
    operation = history.creating(
        space.path("subscriptions", short),
        topic,
        exactly_once=fields.get("enable_exactly_once_delivery", False),
        ordered=fields.get("enable_message_ordering", False),
    )
    name = space.subscription(topic, short, ack_deadline_seconds=10, **fields)
    history.end(operation, Outcome.OK)
    return name


def confirmed(history):
    return sum(1 for one in list(history.publishes) if one.outcome is Outcome.OK)


def drained(server, history, pairs, within=60):
    """Receive on each (subscription, topic) until nothing confirmed is missing; the checkers say what never came."""
    end = time.monotonic() + within
    for subscription, topic in pairs:
        client = Client(server, history, consuming(subscription, "drain"))
        while history.missing(subscription, topic) and time.monotonic() < end:
            time.sleep(0.05)
        client.end()


def test_ten_crashes_in_the_middle_of_publishing_lose_nothing(boot, enter):
    server = boot()
    space = enter(server.endpoint)
    history = History()
    topic = space.topic()
    plain = subscribed(space, history, topic, "plain")
    ordered = subscribed(space, history, topic, "ordered", enable_message_ordering=True)
    once = subscribed(space, history, topic, "once", enable_exactly_once_delivery=True)
    works = [publishing(topic, f"p{n}", batch=1 + 4 * n) for n in range(3)]
    works += [publishing(topic, f"keyed{n}", batch=2, key=f"key-{n}") for n in range(3)]
    works += [consuming(once, "c-once", keep=0.1), consuming(plain, "c-plain", keep=0.1)]
    clients = [Client(server, history, work) for work in works]
    chance = random.Random(20261121)
    try:
        for _ in range(10):
            before = confirmed(history)
            eventually(lambda before=before: confirmed(history) >= before + 60, within=40, what="publishing goes on")
            time.sleep(chance.random() * 0.05)  # not a wait for anything: crash at an arbitrary moment
            server.kill9()
            server.start()
    finally:
        for client in clients:
            client.end()
    drained(server, history, [(plain, topic), (ordered, topic), (once, topic)])
    checkers.check(
        history,
        checkers.acknowledged_is_never_lost,
        checkers.nothing_invented_or_changed,
        checkers.unique_ids,
        checkers.order_per_key,
        checkers.exactly_once,
    )
    assert server.starts == 11


@pytest.mark.parametrize("once", [False, True])
def test_what_was_acknowledged_does_not_come_again_after_a_crash(boot, enter, once):
    server = boot()
    space = enter(server.endpoint)
    topic, subscription = space.pair(enable_exactly_once_delivery=once, ack_deadline_seconds=600)
    for _ in range(5):
        space.publish(topic, *[b"%d" % number for number in range(100)])
    got = space.pull(subscription, 500)
    acked, left = got[::2], got[1::2]
    space.ack(subscription, *acked)
    server.restart(hard=True)
    after = enter(server.endpoint)
    again = after.pull(subscription, len(left), within=30, ack=True)
    assert {one.message.message_id for one in again} == {one.message.message_id for one in left}
    assert len(again) == len(left)
    assert not after.peek(subscription)
    server.restart(hard=True)
    assert not enter(server.endpoint).peek(subscription)


def test_ack_ids_from_before_a_crash(boot, enter):
    """At least once: they still acknowledge. Exactly once: they fail, or did acknowledge; never both and neither."""
    server = boot()
    space = enter(server.endpoint)
    topic = space.topic()
    plain = space.subscription(topic, "plain", ack_deadline_seconds=600)
    once = space.subscription(topic, "once", ack_deadline_seconds=600, enable_exactly_once_delivery=True)
    space.publish(topic, b"x")
    (from_plain,), (from_once,) = space.pull(plain), space.pull(once)
    server.restart(hard=True)
    after = enter(server.endpoint)
    after.ack(plain, from_plain)
    try:
        after.ack(once, from_once)
        survived = True
    except grpc.RpcError as error:
        assert error.code().name == "INVALID_ARGUMENT"  # noqa: PT017
        survived = False
    (barrier,) = after.publish(topic, b"barrier")
    expected = {barrier} if survived else {barrier, from_once.message.message_id}
    got = after.pull(once, len(expected), within=30, ack=True)
    assert {one.message.message_id for one in got} == expected
    assert {one.message.message_id for one in after.pull(plain, ack=True)} == {barrier}


def test_messages_out_at_a_crash_come_again_with_the_same_bytes(boot, enter):
    server = boot()
    space = enter(server.endpoint)
    topic, subscription = space.pair(ack_deadline_seconds=600)
    space.publish(topic, b"\x00\xff" * 1000, b"second", key="k", attributes={"a": "b"})
    before = {one.message.message_id: one.message for one in space.pull(subscription, 2)}
    server.restart(hard=True)
    after = {one.message.message_id: one.message for one in enter(server.endpoint).pull(subscription, 2, within=30)}
    assert after == before


def test_letters_are_made_once_over_crashes(boot, enter):
    """Messages go round a ring of two forwards and become letters after four hops, while the server is killed."""
    server, count = boot(), 150
    space = enter(server.endpoint)
    one, two, dead = space.topic("one"), space.topic("two"), space.topic("dead")
    policy = {"dead_letter_topic": dead, "max_delivery_attempts": 5}
    letters = space.subscription(dead, "letters", ack_deadline_seconds=600)
    ring = [
        space.subscription(topic, name, dead_letter_policy=policy) for name, topic in (("there", one), ("back", two))
    ]
    for subscription, to in zip(ring, (two, one), strict=True):
        options = {"subscription": subscription, "forward_to": to}
        asked = admin.UpdateSubscriptionOptionsRequest(options=options, update_mask={"paths": ["forward_to"]})
        with Admin(server.endpoint) as client:
            client.call("Admin.UpdateSubscriptionOptions", asked)
    for number in range(0, count, 10):
        space.publish(one, *[b"%d" % at for at in range(number, number + 10)])
    chance = random.Random(20261129)
    for _ in range(4):
        time.sleep(chance.random() * 0.4)  # not a wait for anything: crash at an arbitrary moment
        server.kill9()
        server.start()
    after = enter(server.endpoint)
    got = Counter(one.message.data for one in after.pull(letters, count, within=90, ack=True))
    assert got == Counter(b"%d" % number for number in range(count))
    with Admin(server.endpoint) as client:
        for subscription in ring:
            state = admin.GetSubscriptionStateRequest(subscription=subscription)
            eventually(
                lambda state=state: client.call("Admin.GetSubscriptionState", state).backlog_messages == 0, within=60
            )
    assert not after.pull_once(letters, wait=2.0)


@pytest.mark.parametrize("durability", ["sync", "async", "memory"])
def test_every_durability_survives_a_polite_restart(boot, enter, durability):
    server = boot(durability=durability)
    space = enter(server.endpoint)
    topic, subscription = space.pair(ack_deadline_seconds=600)
    ids = {one for _ in range(5) for one in space.publish(topic, *[b"x" * 1000] * 100)}
    acked = space.pull(subscription, 100, most=100)[:100]
    space.ack(subscription, *acked)
    server.restart()
    ids -= {one.message.message_id for one in acked}
    got = enter(server.endpoint).pull(subscription, len(ids), within=30, ack=True)
    assert {one.message.message_id for one in got} == ids


def test_async_survives_the_crash_of_the_process(boot, enter):
    """Not that of the machine: the page cache belongs to the machine."""
    server = boot(durability="async")
    space = enter(server.endpoint)
    topic, subscription = space.pair()
    ids = {one for _ in range(5) for one in space.publish(topic, *[b"x" * 1000] * 100)}
    server.restart(hard=True)
    got = enter(server.endpoint).pull(subscription, len(ids), within=30, ack=True)
    assert {one.message.message_id for one in got} == ids


@pytest.mark.parametrize("ordering", [False, True])
def test_a_backlog_over_nine_lives_of_the_server(boot, enter, ordering):
    """Every life leaves a source of its own behind; all of them are read, and keys in the order of the lives."""
    server = boot()
    space = enter(server.endpoint)
    topic, subscription = space.pair(enable_message_ordering=ordering, ack_deadline_seconds=600)
    ids = []
    for _ in range(9):
        ids += enter(server.endpoint).publish(topic, *[b"x" * 3000] * 20, key="k" if ordering else "")
        server.restart(hard=True)
    after = enter(server.endpoint)
    stream = after.stream(subscription)
    got = [one.message.message_id for one in stream.wait(180)]
    assert sorted(got) == sorted(ids)
    assert not ordering or got == ids
    after.nack(subscription, *stream.messages)
    again = [one.message.message_id for one in stream.wait(360)[180:]]
    assert sorted(again) == sorted(ids)
    assert not ordering or again == ids


def test_ids_stay_unique_and_rise_over_crashes(boot, enter):
    server = boot()
    space = enter(server.endpoint)
    topic = space.topic()
    ids = []
    for _ in range(4):
        ids += enter(server.endpoint).publish(topic, b"a", b"b")
        server.restart(hard=True)
    assert len(set(ids)) == len(ids)
    assert [int(one) for one in ids] == sorted(map(int, ids))

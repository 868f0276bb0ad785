"""Crashes while acknowledgements, dead letters and admin calls are under way."""

from __future__ import annotations

import threading

import grpc
import pytest

from syncpoint.testing.rigs.official import Api, attributes_of, eventually

pytestmark = pytest.mark.shows("retries")


def pull_everything(space, subscription, wait=2.0):
    """All messages there are now, until a pull stays empty."""
    got = []
    while True:
        fresh = space.pull_once(subscription, wait=wait)
        if not fresh:
            return got
        got += fresh


@pytest.mark.parametrize("step", [pytest.param(2, marks=pytest.mark.long), 7])
def test_twenty_thousand_gaps_survive_a_crash(boot, enter, step):
    """Every second (seventh) message is acknowledged: the others come after the crash, all of them and nothing else."""
    server = boot()
    space = enter(server.endpoint)
    topic, subscription = space.pair(ack_deadline_seconds=600)
    for _ in range(40):
        space.publish(topic, *[b"x"] * 1000)
    got = space.pull(subscription, 40_000, within=60)
    for start in range(0, 40_000, 2000):
        space.ack(subscription, *got[start : start + 2000][::step])
    left = {one.message.message_id for number, one in enumerate(got) if number % 2000 % step}
    server.restart(hard=True)
    after = enter(server.endpoint)
    again = after.pull(subscription, len(left), within=60)
    assert {one.message.message_id for one in again} == left
    assert not after.peek(subscription)
    server.restart()
    again = enter(server.endpoint).pull(subscription, len(left), within=60)
    assert {one.message.message_id for one in again} == left


def test_dead_letters_are_not_lost_in_crashes(boot, enter):
    """Whatever moment it is: a failing message is in its subscription or in the dead letter topic, perhaps in both."""
    server = boot()
    space = enter(server.endpoint)
    topic, letters = space.topic("main"), space.topic("letters")
    policy = {"dead_letter_topic": letters, "max_delivery_attempts": 5}
    main = space.subscription(topic, "main", dead_letter_policy=policy, ack_deadline_seconds=600)
    dead = space.subscription(letters, "dead", ack_deadline_seconds=600)
    total = 300
    space.publish(topic, *[b"%d" % number for number in range(total)])
    stop = threading.Event()

    def nack_all():
        api = Api(server.endpoint)
        while not stop.is_set():
            try:
                answer = api.pull({"subscription": main, "max_messages": 37}, timeout=2)
                ids = [one.ack_id for one in answer.received_messages]
                if ids:
                    api.modify_ack_deadline(
                        {"subscription": main, "ack_ids": ids, "ack_deadline_seconds": 0}, timeout=2
                    )
            except grpc.RpcError:
                stop.wait(0.02)
        api.close()

    worker = threading.Thread(target=nack_all)
    worker.start()
    try:
        for _ in range(4):
            stop.wait(0.3)  # not a wait for anything: crash at an arbitrary moment
            server.restart(hard=True)
        found = set()

        def all_found():
            fresh = enter(server.endpoint).peek(dead)
            for one in fresh:
                assert attributes_of(one)["CloudPubSubDeadLetterSourceSubscription"] == "main"
                found.add(one.message.data)
            return len(found) == total

        eventually(all_found, within=60, what="all messages are dead letters")
    finally:
        stop.set()
        worker.join()
    assert not pull_everything(enter(server.endpoint), main)


def test_confirmed_admin_calls_survive_crashes(boot, enter):
    """A storm of creations, updates and deletions; after each crash everything confirmed is as it was confirmed."""
    server = boot()
    project = enter(server.endpoint).project
    lock = threading.Lock()
    labels, unsure, subscriptions = {}, set(), {}
    stop = threading.Event()

    def storm(worker):
        api = Api(server.endpoint)
        number = 0
        while not stop.is_set():
            name = f"projects/{project}/topics/t-{worker}-{number % 20:02}"
            value = str(number)
            try:
                if name not in labels:
                    api.create_topic({"name": name, "labels": {"n": value}}, timeout=3)
                    with lock:
                        labels[name] = value
                elif number % 3:
                    request = {"topic": {"name": name, "labels": {"n": value}}, "update_mask": {"paths": ["labels"]}}
                    api.update_topic(request, timeout=3)
                    with lock:
                        labels[name] = value
                else:
                    api.delete_topic({"topic": name}, timeout=3)
                    with lock:
                        del labels[name]
                sub = f"projects/{project}/subscriptions/s-{worker}-{number}"
                if name in labels:
                    api.create_subscription({"name": sub, "topic": name}, timeout=3)
                    with lock:
                        subscriptions[sub] = name
            except grpc.RpcError:
                with lock:
                    unsure.add(name)
                    labels.pop(name, None)
                return api.close()
            number += 1
        return api.close()

    for _ in range(4):
        before = len(subscriptions)
        workers = [threading.Thread(target=storm, args=(f"{before}-{number}",)) for number in range(3)]
        for worker in workers:
            worker.start()
        eventually(lambda before=before: len(subscriptions) >= before + 60, what="the storm is under way")
        server.kill9()
        for worker in workers:
            worker.join()
        server.start()
        api = enter(server.endpoint).api
        listed = api.list_topics({"project": f"projects/{project}", "page_size": 10_000}).topics
        shown = {topic.name: topic.labels.get("n") for topic in listed}
        assert {name: shown.get(name) for name in labels} == labels
        assert set(shown) <= set(labels) | unsure
        there = api.list_subscriptions({"project": f"projects/{project}", "page_size": 10_000}).subscriptions
        assert set(subscriptions) <= {one.name for one in there}


def test_deliveries_and_backoffs_are_counted_on_after_a_crash(boot, enter):
    server = boot()
    space = enter(server.endpoint)
    topic, letters = space.topic("main"), space.topic("letters")
    counted = space.subscription(
        topic, "counted", dead_letter_policy={"dead_letter_topic": letters, "max_delivery_attempts": 7}
    )
    ten_minutes = {"minimum_backoff": {"seconds": 600}, "maximum_backoff": {"seconds": 600}}
    resting = space.subscription(topic, "resting", retry_policy=ten_minutes)
    space.publish(topic, b"m")

    def nack(space, subscription):
        (one,) = space.pull(subscription, 1, within=20)
        request = {"subscription": subscription, "ack_ids": [one.ack_id], "ack_deadline_seconds": 0}
        space.api.modify_ack_deadline(request)
        return one.delivery_attempt

    nack(space, resting)
    assert [nack(space, counted) for _ in range(2)] == [1, 2]
    assert not space.pull_once(resting, wait=4.0)  # longer than counts wait to be written
    server.restart(hard=True)
    after = enter(server.endpoint)
    assert nack(after, counted) == 3
    assert not after.pull_once(resting, wait=2.0)

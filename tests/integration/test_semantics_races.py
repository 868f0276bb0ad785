"""Things that happen at the same time: creation, deletion, seeks, snapshots and cancelled calls under work."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest

from syncpoint.testing.rigs.official import Api, bodies, eventually

pytestmark = pytest.mark.shows("sync-point")


def code_of(call, *arguments, **options):
    """The name of the status a call ends with."""
    try:
        call(*arguments, **options)
    except grpc.RpcError as error:
        return error.code().name
    return "OK"


def together(count, work):
    """Run `work(number)` in that many threads at once; returns the results."""
    barrier = threading.Barrier(count)

    def run(number):
        barrier.wait()
        return work(number)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(run, range(count)))


def test_of_many_creations_of_one_name_one_succeeds(space):
    for number in range(10):
        name = space.path("topics", f"topic-{number}")
        codes = together(8, lambda _, name=name: code_of(space.api.create_topic, {"name": name}))
        assert Counter(codes) == {"OK": 1, "ALREADY_EXISTS": 7}
        request = {"name": space.path("subscriptions", f"sub-{number}"), "topic": name}
        codes = together(8, lambda _, request=request: code_of(space.api.create_subscription, request))
        assert Counter(codes) == {"OK": 1, "ALREADY_EXISTS": 7}
        codes = together(8, lambda _, name=name: code_of(space.api.delete_topic, {"topic": name}))
        assert Counter(codes) == {"OK": 1, "NOT_FOUND": 7}


def test_publishing_while_the_topic_goes_and_comes_back(space):
    topic = space.topic()
    stop = threading.Event()

    def publish(_):
        seen = Counter()
        while not stop.is_set():
            seen[code_of(space.publish, topic, b"x")] += 1
        return seen

    def churn():
        for _ in range(60):
            space.api.delete_topic({"topic": topic})
            space.topic()
        stop.set()

    with ThreadPoolExecutor(5) as pool:
        publishers = [pool.submit(publish, number) for number in range(4)]
        churn()
        total = sum((publisher.result() for publisher in publishers), Counter())
    assert set(total) <= {"OK", "NOT_FOUND"}
    assert total["OK"]


def test_receiving_while_the_subscription_goes_and_comes_back(space):
    topic, subscription = space.pair()
    stop = threading.Event()
    statuses = Counter()

    def pull():
        while not stop.is_set():
            request = {"subscription": subscription, "max_messages": 10}
            statuses[code_of(space.api.pull, request, timeout=60)] += 1

    def stream():
        while not stop.is_set():
            one = space.stream(subscription)
            statuses[one.ended()] += 1

    with ThreadPoolExecutor(4) as pool:
        workers = [pool.submit(work) for work in (pull, pull, stream)]
        for _ in range(40):
            space.publish(topic, b"x")
            space.api.delete_subscription({"subscription": subscription})
            space.subscription(topic)
        stop.set()
        space.api.delete_subscription({"subscription": subscription})
        for worker in workers:
            worker.result(timeout=60)
    assert set(statuses) <= {"OK", "NOT_FOUND"}


def test_a_hundred_pulls_that_wait_share_a_hundred_messages(space):
    topic, subscription = space.pair(ack_deadline_seconds=600)
    calls = [space.api.pull.future({"subscription": subscription, "max_messages": 1}, timeout=30) for _ in range(100)]
    ids = [one for _ in range(20) for one in space.publish(topic, *[b"x"] * 5)]
    got = [one.message.message_id for call in calls for one in call.result().received_messages]
    assert sorted(got) == sorted(ids)


def test_a_snapshot_taken_while_acks_pour_in_is_a_cut(space):
    """Acknowledged before the call: stays acknowledged. Acknowledged after its answer: comes back."""
    topic, subscription = space.pair(ack_deadline_seconds=600)
    for _ in range(10):
        space.publish(topic, *[b"x"] * 100)
    got = space.pull(subscription, 1000)
    other = Api(space.endpoint)
    name = space.path("snapshots", "snap")
    taken, answered = threading.Event(), threading.Event()

    def snapshot():
        taken.wait(20)
        space.api.create_snapshot({"name": name, "subscription": subscription})
        answered.set()

    thread = threading.Thread(target=snapshot)
    thread.start()
    before, after = set(), set()
    for number in range(0, 1000, 10):
        part = got[number : number + 10]
        late = answered.is_set()
        other.acknowledge({"subscription": subscription, "ack_ids": [one.ack_id for one in part]})
        ids = {one.message.message_id for one in part}
        if not taken.is_set():
            before |= ids
        elif late:
            after |= ids
        if number == 300:
            taken.set()
    thread.join()
    other.close()
    space.api.seek({"subscription": subscription, "snapshot": name})
    (barrier,) = space.publish(topic, b"barrier")
    again = set()
    while barrier not in again:
        again |= {one.message.message_id for one in space.pull(subscription, ack=True)}
    assert before
    assert not again & before
    assert after <= again


def test_seeks_under_work_end_in_a_clean_state(space):
    topic, subscription = space.pair(retain_acked_messages=True, ack_deadline_seconds=600)
    ids = {one for _ in range(5) for one in space.publish(topic, *[b"x"] * 100)}
    stop = threading.Event()

    def consume():
        while not stop.is_set():
            got = space.pull_once(subscription, most=50, wait=2)
            if got:
                space.ack(subscription, *got)

    workers = [threading.Thread(target=consume) for _ in range(3)]
    for worker in workers:
        worker.start()
    for number in range(30):
        target = {"seconds": 1} if number % 2 else {"seconds": 32503680000}
        space.api.seek({"subscription": subscription, "time": target})
    stop.set()
    for worker in workers:
        worker.join()
    space.api.seek({"subscription": subscription, "time": {"seconds": 1}})
    assert {one.message.message_id for one in space.pull(subscription, 500, ack=True)} == ids
    assert not space.peek(subscription)


def test_switching_exactly_once_on_and_off_loses_nothing(space):
    topic, subscription = space.pair(ack_deadline_seconds=10)
    ids = set()
    seen = set()
    stream = space.stream(subscription)
    done = 0
    for number in range(20):
        ids |= set(space.publish(topic, *[b"x"] * 20))
        change = {"name": subscription, "enable_exactly_once_delivery": number % 2 == 0}
        mask = {"paths": ["enable_exactly_once_delivery"]}
        space.api.update_subscription({"subscription": change, "update_mask": mask})
        fresh = stream.messages[done:]
        done += len(fresh)
        seen |= {one.message.message_id for one in fresh}
        if fresh:
            code_of(space.ack, subscription, *fresh)
    eventually(lambda: ids <= seen | {one.message.message_id for one in stream.messages[done:]}, within=40)


@pytest.mark.long
def test_impatient_pulls_lose_nothing(space):
    """Calls given up in the middle take messages along at most until their deadline."""
    topic, subscription = space.pair(ack_deadline_seconds=10)
    ids, seen = set(), set()
    for number in range(150):
        ids |= set(space.publish(topic, b"%d" % number))
        seen |= {one.message.message_id for one in space.pull_once(subscription, most=1, wait=0.001 * (number % 6))}
    while not ids <= seen:
        got = space.pull(subscription, within=40, ack=True)
        seen |= {one.message.message_id for one in got}
    assert seen == ids


def test_a_change_of_the_ack_deadline_is_used_from_now_on(space):
    topic, subscription = space.pair(ack_deadline_seconds=600)
    change = {"name": subscription, "ack_deadline_seconds": 10}
    space.api.update_subscription({"subscription": change, "update_mask": {"paths": ["ack_deadline_seconds"]}})
    space.publish(topic, b"x")
    (first,) = space.pull(subscription)
    space.deadline(subscription, 2, first)
    assert bodies(space.pull(subscription)) == [b"x"]
    assert space.api.get_subscription({"subscription": subscription}).ack_deadline_seconds == 10

"""Unmodified official clients of a cluster: whatever proxy they call, they see one service."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict

import pytest

from syncpoint.testing.rigs import checkers
from syncpoint.testing.rigs.official import bodies, eventually
from tests.kit.clusters import Load

pytestmark = pytest.mark.shows("proxies")


def test_what_one_proxy_made_the_other_serves(cluster, enter):
    first, second = (enter(address) for address in cluster.proxies[:2])
    second.project = first.project
    topic = first.topic()
    subscription = second.subscription(topic)
    ids = first.publish(topic, b"by the first") + second.publish(topic, b"by the second")
    got = first.pull(subscription, 2)
    assert sorted(bodies(got)) == [b"by the first", b"by the second"]
    assert sorted(one.message.message_id for one in got) == sorted(ids)
    second.ack(subscription, *got)
    eventually(lambda: not first.peek(subscription))
    assert first.api.get_subscription({"subscription": subscription}).topic == topic


def test_every_kind_of_subscription_through_different_proxies(cluster):
    with Load(cluster, receivers=2) as load:
        load.flows(2.0)
    load.judge(checkers.order_per_key, checkers.exactly_once, certain=True)


def test_keys_published_through_every_proxy_stay_ordered(cluster, enter):
    spaces = [enter(address) for address in cluster.proxies]
    topic, subscription = spaces[0].pair(enable_message_ordering=True, ack_deadline_seconds=600)
    stream = spaces[-1].stream(subscription)
    for number in range(40):
        for key in range(5):
            spaces[(number + key) % len(spaces)].publish(topic, b"%d" % number, key=f"key-{key}")
    per_key = defaultdict(list)
    for one in stream.wait(200):
        per_key[one.message.ordering_key].append(int(one.message.data))
    assert all(got == list(range(40)) for got in per_key.values())
    assert len(per_key) == 5


def test_streams_at_different_proxies_share_a_subscription(cluster, enter):
    spaces = [enter(address) for address in cluster.proxies]
    topic, subscription = spaces[0].pair(ack_deadline_seconds=600)
    streams = [space.stream(subscription) for space in spaces]
    bodies_sent = [b"%d" % number for number in range(400)]
    for first in range(0, 400, 10):
        spaces[0].publish(topic, *bodies_sent[first : first + 10])
    eventually(lambda: sum(len(stream.messages) for stream in streams) >= 400)
    got = Counter(one.message.data for stream in streams for one in stream.messages)
    assert got == Counter(bodies_sent)


def test_one_pull_loop_over_many_sources_starves_none(cluster, enter):
    """Sixteen publishers on a topic of both chains, one puller that takes five at a time: everybody's messages come."""
    space = enter(cluster.proxies[0])
    topic, subscription = space.pair(ack_deadline_seconds=600)
    publishers = [enter(cluster.proxies[n % len(cluster.proxies)]) for n in range(16)]
    stop = threading.Event()
    sent: Counter[int] = Counter()

    def publish(number: int) -> None:
        while not stop.is_set():
            publishers[number].publish(topic, b"%d" % number, key=f"key-{number}")
            sent[number] += 1

    threads = [threading.Thread(target=publish, args=(n,)) for n in range(16)]
    for thread in threads:
        thread.start()
    try:
        got: Counter[int] = Counter()
        for _ in range(120):
            fresh = space.pull_once(subscription, most=5)
            space.ack(subscription, *fresh)
            got.update(int(body) for body in bodies(fresh))
            if len(got) == 16 and min(got.values()) >= 5:
                break
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert len(got) == 16, f"sent {sent}, got {got}"
    assert min(got.values()) >= 5, f"sent {sent}, got {got}"

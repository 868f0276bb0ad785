"""How often a message came back, and how long it rests, when the processes that count are killed."""

from __future__ import annotations

import time

import pytest

from syncpoint.testing.rigs.official import attributes_of, bodies, eventually

pytestmark = pytest.mark.shows("retries")

NOTED_S = 4.0  # what came back is written down within half a second; a killed process may forget what is younger


def adopted(cluster, victim):
    return all(chain.owner and chain.owner != victim for chain in cluster.chains())


def kill_all(cluster, role):
    """One after the other, each back before the next: whoever counted is dead, and its work was taken over."""
    for victim in cluster.names(role):
        cluster.local.kill(victim)
        if role == "publish-forwarder":
            eventually(lambda victim=victim: adopted(cluster, victim), 40, "its chains are adopted")
        cluster.local.start(victim)


@pytest.mark.parametrize("role", ["publish-forwarder", pytest.param("subscribe-forwarder", marks=pytest.mark.long)])
def test_attempts_and_rests_go_on_when_whoever_counts_is_killed(cluster, enter, role):
    space = enter(cluster.proxies[0])
    topic, letters = space.topic("main"), space.topic("dead")
    policy = {"dead_letter_topic": letters, "max_delivery_attempts": 5}
    soon = {"minimum_backoff": {"seconds": 0}, "maximum_backoff": {"seconds": 1}}
    late = {"minimum_backoff": {"seconds": 600}, "maximum_backoff": {"seconds": 600}}
    counted = space.subscription(topic, "counted", dead_letter_policy=policy, retry_policy=soon)
    resting = space.subscription(topic, "resting", dead_letter_policy=policy, retry_policy=late)
    dead = space.subscription(letters, "dead-sub")
    space.publish(topic, b"poison")
    attempts = []

    def give_up(subscription):
        (one,) = space.pull(subscription, within=60)
        space.nack(subscription, one)
        return one.delivery_attempt

    assert give_up(resting) == 1
    for _ in range(2):
        attempts.append(give_up(counted))
    time.sleep(NOTED_S)
    kill_all(cluster, role)
    for _ in range(3):
        attempts.append(give_up(counted))
    assert attempts == [1, 2, 3, 4, 5]
    (letter,) = space.pull(dead, within=60, ack=True)
    assert bodies([letter]) == [b"poison"]
    assert attributes_of(letter)["CloudPubSubDeadLetterSourceDeliveryCount"] == "5"
    assert not space.pull_once(counted, wait=3.0), "it was given up after five in all"
    assert not space.pull_once(resting, wait=3.0), "it rests for ten minutes, whoever counts them"
    space.publish(topic, b"fresh")
    assert bodies(space.pull(resting, within=60, ack=True)) == [b"fresh"], "what does not rest is delivered"

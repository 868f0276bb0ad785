"""What operators do to a cluster under load: restart everything, drain, grow. No client sees an error."""

from __future__ import annotations

import threading
import time

import pytest

from syncpoint.testing.rigs import checkers, official
from syncpoint.testing.rigs.history import History, MessageIdentity, Outcome, seal
from syncpoint.testing.rigs.official import eventually
from syncpoint.wire.protobuf.messages import admin
from tests.kit.clusters import Load, note, run_all

pytestmark = pytest.mark.shows("ownership")

ALL = (checkers.order_per_key, checkers.exactly_once)


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_process_of_every_role_is_restarted_under_load(cluster):
    """One after the other; tests/faults/soak.py goes on with all of them."""
    order = ("router", "proxy", "subscribe-forwarder", "publish-forwarder", "storage")
    with Load(cluster) as load:
        for role in order:
            cluster.restart(cluster.names(role)[0])
            load.flows(0.3)
    note(f"rolling restart: gaps keyless, keyed {load.gaps} s, errors {len(load.errors)}")
    load.judge(*ALL)
    refused = [one for one in load.history.publishes if one.outcome is not Outcome.OK]
    assert not refused, f"{len(refused)} publishes failed, first {refused[0]}"


def drained(cluster, target, within=60):
    """Ask for a drain and wait until nothing is left there."""
    cluster.admin("Drain", admin.DrainRequest(target=target, comment="test"))

    def empty():
        state = cluster.admin("GetDrain", admin.GetDrainRequest(target=target))
        return not state.connections and not state.chains

    begun = time.monotonic()
    eventually(empty, within, f"{target} is empty")
    note(f"drain of {target}: empty after {time.monotonic() - begun:.2f} s")


def test_a_drained_process_is_left_by_everybody_and_comes_back(cluster):
    with Load(cluster) as load:
        for target in ("publish-forwarder-2", "subscribe-forwarder-1"):
            drained(cluster, target)
            load.flows(1.0)
            if "publish" in target:
                assert all(one.owner != target for one in cluster.chains())
            cluster.admin("Undrain", admin.UndrainRequest(target=target))
            load.flows(1.0)
        eventually(
            lambda: any(one.owner == "publish-forwarder-2" for one in cluster.chains()),
            40,
            "its chain is at home again",
        )
        load.flows(1.0)
    note(f"drain and undrain: gaps keyless, keyed {load.gaps} s")
    load.judge(*ALL, certain=True)


class Racer(threading.Thread):
    """Publishes through one proxy until stopped, every answer in the history."""

    def __init__(self, endpoint, history, topic, name):
        super().__init__(name=name, daemon=True)
        self.api, self.history, self.topic = official.Api(endpoint), history, topic
        self.stop = threading.Event()

    def run(self):
        number = 0
        while not self.stop.wait(0.02):
            key = f"{self.name}-{number % 5}" if number % 2 else ""
            operation = self.history.publishing(self.topic, MessageIdentity(self.name, number), key)
            message = {"data": seal(operation.identity), "ordering_key": key}
            answer = self.api.publish({"topic": self.topic, "messages": [message]}, timeout=30)
            self.history.published(operation, answer.message_ids[0])
            number += 1

    def end(self):
        self.stop.set()
        self.join()
        self.api.close()


@pytest.mark.long
def test_subscriptions_created_while_forwarders_come_and_go_miss_nothing(cluster, enter):
    """Sync point: whatever is published after a creation returned is received, though chains come and go."""
    spaces = [enter(address) for address in cluster.proxies]
    topic, history = spaces[0].topic(), History()
    racers = [Racer(cluster.proxies[n % 2], history, topic, f"racer-{n}") for n in range(4)]
    names: list[str] = []
    stop = threading.Event()

    def create(number):
        count = 0
        while not stop.is_set():
            short = f"sub-{number}-{count}"
            count += 1
            name = spaces[0].path("subscriptions", short)
            operation = history.creating(name, topic)
            spaces[number % 2].api.create_subscription({"name": name, "topic": topic}, timeout=30)
            history.end(operation, Outcome.OK)
            names.append(name)
            time.sleep(0.25)

    def grow():
        if "publish-forwarder-3" not in cluster.names("publish-forwarder"):
            cluster.add_process("publish-forwarder-3", "publish-forwarder", rack="k3")
        cluster.local.start("publish-forwarder-3")
        eventually(lambda: any(one.owner == "publish-forwarder-3" for one in cluster.chains()), 40, "it has a chain")
        time.sleep(1.5)
        cluster.local.stop("publish-forwarder-3")
        time.sleep(1.0)
        stop.set()

    for racer in racers:
        racer.start()
    try:
        run_all(lambda: create(0), lambda: create(1), grow)
    finally:
        stop.set()
        for racer in racers:
            racer.end()
    note(f"sync point: {len(names)} creations against {len(history.publishes)} publishes")
    created = {one.subscription: one.ended for one in history.creations}

    def drain(mine):
        for name in mine:
            owed = {p.identity for p in history.publishes if p.outcome is Outcome.OK and p.begun > created[name]}
            idle = 0
            while owed and idle < 5:
                got = spaces[0].pull_once(name, wait=4)
                idle = 0 if got else idle + 1
                for one in got:
                    message = one.message
                    seen = history.delivered(name, name, message.message_id, message.data, message.ordering_key)
                    owed.discard(seen.identity)
                if got:
                    spaces[0].ack(name, *got)

    run_all(*[lambda part=part: drain(names[part::4]) for part in range(4)])
    checkers.check(history, checkers.sync_point)
    assert len(names) >= 10

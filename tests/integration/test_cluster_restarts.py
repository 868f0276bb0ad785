"""Processes are restarted and emptied under calls that nobody repeats: what was begun ends."""

from __future__ import annotations

import contextlib
import re
import signal
import socket
import subprocess
import sys
import threading
import time

import grpc
import pytest

from syncpoint.programs.clusters.local import Shape
from syncpoint.testing.rigs import official
from syncpoint.testing.rigs.etcd import why_not
from syncpoint.testing.rigs.official import eventually
from syncpoint.wire.protobuf.messages import admin, pubsub
from tests.kit.clusters import Kit, note

pytestmark = pytest.mark.shows("clients-restart")

SHAPE = Shape(clusters=1, disks=1, forwarders=2, routers=1, proxies=2)
CLASSES = {f"class-{number}": {"durability": "async"} for number in range(2, 7)}  # and the default one
PUBLISH = "/google.pubsub.v1.Publisher/Publish"


@pytest.fixture(scope="module")
def kit(tmp_path_factory):
    """Each publish forwarder has six chains."""
    if why_not():
        pytest.skip(why_not())
    made = Kit(tmp_path_factory.mktemp("restarts"), SHAPE, {"classes": CLASSES})
    try:
        yield made.up()
    finally:
        made.down()


def run(*words):
    """What a command says on standard error. It is a process of its own, as what it starts outlives it."""
    command = [sys.executable, "-m", "syncpoint.programs.cli", *(str(word) for word in words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == 0, done.stderr
    return done.stderr


class Caller(threading.Thread):
    """Publishes without a pause over one connection after another; no call is made twice.

    A call waits until there is a connection, and then has one chance; only what never left the client, because its
    connection was asked to go at that moment, is sent over the next one, by gRPC itself.
    """

    def __init__(self, endpoint, topic):
        super().__init__(daemon=True)
        self.channel = official.connect(endpoint)
        self.call = self.channel.unary_unary(
            PUBLISH, lambda message: message.SerializeToString(), pubsub.PublishResponse.FromString
        )
        self.topic, self.answered, self.failed = topic, 0, []
        self.stop = threading.Event()

    def run(self):
        request = pubsub.PublishRequest(topic=self.topic, messages=[pubsub.PubsubMessage(data=b"x")])
        while not self.stop.is_set():
            try:
                self.call(request, timeout=60, wait_for_ready=True)
                self.answered += 1
            except grpc.RpcError as error:
                self.failed.append(f"{error.code().name}: {error.details()}")

    def end(self):
        self.stop.set()
        self.join()
        self.channel.close()


@pytest.mark.long
@pytest.mark.timeout(240)
def test_a_rolling_restart_of_proxies_fails_no_call(kit, enter):
    space = enter(kit.proxies[0])
    topic = space.topic()
    callers = [Caller(kit.proxies[number % 2], topic) for number in range(8)]
    for caller in callers:
        caller.start()
    try:
        eventually(lambda: all(caller.answered > 5 for caller in callers), what="calls flow")
        reported = run("cluster", "restart", "--dir", kit.local.folder, "proxy")
        note(f"rolling restart of proxies: {reported}")
        before = [caller.answered for caller in callers]
        eventually(
            lambda: all(c.answered > b + 5 for c, b in zip(callers, before, strict=True)), what="they flow again"
        )
    finally:
        for caller in callers:
            caller.end()
    failed = [one for caller in callers for one in caller.failed]
    note(f"{sum(caller.answered for caller in callers)} calls, {len(failed)} failed")
    assert not failed, failed[:3]
    assert "proxy-1: listens again" in reported
    assert "proxy-2: listens again" in reported


def listens(address):
    host, _, port = address.rpartition(":")
    with contextlib.suppress(OSError), socket.create_connection((host, int(port)), 1.0):
        return True
    return False


def test_a_proxy_that_stops_finishes_what_is_under_way(kit, enter):
    """A publish that waits for a disk, and a pull that waits for messages, over a proxy that is asked to stop."""
    space = enter(kit.proxies[1])
    topic, subscription = space.pair()
    space.publish(topic, b"warm")
    space.pull(subscription, 1, ack=True)
    api = official.Api(kit.proxies[0])
    api.publish({"topic": topic, "messages": [{"data": b"also warm"}]})
    space.pull(subscription, 1, ack=True)
    request = pubsub.PublishRequest(topic=topic, messages=[pubsub.PubsubMessage(data=b"waits")])
    raw = api.channel.unary_unary(PUBLISH, lambda one: one.SerializeToString(), pubsub.PublishResponse.FromString)
    pulling = api.channel.unary_unary(
        "/google.pubsub.v1.Subscriber/Pull", lambda one: one.SerializeToString(), pubsub.PullResponse.FromString
    )
    try:
        with kit.frozen(["storage-c1"]):
            pull = pulling.future(pubsub.PullRequest(subscription=subscription, max_messages=1), timeout=60)
            publish = raw.future(request, timeout=60)
            time.sleep(1.0)  # they are under way: nobody can know from outside
            assert not publish.done()
            kit.local.send("proxy-1", signal.SIGTERM)
            eventually(lambda: not listens(kit.proxies[0]), what="it listens no more")
            assert kit.local.state("proxy-1").state == "running"
            assert not publish.done(), "the call it has is left alone"
            pull.result()  # answered with nothing, at once
        assert len(publish.result().message_ids) == 1
        eventually(lambda: kit.local.state("proxy-1").state == "down", what="then it ends")
    finally:
        api.close()
        kit.heal()
        kit.stabilize()
    assert [one.message.data for one in space.pull(subscription, 1, ack=True)] == [b"waits"]


@pytest.mark.timeout(240)
def test_a_process_with_six_chains_is_drained_and_stops(kit):
    name = "publish-forwarder-1"
    had = [one.number for one in kit.chains() if one.owner == name]
    assert len(had) == 6
    begun = time.monotonic()
    reported = run("drain", name, "--endpoint", kit.proxies[0], "--within", "2m")
    took = time.monotonic() - begun
    note(f"drain of six chains: {took:.1f} s")
    counts = [int(line.split(", ")[1].split()[0]) for line in reported.splitlines() if line.endswith("left")]
    assert counts == sorted(counts, reverse=True), reported
    assert all(count <= 6 for count in counts)
    assert f"Drained [{name}] in " in reported
    assert all(one.owner != name for one in kit.chains())
    run("undrain", name, "--endpoint", kit.proxies[0])
    eventually(lambda: sum(one.owner == name for one in kit.chains()) == 6, 60, "it has them again")

    begun = time.monotonic()
    kit.local.stop(name)
    note(f"stop with six chains: {time.monotonic() - begun:.1f} s")
    said = kit.local.log(name).read_text()
    assert "hands over 6 chains" in said
    left = [int(one) for one in re.findall(r"(\d) of 6 chains left", said)]
    assert left == sorted(left, reverse=True), said
    assert len(left) > 1, "one after the other, although two may go between two looks"
    assert left[-1] == 0
    assert all(one.owner == "publish-forwarder-2" for one in eventually(lambda: owned(kit), 40, "adopted"))
    kit.local.start(name)
    kit.stabilize()


def owned(kit):
    chains = kit.admin("ListChains", admin.ListChainsRequest()).chains
    return chains if all(one.owner and one.owner != "publish-forwarder-1" for one in chains) else None

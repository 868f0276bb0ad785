"""Scenarios of processes that die, hang, are missing, or get no memory."""

from __future__ import annotations

import resource
import time
from pathlib import Path

import grpc
from stage import Stage, scenario

from syncpoint.testing import official
from syncpoint.testing.history import Identity, Outcome, seal


@scenario("pairs")
def _(stage: Stage) -> None:
    """two processes at once are killed, again and again"""
    for _ in range(2):
        victims = stage.chance.sample([name for name in stage.net.addresses if not name.startswith("etcd")], 2)
        for name in victims:
            stage.kit.local.kill(name)
        stage.wait(0.3)
        for name in victims:
            stage.kit.local.start(name)
        stage.wait(0.1)


@scenario("long-pauses")
def _(stage: Stage) -> None:
    """an owner and a subscribe forwarder hang for longer than any lease, and wake up"""
    names = [stage.owner(), stage.one("subscribe-forwarder")]
    for name in names:
        stage.kit.local.pause(name)
    stage.wait()
    for name in names:
        stage.kit.local.resume(name)
    stage.wait(0.5)


def is_served(stage: Stage, number: int) -> int:
    """A subscription is created and gets a message; returns how often the creation had to be asked for again."""
    name = f"{stage.load.project}/subscriptions/late-{number}"
    again = 0
    while True:
        try:
            stage.load.api.create_subscription({"name": name, "topic": stage.load.topic}, timeout=30)
            break
        except grpc.RpcError as error:
            if error.code() not in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED) or again == 10:
                raise
            again += 1
    got = stage.load.api.pull({"subscription": name, "max_messages": 1}, timeout=60).received_messages
    assert got, "a subscription created without routers gets nothing"
    stage.load.api.delete_subscription({"subscription": name}, timeout=30)
    return again


@scenario("routers")
def _(stage: Stage) -> None:
    """all routers are dead for the whole time: publishing, receiving and creating subscriptions go on"""
    stage.wait(0.1)
    before = len(stage.load.errors)
    for name in stage.kit.names("router"):
        stage.kit.local.kill(name)
    end = time.monotonic() + stage.seconds
    created = again = 0
    while time.monotonic() < end:
        stage.flowing()
        again += is_served(stage, created)
        created += 1
        time.sleep(min(20.0, max(0.0, end - time.monotonic())))
    failed = len(stage.load.errors) - before
    stage.notes.append(
        f"{created} subscriptions were created and served without any router, {again} times asked again;"
        f" plain calls that failed: {before} in {stage.seconds / 10:.0f} s with routers, {failed} without"
    )
    # A machine with too much to do fails calls with routers as well; what is new without them is their loss.
    assert failed <= 10 * before, f"{failed} calls failed, the last: {stage.load.errors[-1]}"


def address_space(pid: int) -> int:
    """Bytes of addresses that a process has."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmSize:"))


def large(stage: Stage, api: official.Api, number: int) -> None:
    """One message of two megabytes, entered in the history. Without TLS the official subscriber takes four at most."""
    identity = Identity("large", number)
    operation = stage.load.history.publishing(stage.load.topic, identity)
    request = {"topic": stage.load.topic, "messages": [{"data": seal(identity, bytes(2_000_000))}]}
    try:
        answer = api.publish(request, timeout=5)
    except grpc.RpcError:
        stage.load.history.end(operation, Outcome.UNKNOWN)
    else:
        stage.load.history.published(operation, answer.message_ids[0])


@scenario("memory")
def _(stage: Stage) -> None:
    """a publish and a subscribe forwarder get no more memory, and are killed if they live on"""
    api = official.Api(stage.kit.proxies[0])
    for turn, name in enumerate((stage.owner(), stage.one("subscribe-forwarder"))):
        pid = stage.net.state(name).pid
        assert pid is not None, f"{name} does not run"
        resource.prlimit(pid, resource.RLIMIT_AS, (address_space(pid), resource.RLIM_INFINITY))
        for number in range(8):
            large(stage, api, 10 * turn + number)
        stage.wait(0.3)
        failed = stage.net.log(name).read_text(errors="replace").count("MemoryError")
        lives = stage.net.state(name).state == "running"
        stage.notes.append(f"{name}: {failed} times MemoryError, {'killed' if lives else 'it had ended by itself'}")
        if lives:
            stage.net.kill(name)
        stage.flowing()
        stage.net.start(name)
    api.close()

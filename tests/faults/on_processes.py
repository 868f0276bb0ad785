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


@scenario("routers")
def _(stage: Stage) -> None:
    """all routers are dead for the whole time, no call fails; subscriptions are created meanwhile"""
    for name in stage.kit.names("router"):
        stage.kit.local.kill(name)
    end = time.monotonic() + stage.seconds
    created = 0
    while time.monotonic() < end:
        stage.flowing()
        name = f"{stage.load.project}/subscriptions/late-{created}"
        request = {"name": name, "topic": stage.load.topic}
        stage.load.api.create_subscription(request, timeout=30)
        stage.load.api.pull({"subscription": name, "max_messages": 1}, timeout=20)
        stage.load.api.delete_subscription({"subscription": name}, timeout=30)
        created += 1
        time.sleep(min(20.0, max(0.0, end - time.monotonic())))
    stage.notes.append(f"{created} subscriptions were created and served without any router")
    assert not stage.load.errors, f"{len(stage.load.errors)} calls failed, first: {stage.load.errors[0]}"


def address_space(pid: int) -> int:
    """Bytes of addresses that a process has."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmSize:"))


def large(stage: Stage, api: official.Api, number: int) -> None:
    """One message of eight megabytes, entered in the history."""
    identity = Identity("large", number)
    operation = stage.load.history.publishing(stage.load.topic, identity)
    request = {"topic": stage.load.topic, "messages": [{"data": seal(identity, bytes(8_000_000))}]}
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
        resource.prlimit(pid, resource.RLIMIT_AS, (address_space(pid) + (1 << 20), resource.RLIM_INFINITY))
        for number in range(3):
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

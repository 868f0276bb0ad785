"""Scenarios of processes that die, hang, are missing, or get no memory."""

from __future__ import annotations

import itertools
import resource
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc

from syncpoint.testing.rigs import official
from syncpoint.testing.rigs.history import MessageIdentity, Outcome, seal
from tests.faults.stage import Stage, scenario


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


USUAL_S = 60.0  # at most, to see what fails with routers


@scenario("routers")
def _(stage: Stage) -> None:
    """all routers are dead for the whole time: publishing, receiving and creating subscriptions go on"""
    begun, failed_before = time.monotonic(), len(stage.load.errors)
    time.sleep(min(stage.seconds, USUAL_S))
    usual_s, usual = time.monotonic() - begun, len(stage.load.errors) - failed_before
    before = len(stage.load.errors)
    for name in stage.kit.names("router"):
        stage.kit.local.kill(name)
    killed = time.monotonic()
    end = killed + stage.seconds
    created = again = 0
    while time.monotonic() < end:
        stage.flowing()
        again += is_served(stage, created)
        created += 1
        time.sleep(min(20.0, max(0.0, end - time.monotonic())))
    without_s, failed = time.monotonic() - killed, len(stage.load.errors) - before
    stage.notes.append(
        f"{created} subscriptions were created and served without any router, {again} times asked again;"
        f" plain calls that failed: {usual} in {usual_s:.0f} s with routers, {failed} in {without_s:.0f} s without"
    )
    # A machine with too much to do fails calls with routers as well; what is new without them is their loss.
    allowed = 2 + 2 * usual * without_s / usual_s
    assert failed <= allowed, f"{failed} calls failed, {allowed:.0f} may; the last: {stage.load.errors[-1]}"


LARGE_BYTES = 3_900_000  # of a large message; without TLS the official subscriber takes four millions at most
PROBES = 4  # large messages to see whom they go through
TOGETHER = 8  # such messages at once: no process has room for them among what it has already
ROUNDS_MAX = 15  # until a process must have asked for memory


def bytes_read(stage: Stage, name: str) -> int:
    """What a process has read from sockets and files."""
    pid = stage.net.state(name).pid
    lines = Path(f"/proc/{pid}/io").read_text().splitlines() if pid else []
    return next((int(line.split()[1]) for line in lines if line.startswith("rchar:")), 0)


def no_more_memory(pid: int) -> None:
    """From now on the process gets nothing: neither new mappings nor pages of arenas whose addresses it has already."""
    held = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    for limit, field in ((resource.RLIMIT_AS, "VmSize"), (resource.RLIMIT_DATA, "VmData")):
        # Below what it has: what it gives back it does not get again.
        resource.prlimit(pid, limit, (int(held[field].split()[0]) << 9, resource.RLIM_INFINITY))


def shortages(stage: Stage, name: str) -> int:
    """How often a process said that it got no memory."""
    text = stage.net.log(name).read_text(errors="replace")
    return text.count("MemoryError") + text.count("Cannot allocate memory")


def large(stage: Stage, api: official.Api, number: int) -> None:
    """One large message, entered in the history."""
    identity = MessageIdentity("large", number)
    operation = stage.load.history.publishing(stage.load.topic, identity)
    request = {"topic": stage.load.topic, "messages": [{"data": seal(identity, bytes(LARGE_BYTES))}]}
    try:
        answer = api.publish(request, timeout=5)
    except grpc.RpcError:
        stage.load.history.end(operation, Outcome.UNKNOWN)
    else:
        stage.load.history.published(operation, answer.message_ids[0])


@scenario("memory")
def _(stage: Stage) -> None:
    """a publish and a subscribe forwarder get no more memory, and are killed if they live on"""
    api, numbers = official.Api(stage.kit.proxies[0]), itertools.count()
    missed = False  # a subscribe forwarder may live on buffers that it has given back to itself
    for role in ("publish-forwarder", "subscribe-forwarder"):
        before_io = {name: bytes_read(stage, name) for name in stage.kit.names(role)}
        for _ in range(PROBES):
            large(stage, api, next(numbers))
        # The one that large messages go through; nothing asks much of the others.
        name = max(before_io, key=lambda one: bytes_read(stage, one) - before_io[one])
        pid = stage.net.state(name).pid
        assert pid is not None, f"{name} does not run"
        no_more_memory(pid)
        refused = before = shortages(stage, name)
        lives, sent = True, 0
        with ThreadPoolExecutor(TOGETHER) as pool:
            while sent < ROUNDS_MAX * TOGETHER and lives and refused == before:
                list(pool.map(lambda _: large(stage, api, next(numbers)), range(TOGETHER)))
                sent += TOGETHER
                refused, lives = shortages(stage, name), stage.net.state(name).state == "running"
        stage.wait(0.3)
        refused, lives = shortages(stage, name) - before, stage.net.state(name).state == "running"
        stage.notes.append(
            f"{name}: {refused} times no memory after {sent} large messages,"
            f" {'killed' if lives else 'it had ended by itself'}"
        )
        if lives:  # always: the limit would outlive the scenario
            stage.net.kill(name)
        missed = missed or refused > 0 or not lives
        stage.flowing()
        stage.net.start(name)
    assert missed, "all of them always got the memory that they asked for: nothing was tried"
    api.close()

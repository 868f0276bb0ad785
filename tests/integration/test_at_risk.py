"""At risk: what `GetAtRisk` foretells of failures is what happens when they are brought about, message by message.

One server whose third disk is out of use while messages and acknowledgements come in; then it is killed, and every set
of victims is wiped in a copy of what it left.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time

import pytest

from syncpoint.base.model.identity import parse_message_id
from syncpoint.front.client.client import Client
from syncpoint.testing.rigs.official import eventually
from syncpoint.testing.server_process import ServerFailed
from syncpoint.wire.protobuf.messages import admin

A, B, C = "a", "b", "c"


pytestmark = [pytest.mark.timeout(600), pytest.mark.shows("at-risk")]


def foretold(endpoint, **named):
    with Client(endpoint, timeout_s=20.0, patience_s=20.0) as client:
        return client.call("Admin.GetAtRisk", admin.GetAtRiskRequest(ranges_max=100_000, **named))


def places(count):
    """(source, offset) of what a RiskCount says."""
    assert count.ranges_total == len(count.ranges)
    found = {(one.source, at) for one in count.ranges for at in range(one.first_offset, one.last_offset + 1)}
    assert len(found) == count.messages
    return found


def of_topic(failure, topic):
    """Lost, unavailable and twice of one topic."""
    for one in failure.topics:
        if one.topic == topic:
            return places(one.lost), places(one.unavailable), places(one.twice)
    return set(), set(), set()


def place(message_id):
    return parse_message_id(message_id)[1:]


def published(space, topic, count, size=300):
    ids = []
    for start in range(0, count, 20):
        ids += space.publish(topic, *(b"%06d" % at + os.urandom(size) for at in range(start, min(count, start + 20))))
    return {place(one) for one in ids}


def taken(space, subscription, count):
    """Pulled until so many are here."""
    found = {}
    while len(found) < count:
        for one in space.pull_once(subscription, count - len(found), wait=5):
            found[place(one.message.message_id)] = one
    return found


def received(space, subscription):
    """All that comes, acknowledged, until nothing comes any more and nothing waits."""
    found, silent, end = set(), 0, time.monotonic() + 120
    while silent < 2:
        assert time.monotonic() < end
        fresh = space.pull_once(subscription, 1000, wait=1)
        found |= {place(one.message.message_id) for one in fresh}
        if fresh:
            space.ack(subscription, *fresh)
        left = space.asked("GetSubscriptionState", subscription=subscription).backlog_messages
        silent = 0 if fresh or left else silent + 1
    return found


def accept_loss(disks):
    command = [sys.executable, "-m", "syncpoint.programs.cli", "log", "recover", "--accept-loss", "--yes"]
    for disk in disks:
        command += ["--disk", str(disk)]
    subprocess.run(command, check=True, capture_output=True, timeout=60)


def test_what_is_foretold_of_a_server_and_its_disks_is_what_happens(boot, enter, tmp_path):
    disks = {name: tmp_path / "now" / name for name in (A, B, C)}
    server = boot(tmp_path / "data", disks=list(disks.values()))
    space = enter(server.endpoint)
    topic, subscription = space.pair(ack_deadline_seconds=600)
    whole = foretold(server.endpoint)
    assert {one.name for one in whole.failures} == {*map(str, disks.values()), "server"}
    assert not whole.unknown
    assert not any(one.lost.messages or one.stopped for one in whole.failures)

    first = published(space, topic, 200)
    early = taken(space, subscription, 40)
    space.ack(subscription, *early.values())
    eventually(lambda: len({one.position for one in disk_states(server)}) == 1, what="all three disks have it")
    aside = tmp_path / "aside"
    disks[C].rename(aside)  # out of use, with all it holds; a file in its place keeps it so
    disks[C].write_text("not a disk")
    second = published(space, topic, 120)
    eventually(lambda: any(one.state == admin.Disk.FAILED for one in disk_states(server)), what="the disk is given up")
    late = taken(space, subscription, 30)
    space.ack(subscription, *late.values())  # said on two disks alone
    lent = taken(space, subscription, 25)
    assert late.keys() <= first
    assert lent.keys() <= first

    def asked(victims):
        named = {"disks": [str(disks[one]) for one in victims], "processes": ["server"]}
        (one,) = foretold(server.endpoint, **named).failures
        return one, of_topic(one, topic)

    cases = {victims: asked(victims) for victims in ((A,), (A, B), (A, C), (A, B, C))}
    alive = foretold(server.endpoint)
    singles = {one.name: of_topic(one, topic) for one in alive.failures}
    assert (alive.failures[0].lost.messages, alive.failures[-1].name) == (0, str(disks[C]))
    needed = (first | second) - early.keys() - late.keys()
    assert singles[str(disks[A])] == singles[str(disks[B])] == (set(), needed, set())  # one is not enough to go on
    assert singles[str(disks[C])] == (set(), set(), set())
    assert not alive.failures[-1].stopped

    server.kill9()
    disks[C].unlink()
    aside.rename(disks[C])
    for number, (victims, (failure, (lost, unavailable, twice))) in enumerate(cases.items()):
        home = tmp_path / f"case-{number}"
        shutil.copytree(tmp_path / "now", home / "now")
        folders = [home / "now" / name for name in disks]
        for name in victims:
            shutil.rmtree(home / "now" / name)
            (home / "now" / name).mkdir()
        if len(victims) == 3:  # the server begins anew, and knows of nothing
            assert (lost, unavailable, twice) == (needed, set(), set())
            continue
        if victims == (A,):
            assert failure.stopped
            # It was foretold while C was away: the two others have to be opened without it, and are not.
            alone = home / "alone"
            shutil.copytree(home / "now", alone)
            shutil.rmtree(alone / C)
            (alone / C).mkdir()
            with pytest.raises(ServerFailed):
                boot(home / "alone-data", disks=[alone / name for name in disks])
        if len(victims) > 1:
            accept_loss(folders)
        after = boot(home / "data", disks=folders)
        here = enter(after.endpoint)
        here.project = space.project
        got = received(here, subscription)
        assert needed - got == lost, victims
        assert (got - needed) | (got & lent.keys()) == twice, victims
        assert unavailable == (needed - lost if failure.stopped else set()), victims
        after.kill9()


def disk_states(server):
    with Client(server.endpoint) as client:
        return client.call("Admin.ListDisks", admin.ListDisksRequest()).disks

"""Mitigation on real processes: one that stands still again and again is drained, and no call of a client fails."""

from __future__ import annotations

import threading
import time

import pytest

from syncpoint.testing.rigs.etcd import why_not
from syncpoint.testing.rigs.official import eventually
from syncpoint.wire.protobuf.messages import admin
from tests.kit.clusters import Kit

pytestmark = [pytest.mark.timeout(500), pytest.mark.shows("mitigation")]
SETTINGS = {"mitigation": {"mode": "act", "probation_s": 15, "loop_lag_s": 0.4, "share": 0.5}}


class Pulses(threading.Thread):
    """A process stands still for a second, and goes on for a moment, until it is left alone."""

    def __init__(self, cluster, name):
        super().__init__(daemon=True)
        self.cluster, self.name_of = cluster, name
        self.over = threading.Event()

    def run(self):
        while not self.over.is_set():
            self.cluster.local.pause(self.name_of)
            time.sleep(1.0)
            self.cluster.local.resume(self.name_of)
            self.over.wait(0.7)

    def end(self):
        self.over.set()
        self.join()


@pytest.fixture
def acting(tmp_path):
    if why_not():
        pytest.skip("etcd is not installed (Debian: apt-get install etcd-server)")
    kit = Kit(tmp_path, changes=SETTINGS)
    try:
        yield kit.up()
    finally:
        kit.down()


def status(cluster):
    return cluster.admin("GetMitigation", admin.GetMitigationRequest())


def test_a_process_that_stands_still_again_and_again_is_drained_and_put_back(acting, enter):
    space = enter(acting.proxies[0])
    topic, subscription = space.pair()
    space.publish(topic, b"everything is open")
    victim = acting.chains()[0].owner
    assert victim.startswith("publish-forwarder")
    published, slowest_s = [], 0.0
    pulses = Pulses(acting, victim)
    pulses.start()

    def drained():
        nonlocal slowest_s
        begun = time.monotonic()
        published.append(b"%d" % len(published))
        space.publish(topic, published[-1])
        slowest_s = max(slowest_s, time.monotonic() - begun)
        return acting.members()[victim].draining

    try:
        eventually(drained, 90, "the process is drained by itself")
        eventually(lambda: all(one.owner != victim for one in acting.chains()), 60, "others have its chains")
    finally:
        pulses.end()
    records = {(one.action, one.process, one.outcome) for one in status(acting).records}
    assert ("drain", victim, "done") in records
    (drain,) = acting.admin("ListDrains", admin.ListDrainsRequest()).drains
    assert drain.comment.startswith("mitigation: its event loop was late")
    eventually(lambda: not acting.members()[victim].draining, 120, "it is put back after its probation")
    assert ("undrain", victim, "done") in {(one.action, one.process, one.outcome) for one in status(acting).records}
    assert {*published, b"everything is open"} == {
        one.message.data for one in space.pull(subscription, len(published) + 1, within=60, ack=True)
    }
    assert slowest_s < 30  # a call of the client's ends with an error after that; none did

    paused = acting.admin("PauseMitigation", admin.PauseMitigationRequest(comment="by hand today"))
    assert paused.paused
    assert not acting.admin("ResumeMitigation", admin.ResumeMitigationRequest()).paused
    rows = acting.admin("GetHeadroom", admin.GetHeadroomRequest()).rows
    assert {(one.role, one.left, one.members) for one in rows if not one.unknown} >= {("publish-forwarder", 1, 2)}

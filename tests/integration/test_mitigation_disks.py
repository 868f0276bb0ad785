"""A disk that gets slow, under real processes: what could not be acknowledged without it is published elsewhere, and no
publish fails; it is put back once it is as fast as the others."""

from __future__ import annotations

import sys
import time
import urllib.request

import pytest

from syncpoint.programs.clusters.local import Shape
from syncpoint.testing.rigs.etcd import why_not
from syncpoint.testing.rigs.official import eventually
from syncpoint.wire.protobuf.messages import admin
from tests.kit.clusters import Kit

pytestmark = [
    pytest.mark.timeout(500),
    pytest.mark.long,  # where everything else writes, too, all disks are slow, and none is slower than the others
    pytest.mark.shows("mitigation"),
]
SLOW_S = 1.5
SETTINGS = {
    "mitigation": {"mode": "act", "probation_s": 12},
    "replication": {"clusters": 1, "disks": 1, "durability": "sync"},  # a chain has one disk: no other is faster
}
SYNCS_SLOWLY = """
import os, sys, time
from syncpoint.base.runtime.os_files import OsFiles
whole = OsFiles.fdatasync
def fdatasync(self, handle):
    if os.path.exists(sys.argv[sys.argv.index("--name") + 1] + ".slow"):
        time.sleep({slow_s})
    whole(self, handle)
OsFiles.fdatasync = fdatasync
from syncpoint.programs.cli.main import main
main()
"""


@pytest.fixture
def acting(tmp_path):
    if why_not():
        pytest.skip("etcd is not installed (Debian: apt-get install etcd-server)")
    kit = Kit(tmp_path, Shape(clusters=3, disks=1, forwarders=2, routers=1, proxies=1), SETTINGS)
    for number in (1, 2, 3):
        kit.local.assign(f"storage-c{number}", [sys.executable, "-c", SYNCS_SLOWLY.replace("{slow_s}", str(SLOW_S))])
    try:
        yield kit.up()
    finally:
        kit.down()


def metrics_of(cluster, name):
    address = cluster.local.settings().processes[name].metrics
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
        return answer.read().decode()


def test_a_slow_disk_is_drained_before_a_publish_fails_and_put_back(acting, enter):
    space = enter(acting.proxies[0])
    topic, subscription = space.pair()
    published = [b"where it is stored: 7f3a9c"]
    space.publish(topic, published[0])
    (folder,) = acting.disks_holding(published[0])
    victim = f"storage-{folder.name.partition('-')[0]}"
    slow = acting.local.folder / f"{victim}.slow"
    slow.touch()

    def publish_s():
        published.append(b"%d" % len(published))
        begun = time.monotonic()
        space.publish(topic, published[-1])
        return time.monotonic() - begun

    assert publish_s() >= SLOW_S
    eventually(lambda: publish_s() < SLOW_S, 120, "it is published where no disk is slow")
    assert acting.members()[victim].draining
    (drain,) = acting.admin("ListDrains", admin.ListDrainsRequest()).drains
    assert (drain.target, drain.comment[:47]) == (victim, "mitigation: its disks were slower than others 3")
    assert "syncpoint_mitigation_drained 1" in metrics_of(acting, "router-1")
    assert [publish_s() < SLOW_S for _ in range(5)].count(True) >= 4
    slow.unlink()
    eventually(lambda: not acting.members()[victim].draining, 120, "it is put back after its probation")
    records = acting.admin("GetMitigation", admin.GetMitigationRequest()).records
    assert {("drain", victim, "done"), ("undrain", victim, "done")} <= {
        (one.action, one.process, one.outcome) for one in records
    }
    assert set(published) == {one.message.data for one in space.pull(subscription, len(published), within=60, ack=True)}

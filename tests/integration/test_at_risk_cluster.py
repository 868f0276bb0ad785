"""At risk in a cluster: a storage cluster is down, and what is foretold of further failures is what happens."""

from __future__ import annotations

import shutil

import pytest

from syncpoint.front.client.client import Client
from syncpoint.testing.rigs.official import eventually
from syncpoint.wire.protobuf.messages import admin
from tests.integration.test_at_risk import of_topic, published, received, taken

pytestmark = pytest.mark.shows("at-risk")


def asked(cluster, **named):
    with Client(cluster.proxies[0], timeout_s=20.0, patience_s=20.0) as client:
        found = client.call("Admin.GetAtRisk", admin.GetAtRiskRequest(ranges_max=100_000, **named))
    assert not found.unknown
    return {(admin.Failure.Kind.Name(one.kind), one.name): one for one in found.failures}


def test_what_is_foretold_of_processes_disks_and_clusters_is_what_happens(cluster, enter):
    space = enter(cluster.proxies[0])
    topic, subscription = space.pair(ack_deadline_seconds=600)
    first = published(space, topic, 60)
    done = taken(space, subscription, 20)
    space.ack(subscription, *done.values())
    lent = taken(space, subscription, 10)
    cluster.local.kill("storage-c3")
    second = published(space, topic, 40)  # of which two clusters know
    needed = (first | second) - done.keys()

    def noticed():
        found = asked(cluster)
        return found if of_topic(found["CLUSTER", "c1"], topic)[1] else None

    singles = eventually(noticed, 60, "the owner of these messages sees that a storage cluster is away")
    nothing = set(), set(), set()
    assert of_topic(singles["CLUSTER", "c3"], topic) == nothing
    for disk in ("d1", "d2", "d3"):  # one disk of each cluster that is left may go, also now
        assert of_topic(singles["DISK", f"storage-c1/{disk}"], topic) == nothing
    for gone in (("CLUSTER", "c1"), ("CLUSTER", "c2"), ("PROCESS", "storage-c1"), ("PROCESS", "storage-c2")):
        lost, unavailable, _ = of_topic(singles[gone], topic)
        assert (lost, unavailable) == (set(), needed), gone
    (holder,) = [name for name in cluster.names("subscribe-forwarder")
                 if of_topic(singles["PROCESS", name], topic)[2]]  # fmt: skip
    assert of_topic(singles["PROCESS", holder], topic) == (set(), set(), lent.keys())
    owners = cluster.names("publish-forwarder")  # they may still write to c3 what waits for it
    (most,) = asked(cluster, clusters=["c1", "c2"], processes=owners).values()
    assert of_topic(most, topic)[0] >= second, "no disk that is left has them"

    disk = next(path for path in cluster.disks() if path.name == "c1-d1")
    cluster.local.kill(holder)
    cluster.local.kill("storage-c1")
    for path in disk.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    cluster.local.start("storage-c1")
    got = received(space, subscription)
    assert got == needed, "nothing is lost, and what was lent comes again, and nothing else"
    for name in (holder, "storage-c3"):
        cluster.local.start(name)

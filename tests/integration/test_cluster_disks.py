"""Where the copies are: at the acknowledgement, after it, and after a disk was lost."""

from __future__ import annotations

import json
import shutil
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest

from syncpoint.testing.rigs.official import bodies, eventually
from tests.kit.clusters import note

pytestmark = pytest.mark.shows("disks")

TRIES = 3


def markers():
    return f"marker-{uuid.uuid4().hex}".encode()


def test_at_the_acknowledgement_a_majority_of_clusters_holds_it(cluster, enter):
    """All processes stand still at the answer: at least 2 disks in each of 2 clusters hold the message; 9 of 9 a little
    later."""
    space = enter(cluster.proxies[0])
    topic = space.topic()
    seen = []
    for _ in range(TRIES):
        marker = markers()
        space.publish(topic, marker)
        with cluster.frozen():
            holding = cluster.disks_holding(marker)
        seen.append(len(holding))
        per_cluster = [sum(f"c{number}-" in disk.name for disk in holding) for number in (1, 2, 3)]
        assert sum(count >= 2 for count in per_cluster) >= 2, holding
        eventually(lambda marker=marker: len(cluster.disks_holding(marker)) == 9, what="all nine disks hold it")
    note(f"copies at the acknowledgement: {seen}")
    assert min(seen) >= 4


def test_three_copies_in_one_cluster_are_not_enough_to_acknowledge(cluster, enter):
    """Two of three clusters stand still: nobody is answered before one of them has it, too.

    The instant of an answer cannot be checked from outside; this is what must not come before it.
    """
    space = enter(cluster.proxies[0])
    topic = space.topic()
    space.publish(topic, b"everything is open")
    marker = markers()
    with ThreadPoolExecutor(1) as pool, cluster.frozen(["storage-c2", "storage-c3"]):
        publishing = pool.submit(space.publish, topic, marker)
        eventually(lambda: len(cluster.disks_holding(marker)) == 3, what="one cluster has it on all of its disks")
        with pytest.raises(TimeoutError):
            publishing.result(timeout=0.5)
        cluster.local.resume("storage-c2")
        publishing.result(timeout=30)
        holding = [disk.name for disk in cluster.disks_holding(marker)]
    assert sum("c1-" in name for name in holding) >= 2, holding
    assert sum("c2-" in name for name in holding) >= 2, holding


def test_with_one_cluster_down_the_acknowledgement_still_means_four_copies(cluster, enter):
    space = enter(cluster.proxies[0])
    topic = space.topic()
    cluster.local.kill("storage-c3")
    space.publish(topic, b"the first one finds out")
    marker = markers()
    space.publish(topic, marker)
    with cluster.frozen([one.name for one in cluster.local.states() if one.state == "running"]):
        holding = cluster.disks_holding(marker)
    assert sum("c1-" in disk.name for disk in holding) >= 2
    assert sum("c2-" in disk.name for disk in holding) >= 2
    cluster.local.start("storage-c3")
    eventually(lambda: len(cluster.disks_holding(marker)) == 9, 60, "the one that was away is brought up to date")


def test_a_wiped_disk_comes_back_as_another_one(cluster, enter):
    """Emptied while its process is down: it rejoins under a new identity and is filled with what it has to hold."""
    space = enter(cluster.proxies[0])
    topic, subscription = space.pair()
    marker = markers()
    space.publish(topic, marker)
    eventually(lambda: len(cluster.disks_holding(marker)) == 9)
    disk = next(path for path in cluster.disks() if path.name == "c2-d2")

    def identities():
        found = {}
        for path in (disk / "chains").glob("*/disk.json"):
            found[path.parent.name] = json.loads(path.read_text())["content"]["incarnation"]
        return found

    before = identities()
    cluster.local.stop("storage-c2")
    for path in disk.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    cluster.local.start("storage-c2")
    space.publish(topic, b"goes on")
    eventually(lambda: identities().keys() >= before.keys(), 60, "the disk is admitted again")
    assert not set(identities().values()) & set(before.values())
    eventually(lambda: len(cluster.disks_holding(marker)) == 9, 60, "the disk is filled again")
    assert set(bodies(space.pull(subscription, 2, ack=True))) == {marker, b"goes on"}

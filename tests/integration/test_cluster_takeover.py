"""A chain is served while a majority of its disks is there: whoever is away, and wherever that stands in its list."""

from __future__ import annotations

import json
import time

import pytest
import yaml

from syncpoint.programs.clusters.local import Shape
from syncpoint.testing.rigs.etcd import why_not
from syncpoint.testing.rigs.official import bodies, eventually
from tests.kit.clusters import Kit, note

pytestmark = pytest.mark.shows("failover")


@pytest.mark.parametrize("first", [True, False], ids=["its-first-disks", "its-last-disks"])
def test_a_chain_is_taken_over_while_a_storage_process_has_been_away_for_longer_than_its_lease(cluster, enter, first):
    victim = next(one for one in cluster.chains() if one.owner == "publish-forwarder-1")
    listed = [disk.process for disk in victim.disks]
    away = listed[0] if first else listed[-1]
    space = enter(cluster.proxies[0])
    topic, subscription = space.pair()
    space.publish(topic, *(b"before %d" % number for number in range(20)))
    cluster.local.kill(away)
    eventually(lambda: away not in cluster.members(), what="its lease has ended")
    cluster.local.kill(victim.owner)
    begun = time.monotonic()

    def adopted() -> bool:
        owner = next(one.owner for one in cluster.chains() if one.number == victim.number)
        return owner not in ("", victim.owner)

    eventually(adopted, what="the chain has another owner")
    space.publish(topic, b"after")
    expected = {b"after", *(b"before %d" % number for number in range(20))}
    assert set(bodies(space.pull(subscription, len(expected), within=30.0))) == expected
    note(f"{away} away: {victim.owner}'s chain was taken over and served after {time.monotonic() - begun:.1f} s")


@pytest.mark.skipif(bool(why_not()), reason="etcd is not installed (Debian: apt-get install etcd-server)")
def test_a_chain_that_nobody_serves_is_paged_for(tmp_path):
    """Its only publish forwarder is killed. That this one does not answer is notified of later."""
    pages = tmp_path / "pages"
    who = {"people": {"ana": {"command": ["/bin/sh", "-c", f"cat >> {pages}; echo >> {pages}"]}}}
    on_call = {"on_call": {"sites": [{"name": "here", "people": ["ana"]}]}}
    (tmp_path / "monitor.yaml").write_text(yaml.safe_dump({**who, **on_call}))
    place = {"process": "proxy-1", "data": str(tmp_path / "monitor"), "file": str(tmp_path / "monitor.yaml")}
    kit = Kit(tmp_path / "cluster", Shape(1, 1, 1, 1, 1), {"monitor": place})

    def paged() -> set[str]:
        texts = pages.read_text().splitlines() if pages.exists() else []
        return {found["rule"] for found in map(json.loads, filter(None, texts)) if found["why"] == "fired"}

    try:
        kit.up()
        assert paged() == set()
        kit.local.kill("publish-forwarder-1")
        begun = time.monotonic()
        eventually(lambda: "ChainUnserved" in paged(), 60, "somebody is notified of the chain")
        note(f"a page for a chain that nobody serves: {time.monotonic() - begun:.1f} s after its owner was killed")
        eventually(lambda: "ProcessUnanswered" in paged(), 90, "and of the process")
        assert paged() == {"ChainUnserved", "ProcessUnanswered"}
    finally:
        kit.down()

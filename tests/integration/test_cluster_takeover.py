"""A chain is served while a majority of its disks is there: whoever is away, and wherever that stands in its list."""

from __future__ import annotations

import time

import pytest

from syncpoint.testing.official import bodies, eventually
from tests.kit.clusters import note


@pytest.mark.parametrize("first", [True, False], ids=["its-first-disks", "its-last-disks"])
def test_a_chain_is_taken_over_while_a_storage_process_has_been_away_for_longer_than_its_lease(cluster, enter, first):
    victim = next(one for one in cluster.chains() if one.owner == "publish-forwarder-1")
    listed = [disk.process for disk in victim.disks]
    away = listed[0] if first else listed[-1]
    space = enter(cluster.proxies[0])
    topic, subscription = space.pair()
    space.publish(topic, *(b"before %d" % number for number in range(20)))
    cluster.local.kill(away)
    eventually(lambda: away not in cluster.members(), 30, "its lease has ended")
    cluster.local.kill(victim.owner)
    begun = time.monotonic()

    def adopted() -> bool:
        owner = next(one.owner for one in cluster.chains() if one.number == victim.number)
        return owner not in ("", victim.owner)

    eventually(adopted, 30, "the chain has another owner")
    space.publish(topic, b"after")
    expected = {b"after", *(b"before %d" % number for number in range(20))}
    assert set(bodies(space.pull(subscription, len(expected), within=30.0))) == expected
    note(f"{away} away: {victim.owner}'s chain was taken over and served after {time.monotonic() - begun:.1f} s")

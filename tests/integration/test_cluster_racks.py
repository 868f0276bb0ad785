"""Two racks, one of which is lost: a class that asks for both stops and loses nothing; another goes on, marked."""

from __future__ import annotations

from collections.abc import Iterator

import grpc
import pytest
import yaml

from syncpoint.programs.clusters.local import Shape
from syncpoint.testing.rigs import etcd
from syncpoint.testing.rigs.official import bodies, eventually
from tests.integration.conftest import Space
from tests.kit.clusters import Kit

pytestmark = [pytest.mark.skipif(etcd.why_not() is not None, reason=etcd.why_not() or ""), pytest.mark.shows("quorums")]

BOTH, EITHER = "default", "either"
LOST = "storage-c3"  # alone in its rack


@pytest.fixture(scope="module")
def kit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kit]:
    """Storage clusters c1 and c2 in one rack, c3 in the other."""
    changes = {
        "replication": {"clusters": 3, "disks": 1, "placement": "enforce", "racks_min": 2},
        "classes": {EITHER: {"placement": "degrade"}},
    }
    made = Kit(tmp_path_factory.mktemp("racks") / "c", Shape(3, 1, forwarders=1, routers=1, proxies=1), changes)
    path = made.local.settings_path
    content = yaml.safe_load(path.read_text())
    for name, process in content["processes"].items():
        process["rack"] = "b" if name == LOST else "a"
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    try:
        yield made.up()
    finally:
        made.down()


def test_a_rack_is_lost_and_comes_back(kit: Kit) -> None:
    space = Space(kit.proxies[0])
    topics = {kind: space.topic(kind) for kind in (BOTH, EITHER)}
    subscriptions = {kind: space.subscription(topic, kind) for kind, topic in topics.items()}
    options = {"topic": topics[EITHER], "durability_class": EITHER}
    space.asked("UpdateTopicOptions", options=options, update_mask={"paths": ["durability_class"]})
    confirmed = {kind: [f"{kind} {number}".encode() for number in range(20)] for kind in topics}
    for kind, sent in confirmed.items():
        messages = [{"data": data} for data in sent]
        space.api.publish({"topic": topics[kind], "messages": messages}, timeout=60.0)  # its first chain is made now
    marked = {one.durability_class: one.below_policy for one in space.asked("ListChains").chains}
    assert marked == {BOTH: False, EITHER: True}, "two of three clusters in one rack could acknowledge alone"

    kit.local.kill(LOST)
    request = {"topic": topics[BOTH], "messages": [{"data": b"without a rack"}]}
    with pytest.raises(grpc.RpcError) as refused:
        space.api.publish(request, timeout=5.0)
    assert refused.value.code() in (grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.UNAVAILABLE)
    for number in range(20):
        confirmed[EITHER].append(b"%d of one rack" % number)
        space.publish(topics[EITHER], confirmed[EITHER][-1])

    kit.local.start(LOST)
    eventually(lambda: space.publish(topics[BOTH], b"with both"), 60.0)
    for kind, sent in confirmed.items():
        found = bodies(space.pull(subscriptions[kind], len(sent), within=60.0, ack=True))
        assert set(sent) <= set(found), kind
    space.close()

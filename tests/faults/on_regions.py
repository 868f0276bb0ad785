"""Scenarios of two regions: what a topic's policy allows is kept while they are parted, and nothing is lost."""

from __future__ import annotations

import uuid

import grpc

from syncpoint.node.cluster.local import Shape
from syncpoint.testing import official
from syncpoint.testing.official import eventually
from tests.faults.stage import Stage, scenario
from tests.kit.clusters import holds

SHAPE = Shape(clusters=1, disks=1, forwarders=1, routers=1, proxies=1, regions=2, etcd=3)
ONLY_R2 = {"message_storage_policy": {"allowed_persistence_regions": ["r2"]}}
TRY_S = 5.0


def marked(api: official.Api, topic: str) -> tuple[str, str]:
    """Publish once, without retries: the mark that the message carries, and the status that came back."""
    mark = f"mark-{uuid.uuid4().hex}"
    try:
        api.publish({"topic": topic, "messages": [{"data": b"", "attributes": {"mark": mark}}]}, timeout=TRY_S)
    except grpc.RpcError as error:
        return mark, error.code().name
    return mark, "OK"


def regions_of(stage: Stage, mark: str) -> set[str]:
    """Regions on whose disks a mark is found."""
    return {disk.name.split("-")[0] for disk in stage.kit.disks() if holds(disk, mark.encode())}


def split(stage: Stage, others: list[str]) -> None:
    """Publish to a topic of r2 alone and to one without a policy, on both sides, while r2 is parted from `others`."""
    apis = {region: official.Api(address) for region, address in zip(("r1", "r2"), stage.kit.proxies, strict=True)}
    project = f"projects/regions-{uuid.uuid4().hex[:12]}"
    only = apis["r1"].create_topic({"name": f"{project}/topics/only", **ONLY_R2}).name
    free = apis["r1"].create_topic({"name": f"{project}/topics/free"}).name
    for topic in (only, free):
        for api in apis.values():
            eventually(lambda api=api, topic=topic: marked(api, topic)[1] == "OK", 30.0, f"{topic} takes messages")
    stage.net.part([name for name in stage.net.addresses if name.startswith("r2-")], others)
    stage.wait(0.5)
    said = {}
    for region, api in apis.items():
        for topic in (only, free):
            tries = [marked(api, topic) for _ in range(3)]
            said[region, topic] = tries[-1][1]
            for mark, code in tries:
                found = regions_of(stage, mark)
                assert topic is free or found <= {"r2"}, f"a message for r2 alone lies in {found}"
                assert found or code != "OK", "confirmed, and on no disk"
    stage.notes.append(
        "parted, said to publishes: "
        + ", ".join(f"in {region} to {topic.rpartition('/')[2]}: {code}" for (region, topic), code in said.items())
    )
    assert said["r1", only] != "OK", "stored in r2 through r1 although nothing passes between them"
    assert said["r1", free] == "OK", "r1 takes no messages for itself"
    assert said["r2", only] == "OK", "r2 takes no messages for itself"
    assert said["r2", free] == "OK", "r2 takes no messages of topics that may lie anywhere"
    stage.wait(0.5)
    for api in apis.values():
        api.close()


@scenario("regions-parted", shape=SHAPE, topic=ONLY_R2)
def _(stage: Stage) -> None:
    """two regions receive nothing from each other, both reach etcd; the load's topic may lie in one of them only"""
    split(stage, [name for name in stage.net.addresses if name.startswith("r1-")])


@scenario("region-cut-off", shape=SHAPE, topic=ONLY_R2)
def _(stage: Stage) -> None:
    """the region that has all messages is parted from the other one and from etcd: it goes on by itself"""
    split(stage, [name for name in stage.net.addresses if not name.startswith("r2-")])

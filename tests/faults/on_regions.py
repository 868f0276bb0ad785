"""Scenarios of two regions: what a topic's policy allows is kept while they are parted, and nothing is lost."""

from __future__ import annotations

import uuid

import grpc

from syncpoint.testing.rigs import official
from syncpoint.testing.rigs.official import eventually
from tests.faults.net_cluster import NetShape
from tests.faults.stage import Stage, scenario
from tests.kit.clusters import holds

SHAPE = NetShape(clusters=1, disks=1, forwarders=1, routers=1, proxies=1, regions=2, etcd=3)
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


@scenario("delivery-parted", shape=SHAPE, topic=ONLY_R2)
def _(stage: Stage) -> None:
    """one region owns a subscription and its delivery: the other one, cut off, gives none out and confirms none"""
    apis = dict(zip(("r1", "r2"), (official.Api(address) for address in stage.kit.proxies), strict=True))
    project = f"projects/owned-{uuid.uuid4().hex[:12]}"
    topic = apis["r1"].create_topic({"name": f"{project}/topics/only", **ONLY_R2}).name
    name = (
        apis["r1"]
        .create_subscription(
            {"name": f"{project}/subscriptions/only", "topic": topic, "enable_exactly_once_delivery": True}
        )
        .name
    )
    bodies = [f"{number}".encode() for number in range(40)]
    eventually(lambda: marked(apis["r2"], topic)[1] == "OK", 30.0, "the topic takes messages")
    apis["r2"].publish({"topic": topic, "messages": [{"data": body} for body in bodies]})
    taken = {region: taken_by(apis[region], name, 10) for region in apis}
    assert all(taken.values()), "both regions give messages out while they reach each other"
    held = apis["r1"].pull({"subscription": name, "max_messages": 5}, timeout=20).received_messages
    assert held, "messages that a consumer of the other region has out"
    stage.net.part(
        [one for one in stage.net.addresses if one.startswith("r2-")],
        [one for one in stage.net.addresses if not one.startswith("r2-")],
    )
    stage.wait(0.5)
    try:
        apis["r1"].acknowledge({"subscription": name, "ack_ids": [one.ack_id for one in held]}, timeout=TRY_S)
        raise AssertionError("a region that is cut off confirms what it does not own")
    except grpc.RpcError as error:
        refusal = error.code().name
    pulls = [pulled(apis["r1"], name) for _ in range(3)]
    assert not any(pull == "OK" for pull in pulls), "a region that is cut off gives out what it does not own"
    taken["r2"] |= taken_by(apis["r2"], name, 10)
    stage.net.heal()
    eventually(lambda: drained(apis["r1"], name, taken), 120.0, "what is left comes through either region")
    handed_out = [one for region in taken.values() for one in region]
    assert sorted(set(handed_out) - {b""}) == sorted(bodies)
    stage.notes.append(f"cut off: acks {refusal}, pulls {', '.join(pulls)}; the owner's side went on")
    for api in apis.values():
        api.close()


def taken_by(api: official.Api, subscription: str, most: int) -> set[bytes]:
    """Receive and acknowledge once."""
    found = api.pull({"subscription": subscription, "max_messages": most}, timeout=20).received_messages
    if found:
        api.acknowledge({"subscription": subscription, "ack_ids": [one.ack_id for one in found]}, timeout=20)
    return {one.message.data for one in found}


def pulled(api: official.Api, subscription: str) -> str:
    """What a pull comes to: OK with messages, "empty", or the status that came back."""
    try:
        found = api.pull({"subscription": subscription, "max_messages": 10}, timeout=TRY_S).received_messages
    except grpc.RpcError as error:
        return str(error.code().name)
    return "OK" if found else "empty"


def drained(api: official.Api, subscription: str, taken: dict[str, set[bytes]]) -> bool:
    """Take what is there; whether everything has come. No message may come to two who have acknowledged it."""
    try:
        found = taken_by(api, subscription, 100)
    except grpc.RpcError:
        return False
    twice = {one for one in found if any(one in others for others in taken.values())} - {b""}
    assert not twice, f"{len(twice)} acknowledged messages were handed out again"
    taken["r1"] |= found
    return sum(map(len, taken.values())) >= 40

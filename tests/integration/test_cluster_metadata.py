"""Metadata of a cluster: backed up while everybody works, and restored under disks that are newer."""

from __future__ import annotations

import grpc
import pytest
from click.testing import CliRunner

from syncpoint.programs.cli.cluster import cluster as commands
from syncpoint.programs.clusters.local import Shape
from syncpoint.testing.rigs.etcd import why_not
from syncpoint.testing.rigs.official import bodies, eventually, refused
from tests.kit.clusters import Kit

pytestmark = pytest.mark.shows("etcd-down")

SHAPE = Shape(clusters=1, disks=1, forwarders=1, routers=1, proxies=1)


@pytest.fixture
def kit(tmp_path):
    if why_not():
        pytest.skip(why_not())
    made = Kit(tmp_path / "cluster", SHAPE)
    try:
        yield made.up()
    finally:
        made.down()


def command(*words):
    done = CliRunner().invoke(commands, [str(word) for word in words])
    assert done.exit_code == 0, f"{done.output} {done.exception!r}"
    return done.output


def test_a_restored_backup_loses_no_message_of_newer_disks(kit, enter, tmp_path):
    space = enter(kit.proxies[0])
    topic, subscription = space.pair()
    space.publish(topic, b"acknowledged")
    space.pull(subscription, 1, ack=True)
    first = space.publish(topic, b"before")
    command("backup", "--dir", kit.local.folder, tmp_path / "saved")
    late = space.topic("late")
    second = space.publish(topic, b"after")
    kit.down()
    command("restore", "--dir", kit.local.folder, tmp_path / "saved")
    kit.up()
    again = enter(kit.proxies[0])
    again.project = space.project
    third = again.publish(topic, b"restored")
    got = again.pull(subscription, 3, ack=True)
    assert sorted(bodies(got)) == [b"after", b"before", b"restored"]
    assert {one.message.message_id for one in got} == {*first, *second, *third}
    with refused("NOT_FOUND"):
        again.api.get_topic({"topic": late})
    again.topic("late")
    assert not again.peek(subscription)


def test_without_etcd_registered_topics_go_on_after_a_restart_and_others_are_refused_soon(kit, enter):
    space = enter(kit.proxies[0])
    topic, subscription = space.pair()
    new = space.topic("new")
    new_subscription = space.subscription(new, "new")
    space.publish(topic, b"before")
    kit.down()
    kit.up()
    again = enter(kit.proxies[0])
    again.project = space.project
    again.publish(again.topic("other"), b"the chain is served")
    kit.local.kill("etcd-1")
    again.api.publish({"topic": topic, "messages": [{"data": b"during"}]}, timeout=20)
    with refused("UNAVAILABLE", "the metadata store does not answer"):
        again.api.publish({"topic": new, "messages": [{"data": b"refused"}]}, timeout=40)
    kit.local.start("etcd-1")
    kit.stabilize()

    def taken():
        try:
            return again.publish(new, b"after")
        except grpc.RpcError:
            return False

    eventually(taken)
    assert sorted(bodies(again.pull(subscription, 2, ack=True))) == [b"before", b"during"]
    assert bodies(again.pull(new_subscription, 1, ack=True)) == [b"after"]
    assert not again.peek(new_subscription)

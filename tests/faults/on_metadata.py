"""Scenarios of etcd and of wall clocks."""

from __future__ import annotations

import json
import urllib.request

from tests.faults.net_cluster import FAKETIME
from tests.faults.stage import Stage, scenario


def etcd_leader(stage: Stage) -> str:
    """The member that leads, by its own word."""
    for one in stage.net.states():
        if one.name.startswith("etcd") and one.state == "running":
            request = urllib.request.Request(f"http://{one.address}/v3/maintenance/status", b"{}")
            status = json.load(urllib.request.urlopen(request, timeout=2))
            if status["leader"] == status["header"]["member_id"]:
                return one.name
    return stage.one("etcd")


@scenario("etcd-leader-killed")
def _(stage: Stage) -> None:
    """the leader of etcd dies; a publish forwarder dies while there is none"""
    stage.kit.local.kill(etcd_leader(stage))
    stage.kit.local.kill(stage.one("publish-forwarder"))
    stage.flowing()
    stage.wait(0.5)


@scenario("etcd-leader-paused")
def _(stage: Stage) -> None:
    """the leader of etcd hangs, and comes back"""
    leader = etcd_leader(stage)
    stage.kit.local.pause(leader)
    stage.flowing()
    stage.wait()
    stage.kit.local.resume(leader)
    stage.wait(0.3)


@scenario("etcd-quorum-lost")
def _(stage: Stage) -> None:
    """two of three members hang: what is open goes on"""
    names = stage.chance.sample(stage.kit.names("etcd"), 2)
    for name in names:
        stage.kit.local.pause(name)
    stage.flowing()
    stage.wait(1.5)
    stage.flowing()


@scenario("etcd-gone")
def _(stage: Stage) -> None:
    """all of etcd is killed: what is open goes on"""
    for name in stage.kit.names("etcd"):
        stage.kit.local.kill(name)
    stage.flowing()
    stage.wait(1.5)
    stage.flowing()


@scenario("clocks", needs=FAKETIME.exists)
def _(stage: Stage) -> None:
    """wall clocks jump by up to an hour, forwards and back, everywhere"""
    names = [name for name in stage.net.addresses if not name.startswith("etcd")]
    for _ in range(4):
        for name in stage.chance.sample(names, 5):
            stage.net.shift(name, stage.chance.choice([-3600, -600, -30, 30, 600, 3600]))
        stage.wait(0.25)

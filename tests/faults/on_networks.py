"""Scenarios of networks: who is parted from whom."""

from __future__ import annotations

import time

from tests.faults.stage import Stage, scenario


@scenario("cut-storage")
def _(stage: Stage) -> None:
    """one cluster's storage is cut off: acknowledgements go on"""
    stage.net.cut_off(stage.one("storage"))
    stage.flowing()
    stage.wait()


@scenario("cut-two-storages")
def _(stage: Stage) -> None:
    """two clusters are cut off: acknowledgements wait, and come when one is back"""
    names = stage.chance.sample(stage.kit.names("storage"), 2)
    for name in names:
        stage.net.cut_off(name)
    time.sleep(1.0)
    before = stage.load.confirmed()
    stage.wait(0.5)
    assert stage.load.confirmed() <= before + 30, "confirmed without a majority of clusters"
    stage.net.mend(names[0])
    stage.flowing()


@scenario("cut-owner")
def _(stage: Stage) -> None:
    """a publish forwarder is cut off from everything, replaced, and comes back as a zombie"""
    stage.net.cut_off(stage.owner())
    stage.flowing()
    stage.wait()


@scenario("owner-without-metadata")
def _(stage: Stage) -> None:
    """a bridge: an owner reaches its disks but no longer etcd, so its lease ends while it writes"""
    etcd = stage.kit.names("etcd")
    stage.net.part([stage.owner()], etcd)
    stage.flowing()
    stage.wait()


@scenario("owner-without-disks")
def _(stage: Stage) -> None:
    """a bridge: an owner reaches etcd but only one cluster's disks"""
    stage.net.part([stage.owner()], stage.chance.sample(stage.kit.names("storage"), 2))
    stage.wait()


@scenario("deaf-owner")
def _(stage: Stage) -> None:
    """asymmetric: what an owner sends arrives, it receives nothing"""
    stage.net.cut(stage.owner())
    stage.flowing()
    stage.wait()


@scenario("halves")
def _(stage: Stage) -> None:
    """one proxy and one subscribe forwarder are parted from one publish forwarder"""
    those = [stage.one("proxy"), stage.one("subscribe-forwarder")]
    stage.net.part([stage.owner()], those)
    stage.wait()


@scenario("cut-subscribe-forwarder")
def _(stage: Stage) -> None:
    """a subscribe forwarder is cut off: its messages are redelivered by others"""
    stage.net.cut_off(stage.one("subscribe-forwarder"))
    stage.flowing()
    stage.wait()


@scenario("flapping")
def _(stage: Stage) -> None:
    """somebody's network goes and comes every second"""
    names = [name for role in ("storage", "publish-forwarder", "subscribe-forwarder") for name in stage.kit.names(role)]
    name = stage.chance.choice(names)
    for _ in range(max(3, int(stage.seconds / 2))):
        stage.net.cut_off(name)
        time.sleep(1.0)
        stage.net.mend(name)
        time.sleep(1.0)


@scenario("packet-loss")
def _(stage: Stage) -> None:
    """every fifth packet into two storage processes and one forwarder is lost"""
    for name in (*stage.chance.sample(stage.kit.names("storage"), 2), stage.one("publish-forwarder")):
        stage.net.lose(name, 0.2)
    stage.wait()


@scenario("resets")
def _(stage: Stage) -> None:
    """connections of a storage process and of a subscribe forwarder are reset again and again"""
    for _ in range(3):
        names = [stage.one("storage"), stage.one("subscribe-forwarder")]
        for name in names:
            stage.net.tables(name, "-A", "INPUT", "-p", "tcp", "-j", "REJECT", "--reject-with", "tcp-reset")
        stage.wait(0.15)
        for name in names:
            stage.net.mend(name)
        stage.wait(0.15)

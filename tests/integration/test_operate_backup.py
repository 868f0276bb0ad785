"""Metadata that are older than the disks: a cluster that lost its etcd goes on from a backup, with every message."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from syncpoint.cluster.control.peer_channels import PeerChannels
from syncpoint.programs.clusters.local import Shape
from syncpoint.testing.rigs import etcd, official
from syncpoint.testing.rigs.official import eventually
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import internal
from syncpoint.wire.transport.network import TcpNetwork
from tests.kit.clusters import Kit

pytestmark = [pytest.mark.skipif(etcd.why_not() is not None, reason=etcd.why_not() or ""), pytest.mark.shows("upgrade")]

TOPIC, LATER = "projects/p/topics/loud", "projects/p/topics/quiet"
SUB, LATER_SUB = "projects/p/subscriptions/loud", "projects/p/subscriptions/quiet"


def command(
    *words: str, code: int | None = 0, program: Sequence[str] = (sys.executable, "-m", "syncpoint.programs.cli")
) -> str:
    """Run one command line; what it said. `code` None: however it ends."""
    result = subprocess.run([*program, *words], capture_output=True, text=True, timeout=120)
    assert code is None or result.returncode == code, result.stderr
    return result.stdout + result.stderr


def publish(api: official.Api, topic: str, *bodies: bytes) -> dict[bytes, str]:
    def once() -> list[str]:
        return list(api.publish({"topic": topic, "messages": [{"data": body} for body in bodies]}).message_ids)

    return dict(zip(bodies, eventually(once), strict=True))


def drain(api: official.Api, subscription: str, count: int, within: float = 30) -> dict[bytes, str]:
    """So many different messages, acknowledged; what comes besides is included."""
    found: dict[bytes, str] = {}

    def more() -> bool:
        got = api.pull({"subscription": subscription, "max_messages": 100}).received_messages
        if got:
            api.acknowledge({"subscription": subscription, "ack_ids": [one.ack_id for one in got]})
        found.update({one.message.data: one.message.message_id for one in got})
        return len(found) >= count

    eventually(more, within=within)
    return found


def test_disks_newer_than_the_restored_metadata(tmp_path: Path) -> None:
    kit = Kit(tmp_path / "c", Shape(clusters=1, disks=3, forwarders=2, routers=1, proxies=1)).up()
    folder, file = ["--dir", str(tmp_path / "c")], str(tmp_path / "saved")
    try:
        api = official.Api(kit.proxies[0])
        for topic, subscription in ((TOPIC, SUB), (LATER, LATER_SUB)):
            api.create_topic({"name": topic})
            api.create_subscription({"name": subscription, "topic": topic})
        before = publish(api, TOPIC, b"before", b"acked before")
        command("cluster", "backup", *folder, file)
        after = publish(api, TOPIC, *(b"after %d" % number for number in range(20)))
        quiet = publish(api, LATER, b"of a topic that the backup knows no chain of")
        assert "members live" in command("cluster", "restore", *folder, file, code=1)
        api.close()
        kit.down()
        shutil.rmtree(tmp_path / "c" / "etcd")  # the metadata are lost altogether
        command("cluster", "restore", *folder, file)
        kit.up()
        api = official.Api(kit.proxies[0])
        new = publish(api, TOPIC, *(b"new %d" % number for number in range(20)))
        assert not set(new.values()) & {*before.values(), *after.values(), *quiet.values()}
        found = drain(api, SUB, 42)
        assert found == {**before, **after, **new}
        assert drain(api, LATER_SUB, 1) == quiet
        api.close()
    finally:
        kit.down()


def sources(kit: Kit) -> int:
    """How many sources all chains hold something of."""

    async def ask() -> list[bytes]:
        peers = PeerChannels(TcpNetwork())
        try:
            at = [kit.local.called_at(name) for name in kit.names("publish-forwarder")]
            return [await peers.call(one, methods.PROCESS.GetStatus, b"", timeout_s=5.0) for one in at]
        finally:
            await peers.close()

    reported = [json.loads(internal.StatusResponse.FromString(one).json)["roles"] for one in asyncio.run(ask())]
    return sum(chain["sources"] for roles in reported for chain in roles["publish-forwarder"]["chains"])


@pytest.mark.long
def test_topics_made_after_the_backup_are_kept_and_adopted(tmp_path: Path) -> None:
    """What was lost with the metadata stays on the disks while what is deleted goes, and can be read again."""
    kit = Kit(tmp_path / "c", Shape(clusters=1, disks=3, forwarders=2, routers=1, proxies=1)).up()
    folder, file = ["--dir", str(tmp_path / "c")], str(tmp_path / "saved")
    adopted, reader = "projects/p/topics/adopted", "projects/p/subscriptions/adopted"

    def listed() -> dict[str, Any]:
        found = json.loads(command("cluster", "orphans", "list", *folder, "--format", "json"))
        assert found["unheard"] == []
        return dict(found)

    try:
        api = official.Api(kit.proxies[0])
        api.create_topic({"name": TOPIC})
        api.create_subscription({"name": SUB, "topic": TOPIC})
        command("cluster", "backup", *folder, file)
        for topic, subscription in ((LATER, LATER_SUB), (f"{LATER}-too", f"{LATER_SUB}-too")):
            api.create_topic({"name": topic})
            api.create_subscription({"name": subscription, "topic": topic})
        lost = publish(api, LATER, *(b"lost %d" % number for number in range(30)))
        publish(api, f"{LATER}-too", b"lost, too", b"and more")
        for name in kit.names("publish-forwarder"):
            kit.restart(name)  # what comes now lies in other segments
        kit.stabilize()
        publish(api, TOPIC, b"of a known topic")
        api.close()
        kit.down()
        shutil.rmtree(tmp_path / "c" / "etcd")
        command("cluster", "restore", *folder, file)
        kit.up()
        api = official.Api(kit.proxies[0])
        found = sorted(listed()["orphans"], key=lambda one: one["messages"])
        assert [one["messages"] for one in found] == [2, 30]
        kept = sum(one["sources"] for one in found)
        assert sources(kit) > kept
        api.delete_subscription({"subscription": SUB})
        eventually(lambda: sources(kit) == kept, 60, "deletion has been round, and has taken what nobody needs")
        fewer, more = (str(one["topic"]) for one in found)
        assert "No open chain" in command("cluster", "orphans", "delete", *folder, "4711", "--yes", code=1)
        names = ["--as", adopted, "--subscription", reader]
        command("cluster", "orphans", "adopt", *folder, more, *names)
        command("cluster", "orphans", "delete", *folder, fewer, "--yes")
        assert drain(api, reader, 30) == lost
        new = publish(api, adopted, b"new")
        assert drain(api, reader, 1) == new
        after = listed()
        assert after["orphans"] == []
        assert {str(one["topic"]): (one["what"], one["name"]) for one in after["decisions"]} == {
            more: ("adopted", adopted),
            fewer: ("deleted", ""),
        }
        api.close()
    finally:
        kit.down()

"""A node's folder becomes a cluster: what was not acknowledged arrives with its ids, what was does not come again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from syncpoint.programs.clusters.local import LocalCluster
from syncpoint.testing.rigs import etcd, official
from syncpoint.testing.rigs.official import eventually
from syncpoint.testing.server_process import ServerFailed, ServerProcess
from syncpoint.wire.protobuf.messages import pipeline
from tests.integration.test_operate_backup import command, drain, publish
from tests.integration.test_pipeline_cluster import Program, numbered, numbers
from tests.kit.clusters import Kit

pytestmark = [pytest.mark.skipif(etcd.why_not() is not None, reason=etcd.why_not() or ""), pytest.mark.shows("import")]

TOPIC, GONE = "projects/p/topics/orders", "projects/p/topics/gone"
PLAIN, KEYED, ONCE, DONE = (f"projects/p/subscriptions/{name}" for name in ("plain", "keyed", "once", "done"))
SNAPSHOT = "projects/p/snapshots/then"
EPOCHS = "projects/p/topics/epochs"


def pull(api: official.Api, subscription: str, count: int) -> list[Any]:
    found: list[Any] = []

    def more() -> bool:
        found.extend(api.pull({"subscription": subscription, "max_messages": count - len(found)}).received_messages)
        return len(found) >= count

    eventually(more)
    return found


def fill(api: official.Api, restart: Any) -> tuple[official.Api, dict[bytes, str], set[bytes]]:
    """A node with a past: several logs, acknowledged, half acknowledged and deleted; what there is, what is acked."""
    api.create_topic({"name": TOPIC})
    api.create_topic({"name": GONE})
    api.create_subscription({"name": "projects/p/subscriptions/gone", "topic": GONE})
    publish(api, GONE, b"of a deleted topic")
    api.delete_subscription({"subscription": "projects/p/subscriptions/gone"})
    api.delete_topic({"topic": GONE})
    api.create_subscription({"name": PLAIN, "topic": TOPIC, "retain_acked_messages": True})
    api.create_subscription({"name": KEYED, "topic": TOPIC, "enable_message_ordering": True})
    api.create_subscription({"name": ONCE, "topic": TOPIC, "enable_exactly_once_delivery": True})
    sent = publish(api, TOPIC, *(b"first %d" % number for number in range(30)))
    acked: set[bytes] = set()
    for subscription in (PLAIN, ONCE):
        got = pull(api, subscription, 30)
        chosen = [one for one in got if int(one.message.data.split()[1]) % 3 == 0]
        api.acknowledge({"subscription": subscription, "ack_ids": [one.ack_id for one in chosen]})
        acked |= {one.message.data for one in chosen}
    api.create_snapshot({"name": SNAPSHOT, "subscription": PLAIN})
    api.close()
    api = restart()
    messages = [{"data": b"keyed %d" % number, "ordering_key": "k"} for number in range(10)]
    ids = api.publish({"topic": TOPIC, "messages": messages}).message_ids
    sent |= dict(zip((one["data"] for one in messages), ids, strict=True))
    api.create_subscription({"name": DONE, "topic": TOPIC})
    api.close()
    return restart(), sent, acked


def check(api: official.Api, sent: dict[bytes, str], acked: set[bytes]) -> None:
    """Everything is as the node left it, and goes on from there."""
    new = publish(api, TOPIC, b"new 1", b"new 2")
    assert not set(new.values()) & set(sent.values())
    left = {body: number for body, number in sent.items() if body not in acked}
    assert drain(api, PLAIN, len(left) + 2) == left | new
    assert drain(api, ONCE, len(left) + 2) == left | new
    assert drain(api, DONE, 2) == new
    keyed = pull(api, KEYED, len(sent) + 2)
    assert {one.message.data: one.message.message_id for one in keyed} == sent | new
    in_order = [one.message.data for one in keyed if one.message.ordering_key]
    assert in_order == [b"keyed %d" % number for number in range(10)]
    api.seek({"subscription": PLAIN, "snapshot": SNAPSHOT})
    assert drain(api, PLAIN, len(left) + 2) == left | new


def write_epochs(endpoint: str) -> None:
    """A writer that has committed one epoch and staged the next one, and a reader's cursor that holds it all."""
    program = Program(endpoint)
    api = official.Api(endpoint)
    api.create_topic({"name": EPOCHS})
    api.close()
    program.positions(EPOCHS, cursor=pipeline.Cursor(name="reader"), first=True)
    program.stage("query", "run", 0, "x", EPOCHS, numbered(0, 50))
    assert program.commit("query", "run", 0, "x").rows == 50
    program.stage("query", "run", 1, "x", EPOCHS, numbered(50, 100))
    program.channel.close()


def check_epochs(endpoint: str) -> None:
    """The writer goes on where it was, exactly once."""
    program = Program(endpoint)
    assert [cursor.name for cursor in program.cursors(EPOCHS)] == ["reader"]
    assert program.commit("query", "run", 0, "x").repeated_epoch
    assert program.commit("query", "run", 1, "x").rows == 50
    assert program.commit("query", "run", 1, "x").repeated_epoch
    program.stage("query", "run", 2, "x", EPOCHS, numbered(100, 150))
    assert program.commit("query", "run", 2, "x").rows == 50
    assert sorted(numbers(program.everything(EPOCHS))) == list(range(150))
    program.channel.close()


@pytest.mark.long
def test_a_folder_becomes_a_cluster(tmp_path: Path) -> None:
    data = tmp_path / "data"
    node = ServerProcess(data).start()
    try:
        api, sent, acked = fill(official.Api(node.endpoint), lambda: restarted(node))
        api.close()
        write_epochs(node.endpoint)
        assert "Stop it first" in command("cluster", "import", "--dir", str(tmp_path / "c"), str(data), code=1)
    finally:
        node.close()
    numbers = ["--clusters", "3", "--disks", "1", "--forwarders", "2", "--routers", "1", "--proxies", "1"]
    assert "2 topics, 4 subscriptions, 1 snapshot" in command(
        "cluster", "import", "--dir", str(tmp_path / "c"), str(data), *numbers
    )
    again = command("cluster", "import", "--dir", str(tmp_path / "c"), str(data))
    assert again.startswith(f"All of {data} is imported.")
    with pytest.raises(ServerFailed, match=f"the cluster in {tmp_path / 'c'}"):
        ServerProcess(data).start()
    assert all(state.state == "down" for state in LocalCluster(tmp_path / "c").states())
    kit = Kit(tmp_path / "c").up()
    try:
        api = official.Api(kit.proxies[0])
        check(api, sent, acked)
        api.close()
        check_epochs(kit.proxies[0])
        assert "disk folder of a node" in command(
            "cluster", "import", "--dir", str(tmp_path / "d"), str(tmp_path), code=1
        )
    finally:
        kit.down()


def restarted(node: ServerProcess) -> official.Api:
    node.restart()
    return official.Api(node.endpoint)

"""A rolling upgrade: every process becomes a newer version under load, then the new format is finalized.

There is one version so far: the newer one is the same code under another number, with one more format. What is shown is
that processes of two numbers work together, not that two codes do. The load tries UNAVAILABLE again, as clients do.
"""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path

import grpc
import pytest

from syncpoint.base.model.errors import Unavailable
from syncpoint.programs.clusters.local import Shape
from syncpoint.testing.rigs import etcd, official
from syncpoint.testing.rigs.official import eventually
from tests.integration.test_operate_backup import command, drain
from tests.kit.clusters import Kit

pytestmark = [pytest.mark.skipif(etcd.why_not() is not None, reason=etcd.why_not() or ""), pytest.mark.shows("upgrade")]

TOPIC, SUB = "projects/p/topics/orders", "projects/p/subscriptions/orders"
NEWER = """
import sys
from syncpoint.node.cluster import formats
formats.THIS = formats.Build("9.9", 1, formats.FIRST + 1)
from syncpoint.programs.cli.main import main
main()
"""


class Load:
    """Publishes through one proxy or the other until it is stopped; `failed` is what a client received."""

    def __init__(self, endpoints: list[str]) -> None:
        self.apis = [official.Api(endpoint) for endpoint in endpoints]
        self.sent: dict[bytes, str] = {}
        self.failed: list[str] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._over.is_set():
            body = b"%d" % number
            number += 1
            for attempt in range(40):  # clients of Pub/Sub try UNAVAILABLE again, through any proxy
                try:
                    request = {"topic": TOPIC, "messages": [{"data": body}]}
                    self.sent[body] = self.apis[attempt % len(self.apis)].publish(request).message_ids[0]
                    break
                except grpc.RpcError as error:
                    if error.code() is not grpc.StatusCode.UNAVAILABLE:
                        self.failed.append(str(error))
                        break
                    time.sleep(0.1)
            else:
                self.failed.append(f"{body!r} was not taken")
            time.sleep(0.01)

    def stop(self) -> None:
        self._over.set()
        self._thread.join()


@pytest.mark.long
def test_every_process_is_upgraded_under_load_and_the_format_finalized(tmp_path: Path) -> None:
    kit = Kit(tmp_path / "c", Shape(clusters=3, disks=1, forwarders=2, routers=1, proxies=2)).up()
    folder, local = ["--dir", str(tmp_path / "c")], kit.local
    this, newer = local.program, [sys.executable, "-c", NEWER]
    api = official.Api(kit.proxies[0])
    api.create_topic({"name": TOPIC})
    api.create_subscription({"name": SUB, "topic": TOPIC})
    load = Load(kit.proxies)
    try:
        local.program = newer
        names = [one.name for one in local.states() if "etcd" not in one.roles]
        for name in names[:-1]:
            kit.restart(name)
        assert "versions are mixed" in command("cluster", "status", *folder, code=1)
        said = command("cluster", "finalize", *folder, code=1, program=newer)
        assert f"{names[-1]} (version 0." in said
        kit.restart(names[-1])
        load.stop()
        assert load.failed == []
        eventually(lambda: "versions are mixed" not in command("cluster", "status", *folder, code=None))
        assert "writes format 2" in command("cluster", "finalize", *folder, program=newer)
        local.program = this
        with pytest.raises(Unavailable, match="reads format 1, but the cluster writes format 2, finalized by version"):
            kit.restart("router-1")
        local.program = newer
        local.start("router-1")
        assert drain(api, SUB, len(load.sent)) == load.sent
    finally:
        load.stop()
        api.close()
        kit.down()

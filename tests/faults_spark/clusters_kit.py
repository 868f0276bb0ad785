"""Clusters as sites of the matrix: processes that are held, killed and paused while a job goes on."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from syncpoint.programs.clusters.local import LocalCluster, Shape
from syncpoint.testing.rigs.log_oracle import Oracle
from syncpoint.testing.rigs.official import Api
from tests.faults_spark.faults_kit import Case, Failed
from tests.spark.federation_kit import Site, awaited

HERE = Path(__file__).parent
SOURCE = Shape(clusters=1, disks=3, forwarders=2, routers=1, proxies=1)
TARGET = Shape(clusters=1, disks=3, forwarders=2, routers=1, proxies=2, etcd=3)
COUNT, EPOCH = 2_000, 500
AWAY_S = 12.0  # longer than a lease and its grace: what is paused for so long has lost its chains


class ClusterSite(Site):
    """A cluster whose processes are held at the points of `pausing_server`."""

    def __init__(self, name: str, folder: Path, shape: Shape) -> None:
        self.name, self.local, self.points = name, LocalCluster(folder / name), folder / f"{name}-points"
        self.points.mkdir(parents=True)
        self.local.program = [sys.executable, str(HERE / "pausing_server.py"), str(self.points)]
        self.local.create(shape)
        self.proxies = self.local.up()
        self.server: Any = SimpleNamespace(endpoint=",".join(self.proxies))  # for Spark, which tries them in turn
        self.api, self.oracle = Api(self.proxies[0]), Oracle(self.proxies[0])

    def close(self) -> None:
        self.oracle.close()
        self.api.close()
        self.local.down()

    def hold(self, point: str) -> None:
        """The next one that comes to a point stands there."""
        (self.points / point).touch()

    def reached(self, point: str) -> str:
        """Who stands there, as soon as somebody does."""
        found: list[Path] = []

        def stands() -> bool:
            found[:] = self.points.glob(f"{point}.*")
            return bool(found)

        awaited(stands, f"nobody comes to {point}")
        return self.named(int(found[0].suffix[1:]))

    def named(self, pid: int) -> str:
        """The name of a process."""
        return next(one.name for one in self.local.states() if one.pid == pid)

    def release(self) -> None:
        """Nobody stands anywhere."""
        for path in self.points.iterdir():
            path.unlink(missing_ok=True)

    def kill(self, name: str) -> None:
        """kill -9, and at once a new life."""
        self.local.kill(name)
        self.release()
        self.local.start(name)

    def pause(self, name: str) -> None:
        """Stand still until others have taken over, then go on as if nothing had been."""
        self.local.send(name, signal.SIGSTOP)
        self.release()
        time.sleep(AWAY_S)
        self.local.resume(name)

    def strike(self, how: str, name: str) -> None:
        """SIGKILL or a pause."""
        (self.kill if how == "SIGKILL" else self.pause)(name)

    def leader(self) -> str:
        """The member of etcd that leads."""
        for one in self.local.states():
            if one.name.startswith("etcd") and one.state == "running":
                asked = urllib.request.Request(f"http://{one.address}/v3/maintenance/status", b"{}")
                with urllib.request.urlopen(asked, timeout=5) as answer:
                    status = json.load(answer)
                if status["leader"] == status["header"]["member_id"]:
                    return one.name
        raise AssertionError("no member of etcd leads")

    def restart_all(self) -> None:
        """kill -9 of everything, etcd, too; then all of it is started again."""
        for one in self.local.states():
            if one.pid is not None:
                os.kill(one.pid, signal.SIGKILL)
        awaited(lambda: all(one.state == "down" for one in self.local.states()), "all are down")
        self.local.up()


@contextlib.contextmanager
def cluster_sites(folder: Path) -> Iterator[dict[str, ClusterSite]]:
    """`a` is read, `b` is written."""
    made: dict[str, ClusterSite] = {}
    try:
        made["a"] = ClusterSite("a", folder, SOURCE)
        made["b"] = ClusterSite("b", folder, TARGET)
        yield made
    finally:
        for one in made.values():
            one.close()


class ClusterCase(Case):
    """A topic of its own, copied from one cluster to the other in epochs of some hundred messages."""

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, rows=EPOCH, **options)
        self.publish(300, COUNT)

    def over(self) -> int:
        """Wait until all is copied; how often the query had to be started again."""
        try:
            self.driver.do("query.awaitTermination()")
            return 0
        except Failed:
            return 1 + self.run()

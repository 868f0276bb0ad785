"""The three houses of the crossings, with what can happen to a whole house."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import grpc

from syncpoint.testing.server_process import ServerProcess
from tests.integration.conftest import Space
from tests.kit.clusters import Kit
from tests.kit.houses import SHAPE

FAKE_CLOCK: Final = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1")
FILLING: Final = b"x" * 1_000_000


@dataclass
class House:
    """A running house: where it is served, where its bucket is, and the processes behind it."""

    kind: str
    endpoint: str
    bucket: Path
    server: ServerProcess | None = None
    kit: Kit | None = None

    def kill(self) -> None:
        """SIGKILL what keeps messages: the server, or a publish and a subscribe forwarder; then all is up again."""
        if self.server is not None:
            self.server.restart(hard=True)
            return
        assert self.kit is not None
        for role in ("publish-forwarder", "subscribe-forwarder"):
            self.kit.local.kill(self.kit.names(role)[0])
        self.kit.heal()
        self.kit.stabilize()

    def adopt(self) -> str:
        """SIGKILL a publish forwarder and leave it away, so that another one takes its chain over; its name."""
        assert self.kit is not None
        name = self.kit.names("publish-forwarder")[0]
        self.kit.local.kill(name)
        return name

    def bring_back(self, name: str) -> None:
        """Start what `adopt` killed."""
        assert self.kit is not None
        self.kit.local.start(name)
        self.kit.stabilize()

    def jump(self, seconds: int) -> None:
        """Start the server again with a wall clock that is ahead by this; 0 is the right one."""
        assert self.server is not None
        fake = {"LD_PRELOAD": str(FAKE_CLOCK), "FAKETIME": f"+{seconds}s", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
        self.server.env = fake if seconds else {}
        self.server.restart(hard=True)

    def fill(self) -> threading.Timer:
        """Fill the disk; a started timer, which makes space again after two seconds."""
        space = Space(self.endpoint)
        topic, subscription = space.pair()
        with suppress(grpc.RpcError):  # refused, since the disk is full
            for _ in range(1_000):
                space.publish(topic, *[FILLING] * 5)

        def make_space() -> None:
            space.api.delete_subscription({"subscription": subscription})
            space.close()

        timer = threading.Timer(2.0, make_space)
        timer.start()
        return timer


@contextmanager
def house(kind: str, folder: Path, disk: Path | None = None) -> Iterator[House]:
    """Start a node, one with workers, or a cluster, with a bucket and pushes to this machine."""
    bucket = folder / "bucket"
    bucket.mkdir()
    if kind == "cluster":
        kit = Kit(folder, SHAPE, {"push": {"networks": ["loopback"]}, "buckets": {"archive": str(bucket)}})
        try:
            yield House(kind, kit.up().proxies[0], bucket, kit=kit)
        finally:
            kit.down()
        return
    args = ["--push-network", "loopback", "--bucket", f"archive={bucket}"]
    args += ["--workers", "2"] if kind == "workers" else []
    server = ServerProcess(folder / "data", disks=[disk] if disk else [], args=args)
    try:
        yield House(kind, server.start().endpoint, bucket, server=server)
    finally:
        server.close()

"""The three houses of the crossings, with what can happen to a whole house."""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import grpc

from syncpoint.base.model.errors import SyncpointError
from syncpoint.testing.rigs.official import eventually
from syncpoint.testing.server_process import ServerProcess
from syncpoint.wire.protobuf.messages import admin
from tests.integration.conftest import Space
from tests.integration.test_operate_backup import command
from tests.integration.test_operate_workers import workers_of
from tests.kit.clusters import Kit
from tests.kit.houses import SHAPE

FAKE_CLOCK: Final = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1")
FILLING: Final = b"x" * 1_000_000


def nothing() -> None:
    """Mend what is whole."""


@dataclass
class House:
    """A running house: where it is served, where its bucket is, and the processes behind it."""

    kind: str
    endpoint: str
    bucket: Path
    server: ServerProcess | None = None
    kit: Kit | None = None

    def strike(self, blow: str) -> Callable[[], object]:
        """Let one of BLOWS happen; what is to be called to mend what is left of it."""
        found: Callable[[], Callable[[], object]] = getattr(self, "_" + blow.replace(" ", "_"))
        return found()

    def _kill(self) -> Callable[[], object]:
        """SIGKILL the server; of a cluster what keeps messages, then what serves clients and inner consumers."""
        if self.server is not None:
            self.server.restart(hard=True)
            return nothing
        assert self.kit is not None
        for roles in (("publish-forwarder", "subscribe-forwarder"), ("proxy", "router")):
            for role in roles:
                self.kit.local.kill(self.kit.names(role)[0])
            self.kit.heal()
            self.kit.stabilize(120.0)
        return nothing

    def _adoption(self) -> Callable[[], object]:
        """SIGKILL a publish forwarder, and leave it away so that another one takes its chain over; or one worker."""
        if self.server is not None:
            parent = self.server.pid or 0
            name, pid = min(workers_of(parent).items())
            os.kill(pid, signal.SIGKILL)
            return lambda: eventually(lambda: workers_of(parent).get(name, pid) != pid)
        assert self.kit is not None
        kit, (name, *_) = self.kit, self.kit.names("publish-forwarder")
        kit.local.kill(name)

        def open_elsewhere() -> bool:
            with suppress(SyncpointError):
                return all(one.owner not in ("", name) for one in kit.chains())
            return False

        eventually(open_elsewhere, 120.0, "all chains are open")

        def mend() -> None:
            kit.local.start(name)
            kit.stabilize(120.0)

        return mend

    def _drain(self) -> Callable[[], object]:
        assert self.kit is not None
        kit, (name, *_) = self.kit, self.kit.names("publish-forwarder")
        kit.admin("Drain", admin.DrainRequest(target=name))
        eventually(lambda: not kit.admin("GetDrain", admin.GetDrainRequest(target=name)).chains, 120.0)

        def mend() -> None:
            kit.admin("Undrain", admin.UndrainRequest(target=name))
            kit.stabilize(120.0)

        return mend

    def _rolling_restart(self) -> Callable[[], object]:
        if self.server is not None:
            self.server.restart()
            return nothing
        assert self.kit is not None
        for one in self.kit.local.states():
            if "etcd" not in one.roles:
                self.kit.restart(one.name)
                self.kit.stabilize(120.0)
        return nothing

    def _metadata_restore(self) -> Callable[[], object]:
        """Back up the metadata, go on for a second, lose them, and start from the backup."""
        assert self.kit is not None
        local = self.kit.local
        saved = str(local.folder / f"saved-{time.monotonic_ns()}")
        command("cluster", "backup", "--dir", str(local.folder), saved)
        self.kit.down()
        shutil.rmtree(local.folder / "etcd")
        command("cluster", "restore", "--dir", str(local.folder), saved)
        self.kit.up()
        return nothing

    def _clock_jump(self) -> Callable[[], object]:
        self.jump(100)
        return lambda: self.jump(0)

    def _full_disk(self) -> Callable[[], object]:
        return self.fill().join

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

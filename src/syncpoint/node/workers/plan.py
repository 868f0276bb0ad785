"""What workers are told: one cluster's settings made from `serve`'s, and one process's per worker.

Place: built by the parent, sent to each worker as JSON on its command line; nothing in it is secret.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from syncpoint.model.cluster import PROXY, PUBLISH, ROUTER, SUBSCRIBE
from syncpoint.node.cluster.settings import (
    DEFAULT_CLASS,
    ClusterSettings,
    DurabilityClass,
    ProcessSettings,
    PushSettings,
)
from syncpoint.node.settings import ServeSettings
from syncpoint.storage.settings import MIB
from syncpoint.transport.network import join_address

PLACE = "local"  # the one failure domain there is
ROUTERS = 2
CACHE_MIN = 32 * MIB


@dataclass(frozen=True, slots=True)
class Plan:
    """What all workers have in common. `metadata` is HOST:PORT of the parent's store."""

    workers: int
    metadata: str
    public: str
    disks: Mapping[str, Path]
    durability: str
    tls_cert: Path | None
    tls_key: Path | None
    tls_client_ca: Path | None
    drain_s: float
    require_disks: bool = False
    auth: Path | None = None
    push_networks: tuple[str, ...] = ()
    push_issuer: str = ""

    def encode(self) -> str:
        """As one argument of a command line."""
        paths = {name: str(path) for name, path in self.disks.items()}
        values = {
            "workers": self.workers,
            "metadata": self.metadata,
            "public": self.public,
            "disks": paths,
            "durability": self.durability,
            "tls_cert": str(self.tls_cert or ""),
            "tls_key": str(self.tls_key or ""),
            "tls_client_ca": str(self.tls_client_ca or ""),
            "drain_s": self.drain_s,
            "require_disks": self.require_disks,
            "auth": str(self.auth or ""),
            "push_networks": self.push_networks,
            "push_issuer": self.push_issuer,
        }
        return json.dumps(values)

    @staticmethod
    def decode(text: str) -> Plan:
        """The other way."""
        found = json.loads(text)
        found["disks"] = {name: Path(path) for name, path in found["disks"].items()}
        for key in ("tls_cert", "tls_key", "tls_client_ca", "auth"):
            found[key] = Path(found[key]) if found[key] else None
        found["push_networks"] = tuple(found["push_networks"])
        return Plan(**found)

    def settings(self) -> ClusterSettings:
        """The cluster that the workers are."""
        klass = DurabilityClass(clusters=1, disks=len(self.disks), durability=self.durability, placement="any")
        base = ClusterSettings("node", (), {DEFAULT_CLASS: klass}, {}, metadata=self.metadata, auth=self.auth)
        base = replace(base, push=PushSettings(self.push_networks, self.push_issuer))
        cache = max(CACHE_MIN, 192 * MIB // self.workers)
        return replace(base, storage=replace(base.storage, cache_bytes=cache, require_disks=self.require_disks))

    def process(self, number: int) -> ProcessSettings:
        """One worker, from 1."""
        roles = (PUBLISH, SUBSCRIBE, PROXY) + ((ROUTER,) if number <= ROUTERS else ())
        return ProcessSettings(
            worker_name(number),
            roles,
            public=self.public,
            region=PLACE,
            cluster=PLACE,
            disks=self.disks,
            tls_cert=self.tls_cert,
            tls_key=self.tls_key,
            tls_client_ca=self.tls_client_ca,
        )


def worker_name(number: int) -> str:
    """What a worker is called, as a member and in `ps`."""
    return f"worker-{number}"


def plan_of(settings: ServeSettings, metadata: str, port: int) -> Plan:
    """The plan for what `serve` was told."""
    return Plan(
        settings.workers,
        metadata,
        join_address(settings.host, port),
        disk_names(settings),
        settings.durability,
        settings.tls_cert,
        settings.tls_key,
        settings.tls_client_ca,
        settings.drain_s,
        settings.storage.require_disks,
        settings.auth,
        settings.push_networks,
        settings.push_issuer,
    )


def disk_names(settings: ServeSettings) -> dict[str, Path]:
    """The disks by the names that chains know them by: their places on the command line."""
    return {f"disk-{number}": path.absolute() for number, path in enumerate(settings.disk_folders, 1)}

"""What workers are given: one cluster's settings made from those of `serve`, and one process's per worker.

Place: built by the parent, sent to each worker on its standard input.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from syncpoint.base.model.cluster import PROXY, PUBLISH, ROUTER, SUBSCRIBE
from syncpoint.broker.router.location import DEFAULT_CLASS
from syncpoint.cluster.control.durability_classes import DurabilityClass
from syncpoint.log.storage.settings import MIB
from syncpoint.node.cluster.settings import (
    ClusterSettings,
    MonitorPlace,
    ProcessSettings,
    PushSettings,
)
from syncpoint.node.settings import ServeSettings

PLACE = "local"  # the one failure domain there is
ROUTERS = 2
CACHE_MIN = 32 * MIB
BEGIN_AGAIN = 75  # exit code of a worker that may start a moment later


class Plan(NamedTuple):
    """What all workers have in common. `metadata` is HOST:PORT of the parent's store, `public` what clients call,
    `metrics` the port for metrics alone, or ""."""

    serve: ServeSettings
    metadata: str
    public: str
    metrics: str = ""

    def encode(self) -> bytes:
        """As one line, for a process of the same version."""
        return pickle.dumps(self).hex().encode()

    @staticmethod
    def decode(line: str) -> Plan:
        """The other way."""
        plan: Plan = pickle.loads(bytes.fromhex(line))
        return plan

    @property
    def disks(self) -> Mapping[str, Path]:
        """By the names that chains know them by: their places on the command line."""
        return {f"disk-{number}": path.absolute() for number, path in enumerate(self.serve.disk_folders, 1)}

    def cluster(self) -> ClusterSettings:
        """The cluster that the workers are."""
        serve = self.serve
        klass = DurabilityClass(clusters=1, disks=len(self.disks), durability=serve.durability, placement="any")
        base = ClusterSettings("node", (), {DEFAULT_CLASS: klass}, {}, metadata=self.metadata, auth=serve.auth)
        base = replace(base, host_names=serve.host_names)
        base = replace(base, push=PushSettings(serve.push_networks, serve.push_issuer), models=serve.models)
        base = replace(base, buckets=serve.buckets, fixed_classes=True)
        base = replace(base, tracing=serve.tracing, metrics_export=serve.metrics_export)
        base = replace(base, monitor=MonitorPlace(worker_name(1), serve.data.absolute(), serve.monitor))
        cache = max(CACHE_MIN, 192 * MIB // serve.workers)
        required = serve.storage.require_disks
        return replace(base, storage=replace(base.storage, cache_bytes=cache, require_disks=required))

    def process(self, number: int) -> ProcessSettings:
        """One worker, from 1."""
        roles = (PUBLISH, SUBSCRIBE, PROXY) + ((ROUTER,) if number <= ROUTERS else ())
        return ProcessSettings(
            worker_name(number),
            roles,
            public=self.public,
            metrics=self.metrics,
            region=PLACE,
            cluster=PLACE,
            disks=self.disks,
            tls_cert=self.serve.tls_cert,
            tls_key=self.serve.tls_key,
            tls_client_ca=self.serve.tls_client_ca,
        )


def worker_name(number: int) -> str:
    """What a worker is called, as a member and in `ps`."""
    return f"worker-{number}"

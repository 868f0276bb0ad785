"""One process of a cluster, or a worker: its roles, what they have in common, and how it meets the other processes.

Order: see `node.process`. Members may call once the listener for them is open and this process is registered.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from syncpoint.base.kernel.memory import keep_freed_memory
from syncpoint.catalog.metadata.contract import Put, StoreError
from syncpoint.catalog.metadata.layout import LOADS
from syncpoint.cluster.control.peer_channels import process_methods
from syncpoint.node.cluster.claimed_chains import ClaimedChains
from syncpoint.node.cluster.cluster_environment import ClusterEnvironment
from syncpoint.node.cluster.context import ClusterContext
from syncpoint.node.cluster.gathered_chains import GatheredChains
from syncpoint.node.cluster.proxy_role import ProxyRole
from syncpoint.node.cluster.reported import reported_settings, settings_digest
from syncpoint.node.cluster.router_role import RouterRole
from syncpoint.node.cluster.settings import ClusterSettings, ProcessSettings
from syncpoint.node.cluster.storage_role import StorageRole
from syncpoint.node.cluster.tls import tls_of
from syncpoint.node.cluster.watching import WatchingProcess, other_workers
from syncpoint.node.own_load import OwnCalls, OwnLoad
from syncpoint.node.process import Process, Role
from syncpoint.node.process_metrics import ProcessMetrics
from syncpoint.node.publish_role import PublishRole
from syncpoint.node.subscribe_role import SubscribeRole
from syncpoint.watch.metrics.role_families import MemberRoom
from syncpoint.wire.protobuf import methods as rpc
from syncpoint.wire.protobuf.messages import internal
from syncpoint.wire.protobuf.serving import served
from syncpoint.wire.transport.calls import Methods
from syncpoint.wire.transport.network import Listening, TcpNetwork, address_called, split_address

log = logging.getLogger(__name__)

LOAD_S = 2.0
RENEWED_S = 30.0  # what is under way on a connection that is made anew may take as long
MEMBERS: Final = "members"  # the listener that other members call
SAME_S = 30.0  # how often a load that stays the same is written: what arrives late of an older one does not stand


ROLES: dict[str, Callable[[ClusterContext], Role]] = {
    "storage": StorageRole,
    "publish-forwarder": lambda context: PublishRole(context, ClaimedChains(context)),
    "subscribe-forwarder": lambda context: SubscribeRole(context, GatheredChains(context)),
    "router": RouterRole,
    "proxy": ProxyRole,
}


class ClusterProcess(Process):
    """A started process. `address` is where others call it, `public_address` where clients call a proxy."""

    def __init__(
        self, settings: ClusterSettings, process: ProcessSettings, environment: ClusterEnvironment | None = None
    ) -> None:
        self.settings, self.process = settings, process
        self.environment = environment or ClusterEnvironment.of(tls_of(settings, process.name))
        self.common = ClusterContext(settings, process, self.environment)
        self.monitor = WatchingProcess(self.common)
        self.common.monitor = self.monitor.admin
        super().__init__(self.common, {name: ROLES[name](self.common) for name in process.roles})
        self.listening: Listening | None = None
        self._reporting: asyncio.Task[None] | None = None
        self._own_load = OwnLoad(measures=self.environment.measures_itself)

    async def start(self) -> None:
        """Return when others, and clients, can call. Raises `SyncpointError`, the metadata's errors, and `OSError`."""
        keep_freed_memory()
        if self.environment.tls is not None:
            self.environment.tls.prove(
                *(split_address(one)[0] for one in (self.process.listen, self.process.disks_listen) if one)
            )
            self.environment.tls.shown.on_removed = self._check_certificates
            self.environment.tls.shown.start()
        await super().start()

    def measured(self) -> ProcessMetrics:
        """What its roles have, and what members may call."""
        self.methods: Methods = dict(process_methods(self.status))
        for role in self.roles.values():
            self.methods = {**self.methods, **role.methods()}
        found = self.collect()
        found.listeners[MEMBERS] = self.methods, lambda: self.listening
        opened = () if found.host is None else found.host.chains.keys()
        self._members = MemberRoom(self.common.view, self.common.name, lambda: self.is_member, lambda: opened)
        found.further.append(self._members)
        return ProcessMetrics(
            self.common,
            self.process.name,
            self.process.roles,
            found,
            self.settings.metrics_export,
            self.process.metrics,
            partial(other_workers, self.common) if self.environment.one_server else None,
        )

    async def meet(self) -> None:
        """Listen for members, and become one."""
        asked = served({rpc.PROCESS.GetMetrics: self._show_metrics})
        self.methods = {**self.methods, **asked, **self.monitor.methods(self.methods)}
        host, port = split_address(self.process.listen)
        self.listening = await self.environment.network.serve(self.methods, host, port)
        await self.common.register(self.address, self.disk_address)

    async def watch(self) -> None:
        """Over all processes, if it is this one that does, and report what this one carries."""
        self.common.opened += self.metrics.listeners()
        await self.monitor.start(self.metrics.exposition, self._members.unserved_s)
        self._reporting = asyncio.get_running_loop().create_task(self._report())

    async def unwatch(self) -> None:
        """Report no more."""
        if self._reporting is not None:
            self._reporting.cancel()
        await self.monitor.stop()

    async def part(self) -> None:
        """Leave, and answer members until their calls have ended."""
        await self.common.leave()
        if self.listening is not None:
            await self.listening.drain(self.environment.drain_s)

    async def stop(self) -> None:
        """Hand over, drain, close."""
        await super().stop()
        if self.environment.tls is not None:
            await self.environment.tls.shown.stop()

    @property
    def disk_address(self) -> str:
        """Where its disks are served; empty without any."""
        return next((role.disk_address for role in self.roles.values() if role.disk_address), "")

    @property
    def named_address(self) -> str:
        """The address that its settings name: of a process that only stores and has one, that of its disks."""
        return self.address if split_address(self.process.listen)[1] else self.disk_address or self.address

    @property
    def is_member(self) -> bool:
        """Whether others know of it."""
        return self._reporting is not None and self.common.membership.lease is not None

    @property
    def address(self) -> str:
        assert self.listening is not None
        return address_called(self.process.listen, self.listening.host, self.listening.port)

    @property
    def public_address(self) -> str:
        proxy = self.roles.get("proxy")
        return proxy.port.address if isinstance(proxy, ProxyRole) else ""

    def status(self) -> dict[str, Any]:
        """What an operator wants to know of this process, by role."""
        given = reported_settings(self.settings, self.process)
        return {
            "name": self.process.name,
            "region": self.process.region,
            "version": self.common.member.version,
            "settings": self.settings.digest(),
            "settings_file": self.settings.source,
            "settings_given": given,
            "settings_given_digest": settings_digest(given),
            "format": self.common.formats.finalized,
            "roles": {name: role.status() for name, role in self.roles.items()},
        }

    async def _show_metrics(self, asked: internal.MetricsRequest) -> internal.MetricsResponse:
        return internal.MetricsResponse(text=await self.metrics.exposition.text())

    async def _check_certificates(self) -> None:
        """An authority is trusted no more: connections that others made, and ours, are made anew."""
        assert self.environment.tls is not None
        if self.listening is not None:
            await self.listening.renew(self.environment.tls.server(), RENEWED_S)
        if isinstance(self.environment.network, TcpNetwork):
            self.environment.network.renew(RENEWED_S)
        storage = self.roles.get("storage")
        if isinstance(storage, StorageRole):
            storage.hang_up()

    def _tables(self) -> list[Methods]:
        """Methods that this process answers."""
        proxy = self.roles.get("proxy")
        return [self.methods, *([proxy.port.methods] if isinstance(proxy, ProxyRole) else [])]

    async def _report(self) -> None:
        """Notify the routers what this process carries, every two seconds; nobody waits for it."""
        key = LOADS.key(self.process.name)
        before: tuple[dict[str, Any], int] = ({}, 0)
        loop, written, bad_reports = asyncio.get_running_loop(), 0.0, 0
        calls = OwnCalls(self._tables)
        while True:
            measured = await self._own_load.measure(LOAD_S)
            load: dict[str, Any] = {}
            for role in self.roles.values():
                load.update(role.load(LOAD_S))
            load.update({**measured, **calls.take()})
            if "failed_calls" in load or "disks" in load:
                bad_reports += 1  # equal ones are not the same report then
            load.update({"bad_reports": bad_reports} if bad_reports else {})
            lease = self.common.membership.lease
            if lease is None or not load:
                continue
            if (load, lease.id) == before and loop.time() < written + SAME_S:
                continue
            try:
                await self.common.store.txn([], [Put(key, json.dumps(load).encode(), lease.id)], deadline_s=LOAD_S)
                before, written = (load, lease.id), loop.time()
            except (StoreError, ValueError) as error:
                log.debug("cannot report the load: %s", error)

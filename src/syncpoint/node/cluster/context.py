"""What every process of a cluster has: the metadata, a view of the others, a copy of the catalog, its own membership.

Place: made first by `process`, handed to the roles.
Promise: a process whose cluster-wide settings differ from those the cluster was founded with does not join, and says
which differ; nor does one that cannot read what the cluster writes.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import syncpoint
from syncpoint.base.model.cluster import PROXY, Member
from syncpoint.base.model.errors import Code, FailedPrecondition, InvalidArgument, SyncpointError, Unavailable
from syncpoint.base.runtime.trusted import TrustedClock
from syncpoint.base.tracing.otlp_tracer import tracer_of
from syncpoint.broker.recording.recorder import Recorder
from syncpoint.broker.recording.recorder_driver import RecorderDriver
from syncpoint.broker.router.rendezvous import order
from syncpoint.catalog.access.access import AccessFile
from syncpoint.catalog.metadata.catalog_replica import SharedCatalog
from syncpoint.catalog.metadata.contract import Put, absent
from syncpoint.catalog.metadata.layout import ACK_KEY, SETTINGS, UNIVERSE
from syncpoint.catalog.metadata.records import Topic
from syncpoint.catalog.metadata.store_client import SharedStore
from syncpoint.catalog.metadata.view import ClusterView
from syncpoint.cluster.control.clocks import ClockExchange
from syncpoint.cluster.control.durability_classes import CLASSES, DurabilityClasses
from syncpoint.cluster.control.membership import Membership, new_incarnation
from syncpoint.cluster.control.peer_channels import PeerChannels
from syncpoint.front.api.options_admin import follow_limits
from syncpoint.node.cluster import formats
from syncpoint.node.cluster.cluster_environment import ClusterEnvironment
from syncpoint.node.cluster.directory import Directory
from syncpoint.node.cluster.settings import ClusterSettings, ProcessSettings
from syncpoint.node.cluster.tls import welcome
from syncpoint.watch.metrics.kept_text import MetricsText
from syncpoint.watch.monitor.monitor_admin import MonitorAdmin
from syncpoint.wire.protobuf import methods

PUBLISH_S = 10.0


class ClusterContext:
    """The common parts. `await join()`, then `register(address)` once the process can be called."""

    def __init__(self, settings: ClusterSettings, process: ProcessSettings, environment: ClusterEnvironment) -> None:
        self.settings, self.process, self.environment = settings, process, environment
        self.clock = self.trusted = TrustedClock(environment.clock)
        self.random = environment.random
        self.incarnation = new_incarnation(environment.random)
        self._access_file: AccessFile | None = None
        self.opened: list[str] = []  # further listeners of this process: HOST:PORT
        self.metrics: MetricsText  # once the roles are started
        self.monitor: MonitorAdmin  # made by `process`
        self.tracer = tracer_of(settings.tracing, process.name, syncpoint.__version__, self.clock, self.random)
        self.member = Member(
            process.name,
            process.roles,
            "",
            self.incarnation,
            process.region,
            process.zone,
            process.rack,
            process.cluster,
            tuple(process.disks),
            formats.THIS.version,
            oldest_format=formats.THIS.oldest,
            newest_format=formats.THIS.newest,
            weight=process.weight,
            tls=environment.tls is not None,
            host=environment.host,
            network=environment.machine,
        )

    @property
    def name(self) -> str:
        """What this process is called."""
        return self.process.name

    async def join(self) -> None:
        """Read what there is. Raises `FailedPrecondition` for settings or a certificate that do not fit, and the
        store's errors."""
        self.store: SharedStore = await self.environment.metadata(self.settings)
        self.formats = formats.Formats(self.store, formats.THIS)
        await self.formats.start(founding=await self.store.get(SETTINGS) is None)
        await self._agree()
        self.classes = DurabilityClasses(self.store, fixed=self.settings.fixed_classes)
        await self.classes.start()
        self.universe = int(await self._drawn(UNIVERSE, str(self.random.randrange(10**12, 10**13)).encode()))
        self.ack_key = bytes.fromhex((await self._drawn(ACK_KEY, self.random.token(32).hex().encode())).decode())
        self.peers = PeerChannels(self.environment.network)
        self.view = ClusterView(self.store)
        self.directory = Directory(self.store, self.view)
        self.shared = SharedCatalog(self.store)
        await self.view.start()
        await welcome(
            self.environment.tls, self.process.name, [seen.value for seen in self.view.members.items.values()]
        )
        await self.directory.start()
        await self.shared.start()
        self.catalog, self.limits = self.shared.catalog, follow_limits(self.shared)
        recorder = Recorder(f"{self.process.name}/{self.incarnation:016x}", self.clock.time_ns)
        recorder.refusal = self._records_refusal
        recorder.follow(self.shared)
        self.recording = RecorderDriver(recorder, self.publish_by_proxy)
        self.clocks = ClockExchange(self.store, self.environment.clock, self.clock, self.process.name)
        await self.clocks.start()

    def access_file(self) -> AccessFile | None:
        """What the file of --auth says, which is followed from the first time on; None: callers are not identified.
        Raises `InvalidArgument`."""
        if self._access_file is None and self.settings.auth is not None:
            self._access_file = AccessFile(self.settings.auth, self.catalog, self.environment.clock)
            self._access_file.start()
        return self._access_file

    def _records_refusal(self, topic: Topic) -> str:
        try:
            access = self.access_file()
        except InvalidArgument as error:
            return f"{self.process.name} cannot check permissions: {error}"
        return "" if access is None else access.service.records_refusal(topic)

    async def publish_by_proxy(self, topic: str, request: bytes) -> bytes:
        """Publish on behalf of the service, as anybody does: a dead letter, delivery records. Up to three proxies are
        tried, those of the own region where there are any; what is answered then is what is known. Raises
        `SyncpointError`.
        """
        proxies = self.view.with_role(PROXY)
        names = order(topic.encode(), [one.name for one in proxies if one.region == self.process.region])
        error: SyncpointError = Unavailable("no proxy is available to publish")
        for name in (names or [one.name for one in proxies])[:3]:
            address = self.address_of(name)
            if address is None:
                continue
            try:
                return await self.peers.call(address, methods.PUBLISHER.Publish, request, timeout_s=PUBLISH_S)
            except SyncpointError as failed:
                error = failed
                if error.code is not Code.UNAVAILABLE:
                    break
        raise error

    async def register(self, address: str, disk_address: str = "") -> None:
        """Become a member that can be called at `address`."""
        self.member = replace(self.member, address=address, disk_address=disk_address)
        self.membership = Membership(self.store, self.member, ping=self.peers.ping)
        await self.membership.start()
        await self.formats.check()
        self.membership.heed(self.view.members)
        self.clocks.announce(address)

    async def leave(self) -> None:
        """The key goes first, so that nobody looks for this process any more."""
        await self.membership.stop()

    async def close(self) -> None:
        """Let go of everything."""
        if self._access_file is not None:
            await self._access_file.stop()
        await self.clocks.close()
        await self.shared.close()
        await self.directory.close()
        await self.view.close()
        await self.peers.close()
        await self.classes.close()
        await self.formats.close()
        await self.store.close()
        if self.tracer is not None:
            await asyncio.to_thread(self.tracer.close)

    def listeners(self) -> list[str]:
        """HOST:PORT of whatever listens for this deployment, as far as its file, its members and this process say."""
        processes = {**self.settings.processes, self.process.name: self.process}.values()
        named = [address for one in processes for address in (one.listen, one.public, one.metrics, one.disks_listen)]
        members = [
            address
            for seen in self.view.members.items.values()
            for address in (seen.value.address, seen.value.disk_address)
        ]
        stores = [*self.settings.etcd, *self.settings.etcd_peers, self.settings.metadata]
        return [one for one in (*named, *members, *stores, *self.opened) if one]

    def address_of(self, name: str) -> str | None:
        """Where a member can be called; None while it is not there."""
        member = self.view.members.get(name)
        return member.address if member is not None else None

    def disk_address_of(self, name: str) -> str | None:
        """Where a storage process serves its disks; None while it is not there."""
        member = self.view.members.get(name)
        return member.disk_address if member is not None else None

    async def _agree(self) -> None:
        mine = self.settings.fingerprint()
        found = json.loads(await self._drawn(SETTINGS, json.dumps(mine, sort_keys=True).encode()))
        classes, known = mine.pop(CLASSES), found.pop(CLASSES)
        differ = sorted(key for key in mine.keys() | found.keys() if mine.get(key) != found.get(key))
        differ += [f"{CLASSES}.{name}" for name in classes if name in known and classes[name] != known[name]]
        if differ:
            raise FailedPrecondition(
                f"the settings of {self.process.name} differ from the cluster's in {', '.join(differ)}."
                " They are fixed at the cluster's first start: give every process the same cluster.yaml."
            )
        for name in classes:
            if name not in known:
                raise FailedPrecondition(
                    f"the file of {self.process.name} has a durability class {name!r} that is not in the cluster."
                    f" Remove it from `{CLASSES}`, or add it first: `syncpoint cluster classes add {name} ...`."
                )

    async def _drawn(self, key: str, value: bytes) -> bytes:
        """The value of a key that is written once, by the first process."""
        await self.store.txn([absent(key)], [Put(key, value)])
        known = await self.store.get(key)
        assert known is not None
        return known.value

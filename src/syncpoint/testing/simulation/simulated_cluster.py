"""A whole cluster in one process: every role as it ships, on simulated environment.

Place: `node.cluster.process.ClusterProcess` for each process; only storage processes have a stand-in for their role,
because the shipped one serves sockets: behind it is the shipped disk service (see `simulated_disks`). Clients talk to
proxies.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from syncpoint.base.model.cluster import ChainRecord
from syncpoint.base.model.errors import SyncpointError
from syncpoint.base.runtime.clock import ManualClock
from syncpoint.base.runtime.files import Files
from syncpoint.broker.publish.chain.chain import Chain
from syncpoint.catalog.metadata import contract as metadata
from syncpoint.catalog.metadata.layout import OPEN
from syncpoint.catalog.metadata.memory import MemoryStore
from syncpoint.cluster.control.durability_classes import DurabilityClass
from syncpoint.front.proxy.key_admin import rotate
from syncpoint.log.diskserver.remote_disk import DiskAddress
from syncpoint.log.storage.settings import StorageSettings
from syncpoint.node.cluster.cluster_environment import AddressOf, ClusterEnvironment, root_of
from syncpoint.node.cluster.process import ClusterProcess
from syncpoint.node.cluster.proxy_role import ProxyRole
from syncpoint.node.cluster.settings import ClusterSettings, ProcessSettings
from syncpoint.node.process import Role
from syncpoint.node.publish_role import PublishRole
from syncpoint.testing.simulation.api_clients import ApiClients
from syncpoint.testing.simulation.base import Trace
from syncpoint.testing.simulation.loop import ProcessLoop, SimProcess
from syncpoint.testing.simulation.push_endpoint import SimEndpoint
from syncpoint.testing.simulation.sim_metadata import SimShared
from syncpoint.testing.simulation.sim_workers import SimChildProcesses, SimWorkers, run_blocking
from syncpoint.testing.simulation.simulated_disks import SimFiles

SETTINGS = StorageSettings(
    segment_bytes=64 * 1024, pool_segments=1, pool_segments_max=2, segment_entries_max=60, reserve_bytes=0,
    scrub_bytes_s=0, cache_bytes=20_000, index_cache_bytes=16_384, read_ahead_bytes=8_192, hung_s=1.5,
    probe_interval_s=0.5,
)  # fmt: skip


STOP_S = 20.0  # how long a supervisor waits for a process to end


class DisksRole(Role):
    """The storage role: its disks are the farm's server of the same name, which runs and ends with the process."""

    def __init__(self, name: str) -> None:
        self.disk_address = f"{name}:7000"


class SimMember:
    """One life of one process."""

    def __init__(self, sim: SimulatedCluster, name: str) -> None:
        self.sim, self.name = sim, name
        self.process = SimProcess(sim.loop, name)
        self.cluster: ClusterProcess | None = None
        self.shared: SimShared | None = None
        self._opened: SimFiles | None = None
        self.up = False

    async def run(self) -> None:
        """In the process: start, again until it works."""
        sim = self.sim
        while True:
            settings = sim.settings.process(self.name)
            self.cluster = ClusterProcess(sim.settings, settings, self._environment())
            if "storage" in self.cluster.roles:
                self.cluster.roles["storage"] = DisksRole(self.name)
            try:
                await self.cluster.start()
                break
            except Exception as error:  # a process that cannot start is restarted by its supervisor
                sim.note(f"{self.name} does not start: {type(error).__name__}")
                sim.coverage.sometimes("a process does not start at once")
                sim.again(self.name, 0.5)
                return
        self.up = True
        sim.note(f"{self.name} is up")

    def _environment(self) -> ClusterEnvironment:
        sim = self.sim
        return ClusterEnvironment(
            clock=sim.clock_of(self.name),
            random=sim.random,
            network=sim.network,
            make_workers=self._workers,
            blocking=lambda work: run_blocking(sim.sim_threads, work),
            outside=lambda work: run_blocking(sim.sim_threads, work),
            notify=self._notify,
            drain_s=1.0,
            open_metadata=self._metadata,
            open_files=self._files,
            apart=SimChildProcesses(),
            push_sender=SimEndpoint(sim, f"{self.name}.{sim.next_life()}"),
            freeze_memory=lambda: None,  # the collector's own is everybody's here
            measures_itself=False,
        )

    def _notify(self, act: Callable[[], None]) -> None:
        self.sim.loop.call_soon(act, context=self.process.context())

    async def _metadata(self, settings: ClusterSettings) -> SimShared:
        self.shared = SimShared(self.sim)
        self.shared.cut = self.sim.outage
        return self.shared

    def _files(self, record: ChainRecord, epoch: int, address_of: AddressOf) -> tuple[Files, list[str]]:
        places = {
            root_of(place.cluster, place.disk): DiskAddress(place.process, 7000, place.disk) for place in record.places
        }
        self._opened = self.sim.farm.files(places, record.number, epoch, record.durability)
        return self._opened, list(places)

    def _workers(self) -> SimWorkers:
        assert self._opened is not None
        return SimWorkers(self.sim.sim_threads, self.sim.random, self._opened.calm, stops=0.02)


class SimulatedCluster(ApiClients):
    """A whole cluster in one process."""

    def __init__(
        self,
        loop: ProcessLoop,
        clock: ManualClock,
        seed: int,
        trace: Trace | None,
        disks: int,
        *,
        publishers: int = 2,
        subscribers: int = 2,
        sealed: bool = False,
    ) -> None:
        """`sealed`: message data is sealed, as with a key-encryption key in a file."""
        super().__init__(loop, clock, seed, trace)
        self._folder = TemporaryDirectory() if sealed else None
        self.store = MemoryStore(clock=clock, random=self.random)
        self.lives = 0
        self.doubt = 0.0  # that the outcome of a transaction stays unknown
        self.outage = False
        self.members: dict[str, SimMember] = {}
        processes: dict[str, ProcessSettings] = {}
        for number in range(3):
            name, names = f"d{number}", tuple(f"d{number}{disk}" for disk in range(disks))
            processes[name] = ProcessSettings(
                name, ("storage",), f"{name}:1", cluster=f"c{number}", disks={one: Path("/" + one) for one in names},
                disks_listen=f"{name}:7000",
            )  # fmt: skip
            self.farm.serve(name, names)
        self.publishers = publishers
        for role, count in (("publish-forwarder", publishers), ("subscribe-forwarder", subscribers), ("router", 1)):
            for number in range(count):
                name = f"{role[0]}{number}"
                processes[name] = ProcessSettings(name, (role,), f"{name}:1")
        for number in range(2):
            name = f"proxy{number}"
            processes[name] = ProcessSettings(name, ("proxy",), f"{name}:1", public=f"{name}:443")
        classes = {"default": DurabilityClass(clusters=3, disks=disks)}
        key = None
        if self._folder is not None:
            key = Path(self._folder.name) / "key"
            key.write_bytes(bytes(range(32)))
        self.settings = ClusterSettings("sim", ("etcd:1",), classes, processes, storage=SETTINGS, sealing_key_file=key)

    def next_life(self) -> int:
        """Lives of processes, counted."""
        self.lives += 1
        return self.lives

    # -- processes ---------------------------------------------------------------------------------------------------

    async def begin_all(self) -> None:
        """Start everything, one after the other."""
        for name in self.settings.processes:
            self.begin(name)
            await asyncio.sleep(0.01)

    def not_up(self) -> list[str]:
        """Who does not run as it should, in words."""
        found = [f"{name} is not up" for name, member in self.members.items() if not member.up]
        chains = len(self.chains())
        return found if chains >= self.publishers else [*found, f"{chains} of {self.publishers} chains are served"]

    def begin(self, name: str) -> None:
        """Start a process."""
        server = self.farm.servers.get(name)
        if server is not None and not server.alive:
            server.start()
        member = self.members[name] = SimMember(self, name)
        member.process.start(member.run())

    def again(self, name: str, seconds: float) -> None:
        """A process that could not start ends, and is started again."""
        self.loop.call_later(seconds, self._restart, name)

    def _restart(self, name: str) -> None:
        self.crash(name)
        self.begin(name)

    def crash(self, name: str) -> None:
        """kill -9."""
        member = self.members[name]
        if member.process.alive:
            member.process.crash()
            self.network.ended(member.process)
            if member.shared is not None:
                member.shared.abandon()
        server = self.farm.servers.get(name)
        if server is not None and server.alive:
            server.kill()

    def restart(self, name: str) -> None:
        """Stop a process as SIGTERM does, and start it again; it is killed if it does not stop in time."""
        member = self.members[name]
        member.up = False

        async def stop() -> None:
            assert member.cluster is not None
            try:
                async with asyncio.timeout(STOP_S):
                    await member.cluster.stop()
            except TimeoutError:
                self.note(f"{name} does not stop")
                self.coverage.sometimes("a process is killed that does not stop")
            except (SyncpointError, metadata.StoreError) as error:
                self.note(f"{name} ends with {type(error).__name__}: {error}")
                self.coverage.sometimes("a process ends with an error")
            else:
                self.coverage.sometimes("a process stops")
            self.loop.call_soon(again, context=contextvars.Context())

        def again() -> None:
            if self.members[name] is member and member.process.alive:
                self._restart(name)

        member.process.start(stop())

    def cut_metadata(self, cut: bool, names: Sequence[str]) -> None:
        """The metadata is out of reach of some, or there again."""
        for name in names:
            shared = self.members[name].shared
            if shared is not None and self.members[name].process.alive:
                shared.cut = cut

    def owners(self) -> list[tuple[str, Chain]]:
        """All chains that are open somewhere, and where."""
        found: list[tuple[str, Chain]] = []
        for name, member in self.members.items():
            role = member.cluster.roles.get("publish-forwarder") if member.cluster is not None else None
            if isinstance(role, PublishRole) and member.process.alive and member.up:
                found += [(name, chain) for chain in role.host.chains.values()]
        return found

    def chains(self) -> list[Chain]:
        """Return all open chains."""
        return [chain for _, chain in self.owners()]

    async def close(self) -> None:
        """End everything."""
        for name in list(self.members):
            self.crash(name)
        await super().close()
        if self._folder is not None:
            self._folder.cleanup()

    async def rotate_keys(self) -> None:
        """New messages are sealed under new keys, as `syncpoint keys rotate` does it, in any proxy."""
        for member in self.members.values():
            cluster = member.cluster
            role = cluster.roles.get("proxy") if cluster is not None else None
            if cluster is None or not isinstance(role, ProxyRole) or not member.up or role.proxy.sealer is None:
                continue
            if member.process.alive and not member.process.hung:
                topics = [topic.incarnation for topic in cluster.common.catalog.topics()]
                try:
                    await rotate(role.proxy.sealer.keys, topics)
                except SyncpointError as error:
                    self.note(f"client: keys are not rotated: {error.code.name}")
                    continue
                self.coverage.sometimes("keys are rotated")
                self.note("client: keys rotated")
                return

    def registered(self) -> frozenset[tuple[int, int]]:
        """Topics and the chains that are registered for them."""
        places = (OPEN.numbers(item.key) for item in self.store.range(OPEN).items)
        return frozenset((int(topic), int(chain)) for topic, chain in places)

    def endpoint(self) -> str:
        """Any proxy."""
        return f"proxy{self.random.randrange(0, 2)}:443"

"""One node that serves pipelines, over disks that fail: the process as it ships, and the simulation around it.

Place: `solo.node.Node` in a simulated environment; its catalog is the shipped one over SQLite, its disks are behind
the shipped disk service (see `simulated_disks`), because that is what can hang, fail and lose its power. Simulated jobs
of Spark are in `spark`, their life in `pipeline_runs`, what they did and saw in `pipeline_history`.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from syncpoint.base.runtime.clock import Clock, ManualClock
from syncpoint.base.runtime.random import Random
from syncpoint.base.runtime.step_workers import Notify
from syncpoint.broker.push.push_driver import Sender
from syncpoint.catalog.metadata.sqlite import SqliteStore
from syncpoint.log.diskserver.remote_disk import DiskAddress
from syncpoint.log.storage.settings import StorageSettings
from syncpoint.node.metadata import open_metadata
from syncpoint.node.node_environment import NodeEnvironment
from syncpoint.node.settings import ServeSettings
from syncpoint.node.solo.node import Node
from syncpoint.testing.simulation.accidents import Accidents
from syncpoint.testing.simulation.base import Trace
from syncpoint.testing.simulation.loop import ProcessLoop, SimProcess
from syncpoint.testing.simulation.sim_workers import SimChildProcesses, SimWorkers, run_blocking
from syncpoint.testing.simulation.simulated_disks import SimDiskServer, SimFiles
from syncpoint.testing.simulation.simulated_jobs import PipelineShape, SimulatedJobs
from syncpoint.wire.transport.calls import Methods
from syncpoint.wire.transport.limits import TransportLimits
from syncpoint.wire.transport.network import Listening
from syncpoint.wire.transport.server import Fallback

NODE, DISKS = "node", "disks"
ENDPOINT = f"{NODE}:443"


class NoLocks:
    """Nobody else is on this machine."""

    def take(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)

    def release(self) -> None:
        """There is none."""


class NodeLife:
    """One life of the node."""

    def __init__(self, sim: SimulatedNode) -> None:
        self.sim = sim
        self.process = SimProcess(sim.loop, NODE)
        self.accidents = Accidents(sim.random)
        self.up = False
        self.node: Node
        self._opened: SimFiles

    async def run(self) -> None:
        """Runs in the process. A node that cannot start is restarted by its supervisor."""
        sim = self.sim
        environment = NodeEnvironment(
            sim.clock_of(NODE),
            sim.random,
            self._open_files(),
            self._workers,
            self._notify(),
            lambda work: run_blocking(sim.sim_threads, work),
            outside=lambda work: run_blocking(sim.sim_threads, work),
            make_locks=NoLocks,
            open_metadata=self._open_metadata,
            serve=self._serve,
            keep_memory=lambda: None,
            freeze_memory=lambda: None,
            measures_itself=False,
            apart=SimChildProcesses(),
            push_sender=sim.push_sender,
        )
        node = Node(sim.settings, environment)
        try:
            await node.start()
        except Exception as error:
            sim.note(f"the node does not start: {type(error).__name__}")
            sim.coverage.sometimes("a node does not start at once")
            sim.does_not_start(error)
            return
        guard = node.log.host.rounds.guard
        node.log.host.rounds.guard = lambda step: guard(partial(self.accidents.within, step))  # type: ignore[method-assign]
        sim.equip(node)
        found = node.log.store.recovered
        sim.coverage.sometimes("a tail is cut at recovery", found.cut)
        sim.coverage.always("nothing promised is on no disk", not found.lost, f"{found.lost}")
        self.node, self.up = node, True
        sim.note(f"the node is up: log {node.log.store.log_counter}, cut {len(found.cut)}")

    def _open_metadata(self, path: Path, clock: Clock, random: Random) -> SqliteStore:
        store = open_metadata(path, clock, random)
        self.process.on_crash.append(store.close)  # the kernel gives its lock back
        return store

    def _open_files(self) -> SimFiles:
        sim = self.sim
        sim.lives += 1
        places = {f"/{name}": DiskAddress(DISKS, 1, name) for name in sim.disks.disks}
        self._opened = sim.farm.files(places, 1, sim.lives)
        return self._opened

    def _workers(self) -> SimWorkers:
        sim = self.sim
        return SimWorkers(sim.sim_threads, sim.random, self._opened.calm, stops=0.02)

    def _notify(self) -> Notify:
        def notify(act: Callable[[], None]) -> None:
            self.sim.loop.call_soon(act, context=self.process.context())

        return notify

    async def _serve(
        self,
        methods: Methods,
        host: str,
        port: int,
        *,
        tls: ssl.SSLContext | None,
        limits: TransportLimits,
        on_fallback: Fallback | None,
    ) -> Listening:
        return await self.sim.network.serve(methods, host, port)


class SimulatedNode(SimulatedJobs):
    """One node that serves pipelines, over failing disks."""

    def __init__(
        self, loop: ProcessLoop, clock: ManualClock, seed: int, shape: PipelineShape, trace: Trace | None
    ) -> None:
        super().__init__(loop, clock, seed, trace)
        self.of_jobs(shape)
        self.lives = 0
        self.ended = False
        self.push_sender: Sender | None = None
        self.refusal: Exception | None = None  # why the node did not start, the last time it did not
        names = tuple(f"d{number}" for number in range(shape.disks))
        self.disks: SimDiskServer = self.farm.serve(DISKS, names)
        self._folder = TemporaryDirectory()
        storage = StorageSettings(
            segment_bytes=64 * 1024, pool_segments=1, pool_segments_max=2, segment_entries_max=40, reserve_bytes=0,
            scrub_bytes_s=0, cache_bytes=2_000 if shape.small else 20_000, index_cache_bytes=16_384,
            read_ahead_bytes=4_096, commit_bytes_max=1_000 if shape.small else 20_000, hung_s=1.5,
            probe_interval_s=0.5,
        )  # fmt: skip
        self.settings = ServeSettings(
            host=NODE,
            port=443,
            data=Path(self._folder.name) / "data",
            disks=tuple(Path(f"/{name}") for name in names),
            drain_s=0.5,
            storage=storage,
        )
        self.life = NodeLife(self)

    def endpoint(self) -> str:
        return ENDPOINT

    def equip(self, node: Node) -> None:
        """A node has just been started."""

    # -- the node ----------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """A new life of the node."""
        if not self.disks.alive:
            self.disks.start()
        self.life = NodeLife(self)
        self.life.process.start(self.life.run())

    def crash(self) -> None:
        """kill -9."""
        process = self.life.process
        if process.alive:
            process.crash()
            self.network.ended(process)

    def again(self) -> None:
        """A dead node is started."""
        if not self.life.process.alive and not self.ended:
            self.begin()

    def does_not_start(self, error: Exception) -> None:
        """Somebody tries again; what it says is judged once nothing stands in the way."""
        self.refusal = error
        self.loop.call_soon(self._give_up, self.life)

    def _give_up(self, life: NodeLife) -> None:
        if life is self.life:
            self.crash()
            self.loop.call_later(0.3, self.again)

    @property
    def serving(self) -> bool:
        """Whether the node is up and takes what is written."""
        life = self.life
        return life.process.alive and life.up and life.node.log.publish.commit.failed is None

    async def supervise(self) -> None:
        """A node whose log has failed is restarted, as an operator would."""
        while True:
            await asyncio.sleep(0.5)
            life = self.life
            if (
                life.process.alive
                and life.up
                and not life.process.hung
                and life.node.log.publish.commit.failed is not None
            ):
                self.coverage.sometimes("a log fails")
                self.note(
                    f"the log has failed: {type(life.node.log.publish.commit.failed).__name__}; the node is restarted"
                )
                self.crash()
                self.loop.call_later(0.3 * self.random.random(), self.again)

    async def stop(self) -> None:
        """SIGTERM: drain, write a checkpoint, seal, end; then it is started again."""
        life = self.life
        if life.process.alive and life.up:
            stopping = life.process.start(life.node.stop())
            await asyncio.wait([stopping], timeout=5.0)
            if life is self.life:
                self.crash()
                self.loop.call_later(0.3, self.again)

    async def close(self) -> None:
        """End everything."""
        self.ended = True
        self.crash()
        await super().close()
        self._folder.cleanup()

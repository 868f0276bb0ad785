"""One seed of a node whose folder becomes a cluster while its clients go on: `cluster import`, broken off and repeated.

Place: over the node of `pipeline_runs` and the cluster of `scenario`, one after the other in one history: clients ask
the node, nobody, then the proxies. The import is the shipped one, in a process of its own; the node's disks are on the
machine of one storage process, so that their files can be renamed to where that one has its disks.
What happens: the node is stopped or killed; the command is killed before any access to a disk, any call to the
metadata or any renaming, with power or without, and transactions are in doubt. While the folder is the node's still,
the node goes on now and then: messages, acknowledgements, subscriptions that come and go. Then it is imported again.
What is judged: what is judged of a node and of a cluster, as if nothing had happened; an import that is repeated ends
well.
"""

from __future__ import annotations

import asyncio
import contextvars
import errno
from collections import defaultdict
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, cast

from syncpoint.base.model.errors import SyncpointError
from syncpoint.base.runtime.clock import ManualClock
from syncpoint.base.runtime.files import Files
from syncpoint.base.runtime.random import SeededRandom
from syncpoint.catalog.metadata.contract import StoreError
from syncpoint.front.api import options_admin
from syncpoint.log.diskserver.remote_disk import DiskAddress
from syncpoint.node import client_port
from syncpoint.node.cluster.cluster_environment import ClusterEnvironment
from syncpoint.node.cluster.settings import ClusterSettings
from syncpoint.node.note import cluster_note
from syncpoint.programs.clusters.import_folder import Adopted, take_over
from syncpoint.testing.rigs.history import Creation, MessageIdentity
from syncpoint.testing.simulation.base import Trace
from syncpoint.testing.simulation.cluster_faults import FAULTS as OF_CLUSTERS
from syncpoint.testing.simulation.cluster_faults import ClusterFaults
from syncpoint.testing.simulation.consumed import FORWARDED, PULLED, Consumed
from syncpoint.testing.simulation.invariants import leftovers
from syncpoint.testing.simulation.loop import ProcessLoop, SimProcess
from syncpoint.testing.simulation.pipeline_faults import PipelineFaults
from syncpoint.testing.simulation.run_checkers import confirmed_once, first_comes_first, one_writer_per_log
from syncpoint.testing.simulation.scaled import patched
from syncpoint.testing.simulation.sim_metadata import SimShared
from syncpoint.testing.simulation.sim_runs import RunResult, SimRun, simulate
from syncpoint.testing.simulation.sim_threads import Killed
from syncpoint.testing.simulation.sim_workers import SimWorkers, run_blocking
from syncpoint.testing.simulation.simulated_cluster import SimulatedCluster
from syncpoint.testing.simulation.simulated_disks import SimDiskServer
from syncpoint.testing.simulation.simulated_jobs import PipelineShape
from syncpoint.testing.simulation.simulated_node import DISKS, NODE, SimulatedNode
from syncpoint.testing.simulation.timed_ids import TimedIds

OF_NODES = ("crash", "power cut", "power cut in a command", "stop", "hang", "connections broken", "disk slow")
STRIKES = ("a command", "a call", "a renaming", "doubt")  # before which the command is killed; or outcomes are unknown
SUBSCRIPTIONS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("plain", {}),
    ("ordered", {"ordered": True}),
    ("once", {"exactly_once": True}),
)
CALM_TRIES = 6
DRAIN_S, QUIESCE_S, PROMPT_S, LAST_S = 90.0, 40.0, 40.0, 60.0


def run_imported(
    seed: int, *, kinds: tuple[str, ...] = (), strikes: tuple[str, ...] = STRIKES, trace: Trace | None = None
) -> RunResult:
    """Run one seed. `kinds` of faults are drawn from it unless given; `strikes`: what an import is broken off by."""

    def make(loop: ProcessLoop, clock: ManualClock) -> ImportedRun:
        return ImportedRun(ImportedNode(loop, clock, seed, trace), seed, kinds, strikes)

    return simulate(seed, make, trace)


class ImportedNode(SimulatedNode):
    """A node, and the cluster that takes over its folder."""

    def __init__(self, loop: ProcessLoop, clock: ManualClock, seed: int, trace: Trace | None) -> None:
        disks = 1 if seed % 3 else 3
        super().__init__(loop, clock, seed, PipelineShape(disks=disks, queries=(), small=False), trace)
        self.cluster = SimulatedCluster(loop, clock, seed, trace, disks, sealed=seed % 5 == 0)
        self.cluster.join(self)
        self.folder = Path(self._folder.name) / "cluster"
        self.folder.mkdir()
        self.importing = self.folder / "importing"
        self.imported = False
        self.machine: SimDiskServer = self.cluster.farm.servers["d1"]  # no fault destroys what is on it
        self.machine.kill()
        self.machine.files = self.disks.files

    def endpoint(self) -> str:
        return self.cluster.endpoint() if self.imported else super().endpoint()

    def rest(self) -> None:
        """Kill the node, if it runs; nobody starts it again."""
        self.ended = True
        self.crash()

    def go_on(self) -> None:
        """Start the node on its own folder."""
        self.ended = False
        self.again()

    async def close(self) -> None:
        await self.cluster.close()
        await super().close()


class Import:
    """One run of the command. `strike`: what ends it after `left` more of them; `power`: the machine's goes, too."""

    def __init__(self, sim: ImportedNode, strike: str, left: int, *, power: bool) -> None:
        self.sim, self.strike, self.left, self.power = sim, strike, left, power
        self.process = SimProcess(sim.loop, "import")

    async def run(self) -> Adopted | Exception | None:
        """What came of it."""
        sim, cluster = self.sim, self.sim.cluster
        cluster.doubt = 0.3 if self.strike == "doubt" else 0.0
        if not sim.disks.alive:
            sim.disks.start()
        work = self.process.start(self._work())
        if self.strike == "a command":
            sim.farm.after(self.process, self.left, self._die_in_a_thread)
        end = sim.loop.time() + LAST_S
        while self.process.alive and not work.done() and sim.loop.time() < end:
            await asyncio.sleep(0.02)
        cluster.doubt = 0.0
        sim.coverage.always("an import ends", not self.process.alive or work.done(), "it still runs")
        if not self.process.alive:
            sim.network.ended(self.process)
            if work.done():
                work.exception()
            return InterruptedError("killed")
        self.process.crash()
        try:
            return work.result()
        except (SyncpointError, StoreError, OSError) as error:
            return error

    async def _work(self) -> Adopted | None:
        sim = self.sim
        files = cast(Files, MachineFiles(sim, self._rename))
        return await take_over(
            TheCluster(sim), sim.settings.data, sim.settings.disk_folders, files, lambda settings: self._environment()
        )

    def _environment(self) -> ClusterEnvironment:
        sim = self.sim
        sim.lives += 1
        files = sim.farm.files({f"/{name}": DiskAddress(DISKS, 1, name) for name in sim.disks.disks}, 1, sim.lives)

        async def metadata(settings: ClusterSettings) -> SimShared:
            return MortalShared(sim.cluster, self._call)

        return ClusterEnvironment(
            clock=sim.clock_of(NODE),
            random=sim.random,
            files=files,
            make_workers=lambda: SimWorkers(sim.sim_threads, sim.random, files.calm, stops=0.02),
            blocking=lambda work: run_blocking(sim.sim_threads, work),
            open_metadata=metadata,
        )

    def _call(self) -> bool:
        return self._due("a call")

    def _rename(self) -> None:
        if self._due("a renaming"):
            raise Killed

    def _due(self, what: str) -> bool:
        if self.strike == what:
            self.left -= 1
            if self.left < 0:
                self._die()
        return not self.process.alive

    def _die_in_a_thread(self) -> None:
        """End the thread that asks; its process is buried by the loop."""
        self.process.alive = False
        self.sim.loop.call_soon(self._die, context=contextvars.Context())
        raise Killed

    def _die(self) -> None:
        sim = self.sim
        self.process.crash()
        if self.power and sim.disks.alive:
            sim.disks.power_cut()
        elif self.power:
            sim.disks.files.power_cut(sim.random)
        sim.coverage.sometimes(f"an import is killed before {self.strike}")


class TheCluster:
    """What an import has to know of the cluster."""

    def __init__(self, sim: ImportedNode) -> None:
        self.folder, self.importing = sim.folder, sim.importing
        self.settings = lambda: sim.cluster.settings


class MortalShared(SimShared):
    """The metadata of a process that `dies` before a call."""

    def __init__(self, cluster: SimulatedCluster, dies: Callable[[], bool]) -> None:
        super().__init__(cluster)
        self._dies = dies

    async def turn(self) -> None:
        if self._dies():
            await asyncio.get_running_loop().create_future()
        await super().turn()


class MachineFiles:
    """The folders of the machine as the import has them: those of the node, and of the disks of one storage process.
    The disks of others are on other file systems. `step` is called before every change of names.
    """

    def __init__(self, sim: ImportedNode, step: Callable[[], None]) -> None:
        self._sim, self._files, self._step = sim, sim.disks.files, step
        self._roots = {f"/{name}": f"/{name}/chains/{1:010d}" for name in sim.disks.disks}
        self._here = {*self._roots, *(f"/{name}" for name in sim.machine.disks)}

    def _path(self, path: str) -> str:
        """Where it lies: what the node has as its own folder is a chain's at the server that stands for its disks."""
        if self._sim.disks.alive:
            self._sim.disks.kill()  # nobody serves the folders now
        _, name, *rest = path.split("/")
        root = f"/{name}"
        return "/".join([self._roots.get(root, root), *rest])

    def _is_here(self, path: str) -> bool:
        return "/" + path.split("/")[1] in self._here

    def mkdir(self, path: str) -> None:
        if self._is_here(path):
            self._step()
            self._files.mkdir(self._path(path))

    def open(self, path: str, *, create: bool = False, write: bool = True) -> int:
        return self._files.open(self._path(path), create=create, write=write)

    def close(self, handle: int) -> None:
        self._files.close(handle)

    def listdir(self, path: str) -> list[str]:
        return self._files.listdir(self._path(path))

    def rename(self, old: str, new: str) -> None:
        if not self._is_here(new):
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        self._step()
        self._files.rename(self._path(old), self._path(new))

    def unlink(self, path: str) -> None:
        self._step()
        self._files.unlink(self._path(path))

    def sync_dir(self, path: str) -> None:
        self._step()
        self._files.sync_dir(self._path(path))


class ImportedRun(SimRun[ImportedNode]):
    """Run one seed of a node that becomes a cluster."""

    look_s = 0.5

    def __init__(self, sim: ImportedNode, seed: int, kinds: tuple[str, ...], strikes: tuple[str, ...]) -> None:
        super().__init__(sim, seed, random := SeededRandom(seed * 11 + 4))
        self.strikes = strikes
        of_node = [kind for kind in OF_NODES if random.random() < 0.4 and (not kinds or kind in kinds)]
        self.of_node = PipelineFaults(sim, seed, tuple(of_node) or ("crash",))
        of_cluster = [one for one in OF_CLUSTERS if one != "clock jump" and random.random() < 0.4]
        self.of_cluster = ClusterFaults(sim.cluster, random, kinds or tuple(of_cluster) or ("crash",))
        self.consumed = [
            Consumed(sim, kind, seed, life=object) for kind in (PULLED, FORWARDED) if random.random() < 0.4
        ]
        self.ids = TimedIds(sim, seed, sim.clock.time_ns) if random.random() < 0.4 else None
        self.brief: list[tuple[str, Creation]] = []  # subscriptions that nobody receives from, and are deleted
        self.quiescing = False
        sim.note(f"seed {seed}: {', '.join(one.kind for one in self.consumed)}, {self.of_node.kinds}")

    def _failed(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if not isinstance(context.get("exception"), Killed):  # a step of a thread ends with its process
            super()._failed(loop, context)

    @property
    def _clients(self) -> list[Consumed | TimedIds]:
        return [*self.consumed, *((self.ids,) if self.ids is not None else ())]

    async def run(self) -> None:
        with ExitStack() as stack:
            stack.enter_context(patched(options_admin, DUPLICATE_WINDOW_SECONDS_MIN=1))
            # Nobody calls over HTTP/1.1.
            stack.enter_context(patched(client_port, console_pages=lambda *_: [], client_http=lambda *_, **__: None))
            await self._run()

    async def _run(self) -> None:
        sim = self.sim
        sim.begin()
        supervising = sim.loop.create_task(sim.supervise())
        await self.within([sim.create_topic(retention_s=86_400)], LAST_S)
        await self.within([sim.subscribe(name, **options) for name, options in SUBSCRIPTIONS], LAST_S)
        await self.within([one.begin() for one in self._clients], LAST_S)
        for name, _ in SUBSCRIPTIONS:
            self.start(sim.consume(name, f"{name}-a"))
        for one in self._clients:
            self.start(one.consume())
        living = [self.start(self._publish(f"p{n}", key)) for n, key in enumerate(("", "k1", "k2"))]
        living += [self.start(one.live(lambda: self.publishing)) for one in self._clients]
        await self._node_lives(0.5 + 2.0 * self.random.random())
        await self._import()
        supervising.cancel()
        sim.imported = True
        sim.note("the cluster is started")
        await sim.cluster.begin_all()
        await self.of_cluster.go_wrong(1 + 3 * self.random.random())
        self.of_cluster.heal()
        self.healed()
        await self.within(living, LAST_S)
        complaints = await self.drain(DRAIN_S)
        if not complaints:
            self.quiescing = True
            complaints = await self.drain(QUIESCE_S)
        farm, history = sim.cluster.farm, sim.history
        stored: dict[MessageIdentity, set[str]] = defaultdict(set)
        for delivery in history.deliveries:
            if delivery.subscription == "ordered" and delivery.identity is not None:
                stored[delivery.identity].add(delivery.message_id)
        verdicts = [found for one in self.consumed for found in one.judged(stored)]
        verdicts += self.ids.judged() if self.ids is not None else []
        self.judge(
            complaints,
            PROMPT_S,
            confirmed_once(history),
            first_comes_first(history),
            one_writer_per_log(farm.intruders, farm.commands),
            *verdicts,
        )
        await sim.close()

    async def _node_lives(self, seconds: float) -> None:
        """The node works, with faults; subscriptions come and go."""
        sim, end = self.sim, self.sim.loop.time() + seconds
        changing = self.start(self._change())
        while sim.loop.time() < end:
            await asyncio.sleep(0.2 + self.random.random())
            self.of_node.strike(self.random)
        self.of_node.heal()
        await self.within([changing], LAST_S)

    async def _change(self) -> None:
        """A subscription that is created is deleted in this life of the node, or in a later one."""
        sim = self.sim
        if self.brief and self.random.random() < 0.7:
            await sim.unsubscribe(*self.brief.pop())
        elif self.random.random() < 0.7:
            name = f"brief{len(sim.history.creations)}"
            creation = await sim.subscribe(name)
            creation.until = sim.history.stamp()
            self.brief.append((name, creation))

    async def _import(self) -> None:
        """Import the folder until that has ended well."""
        sim, random = self.sim, self.random
        strikes = [self.strikes[random.randrange(0, len(self.strikes))] for _ in range(random.randrange(0, 4))]
        for strike in [*strikes, *[""] * CALM_TRIES]:
            if cluster_note(sim.settings.data) is None:
                await self._stop()
            left = random.randrange(0, {"a command": 200, "a call": 30}.get(strike, 25))
            found = await Import(sim, strike, left, power=random.random() < 0.5).run()
            if not isinstance(found, Exception):
                break
            sim.note(f"the import ends with {type(found).__name__}")
            noted = cluster_note(sim.settings.data) is not None
            sim.coverage.sometimes("an import is broken off after its note", noted)
            sim.coverage.sometimes("an import is broken off before its note", not noted)
            if not noted and random.random() < 0.6:
                sim.note("the node goes on")
                sim.go_on()
                await self._node_lives(0.3 + 1.5 * random.random())
                sim.coverage.sometimes("a node goes on after an import that was broken off")
            elif not noted:
                await asyncio.sleep(3 * random.random())
        sim.coverage.always("an import that is repeated ends well", not isinstance(found, Exception), repr(found))
        if random.random() < 0.3:
            found = await Import(sim, "", 0, power=False).run()
            sim.coverage.always("what is imported may be imported again", found is None, repr(found))
        sim.coverage.always("the cluster may be started", not sim.importing.exists(), "the import is not over")
        for name, creation in self.brief:  # those the cluster has
            self.start(sim.unsubscribe(name, creation))

    async def _stop(self) -> None:
        sim = self.sim
        if sim.serving and self.random.random() < 0.5:
            sim.ended = True
            await sim.stop()
        sim.rest()

    async def _publish(self, client: str, key: str) -> None:
        number = 0
        while self.publishing:
            await self.sim.publish(client, number, key)
            number += 1
            await asyncio.sleep(self.random.random() ** 2 * 0.3)

    # -- the end -----------------------------------------------------------------------------------------------------

    def unfinished(self) -> list[str]:
        cluster = self.sim.cluster
        found = cluster.not_up()
        for chain in cluster.chains():
            found += self.unfinished_of(chain)
            found += leftovers(chain, cluster.registered()) if self.quiescing else []
        found += self.owed()
        for one in self._clients:
            found += one.lacks() if not found else []
        return found

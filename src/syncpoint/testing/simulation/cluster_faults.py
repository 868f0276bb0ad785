"""Faults of a whole cluster: its processes, its network, its metadata, its disks and its clocks."""

from __future__ import annotations

import asyncio

from syncpoint.base.runtime.random import SeededRandom
from syncpoint.testing.simulation.faults import duration
from syncpoint.testing.simulation.healing import Heal, Lasting, altered, clock_jump, disk_fails, disk_full, disk_slow
from syncpoint.testing.simulation.simulated_cluster import SimulatedCluster
from syncpoint.testing.simulation.simulated_disks import SimDiskServer

FAULTS = (
    "subscribe forwarder parted",
    "island",
    "crash",
    "restart",
    "hang",
    "partition",
    "metadata outage",
    "indeterminate",
    "power cut",
    "disk server hung",
    "disk slow",
    "disk fails",
    "disk full",
    "clock jump",
)
IN_A_COMMIT = ("owner killed in a commit", "owner hangs in a commit", "proxies killed in a commit")  # of pipelines


class ClusterFaults:
    """`random` draws them; `kinds`: those that are drawn from, by default some of all."""

    def __init__(self, sim: SimulatedCluster, random: SeededRandom, kinds: tuple[str, ...] = ()) -> None:
        self.sim, self.random = sim, random
        self.kinds = list(kinds) or [kind for kind in FAULTS if random.random() < 0.6] or ["crash"]
        self.lasting = Lasting(sim.loop)

    async def go_wrong(self, seconds: float) -> None:
        """Let faults happen for this time."""
        sim, end = self.sim, self.sim.loop.time() + seconds
        while sim.loop.time() < end:
            await asyncio.sleep(0.1 + self.random.random() * 1.2)
            kind = self.kinds[self.random.randrange(0, len(self.kinds))]
            lasts = 0.1 + duration(self.random)
            heal = self._begin(kind)
            if heal is not None:
                sim.coverage.sometimes(f"fault: {kind}")
                self.lasting.began(heal, lasts)

    def heal(self) -> None:
        """Everything is well again."""
        self.lasting.heal()
        self.sim.network.heal()
        self.sim.doubt = 0.0
        for clock in self.sim.clocks.values():
            clock.off_ns = 0
        for server in self.sim.farm.servers.values():
            if server.alive:
                server.heal()

    def _begin(self, kind: str) -> Heal | None:
        sim = self.sim
        names = list(sim.members)
        name = names[self.random.randrange(0, len(names))]
        member = sim.members[name]
        server = list(sim.farm.servers.values())[self.random.randrange(0, len(sim.farm.servers))]
        sim.note(f"fault: {kind} {server.name if kind in ('power cut', 'disk server hung') else name}")
        match kind:
            case "crash" if member.process.alive:
                sim.crash(name)
                return lambda: sim.begin(name) if not sim.members[name].process.alive else None
            case "hang" if member.process.alive and not member.process.hung and name not in sim.farm.servers:
                member.process.hang()
                return member.process.go_on
            case "restart" if member.up and member.process.alive and not member.process.hung:
                sim.restart(name)
                return lambda: None
            case "partition":
                return sim.network.part([name], [one for one in names if self.random.random() < 0.5])
            case "subscribe forwarder parted":
                return sim.network.part([self._of("s")], [one for one in names if one[0] == "p"])
            case "island":
                return self._island()
            case "metadata outage" if not sim.outage:
                some = names if self.random.random() < 0.5 else [one for one in names if self.random.random() < 0.5]
                sim.outage = some is names
                sim.cut_metadata(True, some)

                def back() -> None:
                    sim.outage = False
                    sim.cut_metadata(False, some)

                return back
            case "indeterminate":
                return altered(sim, "doubt", 0.3, 0.0)
            case "power cut" if server.alive:
                sim.crash(server.name)
                server.power_cut()
                return lambda: sim.begin(server.name) if not server.alive else None
            case "disk server hung" if server.alive and not server.hung:
                return altered(server, "hung", True, False)
            case "disk slow" if server.alive:
                return disk_slow(server, self.random)
            case "disk fails" | "disk full" if self._minority.alive:
                return self._disk_fault(kind)
            case "clock jump":
                return clock_jump(sim.clock_of(name), sim.clocks, self.random)
        return None

    @property
    def _minority(self) -> SimDiskServer:
        """Whose disks may lose what they have: the others are a write set without it."""
        return self.sim.farm.servers["d0"]

    def _disk_fault(self, kind: str) -> Heal:
        """A disk of the minority errs, or has no room."""
        server = self._minority
        disk = server.disks[self.random.randrange(0, len(server.disks))]
        return disk_full(server, disk) if kind == "disk full" else disk_fails(server, disk, self.random)

    def _of(self, role: str) -> str:
        names = [name for name in self.sim.members if name[0] == role and name[:2] != "pr"]
        return names[self.random.randrange(0, len(names))]

    def _island(self) -> Heal:
        """A publish forwarder and a subscribe forwarder with each other, and away from everything else."""
        sim, here = self.sim, [self._of("p"), self._of("s")]
        back = sim.network.part(here, [one for one in sim.members if one not in here])
        sim.cut_metadata(True, here)

        def heal() -> None:
            back()
            sim.cut_metadata(False, here)

        return heal

"""Faults of a whole cluster: its processes, its network, its metadata, its disks and its clocks."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable

from syncpoint.runtime.random import SeededRandom
from syncpoint.testing.simulation.disk_faults import forget
from syncpoint.testing.simulation.faults import duration
from syncpoint.testing.simulation.sim_runs import Lasting
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
FULL_BYTES = 64 * 1024


class ClusterFaults:
    """`random` draws them; `kinds`: those that are drawn from, by default some of all."""

    def __init__(self, world: SimulatedCluster, random: SeededRandom, kinds: tuple[str, ...] = ()) -> None:
        self.world, self.random = world, random
        self.kinds = list(kinds) or [kind for kind in FAULTS if random.random() < 0.6] or ["crash"]
        self.lasting = Lasting(world.loop)

    async def go_wrong(self, seconds: float) -> None:
        """Let faults happen for so long."""
        world, end = self.world, self.world.loop.time() + seconds
        while world.loop.time() < end:
            await asyncio.sleep(0.1 + self.random.random() * 1.2)
            kind = self.kinds[self.random.randrange(0, len(self.kinds))]
            lasts = 0.1 + duration(self.random)
            heal = self._begin(kind)
            if heal is not None:
                world.coverage.sometimes(f"fault: {kind}")
                self.lasting.began(heal, lasts)

    def heal(self) -> None:
        """Everything is well again."""
        self.lasting.heal()
        self.world.network.heal()
        self.world.doubt = 0.0
        for clock in self.world.clocks.values():
            clock.off_ns = 0
        for server in self.world.farm.servers.values():
            if server.alive:
                server.heal()

    def _begin(self, kind: str) -> Callable[[], None] | None:
        world = self.world
        names = list(world.members)
        name = names[self.random.randrange(0, len(names))]
        member = world.members[name]
        server = list(world.farm.servers.values())[self.random.randrange(0, len(world.farm.servers))]
        world.note(f"fault: {kind} {server.name if kind in ('power cut', 'disk server hung') else name}")
        match kind:
            case "crash" if member.process.alive:
                world.crash(name)
                return lambda: world.begin(name) if not world.members[name].process.alive else None
            case "hang" if member.process.alive and not member.process.hung and name not in world.farm.servers:
                member.process.hang()
                return member.process.go_on
            case "restart" if member.up and member.process.alive and not member.process.hung:
                world.restart(name)
                return lambda: None
            case "partition":
                return world.network.part([name], [one for one in names if self.random.random() < 0.5])
            case "subscribe forwarder parted":
                return world.network.part([self._of("s")], [one for one in names if one[0] == "p"])
            case "island":
                return self._island()
            case "metadata outage" if not world.outage:
                some = names if self.random.random() < 0.5 else [one for one in names if self.random.random() < 0.5]
                world.outage = some is names
                world.cut_metadata(True, some)

                def back() -> None:
                    world.outage = False
                    world.cut_metadata(False, some)

                return back
            case "indeterminate":
                world.doubt = 0.3
                return lambda: setattr(world, "doubt", 0.0)
            case "power cut" if server.alive:
                world.crash(server.name)
                server.power_cut()
                return lambda: world.begin(server.name) if not server.alive else None
            case "disk server hung" if server.alive and not server.hung:
                server.hung = True
                return lambda: setattr(server, "hung", False)
            case "disk slow" if server.alive:
                disk = server.disks[self.random.randrange(0, len(server.disks))]
                server.slow[disk] = 0.05 + 0.3 * self.random.random()
                return lambda: forget(server.slow, disk)
            case "disk fails" | "disk full" if self._minority.alive:
                return self._disk_fault(kind)
            case "clock jump":
                return self._clock_jump(name)
        return None

    @property
    def _minority(self) -> SimDiskServer:
        """Whose disks may lose what they have: the others are a write set without it."""
        return self.world.farm.servers["d0"]

    def _disk_fault(self, kind: str) -> Callable[[], None]:
        """A disk of the minority errs, or has no room."""
        server = self._minority
        disk = server.disks[self.random.randrange(0, len(server.disks))]
        if kind == "disk full":
            server.files.capacity[f"/{disk}"] = FULL_BYTES
            return lambda: forget(server.files.capacity, f"/{disk}")
        operations = ((), ("fdatasync",), ("pwritev",), ("pread",))[self.random.randrange(0, 4)]
        server.fail(disk, errno.EIO, operations, (None, 1)[self.random.randrange(0, 2)])
        fault = server.files.faults[-1]
        return lambda: server.files.faults.remove(fault) if fault in server.files.faults else None

    def _of(self, role: str) -> str:
        names = [name for name in self.world.members if name[0] == role and name[:2] != "pr"]
        return names[self.random.randrange(0, len(names))]

    def _island(self) -> Callable[[], None]:
        """A publish forwarder and a subscribe forwarder with each other, and away from everything else."""
        world, here = self.world, [self._of("p"), self._of("s")]
        back = world.network.part(here, [one for one in world.members if one not in here])
        world.cut_metadata(True, here)

        def heal() -> None:
            back()
            world.cut_metadata(False, here)

        return heal

    def _clock_jump(self, name: str) -> Callable[[], None]:
        """One machine's clock is set wrong, by an hour or by weeks, and right again; one at a time is far off."""
        clocks, hour_ns = self.world.clocks, 3_600 * 10**9
        far = self.random.random() < 0.5 and not any(abs(one.off_ns) > hour_ns for one in clocks.values())
        clock = self.world.clock_of(name)
        clock.off_ns = round((self.random.random() - 0.5) * 2 * hour_ns * (40 * 24 if far else 1))
        return lambda: setattr(clock, "off_ns", 0)

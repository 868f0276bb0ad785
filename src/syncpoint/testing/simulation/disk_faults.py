"""Faults of the small simulation's disks, and of the processes that serve them. Under `faults`.

Promise: what destroys (rot, wiped folders, lies, failing disks) only ever hits the disks of one minority, chosen once
per seed, so that everything promised has to survive.
"""

from __future__ import annotations

import math

from syncpoint.base.runtime.random import SeededRandom
from syncpoint.testing.simulation.healing import Heal, Lasting, altered, disk_fails, disk_full, disk_slow, forget
from syncpoint.testing.simulation.simulated_chains import SimulatedChains, servers_of
from syncpoint.testing.simulation.simulated_disks import SimDiskServer

LOOK_S = 0.25  # until it is seen again whether the others are whole


class DiskFaults:
    """One method for each kind: it begins the fault and returns what mends it; None where there is nothing to hit."""

    def __init__(self, sim: SimulatedChains, random: SeededRandom, *, beyond: bool) -> None:
        self.sim, self.beyond = sim, beyond
        shape = sim.shape
        doomed = "d0" if shape.clusters > 1 else "d00" if shape.disks > 1 else "none"  # one cluster, or one disk
        victims = [(server, disk) for server in servers_of(sim) for disk in server.disks if disk.startswith(doomed)]
        self._begin_faults(random, victims)

    def _begin_faults(self, random: SeededRandom, victims: list[tuple[SimDiskServer, str]]) -> None:
        """`victims`: the minority."""
        self.random, self.victims = random, victims
        self.over = False  # nothing goes wrong any more
        self.lasting = Lasting(self.sim.loop)
        self.sim.farm.on_death = self._died

    def _server(self) -> SimDiskServer | None:
        living = [server for server in servers_of(self.sim) if server.alive]
        return living[self.random.randrange(0, len(living))] if living else None

    def _whole(self) -> bool:
        """Whether every disk outside of the minority is there and lacks nothing: only then may others be destroyed.

        A member that is away when a log begins has no part in it; until it has joined, there is one to lose less.
        """
        if self.beyond:
            return True
        safe = {disk for server in servers_of(self.sim) for disk in server.disks} - {disk for _, disk in self.victims}
        for number in self.sim.records:
            if not self.sim.served(number):
                return False
            disks = self.sim.owners_of[number][0].host.chains[number].store.status().disks
            if any(disk.state != "ok" and disk.path.rpartition("/")[2] in safe for disk in disks):
                return False
        return True

    def _doomed(self) -> tuple[SimDiskServer, str] | None:
        return self._victim() if self._whole() else None

    def _victim(self) -> tuple[SimDiskServer, str] | None:
        living = [(server, disk) for server, disk in self.victims if server.alive]
        return living[self.random.randrange(0, len(living))] if living else None

    def _died(self, server: SimDiskServer) -> None:
        self.sim.note(f"{server.name} died in a command")
        self.sim.coverage.sometimes("a disk server dies in a command")
        self.lasting.began(self._starting(server), self.random.random())

    def _starting(self, server: SimDiskServer) -> Heal:
        return lambda: None if server.alive else server.start()

    def _disk_server_killed(self) -> Heal | None:
        server = self._server()
        if server is None:
            return None
        server.kill()
        return self._starting(server)

    def _disk_server_killed_in_a_command(self) -> Heal | None:
        server = self._server()
        if server is not None:
            server.die_within(self.random.randrange(0, 60), power=False)
        return None if server is None else lambda: None

    def _disk_server_hung(self) -> Heal | None:
        server = self._server()
        if server is None or server.hung:
            return None
        return altered(server, "hung", True, False)

    def _may_lose_power(self) -> list[SimDiskServer]:
        """Who may lose what is not synced: everybody, where all that counts is synced before it does."""
        servers = servers_of(self.sim)
        if self.sim.shape.durability != "sync":
            victims = [victim for victim, _ in self.victims] if self._whole() else []
            servers = [server for server in servers if any(server is victim for victim in victims)]
        return [server for server in servers if server.alive]

    def _power_cut(self) -> Heal | None:
        servers = self._may_lose_power()
        if not servers:
            return None
        server = servers[self.random.randrange(0, len(servers))]
        server.power_cut()
        return self._starting(server)

    def _power_cut_in_a_command(self) -> Heal | None:
        servers = self._may_lose_power() if self.sim.shape.durability == "sync" else []
        if not servers:
            return None
        servers[self.random.randrange(0, len(servers))].die_within(self.random.randrange(0, 60), power=True)
        return lambda: None

    def _power_cut_everywhere(self) -> Heal | None:
        """The whole site: all disks and all publish forwarders at once."""
        if self.sim.shape.durability != "sync":
            return None
        names = [one.name for one in self.sim.publishers if one.process.alive]
        for name in names:
            self.sim.crash(name)
        servers = [server for server in servers_of(self.sim) if server.alive]
        for server in servers:
            server.power_cut()

        def heal() -> None:
            for server in servers:
                self._starting(server)()
            for name in names:
                self._again(name)

        return heal

    def _disk_fails(self) -> Heal | None:
        found = self._victim()
        if found is None:
            return None
        return disk_fails(*found, self.random)

    def _disk_full(self) -> Heal | None:
        found = self._victim()
        return None if found is None else disk_full(*found)

    def _disk_slow(self) -> Heal | None:
        server = self._server()
        return None if server is None else disk_slow(server, self.random)

    def _disk_hung(self) -> Heal | None:
        found = self._victim()
        if found is None:
            return None
        server, disk = found
        server.slow[disk] = math.inf
        return lambda: forget(server.slow, disk)

    def _disk_lies(self) -> Heal | None:
        """Let a disk report a sync that did not happen, then cut its machine's power.

        Waits until the other disks are whole: a disk given up while this one lied counts as lost until it returns under
        its new name.
        """
        found = self._doomed()
        if found is None:
            return None
        server, disk = found
        server.files.lying.add(f"/{disk}")

        def heal() -> None:
            whole = self._whole()
            if not whole and not self.over:
                self.lasting.began(heal, LOOK_S)
                return
            server.files.lying.discard(f"/{disk}")
            if whole and server.alive:
                server.power_cut()
                server.loses(disk)
            if not server.alive:
                server.start()

        return heal

    def _disk_rots(self) -> Heal | None:
        found = self._doomed()
        if found is None:
            return None
        server, disk = found
        paths = [path for path in server.files.paths(f"/{disk}") if "/logs/" in path]
        if not paths:
            return None
        path = paths[self.random.randrange(0, len(paths))]
        size = max(1, len(server.files.content(path)))
        begin = self.random.randrange(0, size)
        for _ in range(3):
            server.files.flip(
                path, min(size - 1, begin + self.random.randrange(0, 64)), 1 << self.random.randrange(0, 8)
            )
        return lambda: None

    def _disk_wiped(self) -> Heal | None:
        """The folder is emptied while its server is down, or under its feet."""
        found = self._doomed()
        if found is None:
            return None
        server, disk = found
        if self.random.random() < 0.5:
            server.kill()
        server.files.wipe(f"/{disk}")
        server.loses(disk)
        return self._starting(server)

    def _again(self, name: str) -> None:
        if not self.sim.nodes[name].process.alive:
            self.sim.begin(type(self.sim.nodes[name]), name)

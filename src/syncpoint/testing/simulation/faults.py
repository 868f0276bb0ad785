"""Faults of the small world: what may happen to processes, to what lies between them, and to disks.

Promise: what destroys (rot, wiped folders, lies, failing disks) only ever hits the disks of one minority, chosen once
per seed, so that everything promised has to survive. Everything else hits anybody. All of it is healed at the end.
"""

from __future__ import annotations

import asyncio
import errno
import math
from collections.abc import Callable
from typing import Any

from syncpoint.runtime.random import SeededRandom
from syncpoint.testing.simulation.chains import ChainsWorld, Consuming, Publisher, servers_of
from syncpoint.testing.simulation.disks import DiskServer

FAULTS = (
    "crash", "crash of a subscribe forwarder", "hang", "takeover", "partition of processes", "partition from disks",
    "split of disks",
    "commands cut in the middle", "connections broken", "disk server killed", "disk server killed in a command",
    "disk server hung", "power cut", "power cut in a command", "power cut everywhere", "disk fails", "disk full",
    "disk slow", "disk hung", "disk lies", "disk rots", "disk wiped", "metadata outage", "clock jump", "close",
)  # fmt: skip

AWAY = (
    "partition from disks", "split of disks", "disk server killed", "disk server killed in a command",
    "disk server hung", "power cut", "power cut in a command", "power cut everywhere", "disk hung",
)  # fmt: skip
"""Disks that are away for a while. A disk that lied, and one that was away when it mattered, say "no such entry" of the
same one, which no quorum of so few survives; so lies come without these."""

SPLIT_S = 3.0


class Nemesis:
    """Lets faults happen, a choice of kinds for each seed."""

    def __init__(self, world: ChainsWorld, seed: int, kinds: tuple[str, ...] = (), *, beyond: bool = False) -> None:
        """`beyond`: destroy also what the others can not make good; the best that can come of it is a refusal."""
        self.world, self.random, self.beyond = world, SeededRandom(seed * 2), beyond
        shape = world.shape
        servers = servers_of(world)
        doomed = "d0" if shape.clusters > 1 else "d00" if shape.disks > 1 else "none"  # one cluster, or one disk
        self.victims: list[tuple[DiskServer, str]] = [
            (server, disk) for server in servers for disk in server.disks if disk.startswith(doomed)
        ]
        self.kinds = list(kinds) or [kind for kind in FAULTS if self.random.random() < 0.4] or ["crash", "takeover"]
        if "disk lies" in self.kinds and not kinds:
            self.kinds = [kind for kind in self.kinds if kind not in AWAY]
        world.farm.on_death = self._died
        self._healing: list[Callable[[], None]] = []

    async def run(self, seconds: float) -> None:
        """Let faults happen for so long, and heal them."""
        world, end = self.world, self.world.loop.time() + seconds
        while world.loop.time() < end:
            await asyncio.sleep(0.02 + self.random.random() ** 2 * 0.7)
            kind = self.kinds[self.random.randrange(0, len(self.kinds))]
            lasts = self.random.random() ** 2 * 2.5
            heal = self._begin(kind)
            if heal is None:
                continue
            world.coverage.sometimes(f"fault: {kind}")
            world.note(f"fault: {kind}, {lasts:.3f} s")
            self._healing.append(heal)
            world.loop.call_later(lasts, self._over, heal)

    def heal(self) -> None:
        """Everything is well again."""
        for heal in list(self._healing):
            self._over(heal)
        self.world.network.heal()
        self.world.network.break_chance = self.world.farm.cut_chance = 0.0
        for server in servers_of(self.world):
            server.heal()

    def _over(self, heal: Callable[[], None]) -> None:
        if heal in self._healing:
            self._healing.remove(heal)
            heal()

    def _died(self, server: DiskServer) -> None:
        self.world.note(f"{server.name} died in a command")
        self.world.coverage.sometimes("a disk server dies in a command")
        again = self._starting(server)
        self._healing.append(again)
        self.world.loop.call_later(self.random.random(), self._over, again)

    def _starting(self, server: DiskServer) -> Callable[[], None]:
        return lambda: None if server.alive else server.start()

    def _begin(self, kind: str) -> Callable[[], None] | None:
        method: Callable[[], Callable[[], None] | None] = getattr(self, "_" + kind.replace(" ", "_"))
        return method()

    def _one(self, many: list[object]) -> object | None:
        return many[self.random.randrange(0, len(many))] if many else None

    def _publisher(self) -> Publisher | None:
        living = [one for one in self.world.publishers if one.process.alive]
        return living[self.random.randrange(0, len(living))] if living else None

    def _server(self) -> DiskServer | None:
        living = [server for server in servers_of(self.world) if server.alive]
        return living[self.random.randrange(0, len(living))] if living else None

    def _whole(self) -> bool:
        """Whether every disk outside of the minority is there and lacks nothing: only then may others be destroyed.

        A member that is away when a log begins has no part in it; until it has joined, there is one to lose less.
        """
        if self.beyond:
            return True
        safe = {disk for server in servers_of(self.world) for disk in server.disks} - {disk for _, disk in self.victims}
        for number in self.world.records:
            if not self.world.served(number):
                return False
            disks = self.world.owners_of[number][0].host.chains[number].store.status().disks
            if any(disk.state != "ok" and disk.path.rpartition("/")[2] in safe for disk in disks):
                return False
        return True

    def _doomed(self) -> tuple[DiskServer, str] | None:
        return self._victim() if self._whole() else None

    def _victim(self) -> tuple[DiskServer, str] | None:
        living = [(server, disk) for server, disk in self.victims if server.alive]
        return living[self.random.randrange(0, len(living))] if living else None

    # -- processes ---------------------------------------------------------------------------------------------------

    def _crash(self) -> Callable[[], None] | None:
        found = self._publisher()
        if found is None:
            return None
        name = found.name
        self.world.crash(name)
        return lambda: self._again(name)

    def _again(self, name: str) -> None:
        if not self.world.nodes[name].process.alive:
            self.world.begin(type(self.world.nodes[name]), name)  # type: ignore[arg-type]

    def _crash_of_a_subscribe_forwarder(self) -> Callable[[], None] | None:
        living = [node for node in self.world.nodes.values() if isinstance(node, Consuming) and node.process.alive]
        if not living:
            return None
        name = living[self.random.randrange(0, len(living))].name
        self.world.crash(name)
        return lambda: self._again(name)

    def _hang(self) -> Callable[[], None] | None:
        found = self._publisher()
        if found is None or found.process.hung:
            return None
        process = found.process
        process.hang()
        return process.go_on

    def _takeover(self) -> Callable[[], None] | None:
        found = self._publisher()
        numbers = [one for one in self.world.records if not self.world.is_opening(one)]
        if found is None or found.process.hung or not numbers:
            return None
        self.world.take_over(numbers[self.random.randrange(0, len(numbers))], found)
        return lambda: None

    def _close(self) -> Callable[[], None] | None:
        found = self._publisher()
        if found is None or not found.host.chains:
            return None
        number = min(found.host.chains)
        found.process.start(found.host.close(number))
        return lambda: None

    # -- what lies between -------------------------------------------------------------------------------------------

    def _partition_of_processes(self) -> Callable[[], None] | None:
        found = self._publisher()
        if found is None:
            return None
        others = ["client", *(name for name in self.world.nodes if name != found.name)]
        self.world.network.part([found.name], [one for one in others if self.random.random() < 0.6])
        return self.world.network.heal

    def _partition_from_disks(self) -> Callable[[], None] | None:
        found = self._publisher()
        if found is None:
            return None
        servers = [server.name for server in servers_of(self.world)]
        self.world.network.part([found.name], [one for one in servers if self.random.random() < 0.5])
        return self.world.network.heal

    def _split_of_disks(self) -> Callable[[], None] | None:
        """One forwarder reaches some disks, the others the rest, and one of those takes a chain over."""
        found = self._publisher()
        numbers = [one for one in self.world.records if not self.world.is_opening(one)]
        others = [one for one in self.world.publishers if one is not found and one.process.alive]
        if found is None or not others or not numbers:
            return None
        near: list[str] = []
        far: list[str] = []
        for server in servers_of(self.world):
            (near if self.random.random() < 0.5 else far).append(server.name)
        self.world.network.part([found.name], far)
        self.world.network.part([one.name for one in others], near)
        heir = others[self.random.randrange(0, len(others))]
        number = numbers[self.random.randrange(0, len(numbers))]

        def take() -> None:
            if heir.process.alive and not heir.process.hung and not self.world.is_opening(number):
                self.world.take_over(number, heir)

        self.world.loop.call_later(0.3, take)
        # Whoever opens a chain waits for each disk it cannot reach, one after the other.
        return self._heal_later

    def _replaced_at_the_worst_time(self) -> Callable[[], None] | None:
        """While one disk is cut off, another one is wiped, and the third one and all owners die; the first comes back.

        Who knows what was acknowledged is then away. Not among `FAULTS`: the best that can come of it is a refusal.
        """
        wiped, dead, late = servers_of(self.world)[:3]
        names = [one.name for one in self.world.publishers if one.process.alive]
        if not (wiped.alive and dead.alive and late.alive and names):
            return None
        self.world.network.part(names, [late.name])

        def strike() -> None:
            self.world.network.heal()
            for server in (wiped, dead):
                if server.alive:
                    server.kill()
            for disk in wiped.disks:
                wiped.files.wipe(f"/{disk}")
            self._starting(wiped)()
            for name in names:
                if self.world.nodes[name].process.alive:
                    self.world.crash(name)
                    self._again(name)

        self.world.loop.call_later(0.4, strike)

        def heal() -> None:
            self.world.loop.call_later(SPLIT_S, self._starting(dead))

        return heal

    def _heal_later(self) -> None:
        self.world.loop.call_later(SPLIT_S, self.world.network.heal)

    def _commands_cut_in_the_middle(self) -> Callable[[], None]:
        self.world.farm.cut_chance = 0.02 + 0.1 * self.random.random()
        return lambda: setattr(self.world.farm, "cut_chance", 0.0)

    def _connections_broken(self) -> Callable[[], None]:
        self.world.network.break_chance = 0.05
        return lambda: setattr(self.world.network, "break_chance", 0.0)

    def _metadata_outage(self) -> Callable[[], None]:
        nodes = [node for node in self.world.nodes.values() if self.random.random() < 0.6]
        for node in nodes:
            node.shared.cut = True

        def heal() -> None:
            for node in nodes:
                node.shared.cut = False
                node.hear()

        return heal

    def _clock_jump(self) -> Callable[[], None]:
        clock = self.world.clock
        clock.set_time_ns(clock.time_ns() + round((self.random.random() - 0.5) * 7200e9))
        return lambda: None

    # -- disks -------------------------------------------------------------------------------------------------------

    def _disk_server_killed(self) -> Callable[[], None] | None:
        server = self._server()
        if server is None:
            return None
        server.kill()
        return self._starting(server)

    def _disk_server_killed_in_a_command(self) -> Callable[[], None] | None:
        server = self._server()
        if server is not None:
            server.die_within(self.random.randrange(0, 60), power=False)
        return None if server is None else lambda: None

    def _disk_server_hung(self) -> Callable[[], None] | None:
        server = self._server()
        if server is None or server.hung:
            return None
        server.hung = True
        return lambda: setattr(server, "hung", False)

    def _may_lose_power(self) -> list[DiskServer]:
        """Who may lose what is not synced: everybody, where all that counts is synced before it does."""
        servers = servers_of(self.world)
        if self.world.shape.durability != "sync":
            victims = [victim for victim, _ in self.victims] if self._whole() else []
            servers = [server for server in servers if any(server is victim for victim in victims)]
        return [server for server in servers if server.alive]

    def _power_cut(self) -> Callable[[], None] | None:
        servers = self._may_lose_power()
        if not servers:
            return None
        server = servers[self.random.randrange(0, len(servers))]
        server.power_cut()
        return self._starting(server)

    def _power_cut_in_a_command(self) -> Callable[[], None] | None:
        servers = self._may_lose_power() if self.world.shape.durability == "sync" else []
        if not servers:
            return None
        servers[self.random.randrange(0, len(servers))].die_within(self.random.randrange(0, 60), power=True)
        return lambda: None

    def _power_cut_everywhere(self) -> Callable[[], None] | None:
        """The whole site: all disks and all publish forwarders at once."""
        if self.world.shape.durability != "sync":
            return None
        names = [one.name for one in self.world.publishers if one.process.alive]
        for name in names:
            self.world.crash(name)
        servers = [server for server in servers_of(self.world) if server.alive]
        for server in servers:
            server.power_cut()

        def heal() -> None:
            for server in servers:
                self._starting(server)()
            for name in names:
                self._again(name)

        return heal

    def _disk_fails(self) -> Callable[[], None] | None:
        found = self._victim()
        if found is None:
            return None
        operations = ((), ("fdatasync",), ("pwritev",), ("pread",))[self.random.randrange(0, 4)]
        times = (None, 1)[self.random.randrange(0, 2)]
        server, disk = found
        server.fail(disk, errno.EIO, operations, times)
        fault = server.files.faults[-1]
        return lambda: server.files.faults.remove(fault) if fault in server.files.faults else None

    def _disk_full(self) -> Callable[[], None] | None:
        found = self._victim()
        if found is None:
            return None
        server, disk = found
        server.files.capacity[f"/{disk}"] = 64 * 1024
        return lambda: _forget(server.files.capacity, f"/{disk}")

    def _disk_slow(self) -> Callable[[], None] | None:
        server = self._server()
        if server is None:
            return None
        disk = server.disks[self.random.randrange(0, len(server.disks))]
        server.slow[disk] = 0.05 + 0.3 * self.random.random()
        return lambda: _forget(server.slow, disk)

    def _disk_hung(self) -> Callable[[], None] | None:
        found = self._victim()
        if found is None:
            return None
        server, disk = found
        server.slow[disk] = math.inf
        return lambda: _forget(server.slow, disk)

    def _disk_lies(self) -> Callable[[], None] | None:
        """It says it has synced and has not; then its machine loses power."""
        found = self._doomed()
        if found is None:
            return None
        server, disk = found
        server.files.lying.add(f"/{disk}")

        def heal() -> None:
            server.files.lying.discard(f"/{disk}")
            if server.alive:
                server.power_cut()
            server.start()

        return heal

    def _disk_rots(self) -> Callable[[], None] | None:
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

    def _disk_wiped(self) -> Callable[[], None] | None:
        """The folder is emptied while its server is down, or under its feet."""
        found = self._doomed()
        if found is None:
            return None
        server, disk = found
        if self.random.random() < 0.5:
            server.kill()
        server.files.wipe(f"/{disk}")
        return self._starting(server)


def _forget(among: dict[str, Any], name: str) -> None:
    among.pop(name, None)

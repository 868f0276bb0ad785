"""Faults of the small simulation's processes, of what lies between them, and of their clocks. Under `faults`."""

from __future__ import annotations

from syncpoint.testing.simulation.consuming import Consuming
from syncpoint.testing.simulation.disk_faults import DiskFaults
from syncpoint.testing.simulation.healing import Heal, altered, clock_jump
from syncpoint.testing.simulation.nodes import SimNode, SimPublisher
from syncpoint.testing.simulation.simulated_chains import servers_of

SPLIT_S = 3.0
OPENING_COMMANDS, OPENING_WRITES = 250, 60  # about what an opening takes
_DAY_NS = 24 * 3_600 * 10**9


class ProcessFaults(DiskFaults):
    """One method for each kind, as in `disk_faults`."""

    def _publisher(self) -> SimPublisher | None:
        living = [one for one in self.sim.publishers if one.process.alive]
        return living[self.random.randrange(0, len(living))] if living else None

    # -- processes ---------------------------------------------------------------------------------------------------

    def _crash(self) -> Heal | None:
        found = self._publisher()
        if found is None:
            return None
        name = found.name
        self.sim.crash(name)
        return lambda: self._again(name)

    def _dies_behind_its_disks(self) -> Heal | None:
        """For a moment nothing that a publish forwarder decides reaches a disk; then it dies with that."""
        found = self._publisher()
        if found is None or found.process.hung or not found.host.chains:
            return None
        name = found.name
        heals = [self.sim.network.part([name], [server.name for server in servers_of(self.sim)])]
        self.sim.held_up = True

        def die() -> None:
            self.sim.held_up = False
            if heals and self.sim.nodes[name] is found and found.process.alive:
                self.sim.crash(name)
                heals.append(lambda: self._again(name))

        self.sim.loop.call_later(0.05 + 0.7 * self.random.random(), die)

        def heal() -> None:
            while heals:
                heals.pop()()

        return heal

    def _crash_of_a_subscribe_forwarder(self) -> Heal | None:
        found = self._subscriber()
        if found is None:
            return None
        name = found.name
        self.sim.crash(name)
        return lambda: self._again(name)

    def _hang(self) -> Heal | None:
        found = self._publisher()
        if found is None or found.process.hung:
            return None
        process = found.process
        process.hang()
        return process.go_on

    def _takeover(self) -> Heal | None:
        found = self._publisher()
        numbers = [one for one in self.sim.records if not self.sim.is_opening(one)]
        if found is None or found.process.hung or not numbers:
            return None
        self.sim.take_over(numbers[self.random.randrange(0, len(numbers))], found)
        return lambda: None

    def _close(self) -> Heal | None:
        found = self._publisher()
        if found is None or not found.host.chains:
            return None
        number = min(found.host.chains)
        found.process.start(found.host.close(number))
        return lambda: None

    # -- what lies between -------------------------------------------------------------------------------------------

    def _partition_of_processes(self) -> Heal | None:
        found = self._publisher()
        if found is None:
            return None
        others = ["client", *(name for name in self.sim.nodes if name != found.name)]
        return self.sim.network.part([found.name], [one for one in others if self.random.random() < 0.6])

    def _partition_from_disks(self) -> Heal | None:
        found = self._publisher()
        if found is None:
            return None
        servers = [server.name for server in servers_of(self.sim)]
        return self.sim.network.part([found.name], [one for one in servers if self.random.random() < 0.5])

    def _split_of_disks(self) -> Heal | None:
        """One forwarder reaches some disks, the others the rest, and one of those takes a chain over."""
        found = self._publisher()
        numbers = [one for one in self.sim.records if not self.sim.is_opening(one)]
        others = [one for one in self.sim.publishers if one is not found and one.process.alive]
        if found is None or not others or not numbers:
            return None
        near: list[str] = []
        far: list[str] = []
        for server in servers_of(self.sim):
            (near if self.random.random() < 0.5 else far).append(server.name)
        one_side = self.sim.network.part([found.name], far)
        other_side = self.sim.network.part([one.name for one in others], near)
        heir = others[self.random.randrange(0, len(others))]
        number = numbers[self.random.randrange(0, len(numbers))]

        def take() -> None:
            if heir.process.alive and not heir.process.hung and not self.sim.is_opening(number):
                self.sim.take_over(number, heir)

        self.sim.loop.call_later(0.3, take)

        def heal() -> None:
            one_side()
            other_side()

        # The opening of a chain waits for each disk it cannot reach, one after the other.
        return lambda: self._later(heal)

    def _disks_lost_in_an_opening(self) -> Heal | None:
        """Somebody takes a chain over, and in the middle of it disks hang, lose their power or are out of reach."""
        sim = self.sim
        found = self._publisher()
        numbers = [one for one in sim.records if not sim.is_opening(one)]
        if found is None or found.process.hung or not numbers:
            return None
        sim.take_over(numbers[self.random.randrange(0, len(numbers))], found)
        kind, heals, over = self.random.randrange(0, 3), list[Heal](), list[bool]()
        chosen = [server for server in servers_of(sim) if self.random.random() < 0.7]
        writes = self.random.random() < 0.6
        commands = self.random.randrange(0, OPENING_WRITES if writes else OPENING_COMMANDS)

        def strike() -> None:
            if over:
                return
            if kind == 0:
                heals.append(sim.network.part([found.name], [server.name for server in chosen]))
                return
            lossy = self._may_lose_power()
            for server in chosen:
                if kind == 1 and server.alive and not server.hung:
                    server.hung = True
                    heals.append(lambda server=server: setattr(server, "hung", False))  # type: ignore[misc]
                elif kind == 2 and server in lossy:
                    server.power_cut()
                    heals.append(self._starting(server))

        def heal() -> None:
            over.append(True)
            for one in heals:
                one()

        sim.farm.after(found.process, commands, strike, writes=writes)
        return heal

    def _replaced_at_the_worst_time(self) -> Heal | None:
        """While one disk is cut off, another one is wiped, and the third one and all owners die; the first comes back.

        Who knows what was acknowledged is then away. Not among `FAULTS`: the best that can come of it is a refusal.
        """
        wiped, dead, late = servers_of(self.sim)[:3]
        names = [one.name for one in self.sim.publishers if one.process.alive]
        if not (wiped.alive and dead.alive and late.alive and names):
            return None
        back = self.sim.network.part(names, [late.name])

        def strike() -> None:
            back()
            for server in (wiped, dead):
                if server.alive:
                    server.kill()
            for disk in wiped.disks:
                wiped.files.wipe(f"/{disk}")
                wiped.loses(disk)
            self._starting(wiped)()
            for name in names:
                if self.sim.nodes[name].process.alive:
                    self.sim.crash(name)
                    self._again(name)

        self.sim.loop.call_later(0.4, strike)

        def heal() -> None:
            self.sim.loop.call_later(SPLIT_S, self._starting(dead))

        return heal

    def _later(self, heal: Heal) -> None:
        self.sim.loop.call_later(SPLIT_S, heal)

    def _commands_cut_in_the_middle(self) -> Heal:
        return altered(self.sim.farm, "cut_chance", 0.02 + 0.1 * self.random.random(), 0.0)

    def _farewells_lost(self) -> Heal:
        """The message that an owner is done with a disk is often lost."""
        return altered(self.sim.farm, "farewell_chance", 0.5, 0.0)

    def _connections_broken(self) -> Heal:
        return altered(self.sim.network, "break_chance", 0.05, 0.0)

    def _metadata_outage(self) -> Heal:
        return self._cut([node for node in self.sim.nodes.values() if self.random.random() < 0.6])

    def _cut(self, nodes: list[SimNode]) -> Heal:
        """From the metadata. A process that is cut off twice at a time is back after both."""
        for node in nodes:
            node.cut(1)

        def heal() -> None:
            for node in nodes:
                node.cut(-1)
                node.follow_soon()

        return heal

    def _metadata_in_doubt(self) -> Heal:
        """Nobody knows what becomes of transactions: some are applied, some are not, and some are later."""
        return altered(self.sim, "doubt", 0.8 if self.sim.shape.emptying else 0.3, 0.0)

    # -- subscribe forwarders ----------------------------------------------------------------------------------------

    def _subscriber(self) -> Consuming | None:
        living = [node for node in self.sim.nodes.values() if isinstance(node, Consuming) and node.process.alive]
        return living[self.random.randrange(0, len(living))] if living else None

    def _hang_of_a_subscribe_forwarder(self) -> Heal | None:
        found = self._subscriber()
        if found is None or found.process.hung:
            return None
        found.process.hang()
        return found.process.go_on

    def _subscribe_forwarder_cut_from_metadata(self) -> Heal | None:
        found = self._subscriber()
        return None if found is None else self._cut([found])

    def _subscribe_forwarder_parted(self) -> Heal | None:
        found = self._subscriber()
        names = [one.name for one in self.sim.publishers if self.random.random() < 0.7]
        return None if found is None or not names else self.sim.network.part([found.name], names)

    def _subscribe_forwarder_falls_silent(self) -> Heal | None:
        """At first what it says still arrives, and it receives nothing: acknowledgements are recorded, and nobody is
        notified. Then it is parted both ways.
        """
        found, network = self._subscriber(), self.sim.network
        names = [one.name for one in self.sim.publishers]
        if found is None or any(network.parted(found.name, name) for name in names):
            return None
        heals = [network.deafen(found.name, names)]

        def part() -> None:
            if heals:
                heals.append(network.part([found.name], names))

        self.sim.loop.call_later(0.3 + 2.0 * self.random.random(), part)

        def heal() -> None:
            while heals:
                heals.pop()()

        return heal

    def _island(self) -> Heal | None:
        """A publish forwarder and a subscribe forwarder with each other, and away from everything else."""
        found, near = self._publisher(), self._subscriber()
        return None if found is None or near is None else self._part_island(found, near)

    def _part_island(self, found: SimPublisher, near: Consuming) -> Heal:
        here = (found.name, near.name)
        far = [*(name for name in self.sim.nodes if name not in here), "client"]
        far += [server.name for server in servers_of(self.sim)]
        back, again = self.sim.network.part(here, far), self._cut([found, near])

        def heal() -> None:
            back()
            again()

        return heal

    def _steps_of_a_subscribe_forwarder_fail(self) -> Heal | None:
        """As when memory runs out: some steps that it takes by the clock end in an exception."""
        found = self._subscriber()
        if found is None or found.failing:
            return None
        return altered(found, "failing", True, False)

    # -- a process by itself -----------------------------------------------------------------------------------------

    def _island_left_behind(self) -> Heal | None:
        """An island whose publish forwarder owns something, which somebody outside of it takes over."""
        sim, numbers = self.sim, [one for one in self.sim.records if self.sim.served(one)]
        number = numbers[self.random.randrange(0, len(numbers))] if numbers else 0
        heirs = [one for one in sim.publishers if one.process.alive and not one.process.hung]
        heirs = [one for one in heirs if numbers and one is not sim.owners_of[number][0]]
        subscribers = [node for node in sim.nodes.values() if isinstance(node, Consuming) and node.process.alive]
        if not heirs or not subscribers or any(node.shared.cut for node in sim.nodes.values()):
            return None
        heir = heirs[self.random.randrange(0, len(heirs))]
        near = subscribers[self.random.randrange(0, len(subscribers))]
        heal = self._part_island(sim.owners_of[number][0], near)

        def take() -> None:
            if heir.process.alive and not heir.process.hung and not sim.is_opening(number):
                sim.take_over(number, heir)

        sim.loop.call_later(0.3, take)
        return heal

    def _clock_jump(self) -> Heal | None:
        names = sorted(self.sim.nodes)
        name = names[self.random.randrange(0, len(names))]
        clock = self.sim.clock_of(name)
        heal = clock_jump(clock, self.sim.clocks, self.random)
        self.sim.note(f"the clock of {name} is off by {clock.off_ns / _DAY_NS:.2f} days")
        return heal

    def _maintainers_starved(self) -> Heal | None:
        """The threads that write down what was deleted, and look after the disks, do not get their turn."""
        found = self._publisher()
        if found is None or found.process.starved:
            return None
        return altered(found.process, "starved", "-keep-", "")

    def _accident(self) -> Heal | None:
        """Some of the steps that a process takes by itself fail in their middle."""
        nodes = [node for node in self.sim.nodes.values() if node.process.alive]
        if not nodes:
            return None
        accidents = nodes[self.random.randrange(0, len(nodes))].accidents
        return altered(accidents, "armed", 1 + self.random.randrange(0, 4), 0)

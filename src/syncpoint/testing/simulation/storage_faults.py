"""Faults of the small simulation that hit storage at moments of its own: when a disk is given up, or a log is opened.

Place: between `faults` and `process_faults`. These kinds are not drawn by lives at random; bugs that only such a moment
shows are looked for by naming them (see `planted_bugs`).
"""

from __future__ import annotations

import contextvars
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from syncpoint.testing.simulation.healing import Heal
from syncpoint.testing.simulation.loop import SimProcess
from syncpoint.testing.simulation.process_faults import ProcessFaults
from syncpoint.testing.simulation.simulated_chains import servers_of
from syncpoint.testing.simulation.simulated_disks import SimDiskServer

LONG_S = {"back when given up": 20.0, "storage away": 30.0}
"""How long kinds last at least: longer than anybody waits before giving up."""
BACK_S = 0.3
OPENING_COMMANDS_DISK = 70  # about what an opening takes on each disk
LEASE_S = 2.0  # until nobody knows any more where the disks of a dead server were
SERVED_S = 3.0  # at most, from an owner's death until another one serves its chains
DEATHS = 3


class StorageFaults(ProcessFaults):
    """One method for each kind, as in `disk_faults`."""

    def _soon(self, seconds: float, act: Callable[[], object]) -> None:
        """Do something as the simulation, whoever is just running: it may be about to die."""
        self.sim.loop.call_later(seconds, act, context=contextvars.Context())

    def _back_when_given_up(self) -> Heal | None:
        """Servers of disks hang, until somebody who has waited for them gives a disk up: then all are back."""
        chosen = [one for one in servers_of(self.sim) if one.alive and not one.hung and self.random.random() < 0.8]
        if not chosen:
            return None
        for server in chosen:
            server.hung = True
        soon = self.random.random() ** 2 * BACK_S

        def back() -> None:
            for server in chosen:
                server.hung = False

        def given_up(process: SimProcess, server: SimDiskServer) -> None:
            if server in chosen:
                self.sim.farm.on_given_up.remove(given_up)
                self._soon(soon, back)

        self.sim.farm.on_given_up.append(given_up)

        def heal() -> None:
            if given_up in self.sim.farm.on_given_up:
                self.sim.farm.on_given_up.remove(given_up)
            back()

        return heal

    def _storage_away(self) -> Heal | None:
        """All disks of a cluster, or one disk where there is one cluster, are away for longer than their leases, and
        owners of chains die one after the other: others serve what these had.
        """
        sim = self.sim
        clusters = sorted({place.cluster for place in sim.records[1].places})
        away = servers_of(sim)
        if len(clusters) > 1:
            chosen = clusters[self.random.randrange(0, len(clusters))]
            names = {place.process for place in sim.records[1].places if place.cluster == chosen}
        else:
            names = {away[self.random.randrange(0, len(away))].name}
        away = [one for one in away if one.name in names]
        if sim.lapsed or not all(one.alive for one in servers_of(sim)):
            return None
        for server in away:
            server.kill()
        place = next(slot for slot, one in enumerate(sim.records[1].places) if one.process in names)
        sim.coverage.sometimes(f"storage is away from place {place} of a chain's list on")
        healed: list[bool] = []

        def lapse() -> None:
            if not healed:
                sim.lapsed |= names
                sim.note(f"nobody knows any more where {', '.join(sorted(names))} were")

        def die() -> None:
            owners = {owner.name for owner, _ in sim.owners_of.values() if owner.process.alive}
            for name in sorted(owners) if not healed else ():
                sim.crash(name)
                self._soon(SERVED_S / 2, partial(self._again, name))

        def look() -> None:
            lacking = [number for number in sim.records if not sim.served(number)]
            if not healed:
                sim.coverage.sometimes("a chain is taken over while storage is away", not lacking)
                what = f"{lacking} without {', '.join(sorted(names))}: {sim.refusals}"
                sim.coverage.always("a chain is served while a majority lives", not lacking, what)

        self._soon(LEASE_S, lapse)
        for number in range(DEATHS):
            self._soon(LEASE_S + 0.5 + number * (SERVED_S + 0.5), die)
            self._soon(LEASE_S + 0.5 + number * (SERVED_S + 0.5) + SERVED_S, look)

        def heal() -> None:
            healed.append(True)
            sim.lapsed -= names
            for server in away:
                self._starting(server)()

        return heal

    def burn_a_rack(self) -> None:
        """All machines in the rack of all clusters but the last one, at once, and for good. The operator accepts the
        loss, as those that are left cannot know alone that there is none.
        """
        sim = self.sim
        names = [one.name for one in sim.publishers if one.process.alive]
        for name in names:
            sim.crash(name)
        last = f"c{sim.shape.clusters - 1}"
        burnt = {place.process for place in sim.records[1].places if place.cluster != last}
        for server in servers_of(sim):
            if server.name in burnt:
                server.kill()
                for disk in server.disks:
                    server.files.wipe(f"/{disk}")
                server.start()
        sim.settings = replace(sim.settings, accept_loss=True)
        for name in names:
            self._again(name)
        sim.note("a rack has burnt down")

    def _power_lost_in_an_opening(self) -> Heal | None:
        """Servers of disks and the owner die when something is written and not synced; while another one opens the
        chain, and has perhaps seen it, their machines lose power, and are back at once.
        """
        sim = self.sim
        found = self._publisher()
        lossy = [one for one in self._may_lose_power() if self.random.random() < 0.8]
        numbers = [one for one in sim.records if not sim.is_opening(one)]
        if found is None or not lossy or not numbers or sim.shape.durability != "sync":
            return None
        number = numbers[self.random.randrange(0, len(numbers))]
        owner = sim.owners_of[number][0].name if number in sim.owners_of else found.name
        waits_s, away_s, restart_s = (self.random.random() ** 2 * one for one in (0.6, 0.8, 0.3))
        commands = self.random.randrange(0, OPENING_COMMANDS_DISK * len(sim.records[number].places))

        def cut() -> None:
            for server in lossy:
                if server.alive:
                    server.power_cut()
                self._soon(away_s, self._starting(server))

        def take() -> None:
            heir = self._publisher()
            if heir is not None and not heir.process.hung and not sim.is_opening(number):
                sim.farm.after(heir.process, commands, cut)
                sim.take_over(number, heir)

        def strike() -> None:
            if sim.nodes[owner].process.alive:
                sim.crash(owner)
                self._soon(restart_s, lambda: self._again(owner))
            for server in lossy:
                self._soon(restart_s, self._starting(server))
            self._soon(restart_s + waits_s, take)

        for server in lossy:
            server.die_before_sync(lambda: self._soon(0.0, strike))

        def heal() -> None:
            for server in lossy:
                self._starting(server)()

        return heal

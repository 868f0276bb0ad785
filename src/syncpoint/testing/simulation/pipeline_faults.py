"""Faults of a node that serves pipelines, and of its disks. Beside `faults`, which has those of the
small simulation.
"""

from __future__ import annotations

import contextvars
import errno
from collections.abc import Callable
from typing import Any, cast

from syncpoint.base.runtime.random import Random, SeededRandom
from syncpoint.testing.simulation.disk_faults import DiskFaults
from syncpoint.testing.simulation.faults import duration
from syncpoint.testing.simulation.healing import Heal, altered
from syncpoint.testing.simulation.simulated_disks import SimDiskServer
from syncpoint.testing.simulation.simulated_node import SimulatedNode

PIPELINE_FAULTS = (
    "crash", "crash in a commit", "power cut", "power cut in a command", "stop", "hang", "connections broken",
    "accident", "disk fails", "disk fails in a commit", "disk full", "disk slow", "disk hung", "disk rots",
)  # fmt: skip


class PipelineFaults(DiskFaults):
    """One method for each kind, as in `disk_faults`. With one disk nothing destroys: what it loses nobody else has."""

    def __init__(self, sim: SimulatedNode, seed: int, kinds: tuple[str, ...] = ()) -> None:
        self._node = sim
        self.sim = cast(Any, sim)
        self._begin_faults(SeededRandom(seed * 2), [(sim.disks, "d0")])
        self.pause_s = 0.9  # between two faults, at most
        self.kinds = list(kinds) or [kind for kind in PIPELINE_FAULTS if self.random.random() < 0.4] or ["crash"]

    def strike(self, random: Random) -> None:
        """Begin one of the kinds; it ends by itself after three seconds at most."""
        kind = self.kinds[random.randrange(0, len(self.kinds))]
        lasts = min(3.0, duration(random))
        heal = self.begin(kind)
        if heal is not None:
            self.sim.coverage.sometimes(f"fault: {kind}")
            self.sim.note(f"fault: {kind}, {lasts:.3f} s")
            self.lasting.began(heal, lasts)

    def begin(self, kind: str) -> Heal | None:
        """Let one happen; returns what mends it, None where there is nothing to hit."""
        method: Callable[[], Heal | None] = getattr(self, "_" + kind.replace(" ", "_"))
        return method()

    def heal(self) -> None:
        """Everything is well again."""
        self.lasting.heal()
        sim = self._node
        sim.network.heal()
        sim.network.break_chance = 0.0
        sim.life.accidents.armed = 0
        sim.on_commit = None
        sim.disks.heal()
        sim.again()

    def _server(self) -> SimDiskServer | None:
        return self._node.disks if self._node.disks.alive else None

    def _whole(self) -> bool:
        sim = self._node
        if not sim.serving or sim.shape.disks == 1:
            return False
        disks = sim.life.node.log.store.status().disks
        return all(disk.state == "ok" for disk in disks)

    def _starting(self, server: SimDiskServer) -> Heal:
        """The machine is there again, and the node on it."""

        def start() -> None:
            if not server.alive:
                server.start()
            self._node.again()

        return start

    def _died(self, server: SimDiskServer) -> None:
        # Not here: this may run on a thread of the process that dies.
        self._node.loop.call_soon(self._node.crash, context=contextvars.Context())
        super()._died(server)

    def _crash(self) -> Heal | None:
        if not self._node.life.process.alive:
            return None
        self._node.crash()
        return self._node.again

    def _crash_in_a_commit(self) -> Heal | None:
        """Some calls to the disk after the next commit was asked for."""
        sim, calls, power = self._node, self.random.randrange(0, 30), self.random.random() < 0.5

        def strike() -> None:
            sim.on_commit = None
            if sim.disks.alive:
                sim.disks.die_within(calls, power=power)

        return altered(sim, "on_commit", strike, None)

    def _disk_fails_in_a_commit(self) -> Heal | None:
        """All of them refuse to write when the next commit is asked for."""
        sim = self._node
        found = list[Any]()

        def strike() -> None:
            sim.on_commit = None
            for disk in sim.disks.disks:
                sim.disks.fail(disk, errno.EIO, ("pwritev", "fdatasync"))
                found.append(sim.disks.files.faults[-1])

        def heal() -> None:
            sim.on_commit = None
            for fault in found:
                if fault in sim.disks.files.faults:
                    sim.disks.files.faults.remove(fault)

        sim.on_commit = strike
        return heal

    def _power_cut(self) -> Heal | None:
        server = self._server()
        if server is None:
            return None
        self._node.crash()
        server.power_cut()
        return self._starting(server)

    def _power_cut_in_a_command(self) -> Heal | None:
        server = self._server()
        if server is None:
            return None
        server.die_within(self.random.randrange(0, 60), power=True)
        return lambda: None

    def _stop(self) -> Heal | None:
        if not self._node.serving or self._node.life.process.hung:
            return None
        self._node.loop.create_task(self._node.stop())
        return self._node.again

    def _hang(self) -> Heal | None:
        process = self._node.life.process
        if not process.alive or process.hung:
            return None
        process.hang()
        return process.go_on

    def _accident(self) -> Heal | None:
        return altered(self._node.life.accidents, "armed", 1 + self.random.randrange(0, 4), 0)

    def _connections_broken(self) -> Heal:
        return altered(self._node.network, "break_chance", 0.03, 0.0)

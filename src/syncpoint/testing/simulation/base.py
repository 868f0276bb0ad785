"""What every simulation stands on: time, chance, a network, disks, and a record of all that happens.

Place: under `simulated_chains` (the small simulation) and `simulated_cluster` (whole clusters).
Promise: one seed is one run; `note` is its trace, and `digest` distinguishes two traces.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

from syncpoint.base.runtime.clock import ManualClock
from syncpoint.base.runtime.random import SeededRandom
from syncpoint.testing.rigs.history import History, MessageIdentity
from syncpoint.testing.simulation.coverage import Coverage
from syncpoint.testing.simulation.loop import ProcessLoop, SimProcess
from syncpoint.testing.simulation.sim_clocks import DRIFT_MAX, MachineClock
from syncpoint.testing.simulation.sim_network import SimNetwork
from syncpoint.testing.simulation.sim_threads import SimThreads
from syncpoint.testing.simulation.simulated_disks import DiskFarm

Trace = Callable[[str], None]


class Moments:
    """When what the history reports in stamps has happened, in seconds of the simulation."""

    def __init__(self) -> None:
        self.published: dict[MessageIdentity, float] = {}  # confirmed
        self.delivered: dict[
            tuple[str, MessageIdentity | None], float
        ] = {}  # (subscription, message): for the first time
        self.last_delivered: dict[tuple[str, MessageIdentity | None], float] = {}
        self.fleeting: dict[MessageIdentity, tuple[float, float]] = {}  # when it was sent, and how long it lives
        self.healed = 0.0  # from here on nothing is broken


class Simulation:
    """Base of all simulations. `trace(text)` is called for every event."""

    def __init__(self, loop: ProcessLoop, clock: ManualClock, seed: int, trace: Trace | None) -> None:
        self.loop, self.clock, self._trace = loop, clock, trace
        self.random = SeededRandom(seed * 2 + 1)
        self.begun_at = clock.monotonic()
        self.digest = hashlib.blake2b(digest_size=8)
        self.coverage, self.history, self.moments = Coverage(), History(), Moments()
        self.network = SimNetwork(self.random)
        self.farm = DiskFarm(self.random, clock, self.network.parted)
        self.sim_threads = SimThreads(loop)
        self.clocks: dict[str, MachineClock] = {}
        self._drifts = SeededRandom(seed * 7 + 3)
        self.client = SimProcess(loop, "client")

    def join(self, other: Simulation) -> None:
        """Go on as a part of another one: with its clients, in its network, its history and its trace."""
        self.begun_at, self.digest, self.client = other.begun_at, other.digest, other.client
        self.coverage, self.history, self.moments = other.coverage, other.history, other.moments
        self.network, self.sim_threads, self.farm.parted = other.network, other.sim_threads, other.network.parted

    @property
    def now(self) -> float:
        """Seconds since the simulation began."""
        return self.clock.monotonic() - self.begun_at

    def clock_of(self, name: str) -> MachineClock:
        """The wall clock of the machine that a process of this name runs on."""
        found = self.clocks.get(name)
        if found is None:
            drift = (self._drifts.random() - 0.5) * 2 * DRIFT_MAX
            found = self.clocks[name] = MachineClock(self.clock, drift)
        return found

    def note(self, text: str) -> None:
        """Something happened: part of the trace, by which two runs are compared."""
        line = f"{self.now:10.6f} {text}"
        self.digest.update(line.encode())
        if self._trace is not None:
            self._trace(line)

    def published(self, identity: MessageIdentity, message_id: str) -> None:
        """A publish was confirmed."""
        self.moments.published[identity] = self.now
        self.note(f"{identity.client}: {identity.number} published as {message_id}")

    def received(self, subscription: str, receiver: str, message: Any) -> MessageIdentity | None:
        """A client was handed a PubsubMessage; which publish it came from."""
        found = self.history.delivered(subscription, receiver, message.message_id, message.data, message.ordering_key)
        self.moments.delivered.setdefault((subscription, found.identity), self.now)
        self.moments.last_delivered[subscription, found.identity] = self.now
        self.note(f"{receiver}: {subscription} {found.identity} as {message.message_id}")
        return found.identity

    async def close(self) -> None:
        """End everything that is not a process of the product."""
        self.client.crash()
        self.sim_threads.close()

"""The publish forwarder's role: chains that are opened, served and handed over, and everything others ask of them.

Place: the same on a node and in processes of a cluster. Which chains there are, and whom these know beside themselves,
is handed in: `solo.own_chain` has the one on the disks of a node, `cluster.claimed_chains` those claimed in the
metadata.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

from syncpoint.broker.publish.chain.chain import ChainContext
from syncpoint.broker.publish.chain.host import ChainHost
from syncpoint.broker.publish.chain.service import ChainsService
from syncpoint.node.own_load import DiskLooks, ObservedDisk
from syncpoint.node.process import ProcessContext, Role
from syncpoint.node.process_metrics import Measured
from syncpoint.wire.transport.calls import Methods


class ChainsHere(Role, ABC):
    """Which chains a process has: a part of its role, whose `start` opens those that nobody else could have. `host`: is
    there by then.
    """

    host: ChainHost

    @abstractmethod
    async def context(self) -> ChainContext:
        """What every chain here is given."""


class PublishRole(Role):
    """Run a publish forwarder."""

    def __init__(self, context: ProcessContext, chains: ChainsHere) -> None:
        self._context, self.chains = context, chains
        self._disk_looks = DiskLooks()

    async def start(self) -> None:
        """Make the host, and open what nobody else could have. Raises `SyncpointError` and what storage raises."""
        self.host = self.chains.host = ChainHost(await self.chains.context())
        self._context.recording.recorder.on_added = self.host.record_found
        await self.chains.start()

    def methods(self) -> Methods:
        return {**ChainsService(self.host).methods(), **self.chains.methods()}

    async def on_joined(self) -> None:
        """Do what the clock asks for, and own chains from now on."""
        self.host.start()
        await self.chains.on_joined()

    async def drain(self) -> None:
        """Hand over every chain that others can have, sealed."""
        await self.chains.drain()

    async def stop(self) -> None:
        """Seal what is left, where that is possible."""
        await self.host.stop()
        await self.chains.stop()

    def measure(self, found: Measured) -> None:
        found.host, found.recorder = self.host, self._context.recording.recorder
        self.chains.measure(found)

    def status(self) -> dict[str, Any]:
        return self.host.status()

    def load(self, seconds: float) -> dict[str, Any]:
        topics = self.host.take_load()
        loads = {str(one): [count / seconds, nbytes / seconds] for one, (count, nbytes) in topics.items()}
        return {"topics": loads, **self._disk_looks.take(self._observed())}

    def _observed(self) -> Iterator[ObservedDisk]:
        """The disks of all chains that are open here."""
        for number, chain in self.host.chains.items():
            counts, states = chain.store.disk_counts, chain.store.status().disks
            for slot, (place, one, disk) in enumerate(zip(chain.record.places, counts, states, strict=False)):
                key = (number, chain.epoch, slot)
                yield ObservedDisk(key, place.process, one.sync, disk.state in ("away", "failed"))

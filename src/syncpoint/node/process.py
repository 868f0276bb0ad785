"""One process, put together from its roles: a node has all of them, a process of a cluster those that its file says.

Place: `solo.node` and `cluster.process` say what the roles have in common, and how others are met. The roles of
forwarders are the same everywhere (`publish_role`, `subscribe_role`).
Order of start: what is known already, the roles' parts, what is measured, others (from now on they may call), and last
what needs others: chains that are owned, clients. Order of stop: the other way round, so that whoever could still call
has been asked not to.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from syncpoint.base.model.flow import FlowLimits
from syncpoint.base.runtime.trusted import TrustedClock
from syncpoint.broker.recording.recorder_driver import RecorderDriver
from syncpoint.node.client_port import ServingProcess
from syncpoint.node.process_metrics import Measured, ProcessMetrics
from syncpoint.watch.metrics.kept_text import MetricsText
from syncpoint.wire.transport.calls import Methods


class Role:
    """One thing a process does, and what others see of it. `disk_address`: where it serves disks, if it does."""

    disk_address = ""

    async def start(self) -> None:
        """Make the parts; others cannot call yet."""

    async def on_joined(self) -> None:
        """Others know of this process now."""

    async def drain(self) -> None:
        """No new work; listeners drain next."""

    async def stop(self) -> None:
        """Let go of everything."""

    def methods(self) -> Methods:
        """What other processes may call."""
        return {}

    def measure(self, found: Measured) -> None:
        """Add what is measured of it, once it is started."""

    def status(self) -> dict[str, Any]:
        """For operators."""
        return {}

    def load(self, seconds: float) -> dict[str, Any]:
        """For routers: what was carried in the last so many seconds, as rates."""
        return {}


class ProcessContext(ServingProcess, Protocol):
    """What the roles of a process have in common. `trusted`: a clock that a single wrong reading does not move;
    `limits`: on what is underway, as they are stored now.
    """

    metrics: MetricsText
    recording: RecorderDriver
    trusted: TrustedClock
    limits: FlowLimits

    async def join(self) -> None:
        """Read what is known already."""
        ...

    async def close(self) -> None:
        """Let go of everything."""
        ...


class Process:
    """A process that is started, and stopped."""

    def __init__(self, context: ProcessContext, roles: Mapping[str, Role]) -> None:
        self._context, self.roles = context, dict(roles)
        self.metrics: ProcessMetrics
        self._started = False

    async def start(self) -> None:
        """Return when others, and clients, can call. Raises `SyncpointError`, the metadata's errors, and `OSError`."""
        await self._context.join()
        for role in self.roles.values():
            await role.start()
        self.metrics = self.measured()
        self._context.metrics = self.metrics.text
        await self.meet()
        for role in self.roles.values():
            await role.on_joined()
        self._context.recording.start()
        await self.metrics.start()
        await self.watch()
        self._started = True
        self._context.environment.freeze_memory()

    async def stop(self) -> None:
        """Hand over, drain, close."""
        if self._started:
            await self.unwatch()
            await self.metrics.stop()
        for role in reversed(list(self.roles.values())):
            await role.drain()
        await self._context.recording.stop()
        await self.part()
        for role in reversed(list(self.roles.values())):
            await role.stop()
        self._context.environment.apart.close()
        await self._context.close()

    def collect(self) -> Measured:
        """What its roles have that is measured."""
        found = Measured(self._context.shared.catalog)
        for role in self.roles.values():
            role.measure(found)
        return found

    def measured(self) -> ProcessMetrics:
        """How that is shown."""
        raise NotImplementedError

    async def meet(self) -> None:
        """Become known to others, where there are any."""

    async def watch(self) -> None:
        """Begin to watch over what there is, if it is this process that does."""

    async def unwatch(self) -> None:
        """Look no more."""

    async def part(self) -> None:
        """Have others look for this process no more, and answer them no more."""

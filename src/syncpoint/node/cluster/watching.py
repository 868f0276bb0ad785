"""The process that watches over a cluster, or over workers; and how the others ask it.

Place: over `node.process_monitor`, used by `process`. Which process it is says `monitor` in cluster.yaml; of workers it
is the first. Its roles do not matter: it reads the metrics of all others by the calls that processes have for each
other.
Promise: a process that is named in cluster.yaml and does not answer is noticed, whether it is a member or not. Each
change of a chain's owner that this process learns of is kept, with its time.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from syncpoint.base.model.errors import Unavailable
from syncpoint.base.runtime.tasks import Tasks
from syncpoint.node.cluster.context import ClusterContext
from syncpoint.node.process_monitor import ProcessMonitor
from syncpoint.watch.metrics.exposition import Exposition
from syncpoint.watch.metrics.gathered import GatheredText
from syncpoint.watch.metrics.kept_text import MetricsText
from syncpoint.watch.metrics.tenant_text import project_series, with_process
from syncpoint.watch.monitor.alert_rules import UNSERVED_S
from syncpoint.watch.monitor.monitor_driver import Monitor
from syncpoint.watch.monitor.ownership_log import ChainHolder
from syncpoint.watch.monitor.scrape_sources import TextSource
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import internal
from syncpoint.wire.protobuf.methods import Method
from syncpoint.wire.transport.calls import Methods

ASK_S: Final = 4.0
ASK_WORKER_S: Final = 1.0
RELAY_S: Final = 30.0

log = logging.getLogger(__name__)


class WatchingProcess:
    """Run the monitor in one process of a cluster, and relay requests to it from the others."""

    def __init__(self, context: ClusterContext) -> None:
        self._context = context
        self._place = context.settings.monitor
        self._is_here = self._place is not None and self._place.process == context.process.name
        relay = None if self._place is None or self._is_here else self._relayed
        self._monitor = ProcessMonitor(context.environment, relay)
        self.admin = self._monitor.admin
        self._own: MetricsText
        self._tasks = Tasks()
        self._changed = asyncio.Event()
        self._changes: list[ChainHolder] = []

    def methods(self, served: Methods) -> Methods:
        """What other processes may call here, beside what they may anyhow."""
        return self.admin.methods() if self._is_here and not self.admin.methods().keys() & served.keys() else {}

    async def start(self, own: MetricsText, unserved_s: Callable[[], Mapping[str, float]]) -> None:
        """Begin to look, if it is this process that does. `unserved_s`: for how long nobody has served which chains.
        Raises `InvalidArgument` for a file with a mistake.
        """
        place = self._place
        if place is None or not self._is_here:
            return
        self._own = own

        def urgent() -> int:
            return sum(seconds > UNSERVED_S for seconds in unserved_s().values())

        monitor = await self._monitor.start(place.data, place.file, self._processes, urgent)
        if monitor is not None:
            self._context.view.owners.listeners.append(self._owners_changed)
            await self._take_owners(monitor)
            self._tasks.start(self._keep_owners(monitor))

    async def stop(self) -> None:
        """Look no more."""
        if self._owners_changed in self._context.view.owners.listeners:
            self._context.view.owners.listeners.remove(self._owners_changed)
        await self._tasks.stop()
        await self._monitor.stop()

    async def _take_owners(self, monitor: Monitor) -> None:
        """What differs from what was kept happened while this process was not here."""
        known = await monitor.ask(lambda core: core.file.owners.last())
        self._changes.clear()  # what is read now has them
        chains = {int(key) for key in self._context.view.owners.items} | known.keys()
        found = [self._holder(chain, monitor.now_s, late=True) for chain in sorted(chains)]
        await monitor.ask(lambda core: core.file.owners.note(found))

    def _owners_changed(self, keys: set[str]) -> None:
        now_s = self._context.environment.clock.time_ns() / 1e9
        self._changes += [self._holder(int(key), now_s) for key in sorted(keys)]
        self._changed.set()

    def _holder(self, chain: int, now_s: float, *, late: bool = False) -> ChainHolder:
        owner = self._context.view.owner(chain)
        return ChainHolder(now_s, chain, owner.epoch if owner else 0, owner.member if owner else "", late)

    async def _keep_owners(self, monitor: Monitor) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            changes, self._changes = self._changes, []
            try:
                await monitor.ask(lambda core, new=changes: core.file.owners.note(new))  # type: ignore[misc]
            except sqlite3.Error as error:
                log.error("changes of owners cannot be stored: %s", error)

    def _processes(self) -> list[TextSource]:
        context = self._context
        members = {seen.value.name: seen.value for seen in context.view.members.items.values()}
        found = []
        for name in sorted(context.settings.processes.keys() | members.keys() | {context.process.name}):
            known = members.get(name) or context.settings.processes.get(name) or context.process
            labels = {"process": name, "region": known.region, "zone": known.zone}
            here = name == context.process.name
            read = self._own.text if here else partial(self._ask, name)
            found.append(TextSource(name, read, {key: value for key, value in labels.items() if value}, here))
        return found

    async def _ask(self, name: str) -> bytes:
        address = self._context.address_of(name)
        if address is None:
            raise Unavailable(f"{name} is not a member of the cluster now")
        return await _metrics_at(self._context, ASK_S, address)

    async def _relayed(self, method: Method, request: bytes) -> bytes:
        assert self._place is not None
        address = self._context.address_of(self._place.process)
        if address is None:
            raise Unavailable(f"{self._place.process}, which keeps the history, is not a member of the cluster now")
        return await self._context.peers.call(address, method, request, timeout_s=RELAY_S)


async def _metrics_at(context: ClusterContext, timeout_s: float, address: str) -> bytes:
    answer = await context.peers.call(address, methods.PROCESS.GetMetrics, b"", timeout_s=timeout_s)
    return internal.MetricsResponse.FromString(answer).text


Shown = Callable[[bytes, str], bytes]
"""What is shown of the text of a process: any thread."""


def _series(text: bytes, process: str) -> bytes:
    return project_series(text, process=process)


class _OwnText:
    """What is shown of the metrics of this process."""

    def __init__(self, context: ClusterContext, shown: Shown) -> None:
        self._context, self._shown = context, shown

    async def text(self) -> bytes:
        context = self._context
        return await _made(context, self._shown, context.name, await context.metrics.text())


async def _made(context: ClusterContext, shown: Shown, process: str, text: bytes) -> bytes:
    found: bytes = await context.environment.blocking(partial(shown, text, process))
    return found


def series_of_all(context: ClusterContext) -> GatheredText:
    """The series of projects in the metrics of all processes, with a label `process`."""
    return text_of_all(context, _series)


def text_of_all(context: ClusterContext, shown: Shown = with_process) -> GatheredText:
    """The metrics of all processes, with a label `process`; or what is `shown` of them."""

    async def ask(name: str) -> bytes:
        address = context.address_of(name)
        if address is None:
            raise Unavailable(f"{name} is not a member of the cluster now")
        return await _made(context, shown, name, await _metrics_at(context, ASK_WORKER_S, address))

    def others() -> Mapping[str, str]:
        names = (seen.value.name for seen in context.view.members.items.values())
        return {name: name for name in names if name != context.name}

    return GatheredText(_OwnText(context, shown), others, ask, context.environment.blocking)


def other_workers(context: ClusterContext, own: Exposition) -> GatheredText:
    """The text of all workers of this server."""

    def others() -> Mapping[str, str]:
        members = [seen.value for seen in context.view.members.items.values()]
        return {one.name: one.address for one in members if one.name != context.name}

    return GatheredText(own, others, partial(_metrics_at, context, ASK_WORKER_S), context.environment.blocking)

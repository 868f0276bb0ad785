"""A process that watches over itself or over others: history, indicators, objectives and alerts, from metrics.

Place: in every process; on a node over that one alone, see `cluster.watching` for those of a cluster and for workers.
`syncpoint monitor` runs one in a process of its own, which reads pages of metrics.
Promise: a file of the operator's with a mistake stops the start. That history cannot be kept does not: the server is
worth more than what is known of it, and says what is in the way.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Callable
from functools import partial
from pathlib import Path

from syncpoint.base.model.errors import Unavailable
from syncpoint.base.runtime.clock import SystemClock
from syncpoint.base.runtime.random import SystemRandom
from syncpoint.node.node_environment import ProcessEnvironment
from syncpoint.node.running import log_to_stderr, run_until_signal
from syncpoint.watch.monitor.monitor_admin import MonitorAdmin, Relay
from syncpoint.watch.monitor.monitor_driver import FILE, Monitor
from syncpoint.watch.monitor.monitor_settings import MonitorSettings, defaults, load_monitor
from syncpoint.watch.monitor.scrape_sources import TextSource, once_each, pages
from syncpoint.wire.rest.http1 import http_fallback
from syncpoint.wire.transport.limits import TransportLimits
from syncpoint.wire.transport.network import join_address, split_address
from syncpoint.wire.transport.server import serve

log = logging.getLogger(__name__)


class ProcessMonitor:
    """The monitor of a process. `relay`: calls the process that has the monitor, if that is another one."""

    def __init__(self, environment: ProcessEnvironment, relay: Relay | None = None) -> None:
        self._environment = environment
        self.admin = MonitorAdmin(None, relay)

    async def start(
        self,
        data: Path,
        file: Path | None,
        sources: Callable[[], list[TextSource]],
        urgent: Callable[[], int] | None = None,
    ) -> Monitor | None:
        """Begin to look; None where its file in the folder `data` cannot be used, and where time is simulated. `file`:
        the operator's settings; `sources`: what is read beside the pages that these name; `urgent`: see `Monitor`.
        Raises `InvalidArgument` for settings with a mistake.
        """
        if not self._environment.measures_itself:
            return None
        settings = defaults() if file is None else load_monitor(file)
        clock, random = self._environment.clock, self._environment.random

        def processes() -> list[TextSource]:
            return once_each([*sources(), *pages(settings)])

        monitor = Monitor(settings, data, processes, clock, random, urgent=urgent)
        try:
            await monitor.start()
        except (sqlite3.Error, OSError) as error:
            reason = f"The monitor cannot use its file {data / FILE}: {error}. It tries again at the next start."
            log.error("%s", reason)
            self.admin.refusal = Unavailable(reason)
            return None
        self.admin.monitor = monitor
        return monitor

    async def stop(self) -> None:
        """Look no more."""
        if self.admin.monitor is not None:
            await self.admin.monitor.stop()


def run(settings: MonitorSettings, data: Path, listen: str) -> None:
    """Run a monitor in a process of its own until SIGTERM or SIGINT. It asks nobody who he is: its address should be
    one that only operators reach. Raises `SyncpointError`, `OSError`."""
    log_to_stderr()
    run_until_signal(partial(_serve, settings, data, listen))


async def _serve(settings: MonitorSettings, data: Path, listen: str, stopping: asyncio.Event) -> None:
    monitor = Monitor(settings, data, lambda: once_each(pages(settings)), SystemClock(), SystemRandom())
    try:
        await monitor.start()
    except sqlite3.Error as error:
        raise Unavailable(f"{data / FILE} cannot be used: {error}") from error
    methods, limits = MonitorAdmin(monitor).methods(), TransportLimits(connections=100)
    host, port = split_address(listen)
    try:
        server = await serve(methods, host, port, limits=limits, on_fallback=http_fallback(methods, limits))
        print(f"syncpoint monitor ready on {join_address(server.host, server.port)}", flush=True)
        await stopping.wait()
        await server.drain(1.0)
    finally:
        await monitor.stop()

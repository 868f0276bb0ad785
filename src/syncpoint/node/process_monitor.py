"""A process that watches over itself or over others: history, indicators, objectives and alerts, from metrics.

Place: in every process; on a node over that one alone, see `cluster.watching` for those of a cluster and for workers.
Promise: a file of the operator's with a mistake stops the start. That history cannot be kept does not: the server is
worth more than what is known of it, and says what is in the way.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable
from pathlib import Path

from syncpoint.base.model.errors import Unavailable
from syncpoint.node.node_environment import ProcessEnvironment
from syncpoint.watch.monitor.monitor_admin import MonitorAdmin, Relay
from syncpoint.watch.monitor.monitor_driver import FILE, Monitor
from syncpoint.watch.monitor.monitor_settings import defaults, load_monitor
from syncpoint.watch.monitor.scrape_sources import TextSource, once_each, pages

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
            reason = f"The monitor cannot use its file {data / FILE}: {error}. It is tried again at the next start."
            log.error("%s", reason)
            self.admin.refusal = Unavailable(reason)
            return None
        self.admin.monitor = monitor
        return monitor

    async def stop(self) -> None:
        """Look no more."""
        if self.admin.monitor is not None:
            await self.admin.monitor.stop()

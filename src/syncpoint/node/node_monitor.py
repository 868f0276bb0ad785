"""A node that watches over itself: history, indicators, objectives and alerts, from its own metrics.

Place: used by `process`; clusters and workers have `cluster.process_monitor`.
Promise: a file of the operator's with a mistake stops the start. That history cannot be kept does not: the server is
worth more than what is known of it, and says what is in the way.
"""

from __future__ import annotations

import logging
import sqlite3

from syncpoint.base.model.errors import Unavailable
from syncpoint.node.node_environment import NodeEnvironment
from syncpoint.node.settings import ServeSettings
from syncpoint.watch.metrics.kept_text import MetricsText
from syncpoint.watch.monitor.monitor_admin import MonitorAdmin
from syncpoint.watch.monitor.monitor_driver import FILE, Monitor
from syncpoint.watch.monitor.monitor_settings import defaults, load_monitor
from syncpoint.watch.monitor.scrape_sources import TextSource, once_each, pages

NAME = "node"

log = logging.getLogger(__name__)


class NodeMonitor:
    """See the module."""

    def __init__(self, settings: ServeSettings, environment: NodeEnvironment) -> None:
        self._settings, self._environment = settings, environment
        self._shown: MetricsText | None = None
        self.admin = MonitorAdmin(None)

    async def start(self, shown: MetricsText) -> None:
        """Begin to look. Raises `InvalidArgument` for a file with a mistake."""
        if not self._environment.measures_itself:
            return
        self._shown = shown
        settings = defaults() if self._settings.monitor is None else load_monitor(self._settings.monitor)
        clock, random = self._environment.clock, self._environment.random
        own = TextSource(NAME, shown.text, fresh=True)
        monitor = Monitor(settings, self._settings.data, lambda: once_each([own, *pages(settings)]), clock, random)
        await begin(monitor, self.admin)

    async def stop(self) -> None:
        """Look no more."""
        if self.admin.monitor is not None:
            await self.admin.monitor.stop()


async def begin(monitor: Monitor, admin: MonitorAdmin) -> None:
    """Start a monitor, and have `admin` ask it. Where its file cannot be used, `admin` says so, and so does the log."""
    try:
        await monitor.start()
    except (sqlite3.Error, OSError) as error:
        reason = (
            f"The monitor cannot use its file {monitor.folder / FILE}: {error}. It is tried again at the next start."
        )
        log.error("%s", reason)
        admin.refusal = Unavailable(reason)
        return
    admin.monitor = monitor

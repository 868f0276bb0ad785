"""A monitor in a process of its own: it reads pages of metrics, and answers questions about them.

Place: run by `syncpoint monitor`. It asks nobody who he is: its address should be one that only operators reach.
"""

from __future__ import annotations

import asyncio
import sqlite3
from functools import partial
from pathlib import Path

from syncpoint.base.model.errors import Unavailable
from syncpoint.base.runtime.clock import SystemClock
from syncpoint.base.runtime.random import SystemRandom
from syncpoint.node.running import log_to_stderr, run_until_signal
from syncpoint.watch.monitor.monitor_admin import MonitorAdmin
from syncpoint.watch.monitor.monitor_driver import FILE, Monitor
from syncpoint.watch.monitor.monitor_settings import MonitorSettings
from syncpoint.watch.monitor.scrape_sources import once_each, pages
from syncpoint.wire.rest.http1 import http_fallback
from syncpoint.wire.transport.limits import TransportLimits
from syncpoint.wire.transport.network import join_address, split_address
from syncpoint.wire.transport.server import serve


def run(settings: MonitorSettings, data: Path, listen: str) -> None:
    """Until SIGTERM or SIGINT. Raises `SyncpointError`, `OSError`."""
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

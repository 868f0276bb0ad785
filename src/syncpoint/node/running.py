"""The driver of every program that serves until a signal ends it.

Place: under `serve`, `cluster.serve`, `workers.worker` and `process_monitor`. What is started, and in which words and
exit codes an end is explained, is theirs.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

import uvloop

Serving = Callable[[asyncio.Event], Coroutine[Any, Any, None]]
"""Starts what serves, and stops it after the event that is given."""


class Served(Protocol):
    """What is started and stopped."""

    async def start(self) -> None: ...
    async def stop(self) -> None: ...


def log_to_stderr(name: str = "") -> None:
    """Write log lines to standard error. `name`: of this process, where several write there."""
    who = f"{name} " if name else ""
    text = f"%(asctime)s %(levelname)s {who}%(name)s: %(message)s"
    logging.basicConfig(level=logging.INFO, format=text, stream=sys.stderr)


def run_until_signal(serving: Serving) -> None:
    """Run it in an event loop. SIGTERM and SIGINT set its event."""

    async def run() -> None:
        loop, stopping = asyncio.get_running_loop(), asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stopping.set)
        await serving(stopping)

    uvloop.run(run())


async def serve_until(stopping: asyncio.Event, served: Served, ready: Callable[[], None]) -> None:
    """Start, call `ready`, and stop once `stopping` is set."""
    await served.start()
    ready()
    await stopping.wait()
    await served.stop()

"""What drives every program that serves."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from syncpoint.node.running import run_until_signal, serve_until


class Serving:
    """Whether it runs."""

    def __init__(self) -> None:
        self.states: list[str] = []

    async def start(self) -> None:
        self.states.append("started")

    async def stop(self) -> None:
        self.states.append("stopped")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_what_was_ready(number: signal.Signals) -> None:
    served = Serving()

    def ready() -> None:
        served.states.append("ready")
        os.kill(os.getpid(), number)

    run_until_signal(lambda stopping: asyncio.wait_for(serve_until(stopping, served, ready), 60))
    assert served.states == ["started", "ready", "stopped"]

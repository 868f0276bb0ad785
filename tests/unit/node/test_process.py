"""In which order a process starts what it has, and lets go of it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from syncpoint.node.process import Process
from syncpoint.node.process_metrics import ProcessMetrics


class Noted:
    """Anything with methods that wait; each is noted when it is called."""

    def __init__(self, name: str, calls: list[str], failing: str = "") -> None:
        self._name, self._calls, self._failing = name, calls, failing

    def __getattr__(self, method: str) -> Any:
        async def call() -> None:
            self._calls.append(f"{self._name}.{method}")
            if method == self._failing:
                raise OSError(method)

        return call


class TwoRoles(Process):
    """A process over parts that do nothing."""

    def __init__(self, failing: str = "") -> None:
        self.calls: list[str] = []
        context: Any = Noted("context", self.calls)
        context.recording = SimpleNamespace(
            start=self.noted("recording starts"), stop=Noted("recording", self.calls).stop
        )
        context.environment = SimpleNamespace(
            apart=SimpleNamespace(close=self.noted("apart closes")), freeze_memory=self.noted("memory is frozen")
        )
        first, second = Noted("log", self.calls), Noted("port", self.calls, failing)
        super().__init__(context, {"log": first, "port": second})

    def noted(self, what: str) -> Any:
        return lambda: self.calls.append(what)

    def measured(self) -> ProcessMetrics:
        self.calls.append("measured")
        metrics: Any = Noted("metrics", self.calls)
        metrics.text = None
        return metrics  # type: ignore[no-any-return]

    async def meet(self) -> None:
        self.calls.append("meet")

    async def watch(self) -> None:
        self.calls.append("watch")

    async def unwatch(self) -> None:
        self.calls.append("unwatch")

    async def part(self) -> None:
        self.calls.append("part")


STARTED = [
    "context.join", "log.start", "port.start", "measured", "meet", "log.on_joined", "port.on_joined",
    "recording starts", "metrics.start", "watch", "memory is frozen",
]  # fmt: skip
STOPPED = [
    "port.drain",
    "log.drain",
    "recording.stop",
    "part",
    "port.stop",
    "log.stop",
    "apart closes",
    "context.close",
]


def test_roles_are_joined_once_all_have_their_parts_and_stop_the_other_way_round() -> None:
    process = TwoRoles()
    asyncio.run(process.start())
    assert process.calls == STARTED
    process.calls.clear()
    asyncio.run(process.stop())
    assert process.calls == ["unwatch", "metrics.stop", *STOPPED]


def test_what_did_not_start_is_let_go_of_all_the_same() -> None:
    process = TwoRoles(failing="on_joined")
    with pytest.raises(OSError, match="on_joined"):
        asyncio.run(process.start())
    assert process.calls == STARTED[: STARTED.index("port.on_joined") + 1]
    process.calls.clear()
    asyncio.run(process.stop())
    assert process.calls == STOPPED

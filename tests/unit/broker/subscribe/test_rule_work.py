"""Rules that other processes judge: whoever asked is answered, whatever becomes of the process."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from syncpoint.base.model.errors import Unavailable
from syncpoint.base.runtime.child_processes import ChildProcesses, at_once
from syncpoint.broker.subscribe.lane_rules import LaneWork
from syncpoint.broker.subscribe.rule_work import Judging, RuleWork


class Failing:
    """Other processes that fail in one way."""

    busy = False
    here = staticmethod(at_once.here)

    def __init__(self, error: Exception) -> None:
        self.error = error

    async def __call__(self, work: Any, project: str, /) -> Any:
        raise self.error


@pytest.mark.parametrize("error", [Unavailable("ended"), OSError(11, "no more processes"), AssertionError("daemonic")])
def test_whoever_asked_learns_of_any_failure(error: Exception) -> None:
    async def run() -> list[Any]:
        found: list[Any] = []
        work = RuleWork(Failing(error))
        piece: Any = (LaneWork, [(1, 0, b"")])
        work.start(Judging("projects/p", {}, [piece], 1 << 20), found.append)
        while not found:
            await asyncio.sleep(0)
        await work.stop()
        return found

    assert asyncio.run(asyncio.wait_for(run(), 10)) == [error]


def test_a_machine_that_starts_no_more_processes_makes_it_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object, **__: object) -> None:
        raise OSError(11, "Resource temporarily unavailable")

    monkeypatch.setattr("syncpoint.base.runtime.child_processes.ProcessPoolExecutor.submit", none)
    children = ChildProcesses()
    try:
        with pytest.raises(Unavailable, match="No process could be started"):
            asyncio.run(children(int, "projects/p"))
    finally:
        children.close()

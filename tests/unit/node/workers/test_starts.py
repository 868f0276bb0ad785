"""Workers that cannot start: those that may start a moment later are begun again."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from syncpoint.base.model.errors import FailedPrecondition, Unavailable
from syncpoint.catalog.metadata.contract import Indeterminate, StoreError, StoreUnavailable
from syncpoint.node.settings import ServeSettings
from syncpoint.node.workers import worker
from syncpoint.node.workers.parent import Parent
from syncpoint.node.workers.plan import BEGIN_AGAIN, Plan

pytestmark = pytest.mark.shows("workers")

SETTINGS = ServeSettings(workers=1, disks=(Path("a"),))


@pytest.mark.parametrize(
    ("error", "code"),
    [(StoreUnavailable("silent"), BEGIN_AGAIN), (Indeterminate("silent"), BEGIN_AGAIN), (FailedPrecondition("no"), 1)],
)
def test_a_worker_says_whether_it_may_start_later(
    error: StoreError | FailedPrecondition,
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(worker, "_serve", fail)
    assert worker.run(1, Plan(SETTINGS, "127.0.0.1:1", "127.0.0.1:2"), b"") == code
    assert capsys.readouterr().err.startswith("worker-1 cannot ")


@pytest.mark.parametrize(("codes", "starts"), [([BEGIN_AGAIN, BEGIN_AGAIN], True), ([BEGIN_AGAIN, 1], False)])
def test_the_parent_begins_it_again(codes: list[int], starts: bool) -> None:
    class Tried(Parent):
        async def _run(self, number: int) -> int:
            if codes:
                return codes.pop(0)
            self._ready[number].set()
            await asyncio.Event().wait()
            return 0

        async def _is_open(self) -> bool:
            return self._ready[1].is_set()

    async def work() -> None:
        parent = Tried(SETTINGS)
        parent._ready[1] = asyncio.Event()
        keeping = asyncio.ensure_future(parent._keep(1))
        try:
            await parent._all_open()
        finally:
            keeping.cancel()

    if starts:
        asyncio.run(work())
    else:
        with pytest.raises(Unavailable, match="ended with code 1 while starting"):
            asyncio.run(work())

"""One consumer inside the service over real forwarders, in simulated time: what tests of forwards, pushes and exports
share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Protocol

from syncpoint.broker.inner.feed import open_feed
from syncpoint.broker.inner.inner_driver import ConsumingProcess
from syncpoint.catalog.metadata.catalog import Catalog
from syncpoint.catalog.metadata.records import CatalogChange
from syncpoint.testing.rigs.forwarder_harness import ForwarderHarness
from syncpoint.testing.rigs.simulated_loop import run_simulated


class Driver(Protocol):
    def start(self) -> None: ...

    async def close(self) -> None: ...


class ConsumerHarness:
    """One subscription, and the driver that consumes it, which the test's own class makes."""

    TICK_S = 0.05
    driver: Driver

    def __init__(self, **options: Any) -> None:
        self.forwarders = ForwarderHarness(**options)
        self.clock = self.forwarders.clock
        self.on_change: list[Callable[[CatalogChange], None]] = []
        self.mine = True
        self.refusal = ""  # why whoever said where messages go may not have them any more

    def consuming(self) -> ConsumingProcess:
        return ConsumingProcess(
            self, partial(open_feed, self.forwarders.subscribe), self.clock, self.forwarders.random,
            lambda incarnation: self.mine, lambda record: self.refusal,
        )  # fmt: skip

    @property
    def catalog(self) -> Catalog:
        return self.forwarders.publish.catalog

    async def at(self, revision: int) -> None:
        """It is this process's own catalog."""

    def change(self, *changes: CatalogChange) -> None:
        self.forwarders.commit(*changes)
        for change in changes:
            for called in list(self.on_change):
                called(change)

    def unacknowledged(self) -> int:
        backlog, _ = self.forwarders.subscribe.outstanding()
        return backlog

    def run(self, story: Coroutine[Any, Any, None]) -> None:
        async def ticked() -> None:
            ticking = asyncio.get_running_loop().create_task(self._tick())
            self.driver.start()
            try:
                await story
            finally:
                await self.driver.close()
                ticking.cancel()

        run_simulated(self.clock, ticked())

    async def _tick(self) -> None:
        while True:
            self.forwarders.quiesce()
            self.forwarders.subscribe.tick()
            self.forwarders.quiesce()
            await asyncio.sleep(self.TICK_S)

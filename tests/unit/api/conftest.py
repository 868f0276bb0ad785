"""A control plane without a node."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import pytest

from syncpoint.api.admin_handlers import CatalogService
from syncpoint.metadata.catalog import Catalog
from syncpoint.metadata.records import Change, Snapshot, Start, Subscription
from syncpoint.runtime.clock import ManualClock
from syncpoint.runtime.random import SeededRandom

_T = TypeVar("_T")


class FakeControlPlane:
    """Applies at once and persists a turn of the loop later, as a node does."""

    def __init__(self) -> None:
        self.catalog = Catalog()
        self.clock = ManualClock()
        self.random = SeededRandom(1)
        self.log: list[Change] = []
        self.failure: Exception | None = None
        self.oldest_s = 0.0
        self.start: tuple[tuple[int, int], ...] = ((1 << 24, 7),)

    def next_incarnation(self) -> int:
        return self.catalog.next_incarnation()

    async def refresh(self) -> None:
        pass

    async def create_subscription(self, record: Subscription, /) -> None:
        await self.commit([Change.put(replace(record, start=tuple(Start(*pair) for pair in self.start)))])

    async def create_snapshot(self, record: Snapshot, /) -> None:
        await self.commit([Change.put(record)])

    async def commit(self, changes: Sequence[Change], /) -> None:
        if self.failure is not None:
            raise self.failure
        assigned = self.catalog.assign(changes)
        for change in assigned:
            self.catalog.apply(change)
        await asyncio.sleep(0)
        self.log += assigned

    async def snapshot(self, record: Subscription, /) -> tuple[bytes, float]:
        await asyncio.sleep(0)
        return b"acked", self.oldest_s


class Service:
    """Runs the coroutine methods of a CatalogService."""

    def __init__(self, plane: FakeControlPlane) -> None:
        self.plane = plane
        self.asynchronous = CatalogService(plane)

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.asynchronous, name)

        def call(request: Any) -> Any:
            return run(method(request))

        return call


def run(work: Coroutine[Any, Any, _T]) -> _T:
    return asyncio.run(work)


@pytest.fixture
def plane() -> FakeControlPlane:
    return FakeControlPlane()


@pytest.fixture
def service(plane: FakeControlPlane) -> Service:
    return Service(plane)

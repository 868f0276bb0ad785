"""A control plane without a node."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Coroutine, Sequence
from typing import Any, TypeVar

import pytest

from syncpoint.base.runtime.clock import ManualClock
from syncpoint.base.runtime.random import SeededRandom
from syncpoint.broker.push.addresses import Vetting
from syncpoint.catalog.metadata.catalog import Catalog
from syncpoint.catalog.metadata.records import CatalogChange, Subscription
from syncpoint.cluster.control.plane import ControlPlane
from syncpoint.front.api.admin_handlers import CatalogService

_T = TypeVar("_T")


class FakeCommit:
    """Applies at once and persists a turn of the loop later, as a node does."""

    staged = False

    def __init__(self) -> None:
        self.catalog = Catalog()
        self.log: list[CatalogChange] = []
        self.failure: Exception | None = None
        self.oldest_s = 0.0

    def next_incarnation(self) -> int:
        return self.catalog.next_incarnation()

    async def refresh(self) -> None:
        pass

    async def commit(self, changes: Sequence[CatalogChange]) -> list[CatalogChange]:
        if self.failure is not None:
            raise self.failure
        assigned = self.catalog.assign(changes)
        for change in assigned:
            self.catalog.apply(change)
        await asyncio.sleep(0)
        self.log += assigned
        return assigned

    async def confirm_leases(self, subscription: int, revision: int) -> None:
        pass

    async def confirm(self, topic: int, revision: int) -> None:
        pass

    async def drained(self, record: Subscription) -> Collection[int]:
        return ()

    async def oldest_age_s(self, record: Subscription) -> float:
        await asyncio.sleep(0)
        return self.oldest_s


class FakeControlPlane(ControlPlane):
    """The one there is, over commits in memory."""

    commits: FakeCommit

    def __init__(self) -> None:
        super().__init__(FakeCommit(), ManualClock(), SeededRandom(1))


class Service:
    """Runs the coroutine methods of a CatalogService."""

    def __init__(self, plane: FakeControlPlane) -> None:
        self.plane = plane
        self.asynchronous = CatalogService(plane, Vetting())

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

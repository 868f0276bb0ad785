"""Mitigation's driver over a store in memory: what it does, writes down and leaves, by mode, pause and leadership."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from typing import Any

import pytest

from syncpoint.base.model.cluster import Member
from syncpoint.base.runtime.clock import ManualClock
from syncpoint.base.runtime.random import SeededRandom
from syncpoint.catalog.metadata.catalog import Catalog
from syncpoint.catalog.metadata.contract import Delete, Put
from syncpoint.catalog.metadata.layout import LOADS, MEMBERS, MITIGATION_PAUSED, MITIGATION_STATUS
from syncpoint.catalog.metadata.local import LocalShared
from syncpoint.catalog.metadata.memory import MemoryStore
from syncpoint.catalog.metadata.view import ClusterView
from syncpoint.cluster.control.operations import Operations
from syncpoint.cluster.mitigation.mitigation_driver import LOOK_S, MitigationDriver
from syncpoint.cluster.mitigation.mitigator import MitigationMode, MitigationSettings
from syncpoint.testing.rigs.simulated_loop import run_simulated


class Watched:
    """Three publish forwarders of a cluster in memory, of which one may be late."""

    def __init__(self, clock: ManualClock, mode: MitigationMode) -> None:
        self.clock, self.leads, self.looks = clock, True, 0
        self.store = MemoryStore(clock=clock, random=SeededRandom(1))
        self.shared = LocalShared(self.store, clock)
        for number, name in enumerate("abc", 1):
            self.put(MEMBERS.key(name), Member(name, ("publish-forwarder",), f"10.0.0.1:{number}", number).encode())
        self.view = ClusterView(self.shared)
        operations = Operations(self.view, Catalog(), clock)
        settings = MitigationSettings(mode)
        self.audited: list[tuple[str, str, bool]] = []
        self.driver = MitigationDriver(
            self.shared, self.view, operations, settings, lambda: self.leads, clock, self.note_audited
        )

    def note_audited(self, action: str, process: str, done: bool, why: str) -> None:
        self.audited.append((action, process, done))

    def put(self, key: str, value: bytes) -> None:
        self.store.txn([], [Put(key, value)])

    async def look(self, times: int, lag_s: float = 0.0) -> None:
        """So many looks in which `a` is late by that much."""
        for _ in range(times):
            self.looks += 1
            self.put(LOADS.key("a"), json.dumps({"loop_lag_s": lag_s, "late_looks": self.looks}).encode())
            await asyncio.sleep(LOOK_S)
            await self.driver.look()
        await asyncio.sleep(0.01)  # its own view learns of it

    @property
    def drained(self) -> list[str]:
        return sorted(self.view.drains.items)

    def records(self) -> list[tuple[str, str, str]]:
        found = self.store.get(MITIGATION_STATUS)
        assert found is not None
        return [(one["action"], one["process"], one["outcome"]) for one in json.loads(found.value)["records"]]


def run(mode: MitigationMode, work: Any) -> None:
    clock = ManualClock()

    async def main() -> None:
        watched = Watched(clock, mode)
        await watched.view.start()
        done: Coroutine[Any, Any, None] = work(watched)
        await done
        await watched.view.close()
        await watched.shared.close()

    run_simulated(clock, main())


def test_it_drains_says_why_and_puts_back() -> None:
    async def work(watched: Watched) -> None:
        await watched.look(4, 1.5)
        assert watched.drained == ["a"]
        status = watched.driver.status()
        assert (status["drained"], status["sick"], status["drains"]) == (1, 1, 1)
        await watched.look(35)
        assert watched.drained == []
        assert watched.records() == [("drain", "a", "done"), ("undrain", "a", "done")]
        assert watched.audited == [("drain", "a", True), ("undrain", "a", True)]
        status = watched.driver.status()
        assert (status["drained"], status["sick"], status["undrains"], status["over_budget"]) == (0, 0, 1, 0)

    run(MitigationMode.ACT, work)


def test_a_lost_zone_is_an_alarm_once_also_where_another_router_leads_by_then() -> None:
    async def work(watched: Watched) -> None:
        for number, (name, zone) in enumerate((("a", "x"), ("b", "y"), ("c", "y")), 1):
            member = Member(name, ("publish-forwarder",), f"10.0.0.1:{number}", number, zone=zone)
            watched.put(MEMBERS.key(name), member.encode())
        await watched.look(2)
        watched.store.txn([], [Delete(MEMBERS.key("a"))])
        await watched.look(3)
        assert watched.records() == [("alarm", "", "zone lost")]
        assert watched.driver.status()["lost_zones"] == 1
        watched.leads = False
        await watched.look(1)
        assert watched.driver.status()["lost_zones"] == 0, "who does not lead says nothing"
        watched.leads = True
        await watched.look(1)
        assert watched.driver.status()["lost_zones"] == 1, "it was read what there was"

    run(MitigationMode.ACT, work)


@pytest.mark.parametrize("paused", [False, True])
def test_observing_or_paused_it_says_what_it_would_do_once(paused: bool) -> None:
    async def work(watched: Watched) -> None:
        if paused:
            watched.put(MITIGATION_PAUSED, b"works")
        await watched.look(8, 1.5)
        assert watched.drained == []
        assert watched.records() == [("drain", "a", "paused" if paused else "observed")]

    run(MitigationMode.ACT if paused else MitigationMode.OBSERVE, work)


def test_who_does_not_lead_does_nothing_and_whoever_leads_next_keeps_the_records() -> None:
    async def work(watched: Watched) -> None:
        watched.leads = False
        await watched.look(8, 1.5)
        assert watched.drained == []
        watched.leads = True
        await watched.look(4, 1.5)
        assert watched.drained == ["a"]
        settings = MitigationSettings(MitigationMode.ACT)
        operations = Operations(watched.view, Catalog(), watched.clock)
        watched.driver = MitigationDriver(
            watched.shared, watched.view, operations, settings, lambda: True, watched.clock
        )
        await watched.look(35)
        assert watched.drained == []
        assert watched.records() == [("drain", "a", "done"), ("undrain", "a", "done")]

    run(MitigationMode.ACT, work)


def test_off_never_starts() -> None:
    async def work(watched: Watched) -> None:
        watched.driver.start()
        await asyncio.sleep(60)
        assert watched.store.get(MITIGATION_STATUS) is None
        await watched.driver.stop()

    run(MitigationMode.OFF, work)

"""The durability classes of a cluster: what its metadata say, and how one is added."""

from __future__ import annotations

import asyncio
import json

import pytest

from syncpoint.base.model.errors import Code, FailedPrecondition, InvalidArgument, SyncpointError
from syncpoint.base.runtime.clock import ManualClock
from syncpoint.base.runtime.random import SeededRandom
from syncpoint.catalog.metadata.contract import Put
from syncpoint.catalog.metadata.layout import SETTINGS
from syncpoint.catalog.metadata.local import LocalShared
from syncpoint.catalog.metadata.memory import MemoryStore
from syncpoint.cluster.control.durability_classes import CLASSES, DurabilityClass, DurabilityClasses
from syncpoint.node.cluster.cluster_environment import ClusterEnvironment
from syncpoint.node.cluster.context import ClusterContext
from syncpoint.node.cluster.settings import ClusterSettings, parse
from syncpoint.testing.rigs.simulated_loop import run_simulated

pytestmark = pytest.mark.shows("classes")

FAST = {"clusters": 1, "durability": "async"}


def settings(**classes: object) -> ClusterSettings:
    return parse({"metadata": {"etcd": ["h:1"]}, "classes": classes, "processes": {"p": {"roles": ["router"]}}})


def test_what_one_process_adds_all_learn_of_and_nothing_of_it_changes() -> None:
    clock = ManualClock()
    store = MemoryStore(clock=clock, random=SeededRandom(1))

    async def run() -> None:
        store.txn([], [Put(SETTINGS, json.dumps(settings().fingerprint()).encode())])
        here, there = (DurabilityClasses(LocalShared(store, clock)) for _ in range(2))
        learned = []
        for one in (here, there):
            await one.start()
            one.listeners.append(lambda one=one: learned.append(sorted(one)))  # type: ignore[misc]
        assert sorted(here) == ["default"]
        made = DurabilityClass("wide", clusters=1, spans_regions=True)
        await here.add(made)
        assert here["wide"] == made
        await asyncio.sleep(0.1)
        assert there["wide"] == made
        assert (here.spanning, there.spanning) == ({"wide"}, {"wide"})
        assert learned == [["default", "wide"]] * 2
        with pytest.raises(SyncpointError) as caught:
            await there.add(DurabilityClass("wide", clusters=3))
        assert caught.value.code is Code.ALREADY_EXISTS
        kept = store.range(SETTINGS).items[0]
        assert {**json.loads(kept.value), CLASSES: {}} == {**settings().fingerprint(), CLASSES: {}}

    run_simulated(clock, run())


def test_a_file_need_not_name_what_was_added_and_must_not_name_anything_else() -> None:
    clock = ManualClock()
    store = MemoryStore(clock=clock, random=SeededRandom(1))

    async def joins(given: ClusterSettings) -> None:
        context = ClusterContext(given, given.process("p"), ClusterEnvironment())
        context.store = LocalShared(store, clock)
        await context._agree()

    async def run() -> None:
        await joins(settings())
        with pytest.raises(FailedPrecondition, match=r"'fast' that is not in the cluster.*cluster classes add fast"):
            await joins(settings(fast=FAST))
        classes = DurabilityClasses(LocalShared(store, clock))
        await classes.start()
        await classes.add(settings(fast=FAST).classes["fast"])
        await joins(settings(fast=FAST))
        await joins(settings())
        with pytest.raises(FailedPrecondition, match=r"differ from the cluster's in classes\.fast"):
            await joins(settings(fast={"clusters": 3}))

    run_simulated(clock, run())


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("name", ""), ("name", "a b"), ("clusters", 0), ("disks", 4), ("racks_min", 0)),
        *(("within", "some"), ("over", "none"), ("durability", "soon"), ("placement", "here")),
    ],
)
def test_what_a_class_may_be(field: str, value: object) -> None:
    DurabilityClass("a.b-c_1").check()
    with pytest.raises(InvalidArgument) as caught:
        DurabilityClass(**{"name": "x", field: value}).check()  # type: ignore[arg-type]
    assert caught.value.field == field

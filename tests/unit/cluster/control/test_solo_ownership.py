"""What a chain asks of its process, answered by one node."""

from __future__ import annotations

from pathlib import Path

from syncpoint.base.runtime.clock import ManualClock
from syncpoint.base.runtime.random import SeededRandom
from syncpoint.catalog.metadata.memory import MemoryStore
from syncpoint.catalog.metadata.mirror import Identities
from syncpoint.catalog.metadata.records import CatalogChange, Topic
from syncpoint.cluster.control.solo_ownership import LogCatalog, NobodyAsks, OwnDisks
from syncpoint.testing.rigs.plain_tests import on_loop


@on_loop
async def test_a_chain_is_registered_for_whatever_there_is_at_the_revision_of_now() -> None:
    copy = LogCatalog()
    for change in copy.catalog.assign([CatalogChange.put(Topic(5, "projects/p/topics/t"))]):
        copy.catalog.apply(change)
    registrar = NobodyAsks(copy)
    await copy.at(1_000)
    assert await registrar.register(7, 0) == copy.catalog.revision == 1
    assert list(await registrar.registered(0)) == [5]
    assert await registrar.unregister(5, 0, 0, lambda: True)


@on_loop
async def test_disks_once_known_stay_known_whatever_folders_are_given() -> None:
    store = MemoryStore(clock=ManualClock(), random=SeededRandom(1))
    three = OwnDisks(Identities(store), [Path("/a"), Path("/b"), Path("/c")])
    assert (await three.known(0)).disks == ()
    await three.note(0, await three.known(0), ["aa", "", "cc"])
    one = OwnDisks(Identities(store), [Path("/b")])
    assert sorted((await one.known(0)).disks) == ["aa", "cc"]
    await one.note(0, await one.known(0), ["bb"])
    assert sorted((await three.known(0)).disks) == ["aa", "bb", "cc"]
    await three.note(0, await three.known(0), ["a2", "", "cc"])  # one was exchanged, one is away
    assert sorted((await three.known(0)).disks) == ["a2", "bb", "cc"]

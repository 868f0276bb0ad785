"""The replica of the catalog, and the identities of an installation."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest

from syncpoint.base.runtime.clock import ManualClock
from syncpoint.base.runtime.random import SeededRandom
from syncpoint.catalog.metadata.catalog import Catalog
from syncpoint.catalog.metadata.contract import MetadataStore, StoreUnavailable
from syncpoint.catalog.metadata.memory import MemoryStore
from syncpoint.catalog.metadata.mirror import CatalogMirror, Identities
from syncpoint.catalog.metadata.records import CatalogChange, Record, Setting, Snapshot, Subscription, Topic
from syncpoint.catalog.metadata.sqlite import SqliteStore


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MetadataStore]:
    made: MetadataStore
    if request.param == "memory":
        made = MemoryStore(clock=ManualClock(), random=SeededRandom(1))
    else:
        made = SqliteStore(tmp_path / "m.db", clock=ManualClock(), random=SeededRandom(1), durable=False)
    yield made
    made.close()


def commit(catalog: Catalog, mirror: CatalogMirror, *changes: CatalogChange) -> None:
    assigned = catalog.assign(changes)
    for change in assigned:
        catalog.apply(change)
    mirror.note(assigned)


def keyed(records: list[Record]) -> dict[str, Record]:
    return {record.name: record for record in records}


def filled(count: int, mirror: CatalogMirror) -> Catalog:
    catalog = Catalog()
    for number in range(count):
        topic = Topic(catalog.next_incarnation(), f"projects/p/topics/t{number}", b"c" * 5_000)
        commit(catalog, mirror, CatalogChange.put(topic))
        name = f"projects/p/subscriptions/s{number}"
        subscription = Subscription(catalog.next_incarnation(), name, topic.incarnation, topic.name)
        commit(catalog, mirror, CatalogChange.put(subscription))
        commit(catalog, mirror, CatalogChange.put(dataclasses.replace(subscription, generation=1)))
    commit(catalog, mirror, CatalogChange.put(Snapshot(catalog.next_incarnation(), "n", 1, "t", config=bytes(300_000))))
    commit(catalog, mirror, CatalogChange.put(Setting("limits", b"v")), CatalogChange.delete(next(catalog.topics())))
    return catalog


def test_the_replica_follows_in_transactions_that_fit(store: MetadataStore) -> None:
    mirror = CatalogMirror(store)
    catalog = filled(300, mirror)
    assert mirror.agrees(catalog)
    mirror.flush()
    assert mirror.agrees(catalog)
    assert keyed(list(mirror.records())) == keyed(list(catalog.records()))
    again = CatalogMirror(store)
    assert again.agrees(catalog)
    again.note([change.at(1) for change in [CatalogChange.delete(Topic(1, "x"))]])  # replayed, known already
    again.flush()
    assert keyed(list(again.records())) == keyed(list(catalog.records()))


def test_rebuilding(store: MetadataStore) -> None:
    mirror = CatalogMirror(store)
    filled(20, mirror)
    mirror.flush()
    other = filled(250, CatalogMirror(MemoryStore(clock=ManualClock(), random=SeededRandom(2))))
    assert not mirror.agrees(other)
    mirror.rebuild(other)
    assert mirror.agrees(other)
    assert keyed(list(mirror.records())) == keyed(list(other.records()))
    mirror.rebuild(Catalog())
    assert mirror.agrees(Catalog())
    assert list(mirror.records()) == []


def test_a_half_built_replica_names_no_revision(store: MetadataStore, monkeypatch: pytest.MonkeyPatch) -> None:
    mirror = CatalogMirror(store)
    catalog = filled(250, mirror)
    mirror.flush()
    calls = 0
    txn = store.txn

    def failing(*arguments: object) -> object:
        nonlocal calls
        calls += 1
        if calls > 9:
            raise StoreUnavailable("gone")
        return txn(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(store, "txn", failing)
    with pytest.raises(StoreUnavailable):
        mirror.rebuild(catalog)
    monkeypatch.undo()
    assert not CatalogMirror(store).agrees(catalog)


def test_a_failed_flush_is_made_up_for(store: MetadataStore, monkeypatch: pytest.MonkeyPatch) -> None:
    mirror = CatalogMirror(store)
    catalog = filled(3, mirror)

    def failing(*_: object) -> None:
        raise StoreUnavailable("full")

    monkeypatch.setattr(store, "txn", failing)
    with pytest.raises(StoreUnavailable):
        mirror.flush()
    monkeypatch.undo()
    mirror.flush()
    assert CatalogMirror(store).agrees(catalog)
    assert keyed(list(mirror.records())) == keyed(list(catalog.records()))


def test_identities(store: MetadataStore) -> None:
    identities = Identities(store)
    assert identities.universe is None
    universe = 1_234_567_890_123
    identities.adopt_universe(universe)
    other = Identities(store)
    assert other.universe == universe
    other.adopt_universe(universe)
    with pytest.raises(ValueError, match="universe"):
        other.adopt_universe(universe + 1)
    identities.raise_log_counter_floor(7)
    identities.raise_log_counter_floor(3)
    assert other.log_counter_floor == 7
    identities.know_disk("/data/é one", "ab")
    identities.know_disk("/data/two", "cd")
    identities.know_disk("/data/two", "ef")
    assert other.disks == {"/data/é one": "ab", "/data/two": "ef"}

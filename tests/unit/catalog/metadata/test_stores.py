"""Stores by a clock that stands still: conditions, leases and watches to the point; and what only the one in a file
must do. What every store does, alone and shared, is in `integration/test_metadata_conformance`."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from syncpoint.base.runtime.clock import ManualClock
from syncpoint.base.runtime.random import SeededRandom
from syncpoint.catalog.metadata import contract
from syncpoint.catalog.metadata.contract import (
    Compare,
    Delete,
    Event,
    Indeterminate,
    MetadataStore,
    Put,
    Resync,
    StoreUnavailable,
    create,
    replace,
)
from syncpoint.catalog.metadata.memory import MemoryStore
from syncpoint.catalog.metadata.sqlite import SqliteStore


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, clock: ManualClock, tmp_path: Path) -> Iterator[MetadataStore]:
    made: MetadataStore
    if request.param == "memory":
        made = MemoryStore(clock=clock, random=SeededRandom(1))
    else:
        made = SqliteStore(tmp_path / "meta.db", clock=clock, random=SeededRandom(1), durable=False)
    yield made
    made.close()


def put(store: MetadataStore, key: str, value: bytes = b"v") -> int:
    return store.txn([], [Put(key, value)]).revision


@pytest.mark.parametrize(
    ("compare", "holds"),
    [
        (Compare("a", "value", "=", b"2"), True),
        (Compare("a", "value", ">", b"1"), True),
        (Compare("a", "value", "<", b"2"), False),
        (Compare("a", "version", "=", 2), True),
        (Compare("a", "version", "!=", 2), False),
        (Compare("a", "create_revision", "<", 2), True),
        (Compare("a", "revision", ">", 2), False),
        (Compare("none", "value", "=", b""), True),
        (Compare("none", "version", "=", 0), True),
    ],
)
def test_conditions(store: MetadataStore, compare: Compare, holds: bool) -> None:
    put(store, "a", b"1")
    put(store, "a", b"2")
    assert store.txn([compare], []).ok is holds


def test_two_rivals_cannot_both_win(store: MetadataStore) -> None:
    assert create(store, "owner", b"one")
    assert not create(store, "owner", b"two")
    seen = store.get("owner")
    assert seen is not None
    assert replace(store, "owner", seen.revision, b"three")
    assert not replace(store, "owner", seen.revision, b"four")
    now = store.get("owner")
    assert now is not None
    assert now.value == b"three"


def test_leases_end_and_take_their_keys_along(store: MetadataStore, clock: ManualClock) -> None:
    lease = store.lease(10.0)
    store.txn([], [Put("owner", b"me", lease.id), Put("other", b"")])
    assert lease.valid_until() < clock.monotonic() + 10.0
    clock.advance(9.0)
    assert lease.keep_alive()
    clock.advance(9.0)
    assert store.get("owner") is not None
    clock.advance(1.0)
    assert store.get("owner") is None
    assert store.get("other") is not None
    assert not lease.keep_alive()
    with pytest.raises(ValueError, match="lease"):
        store.txn([], [Put("owner", b"me", lease.id)])
    assert store.lease(1.0).id != lease.id


def test_a_holder_stops_relying_before_the_store_lets_go(store: MetadataStore, clock: ManualClock) -> None:
    lease = store.lease(10.0)
    store.txn([], [Put("owner", b"me", lease.id)])
    clock.advance(lease.valid_until() - clock.monotonic())
    assert store.get("owner") is not None


def test_a_watch_misses_nothing(store: MetadataStore, clock: ManualClock) -> None:
    put(store, "a/0")
    reported: list[int] = []
    watch = store.watch("a/", from_revision=1, notify=lambda: reported.append(1))
    assert watch.poll() == [Event(1, "a/0", b"v")]
    assert watch.poll() == []
    store.txn([], [Put("a/2", b"2"), Put("a/1", b"1"), Put("b/1", b"")])
    store.txn([], [Delete("a/1")])
    put(store, "b/2")
    lease = store.lease(1.0)
    store.txn([], [Put("a/9", b"", lease.id)])
    clock.advance(2.0)
    events = watch.poll()
    assert not isinstance(events, Resync)
    assert sorted(events[:2]) == [(2, "a/1", b"1"), (2, "a/2", b"2")]
    assert events[2:] == [(3, "a/1", None), (6, "a/9", b""), (7, "a/9", None)]
    assert len(reported) == 4
    watch.close()
    put(store, "a/3")
    assert len(reported) == 4


def test_a_watch_never_parts_a_revision(store: MetadataStore) -> None:
    for _ in range(25):
        store.txn([], [Put(f"a/{i:02d}", b"") for i in range(99)])
    watch = store.watch("a/", from_revision=3)
    found: list[Event] = []
    polls = 0
    while events := watch.poll():
        assert not isinstance(events, Resync)
        assert not found or events[0].revision == found[-1].revision + 1
        found += events
        polls += 1
    assert polls > 1
    assert [event.revision for event in found] == [revision for revision in range(3, 26) for _ in range(99)]


def test_a_watch_that_slept_too_long_must_list_again(store: MetadataStore) -> None:
    for i in range(5):
        put(store, f"a/{i}")
    watch = store.watch("a/", from_revision=2)
    fresh = store.watch("a/", from_revision=4)
    store.compact(4)
    assert watch.poll() == Resync(5)
    assert watch.poll() == []
    put(store, "a/5")
    assert watch.poll() == [Event(6, "a/5", b"v")]
    later = fresh.poll()
    assert not isinstance(later, Resync)
    assert [event.revision for event in later] == [4, 5, 6]
    store.compact(100)
    assert put(store, "a/6") == 7
    assert watch.poll() == [Event(7, "a/6", b"v")]


steps = st.lists(
    st.tuples(st.sampled_from(["put", "delete", "cas"]), st.sampled_from("abc"), st.binary(max_size=2)), max_size=30
)


@given(steps=steps)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=40)
def test_both_stores_do_the_same(steps: list[tuple[str, str, bytes]], tmp_path_factory: pytest.TempPathFactory) -> None:
    clock = ManualClock()
    path = tmp_path_factory.mktemp("same") / "meta.db"
    stores: list[MetadataStore] = [
        MemoryStore(clock=clock, random=SeededRandom(1)),
        SqliteStore(path, clock=clock, random=SeededRandom(1), durable=False),
    ]

    def run(store: MetadataStore) -> list[Any]:
        seen: list[Any] = []
        watch = store.watch("", from_revision=1)
        for kind, key, value in steps:
            if kind == "put":
                seen.append(store.txn([], [Put(key, value)]))
            elif kind == "delete":
                seen.append(store.txn([], [Delete(key)]))
            else:
                seen.append(store.txn([Compare(key, "value", "=", value)], [Put("won", key.encode())], [Delete("won")]))
        return [*seen, store.range(""), watch.poll()]

    one, two = map(run, stores)
    for made in stores:
        made.close()
    assert one == two


# -- only the store in a file ------------------------------------------------------------------------------------------


@pytest.fixture
def opened(tmp_path: Path, clock: ManualClock) -> Iterator[Callable[..., SqliteStore]]:
    stores = []

    def open_store(path: Path | None = None) -> SqliteStore:
        stores.append(SqliteStore(path or tmp_path / "meta.db", clock=clock, random=SeededRandom(len(stores))))
        return stores[-1]

    yield open_store
    for made in stores:
        made.close()


def test_everything_survives_a_restart(opened: Callable[..., SqliteStore], clock: ManualClock) -> None:
    store = opened()
    identity = store.cluster_id
    lease = store.lease(10.0)
    store.txn([], [Put("owner", b"me", lease.id)])
    put(store, "a")
    store.counter("n")
    store.compact(2)
    clock.advance(8.0)
    store.close()
    again = opened()
    assert again.cluster_id == identity
    assert again.status()[:2] == (4, 2)
    assert again.counter("n") == 2
    assert again.watch("", from_revision=1).poll() == Resync(5)
    clock.advance(9.0)  # leases start anew, since nobody knows how long the store was closed
    assert again.get("owner") is not None
    clock.advance(1.0)
    assert again.get("owner") is None


def test_one_process_at_a_time(opened: Callable[..., SqliteStore]) -> None:
    store = opened()
    with pytest.raises(StoreUnavailable):
        opened()
    store.close()
    opened()


def test_a_crash_between_any_two_writes_leaves_whole_transactions(
    opened: Callable[..., SqliteStore], tmp_path: Path
) -> None:
    store = opened()
    copies: list[tuple[Path, int]] = []

    def copy(statement: str) -> None:
        folder = tmp_path / f"crash{len(copies)}"
        folder.mkdir()
        for file in tmp_path.glob("meta.db*"):
            shutil.copy(file, folder)
        copies.append((folder / "meta.db", store.revision))

    store._sqlite.connection.set_trace_callback(copy)
    for i in range(4):
        store.txn([], [Put("x", b"%d" % i), Put("y", b"%d" % i)])
    store._sqlite.connection.set_trace_callback(None)
    assert len(copies) > 20
    for path, revision in copies:
        found = opened(path)
        x, y = found.get("x"), found.get("y")
        assert (x and (x.value, x.revision)) == (y and (y.value, y.revision))
        assert found.revision in (revision, revision + 1)
        found.close()


def test_a_failed_write_is_surely_not_applied(opened: Callable[..., SqliteStore]) -> None:
    store = opened()
    put(store, "a")
    trigger = "create trigger broken before insert on events begin select raise(abort, 'no'); end"
    store._sqlite.connection.execute(trigger)
    with pytest.raises(StoreUnavailable):
        put(store, "a", b"new")
    store._sqlite.connection.execute("drop trigger broken")
    found = store.get("a")
    assert found is not None
    assert (found.value, store.revision) == (b"v", 1)
    assert put(store, "b") == 2


@pytest.mark.parametrize("applied", [True, False])
def test_a_failed_commit_is_indeterminate(
    opened: Callable[..., SqliteStore], monkeypatch: pytest.MonkeyPatch, applied: bool
) -> None:
    store = opened()

    def failing() -> None:
        store._sqlite.connection.execute("commit" if applied else "rollback")
        raise Indeterminate("the answer was lost")

    monkeypatch.setattr(store._sqlite, "commit", failing)
    with pytest.raises(Indeterminate):
        put(store, "a")
    monkeypatch.undo()
    assert (store.get("a") is not None) is applied
    assert put(store, "b") == (2 if applied else 1)


def test_other_files_are_refused(opened: Callable[..., SqliteStore], tmp_path: Path) -> None:
    (tmp_path / "text").write_text("this is not a database, and long enough to be checked" * 20)
    with pytest.raises(StoreUnavailable):
        opened(tmp_path / "text")
    opened().close()
    connection = sqlite3.connect(tmp_path / "meta.db")
    connection.execute("update about set value = 2 where name = 'format'")
    connection.commit()
    connection.close()
    with pytest.raises(StoreUnavailable, match="format 2"):
        opened()


def test_a_closed_store_is_unavailable(opened: Callable[..., SqliteStore]) -> None:
    store = opened()
    store.close()
    with pytest.raises(StoreUnavailable):
        store.get("a")


def test_a_page_ends_before_it_is_more_than_a_process_takes_in_one_message(store: MetadataStore) -> None:
    value = bytes(900_000)
    for number in range(25):
        put(store, f"a/{number:02d}", value)
    found: list[str] = []
    more, after = True, None
    while more:
        page = store.range("a/", after=after)
        assert 0 < sum(len(item.value) for item in page.items) < contract.RANGE_BYTES + len(value)
        found, more = found + [item.key for item in page.items], page.more
        after = found[-1]
    assert found == [f"a/{number:02d}" for number in range(25)]

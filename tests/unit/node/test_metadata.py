"""The metadata file of a node: whatever its state, the server starts with what the log says."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from syncpoint.base.model.errors import FailedPrecondition
from syncpoint.base.runtime.clock import ManualClock
from syncpoint.base.runtime.random import SeededRandom
from syncpoint.broker.publish.facts.recovery import RecoveredState
from syncpoint.broker.publish.facts.source import SourceTable
from syncpoint.catalog.metadata.mirror import CatalogMirror, Identities
from syncpoint.catalog.metadata.records import CatalogChange, Setting, Topic
from syncpoint.node.metadata import align, damage, open_metadata

CLOCK, RANDOM = ManualClock(), SeededRandom(1)


def filled(path: Path, topics: int = 200) -> RecoveredState:
    """A store at `path` that agrees with the catalog it was made from."""
    memory = RecoveredState(SourceTable(10**12, 1))
    for number in range(1, topics + 1):
        change = CatalogChange.put(Topic(number, f"projects/p/topics/topic-{number}")).at(number)
        memory.catalog.apply(change)
        memory.changes.append(change)
    store = open_metadata(path, CLOCK, RANDOM)
    Identities(store).adopt_universe(10**12)
    align(CatalogMirror(store), memory)
    store.close()
    return memory


def test_a_good_file_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "metadata.sqlite"
    assert damage(path) is None
    filled(path)
    assert damage(path) is None
    store = open_metadata(path, CLOCK, RANDOM)
    assert Identities(store).universe == 10**12
    assert len(list(CatalogMirror(store).records())) == 200
    store.close()
    assert [one.name for one in tmp_path.iterdir() if "damaged" in one.name] == []


def spoil_head(path: Path) -> None:
    path.write_bytes(b"not a database at all " * 100)


def spoil_middle(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[4096:-4096] = b"\xa5" * (len(content) - 8192)
    path.write_bytes(content)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def forget_format(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("delete from about")
        connection.commit()


@pytest.mark.parametrize("spoil", [spoil_head, spoil_middle, cut, forget_format])
def test_a_damaged_file_is_set_aside_and_made_anew(tmp_path: Path, caplog: pytest.LogCaptureFixture, spoil) -> None:
    path = tmp_path / "metadata.sqlite"
    for _ in range(2):  # the second one takes the place of the first
        memory = filled(path)
        spoil(path)
        assert damage(path) is not None
        store = open_metadata(path, CLOCK, RANDOM)
        mirror = CatalogMirror(store)
        align(mirror, memory)
        assert len(list(mirror.records())) == 200
        assert Identities(store).universe is None
        store.close()
        path.unlink()
    assert "is damaged" in caplog.text
    assert [one.name for one in tmp_path.glob("*.damaged")] == ["metadata.sqlite.damaged"]


def test_a_locked_file_is_not_taken_for_a_damaged_one(tmp_path: Path) -> None:
    path = tmp_path / "metadata.sqlite"
    first = open_metadata(path, CLOCK, RANDOM)
    with pytest.raises(FailedPrecondition, match="locked"):
        open_metadata(path, CLOCK, RANDOM)
    first.close()


@pytest.mark.parametrize("known", [0, 50, 199, 200])
@pytest.mark.parametrize("replayed", [0, 1, 150, 200])
def test_an_old_copy_is_brought_to_the_logs_revision(tmp_path: Path, known: int, replayed: int) -> None:
    """Known: up to here the copy has it; replayed: so many of the newest changes stood behind the checkpoint."""
    path = tmp_path / "metadata.sqlite"
    filled(path, known)
    memory = filled(tmp_path / "other.sqlite")
    memory.changes = [CatalogChange.put(record).at(n) for n, record in enumerate(memory.catalog.topics(), 1)][
        200 - replayed :
    ]
    store = open_metadata(path, CLOCK, RANDOM)
    align(CatalogMirror(store), memory)
    again = CatalogMirror(store)
    assert again.agrees(memory.catalog)
    assert sorted(record.name for record in again.records()) == sorted(one.name for one in memory.catalog.topics())
    store.close()


def test_a_copy_that_is_ahead_of_the_log_is_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "metadata.sqlite"
    filled(path, 210)
    memory = filled(tmp_path / "other.sqlite", 200)
    store = open_metadata(path, CLOCK, RANDOM)
    align(CatalogMirror(store), memory)
    assert len(list(CatalogMirror(store).records())) == 200
    store.close()


def test_a_copy_that_cannot_be_written_keeps_nobody_from_being_served(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Whether it follows the log's tail or is made anew; once what is too large is gone, the next start makes it."""
    path = tmp_path / "metadata.sqlite"
    memory = filled(path)
    large = Setting("iam-policy:topics/1", bytes(1_200_000))
    for number, change in enumerate((CatalogChange.put(large), CatalogChange.put(Topic(1000, "projects/p/topics/z")))):
        memory.changes.append(change.at(201 + number))
        memory.catalog.apply(memory.changes[-1])
    for missing in (memory.changes, []):
        memory.changes = list(missing)
        store = open_metadata(path, CLOCK, RANDOM)
        mirror = CatalogMirror(store)
        align(mirror, memory)
        assert "1200" in mirror.failed
        mirror.note([CatalogChange.put(Topic(2000, "projects/p/topics/y")).at(203)])
        mirror.flush()
        store.close()
    assert "is not updated until the next start" in caplog.text
    memory.catalog.apply(CatalogChange.delete(large).at(203))
    store = open_metadata(path, CLOCK, RANDOM)
    mirror = CatalogMirror(store)
    align(mirror, memory)
    assert (mirror.failed, mirror.revision, len(list(mirror.records()))) == ("", 203, 201)
    store.close()

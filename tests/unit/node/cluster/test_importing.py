"""The folder of a stopped node is taken over as its next start would have found it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from syncpoint.kernel import frames
from syncpoint.metadata.records import CatalogChange, Topic, encode_changes
from syncpoint.node.cluster import importing
from syncpoint.node.cluster.importing import OneNode
from syncpoint.pipeline.cursors import Cursors
from syncpoint.pipeline.cursors_facts import encode
from syncpoint.pipeline.epoch_apply import NUMBER
from syncpoint.pipeline.epochs import CommitRequest, Decided, EpochState
from syncpoint.pipeline.facts import link as link_fact
from syncpoint.pipeline.links import Interval, LinkState
from syncpoint.pipeline.records import Piece, QueryRun, Stage
from syncpoint.pipeline.staging import STAGING_TOPIC
from syncpoint.publish import records
from syncpoint.publish.retention import is_needed
from syncpoint.runtime.clock import SystemClock
from syncpoint.runtime.files import OsFiles
from syncpoint.runtime.random import SystemRandom
from syncpoint.storage.record import EntryKind
from syncpoint.storage.settings import StorageSettings
from syncpoint.storage.store import Store

MESSAGE = b"\x0a\x03abc"
STAGED = len(MESSAGE).to_bytes(4, "little") + MESSAGE


async def decided_and_killed(folder: Path) -> None:
    """A folder whose node died behind the decision of an epoch, and before its first message."""
    node = OneNode(folder, [folder / "disk"], SystemClock(), SystemRandom())
    try:
        forwarder, state, run = node.forwarder, EpochState(), QueryRun("q", "r")
        changes = forwarder.catalog.assign([CatalogChange.put(Topic(1, "projects/p/topics/one"))])
        forwarder.commit.append_fact(EntryKind.CATALOG, encode_changes(changes))
        staging = forwarder.open_source(STAGING_TOPIC)
        first = forwarder.commit.append_batch(staging, STAGED * 2, 2, lambda error: None)
        facts = state.hear(run, 0).facts
        piece = Piece(1, first, 2, len(STAGED) * 2)
        stage = Stage(state.new_id(), *run, 0, 0, "x", 0, staging.number, {1: "projects/p/topics/one"}, (piece,))
        facts += state.stage(stage).facts
        outcome = state.decide(CommitRequest(run, 0, [(0, "x")]), 0, lambda topic: True)
        assert isinstance(outcome, Decided)
        persisted = asyncio.Event()
        for fact in (*facts, *outcome.facts):
            forwarder.commit.append_fact(EntryKind.LEDGER, records.encode_extension(NUMBER, fact))
        forwarder.commit.append_fact(EntryKind.LEDGER, records.encode_source(staging), lambda error: persisted.set())
        await asyncio.wait_for(persisted.wait(), 20)
    finally:
        await node.close()


def empty_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a node that has nothing yet, with one small disk."""
    small = StorageSettings(segment_bytes=1 << 20)
    monkeypatch.setattr(importing, "StorageSettings", lambda: small)
    (folder / "disk").mkdir()
    Store.open(
        [folder / "disk"], small, files=OsFiles(), clock=SystemClock(), random=SystemRandom(), notify=lambda act: None
    ).close()


def test_epochs_that_were_decided_are_finished_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    empty_folder(tmp_path, monkeypatch)

    async def taken_over() -> list[bytes]:
        await decided_and_killed(tmp_path)
        node = OneNode(tmp_path, [tmp_path / "disk"], SystemClock(), SystemRandom())
        try:
            assert not node.memory.sources.of_topic(1)
            await node.finish_epochs()
            (source,) = node.memory.sources.of_topic(1)
            (batch,) = await node.read(source.number, 0)
            return [frames.message_at(batch.payload, at) for at in range(batch.count)]
        finally:
            await node.close()

    found = asyncio.run(taken_over())
    assert [body[: len(MESSAGE)] for body in found] == [MESSAGE, MESSAGE]


def test_a_folder_is_closed_by_one_thread_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the loop hears from the disks while another thread closes the store must not change the log any more."""
    empty_folder(tmp_path, monkeypatch)

    async def closed() -> list[bool]:
        node = OneNode(tmp_path, [tmp_path / "disk"], SystemClock(), SystemRandom())
        taking: list[bool] = []
        close = node.store.close

        def noted() -> None:
            taking.append(node.store._disks.accepting)
            close()

        monkeypatch.setattr(node.store, "close", noted)
        await node.close()
        return taking

    assert asyncio.run(closed()) == [False], "the loop could still append while another thread sealed the log"


def test_links_and_cursors_come_along_and_hold_what_they_need(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    empty_folder(tmp_path, monkeypatch)

    async def used() -> None:
        node = OneNode(tmp_path, [tmp_path / "disk"], SystemClock(), SystemRandom())
        try:
            forwarder, state, run = node.forwarder, EpochState(), QueryRun("q", "r")
            changes = forwarder.catalog.assign([CatalogChange.put(Topic(1, "projects/p/topics/one"))])
            forwarder.commit.append_fact(EntryKind.CATALOG, encode_changes(changes))
            staging = forwarder.open_source(STAGING_TOPIC)
            first = forwarder.commit.append_batch(staging, STAGED, 1, lambda error: None)
            forwarder.commit.append_batch(forwarder.open_source(1), STAGED * 3, 3, lambda error: None)
            facts = state.hear(run, 0).facts
            piece = Piece(1, first, 1, len(STAGED))
            stage = Stage(state.new_id(), *run, 0, 0, "x", 0, staging.number, {1: "projects/p/topics/one"}, (piece,))
            facts += [*state.stage(stage).facts, link_fact(LinkState("l", "ab/1", {5: Interval(0, 0, 0, 9)}))]
            for fact in facts:
                forwarder.commit.append_fact(EntryKind.LEDGER, records.encode_extension(NUMBER, fact))
            persisted = asyncio.Event()
            cursor = encode(1, "c", (60, 0, 0), 0, {}, (), ())
            fact = records.encode_extension(Cursors.number, cursor)
            forwarder.commit.append_fact(EntryKind.LEDGER, fact, lambda error: persisted.set())
            await asyncio.wait_for(persisted.wait(), 20)
        finally:
            await node.close()

    async def taken_over() -> tuple[EpochState, list[str], list[bool]]:
        await used()
        node = OneNode(tmp_path, [tmp_path / "disk"], SystemClock(), SystemRandom())
        try:
            await node.finish_epochs()
            state, needed = EpochState(), []
            for fact in node.facts():
                if fact[0] == records.FactKind.EXTENSION and fact[1] == NUMBER:
                    state.apply(fact[2:])
            for source, begin, end in node.batches():
                needed.append(is_needed(node.forwarder, source, begin, end - begin, SystemClock().time_ns()))
            return state, [str(one.name) for one in node.cursor_names()], needed  # type: ignore[union-attr]
        finally:
            await node.close()

    state, names, needed = asyncio.run(taken_over())
    assert (set(state.queries), set(state.links), state.stages) == ({"q"}, {"l"}, {})
    assert names == ["cursors/1"]
    assert sorted(needed) == [False, True]  # what is only staged, and what the cursor has not passed

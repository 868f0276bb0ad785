"""Exceptions between what memory is given and what the log is given: the log ends, nothing is stored twice or by half,
and everybody who waits is answered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import pytest

from syncpoint.base.kernel.acks import encode_runs
from syncpoint.base.model.errors import SyncpointError, Unavailable
from syncpoint.broker.publish.facts import records
from syncpoint.broker.publish.facts.ledger import Ledger
from syncpoint.catalog.metadata.records import CatalogChange, Subscription
from syncpoint.cluster.control.log_commit import LogCommit
from syncpoint.cluster.control.plane import ControlPlane
from syncpoint.log.storage.record import EntryKind
from syncpoint.testing.rigs.forwarder_harness import TOPIC, ForwarderHarness
from syncpoint.testing.rigs.forwarder_harness import Subscriber as Client
from tests.kit.chain import ChainHarness, Process, simulated
from tests.kit.chain_subscriber import Subscriber


def out_of_memory(*of: Any, **named: Any) -> Any:
    raise MemoryError("not now")


async def read_all(process: Process, incarnation: int) -> list[str]:
    subscriber = await Subscriber(process, incarnation).attached()
    return await subscriber.read_all()


@simulated
async def test_a_batch_of_which_no_note_could_be_taken_is_not_stored_twice(
    harness: ChainHarness, *, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await harness.subscribed()
    await first.publish("before", batch=900)
    with monkeypatch.context() as patched:
        patched.setattr("syncpoint.broker.publish.intake.ingress.BatchFact", out_of_memory)
        with pytest.raises(SyncpointError, match="outcome is unknown"):
            await first.publish("a", batch=901)
    if 1 in first.host.chains:  # it goes on, as if nothing were wrong
        await first.publish("a", batch=901, resent=True)
    second = await harness.succeeded(first)
    await second.publish("a", batch=901, resent=True)
    assert await read_all(second, 11) == ["before", "a"]


def break_entry(harness: ForwarderHarness, patched: pytest.MonkeyPatch) -> None:
    patched.setattr("syncpoint.broker.publish.commit.append.PendingEntry.add", out_of_memory)


def break_turn(harness: ForwarderHarness, patched: pytest.MonkeyPatch) -> None:
    patched.setattr(harness.publish.commit, "_soon", out_of_memory)


@pytest.mark.parametrize("broken", [break_entry, break_turn])
def test_a_publish_that_is_taken_by_half_is_answered_and_written_by_nobody(
    broken: Callable[[ForwarderHarness, pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = ForwarderHarness()
    subscriber = Client(harness)
    harness.send("first")
    with monkeypatch.context() as patched:
        broken(harness, patched)
        caller = harness.send("x")
    assert caller.ids is None
    assert isinstance(caller.error, Unavailable)
    assert harness.publish.commit.failed is not None
    assert harness.publish.admission.system.messages == 0
    with pytest.raises(Unavailable):
        harness.send("y")
    harness.restart()
    subscriber = Client(harness)
    harness.quiesce()
    assert subscriber.data == ["first"]


def test_a_publish_that_can_not_be_counted_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = ForwarderHarness()
    subscriber = Client(harness)
    with monkeypatch.context() as patched:
        patched.setattr(harness.publish.admission, "enter", out_of_memory)
        with pytest.raises(MemoryError):
            harness.send("x")
    assert harness.send("y").ids
    assert subscriber.data == ["y"]


def test_a_source_the_log_does_not_know_takes_no_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = ForwarderHarness()
    with monkeypatch.context() as patched:
        patched.setattr(records, "encode_source", out_of_memory)
        with pytest.raises(MemoryError):
            harness.send("x")
    with pytest.raises(Unavailable):
        harness.send("y")


def test_a_ledger_the_log_does_not_know_is_not_judged_by(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = ForwarderHarness()
    harness.send("x")
    with monkeypatch.context() as patched:
        patched.setattr(records, "encode_ledger", out_of_memory)
        with pytest.raises(MemoryError):
            harness.publish.begin_ledger(Ledger(2, 1))
    assert harness.publish.commit.failed is not None


def test_a_fact_nobody_can_wait_for_ends_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = ForwarderHarness()
    with monkeypatch.context() as patched:
        patched.setattr(harness.publish.commit._waiting, "add", out_of_memory)
        with pytest.raises(MemoryError):
            harness.publish.commit.append_fact(EntryKind.LEDGER, records.encode_revision(1), lambda error: None)
    assert harness.publish.commit.failed is not None


def test_an_acknowledgement_taken_by_half_is_answered_as_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = ForwarderHarness()
    harness.send("x")
    (source,) = harness.publish.sources.of_topic(1)
    reported: list[Any] = []
    with monkeypatch.context() as patched:
        patched.setattr(records, "Acks", out_of_memory)
        harness.publish.server.acknowledge(2, 0, source.number, encode_runs([(0, 1)]), reported.append, urgent=True)
    assert [isinstance(one, Unavailable) for one in reported] == [True]
    harness.restart()
    subscriber = Client(harness)
    harness.quiesce()
    assert subscriber.data == ["x"]


def test_a_turn_that_can_not_be_put_off_is_not_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = ForwarderHarness()
    with monkeypatch.context() as patched:
        patched.setattr(harness.publish.commit, "_soon", out_of_memory)
        with pytest.raises(MemoryError):
            harness.publish.commit.flush_soon()
    assert harness.send("x").ids


def test_whoever_fails_to_listen_keeps_nothing_from_the_others() -> None:
    harness = ForwarderHarness()
    subscriber = Client(harness)
    harness.quiesce()
    first = harness.send("a", quiesce=False)
    first.reply = out_of_memory  # type: ignore[method-assign]
    second = harness.send("b", quiesce=False)
    reported: list[Any] = []
    for done in (out_of_memory, reported.append):
        harness.publish.commit.append_fact(EntryKind.LEDGER, records.encode_revision(1), done)
    last = harness.send("c", quiesce=False)
    harness.quiesce()
    assert second.ids
    assert last.ids
    assert reported == [None]
    assert subscriber.data == ["a", "b", "c"]


def test_whoever_fails_to_learn_of_a_deletion_does_not_undo_it(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = ForwarderHarness()
    Client(harness)
    harness.quiesce()
    (listener,) = harness.publish.server._listeners.values()
    monkeypatch.setattr(listener, "on_removed", out_of_memory)
    harness.commit(CatalogChange.delete(harness.record))
    assert harness.record.incarnation not in harness.publish.ledgers
    assert harness.publish.commit.failed is None


def test_a_change_of_the_catalog_that_is_followed_by_half_ends_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = ForwarderHarness()
    control = ControlPlane(
        LogCommit(harness.follower, Mock(), [harness.follower.changed]), harness.clock, harness.random
    )
    made = Subscription(9, "projects/p/subscriptions/new", 1, TOPIC)
    monkeypatch.setattr(harness.publish.memory.ledgers, "take", out_of_memory)
    with pytest.raises(MemoryError):
        asyncio.run(control.create(made))
    with pytest.raises(Unavailable):
        harness.send("nobody keeps it for the new one")


def test_whoever_fails_to_learn_of_the_end_keeps_it_from_nobody() -> None:
    harness = ForwarderHarness()
    ended: list[bool] = []
    harness.publish.commit.on_failed = lambda: ended.append(True)
    first = harness.send("a", quiesce=False)
    first.fail = out_of_memory  # type: ignore[method-assign]
    second = harness.send("b", quiesce=False)
    harness.store.fail(OSError("no disk left"))
    assert isinstance(second.error, Unavailable)
    assert ended == [True]

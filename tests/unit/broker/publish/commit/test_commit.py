"""The group commit alone: in which order a log is given what a turn brings, and who learns of it when."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

from syncpoint.base.kernel.acks import encode_runs
from syncpoint.base.model.errors import GivenUp
from syncpoint.base.model.flow import FlowLimits
from syncpoint.base.runtime.clock import ManualClock
from syncpoint.base.runtime.trusted import TrustedClock
from syncpoint.broker.publish.commit.admission import Admission
from syncpoint.broker.publish.commit.append import AckBatch, CommitWaiters, FunctionCaller, PendingEntry, completion
from syncpoint.broker.publish.commit.commit import GroupCommit
from syncpoint.broker.publish.facts import records
from syncpoint.broker.publish.facts.source import Source
from syncpoint.log.storage.record import EntryKind
from syncpoint.testing.rigs.memory_store import StoreInMemory

FRAME = b"\x01\0\0\0x"


class Turns:
    """A commit over a log in memory. `answers`: what was said to each caller, by name."""

    def __init__(self) -> None:
        self.store, self.soon = StoreInMemory(), deque[Callable[[], None]]()
        clock = TrustedClock(ManualClock())
        self.commit = GroupCommit(
            self.store,  # type: ignore[arg-type]
            clock,
            Admission(FlowLimits()),
            self.soon.append,
            lambda seconds, act: None,
        )
        self.answers: dict[str, Any] = {}

    def answer(self, name: str) -> Callable[[Any], None]:
        return lambda answer: self.answers.update({name: answer})

    def publish(self, source: Source, name: str, count: int = 1) -> None:
        caller = FunctionCaller(self.answer(name), self.answer(name))
        self.commit.turn_time()
        self.commit.add(source, count, FRAME * count, caller, name.encode())

    def acknowledge(self, source: Source, name: str, *, urgent: bool = True) -> None:
        self.commit.acknowledge(2, 0, source.number, encode_runs([(0, 1)]), self.answer(name), urgent=urgent)

    def end(self) -> None:
        while self.soon:
            self.soon.popleft()()

    def places(self) -> list[tuple[EntryKind, int, int, int]]:
        return [(one.kind, one.source, one.first_offset, one.count) for one in self.store.entries]


def test_of_a_source_only_what_is_persisted_is_visible() -> None:
    turns, source = Turns(), Source(7, 1)
    turns.publish(source, "first", 2)
    turns.end()
    turns.publish(source, "second", 3)
    turns.end()
    turns.commit.store.on_persisted(1)
    assert (source.visible, source.end) == (2, 5)
    assert turns.answers == {"first": b"first"}
    turns.commit.store.on_persisted(2)
    assert source.visible == 5
    assert turns.answers == {"first": b"first", "second": b"second"}


def test_what_came_first_stays_first_in_the_log() -> None:
    turns, source, other = Turns(), Source(7, 1), Source(8, 2)
    turns.publish(source, "a", 2)
    turns.commit.append_fact(EntryKind.LEDGER, b"fact")
    turns.publish(source, "b")
    assert turns.commit.append_batch(source, FRAME, 1, turns.answer("batch")) == 3
    turns.publish(other, "c")
    turns.publish(source, "d")
    turns.end()
    assert turns.places() == [
        (EntryKind.MESSAGES, 7, 0, 2),
        (EntryKind.LEDGER, 0, 0, 0),
        (EntryKind.MESSAGES, 7, 2, 1),
        (EntryKind.MESSAGES, 7, 3, 1),
        (EntryKind.MESSAGES, 8, 0, 1),
        (EntryKind.MESSAGES, 7, 4, 1),
    ]


def test_the_log_of_one_source_ends_where_it_was_given_its_last_not_where_another_waits() -> None:
    turns, source, idle = Turns(), Source(7, 1), Source(8, 2, end=9, visible=9)
    turns.publish(source, "a")
    assert turns.commit.appended_end(source) == 0
    assert turns.commit.appended_end(idle) == 9


@pytest.mark.parametrize("urgent", [True, False])
def test_who_waits_for_acknowledgements_waits_for_those_that_are_not_written_yet(*, urgent: bool) -> None:
    turns, source = Turns(), Source(7, 1)
    turns.publish(source, "a")
    turns.end()
    turns.acknowledge(source, "ack", urgent=urgent)
    turns.commit.when_acks_persisted(turns.answer("all"))
    turns.commit.store.on_persisted(1)
    assert "all" not in turns.answers
    turns.end()
    assert turns.commit.acks.is_unpersisted(2, 7)
    turns.commit.store.on_persisted(2)
    assert turns.answers == {"a": b"a", "ack": None, "all": None}
    assert not turns.commit.acks.is_unpersisted(2, 7)


def test_acknowledgements_of_a_log_that_ended_are_never_persisted() -> None:
    turns, source = Turns(), Source(7, 1)
    turns.acknowledge(source, "ack")
    turns.end()
    turns.commit.give_up(RuntimeError("the disks are gone"))
    assert isinstance(turns.answers["ack"], GivenUp)
    assert turns.commit.acks.is_unpersisted(2, 7)


@pytest.mark.parametrize("broken", [0, 1, 2])
def test_a_turn_that_breaks_anywhere_answers_everybody_and_counts_nobody(
    monkeypatch: pytest.MonkeyPatch, broken: int
) -> None:
    turns, sources = Turns(), [Source(number, number) for number in (7, 8, 9)]
    for source in sources:
        turns.publish(source, str(source.number))
    append = turns.store.append

    def breaks(*of: Any, **named: Any) -> int:
        if len(turns.store.entries) == broken:
            raise MemoryError("not now")
        return append(*of, **named)

    monkeypatch.setattr(turns.store, "append", breaks)
    with pytest.raises(MemoryError):
        turns.end()
    turns.commit.store.on_persisted(3)
    assert {name: type(answer) for name, answer in turns.answers.items()} == dict.fromkeys("789", GivenUp)
    assert [source.visible for source in sources] == [0, 0, 0]
    assert turns.commit.admission.system.messages == 0


def test_an_entry_without_a_position_is_never_persisted() -> None:
    waiters, entry = CommitWaiters(), PendingEntry(Source(7, 1), 0, 0)
    entry.add(1, FRAME, completion(lambda error: None), b"")
    waiters.add_unwritten(entry)
    assert waiters.on_persisted(1 << 40) == []
    assert waiters.on_failed() == [entry]


def test_acknowledgements_are_persisted_in_the_order_in_which_they_were_taken() -> None:
    acks = AckBatch()
    entries = []
    for offset in (0, 1):
        acks.add(records.Acks(2, 0, 7, encode_runs([(offset, 1)])), lambda error: None)
        entries.append(acks.take()[0])
    acks.on_persisted(entries[0])
    left = acks.unpersisted(2, 7)
    assert left is not None
    assert list(left.runs()) == [(1, 1)]
    acks.on_persisted(entries[1])
    assert acks.unpersisted(2, 7) is None

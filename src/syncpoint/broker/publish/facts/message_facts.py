"""MessageFacts: what a log remembers of messages besides themselves, by source and offset. The base of all its kinds.

Place: part of `commit`, which writes them. A kind (attempts, times to live, scheduled and fired messages, ids, batches)
states what one fact is, how it looks in the log, what follows from it in memory, and what of that still counts.
Promise: a fact that is noted with its messages (`GroupCommit.add`) stands in the log in front of them, with nothing in
between but others like it: where a message is found, the facts about it are there, too. They may be there without the
messages, which were lost with what followed. So a fact of a kind that `counts` has the number of entries after it that
hold them: by the place alone recovery knows whether they were persisted, also when they were deleted since.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Generic, TypeVar

from syncpoint.base.model.delivery import Done
from syncpoint.broker.publish.facts.records import BEHIND, ExtensionNumber, FactKind
from syncpoint.broker.publish.facts.source import Source
from syncpoint.log.storage.record import EntryKind
from syncpoint.log.storage.store import Store

ENTRY_FACTS = 200  # of one entry: a fact may be about all messages of a request
Fact = TypeVar("Fact")


class FactLog:
    """Where facts about messages are written: in front of those of this turn, or by themselves with `append`."""

    def __init__(self, append: Callable[[EntryKind, bytes, Done | None], None]) -> None:
        self.append = append
        self.writers: list[Callable[[int], tuple[EntryKind, bytes]]] = []
        """Of this turn: each makes one entry, given how many entries after it, up to the last message, belong to the
        turn."""

    def write_in_front(self, store: Store, messages: int) -> None:
        """Write the noted facts, followed by the given number of entries of messages."""
        writers, self.writers = self.writers, []
        behind = len(writers) + messages
        for write in writers:
            behind -= 1
            store.append(*write(behind))


class MessageFacts(ABC, Generic[Fact]):
    """Facts of one kind, an extension of the log unless it sets another `head`."""

    number: ExtensionNumber  # what its entries are marked with
    head: bytes  # what each entry of the kind begins with
    row: struct.Struct  # a fact, where all are alike
    made_of: type[Any]  # what is made of a row
    counts = True  # whether an entry has the number of following entries that hold the messages
    part = 200  # facts in one entry of a checkpoint

    def __init_subclass__(cls) -> None:
        if hasattr(cls, "number"):
            cls.head = bytes((FactKind.EXTENSION, cls.number))

    def __init__(self, log: FactLog) -> None:
        self._log = log
        self._noted: list[Fact] = []

    # -- what a kind states ------------------------------------------------------------------------------------------

    @classmethod
    def encode(cls, facts: Sequence[Any]) -> bytes:
        """Facts as the log has them."""
        return b"".join(cls.row.pack(*fact) for fact in facts)

    @classmethod
    def decode(cls, rows: bytes) -> Iterable[Any]:
        """What was encoded."""
        return (cls.made_of(*row) for row in cls.row.iter_unpack(rows))

    @abstractmethod
    def apply(self, fact: Fact) -> None:
        """A fact is so from now on. One that was read may be applied twice, and over later ones."""

    def stored(self, fact: Fact) -> Fact | None:
        """What of a fact is about messages that are stored, if the log may have ended in front of them."""
        return fact

    def kept(self) -> Iterator[Fact]:
        """All that counts, drawn over many turns; what is deleted, or over, may be dropped."""
        return iter(())

    def forgotten(self, source: Source) -> None:
        """Nothing of a sealed source is stored any more, and it leaves the table."""

    # -- what all of them do -----------------------------------------------------------------------------------------

    def note(self, *facts: Fact) -> None:
        """State facts about messages that are added in this step, in which nothing is written."""
        for fact in facts:
            if len(self._noted) % ENTRY_FACTS == 0:
                self._log.writers.append(self._entry_in_front)
            self._noted.append(fact)
            self.apply(fact)

    def _entry_in_front(self, behind: int) -> tuple[EntryKind, bytes]:
        noted, self._noted = self._noted[:ENTRY_FACTS], self._noted[ENTRY_FACTS:]
        return EntryKind.LEDGER, self.head + self.body(noted, behind)

    @classmethod
    def body(cls, facts: Sequence[Fact], behind: int = 0) -> bytes:
        """An entry without its head. `behind`: so many entries hold the messages; 0: they are persisted already."""
        return BEHIND.pack(behind) + cls.encode(facts) if cls.counts else cls.encode(facts)

    @classmethod
    def facts_in(cls, body: bytes) -> Iterable[Fact]:
        """Those of an entry without its head."""
        return cls.decode(body[BEHIND.size :] if cls.counts else body)

    def write(self, body: bytes, done: Done | None = None) -> None:
        """Write an entry by itself; persisted before `done`."""
        self._log.append(EntryKind.LEDGER, self.head + body, done)

    def facts(self) -> Iterator[bytes]:
        """All that counts, for a checkpoint: entries without their heads."""
        kept = self.kept()
        while part := list(islice(kept, self.part)):
            yield self.body(part)

    def recover(self, found: Iterable[bytes], unsure: Container[bytes] = ()) -> None:
        """Take over what recovery found, entries without their heads, once it is known where each source ends.
        `unsure`: whole entries behind which the log may have ended in front of their messages. What of these was not
        lost is written again: sources are forgotten.
        """
        again: list[Fact] = []
        for body in found:
            doubtful = self.head + body in unsure
            for fact in self.facts_in(body):
                left = self.stored(fact) if doubtful else fact
                if left is not None:
                    self.apply(left)
                    again += [left] if doubtful else []
        if again:
            self.write(self.body(again))

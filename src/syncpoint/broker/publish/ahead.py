"""Facts about messages of a turn, which stand in the log directly in front of them.

Place: part of `commit`. What is noted is written as soon as messages of the turn are, with nothing in between.
Promise: where a message is found, the facts about it are there, too. They may be there without the messages, which were
lost with what came behind; each fact says how many entries behind it hold them, so that recovery knows by the place
alone whether they were persisted, also when they were deleted since.
To be noted with `GroupCommit.add`, before or behind it, in one synchronous step in which nothing else is given to the
log: however much a request adds to a turn, `add` writes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from syncpoint.log.storage.record import EntryKind
from syncpoint.log.storage.store import Store

WriteAhead = Callable[[Store, int], None]
"""Append exactly one entry to the store; so many entries behind it, up to the last message, belong to the turn."""

Fact = TypeVar("Fact")
ENTRY_FACTS = 200  # of one entry: a fact may be about all messages of a request


class AheadOfMessages:
    """What is to be written in front of the messages of this turn."""

    def __init__(self) -> None:
        self.writers: list[WriteAhead] = []  # none: there is nothing to write

    def add(self, write: WriteAhead) -> None:
        """Write one more entry, behind those that were added before."""
        self.writers.append(write)

    def write(self, store: Store, messages: int) -> None:
        """Write all, in front of so many entries of messages."""
        writers, self.writers = self.writers, []
        behind = len(writers) + messages
        for write in writers:
            behind -= 1
            write(store, behind)

    def clear(self) -> None:
        """The log is given up."""
        self.writers.clear()


class FactsAhead(Generic[Fact]):
    """Facts of one kind, those of a turn in as few entries as that takes. `encode(facts, behind)`: see `WriteAhead`."""

    def __init__(self, ahead: AheadOfMessages, encode: Callable[[list[Fact], int], bytes]) -> None:
        self._ahead, self._encode = ahead, encode
        self._noted: list[Fact] = []

    def note(self, fact: Fact) -> None:
        """One about messages that are added in this step."""
        if len(self._noted) % ENTRY_FACTS == 0:
            self._ahead.add(self._write)
        self._noted.append(fact)

    def _write(self, store: Store, behind: int) -> None:
        noted, self._noted = self._noted[:ENTRY_FACTS], self._noted[ENTRY_FACTS:]
        store.append(EntryKind.LEDGER, self._encode(noted, behind))

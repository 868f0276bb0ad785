"""RecentBatches: a batch that is sent again after "unknown" is answered with the ids it has, not stored twice.

Place: asked by `ingress` before it takes a batch that is marked as a resend (protocol rule 20). What is remembered is
in the log, in front of the messages themselves, so it outlives the owner of the chain: that is when batches are resent.
Promise: within the newest `BATCHES_MAX` batches of a chain no batch is stored twice; both answers name the same ids.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from syncpoint.broker.publish.facts.message_facts import FactLog, MessageFacts
from syncpoint.broker.publish.facts.records import FactKind
from syncpoint.broker.publish.facts.source import SourceTable

BATCHES_MAX = 50_000  # numbered batches whose ids are remembered, for those who send them again
SCHEDULED_PART = 1 << 63
"""Part of the number of a batch: this fact is about its messages that wait for their time, not about the others."""


class BatchFact(NamedTuple):
    """The outcome of a sender's batch: where its messages are stored, from `first_offset` on."""

    sender: int
    batch: int
    source: int
    first_offset: int
    messages: int


class RecentBatches(MessageFacts[BatchFact]):
    """What became of the newest batches. `answered` counts those that were sent again and known."""

    head = bytes((FactKind.BATCHES,))
    row, made_of = struct.Struct("<QQQQI"), BatchFact
    part = 500

    def __init__(self, log: FactLog, sources: SourceTable) -> None:
        super().__init__(log)
        self._sources = sources
        self._order: deque[BatchFact] = deque(maxlen=BATCHES_MAX)
        self._known: dict[tuple[int, int], BatchFact] = {}
        self.answered = 0

    def apply(self, fact: BatchFact) -> None:
        if len(self._order) == self._order.maxlen:
            oldest = self._order.popleft()
            if self._known.get((oldest.sender, oldest.batch)) is oldest:
                del self._known[oldest.sender, oldest.batch]
        self._order.append(fact)
        self._known[fact.sender, fact.batch] = fact

    def stored(self, fact: BatchFact) -> BatchFact | None:
        """All of it is there or nothing: it came last, and nothing that would have let it go came after it."""
        source = self._sources.by_number.get(fact.source)
        return fact if source is not None and source.end >= fact.first_offset + fact.messages else None

    def kept(self) -> Iterator[BatchFact]:
        return iter(list(self._order))

    def known(self, sender: int, batch: int) -> BatchFact | None:
        """What became of a batch, which may not be persisted yet; None when it was never seen, or long ago."""
        return self._known.get((sender, batch))

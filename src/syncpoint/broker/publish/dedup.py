"""RecentBatches: a batch that is sent again after "unknown" is answered with the ids it has, not stored twice.

Place: asked by `chain` before it takes a batch that says it was sent before (protocol rule 20). What is remembered is
in the log, in front of the messages themselves, so it outlives the owner of the chain: that is when batches are resent.
Promise: within the newest `BATCHES_MAX` batches of a chain no batch is stored twice; both answers name the same ids.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection

from syncpoint.broker.publish.records import BatchFact
from syncpoint.broker.publish.source import SourceTable

SCHEDULED_PART = 1 << 63
"""Part of the number of a batch: this fact is about its messages that wait for their time, not about the others."""


class RecentBatches:
    """What became of the newest batches. `answered` counts those that were sent again and known."""

    def __init__(self, found: deque[BatchFact], unsure: Collection[BatchFact], sources: SourceTable) -> None:
        """`found` is what recovery found; it is kept up to date, as part of checkpoints. `unsure`: those of them of
        which the log does not say that their messages followed.
        """
        persisted = [one for one in found if one not in unsure or self._is_persisted(one, sources)]
        self.decided = [one for one in persisted if one in unsure]  # to be written down: sources are forgotten
        found.clear()
        found.extend(persisted)
        self._order = found
        self._known = {(one.sender, one.batch): one for one in persisted}
        self.answered = 0

    @staticmethod
    def _is_persisted(fact: BatchFact, sources: SourceTable) -> bool:
        """The fact is written first: what it speaks of may have been lost. If it was not, it is there: it came last,
        and nothing that would have let it go came after it.
        """
        source = sources.by_number.get(fact.source)
        return source is not None and source.end >= fact.first_offset + fact.messages

    def known(self, sender: int, batch: int) -> BatchFact | None:
        """What became of a batch, which may not be persisted yet; None when it was never seen, or long ago."""
        return self._known.get((sender, batch))

    def note(self, fact: BatchFact) -> None:
        """A batch was taken."""
        if len(self._order) == self._order.maxlen:
            oldest = self._order.popleft()
            if self._known.get((oldest.sender, oldest.batch)) is oldest:
                del self._known[oldest.sender, oldest.batch]
        self._order.append(fact)
        self._known[fact.sender, fact.batch] = fact

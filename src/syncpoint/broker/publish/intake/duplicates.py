"""DuplicateBatches: batches of this chain that another chain has stored, too, and that are delivered from there.

Place: between `service` and the chain's forwarder. A proxy that did not learn what became of a batch here, and had it
confirmed by another chain, says so to whoever owns this one (protocol rule 20).
Promise: what is void is acknowledged for every subscription, or cancelled where it waits for its time, and the answer
given when that is persisted. What nobody has been handed yet is never delivered then. A batch that comes after it was
said to be void is refused, with nothing stored. Saying it again changes nothing and is answered alike. Only who has the
confirmation of another chain may say it: nothing here can check that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import NamedTuple

from syncpoint.base.kernel.acks import encode_runs
from syncpoint.base.model.errors import SyncpointError, Unavailable
from syncpoint.base.model.lanes import in_lane
from syncpoint.broker.publish.facts.dedup import BATCHES_MAX, SCHEDULED_PART, BatchFact
from syncpoint.broker.publish.intake.forwarder import PublishForwarder
from syncpoint.broker.recording.record_kinds import VOID

HandedOut = Callable[[int, int], int]
"""(subscription, source): the offset up to which messages have left for somebody who delivers them."""


class Duplicates(NamedTuple):
    """Counts of the named batches stored here, and of their messages.

    `late`: messages that may already have been delivered.
    """

    batches: int
    messages: int
    late: int


class _Outcome(NamedTuple):
    messages: int  # 0: the batch was not here
    late: int
    persisted: asyncio.Future[None]


class DuplicateBatches:
    """Find batches that were stored here and in another chain.

    `duplicates` counts messages found to be stored twice, `late` those of them handed out before.
    """

    def __init__(self, forwarder: PublishForwarder, handed_out: HandedOut) -> None:
        self._forwarder, self._recent, self._handed_out = forwarder, forwarder.recent_batches, handed_out
        self._known: dict[tuple[int, int], _Outcome] = {}
        self.duplicates = self.late = 0

    def refuses(self, sender: int, batch: int) -> bool:
        """Whether a batch was declared void: if it comes now, it comes too late."""
        return (sender, batch) in self._known

    async def void(self, sender: int, batches: Iterable[int]) -> Duplicates:
        """Return once all of it is persisted. Raises `Unavailable` when the log cannot be written."""
        outcomes = self.mark(sender, batches)
        for outcome in outcomes:
            await asyncio.shield(outcome.persisted)
        found = [one for one in outcomes if one.messages]
        return Duplicates(len(found), sum(one.messages for one in found), sum(one.late for one in found))

    def mark(self, sender: int, batches: Iterable[int]) -> list[_Outcome]:
        """Acknowledge what is here of them, at once; persisted soon. Raises `Unavailable`."""
        self._forwarder.commit.check_writable()
        waiting = _PendingAcks()
        outcomes = []
        for batch in batches:
            key = (sender, batch)
            outcome = self._known.get(key)
            if outcome is None:
                fact, part = self._recent.known(sender, batch), self._recent.known(sender, batch | SCHEDULED_PART)
                late = 0 if fact is None else self._acknowledge(fact, waiting)
                late += 0 if part is None else self._cancel(part, waiting)
                messages = sum(one.messages for one in (fact, part) if one is not None)
                outcome = _Outcome(messages, late, waiting.over)
                self._known[key] = outcome
                self.duplicates += outcome.messages
                self.late += late
            outcomes.append(outcome)
        while len(self._known) > BATCHES_MAX:
            del self._known[next(iter(self._known))]
        waiting.all_named()
        return outcomes

    def _cancel(self, part: BatchFact, waiting: _PendingAcks) -> int:
        """Let nothing become of what waits for its time; returns how many may have been published and delivered."""
        forwarder, late = self._forwarder, 0
        scheduled = forwarder.scheduled
        cancelled = []
        for offset in range(part.first_offset, part.first_offset + part.messages):
            one, became = scheduled.find(part.source, offset), scheduled.fired.became.get((part.source, offset))
            if one is not None and scheduled.leaves(one):
                late += 1
            elif one is not None:
                cancelled.append(one)
            elif became is not None:
                late += self._acknowledge(BatchFact(part.sender, part.batch, *became, 1), waiting)
        if cancelled:
            scheduled.cancel(cancelled, waiting.one_more())
        return late

    def _acknowledge(self, fact: BatchFact, waiting: _PendingAcks) -> int:
        """Acknowledge the messages for all who have not done so; returns how many may have been delivered."""
        forwarder = self._forwarder
        source = forwarder.sources.by_number.get(fact.source)
        if source is None:
            return fact.messages  # nothing of it is left: every subscription has received it
        late, end = 0, fact.first_offset + fact.messages
        for record in forwarder.catalog.subscriptions_of(source.topic):
            ledger = forwarder.ledgers.get(record.incarnation)
            begin = fact.first_offset if ledger is None else max(fact.first_offset, ledger.start.get(source.number, 0))
            if ledger is None or begin >= end:
                continue  # they were published before the subscription existed
            covered = ledger.covers(source.number, begin, end)
            gone = end if covered else max(begin, min(end, self._handed_out(record.incarnation, source.number)))
            late = max(late, gone - begin)
            if not covered:
                runs = [(in_lane(lane, begin), end - begin) for lane in ledger.lane_numbers]
                forwarder.commit.recorder.note(source.topic, VOID, source.number, runs, record.name)
                forwarder.server.acknowledge(
                    record.incarnation,
                    ledger.generation,
                    source.number,
                    encode_runs(runs),
                    waiting.one_more(),
                    urgent=True,
                )
        return late


class _PendingAcks:
    """`over` is set when all acknowledgements of one call are persisted."""

    def __init__(self) -> None:
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._left = 1

    def one_more(self) -> Callable[[Exception | None], None]:
        self._left += 1
        return self._done

    def all_named(self) -> None:
        self._done(None)

    def _done(self, error: Exception | None) -> None:
        self._left -= 1
        if self.over.done():
            return
        if error is not None:
            self.over.set_exception(error if isinstance(error, SyncpointError) else Unavailable(str(error)))
            self.over.exception()  # who asked may have gone; the chain has ended, and that is reported elsewhere
        elif not self._left:
            self.over.set_result(None)

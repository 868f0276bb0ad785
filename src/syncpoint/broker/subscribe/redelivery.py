"""Redelivery: reading again what came back, so that it can be lent anew.

Place: between `retry`, which knows when something is due, and `pump`. About as much is read at once as is sensible;
where ordering keys hold a message, it is `key_reader`'s.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from functools import partial

from syncpoint.base.model.delivery import Batch
from syncpoint.broker.subscribe.lease import LeaseManager
from syncpoint.broker.subscribe.ordering import KeyOrder
from syncpoint.broker.subscribe.retry import OffsetRun
from syncpoint.broker.subscribe.shared_state import SharedState
from syncpoint.broker.subscribe.source_reader import SourceReader

REDELIVER_AT_ONCE = 1024
REDELIVER_BYTES = 8 << 20


class RedeliveryReader:
    """`ready`: batches that were read again, each with the number of its delivery."""

    def __init__(self, state: SharedState, leases: LeaseManager, reader: SourceReader) -> None:
        self.ready: deque[tuple[Batch, int]] = deque()
        self._state, self._leases, self._reader = state, leases, reader
        self._asked: dict[OffsetRun, None] = {}  # what is being read
        self._voids = 0  # how often answers under way became void

    @property
    def at_rest(self) -> bool:
        """Nothing is being read, or waits to be lent."""
        return not self.ready and not self._asked

    @property
    def has_more(self) -> bool:
        """Whether more is due than was read at once, and all of that was lent."""
        return bool(self._leases.redelivery.due) and self.at_rest

    def read_due(self) -> None:
        """Read again what is due."""
        limit = REDELIVER_AT_ONCE - sum(run.end - run.begin for run in self._asked) - len(self.ready)
        if limit <= 0:
            return
        for run in self._leases.redelivery.take_due(limit):
            self._read_again(run)
            if sum(len(batch.payload) for batch, _ in self.ready) >= REDELIVER_BYTES:
                break  # large messages: the rest is read when these are lent

    def read_passed(self, now: float) -> None:
        """Try again what could not be read when it was its turn."""
        passed = self._reader.passed
        if passed:
            for run in passed.take_due(now):
                if not self._read_again(run):
                    passed.answered(run, (), now)  # its keys know all of it by now

    def _read_again(self, run: OffsetRun) -> bool:
        """False if nothing of it is to be read outside of its keys."""
        order = self._leases.order
        parts = [run] if order is None else list(_without_keys(run, order))
        for part in parts:
            self._asked[part] = None
            self._reader.fetch(part.source, part.begin, part.end, partial(self._read, part, self._voids))
        return bool(parts)

    def _read(self, run: OffsetRun, voids: int, batches: Sequence[Batch] | Exception) -> None:
        if voids != self._voids:
            return
        self._asked.pop(run, None)
        if isinstance(batches, Exception):
            self._reader.pass_over(run, ())
            for offset in range(run.begin, run.end):
                self._leases.redelivery.add(run.source, offset, at=self._state.now() + 0.1)
            return
        self._reader.pass_over(run, batches)
        self._reader.aging.note(batches)
        read_to = run.begin if batches else run.end  # nothing came: nothing of the run is unacknowledged any more
        for batch in batches:
            if batch.begin < run.end:
                self.ready.append((batch._replace(end=min(batch.end, run.end)), run.attempt))
            read_to = batch.end
        for offset in range(read_to, run.end):
            self._leases.redelivery.add(run.source, offset)  # beyond what the credit brought: its turn comes next
        self._state.wake()

    def advance(self, offset: int) -> None:
        """Everything before `offset` of the first batch was dealt with."""
        batch, attempt = self.ready[0]
        if offset >= batch.end:
            self.ready.popleft()
        else:
            self.ready[0] = (batch._replace(begin=offset), attempt)

    def put_back(self) -> None:
        """What was read again, or is being read, is not lent: it waits as before, with its count of deliveries."""
        self._put_back(self.ready)
        self.ready.clear()
        asked, self._asked = self._asked, {}
        self._voids += 1
        for run in asked:
            self._reader.pass_over(run, ())
            for offset in range(run.begin, run.end):
                self._leases.redelivery.add(run.source, offset)

    def put_back_of(self, source: int) -> None:
        """Put back the messages of one source, from which leasing is suspended."""
        self._put_back([one for one in self.ready if one[0].source == source])
        self.forget(source)

    def grow_old(self) -> None:
        """Something that was read again may have run out."""
        aged = self._reader.aging.aged([batch for batch, _ in self.ready])
        self.ready = deque(zip(aged, [attempt for _, attempt in self.ready], strict=True))

    def forget(self, source: int) -> None:
        """What was read again of a source is not lent."""
        self.ready = deque(one for one in self.ready if one[0].source != source)

    def close(self) -> None:
        """What was read again is void."""
        self.ready.clear()

    def _put_back(self, ready: Iterable[tuple[Batch, int]]) -> None:
        for batch, _ in ready:
            for offset in range(batch.begin, batch.end):
                if not batch.skips(offset):
                    self._leases.redelivery.add(batch.source, offset)


def _without_keys(run: OffsetRun, order: KeyOrder) -> Iterator[OffsetRun]:
    """The parts of a run that no ordering key holds; the retry time of the others has come, their keys may go on."""
    begin = run.begin
    for offset in range(run.begin, run.end):
        if order.knows((run.source, offset)):
            order.unblock((run.source, offset))
            if begin < offset:
                yield run._replace(begin=begin, end=offset)
            begin = offset + 1
    if begin < run.end:
        yield run._replace(begin=begin)

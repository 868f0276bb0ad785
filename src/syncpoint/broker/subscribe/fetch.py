"""Fetch: asking the sources of a topic for unacknowledged messages, by credit.

Place: where delivery begins. A cursor walks one source from its first unacknowledged offset; it asks for about a
credit's worth at a time, only while somebody can take messages, and keeps what it got until it is leased. An answer
may come at once, later, or as "unknown": then it asks again, less and less often, until the source is named anew.
"""

from collections import deque
from collections.abc import Sequence

from syncpoint.base.model.delivery import Batch, UpToEnd, passed_over

CREDIT_BYTES = 2 << 20
AGAIN_FIRST_S, AGAIN_MOST_S = 0.05, 2.0  # after an answer that is unknown; doubled every time


class FetchCursor:
    """How far one source was read for one subscription."""

    __slots__ = ("_again_s", "_news", "again_slots", "again_to", "asking", "batches", "begin", "chain", "epoch", "idle",
                 "not_before", "sealed", "source", "void")  # fmt: skip

    def __init__(self, source: int, begin: int, *, sealed: bool, epoch: int = 0, chain: int = 0) -> None:
        self.source, self.epoch, self.chain = source, epoch, chain
        self.begin = begin  # next offset to ask for
        self.sealed = sealed
        self.asking = False
        self.idle = False  # the last answer was empty, or up to the end: wait for on_data
        self.batches: deque[Batch] = deque()
        self._news = False  # data came while an answer was under way
        self._again_s = AGAIN_FIRST_S
        self.not_before = 0.0  # it is not asked again earlier
        self.again_to = 0  # up to here it has been read before, for all keys but those of
        self.again_slots = 0
        self.void = False  # the answer that is under way does not count

    @property
    def wants_more(self) -> bool:
        return not self.asking and not self.idle and not self.batches

    @property
    def drained(self) -> bool:
        """Nothing of a sealed source is left to read."""
        return self.sealed and self.idle and not self.batches and not self.asking

    def data_came(self) -> None:
        """The source has grown: an answer under way may not know it yet."""
        self.idle = False
        self._news = self.asking

    def failed(self, now: float) -> None:
        """The answer is unknown: ask again, in a while."""
        self.asking = False
        self.not_before = now + self._again_s
        self._again_s = min(AGAIN_MOST_S, 2 * self._again_s)

    def named(self) -> None:
        """The source's owner answered: an earlier failure may have been another process's fault."""
        self.not_before, self._again_s = 0.0, AGAIN_FIRST_S
        self.data_came()  # we may not have learned of all that came before this answer

    def received(self, batches: Sequence[Batch]) -> None:
        """An answer: what comes next in this source, or nothing for now. What it passed over is no matter of the
        cursor's any more.
        """
        self.asking, self._again_s = False, AGAIN_FIRST_S
        for _, end in passed_over(batches):
            self.begin = max(self.begin, end)
        if not batches or isinstance(batches, UpToEnd):
            self.idle, self._news = not self._news, False
        if batches:
            self.batches.extend(batches)
            self.begin = batches[-1].end

    def read_again(self) -> None:
        """Ask anew for what was read and not dealt with, or is being read."""
        self.void = self.asking
        if self.batches:
            self.begin = self.batches[0].begin
            self.batches.clear()
            self.data_came()

    def begin_again(self, begin: int, slots: int) -> None:
        """Read again from there, of what was dealt with before only the keys of these slots."""
        self.again_slots = slots | (self.again_slots if self.begin < self.again_to else 0)
        read_to = self.batches[0].begin if self.batches else self.begin
        self.again_to = max(read_to, self.again_to)
        self.begin, self.void = begin, self.asking
        self.batches.clear()
        self.data_came()

    def advance(self, offset: int) -> None:
        """Everything before `offset` of the head batch was dealt with."""
        head = self.batches[0]
        if offset >= head.end:
            self.batches.popleft()
        else:
            self.batches[0] = head._replace(begin=offset)

"""Fetch: asking the sources of a topic for unacknowledged messages, by credit.

Station 8 of a message's life. A cursor walks one source from its first unacknowledged offset; it asks for about a
credit's worth at a time, only while somebody can take messages, and keeps what it got until it is leased. An answer
may come at once, later, or as "unknown": then it asks again.
"""

from collections import deque
from collections.abc import Sequence

from syncpoint.model.delivery import Batch, passed_over

CREDIT_BYTES = 2 << 20


class Cursor:
    """How far one source was read for one subscription."""

    __slots__ = ("_news", "asking", "batches", "begin", "chain", "epoch", "idle", "sealed", "source")

    def __init__(self, source: int, begin: int, *, sealed: bool, epoch: int = 0, chain: int = 0) -> None:
        self.source, self.epoch, self.chain = source, epoch, chain
        self.begin = begin  # next offset to ask for
        self.sealed = sealed
        self.asking = False
        self.idle = False  # the last answer was empty: wait for on_data
        self.batches: deque[Batch] = deque()
        self._news = False  # data came while an answer was under way

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

    def failed(self) -> None:
        """The answer is unknown: ask again."""
        self.asking = False

    def received(self, batches: Sequence[Batch]) -> None:
        """An answer: what comes next in this source, or nothing for now. What it passed over is no matter of the
        cursor's any more.
        """
        self.asking = False
        for _, end in passed_over(batches):
            self.begin = max(self.begin, end)
        if not batches:
            self.idle, self._news = not self._news, False
            return
        self.batches.extend(batches)
        self.begin = batches[-1].end

    def head(self) -> Batch | None:
        return self.batches[0] if self.batches else None

    def advance(self, offset: int) -> None:
        """Everything before `offset` of the head batch was dealt with."""
        head = self.batches[0]
        if offset >= head.end:
            self.batches.popleft()
        else:
            self.batches[0] = head._replace(begin=offset)

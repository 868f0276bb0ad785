"""How large a topic's stored messages are on average: an estimate, to plan by bytes and to limit cursors."""

import asyncio
from collections.abc import Callable, Sequence

from syncpoint.base.runtime.tasks import complete
from syncpoint.log.storage.record import StoredBatch
from syncpoint.log.storage.store import Store

_WEIGHT = 0.2  # of what is newly seen


class MeanSizes:
    """Mean bytes of a stored message by topic incarnation, learned from what is read."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._means: dict[int, float] = {}

    def of(self, topic: int) -> float:
        """0 while it is unknown."""
        return self._means.get(topic, 0.0)

    def note(self, topic: int, messages: int, nbytes: int) -> None:
        """Count messages that were read."""
        if messages:
            mean = nbytes / messages
            known = self._means.get(topic, mean)
            self._means[topic] = known + (mean - known) * _WEIGHT

    def begin(self, topic: int, sources: Sequence[tuple[int, int]], done: Callable[[], None] = lambda: None) -> None:
        """Look at the newest messages of a topic; `sources`: those that have any, with their ends."""
        if topic in self._means or not sources:
            done()
            return
        source, end = sources[-1]

        def read(batches: Sequence[StoredBatch] | Exception) -> None:
            if not isinstance(batches, Exception):
                self.note(topic, sum(one.count for one in batches), sum(len(one.payload) for one in batches))
            done()

        self._store.read(source, end - 1, 1, read)

    async def learn(self, topic: int, sources: Sequence[tuple[int, int]]) -> None:
        """As `begin`; returns when it is known, or cannot be."""
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.begin(topic, sources, lambda: complete(over, None))
        await over

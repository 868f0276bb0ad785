"""Each message in a log has its facts in front of it: checked at every append of every chain that is opened.

Place: around the one call by which anything enters a log; made by `nodes`. The order of appends is the order of the
log, so this is what every crash, whenever it comes, leaves behind.
Promise: nothing of the simulation is touched, see `deletions`.
"""

from __future__ import annotations

from typing import Any

from syncpoint.broker.publish.chain.chain import Chain
from syncpoint.log.storage.record import EntryKind
from syncpoint.testing.rigs.facts_in_front import FactsInFront
from syncpoint.testing.simulation.coverage import Coverage
from syncpoint.testing.simulation.deletions import unnoticed


class FactsWatched:
    """Check the facts of one chain during one life of its owner. `numbered`: as in `FactsInFront`."""

    def __init__(self, coverage: Coverage, chain: Chain, *, numbered: bool = True) -> None:
        self._coverage, self._sources = coverage, chain.forwarder.sources
        self._judge = FactsInFront(chain.store.log_counter, numbered=numbered)
        self._append = chain.store.append
        chain.store.append = self._appended  # type: ignore[method-assign]

    def _appended(self, kind: int, payload: Any, **place: int) -> int:
        position = self._append(kind, payload, **place)
        with unnoticed():
            data = payload if isinstance(payload, bytes) else b"".join(map(bytes, payload))
            found: list[str] = []
            if kind == EntryKind.LEDGER:
                found = self._judge.fact(data)
            elif kind == EntryKind.MESSAGES:
                topic = self._sources.by_number[place["source"]].topic
                found = self._judge.messages(topic, place["source"], place["first_offset"], place["count"], data)
            for one in found:
                self._coverage.always("each message has its facts in front of it", holds=False, what=one)
        return position

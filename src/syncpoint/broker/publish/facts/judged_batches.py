"""JudgedBatches: a batch that was judged by its messages' ids is known by its number, too, for as long as others are.

Place: where a topic drops duplicates, or the service publishes again what it accepted before. Written by
`judged_publishes` in front of the messages, asked by `ingress` when a batch is sent again (protocol rule 20). Ids end
with their window, and not every message has one; a sender may send again later than that. An extension of the log, so
it outlives owners; the chain that is to take the topic's keys next asks for it as for ids.
Promise: as of `dedup.RecentBatches`: within the newest `BATCHES_MAX` of these batches of a chain none of their messages
is stored twice, and a batch sent again has the ids of the first time. It ends earlier only where batches of very many
pieces fill `RUNS_BYTES_MAX`. One of which nothing was stored is not remembered: it may be judged anew.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from typing import NamedTuple

from syncpoint.broker.publish.facts.dedup import BATCHES_MAX
from syncpoint.broker.publish.facts.message_facts import FactLog, MessageFacts
from syncpoint.broker.publish.facts.records import ExtensionNumber
from syncpoint.broker.publish.facts.source import MessagePlace, SourceTable

RUNS_BYTES_MAX = 16 << 20
HANDED_S = 600  # how long after a topic's newest batch another chain of it may ask for them
PART = 200  # batches of one fact of a checkpoint, and of one answer
NOT_STORED = 0  # in place of a source: these messages are not known to be stored
_HEAD = struct.Struct("<QQQI")  # topic, sender, batch, number of runs
_RUN = struct.Struct("<QQI")  # source, first offset, messages
_Key = tuple[int, int]  # sender, batch


class JudgedBatch(NamedTuple):
    """Where the messages of a batch are, in its order: `runs` of successive places, packed."""

    topic: int
    sender: int
    batch: int
    runs: bytes

    def places(self) -> list[MessagePlace | None]:
        """Return the place of each message; None if the message is not stored."""
        return [
            MessagePlace(source, first + number) if source != NOT_STORED else None
            for source, first, count in _RUN.iter_unpack(self.runs)
            for number in range(count)
        ]

    def clipped(self, end_of: Callable[[int], int]) -> JudgedBatch:
        """Return a copy with only the messages below the end of their source."""
        runs = []
        for source, first, count in _RUN.iter_unpack(self.runs):
            there = max(0, min(count, end_of(source) - first)) if source != NOT_STORED else 0
            runs += [(source, first, there)] if there else []
            runs += [(NOT_STORED, 0, count - there)] if count > there else []
        return self._replace(runs=b"".join(_RUN.pack(*run) for run in runs))


def batch_of(topic: int, sender: int, batch: int, places: Iterable[MessagePlace]) -> JudgedBatch:
    """The batch whose messages are in these places."""
    runs: list[list[int]] = []
    for source, offset in places:
        if runs and runs[-1][0] == source and sum(runs[-1][1:]) == offset:
            runs[-1][2] += 1
        else:
            runs.append([source, offset, 1])
    return JudgedBatch(topic, sender, batch, b"".join(_RUN.pack(*run) for run in runs))


class JudgedBatches(MessageFacts[JudgedBatch]):
    """Remember the outcome of batches that were checked for duplicates.

    `exists(topic)`: whether the catalog has the topic; `now_s()`: a trusted time in seconds.
    """

    number = ExtensionNumber.JUDGED_BATCHES
    part = PART

    def __init__(
        self, log: FactLog, sources: SourceTable, exists: Callable[[int], bool], now_s: Callable[[], float]
    ) -> None:
        super().__init__(log)
        self._sources, self._exists, self._now_s = sources, exists, now_s
        self._known: dict[_Key, JudgedBatch] = {}  # oldest first
        self._bytes = self._dropped = 0
        self._newest: dict[int, float] = {}  # by topic, when its newest batch was taken

    # -- facts -------------------------------------------------------------------------------------------------------

    @classmethod
    def encode(cls, facts: Iterable[JudgedBatch]) -> bytes:
        parts = [(_HEAD.pack(*fact[:3], len(fact.runs) // _RUN.size), fact.runs) for fact in facts]
        return b"".join(chain.from_iterable(parts))

    @classmethod
    def decode(cls, rows: bytes) -> Iterator[JudgedBatch]:
        at = 0
        while at < len(rows):
            topic, sender, batch, count = _HEAD.unpack_from(rows, at)
            at += _HEAD.size
            end = at + count * _RUN.size
            yield JudgedBatch(topic, sender, batch, rows[at:end])
            at = end

    def apply(self, fact: JudgedBatch) -> None:
        key = fact.sender, fact.batch
        earlier = self._known.get(key)
        self._bytes += len(fact.runs) - (0 if earlier is None else len(earlier.runs))
        self._known[key] = fact
        self._newest[fact.topic] = self._now_s()
        while len(self._known) > BATCHES_MAX or self._bytes > RUNS_BYTES_MAX:
            oldest = self._known.pop(next(iter(self._known)))
            self._bytes -= len(oldest.runs)
            self._dropped += 1

    def stored(self, fact: JudgedBatch) -> JudgedBatch:
        def end_of(number: int) -> int:
            source = self._sources.by_number.get(number)
            return 0 if source is None else source.end

        return fact.clipped(end_of)

    def kept(self) -> Iterator[JudgedBatch]:
        return iter(list(self._known.values()))

    # -- questions ---------------------------------------------------------------------------------------------------

    def find(self, sender: int, batch: int) -> list[MessagePlace | None]:
        """Where the messages of a batch are, which may not be persisted yet; none where it was never seen."""
        known = self._known.get((sender, batch))
        return [] if known is None else known.places()

    def knows(self, topic: int) -> bool:
        """Whether another chain of the topic may still ask for its batches."""
        newest = self._newest.get(topic)
        if newest is not None and (self._now_s() - newest >= HANDED_S or not self._exists(topic)):
            del self._newest[topic]
        return topic in self._newest

    def topics(self) -> list[int]:
        """Those of which another chain may ask for batches."""
        return [topic for topic in list(self._newest) if self.knows(topic)]

    # -- other chains of the topic -----------------------------------------------------------------------------------

    def rows_of(self, topic: int, begin: int) -> tuple[bytes, int]:
        """Batches of a topic, as far as they are persisted, from number `begin` on, and where to go on; b"": that is
        all.
        """
        at, found = max(begin, self._dropped), list[JudgedBatch]()
        for one in islice(self._known.values(), at - self._dropped, None):
            at += 1
            if one.topic == topic:
                found.append(one.clipped(self._persisted_end))
                if len(found) == PART:
                    break
        return (self.body(found) if found else b""), at

    def _persisted_end(self, number: int) -> int:
        source = self._sources.by_number.get(number)
        return 1 << 62 if source is None else source.visible  # None: another chain's, or nothing is left of it

    def take(self, body: bytes) -> bool:
        """Write batches that another chain of the topic has had, of messages that are persisted there, as far as they
        were not known here; whether any was not.
        """
        new = [one for one in self.facts_in(body) if (one.sender, one.batch) not in self._known]
        for one in new:
            self.apply(one)
        if new:
            self.write(self.body(new))
        return bool(new)

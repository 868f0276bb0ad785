"""Facts in front: wherever a log ends, each message that is found in it has the facts about it in front of it.

Place: fed with the entries of one log in order, by unit tests from a log in memory, by the simulation at every append
of a store. The order of appends is the order of the log, so what holds at each of them holds of whatever a crash
leaves.
Judged is: no fact about a message stands after it; what waits for its time, what has a time to live, and where asked
for what became of a numbered batch or of what waited, stands in front.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from syncpoint.base.kernel.frames import message_at
from syncpoint.base.model.identity import log_of
from syncpoint.broker.publish.facts import records
from syncpoint.broker.publish.facts.dedup import RecentBatches
from syncpoint.broker.publish.facts.judged_batches import JudgedBatches
from syncpoint.broker.publish.facts.message_ids import MessageIds
from syncpoint.broker.publish.facts.records import ExtensionNumber, FactKind
from syncpoint.broker.publish.facts.scheduled import FiredMessages, ScheduledMessages
from syncpoint.broker.publish.facts.source import INNER_TOPICS, WAITING_TOPIC
from syncpoint.broker.publish.facts.time_to_live import ExpiryIndex
from syncpoint.log.storage.record import EntryKind
from syncpoint.wire.protobuf.messages import pubsub

TTL = "sys.TimeToLive"
_Place = tuple[int, int]
_OF_BATCHES = (FactKind.BATCHES, FactKind.FIRED, ExtensionNumber.JUDGED_BATCHES)


class FactsInFront:
    """Check that facts precede their messages in the log with this counter.

    `numbered`: every message was published by a numbered batch or was scheduled.
    """

    def __init__(self, log_counter: int, *, numbered: bool = False) -> None:
        self._log, self._numbered = log_counter, numbered
        self._noted: dict[int, set[_Place]] = {}  # by the kind of fact, or the number of the extension
        self._ends: dict[int, int] = {}  # of each source, what the log has

    def fact(self, payload: bytes) -> list[str]:
        """A fact was appended; what is wrong with that."""
        found = []
        for kind, source, offset in _places(payload):
            if log_of(source) != self._log:
                continue
            self._noted.setdefault(kind, set()).add((source, offset))
            if (
                offset < self._ends.get(source, 0) and kind != ExtensionNumber.JUDGED_BATCHES
            ):  # its duplicates are stored
                found.append(f"a fact of kind {kind} about {source}/{offset} stands after the message")
        return found

    def messages(self, topic: int, source: int, first_offset: int, count: int, payload: bytes) -> list[str]:
        """Messages of a topic were appended; what is missing in front of them."""
        found = []
        for number in range(count):
            place = source, first_offset + number
            if topic == WAITING_TOPIC and not self._knows(place, ExtensionNumber.SCHEDULED):
                found.append(f"{source}/{place[1]} waits, and no fact in front of it says so")
            if topic in INNER_TOPICS:
                continue
            attributes = pubsub.PubsubMessage.FromString(bytes(message_at(payload, number))).attributes
            if TTL in attributes and not self._knows(place, ExtensionNumber.EXPIRY):
                found.append(f"{source}/{place[1]} has a time to live, and no fact in front of it says so")
            if self._numbered and not self._knows(place, *_OF_BATCHES):
                found.append(f"no fact in front of {source}/{place[1]} says which batch it is of")
        self._ends[source] = first_offset + count
        return found

    def _knows(self, place: _Place, *kinds: int) -> bool:
        return any(place in self._noted.get(kind, ()) for kind in kinds)


def complaints(
    entries: Sequence[tuple[EntryKind, int, int, int, bytes]], topics: dict[int, int], log: int
) -> list[str]:
    """What is wrong with the entries of a log: kind, source, first offset, count, payload. `topics`: of each source."""
    judge, found = FactsInFront(log), list[str]()
    for kind, source, first_offset, count, payload in entries:
        if kind == EntryKind.LEDGER:
            found += judge.fact(payload)
        elif kind == EntryKind.MESSAGES:
            found += judge.messages(topics[source], source, first_offset, count, payload)
    return found


def _places(payload: bytes) -> Iterator[tuple[int, int, int]]:
    """Kind, source and offset of each message that is about to be stored, which a fact is about."""
    match payload[0]:
        case FactKind.BATCHES if records.entries_behind(payload):
            for batch in RecentBatches.facts_in(payload[1:]):
                yield from _range(FactKind.BATCHES, batch.source, batch.first_offset, batch.messages)
        case FactKind.FIRED:
            for firing in FiredMessages.facts_in(payload[1:]):
                yield FactKind.FIRED, firing.target, firing.target_offset
        case FactKind.EXTENSION:
            yield from _places_of_extension(payload[1], payload[2:], records.entries_behind(payload))


def _places_of_extension(number: int, body: bytes, behind: int) -> Iterator[tuple[int, int, int]]:
    if number == ExtensionNumber.SCHEDULED:
        yield from ((number, one.source, one.offset) for one in ScheduledMessages.facts_in(body))
    elif number == ExtensionNumber.EXPIRY:
        for source, run, _ in ExpiryIndex.facts_in(body):
            yield from _range(number, source, run.begin, run.end - run.begin)
    elif number == ExtensionNumber.MESSAGE_IDS and behind:
        yield from ((number, row.source, row.offset) for _, rows in MessageIds.facts_in(body) for row in rows)
    elif number == ExtensionNumber.JUDGED_BATCHES and behind:
        for batch in JudgedBatches.facts_in(body):
            yield from ((number, *place) for place in batch.places() if place is not None)


def _range(kind: int, source: int, first_offset: int, count: int) -> Iterator[tuple[int, int, int]]:
    return ((kind, source, offset) for offset in range(first_offset, first_offset + count))

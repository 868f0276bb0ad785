"""MessageIds: which messages were published before, by the ids that publishers or forwards give them.

Place: asked by the forwarder before it takes the messages of a request, where a topic drops duplicates or a request is
of the service itself (`origin`). An extension of the log: the ids of a turn stand in front of its messages, so whoever
adopts the log knows them; all that count are in each checkpoint.

Three kinds of ids, the latter two in one table:
- *published*: the attribute `sys.MessageId` of requests of clients, in topics with the option `duplicate_window_s`, for
  as long as that says; what the service publishes again was accepted before, and is never dropped for it, unless the
  id was derived of a gateway's (`reserved.derive_identity`), so that the letters of two sites are one;
- *forwarded*: the attribute `sys.ForwardedFrom` of requests of the service itself, in any topic, for `FORWARDED_S`. Who
  publishes again what it may have published before sets it to what names the message as it was lent: subscription,
  seek generation, source and place; it may then try as often as it likes. A publisher may send this attribute, but it
  means nothing then;
- *scheduled*: the attribute `sys.ScheduledMessageId` of requests with messages that were scheduled in another chain.

A message that waits for its time has no id until it is due: it is judged then. One that is cancelled leaves nothing.

Promise: of the messages of one id within its time one is stored; all are answered with that one's message id, and
only once it is persisted. Time counts by publish times of the log, in whole seconds, rounded up. An id is known from
the turn in which its message is taken; if that turn is lost with the log, so is the id.
Ids are kept as hashes of 128 bits, keyed with the topic.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import NamedTuple

from syncpoint.base.kernel.ids import ENTRY, IdTable
from syncpoint.base.model.errors import InvalidArgument
from syncpoint.base.model.reserved import DERIVED, FORWARDED_FROM, IDENTITY, SCHEDULED_ID
from syncpoint.broker.publish.facts.message_facts import FactLog, MessageFacts
from syncpoint.broker.publish.facts.origin import PublishOrigin
from syncpoint.broker.publish.facts.records import ExtensionNumber
from syncpoint.broker.publish.facts.source import WAITING_TOPIC, MessagePlace, SourceTable
from syncpoint.catalog.metadata.records import Topic
from syncpoint.wire.protobuf.messages import pubsub

PUBLISHED, FORWARDED, FIRED = IDENTITY, FORWARDED_FROM, SCHEDULED_ID
_PREFIXES = {PUBLISHED: b"i", FORWARDED: b"i", FIRED: b"s"}
FORWARDED_S = 3_600
ID_CHARACTERS_MAX = 128
SLACK_S = 60  # how much longer ids are kept where nothing is published
DROPPED_AT_ONCE = 100_000
PART = 1_000  # ids of one fact of a checkpoint
_PLACE_BITS = 40  # of the offset; above it the number of the source among those of its table
_HEAD = struct.Struct("<QBI")  # topic, whether they are forwarded, number of rows
_ROW = struct.Struct("<QQI16s")  # source, offset, second, hash
_KEPT = struct.Struct("<16sQI")  # as the table has it
_Key = tuple[int, bool]  # topic, whether forwarded
_NO_ID = bytes(16)


class IdRow(NamedTuple):
    """An id that is known: where its message is, and the second it was published in, rounded up."""

    source: int
    offset: int
    second: int
    hashed: bytes


_Part = tuple[_Key, Sequence[IdRow]]


class Judgement(NamedTuple):
    """The messages of a request: `fresh` are the numbers of those to be stored. `same[number]`: where the message of
    the same id is, or its number in this request. `hashes`: of each, 16 zero bytes for those without an id.
    """

    key: _Key
    second: int
    window_s: int
    hashes: Sequence[bytes]
    fresh: Sequence[int]
    same: dict[int, MessagePlace | int]

    @classmethod
    def of_known(cls, known: Sequence[MessagePlace | None]) -> Judgement:
        """By where each message is known to be stored; None: it is not."""
        same: dict[int, MessagePlace | int] = {number: place for number, place in enumerate(known) if place is not None}
        fresh = [number for number, place in enumerate(known) if place is None]
        return cls((0, False), 0, 0, [_NO_ID] * len(known), fresh, same)

    def places(self, fresh: Sequence[MessagePlace]) -> list[MessagePlace]:
        """Where each message is, given where those are that are stored now."""
        own = dict(zip(self.fresh, fresh, strict=True))
        found = []
        for number in range(len(self.hashes)):
            same = self.same.get(number, number)
            found.append(own[same] if isinstance(same, int) else same)
        return found


class _Ids:
    """One table, and the sources that its places name."""

    def __init__(self) -> None:
        self.table = IdTable()
        self.sources: list[int] = []
        self._numbers: dict[int, int] = {}
        self.newest = 0

    def add(self, row: IdRow) -> None:
        number = self._numbers.get(row.source)
        if number is None:
            number = self._numbers[row.source] = len(self.sources)
            self.sources.append(row.source)
        self.table.add(row.hashed, number << _PLACE_BITS | row.offset, row.second)

    def find(self, hashed: bytes) -> tuple[MessagePlace, int] | None:
        found = self.table.find(hashed)
        return None if found is None else (self.place(found[0]), found[1])

    def place(self, packed: int) -> MessagePlace:
        return MessagePlace(self.sources[packed >> _PLACE_BITS], packed & ((1 << _PLACE_BITS) - 1))

    def rows(self, begin: int) -> tuple[list[IdRow], int]:
        data, end = self.table.entries(begin, PART)
        rows = (_KEPT.unpack_from(data, at) for at in range(0, len(data), ENTRY))
        return [IdRow(*self.place(place), second, hashed) for hashed, place, second in rows], end


class MessageIds(MessageFacts[_Part]):
    """Remember published ids to drop duplicates; each fact holds some ids of a topic.

    `window_s(topic)`: the duplicate window in seconds; None: the topic does not exist.
    """

    number = ExtensionNumber.MESSAGE_IDS
    part = 1

    def __init__(
        self, log: FactLog, sources: SourceTable, window_s: Callable[[int], int | None], sure_ns: Callable[[], int]
    ) -> None:
        super().__init__(log)
        self._sources, self._window_s, self._sure_ns = sources, window_s, sure_ns
        self._of: dict[_Key, _Ids] = {}

    def __len__(self) -> int:
        return sum(len(one.table) for one in self._of.values())

    def knows(self, topic: int) -> bool:
        """Whether any id of a topic is kept. Some of those that count no more are let go of."""
        published, forwarded = self._is_kept((topic, False)), self._is_kept((topic, True))
        return published or forwarded

    def topics(self) -> list[int]:
        """Those of which ids are kept."""
        return [topic for topic in {topic for topic, _ in self._of} if self.knows(topic)]

    def _is_kept(self, key: _Key) -> bool:
        """Let go of `DROPPED_AT_ONCE` ids at most; whether any is left."""
        ids, window_s = self._of.get(key), self._window_s(key[0])
        if ids is None:
            return False
        if window_s is not None and (window_s or key[1]):
            now = self._sure_ns() // 1_000_000_000 - SLACK_S
            ids.table.drop_before(max(0, now - (FORWARDED_S if key[1] else window_s)), DROPPED_AT_ONCE)
            if len(ids.table):
                return True
        del self._of[key]
        return False

    # -- before messages are taken -----------------------------------------------------------------------------------

    def kinds(self, topic: Topic, request: bytes | memoryview, origin: PublishOrigin) -> Sequence[str]:
        """By which attributes the messages of a request are judged, one after the other."""
        published = (PUBLISHED,) if topic.options.duplicate_window_s else ()
        if origin is PublishOrigin.CLIENT:
            return published
        if origin is PublishOrigin.FIRING:
            return FIRED, *published
        if FORWARDED.encode() not in (sent := bytes(request)):
            return ()
        return FORWARDED, *(published if DERIVED.encode() in sent else ())

    def judge(
        self,
        topic: Topic,
        messages: Sequence[pubsub.PubsubMessage],
        second: int,
        *,
        name: str,
        batch: bytes = b"",
        later: bytes = b"",
    ) -> Judgement:
        """Which messages are new, by the attribute `name`. `batch`: names their request where it is sent again; an
        older version noted messages without an id by it and their number. `later`: one byte for each, 1 where it waits
        for its time, and is judged by its id when that has come.
        """
        of_client, prefix = name == PUBLISHED, _PREFIXES[name]
        key = topic.incarnation, not of_client
        window_s = topic.options.duplicate_window_s if of_client else FORWARDED_S
        ids, salt = self._of.get(key), b"%d" % topic.incarnation
        hashes: list[bytes] = []
        fresh: list[int] = []
        same: dict[int, MessagePlace | int] = {}
        here: dict[bytes, int] = {}
        for number, message in enumerate(messages):
            text = message.attributes.get(name, "")
            if later and later[number]:
                text = ""
            own = prefix + text.encode() if text else b"b%b/%d" % (batch, number) if batch else b""
            hashed = blake2b(own, digest_size=16, key=salt).digest() if own else _NO_ID
            hashes.append(hashed if text else _NO_ID)
            if not own:
                fresh.append(number)
                continue
            found = None if ids is None else ids.find(hashed)
            by_id = of_client and bool(text)  # a forward that waits for its time is known by where it came from
            if found is not None and second - found[1] < window_s and not (by_id and self._waits(found[0])):
                same[number] = found[0]
            elif hashed in here:
                same[number] = here[hashed]
            else:
                here[hashed] = number
                fresh.append(number)
        return Judgement(key, second, window_s, hashes, fresh, same)

    def _waits(self, place: MessagePlace) -> bool:
        """Whether a message lies where it waits for its time: an older version noted ids when they were scheduled."""
        source = self._sources.by_number.get(place.source)
        return source is not None and source.topic == WAITING_TOPIC

    def judge_due(self, topic: Topic, framed: Sequence[bytes], second: int) -> Judgement | None:
        """Which messages that waited, and are due, are new; None: none can be another one's duplicate."""
        if not topic.options.duplicate_window_s:
            return None
        messages = [pubsub.PubsubMessage.FromString(one[4:]) for one in framed]
        return self.judge(topic, messages, second, name=PUBLISHED, later=accepted_before(messages))

    def note_judged(self, judged: Judgement, places: Sequence[MessagePlace]) -> None:
        """As `note`: the fresh messages are in these places."""
        rows = [
            IdRow(*place, judged.second + 1, judged.hashes[number])
            for number, place in zip(judged.fresh, places, strict=True)
            if judged.hashes[number] != _NO_ID
        ]
        if rows:
            self.note((judged.key, rows))
        ids = self._of.get(judged.key)
        if ids is not None:
            ids.table.drop_before(max(0, judged.second - judged.window_s), 2 * len(rows) + 16)

    # -- other chains of the topic -----------------------------------------------------------------------------------

    def rows_of(self, topic: int, forwarded: bool, begin: int) -> tuple[bytes, int]:
        """Ids of messages of a topic that are persisted, as `take` reads them, from number `begin` on, and where to go
        on; b"": that is all.
        """
        ids, end = self._of.get((topic, forwarded)), begin
        while ids is not None and end < ids.table.end:
            rows, end = ids.rows(end)
            persisted = [row for row in rows if self._is_persisted(row)]
            if persisted:
                return self.body([((topic, forwarded), persisted)]), end
        return b"", end

    def _is_persisted(self, row: IdRow) -> bool:
        source = self._sources.by_number.get(row.source)  # None: it is another chain's, or nothing is left of it
        return source is None or row.offset < source.visible

    def take(self, body: bytes) -> bool:
        """Write ids that another chain of the topic has had, of messages that are persisted there, as far as they are
        newer than what is known here; whether any is.
        """
        found = [(key, [row for row in rows if self._renew(key, row)]) for key, rows in self.facts_in(body)]
        new = [part for part in found if part[1]]
        if new:
            self.write(self.body(new))
        return bool(new)

    def _renew(self, key: _Key, row: IdRow) -> bool:
        """Add a row, unless a message that was published later, or then, is known by its id; whether it was added."""
        ids = self._of.get(key)
        known = None if ids is None else ids.find(row.hashed)
        if known is not None and known[1] >= row.second:
            return False
        self._of.setdefault(key, _Ids()).add(row)
        return True

    # -- facts -------------------------------------------------------------------------------------------------------

    @classmethod
    def encode(cls, facts: Iterable[_Part]) -> bytes:
        found: list[bytes] = []
        for key, rows in facts:
            found += (_HEAD.pack(*key, len(rows)), *(_ROW.pack(*row) for row in rows))
        return b"".join(found)

    @classmethod
    def decode(cls, rows: bytes) -> Iterator[_Part]:
        at = 0
        while at < len(rows):
            topic, forwarded, count = _HEAD.unpack_from(rows, at)
            at += _HEAD.size
            end = at + count * _ROW.size
            yield (topic, bool(forwarded)), [IdRow(*row) for row in _ROW.iter_unpack(rows[at:end])]
            at = end

    def apply(self, fact: _Part) -> None:
        for row in fact[1]:
            self._renew(fact[0], row)

    def stored(self, fact: _Part) -> _Part | None:
        ends = self._sources.by_number
        rows = [row for row in fact[1] if row.source in ends and row.offset < ends[row.source].end]
        return (fact[0], rows) if rows else None

    def kept(self) -> Iterator[_Part]:
        """What counts no more is let go of; an id outlives its message."""
        for key in list(self._of):
            ids = self._of.get(key)
            if ids is None or not self._is_kept(key):
                continue
            at = 0
            while at < ids.table.end:
                rows, at = ids.rows(at)
                if rows:
                    yield key, rows


def check_ids(messages: Sequence[pubsub.PubsubMessage]) -> None:
    """Raises `InvalidArgument` for an id that is too long."""
    for number, message in enumerate(messages):
        if len(message.attributes.get(PUBLISHED, "")) > ID_CHARACTERS_MAX:
            problem = f"{PUBLISHED} must not be longer than {ID_CHARACTERS_MAX} characters"
            raise InvalidArgument(f"messages[{number}].attributes", problem)


def not_derived(messages: Sequence[pubsub.PubsubMessage]) -> bytes:
    """One byte for each message of the service: 1 where its id is one that a publisher gave before."""
    return bytes(not one.attributes.get(PUBLISHED, "").startswith(DERIVED) for one in messages)


def accepted_before(messages: Sequence[pubsub.PubsubMessage]) -> bytes:
    """One byte for each message that is due: 1 where a forward had it wait. No id of a publisher decides about it."""
    return bytes(FORWARDED in one.attributes for one in messages)

"""Scheduled messages: which messages of this log wait for their time to be published.

Place: the forwarder notes what was scheduled, `firing` asks what is due and reports what was published,
`scheduled_calls` lists and cancels. The messages themselves lie in a *waiting source*, of a topic that no catalog
knows, and are kept for it like any others: copied forward, never pinning what lies around them. Here are only small
entries, in the order in which they are due.
Promise: a message that waits is published once, or was cancelled, never both and never again: all of it are facts of
one log. What was fired stands in front of the messages that it became, and has the number of entries after it that hold
them (`FiredMessages`). So recovery sees by the place alone whether they are there; where the log ends within that turn,
by the end of the source, since nothing of it was deleted yet; and writes down what it decides before it deletes.
What another chain publishes (`keyed_firing`) leaves first, and is gone when that has answered.
An id, once given, never comes to mean another message. The chain that keeps a message stays registered for its topic.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush
from itertools import chain, islice
from typing import NamedTuple

from syncpoint.base.model.delivery import Done
from syncpoint.base.model.errors import ResourceExhausted
from syncpoint.base.model.identity import MessageId
from syncpoint.broker.publish.facts.message_facts import FactLog, MessageFacts
from syncpoint.broker.publish.facts.project_room import is_fair
from syncpoint.broker.publish.facts.records import ExtensionNumber, FactKind
from syncpoint.broker.publish.facts.source import Source
from syncpoint.catalog.access.quotas import project_in

NEVER_NS = (1 << 63) - 1
WAITING_MAX = 1_000_000  # in one log; a project that has some gets more only while as many are left to others
FIRED_MAX = 50_000  # of the newest it is remembered what they became
_ROW = struct.Struct("<QQQq")  # topic, source, offset, due
_PLACE = struct.Struct("<QQ")  # source, offset
# First byte of a fact: these wait; these do not any more; these are about to be published by another chain.
_WAITING, _GONE, _LEAVING = 1, 2, 3
_ROWS = 500  # of one fact


class ScheduledPart(NamedTuple):
    """Where the messages of a request lie that wait for their time."""

    source: int
    first_offset: int
    messages: int


class Scheduled(NamedTuple):
    """A message that waits: in the order in which they are published. Its id is that of `source` and `offset`."""

    due_ns: int
    source: int
    offset: int
    topic: int


class Firing(NamedTuple):
    """The message that waited at a place of a source is published: as a message of the source `target`."""

    source: int
    offset: int
    target: int
    target_offset: int


class FiredMessages(MessageFacts[Firing]):
    """What became of messages that waited. In no checkpoint: what was fired waits no more."""

    head = bytes((FactKind.FIRED,))
    row, made_of = struct.Struct("<QQQQ"), Firing

    def __init__(self, log: FactLog) -> None:
        super().__init__(log)
        self.became: dict[tuple[int, int], tuple[int, int]] = {}  # the newest: source, offset

    def apply(self, fact: Firing) -> None:
        self.became[fact.source, fact.offset] = fact.target, fact.target_offset
        if len(self.became) > FIRED_MAX:
            del self.became[next(iter(self.became))]


class ScheduledMessages(MessageFacts[Scheduled]):
    """Track messages that wait for their scheduled time."""

    number = ExtensionNumber.SCHEDULED
    counts = False
    part = _ROWS

    def __init__(self, log: FactLog) -> None:
        super().__init__(log)
        self.fired = FiredMessages(log)
        self._of_source: dict[int, dict[int, Scheduled]] = {}  # by source and offset
        self.holding = self._of_source  # see `forwarder.HoldingExtension`
        self._of_topic: dict[int, list[Scheduled]] = {}  # in order
        self._firsts: list[tuple[int, int]] = []  # a heap of (due, topic); some of them are not so any more
        self.on_sooner: Callable[[], None] = lambda: None  # something is due before anything else of its topic
        self._count = 0
        self._leaving: set[tuple[int, int]] = set()  # of those that wait: source, offset

    def __len__(self) -> int:
        return self._count

    def __contains__(self, topic: object) -> bool:
        return topic in self._of_topic

    def topics(self) -> Collection[int]:
        """Topics for which something waits."""
        return self._of_topic.keys()

    # -- what comes and goes -----------------------------------------------------------------------------------------

    def fire(self, messages: Sequence[Scheduled], source: int, first_offset: int) -> None:
        """As `note`: messages of one topic that waited are published, in order, from that offset of a source on."""
        targets = enumerate(messages, first_offset)
        self.fired.note(*(Firing(one.source, one.offset, source, offset) for offset, one in targets))
        self._remove_all(messages)

    def cancel(self, messages: Iterable[Scheduled], done: Done | None = None) -> None:
        """Write that these are not published; persisted before `done`."""
        gone = list(messages)
        for one in gone:
            self._remove(one)
        self.write(_encode_places(_GONE, ((one.source, one.offset) for one in gone)), done)

    def leave(self, messages: Iterable[Scheduled], done: Done) -> None:
        """Write that these are about to be published by another chain, which may have done it from now on; persisted
        before `done`.
        """
        fresh = [(one.source, one.offset) for one in messages if not self.leaves(one)]
        self._leaving.update(fresh)
        if fresh:
            self.write(_encode_places(_LEAVING, fresh), done)
        else:
            done(None)

    def leaves(self, one: Scheduled) -> bool:
        """Whether a message that waits may have been published by another chain."""
        return (one.source, one.offset) in self._leaving

    def left(self, messages: Sequence[Scheduled], became: Sequence[MessageId]) -> None:
        """Another chain has published these, in these places: write that they wait no more."""
        for one, place in zip(messages, became, strict=True):
            self.fired.apply(Firing(one.source, one.offset, place.source, place.offset))
        self.cancel(one for one in messages if self.find(one.source, one.offset) is one)

    def drop_topic(self, topic: int) -> None:
        """A topic was deleted: what waits for it goes. That follows from the catalog again, so nothing is written."""
        for one in list(self._of_topic.get(topic, ())):
            self._remove(one)

    def check_room(self, name: str, count: int, name_of: Callable[[int], str]) -> None:
        """Raise `ResourceExhausted` if the project of a topic may not schedule `count` more. `name_of`: of topics."""
        most, all_of_it = WAITING_MAX, self._count
        if 2 * (all_of_it + count) <= most:
            return  # a project that has all of it leaves as much to others
        project, had = project_in(name), 0
        for topic, rows in self._of_topic.items():
            if project_in(name_of(topic)) == project:
                had += len(rows)
        if not is_fair(had, all_of_it, count, most):
            raise ResourceExhausted(
                f"{all_of_it} of at most {most} scheduled messages are already waiting, {had} of them of {project}."
                " Cancel some, or publish these later. Nothing of this request was stored."
            )

    # -- questions ---------------------------------------------------------------------------------------------------

    def find(self, source: int, offset: int) -> Scheduled | None:
        """The message of this place, if it waits."""
        return self._of_source.get(source, {}).get(offset)

    def of_topic(self, topic: int, after: tuple[int, int, int] | None, most: int) -> list[Scheduled]:
        """Those of a topic in order; `after`: later than this (due, source, offset)."""
        rows = self._of_topic.get(topic, [])
        first = 0 if after is None else bisect_right(rows, after, key=_place)
        return rows[first : first + most]

    @property
    def first_ns(self) -> int:
        """Before this time nothing is due."""
        return self._firsts[0][0] if self._firsts else NEVER_NS

    def due(
        self,
        now_ns: int,
        most: int,
        skip: Collection[tuple[int, int]] = (),
        admits: Callable[[int], bool] = lambda topic: True,
    ) -> list[Scheduled]:
        """What is due, of each topic that is admitted in order, but for those at places to `skip`."""
        found: list[Scheduled] = []
        looked: dict[int, int] = {}
        while self._firsts and self._firsts[0][0] <= now_ns and len(found) < most:
            first_ns, topic = heappop(self._firsts)
            rows = self._of_topic.get(topic)
            if topic in looked or not rows or rows[0].due_ns != first_ns:
                continue  # it is not so any more; what came first since stands there, too
            looked[topic] = first_ns
            if not admits(topic):
                continue
            late = islice(rows, bisect_right(rows, now_ns, key=_due))
            found += islice((one for one in late if (one.source, one.offset) not in skip), most - len(found))
        for topic, first_ns in looked.items():
            heappush(self._firsts, (first_ns, topic))
        return found

    # -- facts -------------------------------------------------------------------------------------------------------

    @classmethod
    def encode(cls, facts: Iterable[Scheduled]) -> bytes:
        rows = (_ROW.pack(one.topic, one.source, one.offset, one.due_ns) for one in facts)
        return bytes((_WAITING,)) + b"".join(rows)

    @classmethod
    def decode(cls, rows: bytes) -> Iterator[Scheduled]:
        """The messages that wait for their time by this."""
        if rows[0] == _WAITING:
            for topic, source, offset, due_ns in _ROW.iter_unpack(rows[1:]):
                yield Scheduled(due_ns, source, offset, topic)

    def kept(self) -> Iterator[Scheduled]:
        for topic in list(self._of_topic):
            for one in list(self._of_topic.get(topic, ())):
                if self.find(one.source, one.offset) is one:
                    yield one

    def facts(self) -> Iterator[bytes]:
        """Also those of which another chain may have published some."""
        yield from super().facts()
        leaving = sorted(self._leaving)
        for at in range(0, len(leaving), _ROWS):
            yield _encode_places(_LEAVING, leaving[at : at + _ROWS])

    def holds(self, source: Source, first_offset: int, end: int, time_ns: int) -> bool:
        """Keep messages while they wait for their time."""
        rows = self._of_source.get(source.number)
        if not rows:
            return False
        if len(rows) < end - first_offset:
            return any(first_offset <= offset < end for offset in rows)
        return any(offset in rows for offset in range(first_offset, end))

    # -- recovery ----------------------------------------------------------------------------------------------------

    def reconcile(
        self,
        fired: Iterable[bytes],
        unsure: Container[bytes],
        sources: Mapping[int, Source],
        exists: Callable[[int], bool],
    ) -> None:
        """Take out what was fired, and what was lost before its publisher heard of it; `fired`, `unsure`: as of
        `recover`. `exists`: may a topic still have messages? What was taken out is written before anything is deleted:
        what it rests on may be deleted then.
        """
        gone: list[tuple[int, int]] = []
        for body in fired:
            doubtful = self.fired.head + body in unsure
            for firing in self.fired.facts_in(body):
                target = sources.get(firing.target)
                if doubtful and (target is None or target.end <= firing.target_offset):
                    continue  # it came last, nothing of it was deleted: so it is not there, and waits
                gone.append((firing.source, firing.offset))
                waiting = self.find(firing.source, firing.offset)
                if waiting is not None:
                    self._remove(waiting)
                self.fired.apply(firing)
        for number, rows in list(self._of_source.items()):
            source = sources.get(number)
            for one in list(rows.values()):
                if source is None or one.offset >= source.end or not exists(one.topic):
                    self._remove(one)
        for at in range(0, len(gone), _ROWS):
            self.write(_encode_places(_GONE, gone[at : at + _ROWS]))

    def recover(self, found: Iterable[bytes], unsure: Container[bytes] = ()) -> None:
        """What ends, ends for good: so it does not matter in which order facts stand in a checkpoint and after it."""
        gone: set[tuple[int, int]] = set()
        waiting: dict[tuple[int, int], Scheduled] = {}
        for fact in found:
            if fact[0] == _WAITING:
                waiting.update(((one.source, one.offset), one) for one in self.decode(fact))
            elif fact[0] == _GONE:
                gone.update(_PLACE.iter_unpack(fact[1:]))
            elif fact[0] == _LEAVING:
                self._leaving.update(_PLACE.iter_unpack(fact[1:]))
            else:
                raise ValueError(f"a fact of scheduled messages of kind {fact[0]}: written by a newer version?")
        for place in gone & waiting.keys():
            del waiting[place]
        self._leaving &= waiting.keys()
        for one in sorted(waiting.values()):
            self.apply(one)

    # -- tables ------------------------------------------------------------------------------------------------------

    def apply(self, one: Scheduled) -> None:
        of_source = self._of_source.setdefault(one.source, {})
        if one.offset in of_source:
            return
        of_source[one.offset] = one
        rows = self._of_topic.setdefault(one.topic, [])
        if not rows or rows[-1] < one:
            rows.append(one)
        else:
            insort(rows, one)
        self._count += 1
        if rows[0] is one:
            self._comes_first(one)

    def _remove(self, one: Scheduled) -> None:
        self._leave_source(one)
        rows = self._of_topic[one.topic]
        at = bisect_left(rows, one)
        del rows[at]
        self._count -= 1
        if not rows:
            del self._of_topic[one.topic]
            if not self._of_topic:
                self._firsts.clear()
        elif at == 0:
            self._comes_first(rows[0])

    def _remove_all(self, messages: Sequence[Scheduled]) -> None:
        """Messages of one topic, in order: those that come first at once."""
        rows = self._of_topic[messages[0].topic]
        first = 0
        if len(messages) < len(rows) and rows[: len(messages)] == messages:
            first = len(messages)
            for one in messages:
                self._leave_source(one)
            del rows[:first]
            self._count -= first
            self._comes_first(rows[0])
        for one in messages[first:]:
            self._remove(one)

    def _leave_source(self, one: Scheduled) -> None:
        self._leaving.discard((one.source, one.offset))
        of_source = self._of_source[one.source]
        del of_source[one.offset]
        if not of_source:
            del self._of_source[one.source]

    def _comes_first(self, one: Scheduled) -> None:
        self.on_sooner()
        heappush(self._firsts, (one.due_ns, one.topic))
        if len(self._firsts) > 2 * len(self._of_topic) + 100:  # most of it is not so any more
            self._firsts = [(rows[0].due_ns, topic) for topic, rows in self._of_topic.items()]
            heapify(self._firsts)


def _due(one: Scheduled) -> int:
    return one.due_ns


def _place(one: Scheduled) -> tuple[int, int, int]:
    return one[:3]


def _encode_places(kind: int, places: Iterable[tuple[int, int]]) -> bytes:
    return bytes((kind,)) + bytes(chain.from_iterable(_PLACE.pack(*place) for place in places))

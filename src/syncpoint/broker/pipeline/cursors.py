"""Cursors: named readers of topics, and what is kept until they have passed it.

Place: a machine beside the publish forwarder, whose extension it is: retention asks it, checkpoints hold its facts;
`reading` moves it and writes what it gives back. A cursor belongs to one incarnation of a topic.
Promise: what a cursor has not passed is held within its limits of time and bytes; what was deleted unread is reported.
A position that is not written yet is lost in a crash, which only keeps more: what is held goes by what was written.
What is remembered is bounded by the sources that exist: a sealed source read to its end needs no position, and leaves
with the source.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from syncpoint.base.model.errors import InvalidArgument, NotFound, ResourceExhausted
from syncpoint.base.model.spans import OffsetRange
from syncpoint.base.runtime.trusted import TrustedClock
from syncpoint.broker.pipeline.cursors_facts import decode, encode, encode_deleted
from syncpoint.broker.pipeline.reading_positions import Extent, comes_before
from syncpoint.broker.publish.facts.records import ExtensionNumber
from syncpoint.broker.publish.facts.source import Source, SourceTable
from syncpoint.catalog.metadata.catalog import Catalog

NUMBER = ExtensionNumber.CURSORS
RETENTION_S = 7 * 24 * 3600
EXPIRATION_S = 31 * 24 * 3600
SECONDS_MAX = 10 * 365 * 24 * 3600
NAME_CHARACTERS_MAX = 255
CURSORS_MAX = 1000  # of one topic: each is asked about every entry that might be deleted
LOST_MAX = 100
_NS = 1_000_000_000


class CursorLimits(NamedTuple):
    """What a reader asks for; 0 stands for the default."""

    retention_s: int = 0
    retention_bytes: int = 0
    expiration_s: int = 0

    def check(self) -> None:
        """Raises `InvalidArgument`."""
        for name, value in (("retention_seconds", self.retention_s), ("expiration_seconds", self.expiration_s)):
            if not 0 <= value <= SECONDS_MAX:
                raise InvalidArgument(f"cursor.{name}", f"must be between 0 (the default) and {SECONDS_MAX}")
        if self.retention_bytes < 0:
            raise InvalidArgument("cursor.retention_bytes", "must not be negative (0: no limit)")


@dataclass(slots=True)
class ReaderCursor:
    """One reader. `positions`: by source; a source without one is unread. `done`: sealed sources that were read to
    their end. `lost`: deleted unread, together with their sources.
    """

    topic: int
    name: str
    limits: CursorLimits = field(default_factory=CursorLimits)
    used_ns: int = 0
    positions: dict[int, int] = field(default_factory=dict)
    done: set[int] = field(default_factory=set)
    lost: list[OffsetRange] = field(default_factory=list)
    written: bool = False
    _held_from: dict[int, int] = field(default_factory=dict)  # as written last, like the next two
    _held_done: set[int] = field(default_factory=set)
    held_by: CursorLimits = field(default_factory=CursorLimits)

    @property
    def retention_s(self) -> int:
        return self.limits.retention_s or RETENTION_S

    @property
    def expiration_s(self) -> int:
        return self.limits.expiration_s or EXPIRATION_S

    def position(self, source: Source) -> int:
        """The first offset it has not passed."""
        return source.end if source.number in self.done else self.positions.get(source.number, 0)

    def note_written(self) -> None:
        """Note that the log has the cursor's current state."""
        self.written = True
        self._held_from, self._held_done, self.held_by = dict(self.positions), set(self.done), self.limits

    def held_from(self, source: Source) -> int:
        """The first offset it is not known to have passed by readers of the log."""
        return source.end if source.number in self._held_done else self._held_from.get(source.number, 0)

    def forget(self, source: int) -> None:
        """Nothing of a source is stored any more."""
        for done in (self.done, self._held_done):
            done.discard(source)
        for positions in (self.positions, self._held_from):
            positions.pop(source, None)

    def move(self, source: Source, position: int) -> None:
        """Everything before `position` is passed; never back."""
        position = max(min(position, source.end), self.position(source))
        if source.sealed and position >= source.end:
            self.positions.pop(source.number, None)
            self.done.add(source.number)
        elif position:
            self.positions[source.number] = position


class Cursors:
    """All cursors of a server. `clock`: what is too old is judged by the time it is sure of, so that one wrong reading
    deletes nothing. `mean_bytes(topic)`: of a stored message, 0 while it is unknown.
    """

    number = NUMBER

    def __init__(
        self,
        sources: SourceTable,
        catalog: Catalog,
        clock: TrustedClock,
        mean_bytes: Callable[[int], float],
        found: Iterable[bytes] = (),
    ) -> None:
        """`found`: the facts of this extension, as recovery found them. Raises `ValueError` for a newer version's."""
        self.sources, self.catalog, self.clock, self.mean_bytes = sources, catalog, clock, mean_bytes
        self.on_more: Callable[[int], None] = lambda topic: None  # something is held that may not have been
        self._by_topic: dict[int, dict[str, ReaderCursor]] = {}  # by topic and name
        self.holding = self._by_topic  # see `publish.forwarder.HoldingExtension`
        self._began_ns = clock.time_ns()
        for payload in found:
            self._apply(payload)
        for cursor in self.all():
            self._reconcile(cursor)

    def _apply(self, payload: bytes) -> None:
        fact = decode(payload)
        if fact.deleted:
            self._drop(fact.topic, fact.name)
            return
        cursor = ReaderCursor(
            fact.topic, fact.name, CursorLimits(*fact.limits), fact.used_ns, dict(fact.positions), set(fact.done),
            [OffsetRange(*one) for one in fact.lost],
        )  # fmt: skip
        self._by_topic.setdefault(fact.topic, {})[fact.name] = cursor

    def _reconcile(self, cursor: ReaderCursor) -> None:
        """After a restart: sources that are gone leave, those that were sealed by it may be done."""
        known = {source.number: source for source in self.sources.of_topic(cursor.topic)}
        cursor.done &= known.keys()
        for number, position in list(cursor.positions.items()):
            source = known.get(number)
            if source is None:
                del cursor.positions[number]
            else:
                cursor.move(source, position)
        cursor.note_written()  # what follows from the log needs no fact of its own

    # -- asked -------------------------------------------------------------------------------------------------------

    def all(self) -> Iterator[ReaderCursor]:
        """Every cursor there is."""
        for named in self._by_topic.values():
            yield from named.values()

    def of_topic(self, topic: int) -> list[ReaderCursor]:
        """Those of a topic incarnation, by name."""
        return sorted(self._by_topic.get(topic, {}).values(), key=lambda cursor: cursor.name)

    def lost(self, cursor: ReaderCursor, found: Iterable[Extent]) -> list[OffsetRange]:
        """What was deleted before it was read: of sources that are gone, and of those that are there."""
        there = [
            OffsetRange(source.number, position, begin)
            for source, begin, _ in found
            if (position := cursor.position(source)) < begin
        ]
        return [*cursor.lost, *there]

    # -- moved by the reader -----------------------------------------------------------------------------------------

    def begin(self, topic: int, name: str, limits: CursorLimits, starts: Mapping[int, int]) -> ReaderCursor:
        """A reader begins, or begins anew, at these offsets by source.

        Raises `InvalidArgument`, `ResourceExhausted`.
        """
        limits.check()
        check_name(name)
        named = self._by_topic.get(topic, {})
        if name not in named and len(named) >= CURSORS_MAX:
            raise ResourceExhausted(
                f"The topic already has {CURSORS_MAX} cursors, the maximum. Delete unused ones first."
            )
        cursor = ReaderCursor(topic, name, limits, self.clock.time_ns())
        for source in self.sources.of_topic(topic):
            cursor.move(source, starts.get(source.number, 0))
        self._by_topic.setdefault(topic, {})[name] = cursor
        self.on_more(topic)
        return cursor

    def find(self, topic: int, name: str) -> ReaderCursor | None:
        return self._by_topic.get(topic, {}).get(name)

    def advance(self, cursor: ReaderCursor, limits: CursorLimits, ends: Mapping[int, int]) -> None:
        """The reader is alive, and has processed everything before these ends by source; sources that are not named
        and come before one that is, to their end. Raises `InvalidArgument`.
        """
        limits.check()
        cursor.limits = limits
        cursor.used_ns = max(cursor.used_ns, self.clock.time_ns())
        for number, end in passed(self.sources.of_topic(cursor.topic), ends).items():
            cursor.move(self.sources.by_number[number], end)
        newest = max(ends, default=0)
        cursor.lost = [one for one in cursor.lost if one.source > newest or ends.get(one.source, one.end) < one.end]
        cursor.written = False

    def delete(self, topic: int, name: str) -> bytes:
        """Forget a cursor; returns the fact to write. Raises `NotFound`."""
        if not self._drop(topic, name):
            raise NotFound(name, f"The topic has no cursor {name!r}. Call ListCursors for those it has.")
        return encode_deleted(topic, name)

    def _drop(self, topic: int, name: str) -> bool:
        named = self._by_topic.get(topic, {})
        if named.pop(name, None) is None:
            return False
        if not named:
            del self._by_topic[topic]
        return True

    # -- what follows ------------------------------------------------------------------------------------------------

    def unwritten(self) -> list[bytes]:
        """Facts that are not in the log yet; they count as written now."""
        return [self.write(cursor) for cursor in self.all() if not cursor.written]

    def write(self, cursor: ReaderCursor) -> bytes:
        """The fact of one cursor; it counts as written now."""
        more = cursor.held_by != cursor.limits
        cursor.note_written()
        if more:
            self.on_more(cursor.topic)
        return _encoded(cursor)

    def expire(self) -> list[bytes]:
        """Forget cursors nobody used for as long as they say, and those of deleted topics; returns facts to write. Time
        in which the server was not there does not count.
        """
        now_ns = self.clock.sure_ns()
        over = [
            cursor
            for cursor in self.all()
            if self.catalog.topic_by_incarnation(cursor.topic) is None
            or now_ns - max(cursor.used_ns, self._began_ns) > cursor.expiration_s * _NS
        ]
        return [self.delete(cursor.topic, cursor.name) for cursor in over]

    # -- the extension of the publish forwarder ----------------------------------------------------------------------

    def facts(self) -> Iterator[bytes]:
        for cursor in list(self.all()):
            yield _encoded(cursor)

    def holds(self, source: Source, first_offset: int, end: int, time_ns: int) -> bool:
        named = self._by_topic.get(source.topic)
        if not named or self.catalog.topic_by_incarnation(source.topic) is None:
            return False
        age_ns = self.clock.sure_ns() - time_ns
        return any(
            end > cursor.held_from(source)
            and age_ns < (cursor.held_by.retention_s or RETENTION_S) * _NS
            and not self._too_much(cursor, source, first_offset)
            for cursor in named.values()
        )

    def _too_much(self, cursor: ReaderCursor, source: Source, offset: int) -> bool:
        """Whether more than the cursor's limit of bytes lies from `offset` on."""
        if not cursor.held_by.retention_bytes:
            return False
        messages = source.end - offset
        for other in self.sources.of_topic(source.topic):
            if comes_before(source, other):
                messages += other.end
        return messages * self.mean_bytes(source.topic) > cursor.held_by.retention_bytes

    def forgotten(self, source: Source) -> None:
        for cursor in self.of_topic(source.topic):
            position = cursor.position(source)
            if position < source.end:
                cursor.lost = [*cursor.lost, OffsetRange(source.number, position, source.end)][-LOST_MAX:]
                cursor.written = False
            cursor.forget(source.number)


def check_name(name: str) -> None:
    """Raises `InvalidArgument` for what no cursor can be called."""
    if not 0 < len(name) <= NAME_CHARACTERS_MAX:
        raise InvalidArgument("cursor.name", f"must have 1 to {NAME_CHARACTERS_MAX} characters")


def passed(sources: Iterable[Source], ends: Mapping[int, int]) -> dict[int, int]:
    """What a reader has processed of each source, by the rule of `GetPositionsRequest.processed`: those that are named
    up to the ends named, those that come before one of them to their end.
    """
    known = list(sources)
    named = [source for source in known if source.number in ends]
    newest = max(ends, default=-1)  # it may be one that is gone already
    found = {source.number: min(ends[source.number], source.visible) for source in named}
    for source in known:
        if source.number not in ends and (
            any(comes_before(source, other) for other in named) or (not named and source.number < newest)
        ):
            found[source.number] = source.visible
    return found


def _encoded(cursor: ReaderCursor) -> bytes:
    return encode(
        cursor.topic, cursor.name, cursor.limits, cursor.used_ns, cursor.positions, cursor.done, cursor.lost
    )  # fmt: skip

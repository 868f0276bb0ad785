"""Where sources ended of which nothing is stored any more, so that readers know whether they have read all of them.

Place: an extension of the publish forwarder beside `cursors`, driven by `reading`; reported in GetPositions of the
sources that a reader names. Only the newest are remembered: of older ones a reader without a cursor has to believe that
it missed something. A fact lost in a crash has the same effect.
"""

import struct
from collections.abc import Iterable, Iterator

from syncpoint.broker.publish.facts.records import ExtensionNumber
from syncpoint.broker.publish.facts.source import INNER_TOPICS, Source

NUMBER = ExtensionNumber.ENDED_SOURCES
REMEMBERED_MAX = 1000
_ENDED = struct.Struct("<QQq")  # source, topic, end


class EndedSources:
    """The newest sources that were forgotten, by number: topic and end."""

    number = NUMBER

    def __init__(self, found: Iterable[bytes] = ()) -> None:
        """`found`: the facts of this extension, as recovery found them."""
        self._ended: dict[int, tuple[int, int]] = {}
        self._unwritten: list[int] = []
        for fact in found:
            for source, topic, end in _ENDED.iter_unpack(fact):
                self._enter(source, topic, end)

    def end_of(self, topic: int, source: int) -> int | None:
        """Where a source of a topic ended that is gone; None: that is not known."""
        found = self._ended.get(source)
        return found[1] if found is not None and found[0] == topic else None

    def unwritten(self) -> list[bytes]:
        """A fact of what is not in the log yet; it counts as written now."""
        fact, self._unwritten = self._encoded(self._unwritten), []
        return [fact] if fact else []

    def facts(self) -> Iterator[bytes]:
        if self._ended:
            yield self._encoded(self._ended)

    def forgotten(self, source: Source) -> None:
        if source.topic not in INNER_TOPICS:
            self._enter(source.number, source.topic, source.end)
            self._unwritten.append(source.number)

    def _enter(self, source: int, topic: int, end: int) -> None:
        self._ended.pop(source, None)
        self._ended[source] = topic, end
        if len(self._ended) > REMEMBERED_MAX:
            del self._ended[next(iter(self._ended))]

    def _encoded(self, sources: Iterable[int]) -> bytes:
        return b"".join(_ENDED.pack(one, *self._ended[one]) for one in sources if one in self._ended)

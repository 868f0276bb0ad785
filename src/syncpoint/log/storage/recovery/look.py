"""Look: which entries of one segment are still needed, judged record by record, over as many steps as it takes.

Place: kept by `trim`, which asks what is live and decides what follows from it.
Promise: records come source by source. Where more of a source may be needed than when it was judged, that source alone
is judged anew, after the others: whoever needs more of one topic does not have the others judged again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from syncpoint.log.storage.disk.segment_catalog import Segment
from syncpoint.log.storage.index import Index, IndexRecord
from syncpoint.log.storage.record import Header

_END = 1 << 64  # above every source


class Look:
    """A segment being judged. `sources`: everything was found dead, and these are judged anew; otherwise all are."""

    __slots__ = ("_again", "_at", "live", "live_bytes", "records", "seen", "segment", "too_much")

    def __init__(self, segment: Segment, index: Index, sources: Collection[int] | None = None) -> None:
        self.segment = segment
        self.live: list[IndexRecord] = []
        self.live_bytes = 0
        self.too_much = False  # more is live than is worth copying
        self.seen = 0  # records judged; all of them once it is as many as the segment has messages
        self._at = -1  # the source that is judged
        self._again: set[int] = set()
        self.records = self._all(index)
        if sources is not None:
            self.seen = segment.messages
            self._at = _END
            self._again.update(sources)
            self.records = self._anew(index)

    def doubt(self, sources: Collection[int]) -> bool:
        """More of these may be needed: whether any of what was judged is concerned."""
        concerned = [source for source in sources if source <= self._at]
        self._again.update(concerned)
        return bool(concerned)

    def go_on(self, index: Index) -> None:
        """Restart a look that was complete, since its result is in doubt."""
        self.records = self._anew(index)

    def keep(self, record: IndexRecord) -> None:
        """Keep a live record."""
        self.live.append(record)
        self.live_bytes += record.length

    def _all(self, index: Index) -> Iterator[IndexRecord]:
        for record in index.messages():
            self._at = record.source
            self.seen += 1
            yield record
        self._at = _END
        yield from self._anew(index)

    def _anew(self, index: Index) -> Iterator[IndexRecord]:
        while self._again:
            source = min(self._again)
            self._again.remove(source)  # first: it may be doubted once more while it is judged
            self.live = [record for record in self.live if record.source != source]
            self.live_bytes = sum(record.length for record in self.live)
            yield from index.of_source(source)


class Move:
    """A segment whose live rest is being copied forward. `stale`: more may be needed of it than is copied, of `doubted`
    (None: of any source); `look` is being taken to see, once everything else is copied.
    """

    __slots__ = ("copied", "doubted", "fetching", "frames", "last_copy", "look", "rest", "segment", "stale")

    def __init__(self, segment: Segment, rest: list[IndexRecord]) -> None:
        self.segment = segment
        self.rest = rest
        self.copied = {record.ordinal for record in rest}
        self.stale = False
        self.doubted: set[int] | None = set()
        self.look: Look | None = None
        self.fetching = False
        self.frames: list[tuple[Header, bytes]] | Exception | None = None
        self.last_copy = 0

    def doubt(self, sources: Collection[int] | None) -> None:
        """More of these may be needed; None: of any."""
        if sources is None:
            self.stale, self.doubted, self.look = True, None, None
        elif sources:
            self.stale = True
            if self.look is not None:
                self.look.doubt(sources)
            elif self.doubted is not None:
                self.doubted.update(sources)

    def begin_look(self, index: Index) -> Look:
        look = self.look = Look(self.segment, index, self.doubted)
        return look

    def end_look(self, look: Look) -> None:
        """Copy what it has found besides."""
        self.stale, self.doubted, self.look = False, set(), None
        self.rest = [record for record in look.live if record.ordinal not in self.copied]
        self.copied.update(record.ordinal for record in self.rest)

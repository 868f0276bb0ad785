"""Reindex: the pages of a sealed segment's index once more, from the frames it lists.

Place: used by `segment_catalog` for a page without a good copy on any disk; callable from any thread.
Promise: the pages are those that were written, or none: an index that lacks an entry would say that there is none.
A copy is read through once: what it lacks is remembered with the segment until a copy comes that was not read yet, or
for some minutes, since what was read wrongly, or not at all, may be there all the same.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping

from syncpoint.base.runtime.clock import Clock
from syncpoint.base.runtime.files import DiskFenced, DiskUnreachable, Files, FolderExchanged
from syncpoint.log.storage.disk.segment_catalog import Lacking, PageLoader, Segment, SegmentCopy, index_seed
from syncpoint.log.storage.errors import CopiesUnreachable
from syncpoint.log.storage.index import ActiveIndex, DamagedIndex, encode_index
from syncpoint.log.storage.record import Header
from syncpoint.log.storage.recovery.scan import Scanned, frames_of
from syncpoint.log.storage.segment import PAGE

KEPT_MAX = 4  # indexes built lately, of at most some three MiB each
AGAIN_S = 300.0  # how long a copy that was read through lacks what it lacked

log = logging.getLogger(__name__)


class Reindexing:
    """Loads pages by `load`, and builds those that it has not. `answers(slot)`: as of `Access`."""

    def __init__(self, files: Files, load: PageLoader, answers: Callable[[int], bool], clock: Clock) -> None:
        self._files = files
        self._load = load
        self._answers = answers
        self._clock = clock
        self._built: OrderedDict[int, bytes] = OrderedDict()  # by segment
        self._asked: set[int] = set()  # segments that are going to be read through for `page_soon`
        self._lock = threading.Lock()  # of what is kept
        self._building = threading.Lock()  # of several who need one built one does it

    def page(self, segment: Segment, offset: int, seed: int) -> bytes:
        """One page of the segment's index; may take as long as reading all of the segment. Raises as `load` does."""
        copies = segment.copies.copy()  # one that is found to be bad may be forgotten in the meantime
        try:
            return self._load(segment, offset, seed)
        except DamagedIndex as error:
            with self._building:
                body = self._kept(segment) or self._build(segment, _sealed(copies))
            if body is None:
                raise error
            return _page_of(segment, body, offset)

    def page_soon(
        self, in_thread: Callable[[Callable[[], None]], None], segment: Segment, offset: int, seed: int
    ) -> bytes:
        """Return an index page without blocking.

        A missing page is rebuilt by `in_thread`; until then raises `CopiesUnreachable`.
        """
        copies = segment.copies.copy()
        try:
            return self._load(segment, offset, seed)
        except DamagedIndex:
            body = self._kept(segment)
            if body is not None:
                return _page_of(segment, body, offset)
            lacking = self._lacking(segment)
            if lacking is not None and not _unread(_sealed(copies), lacking):
                raise
        with self._lock:
            asked = segment.id in self._asked
            self._asked.add(segment.id)
        if not asked:
            in_thread(lambda: self._read_through(segment, copies))
        raise CopiesUnreachable(f"the index of {segment!r} is being rebuilt")

    def _read_through(self, segment: Segment, copies: Mapping[int, SegmentCopy]) -> None:
        try:
            with self._building:
                if not segment.removed and self._kept(segment) is None:
                    self._build(segment, _sealed(copies))
        except CopiesUnreachable as error:
            log.debug("%s", error)  # it is asked for again
        except Exception:
            log.exception("the index of %r cannot be rebuilt", segment)
        finally:
            with self._lock:
                self._asked.discard(segment.id)

    def _kept(self, segment: Segment) -> bytes | None:
        with self._lock:
            return self._built.get(segment.id)

    def _lacking(self, segment: Segment) -> Lacking | None:
        found = segment.lacking
        return None if found is None or self._clock.monotonic() >= found.until else found

    def _build(self, segment: Segment, copies: Mapping[int, SegmentCopy]) -> bytes | None:
        """The index, which is kept; None where the copies lack an entry. Those not read yet come first: as long as they
        add nothing the others need not be read once more. Raises `CopiesUnreachable`.
        """
        known = self._lacking(segment)
        every = range(segment.first_position, segment.last_position + 1)
        fresh = _unread(copies, known)
        if known is not None and not fresh:
            return None
        look = _Look(self._files, self._answers, segment)
        look.read(fresh, every)
        left = look.left(every if known is None else known.positions)
        if known is not None and not left:
            look.read({slot: copy for slot, copy in copies.items() if slot not in fresh}, every)
            left = look.left(every)
        body = None if left else _encoded(segment, look.frames)
        if body is None:
            if known is None:
                segment.lacking = Lacking(look.copies, left, self._clock.monotonic() + AGAIN_S)
            else:
                segment.lacking = Lacking([*known.copies, *look.copies], left, known.until)
            if left and look.away is not None:
                raise CopiesUnreachable(f"{segment!r} cannot be read completely now") from look.away
            return None
        with self._lock:
            self._built[segment.id] = body
            if len(self._built) > KEPT_MAX:
                self._built.popitem(last=False)
        return body


class _Look:
    """Frames of one segment, from whichever copies have them."""

    def __init__(self, files: Files, answers: Callable[[int], bool], segment: Segment) -> None:
        self._files = files
        self._answers = answers
        self._segment = segment
        self.frames: dict[int, Scanned] = {}
        self.copies: list[SegmentCopy] = []  # that were read to their end, or as far as the disk gave them
        self.away: Exception | None = None

    def read(self, copies: Mapping[int, SegmentCopy], wanted: range) -> None:
        """Read one copy after the other until all that is wanted was found."""
        for slot, copy in copies.items():
            if len(self.frames) == len(wanted):
                return
            try:
                found = frames_of(self._files, copy.path, self._segment.data_end, copy.seed).frames
            except (DiskUnreachable, DiskFenced, FolderExchanged) as error:
                self.away = error
            except OSError as error:
                if not self._answers(slot):
                    self.away = error
                    continue
                self.copies.append(copy)  # as good as a copy without a frame, for now
            else:
                self.copies.append(copy)
                self.frames.update((position, found[position]) for position in wanted if position in found)

    def left(self, positions: Collection[int]) -> Collection[int]:
        return [position for position in positions if position not in self.frames]


def _encoded(segment: Segment, frames: Mapping[int, Scanned]) -> bytes | None:
    index = ActiveIndex()
    for ordinal, (offset, header) in enumerate(_in_order(frames)):
        index.add(
            header.kind,
            header.source,
            header.first_offset,
            header.count,
            header.time_ns,
            offset,
            header.length,
            ordinal,
        )
    body, *counts = encode_index(index, index_seed(segment.universe, segment.log, segment.seq))
    return body if counts == [segment.messages, segment.controls, segment.sources] else None


def _in_order(frames: Mapping[int, Scanned]) -> Iterator[tuple[int, Header]]:
    for position in sorted(frames):
        yield frames[position].offset, frames[position].header


def _sealed(copies: Mapping[int, SegmentCopy]) -> dict[int, SegmentCopy]:
    return {slot: copy for slot, copy in copies.items() if copy.sealed}


def _unread(copies: Mapping[int, SegmentCopy], lacking: Lacking | None) -> dict[int, SegmentCopy]:
    seen = () if lacking is None else lacking.copies
    return {slot: copy for slot, copy in copies.items() if not any(copy is one for one in seen)}


def _page_of(segment: Segment, body: bytes, offset: int) -> bytes:
    at = offset - segment.index_offset
    return body[at : at + PAGE]

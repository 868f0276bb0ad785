"""Reindex: the pages of a sealed segment's index once more, from the frames it lists.

Place: behind `catalog`, for a page that is on no disk in good order; callable from any thread.
Promise: the pages are those that were written, or none: an index that lacks an entry would say that there is none.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator

from syncpoint.runtime.files import DiskFenced, DiskUnreachable, Files, FolderExchanged
from syncpoint.storage.catalog import Copy, PageLoader, Segment, index_seed
from syncpoint.storage.errors import CopiesUnreachable
from syncpoint.storage.index import ActiveIndex, DamagedIndex, encode_index
from syncpoint.storage.record import Header
from syncpoint.storage.recovery.scan import Scanned, frames_of
from syncpoint.storage.segment import PAGE

KEPT_MAX = 4  # indexes built lately, of at most some three MiB each


class Reindexing:
    """Loads pages by `load`, and builds those that it has not."""

    def __init__(self, files: Files, load: PageLoader) -> None:
        self._files = files
        self._load = load
        self._built: OrderedDict[int, bytes] = OrderedDict()  # by segment
        self._lock = threading.Lock()  # also held while one is built: of several who need it one does it

    def page(self, segment: Segment, offset: int, seed: int) -> bytes:
        """One page of the segment's index. Raises as `load` does."""
        copies = list(segment.copies.values())  # one that is found to be bad may be forgotten meanwhile
        try:
            return self._load(segment, offset, seed)
        except DamagedIndex as error:
            with self._lock:
                body = self._built.get(segment.id)
                if body is None:
                    body = self._build(segment, [copy for copy in copies if copy.sealed])
                    if body is None:
                        raise error
                    self._built[segment.id] = body
                    if len(self._built) > KEPT_MAX:
                        self._built.popitem(last=False)
            at = offset - segment.index_offset
            return body[at : at + PAGE]

    def _build(self, segment: Segment, copies: list[Copy]) -> bytes | None:
        frames: dict[int, Scanned] = {}
        wanted = range(segment.first_position, segment.last_position + 1)
        away: Exception | None = None
        for copy in copies:
            try:
                found = frames_of(self._files, copy.path, segment.data_end, copy.seed).frames
            except (DiskUnreachable, DiskFenced, FolderExchanged) as error:
                away = error
            except OSError:
                continue  # as good as a copy without a frame
            else:
                frames.update((position, found[position]) for position in wanted if position in found)
            if len(frames) == len(wanted):
                break
        if len(frames) < len(wanted):
            if away is not None:
                raise CopiesUnreachable(f"{segment!r} can not be read through now") from away
            return None
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


def _in_order(frames: dict[int, Scanned]) -> Iterator[tuple[int, Header]]:
    for position in sorted(frames):
        yield frames[position].offset, frames[position].header

"""Reads while entries are copied forward: every message is found, whichever copies of others are persisted by then."""

from __future__ import annotations

import random
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from syncpoint.log.storage.index import ActiveIndex, IndexRecord
from syncpoint.log.storage.reader import ReadRequest, StoreReader
from syncpoint.log.storage.record import EntryKind, StoredBatch

SOURCE, LOG, BYTES = 5, 1, 10


class CopiedForward:
    """Two segments of a log: an earlier one, and that of now, to which `copies` of messages were appended in this
    order. The first `persisted` of them are on the disks.
    """

    def __init__(self, originals: Sequence[int], copies: Sequence[int], persisted: int) -> None:
        self.indexes: dict[int, ActiveIndex] = {}
        self.segments: list[Any] = []
        for seq, offsets, first in ((1, originals, 0), (2, copies, 1000)):
            index = self.indexes[seq] = ActiveIndex()
            for ordinal, offset in enumerate(offsets):
                index.add(EntryKind.MESSAGES, SOURCE, offset, 1, 1, 0, BYTES, ordinal)
            last = first + len(offsets) - 1
            self.segments.append(
                SimpleNamespace(log=LOG, seq=seq, removed=False, first_position=first, last_position=last)
            )
        self.persisted = 1000 + persisted - 1
        self.reader = StoreReader(self, self, 1 << 16, lambda work: work(), self._never, self._never)  # type: ignore[arg-type]

    def _never(self, *_: object) -> None:
        raise AssertionError("nothing is removed, no index is lost")

    # -- what a reader asks of a catalog and of copies ---------------------------------------------------------------

    def index(self, segment: Any) -> ActiveIndex:
        return self.indexes[segment.seq]

    def opened(self, segment: Any) -> CopiedForward:
        return self

    def frames(self, run: Sequence[IndexRecord]) -> list[tuple[None, bytes]]:
        return [(None, b"%d" % record.first_offset) for record in run]

    def close(self) -> None:
        """Nothing is open."""

    # -- reads -------------------------------------------------------------------------------------------------------

    def read(self, begin: int, max_bytes: int) -> list[int]:
        """The offsets that one read finds."""
        found: list[list[StoredBatch] | Exception] = []
        request = ReadRequest(SOURCE, begin, max_bytes, self.persisted, LOG, self.segments, True, found.append)
        self.reader.put(request)
        self.reader.step()
        (batches,) = found
        assert isinstance(batches, list), batches
        assert [batch.payload for batch in batches] == [b"%d" % batch.first_offset for batch in batches]
        return [batch.first_offset for batch in batches]

    def read_all(self, max_bytes: int) -> list[int]:
        """What all reads find that go on where the one before ended."""
        offsets, begin = list[int](), 0
        while found := self.read(begin, max_bytes):
            offsets += found
            begin = found[-1] + 1
        return offsets


def test_copies_that_are_not_persisted_hide_nothing_behind_them() -> None:
    """Of the first copies that are seen some are not shown: what comes next is still among the copies."""
    stored = CopiedForward([57, 58, 59, *range(77, 82)], [*range(61, 77), 57, 58, 59], persisted=16)
    for begin in range(62):
        assert stored.read(begin, 1 << 20) == [one for one in (57, 58, 59, *range(61, 82)) if one >= begin]


def test_where_none_of_the_first_copies_is_persisted_the_others_are_found() -> None:
    stored = CopiedForward(range(40), [*range(40, 60), *range(40)], persisted=20)
    assert stored.read_all(1 << 20) == list(range(60))
    alone = CopiedForward([], [*range(40, 60), *range(40)], persisted=20)
    assert alone.read_all(1 << 20) == list(range(40, 60))


@pytest.mark.parametrize("seed", range(300))
def test_every_message_is_read_whatever_is_copied_and_persisted(seed: int) -> None:
    chance = random.Random(seed)
    offsets = sorted(chance.sample(range(120), chance.randrange(1, 100)))
    copies = [one for one in offsets if chance.random() < 0.7]
    for _ in range(chance.randrange(3)):  # in several rounds, each in order
        at = chance.randrange(len(copies) + 1)
        copies = copies[at:] + copies[:at]
    persisted = chance.randrange(len(copies) + 1)
    gone = {one for one in copies[:persisted] if chance.random() < 0.8}  # the originals of what is persisted
    stored = CopiedForward([one for one in offsets if one not in gone], copies, persisted)
    assert stored.read_all(chance.choice((1, 25, 90, 1 << 20))) == offsets

"""Which checkpoint counts, by the indexes alone."""

from __future__ import annotations

import pytest

from syncpoint.log.storage.disk.segment_catalog import Segment
from syncpoint.log.storage.index import IndexRecord
from syncpoint.log.storage.record import EntryKind
from syncpoint.log.storage.recovery.checkpoints import find_newest


@pytest.mark.parametrize(("parts", "found"), [((0, 1), [0, 1]), ((1, 0), [0, 1]), ((0,), None), ((0, 0), None)])
def test_a_checkpoint_counts_with_all_its_parts_in_their_order(parts: tuple[int, ...], found: list[int] | None) -> None:
    segment = Segment(1, 1, log=1, seq=1, first_position=5, active=None)
    entries = [
        (EntryKind.CHECKPOINT_BEGIN, 0, 0, 0),
        *((EntryKind.CHECKPOINT_PART, 5, number, 0) for number in parts),
        (EntryKind.CHECKPOINT_END, 0, 5, 2),
    ]
    records = [
        IndexRecord(source, first, 0, count, 0, 0, ordinal, kind)
        for ordinal, (kind, source, first, count) in enumerate(entries)
    ]
    newest = find_newest([(segment, records)])
    assert (None if newest is None else [record.first_offset for _, record in newest.parts]) == found

"""What is deleted is needed by nobody: checked when it is decided, before the tombstones are written.

Place: around the one step of a store that lets segments go; made by `nodes` for every chain that is opened. What ends
in a loss only where an owner dies at the wrong moment is seen here at every deletion.
Promise: nothing of the simulation is touched. Indexes are read past the disks, and no draw and no accident depends on
it.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FunctionType

from syncpoint.base.model.cluster import ChainRecord
from syncpoint.broker.publish.chain.chain import Chain
from syncpoint.broker.publish.keep.retention import is_needed
from syncpoint.log.storage.disk.segment_catalog import Segment, index_seed
from syncpoint.log.storage.index import DamagedIndex, Index, IndexRecord, SealedIndex, check_page
from syncpoint.log.storage.recovery.trim import CollectReport
from syncpoint.log.storage.segment import PAGE
from syncpoint.testing.simulation.coverage import Coverage
from syncpoint.testing.simulation.simulated_disks import DiskFarm


class Deletions:
    """Watch deletions of one chain during one life of its owner."""

    def __init__(self, coverage: Coverage, farm: DiskFarm, records: Mapping[int, ChainRecord], chain: Chain) -> None:
        self._coverage, self._farm, self._records = coverage, farm, records
        self._chain, self._store = chain, chain.store
        deletion = self._store._deletion
        self._drop = deletion.drop
        deletion.drop = self._looked_at  # type: ignore[method-assign]

    def _looked_at(self, segments: Sequence[Segment], report: CollectReport) -> None:
        with unnoticed():
            for segment in segments:
                self._look(segment, segments)
        self._drop(segments, report)

    def _look(self, segment: Segment, dying: Collection[Segment]) -> None:
        index = self._index(segment)
        if index is None:
            return
        forwarder = self._chain.forwarder
        for one in index.messages():
            if is_needed(forwarder, one.source, one.first_offset, one.count, one.time_ns) and self._is_owed(one):
                self._coverage.sometimes("what is needed is copied before it is deleted")
                self._coverage.always(
                    "nothing that is needed is deleted",
                    self._is_kept(one, dying),
                    f"offset {one.first_offset} of source {one.source} with segment {segment.log}/{segment.seq}",
                )

    def _is_owed(self, one: IndexRecord) -> bool:
        """Whether a subscription has not acknowledged all of it that never was reset by a seek: what a seek makes
        needed again may be on its way out.
        """
        forwarder = self._chain.forwarder
        found = forwarder.sources.by_number.get(one.source)
        for record in forwarder.catalog.subscriptions_of(found.topic) if found is not None else ():
            ledger = forwarder.ledgers.get(record.incarnation)
            if record.generation or record.detached or ledger is None:
                continue
            if not ledger.covers(one.source, one.first_offset, one.first_offset + one.count):
                return True
        return False

    def _is_kept(self, one: IndexRecord, dying: Collection[Segment]) -> bool:
        """Whether it is also in a segment that stays, and persisted there."""
        store = self._store
        numbers = store._sources.candidates(one.source, one.first_offset, 1 << 30)
        for segment in store.catalog.of_ids(numbers):
            index = None if segment in dying else self._index(segment)
            for other in index.records(one.source, one.first_offset, 2) if index is not None else ():
                there = segment.log != store.log_counter or (
                    segment.first_position + other.ordinal <= store._disks.progress.synced
                )
                whole = other.first_offset <= one.first_offset and (
                    other.first_offset + other.count >= one.first_offset + one.count
                )
                if there and whole:
                    return True
        return False

    def _index(self, segment: Segment) -> Index | None:
        """As it lies on any of the disks; None where it is on none in good order."""
        if segment.active is not None:
            return segment.active
        seed = index_seed(segment.universe, segment.log, segment.seq)
        for copy in segment.copies.values():
            content = self._content(copy.path)

            def page(number: int, content: bytes = content) -> bytes:
                at = segment.index_offset + number * PAGE
                return check_page(content[at : at + PAGE], seed)

            index = SealedIndex(segment.messages, segment.controls, segment.sources, page)
            try:
                list(index.messages())
            except DamagedIndex:
                continue
            return index
        return None

    def _content(self, path: str) -> bytes:
        number = self._chain.number
        for place in self._records[number].places:
            root = f"/{place.cluster}/{place.disk}/"
            if path.startswith(root):
                files = self._farm.servers[place.process].files
                inner = f"/{place.disk}/chains/{number:010d}/{path.removeprefix(root)}"
                return files.content(inner) if inner in files._names else b""
        return b""


@contextmanager
def unnoticed() -> Iterator[None]:
    """What is called in the meantime is no call of the product's, for whoever counts them (see `accidents`)."""
    before = sys.getprofile()
    if not isinstance(before, FunctionType):
        yield  # nobody, or a profiler
        return
    sys.setprofile(None)
    try:
        yield
    finally:
        sys.setprofile(before)

"""A log in memory: what the forwarders need of `storage.store.Store`, without disks or threads.

For tests of the forwarders alone. Entries are persisted when `persist` is called, so a test decides what a disk would
have decided; `fail` is the loss of the quorum. `reopened` is the same log after a restart: what was persisted, under
the next log counter.
"""

from collections.abc import Callable, Iterator, Sequence

from syncpoint.model.identity import UNIVERSE_MIN
from syncpoint.storage.record import Batch, Entry, Kind


class MemoryStore:
    """See the module."""

    def __init__(self, entries: Sequence[Entry] = (), log_counter: int = 1) -> None:
        self.universe = UNIVERSE_MIN
        self.log_counter = log_counter
        self.on_persisted: Callable[[int], None] = lambda position: None
        self.on_failed: Callable[[Exception], None] = lambda error: None
        self.entries = list(entries)
        self.flushes = 0
        self._persisted = len(self.entries)

    def append(
        self,
        kind: Kind,
        payload: bytes | Sequence[bytes],
        *,
        source: int = 0,
        first_offset: int = 0,
        count: int = 0,
        time_ns: int = 0,
    ) -> int:
        data = payload if isinstance(payload, bytes) else b"".join(payload)
        position = len(self.entries) + 1
        self.entries.append(Entry(kind, position, self.log_counter, source, first_offset, count, time_ns, data))
        return position

    def flush(self) -> None:
        self.flushes += 1

    def admit(self, nbytes: int) -> None:
        """There is always room."""

    def persist(self) -> None:
        """Everything appended so far is on the disks."""
        if len(self.entries) > self._persisted:
            self._persisted = len(self.entries)
            self.on_persisted(self._persisted)

    def fail(self, error: Exception) -> None:
        """The disks are gone; what was not persisted is lost."""
        del self.entries[self._persisted :]
        self.on_failed(error)

    def reopened(self) -> "MemoryStore":
        """The store after a crash and a restart."""
        return MemoryStore(self.entries[: self._persisted], self.log_counter + 1)

    def replay(self) -> Iterator[Entry]:
        for entry in self.entries:
            yield entry._replace(payload=b"") if entry.kind in (Kind.MESSAGES, Kind.COPY) else entry

    def _of(self, source: int) -> list[Entry]:
        return [entry for entry in self.entries if entry.kind == Kind.MESSAGES and entry.source == source]

    def read(
        self,
        source: int,
        begin: int,
        max_bytes: int,
        reply: Callable[[Sequence[Batch] | Exception], None],
        *,
        early: bool = False,
    ) -> None:
        batches: list[Batch] = []
        size = 0
        for entry in self._of(source):
            known = early or entry.position <= self._persisted
            if known and entry.first_offset + entry.count > begin and size < max_bytes:
                batches.append(Batch(source, entry.first_offset, entry.count, entry.time_ns, entry.payload))
                size += len(entry.payload)
        reply(batches)

    def bounds(self, source: int) -> tuple[int, int] | None:
        held = self._of(source)
        return (held[0].first_offset, held[-1].first_offset + held[-1].count) if held else None

    def offset_at(self, source: int, time_ns: int) -> int:
        held = self._of(source)
        for entry in held:
            if entry.time_ns >= time_ns:
                return entry.first_offset
        return held[-1].first_offset + held[-1].count if held else 0

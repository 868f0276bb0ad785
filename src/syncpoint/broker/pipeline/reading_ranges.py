"""One ReadRange: stored messages of one source, from storage through the kernel to the caller's stream.

Place: begun by `reading` for each call. A frame is made only when the last one is on its way: by the store's reading
thread where messages come from disk, else in turns of the loop, so that all other work goes on in between.
Promise: offsets come in order and without gaps; what is missing is an error that names it. Here message bytes are
copied once, from what storage has read into their column.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from syncpoint.base.kernel.acks import AckSet
from syncpoint.base.kernel.columns import Gathering
from syncpoint.base.kernel.errors import Malformed
from syncpoint.base.model import varint
from syncpoint.base.model.errors import DataLoss, Internal, OutOfRange, SyncpointError, Unavailable
from syncpoint.log.storage.record import StoredBatch
from syncpoint.log.storage.store import Store
from syncpoint.wire.protobuf.arrow import encode_batch
from syncpoint.wire.protobuf.status import not_stored_info
from syncpoint.wire.transport.calls import StreamingCall

STEP_BYTES = 1 << 20  # gathered in one turn of the loop: about half a millisecond
READ_BYTES = 4 << 20  # read from disk at most: it costs two changes of threads, however much it is
TAKE_BYTES = 1 << 18  # frames from this size on are gathered by the thread that reads
Soon = Callable[[Callable[[], None]], object]


class Selection(NamedTuple):
    """Which messages, and what of them. `acked`: sets of offsets to leave out."""

    topic: str
    source: int
    begin: int
    end: int
    columns: tuple[int, ...]
    program: bytes
    origins: tuple[bytes, ...] | None
    here: bytes
    acked: tuple[AckSet, ...]
    frame_bytes: int


class RangeStream:
    """The answer to one ReadRange. `count(rows, nbytes)` is called for what was sent."""

    def __init__(
        self, stream: StreamingCall, store: Store, wanted: Selection, soon: Soon, count: Callable[[int, int], None]
    ) -> None:
        self.stream, self.store, self.wanted = stream, store, wanted
        self._soon, self._count = soon, count
        self._at = wanted.begin  # the next offset to look at
        self._reported = wanted.begin  # the caller knows what became of everything before it
        self._batches: deque[StoredBatch] = deque()
        self._gathering = self._fresh()
        self._reading = self._taken = self._scheduled = self._over = False
        # What is acknowledged changes on the loop, so it is checked there.
        self._takes = not wanted.acked and wanted.frame_bytes >= TAKE_BYTES

    def start(self) -> None:
        """Begin. Everything else comes from storage and the stream."""
        self.stream.on_writable = self.schedule
        self.stream.on_cancel = self.cancel
        self.stream.on_drain = lambda: self._fail(
            Unavailable("The server is stopping. Continue reading from next_offset.")
        )
        self._step()

    def schedule(self) -> None:
        """Go on in the next turn of the loop."""
        if not self._scheduled and not self._over:
            self._scheduled = True
            self._soon(self._run)

    @property
    def over(self) -> bool:
        """Whether it was answered, or its caller is gone."""
        return self._over

    def end(self, error: SyncpointError) -> None:
        """Nothing more can be read here: what was gathered goes first."""
        self._fail(error)

    def cancel(self) -> None:
        """The caller is gone."""
        self._over = True
        if not self._reading:
            self._batches.clear()

    def _run(self) -> None:
        self._scheduled = False
        self._step()

    def _fresh(self) -> Gathering:
        wanted = self.wanted
        return Gathering(wanted.columns, wanted.frame_bytes, wanted.program, wanted.origins, wanted.here)

    def _step(self) -> None:
        """Gather one frame, or as much as was read, and send it."""
        if self._over or self._reading or not self.stream.writable:
            return
        try:
            self._gather(min(self.wanted.frame_bytes, self._gathering.size + STEP_BYTES))
            if self._at >= self.wanted.end:
                if self._gathering.rows or self._reported < self._at:
                    self._send()
                self._over = True
                self.stream.finish()
                return
            if self._gathering.size >= self.wanted.frame_bytes:
                self._send()
                self.schedule()
                return
            if self._batches:
                self.schedule()
                return
            self._reading, self._taken = True, False
            if self._takes:
                self.store.read(self.wanted.source, self._at, self._lacking(), self._read, take=self._take)
            else:
                size = min(self.wanted.frame_bytes, READ_BYTES)
                self.store.read(self.wanted.source, self._at, size, self._read)
        except SyncpointError as error:
            self._fail(error)

    def _lacking(self) -> int:
        """How much to read so that the frame is full."""
        wanted = self.wanted
        size = wanted.frame_bytes - self._gathering.size
        if wanted.program or wanted.origins is not None or wanted.here:
            size = max(size, STEP_BYTES)  # some of it is left out
        return min(size, READ_BYTES)

    def _take(self, batch: StoredBatch) -> bool:
        """On a thread of the store, while `_reading`: then nobody else touches what is gathered."""
        self._taken = True
        self._batches.append(batch)
        self._gather(self.wanted.frame_bytes)
        return not (self._over or self._batches or self._at >= self.wanted.end)

    def _gather(self, enough: int) -> None:
        """Take from what was read until this many bytes are gathered."""
        wanted, gathering = self.wanted, self._gathering
        while self._batches and self._at < wanted.end and gathering.size < enough:
            batch = self._batches[0]
            end = min(batch.first_offset + batch.count, wanted.end)
            if batch.first_offset > self._at:
                self._check_left_out(self._at, min(batch.first_offset, wanted.end))
                self._at = min(batch.first_offset, wanted.end)
            if end > self._at:
                skip = self._skip(batch.first_offset, end)
                try:
                    self._at = gathering.take(batch.payload, batch.first_offset, self._at, end, skip, enough)
                except Malformed as bad:
                    raise DataLoss(f"source {wanted.source} of {wanted.topic}: {bad}") from None
            if self._at >= end:
                self._batches.popleft()

    def _skip(self, begin: int, end: int) -> bytes | None:
        """The bits of what is acknowledged in [begin, end)."""
        masks = [mask for mask in (acks.mask(begin, end) for acks in self.wanted.acked) if mask is not None]
        if len(masks) < 2:
            return masks[0] if masks else None
        both = int.from_bytes(masks[0], "little") | int.from_bytes(masks[1], "little")
        return both.to_bytes(max(map(len, masks)), "little")

    def _check_left_out(self, begin: int, end: int) -> None:
        """[begin, end) is not stored. Raises `OutOfRange` unless all of it was to be left out."""
        at = begin
        while at < end:
            reached = max((acks.first_gap(at) for acks in self.wanted.acked), default=at)
            if reached <= at:
                raise not_stored(self.wanted.topic, self.wanted.source, at, end)
            at = reached

    def _read(self, batches: Sequence[StoredBatch] | Exception) -> None:
        """Storage has answered, perhaps at once."""
        self._reading = False
        if self._over:
            self._batches.clear()
            return
        if isinstance(batches, SyncpointError):
            self._fail(batches)
        elif isinstance(batches, Exception):
            self._fail(Internal(f"source {self.wanted.source} of {self.wanted.topic} cannot be read: {batches}"))
        else:
            self._batches.extend(batches)
            if not batches and not self._taken:
                try:
                    self._check_left_out(self._at, self.wanted.end)
                except OutOfRange as gone:
                    self._fail(gone)
                    return
                self._at = self.wanted.end
            self.schedule()

    def _send(self) -> None:
        size = self._gathering.size
        rows, nodes, lengths, body = self._gathering.finish()
        self._gathering = self._fresh()
        body_bytes = sum(map(len, body))
        head = encode_batch(rows, nodes, lengths, body_bytes)
        before = b"\x0a" + varint.encode(len(head) + body_bytes) + head  # ReadFrame.batch
        behind = (b"\x10" + varint.encode(rows) if rows else b"") + b"\x18" + varint.encode(self._at)
        self._reported = self._at
        self._count(rows, size)
        self.stream.send([before, *(buffer for buffer in body if buffer), behind])

    def _fail(self, error: SyncpointError) -> None:
        """What was gathered before the fault goes first: it is right. Unless it is being gathered right now."""
        if self._over:
            return
        if self._gathering.rows and not self._reading:
            self._send()
        self._over = True
        self.stream.finish(error)


def not_stored(topic: str, source: int, begin: int, end: int) -> OutOfRange:
    """Messages that are not there any more, or never were. A detail has where a reader may go on."""
    return OutOfRange(
        f"Messages {begin} to {end - 1} of source {source} of {topic} are not stored any more: they were needed by no"
        " subscription, snapshot or cursor, and the topic's retention did not keep them. Call GetPositions for what is"
        " stored; give the topic a retention, or the reader a cursor, to keep messages until they are read.",
        [not_stored_info(end)],
    )

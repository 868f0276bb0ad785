"""The sending half of a connection: one write per turn, and the connection's send window.

Place: under `connection`; streams append bytes to `out` and queue what windows hold back.
Promise: bytes leave in the order in which they were appended; everything appended within one turn of the event loop
leaves in one write (in steps of `BURST` bytes when it is a lot); streams that wait share a window in turns; waiting
bytes are bounded.
Leaves to `stream_state`: cutting messages into frames. To the socket: what was handed to it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sized
from typing import Protocol

from syncpoint.wire.transport.frames import FRAME_BYTES_MIN, WINDOW_DEFAULT
from syncpoint.wire.transport.limits import TransportLimits
from syncpoint.wire.transport.unsent import Unsent

BURST = 256 * 1024
"""Bytes gathered before they are handed to the socket, which then may say that it is full."""
_JOIN = 64 * 1024
"""Below this many bytes one joined buffer is cheaper than a vector of them."""

Buffer = bytes | bytearray | memoryview


class SendingStream(Protocol):
    """What an outbox asks of a stream whose bytes wait."""

    @property
    def queue(self) -> Sized | None:
        """What waits."""

    @property
    def send_window(self) -> int:
        """What its own window would let go."""

    def push(self) -> None:
        """Append to the outbox what windows allow."""

    def notice_writable(self) -> None:
        """Note that the stream may accept messages again."""


class Outbox(asyncio.Protocol):
    """Everything a connection has to send. `loop` gives time and turns; `transport` takes bytes."""

    def __init__(self, loop: asyncio.AbstractEventLoop, limits: TransportLimits) -> None:
        self.loop = loop
        self.limits = limits
        self.transport: asyncio.Transport | None = None
        self.out: list[Buffer] = []
        self.out_bytes = 0
        """Bytes of large messages in `out`; small ones are not counted."""
        self.corked = False
        """True while received frames are worked off; the flush comes at their end."""
        self.paused = False
        self.paused_since = 0.0
        self.closed = False
        self.send_window = WINDOW_DEFAULT
        self.peer_window = WINDOW_DEFAULT
        self.peer_frame_bytes = FRAME_BYTES_MIN
        self.unsent_bytes = 0
        self.ready: dict[SendingStream, None] = {}
        """Streams with bytes queued that their own window would let go."""
        self.awaiting: dict[SendingStream, None] = {}
        """Streams that were found not writable and want to know when they are."""
        self.booked = False
        self._joins = False
        self.budget: Unsent | None = None
        """Where what waits is counted; None: nowhere."""
        self.held = 0
        self.read_bytes = self.written_bytes = 0
        """What its peer has sent, and was sent, without TLS."""
        self.stuck_since = loop.time()
        self._buffered = 0
        """What the socket had not taken when it was last asked: when it was full, and at every sweep."""
        self._moved = False

    def schedule_flush(self) -> None:
        """Flush at the end of this turn. Called after an append outside of `data_received`."""
        if not self.booked:
            self.booked = True
            self.loop.call_soon(self.flush)

    def send(self, piece: bytes) -> None:
        """Append a small frame."""
        self.out.append(piece)
        if not self.corked:
            self.schedule_flush()

    def flush(self) -> None:
        """Write what is gathered, then what waiting streams may add, until nothing is left or the socket is full."""
        self.booked = False
        while True:
            out = self.out
            if out:
                self.out = []
                total = self.out_bytes
                self.out_bytes = 0
                self._write(out, total)
            if not self.ready or self.paused or self.send_window <= 0 or self.closed:
                break
            self._fill()
            if not self.out:
                break
        if self.unsent_bytes + self._buffered != self.held:
            self._report()

    def _write(self, out: list[Buffer], total: int) -> None:
        transport = self.transport
        if transport is None or transport.is_closing():
            return
        if len(out) == 1:
            transport.write(out[0])
            self.written_bytes += len(out[0])
        elif total < _JOIN or self._joins:
            joined = b"".join(out)
            transport.write(joined)
            self.written_bytes += len(joined)
        else:
            transport.writelines(out)
            self.written_bytes += sum(map(len, out))
        if self.paused:
            self._buffered = transport.get_write_buffer_size()
            if self._buffered > self.limits.unsent_bytes:
                self.overflow()

    def _fill(self) -> None:
        ready = self.ready
        while ready and self.send_window > 0 and not self.paused and self.out_bytes < BURST:
            stream = next(iter(ready))
            del ready[stream]
            stream.push()
            if stream.queue and stream.send_window > 0:
                ready[stream] = None

    def held_back(self) -> None:
        """More bytes wait in a stream; they are counted in `unsent_bytes`."""
        if self.unsent_bytes > self.limits.unsent_bytes:
            self.overflow()
            return
        self._report()
        if not self.corked:
            self.schedule_flush()

    def report_held(self) -> None:
        transport = self.transport
        self._buffered = 0 if transport is None or self.closed else transport.get_write_buffer_size()
        self._report()

    def _report(self) -> None:
        held = self.unsent_bytes + self._buffered
        if held < self.held:
            self._moved = True
        if self.budget is not None:
            self.budget.changed(self, held)
        else:
            self.held = held

    def check_progress(self, now: float) -> None:
        """Called every now and then."""
        self.report_held()
        if self._moved or not self.held:
            self._moved = False
            self.stuck_since = now

    def window_opened(self) -> None:
        """The connection's send window or the socket can take bytes again after it could not."""
        if self.ready and not self.corked:
            self.schedule_flush()
        if self.awaiting:
            for stream in list(self.awaiting):
                stream.notice_writable()

    def pause_writing(self) -> None:
        """The socket is full (asyncio)."""
        self.paused = True
        self.paused_since = self.loop.time()
        self.report_held()

    def resume_writing(self) -> None:
        """The socket has room again (asyncio)."""
        self.paused = False
        self.report_held()
        if not self.closed:
            self.window_opened()

    def overflow(self) -> None:
        """More waits than `limits.unsent_bytes`. The connection ends."""
        raise NotImplementedError

    def shed(self) -> None:
        """More waits in all connections than may, and this one is among the worst. It ends."""
        raise NotImplementedError

"""The receiving half of a connection: frames in, rules of RFC 9113 checked, streams fed.

Place: above `connection`, of whose streams it is the only reader; both roles are made from it.
Promise: any byte string, cut anywhere, has the same effect as the same bytes in one piece; what breaks a rule ends the
stream or the connection with the code the RFC names; every loop and every buffer is bounded by `limits`.
Leaves to the roles: what a head means. To `control_frames`: frames that are neither DATA nor header blocks.

`data_received` is the hot path: it reads frame heads in place and makes no object per frame.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import cast

from syncpoint.base.model.errors import Code, SyncpointError
from syncpoint.wire.transport import frames, guard
from syncpoint.wire.transport.bulk_receiver import FROM_BYTES, BulkReceiver
from syncpoint.wire.transport.connection import Connection
from syncpoint.wire.transport.control_frames import HANDLERS, unknown
from syncpoint.wire.transport.frame_content import PADDED, HeaderBlock, content
from syncpoint.wire.transport.frames import ConnectionFault, ErrorCode, StreamFault
from syncpoint.wire.transport.limits import TransportLimits
from syncpoint.wire.transport.receive_budget import Counters
from syncpoint.wire.transport.stream_state import StreamState

log = logging.getLogger("syncpoint.wire.transport")

_unpack_head = frames.unpack_head
_handler_of = HANDLERS.get
_SID = frames.WINDOW_MAX
PIECES_FROM = 64 * 1024
"""DATA frames from this size on are fed to their streams as they come; smaller ones wait until they are whole."""


class FrameLoop(Connection):
    """A connection that handles what it receives."""

    def __init__(self, loop: asyncio.AbstractEventLoop, limits: TransportLimits, counters: Counters) -> None:
        super().__init__(loop, limits, counters)
        self._chunk_bytes = 0
        self._wanted = 0
        """Bytes that `_chunks` must have before the frame in them is whole."""
        self._credit = 0
        """Bytes of DATA for which the peer was given no connection window yet."""
        self._growing: StreamState | None = None
        """Whose DATA frame is coming in pieces; None: nobody wants the rest of it."""
        self._growing_bytes = 0
        self._growing_last = 0
        self._bulk: BulkReceiver | None = None
        self.batched_blocks: Mapping[bytes, object] = {}
        """Header blocks of methods that take batches; see `take_batch`."""

    def data_received(self, data: bytes) -> None:
        """Work off received bytes."""
        self.received = True
        if self._chunks:
            self._chunks.append(data)
            self._chunk_bytes += len(data)
            if self._chunk_bytes < self._wanted:
                return
            data = b"".join(self._chunks)
            self._chunks.clear()
        self._take_in(data)

    def _take_in(self, data: bytes) -> None:
        if self.closed:
            return
        self.corked = True
        try:
            self._work(data)
        except ConnectionFault as error:
            self.fail(error.code, error.reason)
        except Exception:
            log.exception("transport: unexpected failure; connection closed")
            self.fail(ErrorCode.INTERNAL_ERROR, "internal error")
        finally:
            self.corked = False
            if self.out or self.ready:
                self.flush()
        if self._rest >= FROM_BYTES and not self.closed and self._growing is not None:
            self._begin_bulk(self._growing)

    def _begin_bulk(self, stream: StreamState) -> None:
        """Let the rest of a message be received where it stays, as far as it is in the frame that is coming."""
        size = min(self._rest, stream.need - stream.have)
        if size < FROM_BYTES or stream.done or self._joins or self.transport is None or self.transport.is_closing():
            return
        if self._bulk is None:
            self._bulk = BulkReceiver(self, self.transport, self._bulk_came, self._bulk_done)
        self._bulk.begin(size)

    def _bulk_came(self) -> None:
        self.received = True

    def _bulk_done(self, buffer: bytearray) -> None:
        self.received = True
        self._take_in(cast(bytes, buffer))  # a piece of a message may be any buffer

    def _work(self, data: bytes) -> None:
        streams = self.streams
        n = len(data)
        a = self._piece(data, 0) if self._rest else 0
        frame_bytes = self.limits.frame_bytes
        wanted = frames.HEAD_BYTES
        while n - a >= 9 and not self.closed:
            high, low, kind, flags, sid = _unpack_head(data, a)
            size = high << 16 | low
            if size > frame_bytes:
                raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, f"frame of {size} bytes")
            b = a + 9
            end = b + size
            if end > n:
                if size < PIECES_FROM or kind or not self._begin_pieces(sid, size, flags):
                    wanted = size + 9
                    break
                if a:
                    self.progressed = True
                a = self._piece(data, b)
                break
            if self._block is not None and (kind != 9 or sid & _SID != self._block.sid):
                raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "header block interrupted")
            try:
                if kind == 0:
                    stream = streams.get(sid)
                    self._credit += size
                    if stream is None or stream.remote_done or flags & 8:
                        self._odd_data(sid & _SID, flags, data, b, end)
                    else:
                        stream.received += size
                        if stream.received > stream.granted:
                            raise StreamFault(sid, ErrorCode.FLOW_CONTROL_ERROR, "stream window overrun")
                        self._data(stream, data, b, end, flags & 1)
                elif kind == 1:
                    if flags & 0x28:
                        b, end_of_block = content(flags, sid & _SID, data, b, end)
                        block = data[b:end_of_block]
                    else:
                        block = data[b:end]
                        if block in self.batched_blocks and (after := self.take_batch(data, a, block)) > a:
                            a = after
                            continue
                    if flags & 4:
                        self._head(sid & _SID, flags & 1, block)
                    else:
                        self._block = HeaderBlock(sid & _SID, flags & 1, block, self.limits)
                elif kind == 9:
                    self._continue(flags, data[b:end])
                else:
                    _handler_of(kind, unknown)(self, flags, sid & _SID, data[b:end])
            except StreamFault as fault:
                self._reset_for(fault)
            a = end
        if self.closed:
            return
        if self._credit > self.limits.connection_window_bytes >> 2:
            if self._credit > self.limits.connection_window_bytes:
                raise ConnectionFault(ErrorCode.FLOW_CONTROL_ERROR, "connection window overrun")
            self.out.append(frames.window_update(0, self._credit))
            self._credit = 0
        if a and not self._rest:
            self.progressed = True
        if a < n:
            rest = data[a:] if a else data
            self._chunks.append(rest)
            self._chunk_bytes = n - a
            self._wanted = wanted

    def take_batch(self, data: bytes, a: int, block: bytes) -> int:
        """Serve the calls that begin with `block` at data[a:] as a batch; where what was not taken begins."""
        return a

    def _begin_pieces(self, sid: int, size: int, flags: int) -> bool:
        """Whether the DATA frame that begins here is fed to its stream in pieces."""
        stream = self.streams.get(sid)
        if stream is None or stream.remote_done or flags & PADDED or self._block is not None:
            return False
        if stream.received + size > stream.granted or stream.length_left is not None:
            return False
        self._growing, self._rest = stream, size
        self._growing_bytes, self._growing_last = size, flags & 1
        return True

    def _piece(self, data: bytes, a: int) -> int:
        """Feed a stream what data[a:] has of its frame; where that ends."""
        stream, end = self._growing, min(a + self._rest, len(data))
        self._rest -= end - a
        if stream is not None and not stream.done:
            stream.received += end - a
            if not self._rest:
                self._data(stream, data, a, end, self._growing_last)
            elif a < end:
                try:
                    stream.feed(data, a, end)
                except SyncpointError as error:
                    self._growing = None
                    stream.fault(error)
        if not self._rest:
            self._credit += self._growing_bytes
            if stream is not None and stream.done and self._growing_last:
                self.ignored.pop(stream.sid, None)
            self._growing = None
        return end

    def _data(self, stream: StreamState, data: bytes, b: int, end: int, last: int) -> None:
        """DATA without padding for a stream that expects it."""
        if stream.length_left is not None:
            stream.length_left -= end - b
            if stream.length_left < 0 or (last and stream.length_left):
                raise StreamFault(stream.sid, ErrorCode.PROTOCOL_ERROR, "content-length does not match")
        try:
            if b < end:
                stream.feed(data, b, end)
            elif not last:
                self.guard.count(guard.EMPTIES)
            if last:
                if not stream.done:
                    stream.remote_done = True
                    stream.end()
            elif stream.granted - stream.received < self.limits.stream_window_bytes >> 1 and not stream.done:
                stream.refill()
        except SyncpointError as error:
            stream.fault(error)

    def _odd_data(self, sid: int, flags: int, data: bytes, b: int, end: int) -> None:
        """DATA with padding, or for no stream that expects it."""
        size = end - b
        if sid == 0 or self.idle(sid):
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "DATA on an idle stream")
        if flags & 8:
            b, end = content(PADDED, sid, data, b, end)
        stream = self.stream_of(sid)
        if stream is None:
            if sid in self.ignored:
                if flags & 1:
                    del self.ignored[sid]
                elif not size:
                    self.guard.count(guard.EMPTIES)
                return
            raise StreamFault(sid, ErrorCode.STREAM_CLOSED, "DATA on a closed stream")
        if stream.remote_done:
            raise StreamFault(sid, ErrorCode.STREAM_CLOSED, "DATA after the end of its stream")
        stream.received += size
        if stream.received > stream.granted:
            raise StreamFault(sid, ErrorCode.FLOW_CONTROL_ERROR, "stream window overrun")
        self._data(stream, data, b, end, flags & 1)

    def _head(self, sid: int, last: int, block: bytes) -> None:
        if sid == 0:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "HEADERS on stream 0")
        if len(block) > self.limits.header_block_bytes:
            raise ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, "header block too large")
        self.on_head(sid, bool(last), block)

    def _continue(self, flags: int, payload: bytes) -> None:
        """CONTINUATION: another piece of a header block."""
        block = self._block
        if block is None:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "CONTINUATION without HEADERS")
        block.add(payload)
        if flags & frames.END_HEADERS:
            self._block = None
            self._head(block.sid, block.last, bytes(block.data))

    def _reset_for(self, fault: StreamFault) -> None:
        self.counters.faults += 1
        self.guard.count(guard.RESETS)
        self.ignored.pop(fault.sid, None)
        stream = self.stream_of(fault.sid)
        if stream is not None:
            stream.close()
            self.out.append(frames.rst_stream(fault.sid, fault.code))
            stream.lost(SyncpointError(Code.INTERNAL, f"Protocol error: {fault.reason}."))
        else:
            self.out.append(frames.rst_stream(fault.sid, fault.code))

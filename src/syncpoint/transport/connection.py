"""One HTTP/2 connection, from either end: frames in, rules checked, streams fed (RFC 9113).

Place: between the socket and the streams; `server_connection` and `client_connection` are its two roles.
Promise: any byte string, cut anywhere, has the same effect as the same bytes in one piece; what breaks a rule ends the
stream or the connection with the code the RFC names; every loop and every buffer is bounded by `limits`.
Leaves to the roles: what a head means, which streams may be opened, and draining. To `outbox`: writing.

`data_received` is the hot path: it reads frame heads in place and makes no object per frame.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import ClassVar, cast

from syncpoint.model.errors import Code, SyncpointError
from syncpoint.transport import frames, guard
from syncpoint.transport.fields import FieldReader
from syncpoint.transport.frames import ConnectionFault, ErrorCode, SettingId, StreamFault
from syncpoint.transport.limits import TransportLimits
from syncpoint.transport.outbox import Outbox
from syncpoint.transport.stream_state import StreamState

log = logging.getLogger("syncpoint.transport")

_unpack_head = frames.unpack_head
_SID = frames.WINDOW_MAX
_IGNORED_MAX = 1000


class Counters:
    """What the connections of one server or channel share: counters, and the bytes held in unfinished messages."""

    __slots__ = ("calls", "faults", "held", "refused")

    def __init__(self) -> None:
        self.calls = 0
        self.faults = 0
        self.refused = 0
        self.held = 0


class Connection(Outbox):
    """Protocol state of one connection. Roles set `streams`' contents and answer `on_head`, `on_goaway`, `idle`."""

    server_side: ClassVar[bool] = True

    def __init__(self, loop: asyncio.AbstractEventLoop, limits: TransportLimits, totals: Counters) -> None:
        super().__init__(loop, limits)
        self.totals = totals
        self.fields = FieldReader(limits.header_list_bytes_hard)
        self.guard = guard.AbuseGuard(limits, loop.time)
        self.streams: dict[int, StreamState] = {}
        self.last_sid = 0
        """Highest stream the peer (server side) or we (client side) opened."""
        self.ignored: dict[int, None] = {}
        """Streams we ended before the peer did: what still comes for them means nothing."""
        self.finishing: dict[StreamState, float] = {}
        """Lanes whose answer is complete and cannot leave, with the time since when."""
        self.peer_streams = 0x7FFFFFFF
        self.peer_list_bytes = 0x7FFFFFFF
        self.greeted = False
        """The peer's first SETTINGS came."""
        self.greeting_s = limits.greeting_s if self.server_side else limits.handshake_s
        self.started_at = loop.time()
        self.partial_since = 0.0
        self.heard = True
        self.silent_since = self.started_at
        self.pinged = False
        self._chunks: list[bytes] = []
        self._chunk_bytes = 0
        self._wanted = 0
        self._credit = 0
        self._block: bytearray | None = None
        self._block_sid = 0
        self._block_flags = 0
        self._block_frames = 0
        self._extra = 0
        self._extra_queue: deque[tuple[StreamState, int]] = deque()
        self._closer: asyncio.TimerHandle | None = None
        self._shutting = False

    # -- asyncio ---------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the socket and send our SETTINGS."""
        transport = cast(asyncio.Transport, transport)  # uvloop's transports are no subclasses of asyncio's.
        self.transport = transport
        self._joins = transport.get_extra_info("sslcontext") is not None
        transport.set_write_buffer_limits(high=self.limits.socket_buffer_bytes)
        self.send_settings()

    def connection_lost(self, error: Exception | None) -> None:
        """The socket is gone; every stream is lost."""
        if self._closer is not None:
            self._closer.cancel()
            self._closer = None
        self._forget_everything("The connection was lost.")

    def data_received(self, data: bytes) -> None:
        """Work off received bytes."""
        self.heard = True
        if self._chunks:
            self._chunks.append(data)
            self._chunk_bytes += len(data)
            if self._chunk_bytes < self._wanted:
                return
            data = b"".join(self._chunks)
            self._chunks.clear()
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

    # -- frames ----------------------------------------------------------------------------------------------------

    def _work(self, data: bytes) -> None:
        streams = self.streams
        n = len(data)
        a = 0
        frame_bytes = self.limits.frame_bytes
        wanted = frames.HEAD_BYTES
        while n - a >= 9:
            high, low, kind, flags, sid = _unpack_head(data, a)
            size = high << 16 | low
            if size > frame_bytes:
                raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, f"frame of {size} bytes")
            b = a + 9
            end = b + size
            if end > n:
                wanted = size + 9
                break
            if self._block is not None and (kind != 9 or sid & _SID != self._block_sid):
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
                        b, end_of_block = self._strip(flags, sid & _SID, data, b, end)
                        block = data[b:end_of_block]
                    else:
                        block = data[b:end]
                    if flags & 4:
                        self._head(sid & _SID, flags & 1, block)
                    else:
                        self._open_block(sid & _SID, flags, block)
                elif kind == 8:
                    self._on_window_update(sid & _SID, data[b:end])
                else:
                    self._rare(kind, flags, sid & _SID, data[b:end])
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
        if a:
            self.partial_since = 0.0
        if a < n:
            rest = data[a:] if a else data
            self._chunks.append(rest)
            self._chunk_bytes = n - a
            self._wanted = wanted

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
            b, end = self._strip(flags & 8, sid, data, b, end)
        stream = self.streams.get(sid)
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

    def _strip(self, flags: int, sid: int, data: bytes, b: int, end: int) -> tuple[int, int]:
        """Where the content lies between priority fields and padding."""
        if flags & 8:
            if b == end:
                raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "no room for the padding's length")
            pad = data[b]
            b += 1
            end -= pad
        if flags & 0x20:
            if end - b < 5:
                raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "no room for priority fields")
            if int.from_bytes(data[b : b + 4], "big") & _SID == sid:
                # The block behind it must still be decoded to keep the table right; ending the connection is allowed
                # too.
                raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "stream depends on itself")
            b += 5
        if end < b:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "more padding than payload")
        return b, end

    def _open_block(self, sid: int, flags: int, block: bytes) -> None:
        self._block = bytearray(block)
        self._block_sid = sid
        self._block_flags = flags
        self._block_frames = 0

    def _head(self, sid: int, end: int, block: bytes) -> None:
        if sid == 0:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "HEADERS on stream 0")
        if len(block) > self.limits.header_block_bytes:
            raise ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, "header block too large")
        self.on_head(sid, bool(end), block)

    def _rare(self, kind: int, flags: int, sid: int, payload: bytes) -> None:
        if kind == frames.PING:
            self._on_ping(flags, sid, payload)
        elif kind == frames.SETTINGS:
            self._on_settings(flags, sid, payload)
        elif kind == frames.RST_STREAM:
            self._on_reset(sid, payload)
        elif kind == frames.CONTINUATION:
            self._on_continuation(flags, payload)
        elif kind == frames.GOAWAY:
            if sid or len(payload) < 8:
                raise ConnectionFault(ErrorCode.PROTOCOL_ERROR if sid else ErrorCode.FRAME_SIZE_ERROR, "bad GOAWAY")
            self.guard.count(guard.EMPTIES)
            last, code = int.from_bytes(payload[:4], "big") & _SID, int.from_bytes(payload[4:8], "big")
            self.on_goaway(last, code, payload[8:264])
        elif kind == frames.PUSH_PROMISE:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "PUSH_PROMISE")
        else:
            self.guard.count(guard.EMPTIES)
            if kind == frames.PRIORITY:
                if sid == 0:
                    raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "PRIORITY on stream 0")
                if len(payload) != 5:
                    raise StreamFault(sid, ErrorCode.FRAME_SIZE_ERROR, "bad PRIORITY")
                if int.from_bytes(payload[:4], "big") & _SID == sid:
                    raise StreamFault(sid, ErrorCode.PROTOCOL_ERROR, "stream depends on itself")

    def _on_continuation(self, flags: int, payload: bytes) -> None:
        block = self._block
        if block is None:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "CONTINUATION without HEADERS")
        self._block_frames += 1
        if (
            self._block_frames > self.limits.continuations_per_block
            or len(block) + len(payload) > self.limits.header_block_bytes
        ):
            raise ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, "header block too large")
        block += payload
        if flags & frames.END_HEADERS:
            self._block = None
            self._head(self._block_sid, self._block_flags & 1, bytes(block))

    def _on_ping(self, flags: int, sid: int, payload: bytes) -> None:
        if sid:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "PING on a stream")
        if len(payload) != 8:
            raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "bad PING")
        self.guard.count(guard.PINGS)
        if flags & frames.ACK:
            self.on_pong(payload)
        else:
            self.out.append(frames.frame(frames.PING, frames.ACK, 0, payload))

    def _on_settings(self, flags: int, sid: int, payload: bytes) -> None:
        if sid:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "SETTINGS on a stream")
        if len(payload) % 6 or (flags & frames.ACK and payload):
            raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "bad SETTINGS")
        self.guard.count(guard.SETTINGS)
        if flags & frames.ACK:
            return
        for key, value in frames.read_settings(payload):
            self._set(key, value)
        self.greeted = True
        self.out.append(frames.frame(frames.SETTINGS, frames.ACK, 0))
        self.on_settings()

    def _set(self, key: int, value: int) -> None:
        if key == SettingId.INITIAL_WINDOW_SIZE:
            if value > frames.WINDOW_MAX:
                raise ConnectionFault(ErrorCode.FLOW_CONTROL_ERROR, "initial window too large")
            more = value - self.peer_window
            self.peer_window = value
            if more:
                for stream in list(self.streams.values()):
                    try:
                        stream.more_window(more)
                    except StreamFault as fault:
                        raise ConnectionFault(fault.code, fault.reason) from None
        elif key == SettingId.MAX_FRAME_SIZE:
            if not frames.FRAME_BYTES_MIN <= value <= frames.FRAME_BYTES_MAX:
                raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "bad frame size")
            self.peer_frame_bytes = value
        elif key == SettingId.ENABLE_PUSH:
            if value > 1 or (value and not self.server_side):
                raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "bad ENABLE_PUSH")
        elif key == SettingId.MAX_CONCURRENT_STREAMS:
            self.peer_streams = value
        elif key == SettingId.MAX_HEADER_LIST_SIZE:
            self.peer_list_bytes = value

    def _on_window_update(self, sid: int, payload: bytes) -> None:
        if len(payload) != 4:
            raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "bad WINDOW_UPDATE")
        self.guard.count(guard.UPDATES)
        more = int.from_bytes(payload, "big") & _SID
        if sid == 0:
            if more == 0:
                raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "window update by 0")
            before = self.send_window
            self.send_window = before + more
            if self.send_window > frames.WINDOW_MAX:
                raise ConnectionFault(ErrorCode.FLOW_CONTROL_ERROR, "connection window overflow")
            if before <= 0:
                self.window_opened()
            return
        stream = self.streams.get(sid)
        if stream is None:
            if self.idle(sid):
                raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "WINDOW_UPDATE on an idle stream")
            return
        if more == 0:
            raise StreamFault(sid, ErrorCode.PROTOCOL_ERROR, "window update by 0")
        stream.more_window(more)

    def _on_reset(self, sid: int, payload: bytes) -> None:
        if len(payload) != 4:
            raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "bad RST_STREAM")
        if sid == 0 or self.idle(sid):
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "RST_STREAM on an idle stream")
        self.guard.count(guard.RESETS)
        self.ignored.pop(sid, None)
        stream = self.streams.get(sid)
        if stream is not None:
            code = int.from_bytes(payload, "big")
            stream.close()
            stream.lost(self.reset_error(code))

    # -- shared by the roles ---------------------------------------------------------------------------------------

    def send_settings(self) -> None:
        """Send our SETTINGS and open the connection's receive window."""
        limits = self.limits
        values: dict[int, int] = {
            SettingId.INITIAL_WINDOW_SIZE: limits.stream_window_bytes,
            SettingId.MAX_FRAME_SIZE: limits.frame_bytes,
            SettingId.MAX_HEADER_LIST_SIZE: limits.header_list_bytes,
        }
        if self.server_side:
            values[SettingId.MAX_CONCURRENT_STREAMS] = limits.concurrent_streams
        else:
            values[SettingId.ENABLE_PUSH] = 0
            self.send(frames.PREFACE)
        self.send(frames.settings(values))
        if limits.connection_window_bytes > frames.WINDOW_DEFAULT:
            self.send(frames.window_update(0, limits.connection_window_bytes - frames.WINDOW_DEFAULT))

    def reset(self, stream: StreamState, code: ErrorCode) -> None:
        """End a stream at once from our side."""
        if not stream.done:
            if not stream.remote_done:
                self.ignore(stream.sid)
            stream.close()
            self.send(frames.rst_stream(stream.sid, code))

    def ignore(self, sid: int) -> None:
        """Remember that what still comes for this stream means nothing."""
        self.ignored[sid] = None
        if len(self.ignored) > _IGNORED_MAX:
            del self.ignored[next(iter(self.ignored))]

    def _reset_for(self, fault: StreamFault) -> None:
        self.totals.faults += 1
        self.guard.count(guard.RESETS)
        self.ignored.pop(fault.sid, None)
        stream = self.streams.get(fault.sid)
        if stream is not None:
            stream.close()
            self.out.append(frames.rst_stream(fault.sid, fault.code))
            stream.lost(SyncpointError(Code.INTERNAL, f"Protocol error: {fault.reason}."))
        else:
            self.out.append(frames.rst_stream(fault.sid, fault.code))

    def forget(self, stream: StreamState) -> None:
        """A stream closed."""
        self.streams.pop(stream.sid, None)

    def fail(self, code: ErrorCode, reason: str) -> None:
        """End the connection because the peer broke a rule."""
        if self.closed:
            return
        self.totals.faults += 1
        log.info("transport: connection closed: %s, %s", code.name, reason)
        self.shut(code, reason)

    def overflow(self) -> None:
        """See Outbox."""
        if not self._shutting:
            self.fail(ErrorCode.ENHANCE_YOUR_CALM, "reads too slowly")
            if self.transport is not None:
                self.transport.abort()

    def shed(self) -> None:
        """See `unsent.UnsentHolder`. A socket that still takes something is given the reason."""
        full = self.paused
        self.fail(ErrorCode.ENHANCE_YOUR_CALM, "too much waits for readers, and this one is among the slowest")
        if full and self.transport is not None:
            self.transport.abort()

    def shut(self, code: ErrorCode = ErrorCode.NO_ERROR, reason: str = "") -> None:
        """Say GOAWAY, write what is gathered, close."""
        if self.closed or self._shutting:
            return
        self._shutting = True
        self.out.append(frames.goaway(self.last_sid if self.server_side else 0, code, reason))
        self.ready.clear()
        self.flush()
        self._forget_everything(f"The connection was closed: {reason or code.name}.")
        if self.transport is not None:
            self.transport.close()
            self._closer = self.loop.call_later(self.limits.close_s, self.transport.abort)

    def _forget_everything(self, reason: str) -> None:
        if self.closed:
            return
        self.closed = True
        self._chunks.clear()
        self._block = None
        error = SyncpointError(Code.UNAVAILABLE, reason)
        for stream in list(self.streams.values()):
            stream.close()
            stream.lost(error)
        self._extra_queue.clear()
        self.ready.clear()
        self.awaiting.clear()
        self.out.clear()
        self.tell_held()

    # -- memory of unfinished messages -----------------------------------------------------------------------------

    def hold(self, more: int) -> None:
        """Count bytes of unfinished messages. Raises SyncpointError above `limits.held_bytes`."""
        self.totals.held += more
        if more > 0 and self.totals.held > self.limits.held_bytes:
            raise SyncpointError(Code.RESOURCE_EXHAUSTED, "Too much unfinished data is being received.")

    def ask_extra(self, stream: StreamState, extra: int) -> None:
        """Give a stream window for a large message, now or when others are done."""
        more = extra - stream.extra
        if not self._extra_queue and (self._extra + more <= self.limits.receive_extra_bytes or not self._extra):
            self._extra += more
            stream.extra = extra
            stream.refill()
        elif all(waiting is not stream for waiting, _ in self._extra_queue):
            self._extra_queue.append((stream, extra))

    def give_back(self, stream: StreamState) -> None:
        """The large message is complete, or its stream is closed."""
        self._extra -= stream.extra
        stream.extra = 0
        queue = self._extra_queue
        while queue and not self.closed:
            waiting, extra = queue[0]
            if waiting.done or not waiting.partial:
                queue.popleft()
                continue
            if self._extra + extra > self.limits.receive_extra_bytes and self._extra:
                return
            queue.popleft()
            self._extra += extra
            waiting.extra = extra
            waiting.refill()

    # -- times -----------------------------------------------------------------------------------------------------

    def sweep(self, now: float) -> None:
        """Look at the times; called every `limits.sweep_s` seconds."""
        limits = self.limits
        transport = self.transport
        if self.closed or transport is None:
            return
        if not self.greeted and now - self.started_at > self.greeting_s:
            self.fail(ErrorCode.SETTINGS_TIMEOUT, "handshake took too long")
            return
        self.look_whether_stuck(now)
        if self._chunks or self._block is not None:
            if not self.partial_since:
                self.partial_since = now
            elif now - self.partial_since > limits.frame_s:
                self.fail(ErrorCode.ENHANCE_YOUR_CALM, "frame took too long")
                return
        if self.paused and now - self.paused_since > limits.stall_s:
            self.fail(ErrorCode.ENHANCE_YOUR_CALM, "does not read")
            transport.abort()
            return
        while self.finishing:
            stream, since = next(iter(self.finishing.items()))
            if now - since <= limits.stall_s:
                break
            self.reset(stream, ErrorCode.CANCEL)
            stream.lost(SyncpointError(Code.CANCELLED, "The peer did not take the answer."))
        if self.heard:
            self.heard = self.pinged = False
            self.silent_since = now
        elif limits.keepalive_s and not self.pinged and now - self.silent_since >= limits.keepalive_s:
            self.pinged = True
            self.silent_since = now
            self.send(frames.frame(frames.PING, 0, 0, b"alive???"))
        elif self.pinged and now - self.silent_since >= limits.keepalive_answer_s:
            self.fail(ErrorCode.NO_ERROR, "keep-alive ping not answered")
            transport.abort()

    # -- for the roles ---------------------------------------------------------------------------------------------

    def on_head(self, sid: int, end: bool, block: bytes) -> None:
        """A whole header block for a stream."""
        raise NotImplementedError

    def idle(self, sid: int) -> bool:
        """Whether nobody opened this stream yet."""
        raise NotImplementedError

    def reset_error(self, code: int) -> SyncpointError:
        """What a RST_STREAM of the peer means to the call."""
        raise NotImplementedError

    def on_settings(self) -> None:
        """The peer's settings changed."""

    def on_pong(self, payload: bytes) -> None:
        """A PING of ours was answered."""

    def on_goaway(self, last_sid: int, code: int, reason: bytes) -> None:
        """The peer opens no more streams, or serves none above `last_sid`."""

"""One HTTP/2 connection from its greeting to its end: which streams it has, what its peer set, when it is closed.

Place: between the two halves that move bytes, `outbox` below and `frame_loop` above; `server_connection` and
`client_connection` are its two roles.
Promise: every stream that was open when the connection ends is lost, once; GOAWAY gives the reason, as far as the
socket takes it; every bound of time in `limits` holds.
Leaves to the roles: what a head means, which streams may be opened, and draining. To `liveness`: all timeouts.
"""

from __future__ import annotations

import asyncio
import logging
from typing import ClassVar, cast

from syncpoint.base.model.errors import Code, SyncpointError
from syncpoint.wire.transport import frames, guard
from syncpoint.wire.transport.fields import FieldReader
from syncpoint.wire.transport.frame_content import HeaderBlock
from syncpoint.wire.transport.frames import ErrorCode, SettingId
from syncpoint.wire.transport.limits import TransportLimits
from syncpoint.wire.transport.liveness import Liveness, Overdue
from syncpoint.wire.transport.outbox import Outbox
from syncpoint.wire.transport.receive_budget import Counters, ReceiveBudget
from syncpoint.wire.transport.stream_state import StreamState

log = logging.getLogger("syncpoint.wire.transport")

_IGNORED_MAX = 1000


class Connection(Outbox):
    """Protocol state of one connection. Roles set `streams`' contents and answer `on_head`, `on_goaway`, `idle`."""

    server_side: ClassVar[bool] = True

    def __init__(self, loop: asyncio.AbstractEventLoop, limits: TransportLimits, counters: Counters) -> None:
        super().__init__(loop, limits)
        self.counters = counters
        self.fields = FieldReader(limits.header_list_bytes_hard)
        self.guard = guard.AbuseGuard(limits, loop.time)
        self.streams: dict[int, StreamState] = {}
        self.last_sid = 0
        """Highest stream the peer (server side) or we (client side) opened."""
        self.ignored: dict[int, None] = {}
        """Streams we ended before the peer did: what still comes for them means nothing."""
        self.finishing: dict[StreamState, float] = {}
        """Streams whose answer is complete and cannot leave, with the time since when."""
        self.peer_streams = 0x7FFFFFFF
        self.peer_list_bytes = 0x7FFFFFFF
        self.liveness = Liveness(limits, limits.greeting_s if self.server_side else limits.handshake_s, loop.time())
        self.received = True
        """Bytes came since the last sweep."""
        self.progressed = False
        """A whole frame came since the last sweep."""
        self.incoming = ReceiveBudget(limits, counters)
        self._chunks: list[bytes] = []
        """Bytes of a frame that is not whole."""
        self._rest = 0
        """Bytes still to come of a DATA frame that is fed to its stream in pieces."""
        self._block: HeaderBlock | None = None
        """Header block that is not whole."""
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
        self._lose_streams("The connection was lost.")

    # -- shared by the roles ---------------------------------------------------------------------------------------

    def send_settings(self) -> None:
        """Send our SETTINGS and open the connection's receive window."""
        limits = self.limits
        values: dict[int, int] = {
            SettingId.INITIAL_WINDOW_SIZE: limits.stream_window_bytes,
            SettingId.MAX_FRAME_SIZE: limits.frame_bytes,
            SettingId.MAX_HEADER_LIST_SIZE: limits.header_list_bytes
            if self.server_side
            else limits.header_list_bytes_hard,
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
        """End a stream immediately from our side."""
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

    def forget(self, stream: StreamState) -> None:
        """A stream closed."""
        self.streams.pop(stream.sid, None)

    def widen(self, more: int) -> None:
        """Add what the peer opened of the connection's window. Raises ConnectionFault above its maximum."""
        before = self.send_window
        self.send_window = before + more
        if self.send_window > frames.WINDOW_MAX:
            raise frames.ConnectionFault(ErrorCode.FLOW_CONTROL_ERROR, "connection window overflow")
        if before <= 0 < more:
            self.window_opened()

    def stream_of(self, sid: int) -> StreamState | None:
        """The open stream of this number."""
        return self.streams.get(sid)

    def all_streams(self) -> list[StreamState]:
        """All open streams."""
        return list(self.streams.values())

    def fail(self, code: ErrorCode, reason: str) -> None:
        """End the connection because the peer broke a rule."""
        if self.closed:
            return
        self.counters.faults += 1
        log.info("transport: connection closed: %s, %s", code.name, reason)
        self.shut(code, reason)

    def overflow(self) -> None:
        if not self._shutting:
            self.fail(ErrorCode.ENHANCE_YOUR_CALM, "reads too slowly")
            if self.transport is not None:
                self.transport.abort()

    def shed(self) -> None:
        """Close the connection because too much data waits for slow readers.

        The peer learns the reason if its socket still accepts data.
        """
        full = self.paused
        self.fail(
            ErrorCode.ENHANCE_YOUR_CALM, "too much output is unread, and this client is among the slowest readers"
        )
        if full and self.transport is not None:
            self.transport.abort()

    def speaks(self) -> bool:
        """Whether the peer may be sent frames."""
        return True

    def shut(self, code: ErrorCode = ErrorCode.NO_ERROR, reason: str = "") -> None:
        """Send GOAWAY, write what is gathered, close."""
        if self.closed or self._shutting:
            return
        self._shutting = True
        if self.speaks():
            self.out.append(frames.goaway(self.last_sid if self.server_side else 0, code, reason))
        self.ready.clear()
        self.flush()
        self._lose_streams(f"The connection was closed: {reason or code.name}.")
        if self.transport is not None:
            self.transport.close()
            self._closer = self.loop.call_later(self.limits.close_s, self.transport.abort)

    def _lose_streams(self, reason: str) -> None:
        if self.closed:
            return
        self.closed = True
        self.incoming.close()
        self._chunks.clear()
        self._block = None
        error = SyncpointError(Code.UNAVAILABLE, reason)
        for stream in self.all_streams():
            stream.close()
            stream.lost(error)
        self.ready.clear()
        self.awaiting.clear()
        self.out.clear()
        self.report_held()

    # -- times -----------------------------------------------------------------------------------------------------

    def sweep(self, now: float) -> None:
        """Enforce the bounds of time; called every `limits.sweep_s` seconds."""
        if self.closed or self.transport is None:
            return
        self.check_progress(now)
        partial = bool(self._chunks) or self._rest > 0 or self._block is not None
        full_since = self.paused_since if self.paused else None
        late = self.liveness.overdue(now, partial=partial, progressed=self.progressed, full_since=full_since)
        self.progressed = False
        if late is not None:
            self._give_up(late)
            return
        while self.finishing:
            stream, since = next(iter(self.finishing.items()))
            if now - since <= self.limits.stall_s:
                break
            self.reset(stream, ErrorCode.CANCEL)
            stream.lost(SyncpointError(Code.CANCELLED, "The client did not read the response."))
        due = self.liveness.keep_alive(now, received=self.received)
        self.received = False
        if isinstance(due, Overdue):
            self._give_up(due)
        elif due:
            self.send(frames.frame(frames.PING, 0, 0, b"alive???"))

    def _give_up(self, late: Overdue) -> None:
        transport = self.transport
        self.fail(late.code, late.reason)
        if late.abort and transport is not None:
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

    def on_pong(self, payload: bytes) -> bool:
        """A PING came back; whether it was waited for."""
        return False

    def on_goaway(self, last_sid: int, code: int, reason: bytes) -> None:
        """The peer opens no more streams, or serves none above `last_sid`."""

"""The client's end of a connection: opens streams for calls and reads their answers.

Place: between `frame_loop` and `client`; made by a `Channel` for every socket it opens.
Promise: every call ends once, with a message, a status, or `Unprocessed` when the server certainly did not see it.
Leaves to `client`: when to connect, deadlines, retries.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import Callable
from typing import Any, ClassVar

from syncpoint.base.model.errors import Code, SyncpointError, Unprocessed
from syncpoint.wire.transport import frames
from syncpoint.wire.transport.frame_loop import FrameLoop
from syncpoint.wire.transport.frames import ConnectionFault, ErrorCode, StreamFault
from syncpoint.wire.transport.headers import MalformedHeaders, ResponseHead, error_of, read_response
from syncpoint.wire.transport.limits import TransportLimits
from syncpoint.wire.transport.outbox import BURST
from syncpoint.wire.transport.receive_budget import Counters
from syncpoint.wire.transport.stream_state import COPY_BYTES, Message, StreamState

_STREAMS_BEFORE_SETTINGS = 100
_SID_LAST = frames.WINDOW_MAX - 1024
_CACHED_BLOCK_BYTES = 1024
_pack_head = struct.Struct(">BHBBI").pack

_CODES = {
    ErrorCode.CANCEL: Code.CANCELLED,
    ErrorCode.ENHANCE_YOUR_CALM: Code.RESOURCE_EXHAUSTED,
    ErrorCode.INADEQUATE_SECURITY: Code.PERMISSION_DENIED,
}


class ClientStreamState(StreamState):
    """One call. `block`: its header block; callbacks receive what comes back."""

    __slots__ = ("block", "heads", "local_done", "on_finished", "on_message", "on_opened", "on_writable", "request")
    conn: ClientConnection

    def __init__(
        self,
        conn: ClientConnection,
        block: bytes,
        request: Message | None,
        on_message: Callable[[Any], None],
        on_finished: Callable[[SyncpointError | None], None],
    ) -> None:
        super().__init__(conn, 0)
        self.block = block
        self.request = request
        """The only message of a unary call; None for a stream."""
        self.on_message = on_message
        self.on_finished = on_finished
        self.on_writable: Callable[[], None] | None = None
        self.on_opened: Callable[[], None] | None = None
        self.local_done = False
        self.heads = 0

    def open(self, sid: int) -> None:
        """Send the head, and what a unary call has to say."""
        conn = self.conn
        self.sid = sid
        self.send_window = conn.peer_window
        block, request = self.block, self.request
        size = len(block)
        if request is None or size > conn.peer_frame_bytes:
            conn.send(frames.headers(sid, block, end=False, frame_bytes=conn.peer_frame_bytes))
            if self.on_opened is not None:
                self.on_opened()
        else:
            head = _pack_head(size >> 16, size & 0xFFFF, frames.HEADERS, frames.END_HEADERS, sid)
            if type(request) is bytes:
                n = len(request)
                total = n + 5
                if (
                    n <= COPY_BYTES
                    and total <= self.send_window
                    and total <= conn.send_window
                    and not conn.paused
                    and conn.out_bytes < BURST
                ):
                    self.send_window -= total
                    conn.send_window -= total
                    self.local_done = True
                    self.request = None
                    conn.send(
                        head
                        + block
                        + frames.pack_data(total >> 16, total & 0xFFFF, 0, frames.END_STREAM, sid, 0, n)
                        + request
                    )
                    return
            conn.send(head + block)
        if request is not None:
            self.request = None
            self.send_message(request)
            self.finish()

    def finish(self) -> None:
        """Close our side after what is queued."""
        if not (self.done or self.local_done or self.trailers is not None):
            self.send_trailers(frames.data_head(0, self.sid, frames.END_STREAM))

    def ended(self) -> None:
        """Note that the client's side of the stream is closed; the answer is still to come."""
        self.local_done = True
        self.conn.finishing.pop(self, None)

    def response(self, head: ResponseHead, last: bool) -> None:
        """A head or trailers came."""
        if 100 <= head.http_status < 200 and not last and not self.heads:
            return
        self.heads += 1
        if last:
            self.remote_done = True
            error = error_of(head)
            if error is None and self.partial:
                error = SyncpointError(Code.INTERNAL, "The answer ended within a message.")
            self._finished(error)
        elif self.heads > 1:
            raise StreamFault(self.sid, ErrorCode.PROTOCOL_ERROR, "second head does not end the stream")
        elif head.http_status != 200 or not head.grpc:
            self._finished(error_of(head))
        else:
            self.compression = head.encoding

    def _finished(self, error: SyncpointError | None) -> None:
        if self.local_done and self.remote_done:
            self.close()
        else:
            self.conn.reset(self, ErrorCode.CANCEL)
        self.on_finished(error)

    def message(self, payload: Any) -> None:
        self.on_message(payload)

    def end(self) -> None:
        """Fail the call: DATA ended the stream instead of trailers with a status."""
        self._finished(SyncpointError(Code.INTERNAL, "The answer has no status."))

    def fault(self, error: SyncpointError) -> None:
        self.conn.reset(self, ErrorCode.CANCEL)
        self.on_finished(error)

    def lost(self, error: SyncpointError) -> None:
        self.on_finished(error)

    def became_writable(self) -> None:
        if self.on_writable is not None:
            self.on_writable()


class ClientConnection(FrameLoop):
    """One connection to a server. `usable`: new calls may be opened on it."""

    server_side: ClassVar[bool] = False

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        limits: TransportLimits,
        counters: Counters,
        on_gone: Callable[[ClientConnection], None],
    ) -> None:
        super().__init__(loop, limits, counters)
        self.usable = True
        self.gone = loop.create_future()
        self._on_gone = on_gone
        self._next_sid = 1
        self._waiting: deque[ClientStreamState] = deque()
        self._heads: dict[bytes, ResponseHead] = {}

    def start(self, stream: ClientStreamState) -> None:
        """Open a call now, or when the server's limit of concurrent streams lets it."""
        if self.closed:
            stream.done = True
            stream.lost(Unprocessed("The connection is closed."))
            return
        if self._waiting or len(self.streams) >= self._room():
            self._waiting.append(stream)
        else:
            self._open(stream)

    def _room(self) -> int:
        return self.peer_streams if self.liveness.greeted else _STREAMS_BEFORE_SETTINGS

    def _open(self, stream: ClientStreamState) -> None:
        sid = self._next_sid
        self._next_sid = sid + 2
        self.last_sid = sid
        self.streams[sid] = stream
        self.counters.calls += 1
        if sid >= _SID_LAST:
            self.retire()
        stream.open(sid)

    def forget(self, stream: StreamState) -> None:
        if self.streams.pop(stream.sid, None) is None:
            return
        if self._waiting:
            self._open_waiting()
        if not self.streams and not self.usable and not self.closed:
            self.loop.call_soon(self.shut)

    def _open_waiting(self) -> None:
        while self._waiting and len(self.streams) < self._room() and not self.closed and self.usable:
            stream = self._waiting.popleft()
            if not stream.done:
                self._open(stream)

    def abandon(self, stream: ClientStreamState) -> None:
        """The caller gave up."""
        if stream.sid == 0:
            stream.done = True
        else:
            self.reset(stream, ErrorCode.CANCEL)

    def retire(self) -> None:
        """Take no new calls; close when those that are open are done."""
        if self.usable:
            self.usable = False
            self._on_gone(self)
            waiting = list(self._waiting)
            self._waiting.clear()
            for stream in waiting:
                if not stream.done:
                    stream.done = True
                    stream.lost(Unprocessed("The server takes no more calls on this connection."))
            if not self.streams and not self.closed:
                self.loop.call_soon(self.shut)

    def shut(self, code: ErrorCode = ErrorCode.NO_ERROR, reason: str = "") -> None:
        self.retire()
        super().shut(code, reason)

    # -- answers ---------------------------------------------------------------------------------------------------

    def on_head(self, sid: int, end: bool, block: bytes) -> None:
        """Head or trailers of an answer."""
        head = self._heads.get(block)
        if head is None:
            received, _ = self.fields.read(block)
            if not self.fields.steady:
                self._heads.clear()
            try:
                head = read_response(received)
            except MalformedHeaders as error:
                raise StreamFault(sid, ErrorCode.PROTOCOL_ERROR, str(error)) from None
            if self.fields.steady and len(block) <= _CACHED_BLOCK_BYTES:
                if len(self._heads) >= self.limits.header_cache_blocks:
                    del self._heads[next(iter(self._heads))]
                self._heads[block] = head
        stream = self.streams.get(sid)
        if stream is None:
            if self.idle(sid):
                raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "HEADERS on an idle stream")
            if sid not in self.ignored:
                raise StreamFault(sid, ErrorCode.STREAM_CLOSED, "HEADERS on a closed stream")
            return
        assert isinstance(stream, ClientStreamState)
        stream.response(head, end)

    def idle(self, sid: int) -> bool:
        return sid >= self._next_sid or not sid & 1

    def reset_error(self, code: int) -> SyncpointError:
        """Map an HTTP/2 error code to a status, as grpc/doc/PROTOCOL-HTTP2.md specifies."""
        if code == ErrorCode.REFUSED_STREAM:
            return Unprocessed("The server refused the stream.")
        known = ErrorCode(code) if code in ErrorCode.__members__.values() else ErrorCode.INTERNAL_ERROR
        return SyncpointError(_CODES.get(known, Code.INTERNAL), f"The server reset the stream: {known.name}.")

    def on_settings(self) -> None:
        """Open waiting streams: the new settings may allow more."""
        self._open_waiting()

    def on_goaway(self, last_sid: int, code: int, reason: bytes) -> None:
        self.retire()
        text = f"The server is going away: {reason.decode('utf-8', 'replace') or code}."
        for stream in list(self.streams.values()):
            if stream.sid > last_sid:
                stream.close()
                stream.lost(Unprocessed(text))

    def connection_lost(self, error: Exception | None) -> None:
        self.retire()
        super().connection_lost(error)
        if not self.gone.done():
            self.gone.set_result(None)

    def sweep(self, now: float) -> None:
        """Check the connection's progress.

        An idle connection is skipped, because servers dislike pings without calls.
        """
        if not self.streams:
            self.received = True
        super().sweep(now)

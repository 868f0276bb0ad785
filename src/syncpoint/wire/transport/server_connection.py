"""The server's end of a connection: opens streams for requests, keeps their deadlines, drains.

Place: between `frame_loop` and `server_streams`; made by `server` for every accepted socket.
Promise: a stream above the limits is refused in a way the client may retry; a drained connection loses no call it
accepted.
Leaves to `server`: which methods exist, and when to sweep and drain.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from syncpoint.base.kernel import call_frames
from syncpoint.base.model.errors import Code, SyncpointError, Unauthenticated, Unimplemented
from syncpoint.wire.transport import frames, guard
from syncpoint.wire.transport.behind_answers import PAYLOAD as BEHIND
from syncpoint.wire.transport.behind_answers import BehindAnswers
from syncpoint.wire.transport.call_batches import BYTES_MAX, CallBatch
from syncpoint.wire.transport.caller_shares import Holding
from syncpoint.wire.transport.calls import CallContext, Preceding, Streaming, Trailing, Unary
from syncpoint.wire.transport.frame_loop import FrameLoop
from syncpoint.wire.transport.frames import PREFACE, ConnectionFault, ErrorCode, StreamFault
from syncpoint.wire.transport.headers import SECRET, MalformedHeaders, RequestHead, check_trailers, read_request
from syncpoint.wire.transport.server_streams import (
    MessageStream,
    PlainStream,
    PrecedingStream,
    ServerStream,
    TrailingStream,
    UnaryStream,
)
from syncpoint.wire.transport.stream_state import StreamState

if TYPE_CHECKING:
    from syncpoint.wire.transport.server import FallbackProtocol, Server

log = logging.getLogger("syncpoint.wire.transport")

_NEVER = float("inf")
_GAPS_MAX = 64
_CACHED_BLOCK_BYTES = 4096
_DRAIN_PING = b"draining"


class ServerConnection(FrameLoop):
    """One accepted connection."""

    def __init__(self, loop: asyncio.AbstractEventLoop, server: Server) -> None:
        super().__init__(loop, server.limits, server.counters)
        self.server = server
        self.budget = server.unsent
        self.peer = ""
        self.draining = False
        self._reason = ""
        self._final = False
        self._heads: dict[bytes, tuple[RequestHead, Unary | Streaming | None]] = {}
        self.batched_blocks: dict[bytes, tuple[RequestHead, Unary]] = {}
        """Those of `_heads` whose method takes batches."""
        self.batches: dict[CallBatch, None] = {}
        self.batched_calls = 0
        """Calls of `batches` that are not answered, and not alone."""
        self._gaps: list[tuple[int, int]] = []
        """Ranges of stream numbers the peer passed over; only needed to name the right error."""
        self._preface: bytes | None = b""
        self._next_deadline = _NEVER
        self._deadline_timer: asyncio.TimerHandle | None = None
        self.fallback: FallbackProtocol | None = None
        self.behind: BehindAnswers | None = None
        self.noted: dict[str, float] = {}  # see `calls.CallContext`

    @property
    def offers_http1(self) -> bool:
        """The peer could have chosen HTTP/1.1 by ALPN, so it may try again with it."""
        transport = self.transport
        return (
            self.server.on_fallback is not None
            and transport is not None
            and transport.get_extra_info("sslcontext") is not None
        )

    # -- beginning and end -----------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the socket, or close it when the server is full."""
        transport = cast(asyncio.Transport, transport)  # uvloop's transports are no subclasses of asyncio's.
        self.transport = transport
        name = transport.get_extra_info("peername")
        self.peer = f"{name[0]}:{name[1]}" if isinstance(name, tuple) and len(name) >= 2 else str(name or "")
        if not self.server.admit(self):
            self.closed = True
            transport.abort()
            return
        if self.server.shares is not None:
            address = self.peer.rpartition(":")[0]
            self.incoming.holding = Holding(self.server.shares, address, self._who)
        self.liveness.started_at = self.loop.time()  # TLS, if there is any, is finished
        self._joins = transport.get_extra_info("sslcontext") is not None
        transport.set_write_buffer_limits(high=self.limits.socket_buffer_bytes)

    def _who(self) -> str:
        """Who makes the first of the calls whose messages are coming in."""
        who = self.server.who
        coming = next((one for one in self.streams.values() if isinstance(one, ServerStream) and one.partial), None)
        return "" if who is None or coming is None else who(cast(CallContext, coming))

    def connection_lost(self, error: Exception | None) -> None:
        self.server.gone(self)
        if self.fallback is not None:
            self.fallback.connection_lost(error)
        if self._deadline_timer is not None:
            self._deadline_timer.cancel()
            self._deadline_timer = None
        super().connection_lost(error)

    def data_received(self, data: bytes) -> None:
        """Process received bytes; the first bytes decide the protocol."""
        self.read_bytes += len(data)
        if self._preface is None:
            super().data_received(data)
        elif self.fallback is not None:
            self.fallback.data_received(data)
        elif not self.closed:
            self._begin(self._preface + data)

    def _begin(self, start: bytes) -> None:
        if start[: len(PREFACE)] == PREFACE:
            self._preface = None
            self.send_settings()
            if self.draining:
                self._announce()
            super().data_received(start[len(PREFACE) :])
        elif PREFACE.startswith(start):
            self._preface = start
        elif self.server.on_fallback is not None and self.transport is not None:
            self.liveness.greeted = True
            self.fallback = self.server.on_fallback()
            self.fallback.connection_made(self.transport)
            self.fallback.data_received(start)
        else:
            self.send_settings()
            self.fail(ErrorCode.PROTOCOL_ERROR, "no HTTP/2 preface")

    def eof_received(self) -> bool | None:
        """The peer closed its side: nothing can be answered (asyncio closes the transport)."""
        return self.fallback.eof_received() if self.fallback is not None else None

    def pause_writing(self) -> None:
        super().pause_writing()
        if self.fallback is not None:
            self.fallback.pause_writing()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self.fallback is not None:
            self.fallback.resume_writing()

    def speaks(self) -> bool:
        """True once the peer has sent bytes.

        A silent peer may be a browser that keeps a connection ready for HTTP/1.1.
        """
        return self.read_bytes > 0

    def shed(self) -> None:
        if self.fallback is None:
            super().shed()
        elif self.transport is not None:
            self.transport.abort()

    def sweep(self, now: float) -> None:
        """Check the connection's progress. A fallback protocol applies its own time limits."""
        if self.fallback is not None:
            self.check_progress(now)
            self.fallback.sweep(now)
            return
        super().sweep(now)
        if self._deadline_timer is not None and not self.streams and not self.batched_calls:
            self._deadline_timer.cancel()  # of calls that ended in time
            self._deadline_timer, self._next_deadline = None, _NEVER
        idle_s = self.limits.first_request_s
        times = self.liveness
        if idle_s and times.greeted and not (self.last_sid or self.draining) and now - times.started_at > idle_s:
            self.drain("nothing was asked for")

    @property
    def certificate(self) -> Mapping[str, Any] | None:
        """The peer's certificate, if TLS asked for one and verified it."""
        return None if self.transport is None else self.transport.get_extra_info("peercert")

    # -- requests --------------------------------------------------------------------------------------------------

    def on_head(self, sid: int, end: bool, block: bytes) -> None:
        """A request begins, or one ends with trailers."""
        if self.closed:
            return
        known = self._heads.get(block)
        if sid <= self.last_sid:
            self._late_head(sid, end, block)
            return
        if not sid & 1:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "even stream opened by a client")
        if sid != self.last_sid + 2 and sid != 1:
            self._gaps = [*self._gaps[-_GAPS_MAX:], (self.last_sid + 1, sid - 1)]
        if known is None:
            if not self._final:
                self.last_sid = sid
            known = self._learn(sid, block)
        head, method = known
        if self._final:
            # Above the number our GOAWAY named: the client knows that it was not served.
            self.ignore(sid)
            return
        self.last_sid = sid
        streams = self.streams
        if len(streams) + self.batched_calls >= self.limits.concurrent_streams:
            self.counters.refused += 1
            self.guard.count(guard.RESETS)
            self.ignore(sid)
            self.out.append(frames.rst_stream(sid, ErrorCode.REFUSED_STREAM))
            return
        self.counters.calls += 1
        stream: ServerStream
        if type(method) is Unary:
            stream = streams[sid] = UnaryStream(self, sid, head, method)
        elif type(method) is Streaming:
            stream = streams[sid] = MessageStream(self, sid, head, method)
            if method.behind:
                self._put_behind(stream, method.behind)
        elif type(method) is Preceding:
            stream = streams[sid] = PrecedingStream(self, sid, head, method)
        elif type(method) is Trailing:
            stream = streams[sid] = TrailingStream(self, sid, head, method)
        else:
            self._refuse(sid, end, head)
            return
        if head.timeout_s is not None:
            stream.deadline = stream.began + head.timeout_s
            self._set_deadline(stream.deadline)
        if end and head.length:
            raise StreamFault(sid, ErrorCode.PROTOCOL_ERROR, "content-length without content")
        if type(method) is Streaming:
            cast(MessageStream, stream).start()
        if end and not stream.done:
            stream.remote_done = True
            stream.end()

    def _learn(self, sid: int, block: bytes) -> tuple[RequestHead, Unary | Streaming | None]:
        fields, size = self.fields.read(block)
        if not self.fields.steady:
            self._forget_heads()
        try:
            head = read_request(fields, size, self.limits.header_list_bytes)
        except MalformedHeaders as error:
            raise StreamFault(sid, ErrorCode.PROTOCOL_ERROR, str(error)) from None
        secret = self.server.secret
        if secret and not hmac.compare_digest(head.metadata.get(SECRET, b""), secret):
            head.problem = Unauthenticated(
                "This address is for the processes of this server. Use the address for clients."
            )
        method = self.server.methods.get(head.path) if head.grpc and head.problem is None else None
        if type(method) is Unary and method.variant is not None and method.variant[0] in head.metadata:
            method = method.variant[1]
        if self.behind is not None and head.path == self.behind.path and isinstance(method, Unary):
            method = Preceding(method.handler, method.counts)
        if self.fields.steady and len(block) <= _CACHED_BLOCK_BYTES:
            if len(self._heads) >= self.limits.header_cache_blocks:
                oldest = next(iter(self._heads))
                del self._heads[oldest]
                self.batched_blocks.pop(oldest, None)
            self._heads[block] = (head, method)
            if type(method) is Unary and method.batch_handler is not None and head.length is None:
                self.batched_blocks[block] = (head, method)
        return head, method

    def _forget_heads(self) -> None:
        self._heads.clear()
        self.batched_blocks.clear()

    def take_batch(self, data: bytes, a: int, block: bytes) -> int:
        """Serve the calls that begin with `block` at data[a:] as a batch; where what was not taken begins."""
        head, method = self.batched_blocks[block]
        limits = self.limits
        room = 0 if self._final else limits.concurrent_streams - len(self.streams) - self.batched_calls
        data_max = min(limits.frame_bytes, limits.stream_window_bytes, limits.message_bytes, BYTES_MAX)
        first = self.last_sid + 2
        after, requests, windows, size, updates, window = call_frames.read(
            data, a, block, self.last_sid, room, data_max, BYTES_MAX
        )
        if not requests:
            return a
        self.last_sid += 2 * len(requests)
        self._credit += size
        if updates:
            self.guard.count(guard.UPDATES, updates)
            self.widen(window)
        batch = CallBatch(self, head, method, first, requests, windows)
        self.batches[batch] = None
        if head.timeout_s is not None:
            self._set_deadline(batch.began + head.timeout_s)
        batch.serve()
        return after

    def stream_of(self, sid: int) -> StreamState | None:
        """The open stream of this number; a call of a batch becomes one."""
        found = self.streams.get(sid)
        if found is None:
            for batch in self.batches:
                index = batch.index_of(sid)
                if index >= 0:
                    return batch.alone(index)
        return found

    def all_streams(self) -> list[StreamState]:
        """All open streams; calls of batches become streams."""
        for batch in list(self.batches):
            batch.dissolve()
        return super().all_streams()

    def calls_ended(self) -> None:
        """Leave when that was asked for, and nothing is open any more."""
        if self._final and not self.streams and not self.batched_calls:
            self._leave()

    def _put_behind(self, stream: StreamState, path: bytes) -> None:
        if self.behind is None:
            self.behind = BehindAnswers(self, path)
            self._forget_heads()  # calls of that path are other ones from now on
        self.behind.add(stream)

    def _refuse(self, sid: int, end: bool, head: RequestHead) -> None:
        stream: ServerStream
        if head.grpc:
            stream = self.streams[sid] = ServerStream(self, sid, head)
            stream.remote_done = end
            stream.close_answer(head.problem or Unimplemented(head.path.decode("ascii", "replace")))
            return
        stream = self.streams[sid] = PlainStream(self, sid, head)
        if end:
            if head.length:
                raise StreamFault(sid, ErrorCode.PROTOCOL_ERROR, "content-length without content")
            stream.remote_done = True
            stream.end()

    def _late_head(self, sid: int, end: bool, block: bytes) -> None:
        stream = self.stream_of(sid)
        fields, _ = self.fields.read(block)
        if not self.fields.steady:
            self._forget_heads()
        if stream is None:
            if sid in self.ignored:
                return
            code = ErrorCode.STREAM_CLOSED
            if not sid & 1 or any(low <= sid <= high for low, high in self._gaps):
                code = ErrorCode.PROTOCOL_ERROR
            raise ConnectionFault(code, "HEADERS on a closed stream")
        if stream.remote_done:
            raise StreamFault(sid, ErrorCode.STREAM_CLOSED, "HEADERS after the end of its stream")
        if not end:
            raise StreamFault(sid, ErrorCode.PROTOCOL_ERROR, "second HEADERS does not end the stream")
        try:
            check_trailers(fields)
        except MalformedHeaders as error:
            raise StreamFault(sid, ErrorCode.PROTOCOL_ERROR, str(error)) from None
        if stream.length_left:
            raise StreamFault(sid, ErrorCode.PROTOCOL_ERROR, "content-length does not match")
        stream.remote_done = True
        stream.end()

    def idle(self, sid: int) -> bool:
        return not sid & 1 or (sid > self.last_sid and sid not in self.ignored)

    def reset_error(self, code: int) -> SyncpointError:
        return SyncpointError(Code.CANCELLED, "The caller cancelled.")

    def forget(self, stream: StreamState) -> None:
        del self.streams[stream.sid]
        assert isinstance(stream, ServerStream)
        if stream.counts is not None:  # its end was not counted
            stream.count_out(Code.CANCELLED)
        self.calls_ended()

    # -- deadlines -------------------------------------------------------------------------------------------------

    def _set_deadline(self, deadline: float) -> None:
        # One timer per connection, for the earliest deadline seen. It is not moved when calls end, which they mostly
        # do in time.
        if deadline < self._next_deadline:
            self._book_deadline(deadline)

    def _book_deadline(self, deadline: float) -> None:
        if self._deadline_timer is not None:
            self._deadline_timer.cancel()
        self._next_deadline = deadline
        self._deadline_timer = self.loop.call_at(deadline, self._expire)

    def _expire(self) -> None:
        self._deadline_timer = None
        self._next_deadline = earliest = _NEVER
        now = self.loop.time() + 0.001  # The loop's clock may have a resolution of a millisecond.
        for stream in self.all_streams():
            assert isinstance(stream, ServerStream)
            if stream.deadline is None:
                continue
            if stream.deadline <= now:
                stream.expire()
                if not stream.done:
                    stream.deadline = None
            elif stream.deadline < earliest:
                earliest = stream.deadline
        if earliest < self._next_deadline and not self.closed:
            self._book_deadline(earliest)

    # -- draining --------------------------------------------------------------------------------------------------

    def drain(self, reason: str = "server is stopping") -> None:
        """Open no more streams, finish those that are open, then close."""
        if self.draining or self.closed:
            return
        self.draining = True
        self._reason = reason
        if self._preface is None:
            self._announce()
        elif self.fallback is not None:
            self.fallback.drain()
        elif self.transport is not None:
            # Nothing was read yet. What is on its way is served, or the client learns that it was not seen.
            self.loop.call_later(self.limits.drain_ping_s, self._close_silent)

    def _close_silent(self) -> None:
        if self._preface is not None and self.transport is not None and not self.closed:
            self.transport.close()

    def _announce(self) -> None:
        self.send(frames.goaway(frames.WINDOW_MAX, ErrorCode.NO_ERROR, self._reason))
        self.send(frames.frame(frames.PING, 0, 0, _DRAIN_PING))
        self.loop.call_later(self.limits.drain_ping_s, self._name_last)
        for stream in list(self.streams.values()):
            if isinstance(stream, MessageStream) and stream.on_drain is not None and not stream.answered:
                stream.guarded(stream.on_drain)

    def on_pong(self, payload: bytes) -> bool:
        """Handle a pong. Streams that the client opened before it read our first GOAWAY arrived before this pong."""
        if payload == _DRAIN_PING and self.draining:
            self._name_last()
        return payload == BEHIND and self.behind is not None and self.behind.on_pong()

    def _name_last(self) -> None:
        if self._final or self.closed:
            return
        self._final = True
        self.send(frames.goaway(self.last_sid, ErrorCode.NO_ERROR, self._reason))
        self.calls_ended()

    def _leave(self) -> None:
        """All is answered: close once this turn's bytes are written."""
        if not self.closed:
            self.loop.call_soon(self._close_drained)

    def _close_drained(self) -> None:
        if not self.closed and not self.streams and not self.batched_calls:
            log.debug("transport: drained connection of %s", self.peer)
            self.shut()

    def finish_all(self, error: SyncpointError) -> None:
        """Fail every open call with `error`, and close."""
        if self.closed:
            return
        if self.fallback is not None:
            if self.transport is not None:
                self.transport.close()
            return
        for stream in self.all_streams():
            stream.fault(error)
        self.shut(ErrorCode.NO_ERROR, "server stopped")

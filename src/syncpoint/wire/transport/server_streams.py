"""The server's streams: a unary call, a streaming call, and the polite answer to what is not gRPC.

Place: between the streams of HTTP/2 and the handlers of methods; they are the `Call` and `StreamingCall` of `calls`.
Promise: every call ends with one status; a handler's failure becomes a status and never reaches the connection.
Leaves to `server_connection`: opening streams, deadlines, draining.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, cast

from syncpoint.base.model.errors import Code, SyncpointError
from syncpoint.base.runtime.child_processes import Apart
from syncpoint.wire.transport import frames
from syncpoint.wire.transport.call_counts import CallCounts, code_of
from syncpoint.wire.transport.calls import AnyConnection, Call, CallContext, Streaming, StreamingCall, Unary
from syncpoint.wire.transport.encoding import inflate, inflate_small
from syncpoint.wire.transport.fields import literal
from syncpoint.wire.transport.frames import ErrorCode
from syncpoint.wire.transport.headers import HEAD_BLOCK, OK_BLOCK, RequestHead, plain_block, status_block
from syncpoint.wire.transport.outbox import BURST
from syncpoint.wire.transport.stream_state import COPY_BYTES, Message, StreamState

if TYPE_CHECKING:
    from syncpoint.wire.transport.server_connection import ServerConnection

log = logging.getLogger("syncpoint.wire.transport")

_HEAD_HEAD = frames.frame(frames.HEADERS, frames.END_HEADERS, 0, HEAD_BLOCK)[:5]
_TAIL_HEAD = frames.frame(frames.HEADERS, frames.END_HEADERS | frames.END_STREAM, 0, OK_BLOCK)[:5]
# A whole unary answer up to its message, and what follows the message.
_pack_answer = struct.Struct(f">5sI{len(HEAD_BLOCK)}sBHBBIBI").pack
_pack_head = struct.Struct(f">5sI{len(HEAD_BLOCK)}s").pack
_pack_tail = struct.Struct(f">5sI{len(OK_BLOCK)}s").pack

HERE_BYTES: Final = 64 * 1024
"""A compressed message that becomes no more is unfolded on the loop, if its turn has time left."""
_PLAIN_TEXT = b"This port speaks gRPC over HTTP/2, and REST over HTTP/1.1 (curl --http1.1).\n"


class ServerStream(StreamState):
    """What the server's streams share. See `calls.CallContext`."""

    __slots__ = ("answered", "began", "cancelled", "counts", "deadline", "head", "head_sent", "on_cancel")
    conn: ServerConnection

    def __init__(self, conn: ServerConnection, sid: int, head: RequestHead, counts: CallCounts | None = None) -> None:
        StreamState.__init__(self, conn, sid)  # for each request: `super` is an object
        self.head = head
        self.compression = head.encoding
        self.length_left = head.length
        self.deadline: float | None = None
        self.cancelled = False
        self.answered = False
        """The application gave its last answer."""
        self.head_sent = False
        self.on_cancel: Callable[[], object] | None = None
        self.counts = counts
        """Of its method; None: it is not counted, or was."""
        self.began = conn.loop.time()
        if counts is not None:
            counts.begun += 1

    @property
    def path(self) -> bytes:
        """Path of the method."""
        return self.head.path

    @property
    def metadata(self) -> dict[bytes, bytes]:
        """The caller's metadata; shared, not to be changed."""
        return self.head.metadata

    @property
    def peer(self) -> str:
        """Address of the caller, "host:port"."""
        return self.conn.peer

    @property
    def certificate(self) -> Mapping[str, Any] | None:
        """The caller's certificate; see `calls.CallContext`."""
        return self.conn.certificate

    @property
    def connection(self) -> AnyConnection | None:
        return self.conn.transport

    @property
    def noted(self) -> dict[str, float]:
        return self.conn.noted

    @property
    def over(self) -> bool:
        return self.answered or self.done or self.cancelled

    def count_out(self, code: int) -> None:
        """Count the end of the call with its status code; later ends are ignored."""
        counts = self.counts
        if counts is not None:
            self.counts = None
            counts.ended(code, self.conn.loop.time() - self.began)

    def unfold(self, flag: int, payload: bytes) -> bytes | None:
        """Decompress a message.

        A message larger than `HERE_BYTES` is decompressed off the event loop and charged to the caller.
        """
        server = self.conn.server
        apart = server.apart
        if apart is None:
            return super().unfold(flag, payload)
        if len(payload) <= HERE_BYTES and not apart.busy:
            with apart.here(""):
                message = inflate_small(flag, self.compression, payload, HERE_BYTES)
            if message is not None:
                return message
        payer = "" if server.payer is None else server.payer(cast(CallContext, self))
        self.wait_unfolded(payload)
        server.tasks.start(self._unfold_apart(apart, flag, payer))
        return None

    async def _unfold_apart(self, apart: Apart, flag: int, payer: str) -> None:
        limit = self.conn.limits.message_bytes

        def work() -> bytes:
            parts = self.parts  # none: the caller has left
            return inflate(flag, self.compression, parts[0], limit) if parts else b""

        try:
            message = await apart.in_thread(work, payer)
        except SyncpointError as error:
            self.fault(error)
            return
        if not self.done:
            self.guarded(self.unfolded, message)

    def open_answer(self) -> None:
        """Send our head, once."""
        if not self.head_sent:
            self.head_sent = True
            self.conn.out.append(_pack_head(_HEAD_HEAD, self.sid, HEAD_BLOCK))

    def close_answer(self, error: SyncpointError | None) -> None:
        """Send the status after what is queued."""
        conn = self.conn
        self.answered = True
        self.count_out(code_of(error))
        if error is None:
            self.open_answer()
            self.send_trailers(_pack_tail(_TAIL_HEAD, self.sid, OK_BLOCK))
            return
        block = status_block(error, conn.peer_list_bytes)
        if not self.head_sent:
            self.head_sent = True
            block = HEAD_BLOCK + block
        self.send_trailers(frames.headers(self.sid, block, end=True, frame_bytes=conn.peer_frame_bytes))

    def ended(self) -> None:
        """Our status left. A caller that still sends is asked to stop, and ignored."""
        conn = self.conn
        if not self.remote_done:
            conn.out.append(frames.rst_stream(self.sid, ErrorCode.NO_ERROR))
            conn.ignore(self.sid)
        self.close()

    def guarded(self, function: Callable[..., object], *arguments: object) -> None:
        """Call the application; what it raises fails the call."""
        try:
            function(*arguments)
        except SyncpointError as error:
            self.fault(error)
        except Exception:
            log.exception("handler of %s failed", self.head.path.decode("ascii", "replace"))
            self.fault(SyncpointError(Code.INTERNAL, "Internal error."))

    def fault(self, error: SyncpointError) -> None:
        """The call fails: what is queued and untouched is dropped, the status follows."""
        if self.done:
            return
        self._drop_queue()
        if self.queue:
            # A message is cut in half; nothing but a reset can follow it.
            self.conn.reset(self, ErrorCode.INTERNAL_ERROR)
        elif not self.answered or self.trailers is not None:
            self.trailers = None
            self.conn.finishing.pop(self, None)
            self.close_answer(error)
        self.cancel()

    def _drop_queue(self) -> None:
        queue = self.queue
        if queue:
            kept = [queue[0]] if queue[0].left < queue[0].size else []
            dropped = list(queue)[len(kept) :]
            self.conn.unsent_bytes -= sum(item.left for item in dropped)
            queue.clear()
            queue.extend(kept)
            self.dropped(dropped_tokens=[item.token for item in dropped])

    def dropped(self, dropped_tokens: list[object]) -> None:
        """Queued messages were thrown away."""

    def expire(self) -> None:
        """The caller's deadline passed."""
        self.fault(SyncpointError(Code.DEADLINE_EXCEEDED, "Deadline exceeded."))

    def became_writable(self) -> None:
        """Do nothing: only streaming calls wait for room."""

    def lost(self, error: SyncpointError) -> None:
        self.cancel()

    def cancel(self) -> None:
        """Notify the application, once, that its caller is gone."""
        if self.cancelled:
            return
        self.cancelled = True
        self.count_out(Code.CANCELLED)
        callback = self.on_cancel
        if callback is not None:
            self.on_cancel = None
            try:
                callback()
            except Exception:
                log.exception("on_cancel of %s failed", self.head.path.decode("ascii", "replace"))


class UnaryStream(ServerStream):
    """A unary call."""

    __slots__ = ("handler", "request")

    def __init__(self, conn: ServerConnection, sid: int, head: RequestHead, method: Unary) -> None:
        ServerStream.__init__(self, conn, sid, head, method.counts)  # for each request: `super` is an object
        self.handler = method.handler
        self.request: bytes | None = None

    def message(self, payload: bytes) -> None:
        if self.request is not None:
            raise SyncpointError(Code.INTERNAL, "More than one message in a unary call.")
        self.request = payload

    def end(self) -> None:
        """Call the method: the request is complete."""
        request = self.request
        if request is None or self.have:
            if self.waits_unfolded:
                return
            self.fault(SyncpointError(Code.INTERNAL, "The request ended without a whole message."))
            return
        self.request = None
        self.guarded(self.handler, self, request)

    def reply(self, message: Message) -> None:
        """Answer with one message and OK."""
        if self.answered or self.done:
            return
        conn = self.conn
        if type(message) is bytes:
            n = len(message)
            size = n + 5
            if (
                n <= COPY_BYTES
                and size <= self.send_window
                and size <= conn.send_window
                and not conn.paused
                and conn.out_bytes < BURST
            ):
                self.answered = self.head_sent = True
                counts = self.counts
                if counts is not None:  # see `count_out`
                    self.counts = None
                    counts.ended(0, conn.loop.time() - self.began)
                conn.send_window -= size
                sid = self.sid
                conn.out.append(
                    _pack_answer(_HEAD_HEAD, sid, HEAD_BLOCK, 0, size, 0, 0, sid, 0, n)
                    + message
                    + _pack_tail(_TAIL_HEAD, sid, OK_BLOCK)
                )
                if not (conn.corked or conn.booked):
                    conn.schedule_flush()
                # The request was whole, so nothing of this stream is left anywhere but in the connection's table.
                self.done = True
                conn.forget(self)
                return
        self.on_cancel = None
        self.open_answer()
        self.send_message(message)
        self.close_answer(None)

    def fail(self, error: SyncpointError) -> None:
        """Answer with a failure."""
        if not (self.answered or self.done):
            self.on_cancel = None
            self.close_answer(error)


class TrailingStream(UnaryStream):
    """A unary call whose answer may have trailers of its own."""

    __slots__ = ("_block",)

    def __init__(self, conn: ServerConnection, sid: int, head: RequestHead, method: Unary) -> None:
        super().__init__(conn, sid, head, method)
        self._block = b""

    def trail(self, name: bytes, value: bytes) -> None:
        """Add a trailer, to be sent with an answer that is none of a failure."""
        self._block += literal(name, value)

    def reply(self, message: Message) -> None:
        if not (self.answered or self.done):
            self.on_cancel = None
            self.open_answer()
            self.send_message(message)
            self.close_answer(None)

    def close_answer(self, error: SyncpointError | None) -> None:
        if error is not None:
            super().close_answer(error)
            return
        self.answered = True
        self.count_out(0)
        block = OK_BLOCK + self._block
        self.send_trailers(frames.headers(self.sid, block, end=True, frame_bytes=self.conn.peer_frame_bytes))


class PrecedingStream(UnaryStream):
    """A unary call whose caller reads the answer before what follows on streams of its connection."""

    __slots__ = ()

    def reply(self, message: Message) -> None:
        super().reply(message)
        behind = self.conn.behind
        if behind is not None:
            behind.answered()


class MessageStream(ServerStream):
    """A streaming call."""

    __slots__ = ("_dropped", "method", "on_drain", "on_end", "on_message", "on_writable")

    def __init__(self, conn: ServerConnection, sid: int, head: RequestHead, method: Streaming) -> None:
        super().__init__(conn, sid, head, method.counts)
        self.method = method
        self.on_message: Callable[[bytes], None] | None = None
        self.on_end: Callable[[], None] | None = None
        self.on_writable: Callable[[], None] | None = None
        self.on_drain: Callable[[], object] | None = None
        self._dropped: list[object] = []

    def start(self) -> None:
        """The head arrived. Ours goes out at once: some clients wait for it before they send."""
        self.guarded(self.method.handler, self)
        if not self.done and not self.head_sent:
            self.open_answer()

    def message(self, payload: bytes) -> None:
        if self.on_message is not None and not self.answered:
            self.guarded(self.on_message, payload)

    def end(self) -> None:
        if self.partial:
            if not self.waits_unfolded:
                self.fault(SyncpointError(Code.INTERNAL, "The stream ended within a message."))
        elif self.on_end is not None and not self.answered:
            self.guarded(self.on_end)

    def keep(self, more: int) -> None:
        """Give the caller no window for what is still to be worked through; see `calls.StreamingCall`."""
        self.unread += more
        if more < 0 and not self.done:
            self.refill()

    def send(self, message: Message, token: object = None) -> None:
        """Send one message; see `calls.StreamingCall`."""
        if self.answered or self.done:
            return
        if not self.head_sent:
            self.open_answer()
        self.send_message(message, token)

    def finish(self, error: SyncpointError | None = None) -> None:
        """End the stream; see `calls.StreamingCall`."""
        if not (self.answered or self.done):
            self.close_answer(error)

    def take_back(self) -> list[object]:
        """Messages none of whose bytes left; see `calls.StreamingCall`."""
        dropped, self._dropped = self._dropped, []
        return super().take_back() + dropped

    def dropped(self, dropped_tokens: list[object]) -> None:
        self._dropped += dropped_tokens

    def became_writable(self) -> None:
        if self.on_writable is not None and not self.answered:
            self.guarded(self.on_writable)


class PlainStream(ServerStream):
    """A request that is not gRPC: read to its end, then sent to HTTP/1.1 where TLS offers it, or answered with 415.

    A client that may choose between both, as curl, makes the request again over HTTP/1.1 when its stream is reset with
    HTTP_1_1_REQUIRED (RFC 9113, section 7). Preferring HTTP/1.1 by ALPN would break gRPC through proxies that offer
    both.
    """

    __slots__ = ()

    def feed(self, data: bytes, a: int, b: int) -> None:
        """Ignore the body: a plain request has none that matters."""

    def end(self) -> None:
        conn = self.conn
        self.answered = self.head_sent = True
        if conn.offers_http1:
            conn.reset(self, ErrorCode.HTTP_1_1_REQUIRED)
            return
        block = plain_block(415, len(_PLAIN_TEXT))
        conn.out.append(frames.headers(self.sid, block, end=False, frame_bytes=conn.peer_frame_bytes))
        self.enqueue([_PLAIN_TEXT], len(_PLAIN_TEXT), None)
        self.send_trailers(frames.data_head(0, self.sid, frames.END_STREAM))

    def fault(self, error: SyncpointError) -> None:
        self.conn.reset(self, ErrorCode.CANCEL)
        self.cancel()


if TYPE_CHECKING:
    # The streams are what the handlers are promised.
    _call: type[Call] = UnaryStream
    _stream: type[StreamingCall] = MessageStream

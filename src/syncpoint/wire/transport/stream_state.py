"""One HTTP/2 stream as both ends see it: two windows, gRPC messages out, gRPC messages in.

Place: between the frames of a connection and the calls of server and client, which subclass `StreamState`.
Promise: messages leave whole and in order, never beyond either window or the peer's frame size, without being copied
when they are large; messages arrive whole, however their bytes were cut; the peer is given window again as its bytes
are consumed.
Leaves to the connection: which stream may send next, and the budget for messages larger than a window.

Receive window of a stream: the peer may have sent `granted` bytes at most, and
    granted <= consumed + window + extra,    consumed = received - have - unread
where `have` is the unfinished message, `unread` what the application has not taken yet, and `extra` what the
unfinished message needs beyond the window, given out of a budget of the connection.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from syncpoint.base.model.errors import Code, SyncpointError
from syncpoint.wire.transport.encoding import inflate
from syncpoint.wire.transport.frames import ErrorCode, StreamFault, data_head, pack_data, window_update
from syncpoint.wire.transport.outbox import BURST, Buffer

if TYPE_CHECKING:
    from syncpoint.wire.transport.connection import Connection

Message = Buffer | Sequence[Buffer]
"""A gRPC message: one buffer, or several that follow each other. It must not be changed after it was given away."""

_PREFIX = struct.Struct(">BI").unpack_from
_pack_prefix = struct.Struct(">BI").pack
COPY_BYTES = 4096
TOO_LARGE = "Received message larger than max"  # how the message of that error begins
"""Messages up to this size are copied next to their frame head; larger ones are passed on as they are."""
PREFIX_BYTES = 5
_PARTS = 64
_UNFOLDING = -1  # in place of what a message still needs
_PADDING_BYTES = 256
"""What a peer may spend on padding in the frame that ends a message."""


class Outgoing:
    """A message waiting in a stream: its buffers from `index` on, `left` bytes in all."""

    __slots__ = ("index", "left", "parts", "size", "token")

    def __init__(self, parts: list[Buffer], size: int, token: object) -> None:
        self.parts = parts
        self.index = 0
        self.left = size
        self.size = size
        self.token = token


def _flat(view: memoryview) -> memoryview:
    """A view of bytes, whatever it was one of."""
    return view.cast("B") if view.format != "B" or view.ndim != 1 else view


class StreamState:
    """State of one stream. `sid`: its number; `done`: nothing more can be sent or received."""

    __slots__ = (
        "awaiting", "compression", "conn", "done", "extra", "granted", "have", "in_parts", "length_left", "need",
        "parts", "prefix", "queue", "received", "remote_done", "send_window", "sid", "trailers", "unread",
    )  # fmt: skip

    def __init__(self, conn: Connection, sid: int) -> None:
        self.conn = conn
        self.sid = sid
        self.send_window = conn.peer_window
        self.queue: deque[Outgoing] | None = None
        self.trailers: bytes | None = None
        """Frame that ends our side, once the queue is empty."""
        self.awaiting = False
        self.done = False
        self.remote_done = False
        self.granted = conn.limits.stream_window_bytes
        self.received = 0
        self.unread = 0
        self.extra = 0
        self.have = 0
        self.need = 0
        self.prefix = b""
        self.parts: list[bytes] = []
        self.in_parts = False
        """Whether `message` takes a large message as the pieces in which it came."""
        self.compression = b""
        self.length_left: int | None = None
        """What `content-length` promised and has not come yet."""

    # -- sending ---------------------------------------------------------------------------------------------------

    def send_message(self, message: Message, token: object = None) -> None:
        """Send or queue one message."""
        conn = self.conn
        parts: Sequence[Buffer] = (message,) if isinstance(message, (bytes, bytearray, memoryview)) else message
        if type(message) is bytes:
            n = len(message)
        else:
            parts = [_flat(part) if isinstance(part, memoryview) else part for part in parts]
            n = sum(map(len, parts))
        size = n + PREFIX_BYTES
        if (
            size <= conn.peer_frame_bytes
            and size <= self.send_window
            and size <= conn.send_window
            and not self.queue
            and not conn.paused
            and conn.out_bytes < BURST
        ):
            self.send_window -= size
            conn.send_window -= size
            head = pack_data(size >> 16, size & 0xFFFF, 0, 0, self.sid, 0, n)
            if n <= COPY_BYTES:
                conn.out.append(b"".join((head, *parts)))
            else:
                conn.out.append(head)
                conn.out += parts
                conn.out_bytes += n
            if not conn.corked:
                conn.schedule_flush()
            return
        self.enqueue([_pack_prefix(0, n), *parts], size, token)

    def enqueue(self, parts: list[Buffer], size: int, token: object) -> None:
        """Queue `size` bytes, and push what may leave at once."""
        conn = self.conn
        if self.queue is None:
            self.queue = deque()
        self.queue.append(Outgoing(parts, size, token))
        conn.unsent_bytes += size
        if len(self.queue) == 1:
            self.push()
        if self.queue:
            if self.send_window > 0:
                conn.ready[self] = None
            conn.held_back()
        elif not conn.corked:
            conn.schedule_flush()

    def push(self) -> None:
        """Append to the outbox what windows and `BURST` allow of the queue, then the trailers."""
        conn = self.conn
        queue = self.queue
        while queue:
            item = queue[0]
            while item.left:
                if conn.paused or conn.out_bytes >= BURST:
                    return
                k = min(item.left, self.send_window, conn.send_window, conn.peer_frame_bytes)
                if k <= 0:
                    return
                if k > BURST and conn.ready:
                    k = BURST  # others wait for their turn
                self.send_window -= k
                conn.send_window -= k
                conn.unsent_bytes -= k
                conn.out_bytes += k
                item.left -= k
                conn.out.append(data_head(k, self.sid))
                self._take(item, k)
            queue.popleft()
        if self.trailers is not None:
            conn.out.append(self.trailers)
            self.trailers = None
            self.ended()
        elif self.awaiting:
            self.notice_writable()

    def _take(self, item: Outgoing, k: int) -> None:
        out = self.conn.out
        parts = item.parts
        i = item.index
        while k:
            part = parts[i]
            n = len(part)
            if n <= k:
                out.append(part)
                k -= n
                i += 1
            else:
                view = memoryview(part)
                out.append(view[:k])
                parts[i] = view[k:]
                k = 0
        item.index = i

    def send_trailers(self, block: bytes) -> None:
        """End our side with this frame, after everything queued."""
        conn = self.conn
        if self.queue:
            self.trailers = block
            conn.finishing[self] = conn.loop.time()
            return
        conn.out.append(block)
        if not conn.corked:
            conn.schedule_flush()
        self.ended()

    @property
    def writable(self) -> bool:
        """Whether a message sent now would start to leave. Reading False books one `became_writable`."""
        conn = self.conn
        if self.queue or self.send_window <= 0 or conn.paused or conn.send_window <= 0 or self.done:
            if not self.done:
                self.awaiting = True
                conn.awaiting[self] = None
            return False
        return True

    def notice_writable(self) -> None:
        """Call `became_writable` if it was asked for and is true now."""
        conn = self.conn
        if self.awaiting and not (self.queue or self.send_window <= 0 or conn.paused or conn.send_window <= 0):
            self.awaiting = False
            conn.awaiting.pop(self, None)
            self.became_writable()

    def more_window(self, more: int) -> None:
        """The peer changed this stream's send window by `more` (may be negative). Raises StreamFault on overflow."""
        window = self.send_window + more
        if window > 0x7FFFFFFF:
            raise StreamFault(self.sid, ErrorCode.FLOW_CONTROL_ERROR, "stream window overflow")
        self.send_window = window
        if window > 0:
            if self.queue:
                self.conn.ready[self] = None
            elif self.awaiting:
                self.notice_writable()

    def take_back(self) -> list[object]:
        """Remove queued messages that have a token and no byte of which was handed to the socket; their tokens."""
        queue = self.queue or deque()
        back = [item for item in queue if item.token is not None and item.left == item.size]
        if back:
            kept = [item for item in queue if item.token is None or item.left < item.size]
            queue.clear()
            queue.extend(kept)
            if not self.done:
                self.conn.unsent_bytes -= sum(item.size for item in back)
        return [item.token for item in back]

    # -- receiving -------------------------------------------------------------------------------------------------

    def feed(self, data: bytes, a: int, b: int) -> None:
        """Take data[a:b] of the byte stream; calls `message` for every message that is complete.

        Raises SyncpointError when the call cannot go on (too large, cannot be decompressed).
        """
        if self.have:
            self._feed_more(data, a, b)
            return
        limit = self.conn.limits.message_bytes
        while b - a >= PREFIX_BYTES:
            flag, n = _PREFIX(data, a)
            if n > limit:
                raise self._too_large(n)
            end = a + PREFIX_BYTES + n
            if end > b:
                break
            if flag:
                message = self.unfold(flag, data[a + PREFIX_BYTES : end])
                if message is None:
                    a = end
                    break
                self.message(message)
            else:
                self.message(data[a + PREFIX_BYTES : end])
            if self.done:
                return
            a = end
        if a < b:
            self._feed_more(data, a, b)

    def _feed_more(self, data: bytes, a: int, b: int) -> None:
        parts = self.parts
        if self.need < 0:
            self._keep_late(data, a, b)
            return
        if not self.need:
            taken = min(PREFIX_BYTES - self.have, b - a)
            self.prefix += data[a : a + taken]
            self.have += taken
            a += taken
            if self.have < PREFIX_BYTES:
                return
            n = _PREFIX(self.prefix, 0)[1]
            if n > self.conn.limits.message_bytes:
                raise self._too_large(n)
            self.need = n + PREFIX_BYTES
        k = min(self.need - self.have, b - a)
        if k:
            # What was received where it stays is not copied out.
            parts.append(data if k == len(data) else data[a : a + k])
            self.have += k
            self.conn.incoming.hold(k)
            if len(parts) > _PARTS + (self.need >> 10):
                # So many small pieces would take more memory than their bytes.
                parts[:] = (b"".join(parts),)
        if self.have < self.need:
            extra = self.need + self.unread - self.conn.limits.stream_window_bytes
            if extra > self.extra:
                self.conn.incoming.ask(self, extra)
            return
        flag = self.prefix[0]
        self._drop_partial()
        if flag:
            message = self.unfold(flag, b"".join(parts))
            if message is not None:
                self.message(message)
        else:
            self.message(parts if self.in_parts else b"".join(parts))
        if a + k < b and not self.done:
            self.feed(data, a + k, b)

    def unfold(self, flag: int, payload: bytes) -> bytes | None:
        """A compressed message as it was; None: it `waits_unfolded`. Raises SyncpointError."""
        return inflate(flag, self.compression, payload, self.conn.limits.message_bytes)

    def wait_unfolded(self, payload: bytes) -> None:
        """This message is being unfolded elsewhere, until `unfolded`: what follows it is kept, within the window
        of the stream. Raises SyncpointError when that is too much."""
        self.have, self.need, self.parts = PREFIX_BYTES + len(payload), _UNFOLDING, [payload]
        self.conn.incoming.hold(len(payload))

    @property
    def waits_unfolded(self) -> bool:
        """Whether a message is being unfolded elsewhere."""
        return self.need < 0

    def _keep_late(self, data: bytes, a: int, b: int) -> None:
        parts = self.parts
        parts.append(data[a:b])
        self.have += b - a
        self.conn.incoming.hold(b - a)
        if len(parts) > _PARTS + (self.have >> 10):
            parts[1:] = (b"".join(parts[1:]),)

    def unfolded(self, message: bytes) -> None:
        """The message that was waited for, then what followed it. Raises SyncpointError as `feed` does."""
        late = b"".join(self.parts[1:])
        self._drop_partial()
        self.message(message)
        if late and not self.done:
            self.feed(late, 0, len(late))
        if self.done or self.waits_unfolded:
            return
        if self.remote_done:
            self.end()
        else:
            self.refill()

    def _drop_partial(self) -> None:
        if self.have:
            if self.need:
                self.conn.incoming.hold(PREFIX_BYTES - self.have)
            self.have = self.need = 0
            self.prefix = b""
            self.parts = []
        if self.extra:
            self.conn.incoming.give_back(self)

    def _too_large(self, n: int) -> SyncpointError:
        limit = self.conn.limits.message_bytes
        return SyncpointError(Code.RESOURCE_EXHAUSTED, f"{TOO_LARGE} ({n} vs. {limit})")

    def refill(self) -> None:
        """Give the peer window for what was consumed, when it is worth a frame."""
        room = self.granted - self.received
        window = self.conn.limits.stream_window_bytes
        more = window + self.extra - self.have - self.unread - room
        short = self.have > 0 and room < (self.need or PREFIX_BYTES) - self.have + _PADDING_BYTES
        if more >= window >> 1 or (more > 0 and (short or room <= 0)):
            self.granted += more
            self.conn.send(window_update(self.sid, more))

    @property
    def partial(self) -> bool:
        """Whether an unfinished message is held."""
        return self.have > 0

    # -- the end ---------------------------------------------------------------------------------------------------

    def ended(self) -> None:
        """Our side is closed; when the peer's is too, or must be, the stream is over."""
        self.close()

    def close(self) -> None:
        """Forget everything of this stream in the connection. The queue stays for `take_back`."""
        if self.done:
            return
        self.done = True
        conn = self.conn
        if self.queue:
            conn.unsent_bytes -= sum(item.left for item in self.queue)
            conn.ready.pop(self, None)
        if self.awaiting:
            conn.awaiting.pop(self, None)
        conn.finishing.pop(self, None)
        self._drop_partial()
        conn.forget(self)

    # -- for subclasses --------------------------------------------------------------------------------------------

    def message(self, payload: Any) -> None:
        """A whole message came: bytes, or a list of them where `in_parts`."""
        raise NotImplementedError

    def end(self) -> None:
        """The peer closed its side."""
        raise NotImplementedError

    def lost(self, error: SyncpointError) -> None:
        """The stream is gone: reset by the peer, or the connection ended. The stream is closed already."""
        raise NotImplementedError

    def fault(self, error: SyncpointError) -> None:
        """What the peer sent cannot be worked with; the call fails with `error`."""
        raise NotImplementedError

    def became_writable(self) -> None:
        """Bytes can leave again."""

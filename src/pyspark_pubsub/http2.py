"""A blocking HTTP/2 connection that carries one gRPC call at a time, made for few and large messages.

Place: lowest layer of the data source; `rpc` opens, keeps and retries.
Promise: the bytes of a message are read from the socket straight into the buffer that the caller provides, and written
from the buffers that it gives, without joining them. Windows are so wide that a server never waits for this reader;
the socket's own buffer is what slows it down. Pings and settings are answered whenever the connection is used.
Leaves to `rpc`: connecting, credentials, the meaning of messages, trying again.
"""

from __future__ import annotations

import base64
import binascii
import socket
import struct
import time
from collections.abc import Callable, Sequence
from urllib.parse import unquote

from hpack import Decoder, HPACKError

from pyspark_pubsub.buffered_socket import INBOX, Buffer, BufferedSocket
from pyspark_pubsub.errors import (
    ABORTED,
    CANCELLED,
    INTERNAL,
    PERMISSION_DENIED,
    RESOURCE_EXHAUSTED,
    UNAUTHENTICATED,
    UNAVAILABLE,
    UNIMPLEMENTED,
    UNKNOWN,
    CallError,
)

Allocate = Callable[[int], memoryview]
"""Gives a writable buffer of the given size for one message."""

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 0, 1, 3, 4, 6, 7, 8, 9
END_STREAM, ACK, END_HEADERS, PADDED, PRIORITIZED = 1, 1, 4, 8, 0x20
WINDOW = (1 << 31) - 1
WINDOW_DEFAULT = 65_535
FRAME_MAX = (1 << 24) - 1
REFILL = 1 << 28
"""Windows are reopened after this many bytes."""
MESSAGE_MAX = 1 << 30
BLOCK_MAX = 1 << 20

_HEAD = struct.Struct(">BHBBI")
_U32 = struct.Struct(">I")
_PREFIX = struct.Struct(">BI")
_PAIR = struct.Struct(">HI")

# What an HTTP status means when a proxy answers instead of a gRPC server.
_HTTP_CODES = {
    400: INTERNAL,
    401: UNAUTHENTICATED,
    403: PERMISSION_DENIED,
    404: UNIMPLEMENTED,
    429: UNAVAILABLE,
} | dict.fromkeys((502, 503, 504), UNAVAILABLE)
_RESET_CODES = {7: UNAVAILABLE, 8: CANCELLED, 11: RESOURCE_EXHAUSTED, 12: PERMISSION_DENIED}


def frame(kind: int, flags: int, sid: int, payload: bytes = b"") -> bytes:
    """The bytes of one frame."""
    return _HEAD.pack(len(payload) >> 16, len(payload) & 0xFFFF, kind, flags, sid) + payload


def _number(value: int, bits: int) -> bytes:
    top = (1 << bits) - 1
    if value < top:
        return bytes((value,))
    out, value = [top], value - top
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def header_block(headers: Sequence[tuple[bytes, bytes]]) -> bytes:
    """Headers as literals without indexing (RFC 7541, 6.2.2): no state to keep in step with the peer."""
    return b"".join(b"\x00" + _number(len(name), 7) + name + _number(len(value), 7) + value for name, value in headers)


class BlockingConnection:
    """One connection; one call at a time: `start`, any number of `send` and `receive`, until `receive` gives None.

    `usable`: another call may be started. Every method raises `CallError`: UNAVAILABLE when the connection is lost,
    DEADLINE_EXCEEDED when `deadline` (monotonic seconds) is over, else what the server answered.
    """

    def __init__(self, sock: socket.socket, authority: str, deadline: float) -> None:
        self.pipe = BufferedSocket(sock, deadline)
        self.endpoint = authority  # where it leads
        self._scheme = b"https" if self.pipe.tls else b"http"
        self._authority = authority.encode()
        self._decoder = Decoder(max_header_list_size=BLOCK_MAX)
        self._sid = -1
        self._over = True
        self._going = False
        self._peer_frame = 16_384
        self._peer_window = WINDOW_DEFAULT
        self._send_window = WINDOW_DEFAULT
        self._stream_window = WINDOW_DEFAULT
        self._debt = self._stream_debt = 0
        self._rest = self._padding = 0
        self._frame_ends = False
        self._ours = False
        self._head_seen = False
        settings = ((1, 4096), (2, 0), (4, WINDOW), (5, FRAME_MAX), (6, BLOCK_MAX))
        opening = frame(SETTINGS, 0, 0, b"".join(_PAIR.pack(*pair) for pair in settings))
        self.pipe.write([PREFACE + opening + frame(WINDOW_UPDATE, 0, 0, _U32.pack(WINDOW - WINDOW_DEFAULT))])

    # ------------------------------------------------------------------------------------------------------- calls

    @property
    def usable(self) -> bool:
        """Whether another call may be started. Answers pings that came in the meantime, and notices an end."""
        if self.pipe.closed or self._going or not self._over or self._sid > 1 << 30:
            return False
        self.pipe.deadline = time.monotonic() + 5.0
        try:
            self.answer()
        except CallError:
            self.close()
        return not self.pipe.closed and not self._going

    def answer(self) -> None:
        """Read what has come without waiting for more, and answer pings: for a call that has nothing to send now."""
        while self.pipe.pending or self.pipe.readable():
            self._next_frame()

    def start(self, path: str, metadata: Sequence[tuple[str, str]], timeout: float | None = None) -> None:
        """Begin a call. `path`: /package.Service/Method; `timeout`: seconds for all of it, sent to the server."""
        self._sid += 2
        self._over = self._head_seen = False
        self._stream_window, self._stream_debt = self._peer_window, 0
        headers = [
            (b":method", b"POST"),
            (b":scheme", self._scheme),
            (b":path", path.encode()),
            (b":authority", self._authority),
            (b"content-type", b"application/grpc"),
            (b"te", b"trailers"),
            *((name.encode(), value.encode()) for name, value in metadata),
        ]
        if timeout is not None:
            headers.append((b"grpc-timeout", f"{max(1, min(int(timeout * 1000), 99_999_999))}m".encode()))
        self.pipe.write([frame(HEADERS, END_HEADERS, self._sid, header_block(headers))])

    def send(self, parts: Sequence[Buffer], *, end: bool = False) -> None:
        """Send one message made of these buffers; `end`: it is the last one."""
        size = sum(len(part) for part in parts)
        waiting = [memoryview(_PREFIX.pack(0, size)), *(memoryview(part) for part in parts if len(part))]
        left = size + 5
        while left:
            if self.pipe.pending or (left > 16_384 and self.pipe.readable()):
                self._next_frame()
                self._check_going_on()
                continue
            allowed = min(left, self._peer_frame, self._send_window, self._stream_window)
            if allowed <= 0:
                self._next_frame()
                self._check_going_on()
                continue
            piece, taken = [], 0
            while taken < allowed:
                head = waiting[0]
                if len(head) > allowed - taken:
                    piece.append(head[: allowed - taken])
                    waiting[0] = head[allowed - taken :]
                else:
                    piece.append(waiting.pop(0))
                taken += len(piece[-1])
            left -= allowed
            self._send_window -= allowed
            self._stream_window -= allowed
            flags = END_STREAM if end and not left else 0
            self.pipe.write([_HEAD.pack(allowed >> 16, allowed & 0xFFFF, DATA, flags, self._sid), *piece])

    def end(self) -> None:
        """Nothing more is sent in this call."""
        self.pipe.write([frame(DATA, END_STREAM, self._sid)])

    def receive(self, allocate: Allocate) -> memoryview | None:
        """The next message of the call, in a buffer from `allocate`; None: the call has ended well."""
        prefix = memoryview(bytearray(5))
        if not self._read_message(prefix, first=True):
            return None
        compressed, size = _PREFIX.unpack(prefix)
        if compressed or size > MESSAGE_MAX:
            raise self._broken(f"a message of {size} bytes, compressed: {bool(compressed)}, is not what was asked for")
        message = allocate(size)
        self._read_message(message)
        return message

    def cancel(self) -> None:
        """Give the running call up. The connection is closed when much may still be on its way."""
        if not self._over:
            self._over = True
            try:
                self.pipe.write([frame(RST_STREAM, 0, self._sid, _U32.pack(8))])
            except CallError:
                return  # lost already, and so is the call
            self.close()

    def close(self) -> None:
        """Close the socket. Safe to call twice."""
        self.pipe.close()

    # ----------------------------------------------------------------------------------------------------- reading

    def _read_message(self, into: memoryview, *, first: bool = False) -> bool:
        """Fill `into` from the call's DATA; False when it has ended before `first`."""
        done, size = 0, len(into)
        while done < size:
            if not self._rest:
                if self._over:
                    if first and not done:
                        return False
                    raise self._broken("the call ended within a message")
                self._next_frame(keep=True)
                continue
            taken = self.pipe.take(into[done : done + min(self._rest, size - done)])
            done += taken
            self._consumed(taken)
        return True

    def _consumed(self, count: int) -> None:
        self._rest -= count
        if not self._rest:
            self._frame_done()

    def _frame_done(self) -> None:
        if self._padding:
            self.pipe.skip(self._padding)
            self._padding = 0
        if self._ours and self._frame_ends:
            self._over = True
            raise self._broken("the call ended without a status")

    def _payload(self, count: int) -> bytes:
        if count > BLOCK_MAX:
            raise self._broken(f"a frame of {count} bytes where a small one belongs")
        pieces = []
        while count:
            pieces.append(bytes(self.pipe.need(min(count, INBOX))))
            count -= len(pieces[-1])
        return b"".join(pieces)

    def _next_frame(self, *, keep: bool = False) -> None:
        """Read one frame and act on it. DATA of the running call is left to be read when `keep`."""
        if self._rest:
            raise self._broken("an answer came before the request was sent")
        high, low, kind, flags, sid = _HEAD.unpack(self.pipe.need(9))
        size, sid = high << 16 | low, sid & WINDOW
        if kind == DATA:
            self._begin_data(size, flags, sid, keep)
        elif kind == HEADERS:
            self._headers(self._payload(size), flags, sid)
        elif kind == SETTINGS:
            self._settings(self._payload(size), flags)
        elif kind == WINDOW_UPDATE:
            more = _U32.unpack(self._payload(size))[0] & WINDOW
            if sid == 0:
                self._send_window += more
            elif sid == self._sid:
                self._stream_window += more
        elif kind == PING:
            payload = self._payload(size)
            if not flags & ACK:
                self.pipe.write([frame(PING, ACK, 0, payload)])
        elif kind == RST_STREAM:
            self._reset(_U32.unpack(self._payload(size))[0], sid)
        elif kind == GOAWAY:
            payload = self._payload(size)
            self._going = True
            if not self._over and _U32.unpack_from(payload)[0] & WINDOW < self._sid:
                self._over = True
                raise CallError(UNAVAILABLE, "The server is stopping.", unsent=True)
        else:
            self._payload(size)

    def _begin_data(self, size: int, flags: int, sid: int, keep: bool) -> None:
        self._debt += size
        if self._debt >= REFILL:
            self.pipe.write([frame(WINDOW_UPDATE, 0, 0, _U32.pack(self._debt))])
            self._debt = 0
        padding = 0
        if flags & PADDED:
            padding = self.pipe.need(1)[0]
            size -= 1 + padding
        self._ours = sid == self._sid and not self._over
        if not self._ours:
            self.pipe.skip(size + padding)
            return
        if size < 0:
            raise self._broken("a DATA frame is shorter than its padding")
        if size and not keep:
            raise self._broken("an answer came before the request was sent")
        self._stream_debt += size
        if self._stream_debt >= REFILL and not flags & END_STREAM:
            self.pipe.write([frame(WINDOW_UPDATE, 0, sid, _U32.pack(self._stream_debt))])
            self._stream_debt = 0
        self._rest, self._padding, self._frame_ends = size, padding, bool(flags & END_STREAM)
        if not size:
            self._frame_done()

    def _settings(self, payload: bytes, flags: int) -> None:
        if flags & ACK:
            return
        for key, value in _PAIR.iter_unpack(payload):
            if key == 4:
                self._stream_window += value - self._peer_window
                self._peer_window = value
            elif key == 5:
                self._peer_frame = min(value, FRAME_MAX)
        self.pipe.write([frame(SETTINGS, ACK, 0)])

    def _headers(self, block: bytes, flags: int, sid: int) -> None:
        ends = flags & END_STREAM
        if flags & PADDED:
            block = block[1 : len(block) - block[0]]
        if flags & PRIORITIZED:
            block = block[5:]
        while not flags & END_HEADERS:
            high, low, kind, flags, _ = _HEAD.unpack(self.pipe.need(9))
            if kind != CONTINUATION or len(block) > BLOCK_MAX:
                raise self._broken("a header block is not continued")
            block += self._payload(high << 16 | low)
        try:
            decoded = self._decoder.decode(block, raw=True)
        except (HPACKError, ValueError) as error:
            raise self._broken("a header block cannot be read") from error
        if sid != self._sid or self._over:
            return
        found = {bytes(name).decode("latin-1"): bytes(value) for name, value in decoded}
        if ends:
            self._over = True
            self._finish(found)
        elif not self._head_seen:
            self._head_seen = True
            status = int(found.get(":status", b"200"))
            if status != 200:
                self.cancel()
                raise CallError(_HTTP_CODES.get(status, UNAVAILABLE), f"The answer has the HTTP status {status}.")

    def _finish(self, trailers: dict[str, bytes]) -> None:
        """The end of the call; raises what the trailers say."""
        status = trailers.get("grpc-status")
        if status is None:
            http = int(trailers.get(":status", b"200"))
            raise CallError(_HTTP_CODES.get(http, UNKNOWN), f"The answer has the HTTP status {http} and none of gRPC.")
        code = int(status)
        if code:
            text = unquote(trailers.get("grpc-message", b"").decode("utf-8", "replace"))
            encoded = trailers.get("grpc-status-details-bin", b"")
            try:
                details = base64.b64decode(encoded + b"=" * (-len(encoded) % 4))
            except binascii.Error:
                details = b""
            raise CallError(code, text, (details,) if details else ())

    def _reset(self, code: int, sid: int) -> None:
        if sid != self._sid or self._over:
            return
        self._over = True
        raise CallError(_RESET_CODES.get(code, INTERNAL), f"The server reset the call (code {code}).", unsent=code == 7)

    def _check_going_on(self) -> None:
        """While a request is being sent: an answer that came already means that the rest is not wanted."""
        if self._over:
            raise CallError(ABORTED, "The server ended the call before all of it was sent.")

    def _broken(self, what: str) -> CallError:
        self.close()
        return CallError(INTERNAL, f"The server's bytes are not HTTP/2 as expected: {what}.")

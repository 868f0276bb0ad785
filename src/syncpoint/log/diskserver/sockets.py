"""Whole frames over blocking sockets, plain or TLS.

Place: below `command_channel` and `disk_server`.
Promise: a frame comes whole or not at all; `ConnectionError` where the other side hung up, `TimeoutError` where it is
silent, `ValueError` for what is no frame.
"""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Callable, Sequence

from syncpoint.base.runtime.files import Buffer
from syncpoint.log.diskserver.protocol import FRAME_MAX, LENGTHS, check_lengths

_IOV_MAX = 512
_KEEP_BYTES = 6 << 20  # more than a disk's commit
_GONE = "the peer closed the connection"
_SILENT = "the peer does not answer"
KEEPALIVE_S = 20


def tune(sock: socket.socket) -> None:
    """No waiting for fuller packets; a machine that is gone is noticed."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_S)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, KEEPALIVE_S // 4)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 4)


def wait_at_most(sock: socket.socket, seconds: float) -> None:
    """Let calls without progress fail with `TimeoutError` after this time.

    Plain sockets wait in the system, not in Python: one call then receives a whole piece, however it comes.
    """
    if isinstance(sock, ssl.SSLSocket):
        sock.settimeout(seconds)
        return
    sock.settimeout(None)
    whole = int(seconds)
    value = struct.pack("ll", whole, int((seconds - whole) * 1e6))
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, value)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, value)


def hang_up(sock: socket.socket) -> None:
    """Close it, and wake threads that wait for it."""
    try:
        sock.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass  # it was not connected any more
    finally:
        sock.close()


def send_frame(sock: socket.socket, buffers: Sequence[Buffer]) -> None:
    """Send all of it. Small buffers go together."""
    if isinstance(sock, ssl.SSLSocket):
        sock.sendall(b"".join(buffers))
        return
    views = [memoryview(one) for one in buffers if len(one)]
    while views:
        try:
            sent = sock.sendmsg(views[:_IOV_MAX])
        except BlockingIOError:
            raise TimeoutError(_SILENT) from None
        done = 0
        while done < len(views) and sent >= len(views[done]):
            sent -= len(views[done])
            done += 1
        views = views[done:]
        if sent:
            views[0] = views[0][sent:]


class FrameReader:
    """Reads frames: requests into one buffer, which the next frame overwrites, replies into bytes of their own."""

    __slots__ = ("_buffer", "_lengths", "_sock", "_whole")

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._whole = 0 if isinstance(sock, ssl.SSLSocket) else socket.MSG_WAITALL
        self._lengths = bytearray(LENGTHS.size)
        self._buffer = bytearray(1 << 16)

    def read(self, size_max: int = FRAME_MAX) -> tuple[bytes, memoryview]:
        """Head and payload; the payload is good until the next call."""
        self._fill(memoryview(self._lengths))
        head, payload = check_lengths(self._lengths)
        size = head + payload
        if size > size_max:
            raise ValueError(f"a frame of {size} bytes exceeds the expected maximum of {size_max}")
        if size > len(self._buffer) or size < _KEEP_BYTES < len(self._buffer):
            self._buffer = bytearray(max(size, 1 << 16))
        view = memoryview(self._buffer)[:size]
        self._fill(view)
        return bytes(view[:head]), view[head:]

    def let_go(self, used: int) -> bool:
        """Leave the payload read last to its users: the next frame gets a buffer of its own.

        False when `used` bytes of it are less than half of the buffer that they would keep in memory.
        """
        if 2 * used < len(self._buffer):
            return False
        self._buffer = bytearray(1 << 16)
        return True

    def read_head(self, head_size: int) -> tuple[bytes, int]:
        """Head of a frame, of `head_size` bytes, and how large its payload is, which is to be read next."""
        start = self._exactly(LENGTHS.size + head_size)
        head, payload = check_lengths(start[: LENGTHS.size])
        if head != head_size:
            raise ValueError(f"the head has {head} bytes, not {head_size}")
        return start[LENGTHS.size :], payload

    def read_cut(self, payload: int, sizes: Sequence[int], take: Callable[[bytes], None]) -> None:
        """Give away a payload of so many bytes in pieces of these sizes, each as soon as it is there, the last ones
        short or empty where it is shorter; what it has beyond them is one more.
        """
        left = payload
        for size in sizes:
            part = min(size, left)
            left -= part
            take(self._exactly(part))  # no name for it: where it is used at once, the next one gets its memory
        if left:
            take(self._exactly(left))

    def _exactly(self, size: int) -> bytes:
        """Read `size` bytes. On a plain socket that is mostly one call, and the bytes are written once."""
        data = self._receive(size) if size else b""
        if len(data) == size:
            return data
        parts = [data]
        left = size - len(data)
        while left:
            parts.append(self._receive(left))
            left -= len(parts[-1])
        return b"".join(parts)

    def _receive(self, size: int) -> bytes:
        try:
            data = self._sock.recv(size, self._whole)
        except BlockingIOError:
            raise TimeoutError(_SILENT) from None
        if not data:
            raise ConnectionResetError(_GONE)
        return data

    def _fill(self, view: memoryview) -> None:
        while view:
            try:
                got = self._sock.recv_into(view, 0, self._whole)
            except BlockingIOError:
                raise TimeoutError(_SILENT) from None
            if not got:
                raise ConnectionResetError(_GONE)
            view = view[got:]

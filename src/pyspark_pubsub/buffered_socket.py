"""A socket read and written in large pieces, with a deadline.

Place: under `http2`.
Promise: bytes asked for go straight from the socket into the caller's buffer; a little of what follows is read along
into the inbox. Several buffers are written by one system call, without joining them.
Leaves to `http2`: what the bytes mean.
"""

from __future__ import annotations

import select
import socket
import struct
import time
from collections.abc import Callable, Sequence

from pyspark_pubsub.errors import DEADLINE_EXCEEDED, UNAVAILABLE, CallError

Buffer = bytes | bytearray | memoryview
INBOX = 64 * 1024
BEHIND = 4096
"""Bytes read beyond what was asked for: the next frame's head, mostly."""


class BufferedSocket:
    """`deadline` (monotonic seconds) is that of every method: they raise `CallError`, DEADLINE_EXCEEDED when it is over
    and UNAVAILABLE when the connection is lost; after either the pipe is `closed`.
    """

    def __init__(self, sock: socket.socket, deadline: float) -> None:
        self._sock = sock
        self._ready: Callable[[], int] | None = getattr(sock, "pending", None)  # sockets with TLS have it
        self.tls = self._ready is not None
        self.deadline = deadline
        self.closed = False
        if not self.tls:
            sock.setblocking(True)
        self._armed = 0.0
        self._inbox = bytearray(INBOX)
        self._view = memoryview(self._inbox)
        self._at = self._filled = 0

    @property
    def pending(self) -> bool:
        """Whether bytes lie in the inbox."""
        return self._at < self._filled

    def take(self, into: memoryview) -> int:
        """Some bytes, at least one, into the buffer; at most as many as it has room for."""
        ready = self._filled - self._at
        if ready:
            count = min(ready, len(into))
            into[:count] = self._view[self._at : self._at + count]
            self._at += count
            return count
        if self.tls:
            return self._receive([into])
        count = self._receive([into, self._view[:BEHIND]])
        if count > len(into):
            self._at, self._filled = 0, count - len(into)
            return len(into)
        return count

    def need(self, count: int) -> memoryview:
        """`count` bytes (at most the size of the inbox), in the inbox: valid until the next call."""
        if self._filled - self._at < count:
            if self._at:
                self._inbox[: self._filled - self._at] = self._inbox[self._at : self._filled]
                self._at, self._filled = 0, self._filled - self._at
            while self._filled < count:
                self._filled += self._receive([self._view[self._filled :]])
        found = self._view[self._at : self._at + count]
        self._at += count
        return found

    def skip(self, count: int) -> None:
        """Skip this many bytes."""
        while count:
            count -= len(self.need(min(count, INBOX)))

    def readable(self) -> bool:
        """Whether something can be read, or the connection has ended, without waiting."""
        if self.closed:
            return False
        if self._ready is not None and self._ready():
            return True
        poll = select.poll()
        poll.register(self._sock, select.POLLIN)
        return bool(poll.poll(0))

    def write(self, parts: Sequence[Buffer]) -> None:
        """Write all of the buffers, in order."""
        waiting = [memoryview(part) for part in parts]
        try:
            while waiting:
                self._arm()
                if self.tls:
                    self._sock.sendall(waiting.pop(0))
                    continue
                sent = self._sock.sendmsg(waiting)
                while waiting and sent >= len(waiting[0]):
                    sent -= len(waiting.pop(0))
                if sent:
                    waiting[0] = waiting[0][sent:]
        except (TimeoutError, BlockingIOError) as error:
            raise self._expired() from error
        except OSError as error:
            raise self._gone(error) from error

    def close(self) -> None:
        """Close the socket. Safe to call twice."""
        self.closed = True
        self._sock.close()

    def _receive(self, into: list[memoryview]) -> int:
        self._arm()
        try:
            count = self._sock.recv_into(into[0]) if len(into) == 1 else self._sock.recvmsg_into(into)[0]
        except (TimeoutError, BlockingIOError) as error:
            raise self._expired() from error
        except OSError as error:
            raise self._gone(error) from error
        if not count:
            raise self._gone(None)
        return count

    def _arm(self) -> None:
        """Let the socket's own time end with the deadline: in the kernel, which saves a poll before every call."""
        if self._armed == self.deadline and not self.tls:
            return
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise self._expired()
        if self.tls:
            self._sock.settimeout(left)
            return
        self._armed = self.deadline
        seconds = struct.pack("ll", int(left), int(left % 1 * 1e6) or 1)
        try:
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, seconds)
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, seconds)
        except OSError as error:
            raise self._gone(error) from error

    def _expired(self) -> CallError:
        self.close()
        return CallError(DEADLINE_EXCEEDED, "The time for this call is over.")

    def _gone(self, error: OSError | None) -> CallError:
        self.close()
        return CallError(UNAVAILABLE, f"The connection was lost ({error or 'closed by the server'}).")

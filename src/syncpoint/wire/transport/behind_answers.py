"""Streams whose messages wait until their caller has read what it was answered before, on the same connection.

Place: beside `server_connection`, which makes one where a stream with `Streaming.behind` is opened; connections without
such a stream know nothing of it.
Promise: a caller that publishes and receives by one connection reads the answer to its publish in an earlier turn than
the message. Were both there when it reads, its own turns would decide which one it learns of first. A PING goes behind
the answer, and the streams have no window until it comes back, for `BEHIND_S` at most. Nothing else waits.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from syncpoint.wire.transport import frames

if TYPE_CHECKING:
    from syncpoint.wire.transport.connection import Connection
    from syncpoint.wire.transport.stream_state import StreamState

BEHIND_S = 0.1
"""Longer than a round trip to a caller nearby; to one far away the message follows its answer after that time."""
PAYLOAD = b"answered"
_CLOSED = frames.WINDOW_MAX + 1  # what is taken of a stream's window, more than it has


class BehindAnswers:
    """The streams of one connection that wait behind answers of the method at `path`."""

    def __init__(self, connection: Connection, path: bytes) -> None:
        self.path = path
        self._connection = connection
        self._streams: list[StreamState] = []
        self._held: list[StreamState] = []
        self._timer: asyncio.TimerHandle | None = None

    def add(self, stream: StreamState) -> None:
        """A stream was opened."""
        self._streams = [*(one for one in self._streams if not one.done), stream]

    def answered(self) -> None:
        """An answer was given. One that is given while the streams wait lets them wait no longer."""
        if self._timer is not None or self._connection.closed:
            return
        self._held = self._streams = [one for one in self._streams if not one.done]
        if self._held:
            self._connection.send(frames.frame(frames.PING, 0, 0, PAYLOAD))
            self._timer = self._connection.loop.call_later(BEHIND_S, self._let_go)
            for stream in self._held:
                stream.more_window(-_CLOSED)

    def on_pong(self) -> bool:
        """The PING came back. False: it was not waited for, or not any more."""
        if self._timer is None:
            return False
        self._timer.cancel()
        self._let_go()
        return True

    def _let_go(self) -> None:
        self._timer = None
        for stream in self._held:
            if not stream.done:  # and what the peer gave beyond the largest window in the meantime is void
                stream.more_window(min(_CLOSED, frames.WINDOW_MAX - stream.send_window))
        self._connection.window_opened()

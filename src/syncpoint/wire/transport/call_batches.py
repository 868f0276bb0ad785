"""Unary calls that came one right after the other on a connection, as one: read, served and answered together.

Place: beside `server_streams`. `server_connection` makes a batch of calls of a method that takes batches
(`calls.Unary`) where they stand one after the other in what was received; a single one is a batch as well.
Promise: each call ends as it would have ended alone. Whatever concerns only one of them (a reset, a window, a deadline,
a refusal, an answer that cannot leave) makes a stream of its own of it, which goes on from there.
Leaves to the kernel: reading them, and writing their answers.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from syncpoint.base.kernel import call_frames
from syncpoint.base.model.errors import Code, SyncpointError
from syncpoint.wire.transport.calls import AnyConnection, Unary
from syncpoint.wire.transport.headers import HEAD_BLOCK, OK_BLOCK, RequestHead
from syncpoint.wire.transport.outbox import BURST
from syncpoint.wire.transport.server_streams import UnaryStream
from syncpoint.wire.transport.stream_state import COPY_BYTES, PREFIX_BYTES

if TYPE_CHECKING:
    from syncpoint.wire.transport.server_connection import ServerConnection

log = logging.getLogger("syncpoint.wire.transport")

BYTES_MAX: Final = 64 * 1024
"""No call is added to a batch with more bytes than this, and none of more comes into one."""
_OPEN, _ALONE, _ANSWERED = range(3)


class CallBatch:
    """Calls of one caller and method, in order. `requests`: their messages."""

    __slots__ = ("_alone", "_first", "_left", "_states", "_windows", "began", "conn", "head", "method", "requests")

    def __init__(
        self,
        conn: ServerConnection,
        head: RequestHead,
        method: Unary,
        first: int,
        requests: list[bytes],
        windows: list[int],
    ) -> None:
        self.conn, self.head, self.method, self.requests = conn, head, method, requests
        self.began = conn.loop.time()
        self._first, self._windows = first, windows
        self._left = len(requests)
        self._states = bytearray(self._left)
        self._alone: dict[int, UnaryStream] = {}
        method.counts.begun += self._left
        conn.counters.calls += self._left
        conn.batched_calls += self._left

    # -- what a handler sees -----------------------------------------------------------------------------------------

    @property
    def path(self) -> bytes:
        """Path of the method."""
        return self.head.path

    @property
    def metadata(self) -> dict[bytes, bytes]:
        """The caller's metadata; shared, not to be changed."""
        return self.head.metadata

    @property
    def deadline(self) -> float | None:
        """When the calls expire, in the time of the event loop."""
        return None if self.head.timeout_s is None else self.began + self.head.timeout_s

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
        """The connection of the calls."""
        return self.conn.transport

    @property
    def noted(self) -> dict[str, float]:
        """Until when the connection is known to call for a name; see `calls.Call`."""
        return self.conn.noted

    def answering(self, first: int, answers: list[bytes]) -> BatchAnswer:
        """Answers for the calls from `first` on, to be given, or not, all at once."""
        return BatchAnswer(self, first, answers)

    def serve_alone(self, first: int, count: int) -> None:
        """Have the method serve calls that it took, and has not answered, each as if it had come alone."""
        for index in range(first, first + count):
            self._serve_alone(index)

    def _serve_alone(self, index: int) -> None:
        stream = self.alone(index)
        if stream is not None and not stream.done:
            stream.guarded(self.method.handler, stream, self.requests[index])

    # -- calls on their own ------------------------------------------------------------------------------------------

    def index_of(self, sid: int) -> int:
        """Which call is on that stream; -1: none that is neither answered nor alone."""
        index = (sid - self._first) >> 1
        return index if 0 <= index < len(self._states) and sid & 1 and self._states[index] == _OPEN else -1

    def alone(self, index: int) -> UnaryStream | None:
        """One call as a stream of its own; None where it is answered."""
        if self._states[index] != _OPEN:
            return self._alone.get(index)
        conn, sid = self.conn, self._first + 2 * index
        stream = self._alone[index] = conn.streams[sid] = UnaryStream(conn, sid, self.head, self.method)
        self.method.counts.begun -= 1  # it was counted here
        stream.began, stream.deadline = self.began, self.deadline
        stream.send_window = conn.peer_window + self._windows[index]
        stream.received = len(self.requests[index]) + PREFIX_BYTES
        stream.remote_done = True
        self._states[index] = _ALONE
        self._end(1)
        return stream

    def dissolve(self) -> None:
        """Make streams of all calls that are still open."""
        for index, state in enumerate(bytes(self._states)):
            if state == _OPEN:
                self.alone(index)

    def _end(self, count: int) -> None:
        self._left -= count
        self.conn.batched_calls -= count
        if not self._left:
            self.conn.batches.pop(self, None)

    # -- ends --------------------------------------------------------------------------------------------------------

    def serve(self) -> None:
        """Call the method, which takes as many of the calls as it can take together, again and again; where it takes
        none, or refuses, the next call is served alone. Where it breaks, all calls fail that are not answered.
        """
        handler, at, end = self.method.batch_handler, 0, len(self.requests)
        assert handler is not None
        try:
            while at < end:
                try:
                    taken = handler(self, at)
                except SyncpointError:
                    taken = 0  # alone, the call is refused with its own reason
                if not taken:
                    self._serve_alone(at)
                at += taken or 1
        except Exception:
            log.exception("handler of %s failed", self.head.path.decode("ascii", "replace"))
            self.fail(0, end, SyncpointError(Code.INTERNAL, "Internal error."))

    def reply(self, first: int, answers: list[bytes]) -> None:
        """Answer the calls from `first` on."""
        conn, count = self.conn, len(answers)
        largest = max(map(len, answers))
        size = sum(map(len, answers)) + PREFIX_BYTES * count
        if (
            self._alone
            or largest > COPY_BYTES
            or largest + PREFIX_BYTES > conn.peer_window
            or size > conn.send_window
            or conn.paused
            or conn.out_bytes >= BURST
        ):
            for index, answer in enumerate(answers, first):
                stream = self.alone(index)
                if stream is not None:
                    stream.reply(answer)
            return
        self._states[first : first + count] = bytes((_ANSWERED,)) * count
        self.method.counts.ended(0, conn.loop.time() - self.began, count)
        conn.send_window -= size
        conn.out.append(call_frames.write(answers, self._first + 2 * first, HEAD_BLOCK, OK_BLOCK))
        self._end(count)
        if not (conn.corked or conn.booked):
            conn.schedule_flush()
        conn.calls_ended()

    def fail(self, first: int, count: int, error: SyncpointError) -> None:
        """Answer calls that are not answered with a failure."""
        for index in range(first, first + count):
            stream = self.alone(index)
            if stream is not None:
                stream.fail(error)


class BatchAnswer:
    """What becomes of some calls of a batch, known later: they get their answers, or all fail."""

    __slots__ = ("_answers", "_batch", "_first")

    def __init__(self, batch: CallBatch, first: int, answers: list[bytes]) -> None:
        self._batch, self._first, self._answers = batch, first, answers

    def reply(self, answer: bytes) -> None:
        """Give each call its answer; `answer` is not needed."""
        self._batch.reply(self._first, self._answers)

    def fail(self, error: SyncpointError) -> None:
        """Fail the calls."""
        self._batch.fail(self._first, len(self._answers), error)

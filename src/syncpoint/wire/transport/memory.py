"""The channel's twin without sockets, for simulations and tests.

Place: stands in for `client.Channel` in front of the same `Methods` a `Server` would serve.
Promise: the same calls, errors and order as over a connection, in the time of the running event loop; delays and losses
follow a seed, so that a run can be repeated. A lost message ends its call with UNAVAILABLE, as a lost connection
would: a request lost on the way there was not carried out, an answer lost on the way back was.
Leaves out: windows. A stream is always writable unless `Faults.cut` is set.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from syncpoint.base.model.errors import Code, SyncpointError, Unimplemented, Unprocessed, received
from syncpoint.base.runtime.random import Random
from syncpoint.wire.transport.call_counts import CallCounts, code_of
from syncpoint.wire.transport.calls import AnyConnection, Methods, Streaming, Unary
from syncpoint.wire.transport.client import MetadataItems
from syncpoint.wire.transport.stream_state import Message

log = logging.getLogger("syncpoint.wire.transport")


class Faults:
    """What the imagined network does. `delay_s_max`: each way, evenly spread; `loss`: probability per message and way.

    `cut`: nothing passes; calls begun in the meantime fail at once, messages underway are lost.
    """

    def __init__(self, random: Random, *, delay_s_max: float = 0.0, loss: float = 0.0) -> None:
        self.random = random
        self.delay_s_max = delay_s_max
        self.loss = loss
        self.cut = False

    def delay_s(self) -> float:
        """Draw the delay of a message, in seconds."""
        return self.random.random() * self.delay_s_max if self.delay_s_max else 0.0

    def lost(self) -> bool:
        """Whether one message is."""
        return self.cut or (self.loss > 0.0 and self.random.random() < self.loss)


def _bytes(message: Message) -> bytes:
    if isinstance(message, (bytes, bytearray, memoryview)):
        return bytes(message)
    return b"".join(bytes(part) for part in message)


class Way(Protocol):
    """One direction of a call."""

    def carry(self, action: Callable[[], None], *, safe: bool = False) -> None:
        """Let `action` happen at the other end; `safe`: it travels with a message that may be lost itself."""
        ...


class _Direction:
    """One direction of a call: things arrive in the order they were sent, each later than the one before."""

    def __init__(self, faults: Faults | None, broken: Callable[[], None]) -> None:
        self._faults = faults
        self._broken = broken
        self._last = 0.0
        self._loop = asyncio.get_running_loop()

    def carry(self, action: Callable[[], None], *, safe: bool = False) -> None:
        """Let `action` happen at the other end; `safe`: it travels with a message, so only `cut` can lose it."""
        faults = self._faults
        if faults is None:
            self._loop.call_soon(action)
            return
        # Strictly later than the one before: timers of the same time run in no certain order.
        self._last = max(math.nextafter(self._last, math.inf), self._loop.time() + faults.delay_s())
        self._loop.call_at(self._last, self._broken if (faults.cut if safe else faults.lost()) else action)


class MemoryCall:
    """Both `calls.Call` and `calls.StreamingCall`, as the method sees them."""

    def __init__(
        self, path: bytes, metadata: dict[bytes, bytes], deadline: float | None, finished: Callable[..., None]
    ) -> None:
        self.path = path
        self.metadata = metadata
        self.deadline = deadline
        self.peer = "memory"
        self.certificate: Mapping[str, Any] | None = None
        self.connection: AnyConnection | None = None
        self.cancelled = False
        self.over = False
        self.writable = True
        self.on_cancel: Callable[[], object] | None = None
        self.on_message: Callable[[bytes], None] | None = None
        self.on_end: Callable[[], None] | None = None
        self.on_writable: Callable[[], None] | None = None
        self.on_drain: Callable[[], object] | None = None
        self.to_client: Callable[[bytes], None] = lambda _: None
        self._finished = finished
        self._counts: CallCounts | None = None
        self.began = 0.0
        self.noted: dict[str, float] = {}

    def count_in(self, counts: CallCounts) -> None:
        """Count the beginning of a method call."""
        self._counts, self.began = counts, asyncio.get_running_loop().time()
        counts.begun += 1

    def _count_out(self, code: int) -> None:
        counts, self._counts = self._counts, None
        if counts is not None:
            counts.ended(code, asyncio.get_running_loop().time() - self.began)

    def reply(self, message: Message) -> None:
        self.send(message)
        self.finish()

    def fail(self, error: SyncpointError) -> None:
        self.finish(error)

    def send(self, message: Message, token: object = None) -> None:
        if not self.over:
            self.to_client(_bytes(message))

    def keep(self, more: int) -> None:
        """Do nothing: an in-memory call has no flow-control windows."""

    def finish(self, error: SyncpointError | None = None) -> None:
        if not self.over:
            self.over = True
            self._count_out(code_of(error))
            self._finished(error)

    def take_back(self) -> list[object]:
        """Return no tokens: messages of an in-memory call leave immediately."""
        return []

    def cancel(self) -> None:
        """The caller is gone."""
        if not (self.over or self.cancelled):
            self.over = self.cancelled = True
            self._count_out(Code.CANCELLED)
            if self.on_cancel is not None:
                self.on_cancel()

    def run(self, function: Callable[..., None], *arguments: object) -> None:
        """Call the application; what it raises fails the call."""
        try:
            function(*arguments)
        except SyncpointError as error:
            self.finish(error)
        except Exception:
            log.exception("handler of %s failed", self.path.decode("ascii", "replace"))
            self.finish(SyncpointError(Code.INTERNAL, "Internal error."))


class MemoryStream:
    """A streaming call as its caller sees it; see `client.ClientStream`. Unary calls are made of one, too."""

    def __init__(
        self, methods: Methods, path: str, metadata: MetadataItems, timeout: float | None, faults: Faults | None
    ) -> None:
        loop = asyncio.get_running_loop()
        self._inbox: deque[bytes] = deque()
        self._over = False
        self._error: SyncpointError | None = None
        self._changed: asyncio.Future[None] = loop.create_future()
        self._faults = faults
        self._there, self._back = self._ways()
        self._method = methods.get(path.encode())
        deadline = None if timeout is None else loop.time() + timeout
        self.call = MemoryCall(path.encode(), dict(metadata), deadline, self._answered)
        self.call.to_client = self._to_client
        self._timer = None if timeout is None else loop.call_later(timeout, self._expire)
        self._there.carry(self._begin, safe=True)

    def _ways(self) -> tuple[Way, Way]:
        """Both directions: to the method, and back."""
        return _Direction(self._faults, self._broken), _Direction(self._faults, self._broken)

    def _begin(self) -> None:
        if self._method is not None and not self.call.over:
            self.call.count_in(self._method.counts)
        if self._method is None:
            self.call.finish(Unimplemented(self.call.path.decode()))
        elif isinstance(self._method, Streaming):
            self.call.run(self._method.handler, self.call)

    def _arrived(self, payload: bytes) -> None:
        call = self.call
        if call.over:
            return
        if isinstance(self._method, Unary):
            call.run(self._method.handler, call, payload)
        elif call.on_message is not None:
            call.run(call.on_message, payload)

    def _ended(self) -> None:
        if self.call.on_end is not None and not self.call.over:
            self.call.run(self.call.on_end)

    def _to_client(self, payload: bytes) -> None:
        def arrive() -> None:
            if not self._over:
                self._inbox.append(payload)
                self._wake()

        self._back.carry(arrive)

    def _answered(self, error: SyncpointError | None) -> None:
        if error is not None:
            error = received(error.code, error.message, error.details)  # a type does not travel
        self._back.carry(lambda: self._finish(error), safe=error is None)

    def _broken(self) -> None:
        self._finish(SyncpointError(Code.UNAVAILABLE, "The connection was lost."))
        self.call.cancel()

    def _finish(self, error: SyncpointError | None) -> None:
        if not self._over:
            self._over = True
            self._error = error
            if self._timer is not None:
                self._timer.cancel()
            self._wake()

    def _wake(self) -> None:
        changed, self._changed = self._changed, self._changed.get_loop().create_future()
        changed.set_result(None)

    def _expire(self) -> None:
        self._finish(SyncpointError(Code.DEADLINE_EXCEEDED, "Deadline exceeded."))
        self.call.cancel()

    async def send(self, message: Message) -> None:
        if self._over:
            raise self._error or SyncpointError(Code.UNAVAILABLE, "The stream is over.")
        payload = _bytes(message)
        self._there.carry(lambda: self._arrived(payload))

    async def receive(self) -> bytes | None:
        while not self._inbox:
            if self._over:
                if self._error is not None:
                    raise self._error
                return None
            await asyncio.wait((self._changed,))
        return self._inbox.popleft()

    async def receive_parts(self) -> bytes | list[bytes] | None:
        return await self.receive()

    async def end(self) -> None:
        self._there.carry(self._ended)

    def cancel(self) -> None:
        self._finish(SyncpointError(Code.CANCELLED, "The call was cancelled."))
        self._there.carry(self.call.cancel)


class MemoryChannel:
    """Calls to `methods` in this process; see `client.Channel`."""

    def __init__(self, methods: Methods, faults: Faults | None = None) -> None:
        self._methods = methods
        self._faults = faults
        self._closed = False

    async def unary(
        self, path: str, message: Message, *, metadata: MetadataItems = (), timeout: float | None = None
    ) -> bytes:
        return await unary_over(self.stream(path, metadata, timeout), message)

    def stream(self, path: str, metadata: MetadataItems = (), timeout: float | None = None) -> MemoryStream:
        if self._closed or (self._faults is not None and self._faults.cut):
            raise Unprocessed("The channel is closed." if self._closed else "No connection.")
        return MemoryStream(self._methods, path, metadata, timeout, self._faults)

    async def close(self) -> None:
        self._closed = True


async def unary_over(stream: MemoryStream, message: Message) -> bytes:
    """A unary call on a stream: one message each way. Raises `SyncpointError`."""
    try:
        await stream.send(message)
        answer = await stream.receive()
        if answer is None or await stream.receive() is not None:
            raise SyncpointError(Code.INTERNAL, "The answer is not one message.")
        return answer
    except asyncio.CancelledError:
        stream.cancel()
        raise

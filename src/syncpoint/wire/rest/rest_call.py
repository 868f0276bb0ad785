"""A call that came over HTTP/1.1, as its method and the gate before it see it.

Place: between `app` and the methods; the REST twin of `transport.server_streams`.
Promise: `answer` is done once, by whatever is first: the method, the end of the connection, or the deadline.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from syncpoint.base.model.errors import Code, DeadlineExceeded, SyncpointError
from syncpoint.base.runtime.tasks import complete
from syncpoint.wire.transport.calls import AnyConnection, Unary
from syncpoint.wire.transport.stream_state import Message

log = logging.getLogger(__name__)


class RestCall:
    """A unary call that arrived over REST. `timeout_s`: the caller's timeout in seconds; None: no timeout."""

    def __init__(
        self,
        path: bytes,
        metadata: dict[bytes, bytes],
        timeout_s: float | None,
        peer: str,
        certificate: Mapping[str, Any] | None,
        connection: AnyConnection | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self.path, self.metadata = path, metadata
        self.deadline = None if timeout_s is None else self._loop.time() + timeout_s
        self.peer, self.certificate, self.connection = peer, certificate, connection
        self.began, self.noted = self._loop.time(), dict[str, float]()
        self.cancelled = False
        self.on_cancel: Any = None
        self.answer: asyncio.Future[bytes] = self._loop.create_future()
        self._timer = None if self.deadline is None else self._loop.call_at(self.deadline, self._expire)

    def reply(self, message: Message) -> None:
        if isinstance(message, (bytes, bytearray, memoryview)):
            complete(self.answer, bytes(message))
        else:
            complete(self.answer, b"".join(bytes(part) for part in message))

    def fail(self, error: SyncpointError) -> None:
        complete(self.answer, error)

    async def answered(self, method: Unary, request: bytes) -> bytes:
        """What the method answers, counted among its calls. Raises `SyncpointError`."""
        method.counts.begun += 1
        self.began, code = self._loop.time(), int(Code.CANCELLED)
        try:
            response = await self._run(method, request)
            code = 0
            return response
        except SyncpointError as error:
            code = int(error.code)
            raise
        finally:
            method.counts.ended(code, self._loop.time() - self.began)

    async def _run(self, method: Unary, request: bytes) -> bytes:
        if not self.answer.done():
            try:
                method.handler(self, request)
            except SyncpointError as error:
                self.fail(error)
            except Exception:
                log.exception("handler of %s failed", self.path.decode("ascii", "replace"))
                self.fail(SyncpointError(Code.INTERNAL, "Internal error."))
        return await self.answer

    def end(self) -> None:
        """The client is gone: cancel a method that has not answered."""
        if self._timer is not None:
            self._timer.cancel()
        if not (self.cancelled or (self.answer.done() and not self.answer.cancelled())):
            self._cancel()

    def _cancel(self) -> None:
        self.cancelled = True
        if self.on_cancel is not None:
            self.on_cancel()

    def _expire(self) -> None:
        if not self.answer.done():
            self._cancel()
            self.fail(DeadlineExceeded("Deadline exceeded."))

"""A publish that no connection brought: a call as the publish path takes it, answered to a future.

Place: between `forward_driver` and the publisher of the same process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from syncpoint.base.model.errors import SyncpointError
from syncpoint.base.runtime.tasks import complete
from syncpoint.wire.protobuf import methods
from syncpoint.wire.transport.calls import AnyConnection, Call
from syncpoint.wire.transport.stream_state import Message


class OwnCall:
    """A publish call made by the service itself; needs the event loop."""

    path, peer = methods.PUBLISHER.Publish.encode(), "forward"
    deadline: float | None = None
    certificate: Mapping[str, Any] | None = None
    connection: AnyConnection | None = None
    cancelled = False
    began = 0.0

    def __init__(self) -> None:
        self.metadata: dict[bytes, bytes] = {}
        self.noted: dict[str, float] = {}
        self.on_cancel: Callable[[], object] | None = None
        self.answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def reply(self, message: Message) -> None:
        complete(self.answer, message if isinstance(message, bytes) else b"".join(bytes(part) for part in message))

    def fail(self, error: SyncpointError) -> None:
        complete(self.answer, error)


async def published(publish: Callable[[Call, bytes], None], request: bytes) -> bytes:
    """What `publish` answers. Raises `SyncpointError`."""
    call = OwnCall()
    publish(call, request)
    return await call.answer

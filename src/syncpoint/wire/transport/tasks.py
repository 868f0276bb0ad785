"""Methods written as coroutines.

Place: for methods off the hot path (administration, health); a task per call costs more than the call itself.
Promise: the task ends when the caller is gone; what it raises becomes the call's status. Methods that may cost
much take turns, connection by connection (see `fair`).
Leaves to the coroutine: its work and its clean-up on asyncio.CancelledError.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from syncpoint.base.model.errors import Code, SyncpointError
from syncpoint.base.runtime.tasks import Tasks
from syncpoint.wire.transport.calls import Call, Unary
from syncpoint.wire.transport.fair import Stepwise
from syncpoint.wire.transport.stream_state import Message

log = logging.getLogger("syncpoint.wire.transport")


def unary_fair(function: Callable[[Call, bytes], Coroutine[Any, Any, Message]]) -> Unary:
    """A unary method that runs `function` as a task whose steps wait for their turns."""
    return unary_async(lambda call, request: Stepwise(function(call, request), call.peer))


def unary_async(function: Callable[[Call, bytes], Awaitable[Message]]) -> Unary:
    """A unary method that runs `function` as a task."""
    running = Tasks()

    async def run(call: Call, request: bytes) -> None:
        try:
            call.reply(await function(call, request))
        except SyncpointError as error:
            call.fail(error)
        except asyncio.CancelledError:
            call.fail(SyncpointError(Code.CANCELLED, "The call was cancelled."))
            raise
        except Exception:
            log.exception("method %s failed", call.path.decode("ascii", "replace"))
            call.fail(SyncpointError(Code.INTERNAL, "Internal error."))

    def handler(call: Call, request: bytes) -> None:
        call.on_cancel = running.start(run(call, request)).cancel

    return Unary(handler)

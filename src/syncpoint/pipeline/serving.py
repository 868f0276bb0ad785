"""Methods written on messages, served on bytes, for the services of this room; and when they may answer."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from google.protobuf.message import DecodeError

from syncpoint.model.errors import InvalidArgument, Unavailable
from syncpoint.publish.forwarder import PublishForwarder
from syncpoint.runtime.tasks import complete
from syncpoint.transport.calls import Call, Unary
from syncpoint.transport.tasks import unary_async


def parsed(kind: Any, request: bytes) -> Any:
    """The request as a message of class `kind`. Raises `InvalidArgument` for bytes that are none."""
    try:
        return kind.FromString(request)
    except DecodeError:
        raise InvalidArgument("", f"The request is not a valid {kind.DESCRIPTOR.name}.") from None


def served(kind: Any, function: Callable[[Any], Awaitable[Any]]) -> Unary:
    """A unary method: bytes are parsed as `kind`, the message that `function` answers is serialised."""

    async def run(call: Call, request: bytes) -> bytes:
        answer: bytes = (await function(parsed(kind, request))).SerializeToString()
        return answer

    return unary_async(run)


async def persisted(publish: PublishForwarder) -> None:
    """Return once everything that the log was given is persisted: only then may be told what follows from it. Raises
    `Unavailable` where that is unknown, as it is of a log that has failed.
    """
    publish.check_writable()
    if publish.store.persisted >= publish.store.appended:
        return
    waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    publish.once_persisted(
        lambda error: complete(waiting, error and Unavailable(f"what was asked for may or may not be stored: {error}"))
    )
    await waiting

"""When the services of this room may answer."""

import asyncio

from syncpoint.model.errors import Unavailable
from syncpoint.publish.forwarder import PublishForwarder
from syncpoint.runtime.tasks import complete


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

"""Work that waits for another service, in threads that nothing else waits for.

Place: in place of `asyncio.to_thread` where the other end may not answer for minutes. The threads of that are few, and
shared by all of a process: once they hang, so does what waits for disks; and a process ends only after they have.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from syncpoint.base.runtime.tasks import complete


async def in_own_thread(work: Callable[[], Any]) -> Any:
    """What it returns or raises. A caller that is cancelled or ends abandons it."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Any] = loop.create_future()

    def run() -> None:
        try:
            found = work()
        except Exception as error:
            found = error
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(complete, done, found)

    threading.Thread(target=run, name="outside", daemon=True).start()
    return await done

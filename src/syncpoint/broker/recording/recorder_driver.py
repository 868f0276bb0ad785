"""The driver of a process's recorder: what was noted is published a tenth of a second later, until it is known to be.

Place: made by `node`, which decides how this process publishes on its own behalf.
Promise: no forwarder waits for it. At an orderly end all that is noted is published, or given up after `END_S`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from syncpoint.base.model.errors import Code, PermissionDenied, SyncpointError
from syncpoint.base.runtime.tasks import Tasks
from syncpoint.broker.recording.recorder import NumberedRecords, Recorder

LINGER_S: Final = 0.1
RETRY_S: Final = 1.0
END_S: Final = 2.0

log = logging.getLogger(__name__)


class RecorderDriver:
    """`publish(topic, request)` publishes a PublishRequest, and raises `SyncpointError`."""

    def __init__(self, recorder: Recorder, publish: Callable[[str, bytes], Awaitable[bytes]]) -> None:
        self.recorder, self._publish = recorder, publish
        self._noted = asyncio.Event()
        self._tasks = Tasks()
        recorder.on_noted = self._noted.set

    def start(self) -> None:
        """Begin to publish. Needs the event loop."""
        self._tasks.start(self._run())

    async def stop(self) -> None:
        """Publish what is left, and that this was the end."""
        if self.recorder.end():
            self._noted.set()
            try:
                async with asyncio.timeout(END_S):
                    while any(one.ended or one.sending for one in self.recorder.topics.values()):
                        await asyncio.sleep(LINGER_S / 2)
            except TimeoutError:
                log.warning("the last delivery records are not published")
        await self._tasks.stop()

    async def _run(self) -> None:
        while True:
            await self._noted.wait()
            await asyncio.sleep(LINGER_S)
            self._noted.clear()
            for message in self.recorder.due():
                self._tasks.start(self._send(message))

    async def _send(self, message: NumberedRecords) -> None:
        again, noticed = True, ""
        while again:
            error: SyncpointError | None = None
            try:
                self.recorder.check(message)
                await self._publish(message.target, message.request)
            except SyncpointError as refused:
                error = refused
            except Exception as failure:  # whatever it is, later records may be published
                log.exception("delivery records are not published yet")
                error = SyncpointError(Code.INTERNAL, str(failure))
            again = self.recorder.published(message, error)
            if again:
                if isinstance(error, PermissionDenied) and error.message != noticed:
                    noticed = error.message
                    log.warning("delivery records wait: %s", noticed)
                await asyncio.sleep(RETRY_S)
                message = self.recorder.retargeted(message)

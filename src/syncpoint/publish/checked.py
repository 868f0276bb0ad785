"""Publishes of clients to topics with a schema, on their way into the one log of a node.

Place: between `PublishForwarder.client_request` and `PublishForwarder.publish`; other topics do not come here. In a
cluster the proxy checks, see `proxy.publisher`.
Promise: a large request is checked by another process, and what comes after it to the same topic waits for it, so the
order of arrival is the order in the log. What waits is bounded; what exceeds that is refused with RESOURCE_EXHAUSTED,
which means "not stored". A request is stored only by the schema settings that hold when it is.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Final

from syncpoint.metadata.records import Topic
from syncpoint.model.errors import Internal, ResourceExhausted, SyncpointError, Unavailable
from syncpoint.publish.append import PublishCaller
from syncpoint.runtime.tasks import Tasks
from syncpoint.schemas.publishing import SchemaGate

WAITING_BYTES_MAX: Final = 64 << 20

log = logging.getLogger(__name__)
_Line = deque[tuple[PublishCaller, bytes]]


class CheckedPublishes:
    """See the module. `topic_of`: the topic of a request as it is now; `publish` takes what is checked. Both raise
    `SyncpointError`."""

    def __init__(
        self,
        gate: SchemaGate,
        topic_of: Callable[[bytes], Topic],
        publish: Callable[[PublishCaller, Topic, bytes | memoryview], None],
    ) -> None:
        self._gate, self._topic_of, self._publish = gate, topic_of, publish
        self.lines: dict[str, _Line] = {}  # what waits, by the name of the topic
        self._waiting_bytes = 0
        self._tasks = Tasks()

    def take(self, caller: PublishCaller, topic: Topic, request: bytes | memoryview) -> None:
        """Take a request to a topic with a schema, or to one that may have a line. Raises `SyncpointError` when it is
        refused at once."""
        line = self.lines.get(topic.name)
        if line is None and not self._gate.is_large(topic, request):
            self._publish(caller, topic, self._gate.marked(topic, request))
            return
        if self._waiting_bytes and self._waiting_bytes + len(request) > WAITING_BYTES_MAX:
            raise ResourceExhausted("Many large messages are being checked against schemas; retry later.")
        self._waiting_bytes += len(request)
        if line is None:
            line = self.lines[topic.name] = deque()
            self._tasks.start(self._work(topic.name, line))
        line.append((caller, bytes(request)))

    async def _work(self, name: str, line: _Line) -> None:
        try:
            while line:
                caller, request = line[0]
                await self._one(caller, request)
                line.popleft()
                self._waiting_bytes -= len(request)
        finally:
            del self.lines[name]
            for caller, request in line:
                self._waiting_bytes -= len(request)
                caller.fail(Unavailable("The server is stopping; the messages are not stored."))

    async def _one(self, caller: PublishCaller, request: bytes) -> None:
        try:
            while True:
                topic = self._topic_of(request)
                marked = await self._gate.marked_apart(topic, request)
                now = self._topic_of(request)
                if (now.incarnation, now.schema) == (topic.incarnation, topic.schema):
                    break
            self._publish(caller, now, marked)
        except SyncpointError as error:
            caller.fail(error)
        except Exception:
            log.exception("a publish could not be checked")
            caller.fail(Internal("Internal error."))

    async def stop(self) -> None:
        """Turn away what waits."""
        await self._tasks.stop()

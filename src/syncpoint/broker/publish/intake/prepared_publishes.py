"""Publishes of clients to topics with a schema or transforms, on their way into the one log of a node.

Place: in front of `PublishForwarder.publish`; other topics do not come here. In a cluster the proxy prepares, see
`proxy.publisher`.
Promise: what comes after a request with the same ordering key is stored after it, however long one takes. What waits
is bounded; what exceeds that is refused with RESOURCE_EXHAUSTED, which means "not stored". A request is stored only by
the settings of its topic that hold when it is.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Final

from syncpoint.base.kernel import split
from syncpoint.base.kernel.errors import Malformed
from syncpoint.base.model.errors import Internal, SyncpointError, Unavailable, not_a
from syncpoint.base.model.names import project_of
from syncpoint.base.runtime.tasks import Tasks
from syncpoint.broker.publish.commit.append import FunctionCaller, PublishCaller
from syncpoint.broker.publish.facts.origin import PublishOrigin
from syncpoint.broker.publish.facts.project_room import ProjectRoom
from syncpoint.broker.publish.intake.key_order import BatchPlace, PublishOrder
from syncpoint.broker.publish.intake.message_preparation import MessagePreparation
from syncpoint.catalog.metadata.records import Topic
from syncpoint.catalog.transforms.publish_requests import TransformedRequest

WAITING_BYTES_MAX: Final = 64 << 20  # of which one project has half at most

log = logging.getLogger(__name__)


TakePrepared = Callable[[PublishCaller, Topic, bytes | memoryview, PublishOrigin], object]
"""Takes what is prepared. Raises `SyncpointError`."""


class PreparedPublishes:
    """Publish to topics with a schema or transforms.

    `topic_of`: returns the current topic of a request; `publish` takes prepared requests. Both raise `SyncpointError`.
    """

    def __init__(
        self,
        preparation: MessagePreparation,
        topic_of: Callable[[bytes], Topic],
        publish: TakePrepared,
    ) -> None:
        self._preparation, self._topic_of, self._publish = preparation, topic_of, publish
        self.order = PublishOrder()
        self._room = ProjectRoom(WAITING_BYTES_MAX)
        self._tasks = Tasks()

    def take(
        self, caller: PublishCaller, topic: Topic, request: bytes, origin: PublishOrigin = PublishOrigin.CLIENT
    ) -> None:
        """Take a request to a topic with a schema or transforms, or to one of which something may wait. Raises
        `SyncpointError` when it is refused at once."""
        try:
            _, key = split.route_of(request)
        except Malformed:
            raise not_a("PublishRequest") from None
        if self._preparation.is_quick(topic, request) and (topic.incarnation, key) not in self.order:
            self._publish(caller, topic, self._preparation.at_once(topic, request), origin)
            return
        self._room.take(project_of(topic.name), len(request))
        place = self.order.enter(topic.incarnation, key) if key else None
        task = self._tasks.start(self._prepare(caller, topic, request, place, origin))
        task.add_done_callback(partial(self._ended, caller, topic, key, place, len(request)))

    async def _prepare(
        self, caller: PublishCaller, topic: Topic, request: bytes, place: BatchPlace | None, origin: PublishOrigin
    ) -> None:
        try:
            now, found = await self._prepared(topic, request, place)
            if found.request is None:
                caller.reply(found.response(b""))
            else:
                if any(found.dropped):  # some messages were; the answer names all
                    publisher = caller
                    caller = FunctionCaller(lambda response: publisher.reply(found.response(response)), publisher.fail)
                self._publish(caller, now, found.request, origin)
        except SyncpointError as error:
            caller.fail(error)
        except Exception:
            log.exception("a publish could not be prepared")
            caller.fail(Internal("Internal error."))

    async def _prepared(
        self, topic: Topic, request: bytes, place: BatchPlace | None
    ) -> tuple[Topic, TransformedRequest]:
        """What is to be stored by the settings of now. Whoever stores it before waiting for anything keeps the order:
        later ones wait until it is answered."""
        while True:
            found = await self._preparation.prepared(topic, request)
            if place is not None:
                await place.wait()
            now = self._topic_of(request)
            if (now.incarnation, now.stamp) == (topic.incarnation, topic.stamp):
                return now, found
            topic = now

    def _ended(
        self,
        caller: PublishCaller,
        topic: Topic,
        key: bytes,
        place: BatchPlace | None,
        size: int,
        task: asyncio.Task[None],
    ) -> None:
        self._room.give_back(project_of(topic.name), size)
        if place is not None:
            self.order.release(topic.incarnation, key, place)
        if task.cancelled():
            caller.fail(Unavailable("The server is stopping; the messages are not stored."))

    async def stop(self) -> None:
        """Turn away what waits."""
        await self._tasks.stop()

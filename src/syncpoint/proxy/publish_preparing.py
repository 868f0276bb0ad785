"""Makes a publish request one for its topic as it is known now: transformed, checked against a schema, sealed.

Place: in front of the first attempt of `publisher`, and again where a forwarder knows another topic or other settings.
Promise: nothing is refused for what it is before our copy of the catalog has caught up with what other proxies
committed. What is being transformed takes half of the proxy's window at most, and a project a share of that.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from syncpoint.metadata.catalog import Catalog
from syncpoint.model.errors import InvalidArgument, NotFound, Unavailable
from syncpoint.model.names import parse_topic, project_of
from syncpoint.proxy import rate_limits
from syncpoint.proxy.publish_attempt import PublishAttempt, outcome_unknown
from syncpoint.proxy.sealing import Sealer
from syncpoint.publish.message_preparation import MessagePreparation
from syncpoint.publish.project_room import ProjectRoom
from syncpoint.runtime.child_processes import Apart
from syncpoint.schemas.publishing import SchemaGate
from syncpoint.transforms.publish_requests import PublishTransforms

TRANSFORMED_BYTES_MAX: Final = rate_limits.WINDOW_BYTES // 2  # at a time; the rest of the window is for all others
Refresh = Callable[[], Awaitable[None]]


class PublishPreparation:
    """`refresh`: let the catalog catch up."""

    def __init__(
        self, catalog: Catalog, refresh: Refresh, sealer: Sealer | None, apart: Apart, transforms: PublishTransforms
    ) -> None:
        self._catalog = catalog
        self._refresh = refresh
        self._sealer = sealer
        self._room = ProjectRoom(TRANSFORMED_BYTES_MAX)
        self._messages = MessagePreparation(SchemaGate(catalog, apart), transforms)

    async def prepare(self, batch: PublishAttempt) -> bool:
        """Make the request one for the topic as it is known now: changed by its transforms, checked against its schema,
        if it has any, and sealed. False: the transforms have dropped all of it.
        """
        request, batch.schema = batch.plain, 0
        if not batch.sealed and batch.topic.stamp:
            checked = await self._checked(batch)
            if checked is None:
                return False
            request, batch.schema = checked, batch.topic.stamp
        if self._sealer is not None and not batch.sealed:
            batch.request = await self._sealer.seal(batch.topic.incarnation, request)
        elif self._sealer is not None:
            await self._sealer.lend(batch.topic.incarnation, batch.request)
        else:
            batch.request = request
        return True

    async def _checked(self, batch: PublishAttempt) -> bytes | None:
        """The messages as the topic stores them, None where it drops all. What they do not fit here they may fit by
        what another proxy has committed: nothing is refused before our copy has caught up.
        """
        try:
            return await self._as_stored(batch)
        except (InvalidArgument, NotFound):
            await self._refresh()
            found = self._catalog.topic_by_incarnation(batch.topic.incarnation)
            if found is None:
                raise NotFound(parse_topic(batch.topic.name)) from None
            batch.topic = found
            return await self._as_stored(batch)

    async def _as_stored(self, batch: PublishAttempt) -> bytes | None:
        """The messages changed by the transforms of the topic, and marked with what they fit."""
        topic, batch.transformed = batch.topic, None
        if not topic.transforms:
            return (await self._messages.prepared(topic, batch.plain)).request
        project, size = project_of(topic.name), len(batch.plain)
        self._room.take(project, size)
        try:
            batch.transformed = await self._messages.prepared(topic, batch.plain)
        finally:
            self._room.give_back(project, size)
        return batch.transformed.request

    async def renew(self, batch: PublishAttempt) -> bool:
        """The forwarder knows another topic by this name, or other settings of it. If those are the newer ones, the
        batch is meant for them now; otherwise False."""
        await self._refresh()
        found = self._catalog.topic(batch.topic.name)
        if found is None:
            raise NotFound(parse_topic(batch.topic.name))
        known, batch.topic = batch.topic, found
        if found.incarnation == known.incarnation and found.stamp == known.stamp:
            return False
        batch.tried.clear()
        if batch.unknown and (batch.transformed is not None or found.transforms):
            # What may be stored of it is not what would be sent now, and its ids are not those of these messages.
            raise outcome_unknown(f"they were sent before, and the transforms of {found.name} have changed")
        try:
            if not await self.prepare(batch):
                raise Unavailable(f"The transforms of {found.name} have changed. Try again.")
        except (InvalidArgument, NotFound) as error:
            if batch.unknown:
                raise outcome_unknown(f"they were sent before, and now: {error.message}") from None
            raise
        return True

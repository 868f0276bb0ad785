"""Makes a publish request one for its topic as it is known now: transformed, checked against a schema, sealed.

Place: in front of the first attempt of `publisher`, and again where a forwarder knows another topic or other settings.
Promise: nothing is refused before our copy of the catalog has caught up with what other proxies committed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from syncpoint.base.model.errors import InvalidArgument, NotFound, Unavailable
from syncpoint.base.model.names import parse_topic
from syncpoint.base.runtime.child_processes import Apart
from syncpoint.broker.publish.intake.message_preparation import MessagePreparation
from syncpoint.catalog.metadata.catalog import Catalog
from syncpoint.catalog.metadata.records import Topic
from syncpoint.catalog.schemas.publishing import SchemaGate
from syncpoint.catalog.transforms.publish_requests import PublishTransforms
from syncpoint.front.proxy.publish_attempt import PublishAttempt, outcome_unknown
from syncpoint.front.proxy.sealing import Sealer

Refresh = Callable[[], Awaitable[None]]


class PublishPreparation:
    """`refresh`: let the catalog catch up."""

    def __init__(
        self, catalog: Catalog, refresh: Refresh, sealer: Sealer | None, apart: Apart, transforms: PublishTransforms
    ) -> None:
        self._catalog = catalog
        self._refresh = refresh
        self._sealer = sealer
        self.schemas = SchemaGate(catalog, apart)
        self._messages = MessagePreparation(self.schemas, transforms)

    async def prepare(self, batch: PublishAttempt) -> bool:
        """Make the request one for the topic as it is known now: changed by its transforms, checked against its schema,
        if it has any, and sealed. False: the transforms have dropped all of it.
        """
        request, batch.schema = batch.plain, 0
        if not batch.origin.accepted and batch.topic.stamp:
            checked = await self._checked(batch)
            if checked is None:
                return False
            request, batch.schema = checked, batch.topic.stamp
        if self._sealer is not None and not batch.origin.accepted:
            batch.request = await self._sealer.seal(batch.topic.incarnation, request)
        elif self._sealer is not None:
            await self._sealer.lend(batch.topic.incarnation, batch.request)
        else:
            batch.request = request
        return True

    async def edited(self, topic: Topic, request: bytes) -> bytes:
        """A PublishRequest with data that an operator has changed, as it is stored: checked by the schema, and sealed.
        Transforms are not applied again. Raises `SyncpointError`.
        """
        marked = await self.schemas.marked_apart(topic, request)
        return marked if self._sealer is None else await self._sealer.seal(topic.incarnation, marked)

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
        found = await self._messages.prepared(topic, batch.plain)
        if topic.transforms:
            batch.transformed = found
        return found.request

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
            raise outcome_unknown(
                f"an earlier attempt may have stored them, and the transforms of {found.name} have changed"
            )
        try:
            if not await self.prepare(batch):
                raise Unavailable(f"The transforms of {found.name} changed while messages were transformed. Try again.")
        except (InvalidArgument, NotFound) as error:
            if batch.unknown:
                raise outcome_unknown(f"an earlier attempt may have stored them, and now: {error.message}") from None
            raise
        return True

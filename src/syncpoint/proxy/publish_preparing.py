"""Makes a publish request one for its topic as it is known now: checked against a schema, sealed.

Place: in front of the first attempt of `publisher`, and again where a forwarder knows another topic or other settings.
Promise: nothing is refused before our copy of the catalog has caught up with what other proxies committed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from syncpoint.metadata.catalog import Catalog
from syncpoint.model.errors import InvalidArgument, NotFound
from syncpoint.model.names import parse_topic
from syncpoint.proxy.publish_attempt import PublishAttempt, outcome_unknown
from syncpoint.proxy.sealing import Sealer
from syncpoint.runtime.child_processes import Apart
from syncpoint.schemas.publishing import SchemaGate, stamp

Refresh = Callable[[], Awaitable[None]]


class PublishPreparation:
    """`refresh`: let the catalog catch up."""

    def __init__(self, catalog: Catalog, refresh: Refresh, sealer: Sealer | None, apart: Apart) -> None:
        self._catalog = catalog
        self._refresh = refresh
        self._sealer = sealer
        self.schemas = SchemaGate(catalog, apart)

    def takes_time(self, batch: PublishAttempt) -> bool:
        """Whether others of the same key may overtake a batch while it is prepared."""
        return batch.topic.schema is not None or self._sealer is not None

    async def prepare(self, batch: PublishAttempt) -> None:
        """Make the request one for the topic as it is known now: checked against its schema, if it has one, sealed."""
        request = batch.plain
        if batch.topic.schema is not None and not batch.sealed:
            request = await self._checked(batch)
        batch.schema = 0 if batch.sealed else stamp(batch.topic.schema)
        if self._sealer is not None and not batch.sealed:
            batch.request = await self._sealer.seal(batch.topic.incarnation, request)
        elif self._sealer is not None:
            await self._sealer.lend(batch.topic.incarnation, batch.request)
        else:
            batch.request = request

    async def _checked(self, batch: PublishAttempt) -> bytes:
        """The messages marked with what they fit. What they do not fit here they may fit by what another proxy has
        committed: nothing is refused before our copy has caught up."""
        try:
            return await self.schemas.marked_apart(batch.topic, batch.plain)
        except (InvalidArgument, NotFound):
            await self._refresh()
            found = self._catalog.topic_by_incarnation(batch.topic.incarnation)
            if found is None:
                raise NotFound(parse_topic(batch.topic.name)) from None
            batch.topic = found
            return await self.schemas.marked_apart(found, batch.plain)

    async def renew(self, batch: PublishAttempt) -> bool:
        """The forwarder knows another topic by this name, or other schema settings of it. If those are the newer ones,
        the batch is meant for them now; otherwise False."""
        await self._refresh()
        found = self._catalog.topic(batch.topic.name)
        if found is None:
            raise NotFound(parse_topic(batch.topic.name))
        known, batch.topic = batch.topic, found
        if found.incarnation == known.incarnation and found.schema == known.schema:
            return False
        batch.tried.clear()
        try:
            await self.prepare(batch)
        except (InvalidArgument, NotFound) as error:
            if batch.unknown:
                raise outcome_unknown(f"they were sent before, and now: {error.message}") from None
            raise
        return True

"""Cursors in a cluster: known by name to the catalog, kept by every chain of the topic for its own sources.

Place: beside `pipeline_reading`, which moves them with the positions it asks for.
Promise: a cursor's name is in the catalog before any chain has it, so a chain that begins with the topic later has it
from its first message on. Deleting takes the name first. Each chain forgets a cursor nobody uses by itself; when all
chains of the topic have, its name goes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

from syncpoint.base.model.errors import (
    Code,
    Conflict,
    NotFound,
    ResourceExhausted,
    SyncpointError,
    Unavailable,
)
from syncpoint.base.model.names import parse_project
from syncpoint.base.runtime.periodic import Periodic, about
from syncpoint.base.runtime.random import Random
from syncpoint.broker.pipeline.cursor_names import cursors_of, put, topics_with_cursors
from syncpoint.broker.pipeline.cursors import CURSORS_MAX, CursorLimits, check_name
from syncpoint.catalog.metadata.catalog import Catalog
from syncpoint.catalog.metadata.records import CatalogChange, Topic
from syncpoint.catalog.metadata.store_client import SharedStore, answered
from syncpoint.cluster.control.registration import registered_chains
from syncpoint.front.proxy.pipeline_chains import DEADLINE_S, ChainCalls
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import pipeline

READER = methods.LOG_READER
CONFLICTS_MAX = 20
CLEAN_S = 3600.0
Commit = Callable[[Sequence[CatalogChange]], Awaitable[object]]

log = logging.getLogger(__name__)


class ClusterCursors:
    """`commit`: changes of the catalog, checked against the copy here as it is at the moment of the call."""

    def __init__(self, catalog: Catalog, store: SharedStore, chains: ChainCalls, commit: Commit) -> None:
        self.catalog, self.chains = catalog, chains
        self._store, self._commit = store, commit

    async def enter(self, topic: Topic, wanted: Any) -> None:
        """Return once a cursor, as a request names it, is in the catalog with its limits. Raises `SyncpointError`."""
        limits = CursorLimits(wanted.retention_seconds, wanted.retention_bytes, wanted.expiration_seconds)
        limits.check()
        check_name(wanted.name)

        def entered(known: dict[str, CursorLimits]) -> dict[str, CursorLimits]:
            if wanted.name not in known and len(known) >= CURSORS_MAX:
                raise ResourceExhausted(
                    f"The topic already has {CURSORS_MAX} cursors, the maximum. Delete unused ones first."
                )
            return {**known, wanted.name: limits}

        await self._change(topic.incarnation, entered)

    async def listed(self, topic: Topic, deadline: float) -> list[Any]:
        """A topic's cursors, by name: what all its chains say, as one."""
        request = pipeline.ListCursorsRequest(topic=topic.name).SerializeToString()
        found: dict[str, Any] = {
            name: pipeline.Cursor(
                topic=topic.name,
                name=name,
                retention_seconds=limits.retention_s,
                retention_bytes=limits.retention_bytes,
                expiration_seconds=limits.expiration_s,
            )
            for name, limits in cursors_of(self.catalog, topic.incarnation).items()
        }
        for number in await self._chains(topic.incarnation):
            answer = await self.chains.call(number, READER.ListCursors, request, deadline)
            for one in pipeline.ListCursorsResponse.FromString(answer).cursors:
                if one.name in found:
                    _join(found[one.name], one, number)
        return [found[name] for name in sorted(found)]

    def topics(self, project: str) -> list[Topic]:
        """Topics of a project that have cursors, by name."""
        prefix = parse_project(project) + "/"
        known = (self.catalog.topic_by_incarnation(one) for one in topics_with_cursors(self.catalog))
        return sorted((one for one in known if one and one.name.startswith(prefix)), key=lambda one: one.name)

    async def delete(self, topic: Topic, name: str, deadline: float) -> None:
        """Forget a cursor everywhere. Raises `NotFound`, `Unavailable`."""
        there = name in cursors_of(self.catalog, topic.incarnation)
        await self._change(topic.incarnation, lambda known: {one: known[one] for one in known if one != name})
        request = pipeline.DeleteCursorRequest(topic=topic.name, name=name).SerializeToString()
        for number in await self._chains(topic.incarnation):
            try:
                await self.chains.call(number, READER.DeleteCursor, request, deadline)
                there = True
            except SyncpointError as error:
                if error.code is not Code.NOT_FOUND:
                    raise
        if not there:
            raise NotFound(name, f"The topic has no cursor {name!r}. Call ListCursors for those it has.")

    async def clean(self) -> None:
        """Take out the names that no chain knows any more, and those of deleted topics. Raises `SyncpointError`."""
        for incarnation in topics_with_cursors(self.catalog):
            topic = self.catalog.topic_by_incarnation(incarnation)
            if topic is None:
                await self._change(incarnation, lambda known: {})
                continue
            request = pipeline.ListCursorsRequest(topic=topic.name).SerializeToString()
            before = cursors_of(self.catalog, incarnation)
            numbers, living = await self._chains(incarnation), set[str]()
            for number in numbers:
                end = asyncio.get_running_loop().time() + DEADLINE_S
                answer = await self.chains.call(number, READER.ListCursors, request, end)
                living |= {one.name for one in pipeline.ListCursorsResponse.FromString(answer).cursors}
            gone = {name for name in before if name not in living}
            if numbers and gone:  # without any chain nobody could have forgotten one
                log.info("%d cursors of %s, that nobody has used for long, are gone", len(gone), topic.name)
                await self._change(incarnation, _without(gone))

    async def _chains(self, topic: int) -> list[int]:
        return await answered(registered_chains(self._store, topic))

    async def _change(self, topic: int, changed: Callable[[dict[str, CursorLimits]], dict[str, CursorLimits]]) -> None:
        for _ in range(CONFLICTS_MAX):
            known = cursors_of(self.catalog, topic)
            wanted = changed(known)
            if wanted == known:
                return
            try:
                await self._commit([put(topic, wanted)])
                return
            except Conflict:
                continue  # the catalog has caught up
        raise Unavailable("Other callers kept changing the catalog while this call ran. Try again.")


class CursorCleaner(Periodic):
    """Takes out names of cursors nobody has any more, now and then. `mine()`: whether it is this process's turn."""

    def __init__(self, cursors: ClusterCursors, mine: Callable[[], bool], random: Random) -> None:
        self._cursors, self._mine = cursors, mine
        pauses, failed = about(CLEAN_S, random), "names of cursors are not looked through yet"
        super().__init__(self._clean, pauses, (SyncpointError,), failed)

    async def _clean(self) -> None:
        if self._mine():
            await self._cursors.clean()


def _without(gone: Iterable[str]) -> Callable[[dict[str, CursorLimits]], dict[str, CursorLimits]]:
    names = set(gone)
    return lambda known: {name: limits for name, limits in known.items() if name not in names}


def _join(whole: Any, part: Any, chain: int) -> None:
    """Add what one chain reports of a cursor to what is known of it."""
    for ranges, more in ((whole.ranges, part.ranges), (whole.lost, part.lost)):
        for one in more:
            one.chain = chain
        ranges.extend(more)
    if (part.used.seconds, part.used.nanos) > (whole.used.seconds, whole.used.nanos):
        whole.used.CopyFrom(part.used)
    whole.lag_messages += part.lag_messages
    whole.lag_bytes += part.lag_bytes

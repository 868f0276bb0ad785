"""AckExchange in a cluster: asked of every chain of a topic, or of the chain where a link is at home.

Place: beside `pipeline_reading`; each chain answers for its own sources (`pipeline.ack_exchange`).
Promise: what is reported is complete, or the call fails: every chain that was registered for the topic when the call
began has answered, all of one generation of seeks. The copies of a link are all in its home chain.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from syncpoint.base.model.errors import NotFound, Unavailable
from syncpoint.base.model.names import parse_subscription
from syncpoint.base.runtime.tasks import all_of
from syncpoint.broker.pipeline.homes import Homes, link_key
from syncpoint.broker.pipeline.reading_positions import subscription_named
from syncpoint.catalog.metadata.catalog import Catalog
from syncpoint.catalog.metadata.home_sites import fill_home, home_of
from syncpoint.catalog.metadata.records import Subscription
from syncpoint.catalog.metadata.store_client import SharedStore, answered
from syncpoint.cluster.control.registration import registered_chains
from syncpoint.front.proxy.pipeline_chains import ChainCalls, deadline_of
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import pipeline
from syncpoint.wire.protobuf.methods import Method
from syncpoint.wire.protobuf.serving import parsed
from syncpoint.wire.transport.calls import Call, Methods
from syncpoint.wire.transport.tasks import unary_async

EXCHANGE = methods.ACK_EXCHANGE
AGREE_TRIES = 5
AGREE_PAUSE_S = 0.1


class ClusterAcks:
    """The service, but for what is done by the control plane."""

    def __init__(
        self,
        catalog: Catalog,
        store: SharedStore,
        chains: ChainCalls,
        homes: Homes,
        refresh: Callable[[], Awaitable[None]],
    ) -> None:
        self.catalog, self.chains, self.homes = catalog, chains, homes
        self._store, self._refresh = store, refresh

    def methods(self) -> Methods:
        """The method table of this service."""
        unary = {EXCHANGE.AckChanges: self._ack_changes, EXCHANGE.MergeAcks: self._merge_acks}
        return {path.encode(): unary_async(function) for path, function in unary.items()}

    async def _ack_changes(self, call: Call, request: bytes) -> bytes:
        asked = parsed(pipeline.AckChangesRequest, request)
        record, deadline = await self._record(asked.subscription), deadline_of(call)
        if asked.homes_only:  # also of a topic that nothing was published to
            await self._refresh()
            answer = pipeline.AckChangesResponse()
            fill_home(answer, home_of(self.catalog, record.incarnation))
            found: bytes = answer.SerializeToString()
            return found
        if asked.link:
            return await self.chains.call(await self._home(asked.link), EXCHANGE.AckChanges, request, deadline)
        for left in reversed(range(AGREE_TRIES)):
            answers = await self._ask(record, EXCHANGE.AckChanges, request, deadline)
            if len({(one.generation, one.stamped_generation) for one in answers}) == 1:
                joined: pipeline.AckChangesResponse = answers[0]
                for one in answers[1:]:
                    joined.sources.extend(one.sources)
                    joined.held.extend(one.held)
                    _join_snapshots(joined, one)
                    joined.more |= one.more
                encoded: bytes = joined.SerializeToString()
                return encoded
            if left:
                await asyncio.sleep(AGREE_PAUSE_S)
        raise Unavailable(f"The subscription {asked.subscription} is being reset by a seek. Try again.")

    async def _merge_acks(self, call: Call, request: bytes) -> bytes:
        asked = parsed(pipeline.MergeAcksRequest, request)
        record, deadline = await self._record(asked.subscription), deadline_of(call)
        if asked.link:
            return await self.chains.call(await self._home(asked.link), EXCHANGE.MergeAcks, request, deadline)
        answers = await self._ask(record, EXCHANGE.MergeAcks, request, deadline)
        answer = pipeline.MergeAcksResponse(
            newly=sum(one.newly for one in answers),
            refused=sum(one.refused for one in answers),
            lacking=sum(one.lacking for one in answers),
        )
        encoded: bytes = answer.SerializeToString()
        return encoded

    async def _ask(self, record: Subscription, method: Method, request: bytes, deadline: float) -> list[Any]:
        """What every chain of the topic answers; all of them, or an error."""
        numbers = await answered(registered_chains(self._store, record.topic_incarnation))
        if not numbers:
            raise Unavailable(f"Nothing was published to {record.topic_name} yet. Try again.")
        found = await all_of([self.chains.call(one, method, request, deadline) for one in numbers])
        return [method.response.FromString(one) for one in found]

    async def _record(self, name: str) -> Subscription:
        if self.catalog.subscription(parse_subscription(name)) is None:
            await self._refresh()
        return subscription_named(self.catalog, name)

    async def _home(self, link: str) -> int:
        chain = await self.homes.chain_at(link_key(link))
        if chain is None:
            raise NotFound(link, f"{link} has copied nothing yet: Link not found (resource={link}).")
        return chain


def _join_snapshots(joined: pipeline.AckChangesResponse, other: pipeline.AckChangesResponse) -> None:
    """Chains that know different states of the catalog list all that one of them knows."""
    if joined.snapshots_at != other.snapshots_at:
        joined.snapshots_at = 0
    known = {one.snapshot for one in joined.snapshots}
    joined.snapshots.extend(one for one in other.snapshots if one.snapshot not in known)

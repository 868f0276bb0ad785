"""Asking every chain of a topic: have you taken this change over, and how old is what is left.

Place: under the control plane's changes that must not return before the data plane acts by them (protocol rule 16).
Promise: `confirm` returns only when every chain that was registered for the topic, at a moment after the change was
committed, has persisted what follows from it. Chains registered later know the change from their first message on.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from syncpoint.base.model.cluster import ChainOwner
from syncpoint.base.model.errors import SyncpointError, Unavailable
from syncpoint.base.runtime.tasks import all_of, stop
from syncpoint.broker.router.assignment import TopicAssignment
from syncpoint.catalog.metadata.entity_options import stopped_lanes
from syncpoint.catalog.metadata.layout import ASSIGNED_TOPICS
from syncpoint.catalog.metadata.records import Subscription
from syncpoint.catalog.metadata.store_client import answered
from syncpoint.catalog.metadata.view import ClusterView
from syncpoint.cluster.control.cluster_queries import ClusterQueries
from syncpoint.cluster.control.peer_channels import PeerChannels
from syncpoint.cluster.control.registration import registered_chains
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import internal

AskOwner = Callable[[int, str, bytes], Awaitable[bytes]]
"""(chain, method, request): the answer of a chain's owner."""
DEADLINE_S = 3.0
_PAUSE_S = 0.1


class Barrier:
    """Questions to all chains of a topic."""

    def __init__(self, view: ClusterView, peers: PeerChannels, *, deadline_s: float = DEADLINE_S) -> None:
        self._view, self._peers, self._deadline_s = view, peers, deadline_s
        self._queries = ClusterQueries(view, peers, deadline_s=deadline_s)

    async def confirm(self, topic: int, revision: int) -> None:
        """Return when every chain of the topic has persisted the state of the catalog at `revision`.

        Raises `Unavailable` when one has not within the deadline.
        """
        chains = await self._chains(topic)
        await all_of([self._confirm_one(chain, topic, revision) for chain in chains])

    async def confirm_leases(self, subscription: int, revision: int) -> None:
        """Return when every subscribe forwarder leases messages by the catalog at `revision`.

        Raises `Unavailable` when one has not within the deadline.
        """
        end = self._now() + self._deadline_s
        while True:
            _, silent = await self._queries.deliveries(subscription, revision)
            if not silent:
                return
            if self._now() + _PAUSE_S >= end:
                raise Unavailable(
                    f"The change is stored, but not all processes act by it yet: {'; '.join(silent)}. Try again."
                )
            await asyncio.sleep(_PAUSE_S)

    async def sealed(self, topic: int, epoch: int, chain: int) -> None:
        """Return when all other chains registered for a topic have sealed what they have of it from before `epoch` of
        its assignment, and will open nothing of that any more (protocol rule 18). For the chain that is to take keys.

        Raises `Unavailable`, also when the topic's epoch is another one by now. The epoch is read before the chains:
        one that registers later reads this epoch or a later one before it takes keys itself.
        """
        found = await answered(self._view.store.get(ASSIGNED_TOPICS.key(topic)))
        now = None if found is None else TopicAssignment.decode(found.value).epoch
        if now != epoch:
            raise Unavailable(f"The topic's keys are assigned in epoch {now}, not in {epoch}.")
        others = [one for one in await self._chains(topic) if one != chain]
        await all_of([self._confirm_one(one, topic, 0, assignment=epoch) for one in others])

    async def ids_of_others(self, topic: int, chain: int) -> AsyncIterator[tuple[bytes, bytes]]:
        """Ids and judged batches of a topic's messages that all other chains registered for it have, for the chain that
        is to take its keys; to be asked for once `sealed` has returned. Raises `Unavailable`.
        """
        for other in await self._chains(topic):
            if other != chain:
                async for found in ids_of_chain(self._asked, other, topic):
                    yield found

    async def _asked(self, chain: int, path: str, request: bytes) -> bytes:
        """The answer of a chain's owner."""
        end, reason = self._now() + self._deadline_s, "it has no owner"
        while (left_s := end - self._now()) > 0:
            owner = self._view.owner(chain)
            if owner is not None:
                try:
                    return await self._peers.call(owner.address, path, request, timeout_s=left_s)
                except SyncpointError as error:
                    reason = str(error)
            await asyncio.sleep(min(_PAUSE_S, max(0.0, end - self._now())))
        raise Unavailable(f"Chain {chain} did not answer in time ({reason}). Try again.")

    async def drained(self, record: Subscription, revision: int) -> set[int]:
        """Stopped lanes of a subscription, as the catalog is at `revision`, of which no chain of the topic keeps
        anything. A chain that does not answer may keep some: raises `Unavailable`.
        """
        topic, drained = record.topic_incarnation, set(stopped_lanes(record.options))
        chains = await self._chains(topic)
        asked = [self._confirm_one(one, topic, revision, subscription=record.incarnation) for one in chains]
        for answer in await all_of(asked):
            drained.intersection_update(answer.drained)
        return drained

    async def oldest_age_s(self, subscription: int, topic: int) -> float:
        """Return the age of the oldest unacknowledged message in seconds, 0 if there is none.

        Raises `Unavailable` if an owner does not answer in time.
        """
        found, unknown = await self._queries.chains(topic, subscription)
        if unknown:
            raise Unavailable(f"{'; '.join(unknown)}. Try again.")
        return max((one.oldest_age_s for one in found), default=0.0)

    async def _chains(self, topic: int) -> list[int]:
        return await answered(registered_chains(self._view.store, topic))

    async def _confirm_one(
        self, chain: int, topic: int, revision: int, *, assignment: int = 0, subscription: int = 0
    ) -> internal.ConfirmResponse:
        end = self._now() + self._deadline_s
        reason = "it has no owner"
        asked = internal.ConfirmRequest(
            chain=chain, topic=topic, revision=revision, assignment=assignment, subscription=subscription
        )
        request = asked.SerializeToString()
        while (left_s := end - self._now()) > 0:
            owner = self._view.owner(chain)
            if owner is not None:
                call = self._peers.call(owner.address, methods.CHAINS.Confirm, request, timeout_s=left_s)
                try:
                    answer = await self._while_owner(chain, owner, call)
                    found = None if answer is None else internal.ConfirmResponse.FromString(answer)
                    if found is not None and found.revision >= revision:
                        return found
                    reason = "its owner is changing"
                except SyncpointError as error:
                    reason = str(error)
            await asyncio.sleep(min(_PAUSE_S, max(0.0, end - self._now())))
        raise Unavailable(f"Chain {chain} did not confirm the change in time ({reason}). Try again.")

    async def _while_owner(self, chain: int, owner: ChainOwner, call: Any) -> bytes | None:
        """The answer of a call; None when the chain has another owner before it comes."""
        changed = asyncio.get_running_loop().create_future()

        def look(keys: set[str]) -> None:
            if str(chain) in keys and self._view.owner(chain) != owner and not changed.done():
                changed.set_result(None)

        task = asyncio.ensure_future(call)
        self._view.owners.listeners.append(look)
        try:
            await asyncio.wait((task, changed), return_when=asyncio.FIRST_COMPLETED)
            answer: bytes | None = task.result() if task.done() else None
            return answer
        finally:
            self._view.owners.listeners.remove(look)
            await stop([task])

    def _now(self) -> float:
        return asyncio.get_running_loop().time()


async def ids_of_chain(ask: AskOwner, chain: int, topic: int) -> AsyncIterator[tuple[bytes, bytes]]:
    """Ids and judged batches of a topic's messages that a chain has, page by page."""
    for kind in ({}, {"forwarded": True}, {"batches": True}):
        asked = internal.ListMessageIdsRequest(chain=chain, topic=topic, **kind)
        while True:
            answer = await ask(chain, methods.CHAINS.ListMessageIds, asked.SerializeToString())
            found = internal.ListMessageIdsResponse.FromString(answer)
            if not (found.batches if asked.batches else found.ids):
                break
            yield found.ids, found.batches
            asked.begin = found.next

"""Orphans: messages of topics that were lost with the metadata, and what an operator does with them.

Place: used by `syncpoint cluster orphans`; over the metadata and the publish forwarders, which say what is on the
disks. `metadata.restored_topics` decides what is lost, `publish.retention` keeps it.
Promise: an orphan is listed until somebody has decided, and who decided what is in the catalog for good. An adopted
topic has a subscription that begins at its first message, from the revision on at which it is known: none of its
messages is without a reader for a moment. Its retention is the longest there is, so that nothing has run out that any
subscription or topic could still have had.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from syncpoint.base.model.cluster import PUBLISH
from syncpoint.base.model.errors import Aborted, AlreadyExists, NotFound, SyncpointError
from syncpoint.base.model.limits import SUBSCRIPTION_RETENTION_SECONDS_MAX
from syncpoint.base.runtime.clock import Clock
from syncpoint.broker.router.assignment import TopicAssignment
from syncpoint.catalog.metadata.catalog_replica import CatalogConflict, SharedCatalog
from syncpoint.catalog.metadata.contract import Put, absent
from syncpoint.catalog.metadata.layout import ASSIGNED_TOPICS
from syncpoint.catalog.metadata.records import CatalogChange, Subscription, Topic
from syncpoint.catalog.metadata.restored_topics import LostTopicDecision, lost_of
from syncpoint.catalog.metadata.store_client import SharedStore
from syncpoint.catalog.metadata.view import ClusterView
from syncpoint.cluster.control.barrier import Barrier
from syncpoint.cluster.control.peer_channels import PeerChannels
from syncpoint.front.api.subscriptions import new_subscription
from syncpoint.front.api.topics import new_topic
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import internal, pubsub

ASK_S = 5.0
_EPOCHS_ON = 1 << 16  # an adopted topic's keys are assigned anew, above all that its sources know
_ATTEMPTS = 20
_FIRST_REVISION = 1  # a subscription created then has all that was ever published


class Orphan(NamedTuple):
    """What the chains that are open hold of one lost topic. `epoch`: the highest of its keys' assignments there."""

    topic: int
    chains: tuple[int, ...]
    sources: int
    messages: int
    epoch: int


class Found(NamedTuple):
    """`unheard`: chains that nobody has reported: they are open nowhere, or their owner did not answer."""

    orphans: list[Orphan]
    decisions: list[LostTopicDecision]
    unheard: list[int]


class Who(NamedTuple):
    """Who decides."""

    user: str
    host: str


class Orphans:
    """`start` first, `close` at the end; the store and the peers are the caller's."""

    def __init__(self, store: SharedStore, peers: PeerChannels, clock: Clock) -> None:
        self._store, self._peers, self._clock = store, peers, clock
        self._view, self._shared = ClusterView(store), SharedCatalog(store)

    async def start(self) -> None:
        """Read the metadata. Raises the store's errors."""
        await self._view.start()
        await self._shared.start()

    async def close(self) -> None:
        """Let go of what was read."""
        await self._shared.close()
        await self._view.close()

    async def found(self) -> Found:
        """Ask every publish forwarder."""
        addresses = [member.address for member in self._view.with_role(PUBLISH)]
        answers = await asyncio.gather(*(self._chains_at(address) for address in addresses))
        reports = {chain["chain"]: chain for chains in answers for chain in chains}
        unheard = sorted({int(number) for number in self._view.chains.items} - reports.keys())
        by_topic: dict[int, list[tuple[int, Any]]] = {}
        for number, chain in sorted(reports.items()):
            for one in chain.get("orphans", ()):
                by_topic.setdefault(one["topic"], []).append((number, one))
        orphans = [
            Orphan(
                topic,
                tuple(number for number, _ in parts),
                sum(one["sources"] for _, one in parts),
                sum(one["messages"] for _, one in parts),
                max(one["epoch"] for _, one in parts),
            )
            for topic, parts in sorted(by_topic.items())
        ]
        return Found(orphans, list(lost_of(self._shared.catalog).decisions.values()), unheard)

    async def adopt(self, number: int, topic: str, subscription: str, who: Who, *, ordered: bool = False) -> bool:
        """Make it a topic again, under this name, with a subscription to all that is stored of it.

        Returns whether all chains that hold something of it have said that they know; if not, they will. Raises
        `NotFound` for a number that is no orphan, `AlreadyExists`, `InvalidArgument`, `Aborted`, and the store's
        errors.
        """
        orphan = await self._orphan(number)
        await self._assign(orphan)
        for _ in range(_ATTEMPTS):
            catalog = self._shared.catalog
            if catalog.topic(topic) is not None:
                raise AlreadyExists(topic)
            if catalog.subscription(subscription) is not None:
                raise AlreadyExists(subscription)
            made = replace(new_topic(pubsub.Topic(name=topic), self._clock.time_ns()), incarnation=number)
            reader = self._reader(made, subscription, ordered)
            revision = await self._commit(
                [CatalogChange.put(made), CatalogChange.put(reader), self._decided(orphan, "adopted", topic, who)]
            )
            if revision is not None:
                await self._assign(orphan)  # until it was known, routers were free to take the assignment away
                return await self._confirmed(number, revision)
        raise Aborted("Other callers kept changing the catalog while this request ran. Try again.")

    async def delete(self, number: int, who: Who) -> Orphan:
        """Give it up: its messages are deleted as those of a deleted topic are. Raises as `adopt` does."""
        orphan = await self._orphan(number)
        for _ in range(_ATTEMPTS):
            if await self._commit([self._decided(orphan, "deleted", "", who)]) is not None:
                return orphan
        raise Aborted("Other callers kept changing the catalog while this request ran. Try again.")

    # -- inside ------------------------------------------------------------------------------------------------------

    async def _orphan(self, number: int) -> Orphan:
        found = await self.found()
        for orphan in found.orphans:
            if orphan.topic == number:
                return orphan
        raise NotFound(str(number), f"No open chain holds messages of a lost topic with the number {number}.")

    async def _chains_at(self, address: str) -> list[Any]:
        try:
            answer = await self._peers.call(address, methods.PROCESS.GetStatus, b"", timeout_s=ASK_S)
        except SyncpointError:
            return []
        roles = json.loads(internal.StatusResponse.FromString(answer).json)["roles"]
        found: list[Any] = roles.get(PUBLISH, {}).get("chains", [])
        return found

    async def _assign(self, orphan: Orphan) -> None:
        """What is published to it from now on comes after what is there, for every key."""
        assignment = TopicAssignment(orphan.epoch + _EPOCHS_ON, orphan.chains[:1])
        key = ASSIGNED_TOPICS.key(orphan.topic)
        await self._store.txn([absent(key)], [Put(key, assignment.encode())])

    def _reader(self, topic: Topic, name: str, ordered: bool) -> Subscription:
        asked = pubsub.Subscription(name=name, topic=topic.name, enable_message_ordering=ordered)
        asked.message_retention_duration.FromSeconds(SUBSCRIPTION_RETENTION_SECONDS_MAX)
        asked.expiration_policy.SetInParent()  # it never expires
        record = new_subscription(asked, topic, self._clock.time_ns())
        return replace(record, incarnation=self._shared.next_incarnation(), created_revision=_FIRST_REVISION)

    def _decided(self, orphan: Orphan, what: str, name: str, who: Who) -> CatalogChange:
        decision = LostTopicDecision(
            orphan.topic, what, name, orphan.messages, who.user, who.host, self._clock.time_ns()
        )
        return CatalogChange.put(lost_of(self._shared.catalog).decided(decision).setting())

    async def _commit(self, changes: Sequence[CatalogChange]) -> int | None:
        """The revision; None when somebody else has changed the catalog first."""
        try:
            return (await self._shared.commit(changes))[-1].revision
        except CatalogConflict:
            return None

    async def _confirmed(self, topic: int, revision: int) -> bool:
        try:
            await Barrier(self._view, self._peers).confirm(topic, revision)
        except SyncpointError:
            return False
        return True

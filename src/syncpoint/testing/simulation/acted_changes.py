"""Changes of a topic and a subscription of a cluster, and a look at every chain after each that was answered OK.

Place: beside the other clients of `scenario`, with chance of its own. A client changes what must be so in every chain
before the answer, and asks again whenever it gets none, as official clients do.
What is judged: once an answer is OK, every chain that is registered for the topic acts by the change, wherever its
owner has it open.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from syncpoint.base.model.cluster import ChainOwner
from syncpoint.base.runtime.random import SeededRandom
from syncpoint.catalog.metadata.catalog import Catalog
from syncpoint.catalog.metadata.layout import OWNERS
from syncpoint.testing.simulation.api_clients import TOPIC
from syncpoint.testing.simulation.simulated_cluster import SimulatedCluster
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import admin, pubsub

CHANGED = "projects/p/subscriptions/plain"


@dataclass
class ActedChanges:
    """Change a topic and a subscription, and check every chain after each successful change."""

    sim: SimulatedCluster
    seed: int

    def __post_init__(self) -> None:
        self.random = SeededRandom(self.seed * 41 + 3)
        self.changes = 0

    async def live(self, is_living: Callable[[], bool]) -> None:
        """Change one thing after the other."""
        while is_living():
            await asyncio.sleep(self.random.random() * 0.8)
            self.changes += 1
            if self.random.random() < 0.5:
                await self._retain(self.changes % 2 == 1)
            else:
                await self._expire(3_600 + self.changes)

    async def _retain(self, retained: bool) -> None:
        asked = pubsub.UpdateSubscriptionRequest(
            subscription=pubsub.Subscription(name=CHANGED, retain_acked_messages=retained)
        )
        asked.update_mask.paths.append("retain_acked_messages")
        await self.sim.insist(methods.SUBSCRIBER.UpdateSubscription, asked)

        def acts(catalog: Catalog) -> bool:
            record = catalog.subscription(CHANGED)
            return record is not None and record.retain_acked is retained

        self._look(acts, f"retain_acked_messages is {retained}")

    async def _expire(self, seconds: int) -> None:
        asked = admin.UpdateTopicOptionsRequest(options={"topic": TOPIC})
        asked.options.default_ttl.seconds = seconds
        asked.update_mask.paths.append("default_ttl")
        await self.sim.insist(methods.ADMIN.UpdateTopicOptions, asked)

        def acts(catalog: Catalog) -> bool:
            record = catalog.topic(TOPIC)
            return record is not None and record.options.default_ttl_s == seconds

        self._look(acts, f"default_ttl is {seconds} s")

    def _look(self, acts: Callable[[Catalog], bool], what: str) -> None:
        sim = self.sim
        registered = sim.registered()
        sim.note(f"client: {what}")
        for name, chain in sim.owners():
            topic = chain.follower.catalog.topic(TOPIC)
            found = sim.store.get(OWNERS.key(chain.number))
            if topic is None or (topic.incarnation, chain.number) not in registered or found is None:
                continue
            if ChainOwner.decode(found.value).epoch != chain.epoch:
                continue  # it has been taken over, and writes nothing any more
            sim.coverage.sometimes("a chain is checked after a change")
            sim.coverage.always(
                "what is answered is in force in every chain",
                acts(chain.follower.catalog),
                f"{what}, and chain {chain.number} at {name} does not know",
            )

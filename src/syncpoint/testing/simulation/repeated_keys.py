"""Ids with ordering keys that are published again while their keys move between chains, back and forth, and the judge.

Place: beside the clients of `scheduled_runs`, in some lives with ordering keys. The topic drops duplicates for a
second, or some, less than a life.
What is judged: no two messages of an id are stored within the window, whichever chains took them; what one call
published is stored once, however late it was sent again; who publishes is answered with the id of a message that comes.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

from syncpoint.base.runtime.random import SeededRandom
from syncpoint.broker.publish.facts.message_ids import PUBLISHED
from syncpoint.catalog.metadata.entity_options import TopicOptions
from syncpoint.catalog.metadata.records import CatalogChange
from syncpoint.testing.simulation.clients import Clients
from syncpoint.testing.simulation.simulated_chains import SimulatedChains
from syncpoint.testing.simulation.topology import TOPIC
from syncpoint.wire.protobuf.messages import pubsub

LONG_S, SHORT_S = 3, 1  # the second is shorter than it takes until something is sent again
APART_S = 0.7  # clocks of two machines, at most
IDS = 4
SENDER = 1 << 33
CALL = "call"


class RepeatedKeys:
    """Publish ids with ordering keys again while their keys move between chains.

    `stored`: by id, when each message was published; `answered`: with what; `calls`: what is stored of each.
    """

    def __init__(self, sim: SimulatedChains, clients: Clients, seed: int) -> None:
        self.sim, self.clients, self.random = sim, clients, SeededRandom(seed * 37 + 4)
        self.stored: dict[str, dict[str, int]] = defaultdict(dict)
        self.answered: dict[str, set[str]] = defaultdict(set)
        self.calls: dict[str, set[str]] = defaultdict(set)
        self.window_s = SHORT_S if seed % 4 == 3 else LONG_S
        topic = sim.topic(TOPIC)
        sim.commit(CatalogChange.put(replace(topic, options=TopicOptions(duplicate_window_s=self.window_s))))

    def received(self, message: pubsub.PubsubMessage) -> None:
        """A message came to the client that receives all of them."""
        if PUBLISHED in message.attributes:
            self.stored[message.attributes[PUBLISHED]][message.message_id] = message.publish_time.ToNanoseconds()
            self.calls[message.attributes[CALL]].add(message.message_id)

    async def live(self, is_living: Callable[[], bool]) -> None:
        """Publish the same few ids. Where the window is short, some answers are lost for longer than that."""
        number, late = 0, list[asyncio.Task[None]]()
        while is_living():
            await asyncio.sleep(self.random.random() ** 2 * 0.8)
            number += 1
            which = self.random.randrange(0, IDS)
            name, key = f"id {which}", f"key {which % 2}"
            request = pubsub.PublishRequest(topic=TOPIC)
            attributes = {PUBLISHED: name, CALL: str(number)}
            request.messages.add(data=name.encode(), ordering_key=key, attributes=attributes)
            if self.window_s == SHORT_S and self.random.random() < 0.4:
                late.append(asyncio.ensure_future(self._publish(request, number, lost_s=SHORT_S + 1.5)))
            else:
                await self._publish(request, number)
        await asyncio.gather(*late)

    async def _publish(self, request: pubsub.PublishRequest, number: int, lost_s: float = 0.0) -> None:
        """`lost_s`: see `Clients._send`."""
        (message,) = request.messages
        name, key = message.attributes[PUBLISHED], message.ordering_key
        answer = await self.clients._send(TOPIC, request.SerializeToString(), key, SENDER, number, 20.0, lost_s=lost_s)
        if answer is not None:
            found = pubsub.PublishResponse.FromString(answer).message_ids
            self.answered[name].update(found)
            self.sim.note(f"{name} is published as {found[0]}")

    def lacks(self) -> list[str]:
        """What was answered and has not come."""
        return [
            f"{name} was answered with {one}, which never came"
            for name, found in self.answered.items()
            for one in sorted(found - self.stored[name].keys())
        ]

    def judged(self) -> list[str]:
        """All promises."""
        bad = [f"ids count for their time: {one}" for one in self.lacks()]
        bad += [
            f"calls are stored once: {one} is stored as {sorted(found)}"
            for one, found in self.calls.items()
            if len(found) > 1
        ]
        for name, found in self.stored.items():
            times = sorted(found.values())
            bad += [
                f"ids are stored once in their time: {name} is stored twice within {(later - one) / 1e9:.3f} s"
                for one, later in pairwise(times)
                if later - one < (self.window_s - APART_S) * 1_000_000_000
            ]
        return bad

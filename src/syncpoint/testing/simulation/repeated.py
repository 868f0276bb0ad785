"""A topic that drops duplicates in a cluster: clients that publish the same ids, and the judge of what is stored.

Place: beside the other clients of `scenario`, with chance of its own, so that a seed's other life stays as it is.
What is judged: of the messages of one id one is stored and arrives, whoever takes and adopts; all that publish it and
are answered get the id of that one. Where a wall clock is set ahead, by more than any window, windows end with that.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from syncpoint.model.errors import SyncpointError
from syncpoint.publish.message_ids import PUBLISHED
from syncpoint.runtime.random import SeededRandom
from syncpoint.testing.checkers import CheckResult
from syncpoint.testing.simulation.api_clients import ApiClients
from syncpoint.testing.simulation.forwarded import receive
from syncpoint.wire import methods
from syncpoint.wire.messages import admin, pubsub

UNIQUE = "projects/p/topics/unique"
READER = "unique"
WINDOW_S = 600  # longer than any life


@dataclass
class RepeatedIds:
    """See the module. `clocks_set`: wall clocks are set wrong in this life. `answered`, `arrived`: message ids by the
    id that they were published with."""

    sim: ApiClients
    seed: int
    clocks_set: bool
    answered: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    arrived: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))

    def __post_init__(self) -> None:
        self.random = SeededRandom(self.seed * 17 + 3)

    async def begin(self) -> None:
        """Create topic and subscription."""
        sim = self.sim
        await sim.create_topic(UNIQUE)
        asked = admin.UpdateTopicOptionsRequest(options={"topic": UNIQUE})
        asked.options.duplicate_detection_window.seconds = WINDOW_S
        asked.update_mask.paths.append("duplicate_detection_window")
        await sim.insist(methods.ADMIN.UpdateTopicOptions, asked)
        reader = pubsub.Subscription(name=f"projects/p/subscriptions/{READER}", topic=UNIQUE, ack_deadline_seconds=10)
        await sim.insist(methods.SUBSCRIBER.CreateSubscription, reader, "ALREADY_EXISTS")

    async def live(self, is_living: Callable[[], bool]) -> None:
        """Publish ids, most of them several times: at once, and again later."""
        number, work = 0, list[asyncio.Task[None]]()
        while is_living():
            number += 1
            earlier = 1 + self.random.randrange(0, number)
            for one in (number, *((number,) if self.random.random() < 0.5 else ()), earlier):
                work.append(asyncio.ensure_future(self._publish(f"id {one}")))
            await asyncio.sleep(self.random.random() ** 2 * 0.4)
        await asyncio.gather(*work)

    async def _publish(self, name: str) -> None:
        request = pubsub.PublishRequest(topic=UNIQUE)
        for one in (name, f"{name} too") if self.random.random() < 0.3 else (name,):
            request.messages.add(data=one.encode(), attributes={PUBLISHED: one})
        for again in range(100):
            await asyncio.sleep(self.random.random() ** 3 * 0.3)
            try:
                answer = await self.sim.call(methods.PUBLISHER.Publish, request)
            except SyncpointError as error:
                self.sim.note(f"{READER}: {name}: {error.code.name}")
                continue
            self.sim.coverage.sometimes("an id is published after a failure", again)
            ids = pubsub.PublishResponse.FromString(answer).message_ids
            for sent, message_id in zip(request.messages, ids, strict=True):
                self.answered[sent.attributes[PUBLISHED]].add(message_id)
            return

    async def consume(self) -> None:
        """Receive for ever what is stored."""
        await receive(self.sim, self.random, READER, self._received)

    def _received(self, message: Any) -> None:
        self.arrived[message.attributes[PUBLISHED]].add(message.message_id)
        self.sim.note(f"{READER}: {message.attributes[PUBLISHED]} as {message.message_id}")

    # -- what it came to ---------------------------------------------------------------------------------------------

    def judged(self) -> list[CheckResult]:
        """All promises."""
        bad = () if self.clocks_set else self._stored_again()
        return [self._lost(), CheckResult("ids are stored once", len(self.arrived), tuple(bad))]

    def _stored_again(self) -> list[str]:
        return [
            f"{name} is stored as {sorted(ids)}, and was answered with {sorted(self.answered[name])}"
            for name, ids in self.arrived.items()
            if len(ids) > 1 or self.answered[name] - ids
        ]

    def lacks(self) -> list[str]:
        """What draining waits for."""
        return list(self._lost().violations[:1])

    def _lost(self) -> CheckResult:
        lost = [f"{name} never arrived" for name in self.answered if not self.arrived[name]]
        return CheckResult("ids that were published arrive", len(self.answered), tuple(lost))

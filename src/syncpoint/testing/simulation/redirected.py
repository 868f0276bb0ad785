"""A subscription of a node that forwards, whose target changes while it works, and the judge of where messages arrive.

Place: beside the other clients of `consumer_runs`, with chance of its own. A client has it forward to one topic after
the other, and publishes as soon as each change is answered.
What is judged: each message arrives, and none at a topic that had been left when it was published.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from syncpoint.base.runtime.random import SeededRandom
from syncpoint.testing.rigs.checkers import CheckResult
from syncpoint.testing.simulation.api_clients import ApiClients
from syncpoint.testing.simulation.consumed import FULL
from syncpoint.testing.simulation.forwarded import receive
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import admin, pubsub

FROM = "projects/p/topics/redirecting"
NAME = "redirected"
TARGETS = tuple(f"projects/p/topics/target-{number}" for number in range(4))


@dataclass
class RedirectedForwards:
    """Change a forwarding subscription's target under load, and check where messages arrive.

    `since`: of each message, at which target it was forwarded when it was published; `arrived`: at which targets it is
    stored.
    """

    sim: ApiClients
    seed: int
    since: dict[str, int] = field(default_factory=dict)
    arrived: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))

    def __post_init__(self) -> None:
        self.random = SeededRandom(self.seed * 43 + 6)
        self.ordered = self.random.random() < 0.5

    async def begin(self) -> None:
        """Create all of it."""
        for topic in (FROM, *TARGETS):
            await self.sim.create_topic(topic)
        for name, topic in ((NAME, FROM), *((_arrivals(number), one) for number, one in enumerate(TARGETS))):
            asked = pubsub.Subscription(
                name=FULL + name, topic=topic, ack_deadline_seconds=10, enable_message_ordering=self.ordered
            )
            await self.sim.insist(methods.SUBSCRIBER.CreateSubscription, asked, "ALREADY_EXISTS")
        await self._redirect(0)

    async def _redirect(self, number: int) -> None:
        asked = admin.UpdateSubscriptionOptionsRequest(
            options={"subscription": FULL + NAME, "forward_to": TARGETS[number]}
        )
        asked.update_mask.paths.append("forward_to")
        await self.sim.insist(methods.ADMIN.UpdateSubscriptionOptions, asked)
        self.sim.coverage.sometimes("what forwards is redirected", number)
        self.sim.note(f"client: {NAME} forwards to {TARGETS[number]}")

    async def live(self, is_living: Callable[[], bool]) -> None:
        """Publish, redirect, publish."""
        for number in range(len(TARGETS)):
            if number:
                await self._redirect(number)
            for _ in range(2 + self.random.randrange(0, 3)):
                if not is_living():
                    return
                await self._publish(number)
                await asyncio.sleep(self.random.random() ** 3 * 0.5)

    async def _publish(self, target: int) -> None:
        name = f"redirected {len(self.since)}"
        self.since[name] = target
        request = pubsub.PublishRequest(topic=FROM)
        request.messages.add(data=name.encode(), ordering_key="k" if self.random.random() < 0.5 else "")
        await self.sim.insist(methods.PUBLISHER.Publish, request)

    async def consume(self) -> None:
        """Receive for ever what arrives."""
        await asyncio.gather(
            *(
                receive(self.sim, self.random, _arrivals(number), partial(self._came, number))
                for number in range(len(TARGETS))
            )
        )

    def _came(self, target: int, message: Any) -> None:
        self.arrived[message.data.decode()].add(target)
        self.sim.note(f"{NAME}: {message.data.decode()} at {TARGETS[target]}")

    # -- what it came to ---------------------------------------------------------------------------------------------

    def judged(self) -> list[CheckResult]:
        """All promises."""
        bad = [
            f"{name} arrived at target {min(self.arrived[name])}; when it was published, it was {target}"
            for name, target in self.since.items()
            if min(self.arrived[name], default=target) < target
        ]
        return [CheckResult("what is redirected arrives where it goes", len(self.since), tuple(bad)), self._lost()]

    def lacks(self) -> list[str]:
        """What draining waits for."""
        return list(self._lost().violations[:1])

    def _lost(self) -> CheckResult:
        bad = [f"{name} never arrived" for name in self.since if not self.arrived[name]]
        return CheckResult("what is redirected arrives", len(self.since), tuple(bad))


def _arrivals(number: int) -> str:
    return f"target-{number}"

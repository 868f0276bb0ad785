"""Topics that drop duplicates in a cluster: clients that publish the same ids, and the judge of what is stored.

Place: beside the other clients of `scenario`, with chance of its own, so that a seed's other life stays as it is.
What is judged: of the messages of one id one is stored and arrives, whoever takes and adopts; all that publish it and
are answered get the id of that one. Where a wall clock is set ahead, by more than any window, windows end with that.
In a topic whose window is shorter than what a proxy takes to send something again, each call is stored once, too.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from syncpoint.base.model.errors import SyncpointError
from syncpoint.base.runtime.random import SeededRandom
from syncpoint.broker.publish.facts.message_ids import PUBLISHED
from syncpoint.testing.rigs.checkers import CheckResult
from syncpoint.testing.simulation.api_clients import ApiClients
from syncpoint.testing.simulation.forwarded import receive
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import admin, pubsub

UNIQUE = "projects/p/topics/unique"
READER = "unique"
FLEETING = "projects/p/topics/fleeting"
FLEETING_READER = "fleeting"
WINDOW_S = 600  # longer than any life
FLEETING_S = 1  # shorter than most resends
CALL = "call"


@dataclass
class RepeatedIds:
    """Publish ids again to topics that drop duplicates in a cluster.

    `clocks_set`: wall clocks are set wrong in this life. `answered`, `arrived`: message ids by the id that they were
    published with.
    """

    sim: ApiClients
    seed: int
    clocks_set: bool
    answered: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    arrived: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    calls: dict[str, str | None] = field(default_factory=dict)  # of the other topic, with their answers
    stored: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))

    def __post_init__(self) -> None:
        self.random = SeededRandom(self.seed * 17 + 3)

    async def begin(self) -> None:
        """Create topics and subscriptions."""
        sim = self.sim
        for topic, reader, window_s in ((UNIQUE, READER, WINDOW_S), (FLEETING, FLEETING_READER, FLEETING_S)):
            await sim.create_topic(topic)
            asked = admin.UpdateTopicOptionsRequest(options={"topic": topic})
            asked.options.duplicate_detection_window.seconds = window_s
            asked.update_mask.paths.append("duplicate_detection_window")
            await sim.insist(methods.ADMIN.UpdateTopicOptions, asked)
            name = f"projects/p/subscriptions/{reader}"
            made = pubsub.Subscription(name=name, topic=topic, ack_deadline_seconds=10)
            await sim.insist(methods.SUBSCRIBER.CreateSubscription, made, "ALREADY_EXISTS")

    async def live(self, is_living: Callable[[], bool]) -> None:
        """Publish ids, most of them several times: at once, and again later."""
        number, work = 0, list[asyncio.Task[None]]()
        while is_living():
            number += 1
            earlier = 1 + self.random.randrange(0, number)
            for one in (number, *((number,) if self.random.random() < 0.5 else ()), earlier):
                work.append(asyncio.ensure_future(self._publish(f"id {one}")))
            work += [asyncio.ensure_future(self._call(f"call {number}, {one}")) for one in range(3)]
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

    async def _call(self, name: str) -> None:
        """Publish something once, with an id of its own or none; proxies may send it again for as long as it waits."""
        attributes = {CALL: name, PUBLISHED: name} if self.random.random() < 0.5 else {CALL: name}
        message = pubsub.PubsubMessage(data=b"x", attributes=attributes)
        self.calls[name] = None
        begun = asyncio.get_running_loop().time()
        try:
            answer = await self.sim.call(
                methods.PUBLISHER.Publish, pubsub.PublishRequest(topic=FLEETING, messages=[message]), 15.0
            )
        except SyncpointError as error:
            self.sim.note(f"{FLEETING_READER}: {name}: {error.code.name}")
            return
        late = asyncio.get_running_loop().time() - begun > FLEETING_S + 1
        self.sim.coverage.sometimes("a publish takes longer than a window", late)
        (self.calls[name],) = pubsub.PublishResponse.FromString(answer).message_ids

    async def consume(self) -> None:
        """Receive for ever what is stored."""
        await asyncio.gather(
            receive(self.sim, self.random, READER, self._received),
            receive(self.sim, self.random, FLEETING_READER, self._received_call),
        )

    def _received(self, message: Any) -> None:
        self.arrived[message.attributes[PUBLISHED]].add(message.message_id)
        self.sim.note(f"{READER}: {message.attributes[PUBLISHED]} as {message.message_id}")

    def _received_call(self, message: Any) -> None:
        self.stored[message.attributes[CALL]].add(message.message_id)
        self.sim.note(f"{FLEETING_READER}: {message.attributes[CALL]} as {message.message_id}")

    # -- what it came to ---------------------------------------------------------------------------------------------

    def judged(self) -> list[CheckResult]:
        """All promises."""
        bad = () if self.clocks_set else self._stored_again()
        return [self._lost(), CheckResult("ids are stored once", len(self.arrived), tuple(bad)), self._calls()]

    def _calls(self) -> CheckResult:
        bad = [
            f"{name} is stored as {sorted(ids)}, and was answered with {self.calls[name]}"
            for name, ids in self.stored.items()
            if len(ids) > 1 or self.calls[name] not in (None, *ids)
        ]
        return CheckResult("calls are stored once", len(self.stored), tuple(bad))

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
        lost += [f"{name} never arrived" for name, answer in self.calls.items() if answer and not self.stored[name]]
        return CheckResult("ids that were published arrive", len(self.answered) + len(self.calls), tuple(lost))

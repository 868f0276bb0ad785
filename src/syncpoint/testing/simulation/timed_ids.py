"""A topic that drops duplicates for some seconds, less than a life, of messages for now and for later.

Place: beside the other clients of `consumer_runs`, with chance of its own. Clients publish and schedule the same ids
again and again, and cancel; the topic is one whose wall clock is right.
What is judged: of one id no two are stored within the window; who publishes is answered with a message that was
published no longer ago than that, which arrives; what is scheduled and not cancelled comes, or another one of its id
within the window before it.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

from syncpoint.base.model.errors import SyncpointError
from syncpoint.base.model.reserved import SCHEDULED_ID
from syncpoint.base.runtime.random import SeededRandom
from syncpoint.broker.publish.facts.message_ids import PUBLISHED
from syncpoint.testing.rigs.checkers import CheckResult
from syncpoint.testing.simulation.api_clients import ApiClients
from syncpoint.testing.simulation.consumed import FULL
from syncpoint.testing.simulation.forwarded import receive
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import admin, pubsub

TIMED = "projects/p/topics/timed"
READER = "timed"
WINDOW_S = 2
IDS = 6
AT = "sys.ScheduledEnqueueTimeUtc"
SLACK_NS = 2_100_000_000  # ids are known by whole seconds, rounded up


@dataclass
class AnsweredId:
    """A publish of an id that was confirmed. `cancelled` None: nobody knows."""

    name: str
    message_id: str
    sent_ns: int
    due_ns: int = 0
    cancelled: bool | None = False


@dataclass
class TimedIds:
    """Check a topic with a short duplicate window, for immediate and scheduled messages.

    `stored`: by id, when each message was published.
    """

    sim: ApiClients
    seed: int
    now_ns: Callable[[], int]
    answered: list[AnsweredId] = field(default_factory=list)
    stored: dict[str, dict[str, int]] = field(default_factory=lambda: defaultdict(dict))
    by_schedule: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))

    def __post_init__(self) -> None:
        self.random = SeededRandom(self.seed * 31 + 2)

    # -- what happens ------------------------------------------------------------------------------------------------

    async def begin(self) -> None:
        """Create topic and subscription."""
        sim = self.sim
        await sim.create_topic(TIMED)
        asked = admin.UpdateTopicOptionsRequest(options={"topic": TIMED})
        asked.options.duplicate_detection_window.seconds = WINDOW_S
        asked.update_mask.paths.append("duplicate_detection_window")
        await sim.insist(methods.ADMIN.UpdateTopicOptions, asked)
        reader = pubsub.Subscription(name=FULL + READER, topic=TIMED, ack_deadline_seconds=10)
        await sim.insist(methods.SUBSCRIBER.CreateSubscription, reader, "ALREADY_EXISTS")

    async def consume(self) -> None:
        """Receive for ever what is stored."""
        await receive(self.sim, self.random, READER, self._received)

    def _received(self, message: Any) -> None:
        attributes = message.attributes
        self.stored[attributes[PUBLISHED]][message.message_id] = message.publish_time.ToNanoseconds()
        if SCHEDULED_ID in attributes:
            self.by_schedule[attributes[SCHEDULED_ID]].add(message.message_id)
        self.sim.note(f"{READER}: {attributes[PUBLISHED]} as {message.message_id} {attributes.get(SCHEDULED_ID, '')}")

    async def live(self, is_living: Callable[[], bool]) -> None:
        """Publish, schedule and cancel the same few ids."""
        work = list[asyncio.Task[Any]]()
        while is_living():
            await asyncio.sleep(self.random.random() * 0.5)
            name = f"id {self.random.randrange(0, IDS)}"
            if self.random.random() < 0.5:
                work.append(asyncio.ensure_future(self._publish(name)))
            else:
                due_ns = self.now_ns() + round((0.2 + 3 * self.random.random()) * 10) * 100_000_000
                times = 2 if self.random.random() < 0.3 else 1
                work += [asyncio.ensure_future(self._schedule(name, due_ns)) for _ in range(times)]
        if work:
            await asyncio.wait(work)
        for task in work:
            task.result()

    async def _publish(self, name: str, due_ns: int = 0) -> AnsweredId | None:
        sim, attributes = self.sim, {PUBLISHED: name}
        if due_ns:
            attributes[AT] = text_of(due_ns)
        request = pubsub.PublishRequest(topic=TIMED)
        request.messages.add(data=name.encode(), attributes=attributes)
        for _ in range(30):
            sent_ns = self.now_ns()
            try:
                answer = await sim.call(methods.PUBLISHER.Publish, request)
            except SyncpointError as error:
                sim.note(f"{READER}: {name}: {error.code.name}")
                await asyncio.sleep(0.1 + 0.2 * self.random.random())
                continue
            (message_id,) = pubsub.PublishResponse.FromString(answer).message_ids
            found = AnsweredId(name, message_id, sent_ns, due_ns)
            self.answered.append(found)
            sim.note(f"{READER}: {name} {'scheduled' if due_ns else 'published'} as {message_id}")
            return found
        return None

    async def _schedule(self, name: str, due_ns: int) -> None:
        found = await self._publish(name, due_ns)
        if found is None or self.random.random() < 0.5:
            return
        await asyncio.sleep(max(0.0, (due_ns - self.now_ns()) / 1e9 * self.random.random()))
        asked = admin.CancelScheduledMessageRequest(topic=TIMED, message_id=found.message_id)
        found.cancelled = None
        try:
            await self.sim.call(methods.ADMIN.CancelScheduledMessage, asked, 5.0)
        except SyncpointError as error:
            self.sim.note(f"{READER}: {name} is not cancelled: {error.code.name}")
            return
        found.cancelled = True
        self.sim.coverage.sometimes("an id that was scheduled is cancelled")
        self.sim.note(f"{READER}: {name} is cancelled, {found.message_id}")
        if self.random.random() < 0.7:
            await self._publish(name, max(due_ns, self.now_ns() + 200_000_000))
            self.sim.coverage.sometimes("an id that was cancelled is scheduled again")

    # -- what it came to ---------------------------------------------------------------------------------------------

    def judged(self) -> list[CheckResult]:
        """All promises."""
        return [self._lost(), self._twice()]

    def lacks(self) -> list[str]:
        """What draining waits for."""
        return list(self._lost().violations[:1])

    def _lost(self) -> CheckResult:
        bad = []
        for one in self.answered:
            found, text = self.stored[one.name], f"{one.name}, answered with {one.message_id},"
            if one.due_ns:
                oldest_ns = one.due_ns - WINDOW_S * 1_000_000_000 - SLACK_NS
                if one.cancelled is False and not any(at_ns > oldest_ns for at_ns in found.values()):
                    bad.append(f"{text} was scheduled, and neither it nor another one came")
            elif one.message_id not in found:
                bad.append(f"{text} never came")
            elif one.sent_ns - found[one.message_id] > WINDOW_S * 1_000_000_000 + SLACK_NS:
                late_s = (one.sent_ns - found[one.message_id]) / 1e9
                bad.append(f"{text} was taken for one of {late_s:.1f} s ago")
        return CheckResult("ids count for their time", len(self.answered), tuple(bad))

    def _twice(self) -> CheckResult:
        bad = []
        for name, found in self.stored.items():
            times = sorted(found.values())
            bad += [
                f"{name} is stored twice within {(later - one) / 1e9:.3f} s"
                for one, later in pairwise(times)
                if later - one < WINDOW_S * 1_000_000_000 - 10_000_000
            ]
        cancelled = {one.message_id for one in self.answered if one.cancelled}
        bad += [f"{name} was cancelled, and published" for name in sorted(cancelled & self.by_schedule.keys())]
        bad += [f"{name} came as {sorted(ids)}" for name, ids in self.by_schedule.items() if len(ids) > 1]
        return CheckResult("ids are stored once in their time", len(self.stored), tuple(bad))


def text_of(at_ns: int) -> str:
    """A time as an attribute has it."""
    return datetime.fromtimestamp(at_ns // 1_000_000 / 1_000, UTC).isoformat(timespec="milliseconds")

"""Dead letters that are redriven while their subscription is moved back, and the judge of what comes of them.

Place: beside the other clients of `consumer_runs`, with chance of its own. A client refuses some messages until they
are letters; another one redrives those to a topic that drops duplicates, where others publish by the same ids; the
subscription of the letters is moved back now and then.
What is judged: a message becomes one letter; each letter is redriven, once for each seek that brought it back, and is
stored at least once after each of them.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from syncpoint.base.model.errors import SyncpointError
from syncpoint.base.model.reserved import FORWARDED_FROM
from syncpoint.base.runtime.random import SeededRandom
from syncpoint.broker.publish.facts.message_ids import PUBLISHED
from syncpoint.front.api.letter_texts import REDRIVEN_FROM
from syncpoint.testing.rigs.checkers import CheckResult
from syncpoint.testing.rigs.history import unseal
from syncpoint.testing.simulation.api_clients import REFUSED, TOPIC, ApiClients
from syncpoint.testing.simulation.consumed import FULL, ConsumerSeek
from syncpoint.testing.simulation.forwarded import receive, stored_since
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import admin, pubsub

DEAD, BACK = "projects/p/topics/dead", "projects/p/topics/back"
REFUSING, LETTERS, RETURNED = "refusing", "dead-letters", "returned"


@dataclass
class MovedLetters:
    """Redrive dead letters while their subscription is moved back, and check the outcome.

    `stored`: what of each letter is stored where it was redriven to, by the message that became it; `letters`: which
    letters it became; `names`: what is stored of one letter in one generation of its subscription; `generations`: the
    newest in which one was redriven.
    """

    sim: ApiClients
    seed: int
    stored: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    letters: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    names: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    generations: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    identities: set[Any] = field(default_factory=set)
    seeks: list[tuple[ConsumerSeek, dict[str, int]]] = field(default_factory=list)
    created: int = 1 << 62

    def __post_init__(self) -> None:
        self.random = SeededRandom(self.seed * 29 + 1)
        self.resets = self.random.random() < 0.7
        self.asked = asyncio.Event()
        self.newest = 0

    # -- what happens ------------------------------------------------------------------------------------------------

    async def begin(self) -> None:
        """Create all of it."""
        sim = self.sim
        await sim.create_topic(DEAD, retention_s=86_400)
        await sim.create_topic(BACK)
        options = admin.UpdateTopicOptionsRequest(options={"topic": BACK})
        options.options.duplicate_detection_window.seconds = 600
        options.update_mask.paths.append("duplicate_detection_window")
        await sim.insist(methods.ADMIN.UpdateTopicOptions, options)
        for name, topic in ((LETTERS, DEAD), (RETURNED, BACK), (REFUSING, TOPIC)):
            asked = pubsub.Subscription(name=FULL + name, topic=topic, ack_deadline_seconds=10)
            if name == REFUSING:
                asked.dead_letter_policy.dead_letter_topic = DEAD
                asked.dead_letter_policy.max_delivery_attempts = 5
                asked.retry_policy.minimum_backoff.nanos = 10_000_000
                asked.retry_policy.maximum_backoff.nanos = 50_000_000
            await sim.insist(methods.SUBSCRIBER.CreateSubscription, asked, "ALREADY_EXISTS")
        self.created = sim.history.stamp()

    async def consume(self) -> None:
        """Refuse some messages, redrive what has become a letter, receive that."""
        await asyncio.gather(
            self.sim.consume(REFUSING, f"{REFUSING}-a", refuse=True),
            receive(self.sim, self.random, RETURNED, self._came_back),
            self._redrive(),
        )

    async def live(self, is_living: Callable[[], bool]) -> None:
        """Bring letters back, and publish by their ids."""
        sim, number = self.sim, 0
        while is_living():
            await asyncio.sleep(0.5 + 1.5 * self.random.random())
            number += 1
            other = pubsub.PublishRequest(topic=BACK)
            other.messages.add(data=b"another", attributes={PUBLISHED: f"p0 {number}"})
            await sim.insist(methods.PUBLISHER.Publish, other)
            if self.resets and self.random.random() < 0.7:
                await self._while_redriven()
                seek = ConsumerSeek(True, sim.history.stamp(), {})
                self.seeks.append((seek, {one: len(found) for one, found in self.stored.items()}))
                asked = pubsub.SeekRequest(subscription=FULL + LETTERS)
                asked.time.seconds = 1
                while seek.ended == 1 << 62:
                    seek.tries += 1
                    try:
                        await sim.call(methods.SUBSCRIBER.Seek, asked, 5.0)
                        seek.ended = sim.history.stamp()
                    except SyncpointError:
                        await asyncio.sleep(0.2)
                sim.coverage.sometimes("letters are brought back")
                sim.note("client: letters are brought back")

    async def _while_redriven(self) -> None:
        """Some milliseconds after the next redrive was asked for."""
        self.asked.clear()
        await self.asked.wait()
        await asyncio.sleep(self.random.random() ** 2 * 0.02)

    def _came_back(self, message: Any) -> None:
        attributes = message.attributes
        if REDRIVEN_FROM not in attributes:
            return
        lineage, name = attributes[REDRIVEN_FROM], attributes[FORWARDED_FROM]
        self.stored[lineage].add(message.message_id)
        _, subscription, place = name.split("/", 2)
        generation = int(subscription.rpartition(".")[2])
        self.letters[lineage].add(place)
        self.generations[lineage] = max(self.generations[lineage], generation)
        self.newest = max(self.newest, generation)
        self.names[name].add(message.message_id)
        self.identities.add(unseal(message.data))
        self.sim.note(f"{RETURNED}: {lineage} as {message.message_id}, letter {name}")

    async def _redrive(self) -> None:
        sim = self.sim
        selection = admin.DeadLetterSelection(subscription=FULL + LETTERS)
        while True:
            await asyncio.sleep(0.1 + 0.5 * self.random.random())
            self.asked.set()
            request = admin.RedriveDeadLettersRequest(selection=selection, topic=BACK, page_size=50)
            try:
                answer = await sim.call(methods.ADMIN.RedriveDeadLetters, request, 5.0)
            except SyncpointError as error:
                sim.note(f"client: letters are not redriven: {error.code.name}")
                continue
            found = admin.RedriveDeadLettersResponse.FromString(answer)
            sim.coverage.sometimes("letters are redriven", found.redriven)
            if found.redriven or found.failures:
                sim.note(f"client: {found.redriven} letters are redriven, {'; '.join(found.failures)}")

    # -- what it came to ---------------------------------------------------------------------------------------------

    def judged(self) -> list[CheckResult]:
        """All promises."""
        return [self._lost(), self._once()]

    def lacks(self) -> list[str]:
        """What draining waits for."""
        return list(self._lost().violations[:1])

    def _lost(self) -> CheckResult:
        tried = {one.message_id for one in self.sim.history.acks if one.subscription == REFUSING}
        owed = [
            one
            for one in stored_since(self.sim, self.created)
            if one.identity.number % REFUSED == 0 and one.message_id not in tried
        ]
        bad = [f"{one.identity} was refused, and is no letter" for one in owed if one.identity not in self.identities]
        for _, before in self.seeks[-1:]:
            bad += [
                f"the letter of {one} was redriven {count} times before it was brought back, and not again"
                for one, count in before.items()
                if len(self.stored[one]) <= count
            ]
        bad += [
            f"the letter of {one} was redriven in generation {found}, and not again in {self.newest}"
            for one, found in self.generations.items()
            if found < self.newest
        ]
        return CheckResult("letters are redriven after each seek", len(owed), tuple(bad))

    def _once(self) -> CheckResult:
        bad = [f"of {one} there are letters {sorted(found)}" for one, found in self.letters.items() if len(found) > 1]
        bad += [f"letter {one} is stored as {sorted(ids)}" for one, ids in self.names.items() if len(ids) > 1]
        return CheckResult("letters are made and redriven once", len(self.letters), tuple(bad))

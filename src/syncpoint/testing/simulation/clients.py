"""What clients of the small simulation ask for: publishing, and everything that must not return before all chains act
by it.

Place: what proxies are in production. What they did and when is in the simulation's history; `snapshots` and `seeks`
are the history of the subscriptions' sets, for `run_checkers`.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import Any

from syncpoint.base.model.errors import StaleEpoch, SyncpointError
from syncpoint.broker.publish.intake.envelope import PublishBatch, write_publish
from syncpoint.catalog.metadata.records import (
    ACTIVE,
    CREATING,
    CatalogChange,
    SeekTarget,
    Snapshot,
    Subscription,
    Topic,
)
from syncpoint.testing.rigs.history import Creation, MessageIdentity, Outcome, seal
from syncpoint.testing.simulation.sets import Seek, Taken, named
from syncpoint.testing.simulation.simulated_chains import SimAssignment, SimulatedChains
from syncpoint.testing.simulation.topology import DEAD, LETTERS, TOPIC
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import internal, pubsub

STALE = 0.15  # how often a client knows only of the last assignment but one
STALE_OFTEN = 0.4
LETTER_S = 5.0


@dataclass
class Messages:
    """What to publish in one request: `sizes` of messages that are numbered from `number` on."""

    client: str
    number: int
    key: str
    sender: int
    sizes: list[int]
    topic: str = TOPIC
    judged_as: str = TOPIC  # the topic's name in the history
    attributes: dict[str, str] = field(default_factory=dict)


class Clients:
    """All clients of a simulation that ask; those that receive are in `consuming`."""

    def __init__(self, sim: SimulatedChains) -> None:
        self.sim = sim
        self.snapshots: list[Taken] = []
        self.seeks: list[Seek] = []
        self._creations: dict[str, Creation] = {}  # subscription -> since it was created, or reset
        self._letters = 0
        sim.bury = self._bury

    # -- publishing --------------------------------------------------------------------------------------------------

    async def publish(self, some: Messages, give_up_s: float) -> None:
        """Publish a request, again until it is known to be stored, or nobody knows for too long."""
        sim, history = self.sim, self.sim.history
        identities = [MessageIdentity(some.client, some.number + at) for at in range(len(some.sizes))]
        operations = [history.publishing(some.judged_as, one, some.key) for one in identities]
        bodies = [
            pubsub.PubsubMessage(data=seal(one, bytes(size)), ordering_key=some.key, attributes=some.attributes)
            for one, size in zip(identities, some.sizes, strict=True)
        ]
        request = pubsub.PublishRequest(topic=some.topic, messages=bodies).SerializeToString()
        sealed_for = sim.topic(some.topic).incarnation if sim.shape.sealing else 0
        sending = self._send(some.topic, request, some.key, some.sender, some.number + 1, give_up_s, sealed_for)
        answer = await sending
        if answer is None:
            for operation in operations:
                history.end(operation, Outcome.UNKNOWN)
            sim.coverage.sometimes("the outcome of a publish stays unknown")
            sim.note(f"{some.client}: {some.number} unknown")
            return
        message_ids = pubsub.PublishResponse.FromString(answer).message_ids
        sim.coverage.always("every message has an id", len(message_ids) == len(operations), f"{some}: {answer!r}")
        for operation, identity, message_id in zip(operations, identities, message_ids, strict=True):
            history.published(operation, message_id)
            sim.published(identity, message_id)

    async def _send(
        self, topic: str, request: bytes, key: str, sender: int, number: int, give_up_s: float, sealed_for: int = 0,
        lost_s: float = 0.0,
    ) -> bytes | None:  # fmt: skip
        """`sealed_for`: the incarnation of the topic that the request is meant for; 0: whichever has the name.
        `lost_s`: the first answer is lost, and it is sent again so much later; 0: none is.
        """
        sim = self.sim
        stale = STALE_OFTEN if sim.shape.strict else STALE
        end, again, asked = sim.loop.time() + give_up_s, 0, 0  # asked: the chain that may have it
        while sim.loop.time() < end:
            known = sim.before if sim.random.random() < stale else sim.assignment
            chain = asked if asked and not key else self._chain(known, key)
            batch = PublishBatch(chain, known.epoch, bool(key), sender, number, bool(asked), request, sealed_for)
            try:
                answer = await sim.call(chain, methods.CHAINS.Publish, write_publish(batch), 1.0)
            except SyncpointError as error:
                refused = isinstance(error, StaleEpoch)
                sim.coverage.sometimes("a key is refused for its epoch", refused)
                asked = asked if refused or chain not in sim.owners_of else chain
                again += 1
                await asyncio.sleep(0.02 + 0.2 * sim.random.random())
                continue
            if lost_s:
                sim.coverage.sometimes("the answer to a publish is lost")
                await asyncio.sleep(lost_s)
                asked, lost_s = chain, 0.0
                continue
            sim.coverage.sometimes("a publish is answered after it was sent again", again)
            return answer
        return None

    def _chain(self, known: SimAssignment, key: str) -> int:
        """Messages without a key may go anywhere; one that may be stored in a chain is sent to that one again."""
        if key:
            return known.of(key)
        chains = known.chains if self.sim.random.random() < 0.7 else tuple(self.sim.records)
        return chains[self.sim.random.randrange(0, len(chains))]

    async def _bury(self, topic: str, request: bytes) -> bytes | None:
        """Publish a dead letter; called by a subscribe forwarder."""
        self._letters += 1
        return await self._send(topic, request, "", 1 << 20, self._letters, LETTER_S)

    # -- what chains have to confirm ---------------------------------------------------------------------------------

    async def confirm(self, revision: int) -> bool:
        """Whether all registered chains have persisted what follows from the catalog, each within three seconds."""
        for topic, chain in sorted(self.sim.registered):
            if not await self.sim.confirmed(internal.ConfirmRequest(chain=chain, topic=topic, revision=revision)):
                return False
        return True

    async def subscribe(self, name: str, topic: Topic | None = None, judged_as: str = TOPIC, **options: Any) -> None:
        """Create a subscription, again until it is there."""
        sim = self.sim
        topic = topic or sim.topic(TOPIC)
        ordered, once = bool(options.get("ordered")), bool(options.get("exactly_once"))
        letters = LETTERS if options.get("dead_letter") is not None else ""
        operation = sim.history.creating(name, judged_as, ordered=ordered, exactly_once=once, letters=letters)
        sim.coverage.sometimes("a subscription is created while messages are published", sim.history.publishes)
        number = sim.master.next_incarnation()
        record = Subscription(number, name, topic.incarnation, topic.name, state=CREATING, **options)
        revision = sim.commit(CatalogChange.put(record))
        while not await self.confirm(revision):
            sim.coverage.sometimes("a subscription stays creating")
            await asyncio.sleep(0.2)
        made = sim.master.subscription_by_incarnation(number)
        assert made is not None
        sim.commit(CatalogChange.put(replace(made, state=ACTIVE)))
        sim.history.end(operation, Outcome.OK)
        self._creations[name] = operation
        sim.note(f"client: {name} created")

    def owe_nothing(self, name: str) -> None:
        """Not everything comes to a subscription: what does is judged otherwise."""
        self._creations[name].until = self.sim.history.stamp()

    def update(self, name: str, **options: Any) -> None:
        """Change what may change of a subscription."""
        made = self.sim.subscription(name)
        self.sim.commit(CatalogChange.put(replace(made, **options)))
        self.sim.coverage.sometimes("a subscription is updated")
        self.sim.note(f"client: {name} updated: {', '.join(sorted(options))}")

    def unsubscribe(self, name: str) -> None:
        """Delete a subscription: nothing is owed to it from here on."""
        self._creations[name].until = self.sim.history.stamp()
        self.sim.commit(CatalogChange.delete(self.sim.subscription(name)))
        self.sim.coverage.sometimes("a subscription is deleted")
        self.sim.note(f"client: {name} deleted")

    async def snapshot(self, name: str) -> None:
        """Create a snapshot of a subscription. One that could not be confirmed is replaced: its sets would be old."""
        sim = self.sim
        while True:
            made = sim.subscription(name)
            taken = Taken(name, made.generation, sim.master.next_incarnation(), sim.history.stamp())
            record = Snapshot(
                taken.snapshot, f"snapshot{taken.snapshot}", made.topic_incarnation, TOPIC, expire_ns=1 << 62,
                status=CREATING, subscription=made.incarnation,
            )  # fmt: skip
            if await self.confirm(sim.commit(CatalogChange.put(record))):
                break
            sim.coverage.sometimes("a snapshot is not confirmed in time")
            sim.commit(CatalogChange.delete(record))
        sim.commit(CatalogChange.put(replace(record, status=ACTIVE)))
        taken.ended = sim.history.stamp()
        self.snapshots.append(taken)
        sim.note(f"client: snapshot {taken.snapshot} of {name} taken")

    async def seek(self, name: str, taken: Taken | None = None, time_ns: int = 0) -> Seek:
        """Seek a subscription to a snapshot, or to a time; 0 is the beginning."""
        sim = self.sim
        made = sim.subscription(name)
        before = self._creations[name]
        seek = Seek(name, made.generation + 1, taken, time_ns, sim.history.stamp(), kept=sim.keeps)
        before.until = seek.begun
        target = SeekTarget(time_ns=time_ns) if taken is None else SeekTarget(snapshot=taken.snapshot)
        # What is delivered under another generation is judged by itself.
        operation = sim.history.creating(
            named(name, seek.generation), before.topic, ordered=before.ordered, exactly_once=before.exactly_once,
            letters=before.letters,
        )  # fmt: skip
        revision = sim.commit(CatalogChange.put(replace(made, generation=seek.generation, target=target)))
        while not await self.confirm(revision):
            await asyncio.sleep(0.2)
        seek.ended = sim.history.stamp()
        sim.history.end(operation, Outcome.OK)
        self._creations[name] = operation
        self.seeks.append(seek)
        sim.coverage.sometimes("a subscription is moved back", taken is None and not time_ns)
        sim.coverage.sometimes("a subscription is moved to a time", taken is None and time_ns)
        sim.coverage.sometimes("a subscription is moved to a snapshot", taken is not None)
        sim.coverage.sometimes(
            "a subscription is moved to a snapshot of another one", taken is not None and taken.subscription != name
        )
        where = f"snapshot {taken.snapshot}" if taken is not None else f"{time_ns / 1e9:.6f}"
        sim.note(f"client: {name} moved to {where}, generation {seek.generation}")
        return seek

    # -- topics ------------------------------------------------------------------------------------------------------

    def create_topic(self, name: str, retention_s: int = 0) -> Topic:
        """Create a topic; its incarnation is a new one."""
        topic = Topic(self.sim.master.next_incarnation(), name, retention_s=retention_s)
        self.sim.commit(CatalogChange.put(topic))
        self.sim.note(f"client: topic {name} created as {topic.incarnation}")
        return topic

    def delete_topic(self, topic: Topic, subscriptions: list[str]) -> None:
        """Delete a topic and its subscriptions: nothing is owed to them from here on."""
        for name in subscriptions:
            self.unsubscribe(name)
        self.sim.commit(CatalogChange.delete(topic))
        self.sim.coverage.sometimes("a topic is deleted")
        self.sim.note(f"client: topic {topic.name} deleted, {topic.incarnation}")

    async def bury_here(self) -> None:
        """A topic for dead letters, and somebody who reads them."""
        topic = self.create_topic(DEAD)
        await self.subscribe(LETTERS, topic, DEAD)

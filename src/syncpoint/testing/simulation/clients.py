"""What clients of the small world ask for: publishing, and everything that must not return before all chains act by it.

Place: what proxies are in production. `snapshots` and `seeks` are the history of one subscription's sets, for `judges`.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import Any

from syncpoint.metadata.records import ACTIVE, CREATING, Change, SeekTarget, Snapshot, Subscription
from syncpoint.model.errors import SyncpointError
from syncpoint.publish.envelope import PUBLISH, PublishBatch, write_publish
from syncpoint.testing.history import Identity, Outcome, seal
from syncpoint.testing.simulation.chains import Assignment, ChainsWorld
from syncpoint.testing.simulation.judges import Seek, Taken
from syncpoint.testing.simulation.shape import TOPIC, TOPIC_NUMBER
from syncpoint.wire.messages import internal, pubsub

STALE = 0.15  # how often a client knows only of the last assignment but one


@dataclass
class Message:
    """One message to publish."""

    client: str
    number: int
    key: str
    sender: int
    size: int


class Clients:
    """All clients of a world that ask; those that receive are in `consuming`."""

    def __init__(self, world: ChainsWorld) -> None:
        self.world = world
        self.snapshots: list[Taken] = []
        self.seeks: list[Seek] = []

    # -- publishing --------------------------------------------------------------------------------------------------

    async def publish(self, one: Message, give_up_s: float) -> None:
        """Publish one message, again until it is known to be stored, or nobody knows for too long."""
        world = self.world
        identity = Identity(one.client, one.number)
        operation = world.history.publishing(TOPIC, identity, one.key)
        body = pubsub.PubsubMessage(data=seal(identity, bytes(one.size)), ordering_key=one.key)
        request = pubsub.PublishRequest(topic=TOPIC, messages=[body]).SerializeToString()
        end, again, asked = world.loop.time() + give_up_s, 0, 0  # asked: the chain that may have it
        while world.loop.time() < end:
            known = world.before if world.random.random() < STALE else world.assignment
            chain = asked if asked and not one.key else self._chain(known, one.key)
            batch = PublishBatch(chain, known.epoch, bool(one.key), one.sender, one.number + 1, bool(asked), request)
            try:
                answer = await world.call(chain, PUBLISH, write_publish(batch), 1.0)
            except SyncpointError as error:
                refused = error.message.startswith("epoch")
                world.coverage.sometimes("a key is refused for its epoch", refused)
                asked = asked if refused or chain not in world.owners_of else chain
                again += 1
                await asyncio.sleep(0.02 + 0.2 * world.random.random())
                continue
            (message_id,) = pubsub.PublishResponse.FromString(answer).message_ids
            world.history.published(operation, message_id)
            world.coverage.sometimes("a publish is answered after it was sent again", again)
            world.published(identity, message_id)
            return
        world.history.end(operation, Outcome.UNKNOWN)
        world.coverage.sometimes("the outcome of a publish stays unknown")
        world.note(f"{one.client}: {one.number} unknown")

    def _chain(self, known: Assignment, key: str) -> int:
        """Messages without a key may go anywhere; one that may be stored in a chain is sent to that one again."""
        chains = known.chains if key or self.world.random.random() < 0.7 else tuple(self.world.records)
        return chains[sum(key.encode()) % len(chains)] if key else chains[self.world.random.randrange(0, len(chains))]

    # -- what chains have to confirm ---------------------------------------------------------------------------------

    async def confirm(self, revision: int) -> bool:
        """Whether all registered chains have persisted what follows from the catalog, each within three seconds."""
        for topic, chain in sorted(self.world.registered):
            if not await self.world.confirmed(internal.ConfirmRequest(chain=chain, topic=topic, revision=revision)):
                return False
        return True

    async def subscribe(self, name: str, **options: Any) -> None:
        """Create a subscription, again until it is there."""
        world = self.world
        ordered, once = bool(options.get("ordered")), bool(options.get("exactly_once"))
        operation = world.history.creating(name, TOPIC, ordered=ordered, exactly_once=once)
        world.coverage.sometimes("a subscription is created while messages are published", world.history.publishes)
        number = world.master.next_incarnation()
        revision = world.commit(Change.put(Subscription(number, name, TOPIC_NUMBER, TOPIC, state=CREATING, **options)))
        while not await self.confirm(revision):
            world.coverage.sometimes("a subscription stays creating")
            await asyncio.sleep(0.2)
        made = world.master.subscription_by_incarnation(number)
        assert made is not None
        world.commit(Change.put(replace(made, state=ACTIVE)))
        world.history.end(operation, Outcome.OK)
        world.note(f"client: {name} created")

    async def snapshot(self, name: str) -> None:
        """Create a snapshot of a subscription. One that could not be confirmed is replaced: its sets would be old."""
        world = self.world
        while True:
            made = world.master.subscription(name)
            assert made is not None
            taken = Taken(name, world.master.next_incarnation(), world.history.stamp())
            record = Snapshot(
                taken.snapshot, f"snapshot{taken.snapshot}", TOPIC_NUMBER, TOPIC, expire_ns=1 << 62, status=CREATING,
                subscription=made.incarnation,
            )  # fmt: skip
            if await self.confirm(world.commit(Change.put(record))):
                break
            world.coverage.sometimes("a snapshot is not confirmed in time")
            world.commit(Change.delete(record))
        world.commit(Change.put(replace(record, status=ACTIVE)))
        taken.ended = world.history.stamp()
        self.snapshots.append(taken)
        world.note(f"client: snapshot {taken.snapshot} of {name} taken")

    async def seek(self, name: str, taken: Taken | None = None) -> None:
        """Seek a subscription to a snapshot, or back to the beginning."""
        world = self.world
        made = world.master.subscription(name)
        assert made is not None
        seek = Seek(name, taken, world.history.stamp())
        target = SeekTarget(time_ns=0) if taken is None else SeekTarget(snapshot=taken.snapshot)
        revision = world.commit(Change.put(replace(made, generation=made.generation + 1, target=target)))
        while not await self.confirm(revision):
            await asyncio.sleep(0.2)
        seek.ended = world.history.stamp()
        self.seeks.append(seek)
        world.coverage.sometimes("a subscription is sought back", taken is None)
        world.coverage.sometimes("a subscription is sought to a snapshot", taken is not None)
        world.note(f"client: {name} sought to {taken.snapshot if taken is not None else 'the beginning'}")

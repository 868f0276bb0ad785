"""One seed of scheduled messages: owners of chains are killed, or taken over from, at the instants at which messages
are due.

Place: beside `chain_runs`, over the same processes, disks and network; its clients schedule and cancel, and one
subscription shows what is published. In half of the seeds other faults come on top; in half of them messages have
ordering keys, which move between chains. In some, clients send several requests of plain and scheduled messages at
once, and entries are full after two messages; in some the topic drops duplicates for a while (`repeated_keys`).
Judged is: what was scheduled, and not cancelled, is published once, not before its time, nothing is lost, what was
cancelled never comes; of a key in the order of their times, where one chain had them in time and one took them; at the
end nothing waits, and nothing that waited is kept. The time is that of most machines: where as many clocks were ahead,
what came early by less is no fault. A request with a key whose outcome is unknown may be stored by two
chains: those are two messages, under ids of their own.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from syncpoint.base.model.errors import SyncpointError
from syncpoint.base.model.identity import parse_message_id
from syncpoint.base.runtime.clock import ManualClock
from syncpoint.base.runtime.random import SeededRandom
from syncpoint.broker.publish.chain.chain import Chain
from syncpoint.broker.publish.commit import commit
from syncpoint.broker.publish.facts.source import WAITING_TOPIC
from syncpoint.broker.publish.keep.retention import is_needed
from syncpoint.testing.rigs.history import MessageIdentity, seal
from syncpoint.testing.simulation.base import Trace
from syncpoint.testing.simulation.clients import Clients
from syncpoint.testing.simulation.consuming import Consuming
from syncpoint.testing.simulation.faults import Nemesis
from syncpoint.testing.simulation.loop import ProcessLoop
from syncpoint.testing.simulation.nodes import SimPublisher
from syncpoint.testing.simulation.repeated_keys import RepeatedKeys
from syncpoint.testing.simulation.scaled import patched, quick_checkpoints
from syncpoint.testing.simulation.sim_clocks import most_led_ns
from syncpoint.testing.simulation.sim_runs import RunResult, SimRun, simulate
from syncpoint.testing.simulation.simulated_chains import SimulatedChains
from syncpoint.testing.simulation.topology import TOPIC, TOPIC_NUMBER, Topology
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import internal, pubsub

AT, ID = "sys.ScheduledEnqueueTimeUtc", "sys.ScheduledMessageId"
WATCHER = "watcher"
EARLY_NS = 300_000_000  # wall clocks of machines drift apart by less
KINDS = ("crash", "takeover", "hang", "connections broken", "clock jump")
SHAPES = (
    Topology(clusters=1, disks=1),
    Topology(clusters=1, disks=1, chains=2, entries=6),
    Topology(clusters=1, disks=3, entries=8),
    Topology(clusters=3, disks=1, chains=2),
)
DRAIN_S = 60.0
REQUESTS = 5  # at once, where turns are full
SENDERS = 1 << 32  # numbers of clients begin after those of processes, which publish what is due
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass
class ScheduledOne:
    """A message as its client knows it. `id` is empty where the outcome stays unknown."""

    data: bytes
    due_ns: int
    id: str = ""
    chain: int = 0
    cancelled: bool | None = False  # None: nobody knows
    key: str = ""
    accepted_ns: int = 1 << 62


@dataclass
class Published:
    """What came to the subscription under one scheduled id, or with one text: ids of messages, the earliest times."""

    ids: set[str] = field(default_factory=set)
    published_ns: int = 1 << 62
    seen_ns: int = 1 << 62


class WatchedChains(SimulatedChains):
    """Remembers what is delivered."""

    def __init__(self, loop: ProcessLoop, clock: ManualClock, seed: int, shape: Topology, trace: Trace | None) -> None:
        super().__init__(loop, clock, seed, shape, trace)
        self.by_data: dict[bytes, Published] = defaultdict(Published)
        self.by_id: dict[str, Published] = defaultdict(Published)
        self.on_received: Callable[[Any], None] = lambda message: None

    def received(self, subscription: str, receiver: str, message: Any) -> None:
        self.on_received(message)
        for found in (self.by_data[message.data], self.by_id[message.attributes.get(ID, "")]):
            found.ids.add(message.message_id)
            found.published_ns = min(found.published_ns, message.publish_time.ToNanoseconds())
            found.seen_ns = min(found.seen_ns, self.clock.time_ns())
        self.note(f"{receiver}: {message.message_id} of {message.attributes.get(ID, 'nothing scheduled')}")


class ScheduledRun(SimRun[WatchedChains]):
    """Run one seed of scheduled messages.

    `kills`: so often an owner is killed, or taken over from, when something is due. `full`: turns are given more than
    an entry holds. `repeating`: ids are published again, see `repeated_keys`.
    """

    def __init__(
        self, sim: WatchedChains, seed: int, kinds: tuple[str, ...], *, full: bool, repeating: bool = False
    ) -> None:
        super().__init__(sim, seed, SeededRandom(seed * 7 + 3))
        self.full = full
        self.nemesis = Nemesis(sim, seed, kinds) if kinds else None
        self.clients = Clients(sim)
        self.messages: list[ScheduledOne] = []
        self.keyed = seed % 2 == 1
        self._keys = SeededRandom(seed * 31 + 11)
        self._numbers = 0
        self.kills = 0
        self.repeated = RepeatedKeys(sim, self.clients, seed) if repeating and self.keyed else None
        self.sender = 1 if self.repeated is None else SENDERS
        self.judges_times = "clock jump" not in kinds

    async def run(self) -> None:
        checkpoints: AbstractContextManager[None] = nullcontext()
        if self.random.random() < 0.5:
            checkpoints = quick_checkpoints()
        entries = patched(commit, ENTRY_MESSAGES_MAX=2) if self.full else nullcontext()
        with checkpoints, entries:
            await self._run()

    async def _run(self) -> None:
        sim, loop = self.sim, self.sim.loop
        for number in range(sim.shape.forwarders):
            await sim.begin(SimPublisher, f"f{number}")
        await sim.begin(Consuming, "s0")
        supervising = loop.create_task(sim.supervise())
        await self.within([self.clients.subscribe(WATCHER)], 30)
        works = [self.start(self._schedule(client)) for client in range(3)]
        moving = loop.create_task(self._move_keys())
        if self.repeated is not None:
            sim.on_received = self.repeated.received
            works.append(self.start(self.repeated.live(lambda: not all(one.done() for one in works[:3]))))
        if self.nemesis is not None:
            await self.nemesis.run(3.0)
            self.nemesis.heal()
        await self.within(works, 60)
        moving.cancel()
        self.healed()
        last_ns = max((one.due_ns for one in self.messages), default=0)
        await asyncio.sleep(max(0.0, (last_ns - sim.clock.time_ns()) / 1e9) + 1.0)
        sim.draining = sim.quiescing = True
        complaints = await self.drain(DRAIN_S)
        supervising.cancel()
        self.looked = {"scheduled messages": len(self.messages), "killed when due": self.kills}
        self.violations = [*complaints, *self._judged(), *sim.coverage.violations]
        await sim.close()

    async def _move_keys(self) -> None:
        """Keys go to other chains, or a new epoch begins with the same ones."""
        chains = sorted(self.sim.records)
        while self.keyed:
            await asyncio.sleep(0.3 + 1.5 * self._keys.random())
            chosen = tuple(one for one in chains if self._keys.random() < 0.6) or (chains[-1],)
            self.sim.coverage.sometimes("keys move while messages wait", chosen != self.sim.assignment.chains)
            self.sim.assign(chosen)

    # -- clients -----------------------------------------------------------------------------------------------------

    async def _schedule(self, client: int) -> None:
        """Schedule, let owners die when it is due, cancel some."""
        sim, random = self.sim, self.random
        for turn in range(4):
            await asyncio.sleep(random.random())
            made = []
            for _ in range(REQUESTS if self.full else 1 + random.randrange(0, 3)):
                self._numbers += 1
                # On the same tenth of a second now and then: many are due at once.
                due_ns = sim.clock.time_ns() + round((0.2 + 2.5 * random.random()) * 10) * 100_000_000
                made.append(ScheduledOne(b"scheduled %d" % self._numbers, due_ns))
            # A topic that drops duplicates takes nothing without a key.
            for one in made if self.keyed and (self._keys.random() < 0.8 or self.repeated is not None) else ():
                one.key = f"key {client % 2}"
            self.messages += made
            works = [sim.client.start(self._publish(client, turn, made))]
            if random.random() < 0.7:
                works.append(sim.client.start(self._kill_at(made[0].due_ns)))
            if random.random() < 0.4:
                works.append(sim.client.start(self._cancel(made[-1])))
            await asyncio.wait(works)

    async def _publish(self, client: int, turn: int, made: list[ScheduledOne]) -> None:
        if self.full:
            each = (self._send(client, REQUESTS * turn + at, [one], mixed=at % 3 > 0) for at, one in enumerate(made))
            await asyncio.gather(*each)
        else:
            await self._send(client, turn, made, mixed=self.random.random() < 0.3)

    async def _send(self, client: int, number: int, made: list[ScheduledOne], *, mixed: bool) -> None:
        key = made[0].key
        bodies = [
            pubsub.PubsubMessage(data=one.data, ordering_key=key, attributes={AT: _text(one.due_ns)}) for one in made
        ]
        plain = mixed and not key
        if plain:  # one among them that is published at once
            bodies.insert(0, pubsub.PubsubMessage(data=seal(MessageIdentity(f"c{client}", number), b"")))
        request = pubsub.PublishRequest(topic=TOPIC, messages=bodies).SerializeToString()
        answer = await self.clients._send(TOPIC, request, key, self.sender + client, number + 1, 20.0)
        if answer is None:
            self.sim.coverage.sometimes("the outcome of scheduling stays unknown")
            return
        ids = pubsub.PublishResponse.FromString(answer).message_ids
        for one, name in zip(made, ids[plain:], strict=True):
            one.id, one.accepted_ns = name, self.sim.clock.time_ns()

    async def _kill_at(self, due_ns: int) -> None:
        """End an owner about when something is due: mostly while it publishes that."""
        sim, random = self.sim, self.random
        late_s = 0.25 * random.random() ** 2 - 0.02
        await asyncio.sleep(max(0.0, (due_ns - sim.clock.time_ns()) / 1e9 + late_s))
        living = [one for one in sim.publishers if one.process.alive and not one.process.hung and one.host.chains]
        if not living:
            return
        owner = living[random.randrange(0, len(living))]
        self.kills += 1
        if random.random() < 0.25:
            others = [one for one in sim.publishers if one is not owner and one.process.alive and not one.process.hung]
            number = next(iter(owner.host.chains))
            if others and not sim.is_opening(number):
                sim.take_over(number, others[0])
                return
        sim.coverage.sometimes("an owner is killed when something is due")
        sim.note(f"{owner.name} is killed when something is due")
        sim.crash(owner.name)
        await asyncio.sleep(0.3 + random.random())
        if not sim.nodes[owner.name].process.alive:
            sim.begin(SimPublisher, owner.name)

    async def _cancel(self, one: ScheduledOne) -> None:
        """Cancel about when it is due, or long before."""
        sim, random = self.sim, self.random
        left_s = (one.due_ns - sim.clock.time_ns()) / 1e9
        await asyncio.sleep(max(0.0, left_s - 0.1 + 0.2 * random.random() if random.random() < 0.5 else left_s / 2))
        if not one.id:
            return
        place = parse_message_id(one.id)
        request = internal.ScheduledCancelRequest(topic=TOPIC_NUMBER, source=place.source, offset=place.offset)
        for _ in range(20):
            for chain in sim.records:
                try:
                    data = await sim.call(chain, methods.CHAINS.CancelScheduled, request.SerializeToString(), 1.0)
                except SyncpointError:
                    one.cancelled = None  # it may have done it
                    continue
                answer = internal.ScheduledCancelResponse.FromString(data)
                if answer.here:
                    if answer.cancelled:
                        one.cancelled = True
                        sim.coverage.sometimes("a scheduled message is cancelled")
                    return
            await asyncio.sleep(0.2)

    # -- the end -----------------------------------------------------------------------------------------------------

    def unfinished(self) -> list[str]:
        sim, found = self.sim, []
        for number in sim.records:
            if not sim.served(number):
                found.append(f"chain {number} is not served: {sim.refusals.get(number)!r}")
                continue
            chain = sim.owners_of[number][0].host.chains[number]
            found += self.unfinished_of(chain) + _kept(chain)
        if self.repeated is not None:
            found += self.repeated.lacks()
        return found

    def _judged(self) -> list[str]:
        found = [
            f"fires once: {name} was published as {sorted(seen.ids)}"
            for name, seen in self.sim.by_id.items()
            if name and len(seen.ids) > 1
        ]
        for one in self.messages:
            # Of a message with a key others may have been scheduled, of the same text.
            seen = self.sim.by_id.get(one.id) if one.key and one.id else self.sim.by_data.get(one.data)
            copies = 0 if seen is None else len(seen.ids)
            name = f"{one.data.decode()} ({one.id or 'of unknown outcome'})"
            if copies > 1 and not one.key:
                found.append(f"fires once: {name} was published as {sorted(seen.ids) if seen else ()}")
            if one.id and one.cancelled is False and not copies:
                found.append(f"none is lost: {name} was not published")
            if one.cancelled is True and copies:
                found.append(f"cancelled never fires: {name} was cancelled, and published")
            if seen is not None and (seen.published_ns < one.due_ns or self._is_early(one.due_ns, seen.seen_ns)):
                early_s = (one.due_ns - min(seen.published_ns, seen.seen_ns)) / 1e9
                found.append(f"never early: {name} came {early_s:.3f} s early")
            if one.id and seen is not None and self.sim.by_id[one.id].ids != seen.ids:
                found.append(f"fires under its id: {name}")
        if self.repeated is not None and self.judges_times:
            found += self.repeated.judged()
        return [*found, *self._out_of_order()]

    def _is_early(self, due_ns: int, seen_ns: int) -> bool:
        return seen_ns + EARLY_NS + most_led_ns(self.sim.clocks.values(), seen_ns) < due_ns

    def _out_of_order(self) -> list[str]:
        """Check that two messages of a key, scheduled in one chain and published to one source, keep the order of their
        times.
        """
        found = []
        placed = [
            (one, parse_message_id(one.id).source, parse_message_id(next(iter(self.sim.by_id[one.id].ids))))
            for one in self.messages
            if one.key and one.id and self.sim.by_id[one.id].ids
        ]
        for first, waited, place in placed:
            for second, waited_too, place_too in placed:
                if first.due_ns >= second.due_ns or first.key != second.key or waited != waited_too:
                    continue
                if first.accepted_ns < first.due_ns and place.source == place_too.source:
                    self.sim.coverage.sometimes("two messages of a key are published in order")
                    if place.offset > place_too.offset:
                        found.append(f"in order: {second.data.decode()} came before {first.data.decode()}")
        return found


def run_scheduled(seed: int, *, trace: Trace | None = None, **wanted: Any) -> RunResult:
    """Run one seed. `shape` and `kinds` of faults, and whether turns are `full`, are drawn from it unless they are in
    `wanted`.
    """
    random = SeededRandom(seed * 13 + 1)
    shape = wanted.get("shape") or SHAPES[random.randrange(0, len(SHAPES))]
    kinds = wanted.get("kinds") or (KINDS if random.random() < 0.5 else ())
    full = wanted.get("full", "kinds" not in wanted and random.random() < 0.3)
    repeating = wanted.get("repeating", "kinds" not in wanted and random.random() < 0.4)

    def make(loop: ProcessLoop, clock: ManualClock) -> ScheduledRun:
        return ScheduledRun(WatchedChains(loop, clock, seed, shape, trace), seed, kinds, full=full, repeating=repeating)

    return simulate(seed, make, trace)


def _kept(chain: Chain) -> list[str]:
    """Nothing waits, and nothing that waited is kept."""
    forwarder = chain.forwarder
    found = [f"{len(forwarder.scheduled)} messages wait in chain {chain.number}"] if len(forwarder.scheduled) else []
    for source in forwarder.sources.of_topic(WAITING_TOPIC):
        bounds = forwarder.store.bounds(source.number)
        if bounds is not None and is_needed(forwarder, source.number, bounds[0], bounds[1] - bounds[0], 0):
            found.append(f"chain {chain.number} keeps {bounds} of source {source.number}, where nothing waits")
    return found


def _text(due_ns: int) -> str:
    moment = _EPOCH + timedelta(microseconds=due_ns // 1000)
    return moment.isoformat().replace("+00:00", "Z")

"""One seed of a node that consumes itself: it pushes, forwards, exports and redrives while it is killed.

Place: beside `pipeline_runs`, over the same simulated node, in which every subscription is fed directly. What is
consumed is in `consumed`, where it goes to in `consumer_ends`, letters are in `moved_letters`, ids and times in
`timed_ids`, forwards whose target changes in `redirected`. In some lives entries are full after two messages, while
requests of plain and scheduled messages come in one turn. The node loses its data folder now and then, and with it its
copy of the catalog.
"""

from __future__ import annotations

import asyncio
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from syncpoint.base.model.errors import SyncpointError
from syncpoint.base.runtime.child_processes import Apart
from syncpoint.base.runtime.clock import ManualClock
from syncpoint.base.runtime.random import SeededRandom
from syncpoint.broker.export.buckets import place_of
from syncpoint.broker.pipeline.home import HomeRecords
from syncpoint.broker.pipeline.mounting import ChainPipelines
from syncpoint.broker.publish.chain.chain import Chain
from syncpoint.broker.publish.commit import commit
from syncpoint.broker.publish.facts.message_ids import PUBLISHED
from syncpoint.broker.publish.intake import firing
from syncpoint.front.api import exports, options_admin
from syncpoint.node import client_port
from syncpoint.node.solo import own_chain
from syncpoint.node.solo.node import Node
from syncpoint.testing.rigs.history import MessageIdentity, Outcome, Publish, seal
from syncpoint.testing.simulation.api_clients import TOPIC
from syncpoint.testing.simulation.base import Trace
from syncpoint.testing.simulation.consumed import BUCKET, KINDS, PUSHED, Consumed
from syncpoint.testing.simulation.consumer_ends import ConsumerEnds
from syncpoint.testing.simulation.healing import Heal, altered
from syncpoint.testing.simulation.loop import ProcessLoop
from syncpoint.testing.simulation.moved_letters import MovedLetters
from syncpoint.testing.simulation.pipeline_faults import PipelineFaults
from syncpoint.testing.simulation.redirected import RedirectedForwards
from syncpoint.testing.simulation.run_checkers import first_comes_first
from syncpoint.testing.simulation.scaled import patched
from syncpoint.testing.simulation.sim_facts import FactsWatched
from syncpoint.testing.simulation.sim_runs import RunResult, SimRun, simulate
from syncpoint.testing.simulation.simulated_jobs import PipelineShape
from syncpoint.testing.simulation.simulated_node import NODE, SimulatedNode
from syncpoint.testing.simulation.timed_ids import AT, TimedIds, text_of
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import pubsub

CONSUMER_FAULTS = (
    "crash", "power cut", "power cut in a command", "stop", "hang", "connections broken", "disk fails", "disk slow",
    "disk hung", "folder lost", "crash at a refusal",
)  # fmt: skip
WITNESS = "witness"  # received as it is stored
DRAIN_S, PROMPT_S, LAST_S = 60.0, 40.0, 40.0


def run_consumers(
    seed: int, *, kinds: tuple[str, ...] = (), consumed: tuple[str, ...] = (), trace: Trace | None = None
) -> RunResult:
    """Run one seed. `kinds` of faults and what is `consumed` are drawn from it unless given."""

    def make(loop: ProcessLoop, clock: ManualClock) -> ConsumerRun:
        return ConsumerRun(ConsumingNode(loop, clock, seed, trace), seed, kinds, consumed)

    return simulate(seed, make, trace)


class ConsumingNode(SimulatedNode):
    """A node whose own consumers send to simulated ends."""

    def __init__(self, loop: ProcessLoop, clock: ManualClock, seed: int, trace: Trace | None) -> None:
        super().__init__(loop, clock, seed, PipelineShape(disks=1 if seed % 3 else 3, queries=(), small=False), trace)
        self.ends = ConsumerEnds(self, Path(self._folder.name) / "ends", seed)
        self.push_sender = self.ends
        self.on_refusal: Callable[[], None] | None = None  # called when a message was refused
        self.settings = replace(self.settings, buckets=((BUCKET, place_of(str(self.ends.bucket))),))

    def equip(self, node: Node) -> None:
        forwards, buckets = node.clients.port.consumption.forwards, node.clients.port.consumption.buckets
        forwards.forwarding = replace(forwards.forwarding, publish=self.ends.forwarding(forwards.forwarding.publish))
        buckets.blocking = self.ends.storing(buckets.blocking)

    async def _refuse(self, full: str, ack_id: str) -> None:
        await super()._refuse(full, ack_id)
        strike, self.on_refusal = self.on_refusal, None
        if strike is not None:
            strike()

    def lose_folder(self) -> None:
        """The data folder is gone; the disks are elsewhere."""
        shutil.rmtree(self.settings.data, ignore_errors=True)


class ConsumerFaults(PipelineFaults):
    """Inject faults of a node and its disks, including loss of its data folder."""

    def __init__(self, sim: ConsumingNode, seed: int, kinds: tuple[str, ...]) -> None:
        super().__init__(sim, seed, kinds or ("crash",))
        self._consuming = sim
        if not kinds:
            calm = self.random.random() < 0.2
            self.kinds = [kind for kind in CONSUMER_FAULTS if self.random.random() < 0.4 and not calm]

    def _folder_lost(self) -> Heal | None:
        heal = self._crash()
        if heal is not None:
            self._consuming.lose_folder()
        return heal

    def _crash_at_a_refusal(self) -> Heal:
        """Some calls to the disk after the next message was refused: a letter may be made just then."""
        sim, calls = self._consuming, self.random.randrange(0, 8)

        def strike() -> None:
            if sim.disks.alive:
                sim.disks.die_within(calls, power=False)

        return altered(sim, "on_refusal", strike, None)

    def heal(self) -> None:
        super().heal()
        self._consuming.on_refusal = None


class ConsumerRun(SimRun[ConsumingNode]):
    """Run one seed of a node with inner consumers.

    `full`: turns are given more than an entry holds; `keys`: of each client that publishes.
    """

    look_s = 0.5

    def __init__(self, sim: ConsumingNode, seed: int, kinds: tuple[str, ...], consumed: tuple[str, ...]) -> None:
        super().__init__(sim, seed, SeededRandom(seed * 7 + 9))
        self.faults = ConsumerFaults(sim, seed, kinds)
        self.full = self.random.random() < 0.3
        self.keys = ("", "k1", "k2", "k3", "k4") if self.random.random() < 0.25 else ("", "k1", "k2")
        chosen = consumed or tuple(kind for kind in KINDS if self.random.random() < 0.45)
        self.consumed = {
            kind: Consumed(sim, kind, seed, lambda: sim.lives, sim.ends.exported) for kind in KINDS if kind in chosen
        }
        if PUSHED in self.consumed:
            sim.ends.pushed = self.consumed[PUSHED].pushed
        drawn = self.random.random(), self.random.random()
        asked = not consumed
        self.letters = MovedLetters(sim, seed) if "letters" in consumed or (asked and drawn[0] < 0.35) else None
        self.ids = TimedIds(sim, seed, self._now_ns) if "ids" in consumed or (asked and drawn[1] < 0.35) else None
        redirects = SeededRandom(seed * 47 + 8).random() < 0.3  # drawn apart: other lives stay as they were
        self.redirected = RedirectedForwards(sim, seed) if "redirected" in consumed or (asked and redirects) else None
        sim.note(f"seed {seed}: {', '.join(self.consumed)}, faults: {', '.join(self.faults.kinds)}")

    def _now_ns(self) -> int:
        return self.sim.clock_of(NODE).time_ns()

    @property
    def _clients(self) -> list[Consumed | MovedLetters | TimedIds | RedirectedForwards]:
        return [*self.consumed.values(), *self._further]

    @property
    def _further(self) -> list[MovedLetters | TimedIds | RedirectedForwards]:
        return [one for one in (self.letters, self.ids, self.redirected) if one is not None]

    async def run(self) -> None:
        with self._small():
            await self._run()

    @contextmanager
    def _small(self) -> Iterator[None]:
        """Sizes and times that are smaller than in earnest, and a look at all that enters a log."""
        coverage = self.sim.coverage

        class WatchedPipelines(ChainPipelines):
            def __init__(self, chain: Chain, homes: HomeRecords, apart: Apart) -> None:
                FactsWatched(coverage, chain, numbered=False)
                super().__init__(chain, homes, apart)

        with ExitStack() as stack:
            stack.enter_context(patched(exports, _MAX_DURATION_S=(1, 600)))
            stack.enter_context(patched(options_admin, DUPLICATE_WINDOW_SECONDS_MIN=1))
            stack.enter_context(patched(firing, TURN_MESSAGES=2))
            stack.enter_context(patched(own_chain, ChainPipelines=WatchedPipelines))
            # Nobody calls over HTTP/1.1.
            stack.enter_context(patched(client_port, console_pages=lambda *_: [], client_http=lambda *_, **__: None))
            if self.full:
                stack.enter_context(patched(commit, ENTRY_MESSAGES_MAX=2))
            yield

    async def _run(self) -> None:
        sim = self.sim
        sim.begin()
        supervising = sim.loop.create_task(sim.supervise())
        await self.within([sim.create_topic(retention_s=86_400)], LAST_S)
        await self.within([sim.subscribe(WITNESS, ordered=True)], LAST_S)
        await self.within([one.begin() for one in self._clients], LAST_S)
        for receiving in (sim.consume(WITNESS, f"{WITNESS}-a"), *(one.consume() for one in self._clients)):
            self.start(receiving)
        living = [self.start(self._publish(f"p{n}", key)) for n, key in enumerate(self.keys)]
        living += [self.start(one.live(lambda: self.publishing)) for one in (*self._clients, sim.ends)]
        await self._go_wrong(1.5 + 3.5 * self.random.random())
        self.faults.heal()
        self.healed()
        await self.within(living, LAST_S)
        complaints = await self.drain(DRAIN_S)
        supervising.cancel()
        stored: dict[MessageIdentity, set[str]] = defaultdict(set)
        for one in sim.history.deliveries:
            if one.subscription == WITNESS and one.identity is not None:
                stored[one.identity].add(one.message_id)
        verdicts = [found for kind in self.consumed.values() for found in kind.judged(stored)]
        verdicts += [found for further in self._further for found in further.judged()]
        self.judge(complaints, PROMPT_S, first_comes_first(sim.history), *verdicts)
        await sim.close()

    async def _go_wrong(self, seconds: float) -> None:
        sim, end = self.sim, self.sim.loop.time() + seconds
        while sim.loop.time() < end:
            await asyncio.sleep(0.2 + self.random.random() ** 2 * 1.5)
            if self.faults.kinds:
                self.faults.strike(self.random)

    # -- who publishes -----------------------------------------------------------------------------------------------

    async def _publish(self, client: str, key: str) -> None:
        """Requests of one message or several; without a key some of them wait for their time."""
        number, random = 0, self.random
        while self.publishing:
            work = []
            for _ in range(1 + (3 if self.full and not key and random.random() < 0.5 else 0)):
                request, made = pubsub.PublishRequest(topic=TOPIC), []
                for _ in range(1 + (random.random() < 0.3) * random.randrange(1, 4)):
                    identity = MessageIdentity(client, number)
                    number += 1
                    made.append(self.sim.history.publishing(TOPIC, identity, key))
                    message = request.messages.add(data=seal(identity, bytes(40)), ordering_key=key)
                    message.attributes[PUBLISHED] = f"{client} {identity.number}"
                    if not key and random.random() < 0.15:
                        message.attributes[AT] = text_of(self._now_ns() + random.randrange(1, 9) * 100_000_000)
                work.append(self._send(request, made))
            await asyncio.gather(*work)
            await asyncio.sleep(random.random() ** 2 * 0.8)

    async def _send(self, request: pubsub.PublishRequest, made: list[Publish]) -> None:
        sim = self.sim
        for again in range(100):
            try:
                answer = await sim.call(methods.PUBLISHER.Publish, request)
            except SyncpointError as error:
                sim.note(f"{made[0].identity}: {error.code.name}")
                await asyncio.sleep(0.05 + 0.2 * self.random.random())
                continue
            sim.coverage.sometimes("a publish succeeds after a failure", again)
            ids = pubsub.PublishResponse.FromString(answer).message_ids
            for one, message_id in zip(made, ids, strict=True):
                sim.history.published(one, message_id)
                sim.published(one.identity, message_id)
            return
        for one in made:
            sim.history.end(one, Outcome.UNKNOWN)

    # -- the end -----------------------------------------------------------------------------------------------------

    def unfinished(self) -> list[str]:
        sim = self.sim
        if not sim.serving:
            return [f"the node does not serve: {sim.refusal!r}"]
        status = sim.life.node.log.store.status()
        found = [f"disk {disk.path} is {disk.state}: {disk.reason}" for disk in status.disks if disk.state != "ok"]
        if status.under_replicated or status.failure:
            found.append(f"{status.under_replicated} entries are on too few disks {status.failure}")
        found += self.owed()
        for one in self._clients:
            found += one.lacks() if not found else []
        return found

"""One seed of gateways in front of two sites that store the same: sites are lost, cut off, hang and come back.

Place: the shipped gateway, whole, over `imagined_site`, in simulated time. Clients know a gateway and nothing else:
they publish by key and without, receive, acknowledge at once or late, and refuse some. A site is killed, hangs, is cut
off or loses its disks, one at a time; it is masked and unmasked; a gateway dies and another one takes its place.
Judged, by `ledger`: what was answered is where the policy wants it, is never lost, and is at each site once; what was
confirmed as acknowledged does not come again; keys keep their order where no site was away.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import Callable, Coroutine, Mapping
from contextlib import ExitStack
from typing import Any

from syncpoint.base.model.errors import Code, SyncpointError, Unavailable
from syncpoint.base.runtime.clock import ManualClock
from syncpoint.base.runtime.random import SeededRandom
from syncpoint.front.gateway import dual_delivery, dual_publisher, site_fill
from syncpoint.front.gateway.gateway_driver import Gateway, SiteAccess
from syncpoint.front.gateway.gateway_file import Budget, DualTopics, GatewayFile, HealthSettings, SiteSpec
from syncpoint.front.gateway.site_fill import fill_of
from syncpoint.testing.rigs.simulated_loop import run_simulated
from syncpoint.testing.simulation.base import Trace
from syncpoint.testing.simulation.coverage import Coverage
from syncpoint.testing.simulation.gateway_ledger import GatewayLedger
from syncpoint.testing.simulation.imagined_site import ImaginedSite
from syncpoint.testing.simulation.scaled import patched
from syncpoint.testing.simulation.sim_runs import RunResult
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import pubsub
from syncpoint.wire.protobuf.status import ack_outcomes
from syncpoint.wire.transport.memory import Faults, MemoryChannel

TOPIC, SUBSCRIPTION = "projects/p/topics/orders", "projects/p/subscriptions/billing"
DEAD = "projects/p/topics/dead"
POISON = 9  # every ninth message is refused until it is a letter
ANSWERS = ("strict", "degrade", "available")
OUTAGES = ("killed", "hung", "cut", "empty")
GATEWAY_FAULTS = (*OUTAGES, "masked", "gateway", "losses")
KEYS = ("", "", "k1", "k2")
LEASE_S = 6  # of the gateway's own streams; a minute in earnest
HEAL_S, DRAIN_S = 30.0, 90.0


class GatewayLife:
    """One gateway, from its start until it dies."""

    def __init__(self, run: GatewayRun) -> None:
        file = run.file
        self.clients = Faults(run.random, delay_s_max=0.01)
        self.ways = {name: Faults(run.random, delay_s_max=0.02, loss=run.loss) for name in run.sites}
        self.gateway = Gateway(
            file, {name: SiteAccess(site.opens(self.ways[name])) for name, site in run.sites.items()}
        )
        self.methods = self.gateway.methods()
        self.channel = MemoryChannel(self.methods, self.clients)

    async def die(self) -> None:
        """kill -9: its connections end, on both sides."""
        for one in list(self.gateway.streams.open):
            one.finish(Unavailable("The connection was lost."))
        self.clients.cut = True
        await self.gateway.stop()


class GatewayRun:
    """The life of it."""

    def __init__(self, seed: int, answer: str | None, kinds: tuple[str, ...], trace: Trace | None) -> None:
        self.random, self.clock, self._trace = SeededRandom(seed * 5 + 2), ManualClock(), trace
        drawn = ANSWERS[self.random.randrange(0, len(ANSWERS))]
        calm = self.random.random() < 0.1
        some = tuple(kind for kind in GATEWAY_FAULTS if self.random.random() < 0.5 and not calm)
        self.answer, self.kinds = answer or drawn, kinds or some
        self.exactly_once = self.random.random() < 0.5
        self.loss = 0.02 if self.kinds == ("losses",) else 0.002 if "losses" in self.kinds else 0.0
        self.file = GatewayFile(
            sites=(SiteSpec("eu", "eu:1", weight=200), SiteSpec("us", "us:1")),
            health=HealthSettings(successes=3),
            budget=Budget(changes=1000),
            drain_s=3.0,
            dual=(DualTopics("projects/p/topics/*", self.answer),),
            lag=self.random.randrange(0, 3) * 2,
        )
        self.sites = {name: ImaginedSite(name, self.clock, self.random) for name in ("eu", "us")}
        self.coverage = Coverage()
        self.ledger = GatewayLedger(self.sites, self.answer, self.note)
        self.living, self.publishing = True, True
        self._identities = itertools.count()
        self._to_ack: dict[str, str] = {}
        self.lives: list[GatewayLife] = []
        self.clients: list[asyncio.Task[None]] = []

    def note(self, text: str) -> None:
        if self._trace is not None:
            self._trace(f"{self.clock.monotonic() - 1000:8.3f} {text}")

    # -- the life -----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """All of it."""
        self.note(f"{self.answer}, {', '.join(self.kinds) or 'calm'}, exactly once: {self.exactly_once}")
        with ExitStack() as stack:
            stack.enter_context(patched(dual_publisher, fresh_identity=lambda: f"{next(self._identities):08}"))
            stack.enter_context(patched(site_fill, LEASE_S=LEASE_S))
            stack.enter_context(patched(dual_delivery, LEASE_S=LEASE_S, EXTEND_S=LEASE_S / 3))
            await self._run()

    async def _run(self) -> None:
        await self._new_gateway()
        await self._insist(methods.PUBLISHER.CreateTopic, pubsub.Topic(name=TOPIC))
        await self._insist(methods.PUBLISHER.CreateTopic, pubsub.Topic(name=DEAD))
        record = pubsub.Subscription(
            dead_letter_policy={"dead_letter_topic": DEAD, "max_delivery_attempts": 2},
            name=SUBSCRIPTION, topic=TOPIC, enable_message_ordering=True, ack_deadline_seconds=10,
            enable_exactly_once_delivery=self.exactly_once,
        )  # fmt: skip
        await self._insist(methods.SUBSCRIBER.CreateSubscription, record)
        await self._until(self._prepared, HEAL_S)
        publishing = [self._start(self._publish(f"p{n}", key)) for n, key in enumerate(KEYS)]
        self._start(self._receive())
        self._start(self._acknowledge())
        end = self._now() + 8 + 12 * self.random.random()
        while self._now() < end:
            await asyncio.sleep(0.3 + 2.5 * self.random.random())
            if self.kinds:
                await self._go_wrong(self.kinds[self.random.randrange(0, len(self.kinds))])
        self.publishing = False
        for life in self.lives:
            for way in life.ways.values():
                way.loss = 0.0
        await self._in_time("sites come back", self._all_open, HEAL_S)
        await asyncio.wait(publishing, timeout=HEAL_S)
        self.coverage.always("publishers get on", all(one.done() for one in publishing))
        await self._in_time("all is delivered", lambda: not self.ledger.owed(), DRAIN_S)
        await self._in_time("sites agree", lambda: not self.ledger.apart(SUBSCRIPTION, DEAD), DRAIN_S)
        self.living = False
        await self._end()
        self.ledger.judge(TOPIC, DEAD)

    async def _end(self) -> None:
        for task in self.clients:
            task.cancel()
        results = await asyncio.gather(*self.clients, return_exceptions=True)
        for one in results:
            if isinstance(one, Exception):
                raise one
        for life in self.lives:
            await life.gateway.stop()

    async def _in_time(self, what: str, holds: Callable[[], bool], seconds: float) -> None:
        if not await self._until(holds, seconds):
            states = [life.gateway.status()["sites"] for life in self.lives]
            found = self.ledger.owed() or self.ledger.apart(SUBSCRIPTION, DEAD) or states
            self.coverage.always(what, False, f"{found}"[:400])

    async def _until(self, holds: Callable[[], bool], seconds: float) -> bool:
        end = self._now() + seconds
        while not (found := holds()) and self._now() < end:
            await asyncio.sleep(0.5)
        return found

    def _prepared(self) -> bool:
        """Whether both sites have all, and keep it for the other one: also letters, which no client publishes."""
        wanted = {fill_of(DEAD), fill_of(TOPIC), SUBSCRIPTION}
        return all(wanted <= site.subscriptions.keys() for site in self.sites.values())

    def _all_open(self) -> bool:
        """Whether all is well; who masked a site takes the mask away."""
        found = True
        for life in self.lives:
            for site in life.gateway.board.sites.values():
                found = found and not site.masked
                if site.masked == "command" and not site.held:
                    self._try(lambda life=life, site=site: life.gateway.unmask(site.name))  # type: ignore[misc]
        return found

    def _try(self, act: Callable[[], None]) -> bool:
        try:
            act()
        except SyncpointError as error:
            self.note(f"operator: {error.message}")
            return False
        return True

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self.clients.append(task)
        return task

    async def _new_gateway(self) -> None:
        life = GatewayLife(self)
        self.lives.append(life)
        await life.gateway.start()

    # -- what goes wrong ----------------------------------------------------------------------------------------------

    async def _go_wrong(self, kind: str) -> None:
        names = list(self.sites)
        name = names[self.random.randrange(0, 2)]
        site, seconds = self.sites[name], 0.2 + 5 * self.random.random() ** 2
        if kind in ("empty", "gateway") and not (self._all_open() and self._prepared()):
            return  # what the only site that takes calls has lost, and what a new gateway does not find, is gone
        self.coverage.sometimes(f"fault: {kind}")
        self.note(f"fault: {kind} {name} for {seconds:.1f} s")
        if kind in OUTAGES:
            self.ledger.away = True
        if kind in ("killed", "empty"):
            site.kill()
            await asyncio.sleep(seconds)
            if kind == "empty":
                self.ledger.loses(site, SUBSCRIPTION)
                site.lose_disks()
            site.alive = True
        elif kind == "hung":
            site.hung = True
            await asyncio.sleep(seconds)
            site.wake()
        elif kind == "cut":
            self._cut(name, True)
            await asyncio.sleep(seconds)
            self._cut(name, False)
        elif kind == "masked":
            await self._masked(name, seconds)
        elif kind == "gateway":
            await self._another_gateway(seconds)
        self.note(f"{kind} {name} is over")
        if kind in OUTAGES and (kind == "empty" or self.random.random() < 0.6):
            await self._until(self._all_open, seconds=10.0)

    def _cut(self, name: str, cut: bool) -> None:
        for life in self.lives:
            life.ways[name].cut = cut

    async def _masked(self, name: str, seconds: float) -> None:
        self.ledger.away = True
        life = self.lives[-1]
        if self._try(lambda: life.gateway.mask(name)):
            await asyncio.sleep(seconds)

    async def _another_gateway(self, seconds: float) -> None:
        self.ledger.forgetful = True
        await self.lives.pop().die()
        await asyncio.sleep(seconds / 4)
        await self._new_gateway()

    # -- clients ------------------------------------------------------------------------------------------------------

    @property
    def _channel(self) -> MemoryChannel | None:
        return self.lives[-1].channel if self.lives else None

    async def _call(self, method: methods.Method, request: Any, timeout_s: float = 10.0) -> Any:
        while (channel := self._channel) is None:
            await asyncio.sleep(0.1)
        return method.response.FromString(await channel.unary(method, request.SerializeToString(), timeout=timeout_s))

    async def _insist(self, method: methods.Method, request: Any) -> None:
        while True:
            try:
                await self._call(method, request)
                return
            except SyncpointError as error:
                if error.code.name == "ALREADY_EXISTS":
                    return
                await asyncio.sleep(0.2)

    async def _publish(self, client: str, key: str) -> None:
        for number in itertools.count():
            if not self.publishing:
                return
            data = [f"{client}.{number}.{at}" for at in range(1 + self.random.randrange(0, 6) // 4)]
            messages = [pubsub.PubsubMessage(data=one.encode(), ordering_key=key) for one in data]
            request = pubsub.PublishRequest(topic=TOPIC, messages=messages)
            begun = self._now()
            self.ledger.publishing(data, key, begun)
            while self.living:
                try:
                    await self._call(methods.PUBLISHER.Publish, request, (1.0, 10.0)[self.random.randrange(0, 2)])
                except SyncpointError as error:
                    self.note(f"{data} not published: {error.code.name}")
                    self.coverage.sometimes("a publish is not confirmed")
                    if error.code is Code.DEADLINE_EXCEEDED:  # the gateway may have answered, and knows no doubt
                        self.ledger.overdue.update(data)
                    await asyncio.sleep(0.1 + 0.2 * self.random.random())
                else:
                    self.ledger.confirmed(data, self._reached(begun))
                    self.note(f"{data} published")
                    break
            await asyncio.sleep(0.02 + 0.8 * self.random.random() ** 2)

    def _reached(self, begun: float) -> list[str]:
        """The sites that took calls at the newest gateway ever since."""
        board = self.lives[-1].gateway.board if self.lives else None
        states = board.sites.values() if board is not None else ()
        return [one.name for one in states if not one.masked and (not one.changes or one.since < begun)]

    async def _receive(self) -> None:
        opening = pubsub.StreamingPullRequest(subscription=SUBSCRIPTION, stream_ack_deadline_seconds=10)
        while self.living:
            channel = self._channel
            try:
                if channel is not None:
                    stream = channel.stream(methods.SUBSCRIBER.StreamingPull)
                    await stream.send(opening.SerializeToString())
                    while (response := await stream.receive()) is not None:
                        for one in pubsub.StreamingPullResponse.FromString(response).received_messages:
                            self._received(one)
            except SyncpointError as error:
                self.note(f"the stream ends: {error.code.name}")
                self.coverage.sometimes("a stream ends")
            await asyncio.sleep(0.05 + 0.2 * self.random.random())

    def _received(self, one: Any) -> None:
        data = one.message.data.decode()
        self.note(f"{data} received as {one.ack_id[:16]}")
        self.ledger.received(data, self._now(), self.coverage)
        self._start(self._done_with(data, one.ack_id))

    async def _done_with(self, data: str, ack_id: str) -> None:
        await asyncio.sleep(2.0 * self.random.random() ** 4)
        poison = int(data.split(".")[1]) % POISON == POISON - 1
        if poison or (self.publishing and self.random.random() < 0.08):
            self.coverage.sometimes("a message is refused")
            nack = pubsub.ModifyAckDeadlineRequest(subscription=SUBSCRIPTION, ack_ids=[ack_id], ack_deadline_seconds=0)
            try:
                await self._call(methods.SUBSCRIBER.ModifyAckDeadline, nack)
            except SyncpointError as error:
                self.note(f"{data} not refused: {error.code.name}")
            return
        self._to_ack[ack_id] = data

    async def _acknowledge(self) -> None:
        """Several at once, as official clients do."""
        while True:
            await asyncio.sleep(0.05)
            some, self._to_ack = self._to_ack, {}
            if some:
                self._start(self._acknowledge_some(some))

    async def _acknowledge_some(self, some: dict[str, str]) -> None:
        ack = pubsub.AcknowledgeRequest(subscription=SUBSCRIPTION, ack_ids=list(some))
        failed: Mapping[str, str] = {}
        try:
            await self._call(methods.SUBSCRIBER.Acknowledge, ack)
        except SyncpointError as error:
            failed = ack_outcomes(error) or some
            self.note(f"{[some[one] for one in failed]} not acknowledged: {error.code.name}")
            self.coverage.sometimes("an acknowledgement is not confirmed")
            self.coverage.sometimes("some acknowledgements of a request are confirmed", len(failed) < len(some))
        for ack_id, data in some.items():
            if ack_id not in failed:
                self.note(f"{data} acknowledged")
                self.ledger.acknowledged(data, self._now(), exactly=self.exactly_once)


def run_gateways(
    seed: int,
    *,
    shape: str | None = None,
    kinds: tuple[str, ...] = (),
    beyond: bool = False,
    trace: Trace | None = None,
) -> RunResult:
    """Run one seed. `shape`: what publishers wait for, one of `ANSWERS`; `kinds` of faults. Drawn unless given."""
    begun = time.monotonic()
    if trace is None:
        logging.disable(logging.CRITICAL)
    life = GatewayRun(seed, shape, kinds, trace)
    try:
        run_simulated(life.clock, life.run())
    finally:
        if trace is None:
            logging.disable(logging.NOTSET)
    virtual_s = life.clock.monotonic() - 1000
    violations = life.coverage.violations + life.ledger.violations
    return RunResult(
        seed, violations, life.coverage.happened, life.ledger.looked, life.ledger.digest, 0, virtual_s,
        time.monotonic() - begun, life.ledger.counts(),
    )  # fmt: skip

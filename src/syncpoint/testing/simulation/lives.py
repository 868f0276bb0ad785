"""What happens in a small life that is no fault: who publishes, which subscriptions there are and what is done to them.

Place: between `chain_runs`, which says when, and `clients`, which says how. All of it is drawn from the seed.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

from syncpoint.base.runtime.random import Random
from syncpoint.catalog.metadata.entity_options import SubscriptionOptions
from syncpoint.catalog.metadata.records import CatalogChange, DeadLetter, Retry
from syncpoint.testing.rigs.history import MessageIdentity
from syncpoint.testing.simulation.clients import Clients, Messages
from syncpoint.testing.simulation.simulated_chains import SimulatedChains
from syncpoint.testing.simulation.topology import BRIEF, BURIED, DEAD, DROPPED, FLEETING, PATIENT, TOPIC

Life = Coroutine[Any, Any, None]
DOOMED = "projects/p/subscriptions/doomed"
SEEKS_MAX, MOVES_MAX = 3, 20
LIVE_S = 4
REST_S = 9.0
BAD_MOMENT_S = 2.0
EMPTY_S = 8.0  # how long it may take until nothing is stored of a topic that everybody has acknowledged


class Lives:
    """The clients and events of one seed.

    `slow`: factor by which the run lasts longer, with fewer events per second. `sane`: no clock is far off, so that
    times order the publishes.
    """

    def __init__(self, sim: SimulatedChains, clients: Clients, random: Random, slow: float, *, sane: bool) -> None:
        self.sim, self.clients, self.random, self.slow, self.sane = sim, clients, random, slow, sane
        self.publishing: Callable[[], bool] = lambda: True
        self.seeking = random.random() < 0.5
        sim.keeps = self.seeking and random.random() < 0.6  # what is acknowledged, so that it can be reset
        self.snapping = random.random() < 0.4
        self.moving = random.random() < (0.7 if sim.shape.chains > 1 else 0.3)
        self.burying = random.random() < 0.15
        self.brief = random.random() < 0.2 or sim.shape.sealing
        self.resting = slow > 2 and random.random() < 0.6  # nobody publishes for a while: the topic runs empty
        self.moving = self.moving or sim.shape.strict
        self.burying = self.burying or sim.shape.expiring
        if sim.shape.seeking:
            self.seeking, sim.keeps, self.snapping = True, False, False
        if sim.shape.emptying:
            self.seeking = True
            self.burying = sim.keeps = self.snapping = self.resting = False
        self._senders = 0
        self._rests_until = 0.0

    def _chance(self, chance: float) -> bool:
        return self.random.random() < chance

    async def begin(self) -> None:
        """What there is before anything goes wrong. In a client."""
        sim = self.sim
        if not sim.keeps:
            sim.commit(CatalogChange.put(replace(sim.topic(TOPIC), retention_s=0)))
        if self.burying:
            await self.clients.bury_here()

    def subscriptions(self) -> list[tuple[str, dict[str, Any]]]:
        """Two or three, so that lives stay cheap."""
        kinds: list[tuple[str, dict[str, Any]]] = [
            ("plain", {}),
            ("ordered", {"ordered": True}),
            ("once", {"exactly_once": True}),
        ]
        found: list[tuple[str, dict[str, Any]]] = []
        if self.sim.shape.strict:
            return kinds[1:]
        if self.burying:
            retry = Retry(0.1, 0.5) if self._chance(0.5) else None
            found.append((DOOMED, {"dead_letter": DeadLetter(DEAD, 5), "retry": retry, "ordered": self._chance(0.2)}))
        # Where two forwarders share chains, keys that moved wait for what the other one has lent of the epoch before.
        alone = self.sim.shape.subscribers == 1 or self.sim.shape.chains == 1
        stays = not self.sim.shape.emptying and not self.sim.shape.absent
        if self._chance(0.25) and alone and stays:
            found.append((PATIENT, {"ordered": True}))
        if not found and self._chance(0.4):
            return kinds
        first = self.random.randrange(0, 3)
        return found + [kinds[first], kinds[(first + 1) % 3]][: max(1, 2 - len(found))]

    def all(self) -> list[Life]:
        """What goes on while things go wrong."""
        keys = ["", "k1", "k2"][: 2 + self._chance(0.5)]
        lives: list[Life] = [self._publish(f"p{number}", key) for number, key in enumerate(keys)]
        living = [name for name, _ in self._begun if name not in (PATIENT, DOOMED)]
        picked = living[self.random.randrange(0, len(living))] if living else ""
        late = {"ordered": self._chance(0.3), "exactly_once": self._chance(0.3)}
        lives.append(self._late(late, operate=self._chance(0.6) or self.sim.shape.seeking))
        if self.sim.shape.emptying:
            lives.append(self._purge(picked))
        elif picked and (self.seeking or self.snapping):
            lives.append(self._operate(picked))
        if self.moving:
            lives.append(self._move())
        if self.sim.shape.absent:
            lives.append(self._wander())
        if self.resting:
            lives.append(self._rest())
        if self.brief:
            lives.append(self._recreate())
        if self.sim.shape.expiring:
            lives.append(self._expire())
        return lives

    @property
    def _begun(self) -> list[tuple[str, object]]:
        return [(one.subscription, one) for one in self.sim.history.creations if one.topic == TOPIC and not one.until]

    # -- publishing --------------------------------------------------------------------------------------------------

    async def _publish(self, client: str, key: str) -> None:
        self._senders += 1
        number, sender = 0, self._senders
        while self.publishing():
            sizes = [self._size() for _ in range(1 if self._chance(0.8) else 2 + self.random.randrange(0, 5))]
            await self.clients.publish(Messages(client, number, key, sender, sizes), 20.0)
            number += len(sizes)
            await asyncio.sleep(self.random.random() ** 3 * 0.36 * self.slow)
            while self.publishing() and self.sim.loop.time() < self._rests_until:
                await asyncio.sleep(0.1)

    def _size(self) -> int:
        if self.sim.shape.heavy:
            return self.random.randrange(0, 40_000)
        return 40 if self._chance(0.8) else self.random.randrange(0, 6000)

    # -- subscriptions -----------------------------------------------------------------------------------------------

    async def _late(self, options: dict[str, Any], *, operate: bool) -> None:
        """One is created in the middle of it all, and perhaps reset, to what is older than itself for one."""
        await asyncio.sleep(self.random.random() * 2 * self.slow)
        await self.clients.subscribe("late", **options)
        if operate and (self.seeking or self.snapping):
            await self._operate("late")
        elif self._chance(0.15):
            await asyncio.sleep(self.random.random() * self.slow)
            self.clients.unsubscribe("late")

    async def _operate(self, name: str) -> None:
        """Do to a subscription what can be done to one."""
        for _ in range(1 + self.random.randrange(0, SEEKS_MAX)):
            await asyncio.sleep((0.1 + 1.5 * self.random.random() ** 2) * self.slow)
            if self.snapping and self._chance(0.5):
                await self.clients.snapshot(name)
            if self._chance(0.2):
                retry = Retry(0.05, 0.4) if self._chance(0.5) else None
                self.clients.update(name, ack_deadline_s=10 + self.random.randrange(0, 50), retry=retry)
            if self.seeking or (self.clients.snapshots and self._chance(0.5)):
                await self._seek(name)

    async def _seek(self, name: str) -> None:
        """To any snapshot of the topic, to the beginning, to some time, or past everything."""
        if self.sim.shape.seeking:
            await self._bad_moment()
        snapshots = self.clients.snapshots
        if snapshots and (not self.seeking or self._chance(0.5)):
            await self.clients.seek(name, snapshots[self.random.randrange(0, len(snapshots))])
            return
        kind, now_ns = self.random.random(), self.sim.clock.time_ns()
        if kind < 0.3 and self.sim.times and self.sane:
            times = sorted(self.sim.times.values())
            await self.clients.seek(name, time_ns=times[self.random.randrange(0, len(times))])
        elif kind < 0.55 and self.sane:
            await self.clients.seek(name, time_ns=now_ns + 86_400 * 10**9)
        else:
            await self.clients.seek(name)

    async def _wander(self) -> None:
        """Clients leave one forwarder and come to another, at the end for good."""
        while self.publishing():
            await asyncio.sleep(0.5 + 2 * self.random.random())
            await self._bad_moment()
            self.sim.turn += 1

    async def _bad_moment(self) -> None:
        """Wait, not for long, until somebody decides what it cannot write down."""
        end = self.sim.loop.time() + BAD_MOMENT_S
        while self.publishing() and not self.sim.held_up and self.sim.loop.time() < end:
            await asyncio.sleep(0.02)
        await asyncio.sleep(0.2 * self.random.random())

    async def _rest(self) -> None:
        """Nobody publishes for so long that nothing of the topic is left, unless it is kept."""
        while self.publishing():
            await asyncio.sleep((0.3 + self.random.random()) * self.slow)
            self._rests_until = self.sim.loop.time() + 1.0 + self.random.random() * REST_S
            await asyncio.sleep(self._rests_until - self.sim.loop.time())

    async def _purge(self, name: str) -> None:
        """Again and again everything is acknowledged and nothing of the topic is stored; then it is reset, and
        published to anew.
        """
        loop, sim = self.sim.loop, self.sim
        while self.publishing():
            await asyncio.sleep(0.2 + self.random.random())
            self._rests_until = math.inf
            if self._chance(0.5):  # a new epoch: what is stored will not be added to
                sim.assign(sim.assignment.chains)
            end = loop.time() + EMPTY_S
            while self.publishing() and sim.stored(TOPIC) and loop.time() < end:
                await asyncio.sleep(0.05)
            if self._chance(0.5):
                await asyncio.sleep(self.random.random() ** 2 * 5.0)
            if self.publishing() and self._chance(0.8):
                sim.coverage.sometimes("a topic is reset of which nothing is stored", not sim.stored(TOPIC))
                await self._seek(name)
            self._rests_until = 0.0

    # -- topics ------------------------------------------------------------------------------------------------------

    async def _move(self) -> None:
        """The keys go to other chains, or a new epoch begins with the same ones."""
        chains = sorted(self.sim.records)
        for _ in range(MOVES_MAX if self.sim.shape.strict else 1 + self.random.randrange(0, 3)):
            await asyncio.sleep((0.2 + self.random.random()) * self.slow)
            if not self.publishing():
                return
            chosen = tuple(one for one in chains if self._chance(0.6)) or (chains[-1],)
            self.sim.coverage.sometimes("keys move to other chains", chosen != self.sim.assignment.chains)
            self.sim.assign(chosen)

    async def _expire(self) -> None:
        """Messages that live for some seconds, by the times of their subscriptions or one of their own."""
        sim = self.sim
        topic, number = self.clients.create_topic(FLEETING), 0
        self._senders += 1
        sender, limit = self._senders, SubscriptionOptions(ttl_s=LIVE_S)
        burying = limit._replace(dead_letter_expired=True)
        letters = DeadLetter(DEAD, 100)
        await self.clients.subscribe(BURIED, topic, FLEETING, exactly_once=True, options=burying, dead_letter=letters)
        await self.clients.subscribe(DROPPED, topic, FLEETING, options=limit)
        self.clients.owe_nothing(BURIED)
        self.clients.owe_nothing(DROPPED)
        while self.publishing():
            own = self._chance(0.7)
            some = Messages(
                "pf", number, "", sender, [40], FLEETING, FLEETING, {"sys.TimeToLive": "0:0:1"} if own else {}
            )
            sim.moments.fleeting[MessageIdentity("pf", number)] = sim.now, 1.0 if own else float(LIVE_S)
            await self.clients.publish(some, 8.0)
            number += 1
            await asyncio.sleep(self.random.random() ** 2 * 0.2 * self.slow)

    async def _recreate(self) -> None:
        """A topic comes, is published to, goes, and comes again by the same name."""
        self._senders += 1
        sender, number = self._senders, 0
        lives = (1 if not self.sim.shape.sealing else 4) + self.random.randrange(0, 3)
        flying: list[asyncio.Task[None]] = []
        for life in range(lives):
            topic = self.clients.create_topic(BRIEF)
            judged_as, name = f"{BRIEF}#{topic.incarnation}", f"brief{life}"
            await self.clients.subscribe(name, topic, judged_as, exactly_once=self._chance(0.3))
            for _ in range(1 + self.random.randrange(0, 6)):
                some = Messages("pb", number, "", sender, [40] * (1 + self.random.randrange(0, 2)), BRIEF, judged_as)
                await self.clients.publish(some, 8.0)
                number += len(some.sizes)
                await asyncio.sleep(self.random.random() ** 2 * 0.3 * self.slow)
            if life < lives - 1:
                if self.sim.shape.sealing:  # under way when the topic goes
                    some = Messages("pb", number, "", sender, [40], BRIEF, judged_as)
                    flying.append(self.sim.client.start(self.clients.publish(some, 4.0)))
                    number += 1
                    await asyncio.sleep(self.random.random() ** 2 * 0.01)
                self.clients.delete_topic(topic, [name])
                await asyncio.sleep(self.random.random() ** 3 * self.slow)
        for task in flying:
            await task

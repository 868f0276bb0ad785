"""What chains know of acknowledgements, and a plain model of it: state, owners that come and go, and the judge. Steps
are in `ledger_model`."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, NamedTuple

from syncpoint.base.model.lanes import in_lane, place_in
from syncpoint.catalog.metadata.records import (
    ACTIVE,
    CREATING,
    CatalogChange,
    Subscription,
)
from tests.kit.chain import ChainHarness, Process

NS = 10**9
HOUR, DAY = 3_600, 86_400
SLACK_S = 60  # so near to the end of a retention nothing is expected
NAME = "projects/p/topics/orders"


class Message(NamedTuple):
    index: int  # in the order of publishing
    topic: int
    chain: int
    source: int
    offset: int
    time_ns: int  # not before the message's own, and before that of any later one
    lane: int = 0  # which copy of it

    @property
    def place(self) -> int:
        return in_lane(self.lane, self.offset)


@dataclass
class Left:
    """Of one chain, what a subscription has not acknowledged, or what a snapshot has kept as such."""

    must: set[Message] = field(default_factory=set)
    may: set[Message] = field(default_factory=set)
    renewed_ns: int = 0

    def copy(self) -> Left:
        return Left(set(self.must), set(self.may), self.renewed_ns)

    def or_else(self, other: Left) -> None:
        """It is not known which of the two it is."""
        self.must &= other.must
        self.may |= other.may
        self.renewed_ns = min(self.renewed_ns, other.renewed_ns)


class Lane(NamedTuple):
    """`begins`, `ends`: indices of the first message that is its own, and of the first that is no more."""

    begins: int = 0
    ends: int = 1 << 60
    copy_of: tuple[int, ...] = ()

    def has(self, one: Message) -> bool:
        return self.begins <= one.index < self.ends


@dataclass
class Sub:
    number: int
    topic: int
    begins: int  # index of the first message that is its own
    retain_acked: bool
    retention_s: int
    generation: int = 0
    left: dict[int, Left] = field(default_factory=dict)  # by chain
    followed: dict[int, int] = field(default_factory=dict)  # by chain: generation that its owner knew last
    gone: bool = False
    lanes: dict[int, Lane] = field(default_factory=lambda: {0: Lane()})
    known_copies: set[int] = field(default_factory=set)

    def copies(self, messages: Iterable[Message]) -> set[Message]:
        """All that its rules make of some messages."""
        lanes = self.lanes.items()
        return {one._replace(lane=number) for one in messages for number, lane in lanes if lane.has(one)}


@dataclass
class Snap:
    number: int
    topic: int
    of: Sub
    generation: int
    lanes: dict[int, Lane]
    left: dict[int, Left] = field(default_factory=dict)
    finished: bool = False


Waiting = Callable[[int, set[Message]], None]
"""What an owner does when it opens a chain, which has these messages."""


class Comparison:
    """Chains with owners, and for each subscription and snapshot what must and may be left in them. `trace`: reported
    every step. `ruled`: rules change often, mostly for what comes.
    """

    def __init__(
        self,
        harness: ChainHarness,
        seed: int,
        trace: Callable[[str], object] = lambda text: None,
        *,
        ruled: bool = False,
    ) -> None:
        self.ruled = ruled
        self.harness, self.random, self.trace = harness, random.Random(seed), trace
        self.numbers, self.names = count(100), count(1)
        self.chains = [1, 2][: self.random.choice([1, 2, 2])]
        self.owners: dict[int, Process] = {}
        self.messages: dict[tuple[int, int], list[Message]] = {}  # by chain and source, in order of offsets
        self.published = 0
        self.subs: dict[int, Sub] = {}
        self.snaps: dict[int, Snap] = {}
        self.waiting: dict[int, list[Waiting]] = {chain: [] for chain in self.chains}
        self.confirmed = 0  # the revision that every chain has confirmed
        self.forgotten: dict[int, set[int]] = {chain: set() for chain in self.chains}  # and that is persisted
        self.topic, self.retention_s = 1, {1: 0}
        self.rules = self.random.random() < 0.5 or ruled  # whether subscriptions have rules
        self.forgotten_lanes = 0

    # -- owners ------------------------------------------------------------------------------------------------------

    async def open(self, chain: int) -> None:
        process = self.harness.process(f"f{next(self.names)}")
        await process.open(chain)
        stored = self.stored_of(chain, process)
        self.owners[chain] = process
        waiting, self.waiting[chain] = self.waiting[chain], []
        for one in waiting:
            one(chain, stored)
        for sub in self.subs.values():
            sub.followed[chain] = sub.generation
        if self.random.random() < 0.3:  # files are deleted later than they might be
            process.maintainers_rest = True
        self.trace(f"chain {chain} is opened by {process.name}, with {len(stored)} messages")
        table = process.host.chains[chain].forwarder.sources
        assert not self.forgotten[chain] & set(table.by_number), "a forgotten source is back"

    async def lose(self) -> None:
        """A chain has no owner for a while."""
        if self.owners:
            await self._lose(self.random.choice(list(self.owners)))

    async def _lose(self, chain: int) -> None:
        process = self.owners.pop(chain)
        owned = process.host.chains[chain]
        how = self.random.choice(["close", "checkpoint", "crash", "crash at once"])
        if how != "crash at once":
            gone = set(owned.forwarder.sources.gone)
            await self.quiesce(process, chain)
            self.forgotten[chain] |= gone
        if how == "checkpoint":
            owned.upkeep.last_checkpoint()
            await owned.confirm()
        if how == "close":
            await process.host.close(chain)
        await process.crash()
        self.trace(f"chain {chain} is lost: {how}")

    async def adopt(self) -> None:
        for chain in self.chains:
            if chain not in self.owners and self.random.random() < 0.7:
                await self.open(chain)

    async def hand_over(self) -> None:
        if self.owners:
            chain = self.random.choice(list(self.owners))
            await self._lose(chain)
            await self.open(chain)

    async def checkpoint(self) -> None:
        """One is written while other steps are done."""
        for process in self.owners.values():
            for chain in process.host.chains.values():
                chain.upkeep.overdue = True

    async def quiesce(self, process: Process, chain: int) -> None:
        await asyncio.sleep(0.02)
        await process.host.chains[chain].confirm()

    async def confirm(self) -> None:
        """As the control plane does it, when every chain can say that it has followed."""
        if len(self.owners) < len(self.chains):
            return
        for chain, process in self.owners.items():
            await process.host.confirm(chain, self.topic, self.harness.master.revision)
        self.confirmed = self.harness.master.revision
        for sub in self.subs.values():
            if self.record(sub).state == CREATING:
                self.put(sub, state=ACTIVE)
        for snap in self.snaps.values():
            if not snap.finished:
                made = self.harness.master.snapshot_by_incarnation(snap.number)
                assert made is not None
                self.harness.commit(CatalogChange.put(replace(made, status=ACTIVE)))
                snap.finished = True

    def follow(self, act: Waiting) -> None:
        """Owners have followed what was just committed; chains without one follow it when they have one again."""
        for chain in self.chains:
            if chain in self.owners:
                act(chain, self.stored_of(chain, self.owners[chain]))
            else:
                self.waiting[chain].append(act)

    # -- what is kept ------------------------------------------------------------------------------------------------

    def a_retention(self) -> int:
        return self.random.choice([HOUR, DAY, 7 * DAY, 7 * DAY])

    def record(self, sub: Sub) -> Subscription:
        found = self.harness.master.subscription_by_incarnation(sub.number)
        assert found is not None
        return found

    def put(self, sub: Sub, **more: Any) -> None:
        self.harness.commit(CatalogChange.put(replace(self.record(sub), **more)))

    def note_followed(self, sub: Sub) -> None:
        for chain in self.owners:
            sub.followed[chain] = sub.generation

    def is_retained(self, sub: Sub, one: Message, slack_s: int) -> bool:
        """Whether a message is there for a seek of the subscription although it was acknowledged."""
        age_ns = self.harness.clock.time_ns() - one.time_ns
        own = sub.retain_acked and one.index >= sub.begins and age_ns < (sub.retention_s - slack_s) * NS
        kept_s = self.retention_s[sub.topic]
        return own or (kept_s > 0 and age_ns < (kept_s - slack_s) * NS)

    def expire(self) -> None:
        """What has outlived its retention may be gone any time, whatever is said later."""
        for sub in self.subs.values():
            for left in sub.left.values():
                left.must -= {one for one in left.must if self.is_over(sub, left, one)}

    def is_over(self, sub: Sub, left: Left, one: Message) -> bool:
        """Whether a message has outlived what keeps it unacknowledged for a subscription."""
        now = self.harness.clock.time_ns()
        age_ns = now - one.time_ns
        own = min(age_ns, now - left.renewed_ns) < (sub.retention_s - SLACK_S) * NS
        return not own and age_ns >= (self.retention_s[sub.topic] - SLACK_S) * NS

    def stored_of(self, chain: int, process: Process) -> set[Message]:
        owned = process.host.chains[chain]
        found: set[Message] = set()
        for (of, source), known in self.messages.items():
            bounds = owned.store.bounds(source)
            if of == chain and bounds is not None and source in owned.forwarder.sources.by_number:
                found.update(known[bounds[0] : bounds[1]])
        return found

    # -- the judge ---------------------------------------------------------------------------------------------------

    async def check(self, when: str) -> None:
        for chain, process in list(self.owners.items()):
            assert chain in process.host.chains, f"{when}: chain {chain} has ended: {process.ended}"
            await self.quiesce(process, chain)
        self.expire()
        for chain, process in self.owners.items():
            for sub in self.subs.values():
                live = await self.live(chain, process, sub, when)
                left = sub.left.setdefault(chain, Left())
                self.compare(live, left, f"{when}: subscription {sub.number} in chain {chain}")
                # What was open is known now; but what was passed over for its age may be back if it is kept for longer.
                known = left.may - left.must
                left.may -= {one for one in known - live if not self.is_over(sub, left, one)}
                left.must |= known & live
        self.expire()

    async def live(self, chain: int, process: Process, sub: Sub, when: str) -> set[Message]:
        """What the chain would deliver."""
        forwarder = process.host.chains[chain].forwarder
        stored = sub.copies(one for one in self.stored_of(chain, process) if one.topic == sub.topic)
        ledger = forwarder.ledgers.get(sub.number)
        if ledger is None:
            assert not stored, f"{when}: subscription {sub.number} has no ledger in chain {chain}"
            return set()
        known = sub.generation
        assert ledger.generation == known, f"{when}: {sub.number} is of generation {ledger.generation}, not {known}"
        assert set(ledger.lane_numbers) == set(sub.lanes), f"{when}: {sub.number} has lanes {ledger.lanes}"
        every = {
            one._replace(lane=lane)
            for one in self.stored_of(chain, process)
            for lane in sub.lanes
            if one.topic == sub.topic
        }
        live = {one for one in every if ledger.first_gap(one.source, one.place) == one.place}
        if self.random.random() < 0.2:
            reached = set()
            for source, lane in {(one.source, lane) for one in stored for lane in sub.lanes}:
                offsets = await self.reached(process, chain, sub.number, source, lane)
                held = self.messages[chain, source]
                reached |= {held[offset]._replace(lane=lane) for offset in offsets}
            assert reached <= live, f"{when}: {sub.number} is handed {brief(reached - live)}, not among what is left"
            return reached
        return live

    async def reached(self, process: Process, chain: int, subscription: int, source: int, lane: int) -> list[int]:
        forwarder, begin = process.host.chains[chain].forwarder, in_lane(lane, 0)
        found: list[int] = []
        while True:
            answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            forwarder.server.fetch(subscription, source, begin, 1 << 20, answer.set_result)
            batches = await asyncio.wait_for(answer, 30)
            assert not isinstance(batches, Exception), batches
            if not batches:
                return found
            for batch in batches:
                for offset in range(batch.begin, batch.end):
                    at = offset - batch.first_offset
                    if not (batch.skip and batch.skip[at >> 3] >> (at & 7) & 1):
                        found.append(place_in(offset)[1])
                begin = batch.end

    @staticmethod
    def compare(live: set[Message], left: Left, where: str) -> None:
        missing, extra = left.must - live, live - left.may
        assert not missing, f"{where} has lost {brief(missing)}"
        assert not extra, f"{where} has {brief(extra)} again"

    async def end(self) -> None:
        """Everything is acknowledged, or nobody is left who wants it: then nothing stays, in storage or in tables."""
        for chain in self.chains:
            if chain not in self.owners:
                await self.open(chain)
        await self.confirm()
        await self.check("at the end")
        while self.snaps:
            await self.drop_snapshot()
        topic = self.harness.master.topic_by_incarnation(self.topic)
        assert topic is not None
        self.harness.commit(CatalogChange.put(replace(topic, retention_s=0)))
        for sub in list(self.subs.values()):
            if self.random.random() < 0.5:
                self.drop(sub.number)
                continue
            sub.retain_acked = False
            self.put(sub, retain_acked=False)
            for chain, process in self.owners.items():
                for one in sub.left.setdefault(chain, Left()).may:
                    await self.send_message(process, one, sub.number, sub.generation)
        if self.random.random() < 0.3:
            self.delete_topic()
        for chain, process in list(self.owners.items()):  # what is written to is not deleted: each has a new log then
            await self.quiesce(process, chain)
            await process.host.close(chain)
            await process.crash()
            self.owners[chain] = self.harness.process(f"last{chain}")
            await self.owners[chain].open(chain)
        for _ in range(200):
            await asyncio.sleep(0.5)
            if not any(self.rest_of(chain) for chain in self.chains):
                return
        raise AssertionError(f"nobody needs {[self.rest_of(chain) for chain in self.chains]}")

    def rest_of(self, chain: int) -> list[Any]:
        owned = self.owners[chain].host.chains[chain]
        return [*owned.store.sources(), *owned.forwarder.sources.by_number.values()]


def of_lanes(kept: Left, sub: Sub, known: dict[int, Lane] | None, stored: set[Message]) -> Left:
    """What a snapshot of the lanes `known` has left for those of a subscription: others are as those they copy,
    or have all since their beginning. None: it is of another subscription, and what it has left in any lane counts.
    """
    found = Left()
    known_lanes = set(known or ())
    for number, lane in sorted(sub.lanes.items()):
        of = {number} if number in known_lanes else {one for one in lane.copy_of if one in known_lanes}
        for ours, theirs in ((found.must, kept.must), (found.may, kept.may)):
            copies = {one._replace(lane=number) for one in theirs if known is None or one.lane in of}
            has_all = known is not None and not of
            ours |= {
                one._replace(lane=number)
                for one in stored
                if one.topic == sub.topic and lane.has(one) and (has_all or one._replace(lane=number) in copies)
            }
    return found


def brief(messages: set[Message]) -> list[tuple[int, int, int]]:
    return sorted((one.source, one.offset, one.lane) for one in messages)

"""What chains know of acknowledgements, against a plain model: any steps in any order, compared message by message.

`Run` does a seeded succession of steps to chains that are opened, handed over and lost, and to sets of messages. A
subscription's `Left` in a chain says which messages it must still have (`must`) and which it may have (`may`): the two
differ only where an outcome is not known, or where retention is over and deletion may have come or not. After every
step both are compared with the chain's ledgers and its storage, and what was seen decides what was open.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

from syncpoint.base.kernel.acks import encode_runs
from syncpoint.base.model.errors import FailedPrecondition
from syncpoint.base.model.lanes import in_lane
from syncpoint.catalog.metadata.entity_options import (
    MessageRule,
    RuleChange,
    changed_rules,
    lanes_of,
    stopped_lanes,
    without_drained,
    without_dropped,
)
from syncpoint.catalog.metadata.records import (
    CREATING,
    CatalogChange,
    SeekTarget,
    Snapshot,
    Subscription,
    Topic,
)
from tests.kit.chain import Process
from tests.unit.broker.publish.ledger_comparison import (
    DAY,
    HOUR,
    NAME,
    NS,
    SLACK_S,
    Comparison,
    Lane,
    Left,
    Message,
    Snap,
    Sub,
    brief,
    of_lanes,
)


class Run(Comparison):
    """See the module."""

    async def run(self, steps: int) -> None:
        for chain in self.chains:
            await self.open(chain)
        weights: dict[Callable[[], Coroutine[Any, Any, None]], int] = {
            self.publish: 8, self.acknowledge: 6, self.acknowledge_unheard: 1, self.subscribe: 3, self.seek: 5,
            self.snapshot: 3, self.drop_snapshot: 1, self.unsubscribe: 1, self.retain: 2, self.keep: 1,
            self.pass_time: 1, self.topic_again: 1, self.checkpoint: 1, self.rest: 1, self.hand_over: 3, self.lose: 2,
            self.adopt: 3, self.run_empty: 1, self.change_rules: 4 if self.rules else 0,
            self.leave_one_lane: 2 if self.rules else 0,
        }  # fmt: skip
        if self.ruled:
            weights |= {self.change_rules: 12, self.forget_lanes: 10, self.acknowledge: 10, self.subscribe: 1}
            weights |= {self.retain: 0, self.keep: 0, self.seek: 3, self.snapshot: 1, self.drop_snapshot: 2}
        for number in range(steps):
            (step,) = self.random.choices(list(weights), list(weights.values()))
            await step()
            await self.check(f"after step {number}, {step.__name__}")
        await self.end()

    # -- steps -------------------------------------------------------------------------------------------------------

    async def publish(self) -> None:
        if not self.owners:
            return
        chain = self.random.choice(list(self.owners))
        data = ["x" * self.random.choice([1, 1, 2000])] * self.random.randrange(1, 5)
        process = self.owners[chain]
        await process.publish(*data, chain=chain)
        source = process.host.chains[chain].forwarder.sources.open_of(self.topic)
        assert source is not None
        known = self.messages.setdefault((chain, source.number), [])
        now = self.harness.clock.time_ns()
        for _ in data:
            message = Message(self.published, self.topic, chain, source.number, len(known), now)
            self.published += 1
            known.append(message)
            for sub in self.subs.values():
                if sub.topic == self.topic:
                    left, copies = sub.left.setdefault(chain, Left()), sub.copies([message])
                    left.must |= copies
                    left.may |= copies
            for snap in self.snaps.values():
                if snap.topic == self.topic:
                    left = snap.left.setdefault(chain, Left())
                    copies = {message._replace(lane=number) for number in snap.lanes}
                    left.must |= copies
                    left.may |= copies
        assert source.end == len(known)
        self.trace(f"publish {len(data)} messages to chain {chain}, source {source.number} ends at {source.end}")
        self.harness.clock.advance(0.01)

    async def acknowledge(self, received: bool = True) -> None:
        for sub in list(self.subs.values()):
            for chain, process in list(self.owners.items()):
                left = sub.left.setdefault(chain, Left())
                chosen = self.random.sample(sorted(left.may), self.random.randrange(0, len(left.may) + 1))
                if self.random.random() < 0.5:
                    chosen = chosen[:2]
                old = sub.generation and self.random.random() < 0.1
                for one in chosen:
                    answer = self.send_message(process, one, sub.number, sub.generation - 1 if old else sub.generation)
                    if received:
                        error = await asyncio.wait_for(answer, 5)
                        assert isinstance(error, FailedPrecondition) if old else error is None, error
                    if not old:
                        left.must.discard(one)
                        if received:
                            left.may.discard(one)
                if chosen:
                    which = [(one.source, one.offset, one.lane) for one in chosen]
                    self.trace(f"subscription {sub.number} acknowledges{' an older' if old else ''} {which}")

    async def acknowledge_unheard(self) -> None:
        """The owner dies before it answers."""
        if self.owners:
            await self.acknowledge(received=False)
            chain = self.random.choice(list(self.owners))
            process = self.owners.pop(chain)
            await process.crash()
            self.trace(f"chain {chain} is lost before it answers")

    def send_message(self, process: Process, one: Message, subscription: int, generation: int) -> asyncio.Future[Any]:
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        runs = encode_runs([(in_lane(one.lane, one.offset), 1)])
        forwarder = process.host.chains[one.chain].forwarder

        def done(error: Exception | None) -> None:
            if not answer.done():
                answer.set_result(error)

        forwarder.server.acknowledge(subscription, generation, one.source, runs, done, urgent=True)
        return answer

    async def subscribe(self) -> None:
        if len(self.subs) >= 5:
            return
        retains = self.random.random() < (0.2 if self.ruled else 0.5)
        sub = Sub(next(self.numbers), self.topic, self.published, retains, self.a_retention())
        self.subs[sub.number] = sub
        record = Subscription(
            sub.number, f"projects/p/subscriptions/s{sub.number}", sub.topic, NAME, state=CREATING,
            retain_acked=sub.retain_acked, retention_s=sub.retention_s,
        )  # fmt: skip
        self.harness.commit(CatalogChange.put(record))
        self.follow(lambda chain, stored: None)
        self.note_followed(sub)
        self.trace(
            f"subscribe {sub.number}, keeps {sub.retention_s} s{', also acknowledged' if sub.retain_acked else ''}"
        )
        await self.confirm()

    async def unsubscribe(self) -> None:
        if len(self.subs) > 1:
            self.drop(self.random.choice(list(self.subs)))

    def drop(self, number: int) -> None:
        sub = self.subs.pop(number)
        sub.gone = True
        self.harness.commit(CatalogChange.delete(self.record(sub)))
        self.trace(f"unsubscribe {number}")

    async def seek(self) -> None:
        if not self.subs:
            return
        sub = self.subs[self.random.choice(list(self.subs))]
        snaps = [one for one in self.snaps.values() if one.finished and one.topic == sub.topic]
        sub.generation += 1
        generation = sub.generation
        if snaps and self.random.random() < 0.5:
            snap = self.random.choice(snaps)
            kept = {chain: left.copy() for chain, left in snap.left.items()}
            lanes_then = dict(snap.lanes) if snap.of is sub else None
            self.put(sub, generation=generation, target=SeekTarget(snapshot=snap.number))
            self.trace(f"seek {sub.number} to snapshot {snap.number}")

            def moved(chain: int, stored: set[Message], left: Left) -> Left:
                # As it is then: nothing can have come to this chain since.
                found = of_lanes(kept.get(chain, Left()), sub, lanes_then, stored)
                return Left(found.must, found.may, self.harness.clock.time_ns())
        else:
            every = sorted(one for held in self.messages.values() for one in held)
            mine = [one.time_ns + 1 for one in every if one.topic == sub.topic]
            now = self.harness.clock.time_ns()
            at = self.random.choice([0, now, now + DAY * NS, *self.random.sample(mine, min(len(mine), 3))])
            self.put(sub, generation=generation, target=SeekTarget(time_ns=at))
            self.trace(f"seek {sub.number} to time {at}")

            def moved(chain: int, stored: set[Message], left: Left) -> Left:
                since = sub.copies(one for one in stored if one.time_ns >= at and one.topic == sub.topic)
                must = {one for one in since if one in left.must or self.is_retained(sub, one, SLACK_S)}
                may = {one for one in since if one in left.may or self.is_retained(sub, one, -SLACK_S)}
                return Left(must, may, left.renewed_ns)

        def act(chain: int, stored: set[Message]) -> None:
            before = sub.left.get(chain, Left())
            after = sub.left[chain] = moved(chain, stored, before)
            if generation < sub.generation:  # only the newest has to be followed
                after.or_else(before)

        self.follow(act)
        self.note_followed(sub)
        await self.confirm()

    async def snapshot(self) -> None:
        if not self.subs or len(self.snaps) > 3:
            return
        sub = self.subs[self.random.choice(list(self.subs))]
        snap = Snap(next(self.numbers), sub.topic, sub, sub.generation, dict(sub.lanes))
        record = Snapshot(
            snap.number, f"projects/p/snapshots/n{snap.number}", sub.topic, NAME, expire_ns=1 << 62, status=CREATING,
            subscription=sub.number, generation=sub.generation,
        )  # fmt: skip
        self.harness.commit(CatalogChange.put(record))
        self.snaps[snap.number] = snap

        def act(chain: int, stored: set[Message]) -> None:
            snap.left[chain] = sub.left.setdefault(chain, Left()).copy()
            # Its owners have known this generation, or know it when all is done; else all counts as unacknowledged.
            if snap.generation != sub.followed.get(chain, -1) and (sub.gone or snap.generation != sub.generation):
                all_there = {one for one in stored if one.topic == snap.topic}
                snap.left[chain].may = {one._replace(lane=number) for one in all_there for number in snap.lanes}

        self.follow(act)
        self.trace(f"snapshot {snap.number} of {sub.number}")
        await self.confirm()

    async def change_rules(self) -> None:
        """Of a subscription, for what is published from now on, or also for what is left."""
        if not self.subs:
            return
        sub = self.subs[self.random.choice(list(self.subs))]
        record, to_all = self.record(sub), self.random.random() < (0.15 if self.ruled else 0.4)
        named = self.random.sample("abc", self.random.randrange(1, 3))
        put = [MessageRule(name, f"v={self.published}", action=self.random.choice(["", "SET x=1"])) for name in named]
        delete = self.random.sample("abc", 1)
        change = RuleChange(tuple(put), ()) if self.random.random() < 0.6 else RuleChange((), tuple(delete))
        options = changed_rules(record.options, change._replace(to_all=to_all), self.harness.master.revision + 1)
        if self.random.random() < 0.3:
            options = without_dropped(options, self.confirmed)
        lanes = {lane.number: lane for lane in lanes_of(options)}
        for number, lane in sorted(lanes.items()):
            known = sub.lanes.get(number, Lane(0 if lane.copy_of else self.published, copy_of=lane.copy_of))
            if lane.stopped and known.ends > self.published:
                known = known._replace(ends=self.published)
            if number in sub.lanes or not lane.dropped:
                sub.lanes[number] = known
        copies = {number: lane.copy_of for number, lane in lanes.items() if lane.copy_of and not lane.dropped}
        alive = {number for number, lane in lanes.items() if not lane.dropped}
        done = set(copies) & set(sub.known_copies)
        sub.known_copies |= set(copies)

        def act(chain: int, stored: set[Message]) -> None:
            left = sub.left.setdefault(chain, Left())
            for number in sorted(set(copies) - done):
                for held in (left.must, left.may):
                    held |= {one._replace(lane=number) for one in held if one.lane in copies[number]}
            left.must = {one for one in left.must if one.lane in alive}
            left.may = {one for one in left.may if one.lane in alive}

        sub.lanes = {number: lane for number, lane in sub.lanes.items() if number in alive}
        self.put(sub, options=options)
        self.follow(act)
        self.trace(f"rules of {sub.number}: {change}, to all: {to_all}, now {sub.lanes}")
        await self.confirm()

    async def acknowledge_but(self, chosen: Sub | None = None, lane: int = 0) -> None:
        """Everything, but for a lane of a subscription."""
        for sub in self.subs.values():
            for chain, process in self.owners.items():
                left = sub.left.setdefault(chain, Left())
                done = {one for one in left.may if sub is not chosen or one.lane != lane}
                for one in sorted(done):
                    answer = self.send_message(process, one, sub.number, sub.generation)
                    assert await asyncio.wait_for(answer, 5) is None
                left.must -= done
                left.may -= done

    async def forget_lanes(self) -> None:
        """Stopped lanes that nobody can want anything of are removed, as far as all chains say so."""
        if self.random.random() < 0.5:
            await self.acknowledge_but()
        for sub in list(self.subs.values()):
            options = self.record(sub).options
            answers = [await self.drained_in(chain, sub) for chain in self.chains]
            known = [set(one) for one in answers if one is not None]
            if not self.is_enough(len(known)) or not known:
                continue
            rest = without_drained(options, set.intersection(*known))
            gone = set(stopped_lanes(options)) - set(stopped_lanes(rest))
            for number in gone:
                self.check_forgotten(sub, number)
            self.forgotten_lanes += len(gone)
            sub.lanes = {number: lane for number, lane in sub.lanes.items() if number not in gone}
            for left in sub.left.values():
                left.must = {one for one in left.must if one.lane not in gone}
                left.may = {one for one in left.may if one.lane not in gone}
            self.put(sub, options=rest)
            self.follow(lambda chain, stored: None)
            self.trace(f"lanes {gone} of {sub.number} are forgotten")
        await self.confirm()

    async def drained_in(self, chain: int, sub: Sub) -> list[int] | None:
        """What a chain says; None: it has no owner."""
        if chain not in self.owners:
            return None
        host = self.owners[chain].host
        await host.confirm(chain, self.topic, self.harness.master.revision)
        return await host.drained(chain, sub.number)

    def is_enough(self, answers: int) -> bool:
        """Whether so many chains may decide."""
        return answers == len(self.chains)

    def check_forgotten(self, sub: Sub, number: int) -> None:
        """Nobody can want, or bring back, what was published while a lane was in force."""
        lane, others = sub.lanes[number], [one for one in self.subs.values() if one.topic == sub.topic]
        wanted = {one for other in others for left in other.left.values() for one in left.must}
        snaps = (left for snap in self.snaps.values() if snap.topic == sub.topic for left in snap.left.values())
        wanted |= {one for left in snaps for one in left.must}
        every = (one for held in self.messages.values() for one in held if one.topic == sub.topic)
        stored = {
            (one.source, one.offset) for chain, process in self.owners.items() for one in self.stored_of(chain, process)
        }
        wanted |= {
            one
            for one in every
            if (one.source, one.offset) in stored and any(self.is_retained(other, one, SLACK_S) for other in others)
        }
        lost = [one for one in wanted if lane.has(one)]
        assert not lost, f"lane {number} of {sub.number} is forgotten with {brief(set(lost))}"

    async def leave_one_lane(self) -> None:
        """Everything is acknowledged but for one lane of one subscription, and what nobody needs is deleted."""
        having = [sub for sub in self.subs.values() if len(sub.lanes) > 1]
        if not having or self.snaps:
            return
        chosen = self.random.choice(having)
        lane = self.random.choice(list(chosen.lanes))
        await self.acknowledge_but(chosen, lane)
        self.trace(f"all but lane {lane} of {chosen.number} is acknowledged")
        await self.hand_over()  # what was written to is sealed now
        await asyncio.sleep(self.random.choice([2.0, 6.0]))

    async def drop_snapshot(self, number: int | None = None) -> None:
        if self.snaps:
            snap = self.snaps.pop(self.random.choice(list(self.snaps)) if number is None else number)
            made = self.harness.master.snapshot_by_incarnation(snap.number)
            assert made is not None
            self.harness.commit(CatalogChange.delete(made))
            self.trace(f"snapshot {snap.number} is deleted")

    async def retain(self) -> None:
        """The topic's own retention."""
        await self.keep_for(self.random.choice([0, 0, HOUR, 3 * DAY, 31 * DAY]))

    async def keep_for(self, retention_s: int) -> None:
        self.expire()
        topic = self.harness.master.topic_by_incarnation(self.topic)
        assert topic is not None
        self.retention_s[self.topic] = retention_s
        self.harness.commit(CatalogChange.put(replace(topic, retention_s=retention_s)))
        self.expire()
        self.trace(f"the topic keeps for {retention_s} s")
        await self.confirm()

    async def keep(self) -> None:
        """A subscription's retention."""
        if self.subs:
            self.expire()
            sub = self.subs[self.random.choice(list(self.subs))]
            sub.retention_s, sub.retain_acked = self.a_retention(), self.random.random() < 0.5
            self.put(sub, retention_s=sub.retention_s, retain_acked=sub.retain_acked)
            self.expire()
            self.trace(f"{sub.number} keeps for {sub.retention_s} s, also acknowledged: {sub.retain_acked}")
            await self.confirm()

    async def pass_time(self) -> None:
        seconds = self.random.choice([0.5 * HOUR, 2.3 * HOUR, 1.4 * DAY])
        self.harness.clock.advance(seconds)
        self.expire()
        self.trace(f"{seconds} s pass")

    async def rest(self) -> None:
        """Deletion and what is tidied have time."""
        await asyncio.sleep(self.random.choice([0.5, 2.0, 6.0]))

    async def run_empty(self) -> None:
        """All of the topic is acknowledged and deleted, and before anybody tidies up a subscription is reset by a seek:
        ledgers are there without a source then.
        """
        for number in list(self.snaps):
            await self.drop_snapshot(number)
        self.expire()
        await self.keep_for(0)
        for sub in self.subs.values():
            sub.retain_acked = False
            self.put(sub, retain_acked=False)
        for chain in list(self.owners):
            await self._lose(chain)
        for chain in self.chains:  # whatever was written to is sealed now
            await self.open(chain)
        await self.confirm()
        await self.check("with new owners")
        for sub in self.subs.values():
            for chain, process in self.owners.items():
                left = sub.left.setdefault(chain, Left())
                for one in sorted(left.may):
                    assert (
                        await asyncio.wait_for(self.send_message(process, one, sub.number, sub.generation), 5) is None
                    )
                left.must.clear()
                left.may.clear()
        self.trace("all is acknowledged")
        for _ in range(100):
            if not any(self.sources_of(chain) for chain in self.chains):
                self.trace("and forgotten")
                break
            await asyncio.sleep(0.1)
        for step in (self.seek, self.publish):
            await step()
            await self.check(f"with nothing left, after {step.__name__}")

    def sources_of(self, chain: int) -> list[Any]:
        return self.owners[chain].host.chains[chain].forwarder.sources.of_topic(self.topic)

    async def topic_again(self) -> None:
        """The topic is deleted, with what only it keeps, and another one is made under its name."""
        if self.random.random() < 0.5:
            return
        self.expire()
        self.delete_topic()
        self.topic = next(self.numbers)
        self.retention_s[self.topic] = 0
        self.harness.commit(CatalogChange.put(Topic(self.topic, NAME)))
        self.trace(f"the topic is deleted and made again, as {self.topic}")
        await self.confirm()

    def delete_topic(self) -> None:
        topic = self.harness.master.topic_by_incarnation(self.topic)
        assert topic is not None
        self.retention_s[self.topic] = 0
        self.harness.commit(CatalogChange.delete(topic))
        self.expire()

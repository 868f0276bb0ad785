"""One subscription and where its messages arrive: at a client, or pushed, forwarded or exported by the service.

Place: beside the other clients of a simulation that serves the API, with chance of its own. Rules make copies of each
message, or none do; the subscription is moved back and ahead while it works; a client's receiver is slow, refuses some
and acknowledges late.
What is judged, copy by copy: each arrives, and again after a seek back that it is owed for; of a key the first arrivals
of what one rule makes come in order; what is forwarded is stored once for each seek, and once for each copy that was
lent; what was taken back with a message that was refused comes again after it, whatever is acknowledged by earlier
leases. What a seek ahead left out, and what does not live for long, is owed to nobody; nor is anything taken back by a
refusal that an acknowledgement by an earlier lease of the same message may have preceded.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from syncpoint.base.model.errors import SyncpointError
from syncpoint.base.model.reserved import FORWARDED_FROM
from syncpoint.base.runtime.random import SeededRandom
from syncpoint.testing.rigs.checkers import CheckResult
from syncpoint.testing.rigs.history import MessageIdentity, Outcome, Publish, unseal
from syncpoint.testing.simulation.api_clients import TOPIC, ApiClients
from syncpoint.testing.simulation.forwarded import receive
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import admin, pubsub

PULLED, PUSHED, FORWARDED, EXPORTED = "pulled", "pushed", "forwarded", "exported"
KINDS = (PULLED, PUSHED, FORWARDED, EXPORTED)
RULES = ("a", "b")
FULL = "projects/p/subscriptions/"
BUCKET = "files"


class Copy(NamedTuple):
    """What one rule makes of a message; "": the message itself."""

    identity: MessageIdentity
    rule: str


@dataclass
class ConsumerSeek:
    """`begun` and `ended` are stamps of the history; `seen`: what had arrived of each copy before it."""

    back: bool
    begun: int
    seen: dict[Copy, int]
    ended: int = 1 << 62
    tries: int = 0


@dataclass
class ClientAnswer:
    """A client's answer to one leased copy.

    `life`: the lives of its stream and of the server; `ended`: when the answer was confirmed.
    """

    copy: Copy
    lent: int
    life: tuple[int, object]
    refused: bool
    begun: int
    ended: int = 1 << 62


@dataclass
class Consumed:
    """Check one subscription against its recipients.

    `life`: which life of the server this is; `exported`: (message, attributes) of all rows in files under a prefix;
    `one_clock`: there is one wall clock, which nobody sets.
    """

    sim: ApiClients
    kind: str
    seed: int
    life: Callable[[], object] = lambda: None
    exported: Callable[[str], Iterable[tuple[bytes, dict[str, str]]]] = lambda prefix: ()
    one_clock: bool = True
    ordered: bool = False
    rules: tuple[str, ...] = ("",)
    resets: bool = False
    arrived: dict[Copy, set[object]] = field(default_factory=lambda: defaultdict(set))
    firsts: list[Copy] = field(default_factory=list)  # in the order of their first arrivals
    names: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))  # ids at the target, by copies lent
    answers: list[ClientAnswer] = field(default_factory=list)
    lent: dict[Copy, list[int]] = field(default_factory=lambda: defaultdict(list))
    seeks: list[ConsumerSeek] = field(default_factory=list)
    created: int = 1 << 62

    def __post_init__(self) -> None:
        self.random = SeededRandom(self.seed * 19 + 5 + 7 * KINDS.index(self.kind))
        self.name = self.kind
        self.ordered = self.random.random() < 0.6
        self.rules = RULES if self.random.random() < 0.5 else ("",)
        self.resets = self.random.random() < 0.6
        self.target = f"projects/p/topics/{self.name}-target"
        self.window = self.random.random() < 0.4  # the target drops duplicates
        self.streams = 0

    # -- what happens ------------------------------------------------------------------------------------------------

    async def begin(self) -> None:
        """Create all of it."""
        sim = self.sim
        asked = pubsub.Subscription(
            name=FULL + self.name, topic=TOPIC, ack_deadline_seconds=10, enable_message_ordering=self.ordered
        )
        asked.retry_policy.minimum_backoff.nanos = 10_000_000
        asked.retry_policy.maximum_backoff.nanos = 200_000_000
        if self.kind == PUSHED:
            asked.push_config.push_endpoint = f"https://endpoint.example/{self.name}"
        elif self.kind == EXPORTED:
            storage = asked.cloud_storage_config
            storage.bucket, storage.filename_prefix, storage.max_bytes = BUCKET, f"{self.name}-", 1_000
            storage.max_duration.seconds = 1
            storage.avro_config.write_metadata = True
        await sim.insist(methods.SUBSCRIBER.CreateSubscription, asked, "ALREADY_EXISTS")
        for rule in self.rules if self.rules != ("",) else ():
            made = {"name": rule, "sql": "1=1", "action": f"SET by = '{rule}'"}
            create = admin.CreateRuleRequest(subscription=asked.name, rule=made)
            await sim.insist(methods.ADMIN.CreateRule, create, "ALREADY_EXISTS")
        if self.rules != ("",):
            delete = admin.DeleteRuleRequest(subscription=asked.name, name="$Default")
            await sim.insist(methods.ADMIN.DeleteRule, delete, "NOT_FOUND")
        if self.kind == FORWARDED:
            await self._forward()
        self.created = sim.history.stamp()

    async def _forward(self) -> None:
        sim = self.sim
        await sim.create_topic(self.target)
        if self.window:
            options = admin.UpdateTopicOptionsRequest(options={"topic": self.target})
            options.options.duplicate_detection_window.seconds = 600
            options.update_mask.paths.append("duplicate_detection_window")
            await sim.insist(methods.ADMIN.UpdateTopicOptions, options)
        reader = pubsub.Subscription(
            name=f"{FULL}{self.name}-arrivals", topic=self.target, ack_deadline_seconds=10, enable_message_ordering=True
        )
        await sim.insist(methods.SUBSCRIBER.CreateSubscription, reader, "ALREADY_EXISTS")
        update = admin.UpdateSubscriptionOptionsRequest(
            options={"subscription": FULL + self.name, "forward_to": self.target}
        )
        update.update_mask.paths.append("forward_to")
        await sim.insist(methods.ADMIN.UpdateSubscriptionOptions, update)

    async def consume(self) -> None:
        """Receive for ever what arrives where somebody has to."""
        if self.kind == FORWARDED:
            await receive(self.sim, self.random, f"{self.name}-arrivals", self._forwarded)
        elif self.kind == PULLED:
            await self._pull()

    async def live(self, is_living: Callable[[], bool]) -> None:
        """Move the subscription back and ahead, suspend what it forwards to."""
        while is_living():
            await asyncio.sleep(0.3 + self.random.random() * 1.5)
            chance = self.random.random()
            if self.resets and chance < 0.6:
                await self._seek(back=self.random.random() < 0.7 or not self.one_clock)
            elif self.kind == FORWARDED and chance < 0.8:
                await self._suspend(True)
                await asyncio.sleep(self.random.random())
                await self._suspend(False)

    async def _suspend(self, suspended: bool) -> None:
        update = admin.UpdateTopicOptionsRequest(options={"topic": self.target, "send_suspended": suspended})
        update.update_mask.paths.append("send_suspended")
        await self.sim.insist(methods.ADMIN.UpdateTopicOptions, update)
        self.sim.coverage.sometimes("what is forwarded to is suspended", suspended)

    async def _seek(self, *, back: bool) -> None:
        sim = self.sim
        self.look()
        seek = ConsumerSeek(back, sim.history.stamp(), {copy: len(found) for copy, found in self.arrived.items()})
        self.seeks.append(seek)
        asked = pubsub.SeekRequest(subscription=FULL + self.name)
        asked.time.FromNanoseconds(1_000_000_000 if back else sim.clock.time_ns())
        while seek.ended == 1 << 62:
            seek.tries += 1
            try:
                await sim.call(methods.SUBSCRIBER.Seek, asked, 5.0)
            except SyncpointError as error:
                sim.note(f"client: {self.name} is not moved: {error.code.name}")
                await asyncio.sleep(0.2 + 0.2 * self.random.random())
            else:
                seek.ended = sim.history.stamp()
        sim.coverage.sometimes(f"what is {self.kind} is moved {'back' if back else 'ahead'}")
        sim.note(f"client: {self.name} is moved {'back' if back else 'ahead'}")

    # -- arrivals ----------------------------------------------------------------------------------------------------

    def note(self, data: bytes, rule: str, token: object) -> Copy | None:
        """A copy has arrived; `token` distinguishes arrivals of it."""
        identity = unseal(data)
        if identity is None:
            self.sim.coverage.always("nothing invented or changed", False, f"{self.name} got {data!r}")
            return None
        copy = Copy(identity, rule)
        if copy not in self.arrived:
            self.firsts.append(copy)
        self.arrived[copy].add(token)
        return copy

    def pushed(self, body: bytes) -> None:
        """An endpoint got this."""
        message = json.loads(body)["message"]
        copy = self.note(
            base64.b64decode(message["data"]), message.get("attributes", {}).get("by", ""), self.sim.history.stamp()
        )
        self.sim.note(f"{self.name}: {copy} as {message['message_id']}")

    def _forwarded(self, message: Any) -> None:
        copy = self.note(message.data, message.attributes["by"], message.message_id)
        self.names[message.attributes[FORWARDED_FROM]].add(message.message_id)
        self.sim.note(f"{self.name}: {copy} as {message.message_id}")

    def look(self) -> None:
        """Files are there to be read."""
        if self.kind == EXPORTED:
            for number, (data, attributes) in enumerate(self.exported(f"{self.name}-")):
                self.note(data, attributes.get("by", ""), number)

    async def _pull(self) -> None:
        sim = self.sim
        while True:
            self.streams += 1
            life = self.streams, self.life()
            try:
                stream = sim.network.channel(sim.endpoint()).stream(methods.SUBSCRIBER.StreamingPull)
                first = pubsub.StreamingPullRequest(
                    subscription=FULL + self.name, stream_ack_deadline_seconds=10, client_id=self.name,
                    max_outstanding_messages=30,
                )  # fmt: skip
                await stream.send(first.SerializeToString())
                while (data := await stream.receive()) is not None:
                    for one in pubsub.StreamingPullResponse.FromString(data).received_messages:
                        self._received(one, life)
            except SyncpointError as error:
                sim.note(f"{self.name}: stream ends: {error.code.name}")
            self.streams += 1
            await asyncio.sleep(0.1 + 0.2 * self.random.random())

    def _received(self, one: Any, life: tuple[int, object]) -> None:
        at = self.sim.history.stamp()
        copy = self.note(one.message.data, one.message.attributes["by"], at)
        self.sim.note(f"{self.name}: {copy} as {one.message.message_id}")
        if copy is not None:
            self.lent[copy].append(at)
            self.sim.client.start(self._answer(one.ack_id, copy, at, life))

    async def _answer(self, ack_id: str, copy: Copy, lent: int, life: tuple[int, object]) -> None:
        refused = self.random.random() < 0.12
        await asyncio.sleep(self.random.random() ** 3 * (0.3 if refused else 1.5))
        answer = ClientAnswer(copy, lent, life, refused, self.sim.history.stamp())
        self.answers.append(answer)
        asked: Any = pubsub.AcknowledgeRequest(subscription=FULL + self.name, ack_ids=[ack_id])
        if refused:
            asked = pubsub.ModifyAckDeadlineRequest(subscription=FULL + self.name, ack_ids=[ack_id])
        method = methods.SUBSCRIBER.ModifyAckDeadline if refused else methods.SUBSCRIBER.Acknowledge
        try:
            await self.sim.call(method, asked, 5.0)
        except SyncpointError:
            self.sim.coverage.sometimes("an answer of a slow client is not confirmed")
        else:
            if life == (self.streams, self.life()):
                answer.ended = self.sim.history.stamp()

    # -- what it came to ---------------------------------------------------------------------------------------------

    def judged(self, stored: dict[MessageIdentity, set[str]]) -> list[CheckResult]:
        """All promises. `stored`: the ids of each message in the first topic."""
        return [self._lost(), self._in_order(), self._once(stored), self._comes_behind()]

    def lacks(self) -> list[str]:
        """What draining waits for."""
        self.look()
        return list(self._lost().violations[:1])

    def _owed(self) -> list[Publish]:
        """What was published since it was created, and is known to be stored."""
        published = self.sim.history.publishes
        return [
            one for one in published if one.topic == TOPIC and one.outcome is Outcome.OK and one.begun > self.created
        ]

    def _lost(self) -> CheckResult:
        bad, looked = [], 0
        for publish in self._owed():
            last = next((one for one in reversed(self.seeks) if publish.begun < one.ended), None)
            if last is not None and not last.back:
                continue
            again = last is not None and publish.ended < last.begun
            if not again and any(not one.back and publish.begun < one.ended for one in self.seeks):
                continue  # nobody knows on which side of an earlier seek it lies
            for rule in self.rules:
                copy = Copy(publish.identity, rule)
                looked += 1
                before = last.seen.get(copy, 0) if last is not None and again else 0
                if len(self.arrived.get(copy, ())) <= before:
                    what = "did not come again after a seek" if before else "never arrived"
                    bad.append(f"{publish.identity} ({publish.key!r}) by {rule!r} {what}")
        return CheckResult(f"what is {self.kind} arrives", looked, tuple(bad))

    def _in_order(self) -> CheckResult:
        bad, looked = [], 0
        left_out = max((one.ended for one in self.seeks if not one.back), default=0)  # it may come back later
        owed = {one.identity: one for one in self._owed() if one.key and one.begun > left_out}
        last: dict[tuple[str, str], Publish] = {}
        for copy in self.firsts if self.ordered else ():
            publish = owed.get(copy.identity)
            if publish is None:
                continue
            looked += 1
            place = publish.key, copy.rule
            before = last.setdefault(place, publish)
            if before.begun > publish.ended:
                bad.append(f"{copy} arrived for the first time after {before.identity}")
            elif publish.begun > before.begun:
                last[place] = publish
        return CheckResult(f"what is {self.kind} arrives in order", looked, tuple(bad))

    def _once(self, stored: dict[MessageIdentity, set[str]]) -> CheckResult:
        if self.kind != FORWARDED:
            return CheckResult("what is forwarded is stored once", 0, ())
        seeks = 1 + sum(one.tries for one in self.seeks)
        bad = [f"{name} is stored as {sorted(ids)}" for name, ids in self.names.items() if len(ids) > 1]
        bad += [
            f"{copy} is stored {len(found)} times, and {len(stored[copy.identity])} times where it was published, with"
            f" {seeks - 1} seeks"
            for copy, found in self.arrived.items()
            if len(found) > seeks * len(stored[copy.identity])
        ]
        # What was forwarded before a clock is set ahead by more than an hour is not known after it.
        return CheckResult("what is forwarded is stored once", len(self.names), tuple(bad) if self.one_clock else ())

    def _comes_behind(self) -> CheckResult:
        """What was lent of a key after a message that is refused, and is acknowledged only later, comes again."""
        bad, looked = [], 0
        published = {one.identity: one for one in self._owed() if one.key}
        acks: dict[Copy, list[ClientAnswer]] = defaultdict(list)
        for one in self.answers:
            if not one.refused:
                acks[one.copy].append(one)
        for nack in self.answers if self.ordered and not self.seeks else ():
            first = published.get(nack.copy.identity)
            if not nack.refused or nack.ended == 1 << 62 or first is None or max(self.lent[nack.copy]) == 0:
                continue
            if any(nack.lent < at < nack.ended for at in self.lent[nack.copy]):
                continue  # it was another lease by then
            if any(one.begun < nack.ended for one in acks[nack.copy]):
                continue  # an earlier lease may have completed it before it was refused
            for copy, lent in self.lent.items():
                behind = published.get(copy.identity)
                if behind is None or (behind.key, copy.rule) != (first.key, nack.copy.rule):
                    continue
                if behind.begun < first.ended or not any(nack.lent < at < nack.begun for at in lent):
                    continue
                mine = acks[copy]
                if any(one.begun < nack.ended or one.life != nack.life for one in mine):
                    continue
                looked += 1
                if not any(at > nack.begun for at in lent):
                    bad.append(f"{copy} did not come again after {nack.copy}, which was refused")
        return CheckResult("what was taken back comes again", looked, tuple(bad))

"""A subscription with rules in a cluster: rules that change under way, and the judge of what came of each's copies.

Place: beside the other clients of `scenario`, with chance of its own, so that a seed's other life stays as it is.
Rules look at the ordering key, which every message has or has not. There are always a plain rule, `$Default`, and now
and then one with an action, `copy`, which writes the number of its version; both change, for what is new or for all.

What is judged: a copy comes if its rule selected the message whenever that was decided; none comes that no rule in
question selected; of an exactly-once subscription no copy comes again once its acknowledgement was confirmed; of a key
the first copies of one rule come in order. That each copy is acknowledged by itself is what draining waits for.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from syncpoint.base.model.errors import SyncpointError
from syncpoint.base.runtime.random import SeededRandom
from syncpoint.testing.rigs.checkers import CheckResult
from syncpoint.testing.rigs.history import MessageIdentity, Outcome, Publish, unseal
from syncpoint.testing.simulation.api_clients import TOPIC, ApiClients
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import admin, pubsub

RULED = "ruled"
FULL = f"projects/p/subscriptions/{RULED}"
PLAIN, COPY = "", "copy"
FILTERS: dict[str, frozenset[str]] = {  # and the keys they select
    "1=1": frozenset({"", "k1", "k2"}),
    "sys.SessionId = 'k1'": frozenset({"k1"}),
    "sys.SessionId IN ('k1', 'k2')": frozenset({"k1", "k2"}),
    "sys.SessionId LIKE 'k_' AND sys.SessionId <> 'k1'": frozenset({"k2"}),
    "1=2": frozenset(),
}
ALL = admin.RuleScope.Value("ALL_MESSAGES")
NEW = admin.RuleScope.Value("NEW_MESSAGES")


class Version(NamedTuple):
    """A rule as it was from some change on: which keys it selects (None: there was none)."""

    number: int
    keys: frozenset[str] | None

    def selects(self, key: str) -> bool:
        return self.keys is not None and key in self.keys


@dataclass
class Change:
    """A change of one rule; `begun` and `ended` are stamps of the history."""

    rule: str
    version: Version
    to_all: bool
    begun: int
    ended: int = 1 << 62


class Came(NamedTuple):
    """A copy that was handed to a client. `version`: what its action wrote; 0 for a plain one."""

    identity: MessageIdentity | None
    message_id: str
    key: str
    rule: str
    version: int
    at: int


@dataclass
class Ruled:
    """Change the rules of a cluster's subscription, and check its copies."""

    sim: ApiClients
    seed: int
    changes: list[Change] = field(default_factory=list)
    came: list[Came] = field(default_factory=list)
    confirmed: dict[tuple[str, str, int], int] = field(default_factory=dict)
    created: int = 1 << 62

    def __post_init__(self) -> None:
        self.random = SeededRandom(self.seed * 11 + 5)
        self.ordered = self.random.random() < 0.5
        self.exactly_once = self.random.random() < 0.5
        self.versions = 0

    # -- what happens ------------------------------------------------------------------------------------------------

    async def begin(self) -> None:
        """Create it."""
        asked = pubsub.Subscription(
            name=FULL, topic=TOPIC, ack_deadline_seconds=10, enable_message_ordering=self.ordered,
            enable_exactly_once_delivery=self.exactly_once,
        )  # fmt: skip
        await self.sim.insist(methods.SUBSCRIBER.CreateSubscription, asked, "ALREADY_EXISTS")
        self.created = self.sim.history.stamp()
        self.changes.append(Change(PLAIN, Version(0, FILTERS["1=1"]), False, 0, 0))

    async def live(self, is_living: Any) -> None:
        """Change rules as long as it is published."""
        while is_living():
            await asyncio.sleep(self.random.random() ** 2 * 1.5)
            await self._change()

    async def _change(self) -> None:
        rule = COPY if self.random.random() < 0.6 else PLAIN
        last = self._last(rule)
        to_all = self.random.random() < 0.25
        self.versions += 1
        texts = [text for text in FILTERS if FILTERS[text] != (last.keys if last else None)]
        text = texts[self.random.randrange(0, len(texts))]
        goes = rule == COPY and last is not None and last.keys is not None and self.random.random() < 0.3
        version = Version(self.versions, None if goes else FILTERS[text])
        change = Change(rule, version, to_all, self.sim.history.stamp())
        self.changes.append(change)
        scope = ALL if to_all else NEW
        named: dict[str, Any] = {"name": rule or "$Default", "sql": text}
        if rule == COPY:
            named["action"] = f"SET v = {version.number}"
        if goes:
            delete = admin.DeleteRuleRequest(subscription=FULL, name=rule, scope=scope)
            await self.sim.insist(methods.ADMIN.DeleteRule, delete, "NOT_FOUND")
        elif rule == COPY and (last is None or last.keys is None):
            create = admin.CreateRuleRequest(subscription=FULL, rule=named, scope=scope)
            await self.sim.insist(methods.ADMIN.CreateRule, create, "ALREADY_EXISTS")
        else:
            update = admin.UpdateRuleRequest(subscription=FULL, rule=named, scope=scope)
            await self.sim.insist(methods.ADMIN.UpdateRule, update)
        change.ended = self.sim.history.stamp()
        self.sim.coverage.sometimes("rules change for all" if to_all else "rules change for what is new")
        self.sim.note(f"client: rule {rule or '$Default'} is version {version.number}, {text if not goes else 'gone'}")

    async def consume(self) -> None:
        """Receive for ever, late at first."""
        sim = self.sim
        await asyncio.sleep(4 * self.random.random())
        while True:
            try:
                stream = sim.network.channel(sim.endpoint()).stream(methods.SUBSCRIBER.StreamingPull)
                first = pubsub.StreamingPullRequest(
                    subscription=FULL, stream_ack_deadline_seconds=10, client_id=RULED, max_outstanding_messages=30
                )
                await stream.send(first.SerializeToString())
                while (data := await stream.receive()) is not None:
                    for one in pubsub.StreamingPullResponse.FromString(data).received_messages:
                        self._received(one)
            except SyncpointError as error:
                sim.note(f"{RULED}: stream ends: {error.code.name}")
            await asyncio.sleep(0.1 + 0.2 * self.random.random())

    def _received(self, one: Any) -> None:
        message = one.message
        came = Came(
            unseal(message.data), message.message_id, message.ordering_key, message.attributes["RuleName"],
            int(message.attributes["v"] or 0), self.sim.history.stamp(),
        )  # fmt: skip
        self.came.append(came)
        self.sim.note(f"{RULED}: {came.identity} as {came.message_id} {came.rule}/{came.version}")
        self.sim.client.start(self._acknowledge(one.ack_id, came))

    async def _acknowledge(self, ack_id: str, came: Came) -> None:
        await asyncio.sleep(self.random.random() ** 3 * 2)
        request = pubsub.AcknowledgeRequest(subscription=FULL, ack_ids=[ack_id])
        try:
            await self.sim.call(methods.SUBSCRIBER.Acknowledge, request, 5.0)
        except SyncpointError:
            self.sim.coverage.sometimes("an acknowledgement of a copy is not confirmed")
        else:
            self.confirmed.setdefault(self._which(came), self.sim.history.stamp())

    # -- what it came to ---------------------------------------------------------------------------------------------

    def judged(self) -> list[CheckResult]:
        """All promises."""
        seen = {(one.identity, one.rule) for one in self.came}
        lost, looked = [], 0
        for publish in self._published():
            for rule in (PLAIN, COPY):
                if self._is_owed(publish, rule):
                    looked += 1
                    if (publish.identity, rule) not in seen:
                        lost.append(f"{publish.identity} ({publish.key!r}) never came by rule {rule!r}")
        return [
            CheckResult("copies that rules select come", looked, tuple(lost)),
            self._only_selected(),
            self._once(),
            self._in_order(),
        ]

    def lacks(self) -> list[str]:
        """What draining waits for."""
        return [one for result in self.judged()[:1] for one in result.violations[:1]]

    def _published(self) -> list[Publish]:
        published = self.sim.history.publishes
        return [one for one in published if one.topic == TOPIC and one.outcome is Outcome.OK]

    def _last(self, rule: str) -> Version | None:
        return next((one.version for one in reversed(self.changes) if one.rule == rule), None)

    def _at(self, rule: str, begun: int, ended: int) -> list[Version]:
        """The versions of a rule that may have been in force at some time."""
        mine = [one for one in self.changes if one.rule == rule]
        found = [one.version for one in mine if one.begun < ended]
        done = [one.version for one in mine if one.ended < begun]
        first = found.index(done[-1]) if done else 0
        return [*([] if done else [Version(0, None)]), *found[first:]] if not (rule == PLAIN and not done) else found

    def _later(self, rule: str, ended: int) -> list[Version]:
        """The versions that counted for what had been published by then."""
        return [one.version for one in self.changes if one.rule == rule and one.to_all and one.ended > ended]

    def _which(self, came: Came) -> tuple[str, str, int]:
        """Which copy: one that a rule makes which was deleted before and is there again is another one."""
        gone = [one.version for one in self.changes if one.rule == came.rule and one.version.keys is None]
        return came.message_id, came.rule, sum(one.number < came.version for one in gone)

    def _is_owed(self, publish: Publish, rule: str) -> bool:
        if publish.begun < self.created:
            return False
        versions = [*self._at(rule, publish.begun, publish.ended), *self._later(rule, publish.begun)]
        return all(one.selects(publish.key) for one in versions)

    def _only_selected(self) -> CheckResult:
        by_id = {one.message_id: one for one in self._published()}
        by_identity = {one.identity: one for one in self.sim.history.publishes}
        bad = []
        for came in self.came:
            publish = by_id.get(came.message_id)
            if publish is not None:
                versions = [*self._at(came.rule, publish.begun, publish.ended), *self._later(came.rule, publish.begun)]
            else:  # sent again, and stored whenever that came in
                sent = by_identity.get(came.identity) if came.identity is not None else None
                versions = self._at(came.rule, sent.begun if sent is not None else 0, came.at)
            if came.rule == COPY:
                versions = [one for one in versions if one.number == came.version]
            if not any(one.selects(came.key) for one in versions):
                bad.append(f"{came.identity} ({came.key!r}) came by {came.rule!r}, version {came.version}")
        return CheckResult("only what rules select comes", len(self.came), tuple(bad))

    def _once(self) -> CheckResult:
        if not self.exactly_once:
            return CheckResult("copies come once", 0, ())
        again = [
            f"{one.identity} came again by {one.rule!r}, acknowledged as {one.message_id}"
            for one in self.came
            if self.confirmed.get(self._which(one), one.at) < one.at
        ]
        return CheckResult("copies come once", len(self.confirmed), tuple(again))

    def _in_order(self) -> CheckResult:
        """Check the order of messages that one rule selected throughout, whatever its changes."""
        bad, looked = [], 0
        published = {one.identity: one for one in self._published() if one.key}
        last: dict[tuple[str, str], Publish] = {}
        seen: dict[tuple[str, str], set[MessageIdentity]] = defaultdict(set)
        for came in self.came if self.ordered else ():
            publish = published.get(came.identity) if came.identity is not None else None
            place = came.key, came.rule
            if publish is None or publish.identity in seen[place] or not self._is_owed(publish, came.rule):
                continue
            seen[place].add(publish.identity)
            looked += 1
            before = last.setdefault(place, publish)
            if before.begun > publish.ended:
                bad.append(f"{publish.identity} came by {came.rule!r} for the first time after {before.identity}")
            elif publish.begun > before.begun:
                last[place] = publish
        return CheckResult("copies come in order", looked, tuple(bad))

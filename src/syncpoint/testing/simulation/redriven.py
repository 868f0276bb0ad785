"""Rules that fail, in a cluster: their messages become letters, which a client publishes again, and the judge of both.

Place: beside the other clients of `scenario`, with chance of its own, so that a seed's other life stays as it is.
One rule selects the messages of a key, another one fails at those of a second key; nobody receives letters, a client
redrives them to a topic of their own, and asks again whenever it did not get an answer.
What is judged: what the rule fails at arrives, as a letter that was redriven, and never as a copy; nothing else becomes
a letter; a message becomes one letter, which is redriven once, whoever of those that do it is killed, and says which
message it was. Where a wall
clock is set ahead by more than an hour, what was redriven before is not known after it.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from syncpoint.base.model.errors import SyncpointError
from syncpoint.base.model.reserved import FORWARDED_FROM
from syncpoint.base.runtime.random import SeededRandom
from syncpoint.front.api.letter_texts import REDRIVEN_FROM
from syncpoint.testing.rigs.checkers import CheckResult
from syncpoint.testing.rigs.history import MessageIdentity, unseal
from syncpoint.testing.simulation.api_clients import TOPIC, ApiClients
from syncpoint.testing.simulation.forwarded import receive, stored_since
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import admin, pubsub

FAILED, BACK = "projects/p/topics/failed", "projects/p/topics/back"
RULED_OUT, UNREAD, RETURNED = "ruled-out", "failed-letters", "returned"
SELECTED, FAILS = "k1", "k2"
RULES = (
    ("selects", f"sys.SessionId = '{SELECTED}'"),
    ("fails", f"EXISTS(sys.SessionId) AND sys.SessionId = '{FAILS}' AND 1 / (sys.SequenceNumber * 0) = 1"),
)


class Returned(NamedTuple):
    """A letter that was redriven, and came. `letter`: which it was; `lineage`: the message that became it."""

    identity: MessageIdentity | None
    message_id: str
    key: str
    letter: str
    lineage: str


@dataclass
class RedrivenLetters:
    """Redrive letters of failing rules in a cluster."""

    sim: ApiClients
    seed: int
    clocks_set: bool
    copies: list[tuple[MessageIdentity | None, str]] = field(default_factory=list)  # with their keys
    returned: list[Returned] = field(default_factory=list)
    created: int = 1 << 62

    def __post_init__(self) -> None:
        self.random = SeededRandom(self.seed * 17 + 3)

    async def begin(self) -> None:
        """Create all of it."""
        sim = self.sim
        for topic in (FAILED, BACK):
            await sim.create_topic(topic)
        policy = pubsub.DeadLetterPolicy(dead_letter_topic=FAILED, max_delivery_attempts=100)
        for name, topic in ((UNREAD, FAILED), (RETURNED, BACK), (RULED_OUT, TOPIC)):
            asked = pubsub.Subscription(name=_full(name), topic=topic, ack_deadline_seconds=10)
            if name == RULED_OUT:
                asked.dead_letter_policy.CopyFrom(policy)
            await sim.insist(methods.SUBSCRIBER.CreateSubscription, asked, "ALREADY_EXISTS")
        options = admin.SubscriptionOptions(subscription=_full(RULED_OUT), dead_letter_rule_errors=True)
        update = admin.UpdateSubscriptionOptionsRequest(options=options)
        update.update_mask.paths.append("dead_letter_rule_errors")
        await sim.insist(methods.ADMIN.UpdateSubscriptionOptions, update)
        for name, sql in RULES:
            create = admin.CreateRuleRequest(subscription=_full(RULED_OUT), rule=admin.Rule(name=name, sql=sql))
            await sim.insist(methods.ADMIN.CreateRule, create, "ALREADY_EXISTS")
        delete = admin.DeleteRuleRequest(
            subscription=_full(RULED_OUT), name="$Default", scope=admin.RuleScope.Value("ALL_MESSAGES")
        )
        await sim.insist(methods.ADMIN.DeleteRule, delete, "NOT_FOUND")
        self.created = sim.history.stamp()

    async def consume(self) -> None:
        """Receive for ever, copies and what was redriven; redrive what has become a letter."""
        works = (
            receive(self.sim, self.random, RULED_OUT, self._copied),
            receive(self.sim, self.random, RETURNED, self._came_back),
            self._redrive(),
        )
        await asyncio.gather(*works)

    def _copied(self, message: Any) -> None:
        self.copies.append((unseal(message.data), message.ordering_key))

    def _came_back(self, message: Any) -> None:
        attributes = message.attributes
        came = Returned(
            unseal(message.data), message.message_id, message.ordering_key, attributes[FORWARDED_FROM],
            attributes[REDRIVEN_FROM],
        )  # fmt: skip
        self.returned.append(came)
        self.sim.note(f"{RETURNED}: {came.identity} as {came.message_id}, letter {came.letter}")

    async def _redrive(self) -> None:
        sim, coverage = self.sim, self.sim.coverage
        selection = admin.DeadLetterSelection(subscription=_full(UNREAD))
        while True:
            await asyncio.sleep(0.2 + self.random.random())
            request = admin.RedriveDeadLettersRequest(selection=selection, topic=BACK, page_size=50)
            try:
                answer = await sim.call(methods.ADMIN.RedriveDeadLetters, request, 1.0 + 4 * self.random.random())
            except SyncpointError as error:
                sim.note(f"client: letters are not redriven: {error.code.name}")
                coverage.sometimes("the outcome of a redrive stays unknown")
                continue
            found = admin.RedriveDeadLettersResponse.FromString(answer)
            coverage.sometimes("letters are redriven", found.redriven)
            sim.note(f"client: {found.redriven} letters are redriven, {'; '.join(found.failures)}")

    # -- what it came to ---------------------------------------------------------------------------------------------

    def judged(self) -> list[CheckResult]:
        """All promises."""
        return [self._lost(), self._nothing_else(), self._once()]

    def lacks(self) -> list[str]:
        """What draining waits for."""
        return list(self._lost().violations[:1])

    def _lost(self) -> CheckResult:
        back, came = {one.identity for one in self.returned}, {identity for identity, _ in self.copies}
        owed = stored_since(self.sim, self.created)
        lost = [
            f"{one.identity}, at which a rule fails, never came back"
            for one in owed
            if one.key == FAILS and one.identity not in back
        ]
        lost += [f"{one.identity} never came" for one in owed if one.key == SELECTED and one.identity not in came]
        return CheckResult("what rules fail at comes back as a letter", len(owed), tuple(lost))

    def _nothing_else(self) -> CheckResult:
        # What was published before the rules were there came by the rule that there was.
        owed = {one.identity for one in stored_since(self.sim, self.created)}
        bad = [f"{one} ({key!r}) came as a copy" for one, key in self.copies if one in owed and key != SELECTED]
        bad += [f"{one.identity} ({one.key!r}) was a letter" for one in self.returned if one.key != FAILS]
        return CheckResult("only what rules fail at is a letter", len(self.copies) + len(self.returned), tuple(bad))

    def _once(self) -> CheckResult:
        stored: dict[str, set[str]] = defaultdict(set)
        letters: dict[str, set[str]] = defaultdict(set)
        for one in self.returned:
            stored[one.letter].add(one.message_id)
            letters[one.lineage].add(one.letter)
        bad = [f"letter {one} is stored as {sorted(ids)}" for one, ids in stored.items() if len(ids) > 1]
        bad += [f"of {one} there are letters {sorted(names)}" for one, names in letters.items() if len(names) > 1]
        published = {one.message_id: one.identity for one in stored_since(self.sim, self.created)}
        wrong = [
            f"{one.identity} says that it was {one.lineage}"
            for one in self.returned
            if published.get(one.lineage, one.identity) != one.identity or not one.lineage
        ]
        violations = (*([] if self.clocks_set else bad), *wrong)
        return CheckResult("letters are made and redriven once", len(stored), violations)


def _full(name: str) -> str:
    return f"projects/p/subscriptions/{name}"

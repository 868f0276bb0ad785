"""Rules that change while chains change owners: no copy is lost, and none is delivered again once it is acknowledged.

SYNCPOINT_RULE_SEEDS=FIRST:COUNT runs other seeds.
"""

from __future__ import annotations

import asyncio
import os
from random import Random
from typing import Any

import pytest

from syncpoint.catalog.metadata.entity_options import MessageRule, RuleChange, changed_rules, rules_of
from syncpoint.catalog.metadata.records import Subscription
from syncpoint.wire.protobuf.messages import pubsub
from tests.kit.chain import SUB_NUMBER
from tests.kit.loops import in_simulated_time
from tests.kit.subscribers import Client, SubscribeHarness

FIRST, COUNT = (int(one) for one in os.environ.get("SYNCPOINT_RULE_SEEDS", "0:3").split(":"))
STEPS = 30


class RuleClient(Client):
    """Remembers copies: data, rule, and what the rule's version has set."""

    def _send(self, parts: Any, serials: Any) -> None:
        for one in pubsub.PullResponse.FromString(b"".join(parts)).received_messages:
            attributes = one.message.attributes
            text = f"{one.message.data.decode()}/{attributes['RuleName']}/{attributes['v']}"
            assert text not in self.harness.confirmed or not self.harness.record.exactly_once, f"{text} comes again"
            self.held[one.ack_id] = text
            self.data.append(text)
            self.harness.delivered.append(text)


class Run:
    def __init__(self, harness: SubscribeHarness, seed: int) -> None:
        self.harness, self.random = harness, Random(seed)
        self.expected: set[str] = set()
        self.numbers = 0

    def record(self) -> Subscription:
        found = self.harness.chains.master.subscription_by_incarnation(SUB_NUMBER)
        assert found is not None
        return found

    async def publish(self) -> None:
        for _ in range(self.random.randrange(1, 5)):
            self.numbers += 1
            key = self.random.choice("kl") if self.harness.record.ordered else ""
            rules = rules_of(self.record().options)
            if await self.harness.publish(str(self.numbers), key):
                self.expected |= {f"{self.numbers}/{one.name}/{one.action[9:-1]}" for one in rules if one.action}
                self.expected |= {f"{self.numbers}//" for one in rules if not one.action}

    async def change(self) -> None:
        self.numbers += 1
        name = self.random.choice(["a", "b", "$Default"])
        action = f"SET v = '{self.numbers}'" if name != "$Default" and self.random.random() < 0.7 else ""
        rule = MessageRule(name, "1=1", action=action)
        change = RuleChange((rule,)) if self.random.random() < 0.7 else RuleChange(delete=(name,))
        options = changed_rules(self.record().options, change, self.harness.chains.master.revision + 1)
        self.harness.chains.update(options=options)
        self.harness.record = self.record()

    async def acknowledge(self) -> None:
        for client in self.clients:
            for one in self.random.sample(list(client.held), len(client.held) // 2):
                client.ack(one)

    async def move(self) -> None:
        if self.harness.orphans:
            await self.harness.adopt(f"q{self.numbers}")
        elif len(self.harness.processes) > 1:
            await self.harness.kill(self.random.choice(list(self.harness.processes)))

    async def pass_time(self) -> None:
        await asyncio.sleep(self.random.choice([0.1, 1, 4]))

    async def run(self) -> None:
        self.clients = [RuleClient(self.harness, self.harness.forwarder(name), most=20) for name in "ab"]
        for _ in range(STEPS):
            steps = [self.publish, self.publish, self.change, self.acknowledge, self.move, self.pass_time]
            await self.random.choice(steps)()
            await asyncio.sleep(0.05)
        await self.harness.adopt("last")
        for _ in range(300):
            await asyncio.sleep(0.5)
            for client in self.clients:
                client.ack()
            if self.harness.all_done and self.expected <= set(self.harness.delivered):
                break
        assert not self.expected - set(self.harness.delivered)
        assert self.harness.all_done


@pytest.mark.parametrize("options", [{}, {"exactly_once": True}, {"ordered": True}])
@pytest.mark.parametrize("seed", range(FIRST, FIRST + COUNT))
@in_simulated_time
async def test_each_copy_comes_until_it_is_acknowledged(*, seed: int, options: dict[str, Any]) -> None:
    harness = await SubscribeHarness.start(processes=2, chains=3, seed=seed, **options)
    await Run(harness, seed).run()

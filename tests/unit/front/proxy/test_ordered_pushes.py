"""Pushes in order from a proxy, lent by a real subscribe forwarder over a network that breaks connections."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from syncpoint.broker.inner.inner_driver import ConsumingProcess
from syncpoint.broker.inner.pace import PaceLimits
from syncpoint.broker.push.addresses import Vetting
from syncpoint.broker.push.payload import Headers
from syncpoint.broker.push.push_driver import PushDriver
from syncpoint.catalog.metadata.catalog import Catalog
from syncpoint.catalog.metadata.records import CatalogChange
from syncpoint.front.api.subscriber import SubscriberService
from syncpoint.front.proxy.push_feeds import PushFeeds
from syncpoint.testing.rigs.servicer_harness import ServicerHarness
from syncpoint.wire.protobuf.messages import pubsub
from syncpoint.wire.transport.calls import Methods
from tests.kit.proxy import ProxyHarness, ProxyProcess, run
from tests.kit.proxy_processes import SubscribeProcess

CONFIG = pubsub.Subscription(push_config=pubsub.PushConfig(push_endpoint="https://e.example/push")).SerializeToString()


class RealSubscribeProcess(SubscribeProcess):
    """A subscribe forwarder over a log in memory."""

    harness_behind: ServicerHarness

    def methods(self) -> Methods:
        return {**self.harness_behind.table, **SubscriberService(self.harness_behind.subscribe).internal_methods()}


class Copy:
    """The catalog as the proxy knows it; nothing of it changes."""

    def __init__(self, harness: ProxyHarness) -> None:
        self.catalog: Catalog = harness.catalog
        self.on_change: list[Callable[[CatalogChange], None]] = []

    async def at(self, revision: int) -> None:
        """It is the only one."""


class Endpoint:
    """Takes pushes, or not, after a while. `ahead`: messages that came before an earlier one of their key was taken."""

    def __init__(self, harness: ProxyHarness) -> None:
        self.harness, self.failures = harness, 0.15
        self.taken: dict[str, list[int]] = {}
        self.ahead: list[tuple[str, int]] = []

    async def post(self, endpoint: object, headers: Headers, body: bytes, timeout_s: float) -> int:
        message = json.loads(body)["message"]
        key, number = message["orderingKey"], int(base64.b64decode(message["data"]))
        taken = self.taken.setdefault(key, [])
        if number and number - 1 not in taken:
            self.ahead.append((key, number))
        random = self.harness.random
        fails = random.random() < self.failures
        await asyncio.sleep(random.random() * 0.05)
        if fails:
            return 500
        taken.append(number)
        return 200


@pytest.mark.parametrize("seed", range(5))
def test_nothing_is_lost_or_overtaken_whatever_fails_and_breaks(seed: int) -> None:
    async def work(harness: ProxyHarness) -> None:
        behind = ServicerHarness(harness.clock, ordered=True, config=CONFIG)
        RealSubscribeProcess.harness_behind = behind
        harness.put(replace(harness.subscription, ordered=True, config=CONFIG))
        await harness.start(RealSubscribeProcess, "s1")
        harness.share(["s1"])
        process: ProxyProcess = await harness.start(ProxyProcess, "proxy")
        await asyncio.sleep(0.1)
        endpoint, feeds = Endpoint(harness), PushFeeds(process.proxy.streams)
        consuming = ConsumingProcess(Copy(harness), feeds.open, harness.clock, harness.random)
        driver = PushDriver(consuming, endpoint, Vetting(), limits=PaceLimits(4, 3_000, 50))
        driver.start()
        numbers = dict.fromkeys("abc", 0)
        harness.network.break_chance, harness.network.delay_s_max = 0.02, 0.4  # a call overtakes another for long
        for _ in range(60):
            for key in numbers:
                if harness.random.random() < 0.6:
                    await behind.put(str(numbers[key]), key=key)
                    numbers[key] += 1
            if harness.random.random() < 0.05:
                heal = harness.network.part(["proxy"], ["s1"])
                await asyncio.sleep(harness.random.random() * 4)
                heal()
            await asyncio.sleep(harness.random.random() * 0.1)
        endpoint.failures = harness.network.break_chance = 0
        await asyncio.sleep(120)
        assert endpoint.ahead == []
        assert {key: sorted(set(taken)) for key, taken in endpoint.taken.items()} == {
            key: list(range(count)) for key, count in numbers.items()
        }
        await driver.close()
        await feeds.close()
        await behind.close()

    run(work, seed)

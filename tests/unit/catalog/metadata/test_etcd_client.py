"""Calls to an etcd that is away: few tries, and all go on when it is back."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from syncpoint.base.model.errors import Code, SyncpointError, Unprocessed
from syncpoint.base.runtime.clock import ManualClock
from syncpoint.base.runtime.random import SeededRandom
from syncpoint.catalog.metadata.contract import StoreUnavailable
from syncpoint.catalog.metadata.etcd import EtcdStore
from syncpoint.catalog.metadata.etcd_client import RANGE, WATCH, EtcdClient, etcdpb
from syncpoint.catalog.metadata.store_client import read_all
from syncpoint.testing.rigs.simulated_loop import run_simulated
from syncpoint.wire.transport.network import Network
from syncpoint.wire.transport.stream_state import TOO_LARGE

WAITING = 12


class Away:
    """A network in which nobody listens, until somebody does."""

    def __init__(self) -> None:
        self.there = False
        self.tries = 0

    def channel(self, address: str) -> Away:
        return self

    async def unary(self, path: str, request: bytes, **more: object) -> bytes:
        self.tries += 1
        if not self.there:
            raise Unprocessed("Connection refused.")
        answer: bytes = etcdpb.RangeResponse().SerializeToString()
        return answer

    def stream(self, path: str, metadata: object) -> object:
        self.tries += 1
        return object()

    async def close(self) -> None:
        pass


@pytest.mark.parametrize("endpoints", [["a:1"], ["a:1", "b:1", "c:1"]], ids=["one", "three"])
def test_a_few_tries_a_second_are_made_however_many_wait(endpoints: list[str]) -> None:
    async def ask(client: EtcdClient, deadline_s: float) -> None:
        await client.call(RANGE, etcdpb.RangeRequest(key=b"k"), "RangeResponse", deadline_s=deadline_s)

    async def watch(client: EtcdClient) -> None:
        """As whoever keeps a stream open does: again and again."""
        while True:
            try:
                _, at = await client.stream(WATCH)
                if not network.there:
                    client.leave(at)
            except StoreUnavailable:
                pass
            await asyncio.sleep(0.1)

    async def scenario() -> tuple[int, float]:
        loop = asyncio.get_running_loop()
        client = EtcdClient(endpoints, cast(Network, network), SeededRandom(1))
        watching = [asyncio.create_task(watch(client)) for _ in range(WAITING)]
        asking = [asyncio.create_task(ask(client, 60.0)) for _ in range(WAITING)]
        await asyncio.sleep(2.0)
        before = network.tries
        with pytest.raises(StoreUnavailable, match="does not answer"):
            await ask(client, 0.05)
        await asyncio.sleep(10.0)
        tries, network.there, back = network.tries - before, True, loop.time()
        await asyncio.gather(*asking)
        took = loop.time() - back
        for task in watching:
            task.cancel()
        await asyncio.gather(*watching, return_exceptions=True)
        await client.close()
        return tries, took

    network: Any = Away()
    tries, took = run_simulated(ManualClock(), scenario())
    assert 10 <= tries <= 50, tries  # ten seconds: those who wait some times a second together, and the probe
    assert took <= 2.5  # one try and one probe later at the latest


class Filled(Away):
    """An etcd with so many keys, which a process takes two of in one message."""

    def __init__(self, count: int, takes: int) -> None:
        super().__init__()
        self.keys, self.takes, self.there = [b"/x/%03d" % number for number in range(count)], takes, True

    async def unary(self, path: str, request: bytes, **more: object) -> bytes:
        asked = etcdpb.RangeRequest.FromString(request)
        kvs = [{"key": key, "value": b"v"} for key in self.keys if asked.key <= key < asked.range_end]
        self.tries += 1
        if min(len(kvs), asked.limit) > self.takes:
            raise SyncpointError(Code.RESOURCE_EXHAUSTED, f"{TOO_LARGE} (30 vs. 20)")
        answer: bytes = etcdpb.RangeResponse(kvs=kvs[: asked.limit], more=len(kvs) > asked.limit).SerializeToString()
        return answer


@pytest.mark.parametrize("takes", [2, 1, 0])
def test_records_that_are_large_together_are_read_in_smaller_pages(takes: int) -> None:
    async def scenario() -> list[str]:
        client = EtcdClient(["a:1", "b:1"], cast(Network, network), SeededRandom(1))
        items, _ = await read_all(EtcdStore(client, ManualClock(), b"/x/", "id"), "", deadline_s=5.0)
        await client.close()
        return [item.key for item in items]

    network = Filled(20, takes)
    if not takes:
        with pytest.raises(StoreUnavailable, match="larger than this process takes"):
            run_simulated(ManualClock(), scenario())
        return
    assert run_simulated(ManualClock(), scenario()) == [f"{number:03d}" for number in range(20)]


def test_a_member_is_asked_for_an_answer_only_where_none_has_come_for_a_while() -> None:
    async def scenario() -> tuple[int, int]:
        client = EtcdClient(["a:1"], cast(Network, network), SeededRandom(1))
        await client.stream(WATCH)
        before = network.tries
        for _ in range(20):
            await asyncio.sleep(1.34)
            client.check(etcdpb.ResponseHeader())
        active, before = network.tries - before, network.tries
        await asyncio.sleep(15.5)
        await client.close()
        return active, network.tries - before

    network: Any = Away()
    network.there = True
    active, silent = run_simulated(ManualClock(), scenario())
    assert active == 0
    assert silent in (9, 10, 11)

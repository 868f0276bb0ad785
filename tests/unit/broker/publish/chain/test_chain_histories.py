"""Random histories of chains: owners crash, stop and are overtaken while messages come in and are acknowledged."""

from __future__ import annotations

import asyncio

import pytest

from syncpoint.base.model.errors import SyncpointError
from syncpoint.base.runtime.random import SeededRandom
from syncpoint.wire.protobuf.messages import internal
from tests.kit.chain import ChainHarness, Process, simulated
from tests.kit.chain_subscriber import Subscriber
from tests.kit.examples import seeds


class History:
    """One chain, a proxy that resends until it knows, one exactly-once subscription."""

    def __init__(self, harness: ChainHarness, seed: int) -> None:
        self.harness, self.random = harness, SeededRandom(seed)
        self.owner: Process | None = None
        self.owners = 0
        self.ids: dict[str, str] = {}  # data -> id, as answered
        self.tried: set[tuple[int, int]] = set()  # (source, offset) that somebody tried to acknowledge
        self.confirmed: dict[tuple[int, int], tuple[int, int]] = {}  # of these: the forwarder that received it counts
        self.subscribers: dict[int, Subscriber] = {}
        self.over = False
        self.resent = 0
        self.serial = 0

    async def take_over(self, *, kill: bool) -> None:
        before = self.owner
        if kill and before is not None:
            await before.crash()
        self.owners += 1
        fresh = self.harness.process(f"f{self.owners}")
        await fresh.open()
        self.owner = fresh
        if before is not None and not kill:
            await asyncio.sleep(0.3)
            await before.host.close(1)  # what its maintainer does when it learns that the chain has ended
            await before.crash()
        for incarnation, subscriber in list(self.subscribers.items()):
            subscriber.lose()
            again = await Subscriber(fresh, incarnation).start()
            again.generation = subscriber.generation
            self.subscribers[incarnation] = again
            await again.attach(**{str(source): grant for source, grant in subscriber.granted.items()})

    def _patience(self) -> float:
        """Often too short: the batch is stored, and its answer lost."""
        return 0.5 if self.random.random() < 0.7 else 0.002 + self.random.random() * 0.01

    async def publish(self) -> None:
        """Publish as a proxy does: the same batch again until its outcome is known."""
        while not self.over:
            self.serial += 1
            data, resent, number = f"m{self.serial}", False, 1000 + self.serial
            while data not in self.ids and not self.over:
                owner = self.owner
                assert owner is not None
                try:
                    (self.ids[data],) = await owner.publish(data, batch=number, resent=resent, timeout=self._patience())
                except SyncpointError:
                    resent = True
                    await asyncio.sleep(0.05)
            await asyncio.sleep(self.random.random() * 0.05)

    async def consume(self, incarnation: int) -> None:
        """Acknowledge what is granted, one message at a time, and note what was confirmed."""
        while not self.over:
            await asyncio.sleep(0.02 + self.random.random() * 0.1)
            subscriber = self.subscribers[incarnation]
            for source, grant in list(subscriber.granted.items()):
                try:
                    async with asyncio.timeout(0.4):
                        answer = await subscriber.fetch(source, grant=grant)
                        if not answer.batches:
                            continue
                        offset = answer.batches[0].begin
                        skip, at = answer.batches[0].skip, offset - answer.batches[0].first_offset
                        if skip and skip[at >> 3] >> (at & 7) & 1:
                            continue
                        self.tried.add((source, offset))
                    async with asyncio.timeout(0.4):
                        reported = await subscriber.ack(source, (offset, 1), grant=grant)
                except (TimeoutError, SyncpointError):
                    continue
                if not reported.error:
                    earlier = self.confirmed.setdefault((source, offset), (incarnation, grant))
                    assert earlier[0] == incarnation, "two subscribers were notified that they acknowledged one message"


@pytest.mark.parametrize("seed", seeds(2, 5))
@simulated
async def test_nothing_is_lost_doubled_or_acknowledged_twice(harness: ChainHarness, *, seed: int) -> None:
    history = History(harness, seed)
    await history.take_over(kill=True)
    await harness.subscribe(exactly_once=True)
    for incarnation in (11, 12):
        assert history.owner is not None
        history.subscribers[incarnation] = await Subscriber(history.owner, incarnation).start()
        await history.subscribers[incarnation].attach()
    loop = asyncio.get_running_loop()
    work = [loop.create_task(history.publish()) for _ in range(3)]
    work += [loop.create_task(history.consume(incarnation)) for incarnation in (11, 12)]
    for _ in range(5):
        await asyncio.sleep(0.5 + history.random.random() * 2)
        wanting = history.random.randrange(11, 13)
        history.resent += history.owner.host.chains[1].forwarder.recent_batches.answered if history.owner else 0
        for incarnation, subscriber in history.subscribers.items():
            await subscriber.send_message(wants=_wants(incarnation == wanting))
        await asyncio.sleep(history.random.random())
        await history.take_over(kill=history.random.random() < 0.5)
    await asyncio.sleep(2)
    history.over = True
    await asyncio.gather(*work)
    # What is left, and what was confirmed, is everything, once.
    await history.take_over(kill=True)
    for subscriber in history.subscribers.values():
        await subscriber.send_message(wants=_wants(True))
    await asyncio.sleep(8)
    left: list[str] = []
    for subscriber in history.subscribers.values():
        left += await subscriber.read_all()
    assert len(left) == len(set(left))
    offsets = {one: place_of(text) for one, text in history.ids.items()}
    acknowledged = {one for one, place in offsets.items() if place in history.confirmed}
    assert not acknowledged & set(left)
    # An acknowledgement whose answer was lost may count, but nobody was notified.
    assert all(offsets[one] in history.tried for one in set(history.ids) - set(left) - acknowledged)
    stored = [one for one in left if one in history.ids]
    assert len(history.ids) > 50
    assert history.resent > 0
    assert len(stored) > 0
    places = [place_of(text) for text in history.ids.values()]
    assert len(set(places)) == len(places)
    total = sum(source.visible for source in history.owner.host.chains[1].forwarder.sources.by_number.values())
    assert total <= history.serial, "a batch was stored twice"


def place_of(text: str) -> tuple[int, int]:
    from syncpoint.base.model.identity import parse_message_id

    found = parse_message_id(text)
    return found.source, found.offset


def _wants(wanted: bool) -> object:
    return internal.Wants(subscription=2, wanted=wanted)

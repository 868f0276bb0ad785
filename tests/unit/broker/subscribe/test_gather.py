"""One subscription from many chains: fairness, losing and taking over grants, order over several chains."""

import asyncio

import pytest

from tests.kit.chain import SUB_NUMBER, TOPIC_NUMBER
from tests.kit.loops import in_simulated_time
from tests.kit.subscribers import Client, SubscribeHarness

pytestmark = pytest.mark.shows("grants")


@in_simulated_time
async def test_one_subscriber_is_served_from_sixteen_sources() -> None:
    harness = await SubscribeHarness.start(processes=4, chains=16)
    client = Client(harness, harness.forwarder("a"))
    for number in range(200):
        await harness.publish(str(number))
    await asyncio.sleep(1)
    assert sorted(client.data, key=int) == [str(number) for number in range(200)]


@in_simulated_time
async def test_pulls_of_one_message_take_turns_over_sixteen_sources() -> None:
    harness = await SubscribeHarness.start(processes=2, chains=16)
    forwarder = harness.forwarder("a")
    await asyncio.sleep(0.5)
    for chain in harness.owners():
        for number in range(3):
            await harness.publish(f"{chain}:{number}", chain=chain)
    seen = []
    for _ in range(16):
        client = Client(harness, forwarder, most=1, single=True)
        await asyncio.sleep(0.3)
        seen += client.data
        client.ack()
    assert len({one.partition(":")[0] for one in seen}) == 16, seen


@in_simulated_time
async def test_sources_go_where_somebody_listens() -> None:
    harness = await SubscribeHarness.start(processes=2, chains=4)
    first = Client(harness, harness.forwarder("a"))
    second = harness.forwarder("b")
    await asyncio.sleep(1)
    await harness.publish("one")
    await asyncio.sleep(1)
    assert first.data == ["one"]
    first.ack()
    first.leave()
    client = Client(harness, second)
    await asyncio.sleep(15)
    for number in range(10):
        await harness.publish(str(number))
    await asyncio.sleep(3)
    assert sorted(client.data) == [str(number) for number in range(10)]


@in_simulated_time
async def test_a_new_owner_of_a_chain_is_found_and_nothing_is_lost() -> None:
    harness = await SubscribeHarness.start(processes=3, chains=6)
    client = Client(harness, harness.forwarder("a"))
    for number in range(30):
        await harness.publish(str(number))
    await asyncio.sleep(1)
    await harness.kill("p1")
    client.ack()  # some of these cannot be recorded now
    await asyncio.sleep(3)
    await harness.adopt("p2")
    for number in range(30, 60):
        await harness.publish(str(number))
    await asyncio.sleep(3)
    client.ack()
    await asyncio.sleep(3)
    assert set(client.data) == {str(number) for number in range(60)}
    assert harness.all_done
    assert not client.refused


@in_simulated_time
async def test_sources_follow_a_client_that_moved_as_soon_as_nothing_is_lent_where_it_was() -> None:
    harness, first, _ = await SubscribeHarness.leasing(deadline_s=60, exactly_once=True)
    second = Client(harness, harness.forwarder("b"))
    first.leave()
    await harness.publish("n")
    await asyncio.sleep(3)
    assert not second.data, "what is lent may still be acknowledged"
    first.ack()
    await asyncio.sleep(1)
    assert harness.confirmed == ["m"]
    assert second.data == ["n"]


@pytest.mark.parametrize("options", [{}, {"exactly_once": True}, {"ordered": True}])
@in_simulated_time
async def test_sources_soon_follow_pulls_that_come_to_another_forwarder(*, options: dict[str, bool]) -> None:
    harness = await SubscribeHarness.start(processes=1, chains=1, **options)
    await harness.publish("m")
    first = Client(harness, harness.forwarder("a"), single=True)
    await asyncio.sleep(1)
    assert first.data == ["m"]
    first.ack()
    first.leave()
    second = Client(harness, harness.forwarder("b"), single=True)
    await harness.publish("n")
    await asyncio.sleep(2)
    assert second.data == ["n"]


@pytest.mark.parametrize("options", [{"exactly_once": True}, {"ordered": True}])
@in_simulated_time
async def test_a_message_lent_to_a_client_that_is_gone_does_not_keep_the_others_from_who_wants_them(
    *, options: dict[str, bool]
) -> None:
    harness, first, _ = await SubscribeHarness.leasing(deadline_s=600, **options)
    second = Client(harness, harness.forwarder("b"))
    first.leave()
    await harness.publish("n")
    await asyncio.sleep(20)
    assert second.data == ["m", "n"]
    second.ack()
    await asyncio.sleep(1)
    assert harness.all_done


@in_simulated_time
async def test_keys_wait_for_what_another_forwarder_still_has_of_the_epoch_before() -> None:
    harness = await SubscribeHarness.start(processes=2, chains=2, ordered=True)
    harness.chains.assign(1)
    slow = Client(harness, harness.forwarder("a"))
    await asyncio.sleep(1)
    for number in range(3):
        await harness.publish(f"k:{number}", key="k")
    await asyncio.sleep(1)
    assert slow.data == ["k:0", "k:1", "k:2"]
    fast = Client(harness, harness.forwarder("b"))
    await asyncio.sleep(1)
    harness.chains.assign(2)
    await harness.publish("k:3", key="k")
    await asyncio.sleep(3)
    everything = slow.data + fast.data
    assert "k:3" not in everything or everything.index("k:3") == 3
    slow.ack()
    await asyncio.sleep(5)
    assert "k:3" in slow.data + fast.data


@in_simulated_time
async def test_keys_do_not_wait_for_sources_of_a_chain_that_let_go_of_the_topic_meanwhile() -> None:
    harness = await SubscribeHarness.start(processes=2, chains=2, ordered=True)
    harness.chains.assign(1)
    first = Client(harness, harness.forwarder("a"))
    await asyncio.sleep(1)
    assert await harness.publish("k:0", key="k")
    await asyncio.sleep(1)
    assert first.data == ["k:0"]
    second = Client(harness, harness.forwarder("b"))
    await asyncio.sleep(1)
    harness.cut("b")
    harness.chains.assign(2)
    first.ack()
    await asyncio.sleep(5)
    await harness.processes["p1"].host.close(1)  # which ends its log, so that it can be deleted
    harness.orphans = [1]
    await harness.adopt("p1")
    await asyncio.sleep(100)
    assert harness.chains_of(TOPIC_NUMBER) == [], "nothing of the topic is left in the chain"
    first.leave()
    await asyncio.sleep(5)
    harness.heal()
    harness.cut("b", "p1")
    await asyncio.sleep(5)  # it learns of the new epoch, and looks which chains hold sources of the topic
    harness.heal()
    await harness.publish("k:1", key="k")
    await asyncio.sleep(9)
    assert second.data == ["k:1"]


@in_simulated_time
async def test_streams_of_one_process_are_numbered_upward_whatever_peers_come_and_go() -> None:
    harness = await SubscribeHarness.start(processes=2, chains=2)
    forwarder = harness.forwarder("a")
    Client(harness, forwarder)
    await asyncio.sleep(1)
    await harness.kill("p1")
    await harness.adopt("p1")
    await asyncio.sleep(1)
    assert len(harness.hellos) >= 3
    assert [hello.stream for hello in harness.hellos] == list(range(1, len(harness.hellos) + 1))


@in_simulated_time
async def test_nobody_is_spoken_to_before_the_process_is_a_member() -> None:
    harness = await SubscribeHarness.start()
    forwarder = harness.forwarder("a", registered=None)
    Client(harness, forwarder)
    await harness.publish("m")
    await asyncio.sleep(1)
    assert not harness.hellos
    forwarder.gatherer.join(99)
    await asyncio.sleep(1)
    assert [hello.registered for hello in harness.hellos] == [99]
    assert harness.delivered == ["m"]


@in_simulated_time
async def test_a_new_stream_says_what_is_served_and_nothing_of_before() -> None:
    harness = await SubscribeHarness.start()
    forwarder = harness.forwarder("a")
    client = Client(harness, forwarder)
    await asyncio.sleep(1)
    client.leave()
    harness.cut("a", "p0")
    await asyncio.sleep(20)
    harness.heal()
    await asyncio.sleep(2)
    assert harness.serves[0] == [SUB_NUMBER]
    assert harness.serves[-1] == []


STEPS = ["publish", "publish", "publish", "break", "kill", "adopt", "assign", "cut", "alone", "heal", "leave", "join"]


class Storm:
    """Three forwarders and five chains while links break, processes die, chains move, the topic is spread anew."""

    def __init__(self, harness: SubscribeHarness) -> None:
        self.harness, self.ordered, self.once = harness, harness.record.ordered, harness.record.exactly_once
        self.clients = [Client(harness, harness.forwarder(name), deadline_s=(10, 60)[self.chance(2)]) for name in "abc"]
        self.sent: list[str] = []

    def chance(self, end: int) -> int:
        return self.harness.random.randrange(0, end)

    async def run(self) -> None:
        for _ in range(10 + self.chance(25)):
            await self.step(STEPS[self.chance(len(STEPS))])
            if self.chance(2):
                self.work(0.3)
            await asyncio.sleep((0.1, 0.5, 2.0, 6.0)[self.chance(4)])
        self.harness.heal()
        await self.step("adopt")
        await self.step("join")
        for _ in range(400):
            self.work(0.7)
            await asyncio.sleep(0.5)
            if self.harness.all_done and not any(client.held for client in self.clients):
                break
        self.check()

    async def step(self, step: str) -> None:
        harness, processes = self.harness, sorted(self.harness.processes)
        if step == "publish":
            for _ in range(4):
                key = ("", "a", "b", "c")[self.chance(4)]
                if await harness.publish(f"{key}:{len(self.sent)}", key=key):
                    self.sent.append(f"{key}:{len(self.sent)}")
        elif step == "break":
            harness.break_streams("abc"[self.chance(3)], address=processes[self.chance(len(processes))])
        elif step == "kill" and len(processes) > 1 and not harness.orphans:
            await harness.kill(processes[0])
        elif step == "adopt" and harness.orphans:
            await harness.adopt(processes[-1])
        elif step == "assign" and not harness.orphans:
            harness.chains.assign(*([n for n in range(1, 6) if self.chance(2)] or [1]))
        elif step == "cut":
            harness.cut("abc"[self.chance(3)], processes[0])
        elif step == "alone":
            harness.cut("abc"[self.chance(3)])
        elif step == "heal":
            harness.heal()
        elif step == "leave" and self.clients:
            self.clients.pop(0).leave()
        elif step == "join":
            for forwarder in harness.forwarders:
                if all(client.forwarder is not forwarder for client in self.clients):
                    self.clients.append(Client(harness, forwarder, deadline_s=(10, 60)[self.chance(2)]))

    def work(self, chance: float) -> None:
        for client in self.clients:
            for ack_id in list(client.held):
                if ack_id in client.held and self.harness.random.random() < chance:
                    if not self.once and self.harness.random.random() < 0.1:
                        client.nack(ack_id)
                    else:
                        client.ack(ack_id)

    def check(self) -> None:
        assert self.harness.all_done, "something was not delivered"
        assert set(self.harness.delivered) == set(self.sent)
        if self.once:
            assert len(self.harness.confirmed) == len(set(self.harness.confirmed))
        if self.ordered:
            for key in "abc":
                first_seen = dict.fromkeys(text for text in self.harness.delivered if text.startswith(key))
                assert list(first_seen) == [text for text in self.sent if text.startswith(key)]


@pytest.mark.parametrize("kind", [(), ("ordered",), ("exactly_once",), ("ordered", "exactly_once")])
@pytest.mark.parametrize("seed", range(4))
@in_simulated_time
async def test_everything_is_delivered_once_confirmed_once_and_in_order_through_any_storm(
    *, seed: int, kind: tuple[str, ...]
) -> None:
    options = dict.fromkeys(kind, True)
    harness = await SubscribeHarness.start(processes=3, chains=5, delay_s=0.2, seed=seed, **options)
    await Storm(harness).run()

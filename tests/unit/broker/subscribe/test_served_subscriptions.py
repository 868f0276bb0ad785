"""Grants of chains that their owners may have lost: nothing strict is lent while in doubt, and nothing is lost."""

import asyncio

import pytest

from syncpoint.base.model.times import GRANT_S, HOLD_S
from tests.kit.chain import SUB_NUMBER
from tests.kit.loops import in_simulated_time
from tests.kit.subscribers import Client, SubscribeHarness

pytestmark = pytest.mark.shows("grants")


async def reading_ahead(**options: bool) -> tuple[SubscribeHarness, Client]:
    """Of two messages the client has the first, and the second is read already."""
    harness = await SubscribeHarness.start(**options)
    client = Client(harness, harness.forwarder("a"), most=1, deadline_s=60)
    await harness.publish("read")
    await harness.publish("ahead")
    await asyncio.sleep(1)
    assert client.data == ["read"]
    return harness, client


def let_it_take_more(client: Client) -> None:
    client.consumer.max_messages = 10
    client.forwarder.subscribe.wake(SUB_NUMBER)


@pytest.mark.parametrize("options", [{"exactly_once": True}, {"ordered": True}, {}])
@in_simulated_time
async def test_nothing_strict_is_lent_of_a_chain_that_its_process_may_have_lost(*, options: dict[str, bool]) -> None:
    harness, client = await reading_ahead(**options)
    process = harness.processes["p0"]
    process.paused = True
    await asyncio.sleep(HOLD_S + 1)
    let_it_take_more(client)
    await asyncio.sleep(10)
    assert client.data == (["read"] if options else ["read", "ahead"])
    process.paused = False
    await asyncio.sleep(3)
    assert client.data == ["read", "ahead"], "neither is lost nor lent again"
    client.ack()
    await asyncio.sleep(1)
    assert harness.all_done


@pytest.mark.parametrize("options", [{"exactly_once": True}, {"ordered": True}, {}])
@in_simulated_time
async def test_nothing_strict_is_lent_of_a_chain_that_its_process_says_it_has_lost(*, options: dict[str, bool]) -> None:
    """Whoever receives nothing from the metadata knows no other owner; that this one has ceased is enough."""
    harness, client = await reading_ahead(**options)
    process = harness.processes["p0"]
    harness.chains.assign(1)
    await process.host.close(1)
    harness.orphans = [1]
    await asyncio.sleep(0.2)
    let_it_take_more(client)
    await asyncio.sleep(2)
    assert client.data == (["read"] if options else ["read", "ahead"])
    await harness.adopt("p0")
    await asyncio.sleep(12)
    assert set(client.data) == {"read", "ahead"}


@in_simulated_time
async def test_who_does_not_know_that_it_lost_a_chain_puts_no_grant_of_its_new_owner_in_doubt() -> None:
    harness = await SubscribeHarness.start(processes=2, chains=4, exactly_once=True)
    client = Client(harness, harness.forwarder("a"))
    await asyncio.sleep(1)
    await harness.publish("of before", chain=2)
    await asyncio.sleep(1)
    client.ack()
    await asyncio.sleep(1)
    harness.processes["p0"].paused = True  # it goes on with what it believes, and its disks obey it no more
    harness.orphans = [2]
    await harness.adopt("p1")
    assert harness.owners()[2] == "p1"
    await asyncio.sleep(GRANT_S + HOLD_S)
    await harness.publish("m", chain=2)
    await asyncio.sleep(3)
    assert client.data == ["of before", "m"]
    client.ack()
    await asyncio.sleep(1)
    assert harness.confirmed == ["of before", "m"]


@pytest.mark.parametrize("options", [{"exactly_once": True}, {"ordered": True}])
@in_simulated_time
async def test_what_was_granted_while_no_owner_was_known_is_in_doubt_once_one_is(*, options: dict[str, bool]) -> None:
    harness = await SubscribeHarness.start(processes=2, chains=4, **options)
    client = Client(harness, harness.forwarder("a"), most=1, deadline_s=60)
    for text in ("read", "ahead"):
        await harness.publish(text, chain=2)
    await asyncio.sleep(1)
    assert client.data == ["read"]
    owners = {number: address for number, address in harness.owners().items() if number != 2}
    harness.owners = lambda: owners  # type: ignore[method-assign]
    harness.chains.assign(1, 2, 3, 4)  # which seals its source, and names it anew
    await asyncio.sleep(0.15)
    owners = {**owners, 2: "p1"}
    await asyncio.sleep(0.15)
    let_it_take_more(client)
    await asyncio.sleep(0.02)
    assert client.data == ["read"]
    await harness.processes["p0"].host.close(2)
    harness.orphans = [2]
    del harness.owners  # type: ignore[method-assign]
    await harness.adopt("p1")
    await asyncio.sleep(GRANT_S + 1)
    assert set(client.data) == {"read", "ahead"}


@in_simulated_time
async def test_an_answer_that_comes_between_two_looks_at_a_silent_process_ends_the_doubt() -> None:
    """Whoever lends looks first, and finds it silent; before the next tick it is received, and its stream goes on."""
    harness = await SubscribeHarness.start(exactly_once=True)
    forwarder = harness.forwarder("a")
    client = Client(harness, forwarder)
    await asyncio.sleep(1)
    (peer,) = forwarder.gatherer.peers.values()
    seen_at = peer._seen_at
    peer._seen_at = harness.clock.monotonic() - HOLD_S
    forwarder.gatherer.check_grants(SUB_NUMBER)
    peer._seen_at = seen_at
    await harness.publish("m")
    await asyncio.sleep(3)
    assert client.data == ["m"]


@in_simulated_time
async def test_who_was_paused_looks_at_the_clock_before_it_lends() -> None:
    harness, client = await reading_ahead(exactly_once=True)
    harness.clock.advance(GRANT_S + 5)  # the process stood still
    let_it_take_more(client)
    await asyncio.sleep(0.02)
    assert client.data == ["read"]
    await asyncio.sleep(10)
    assert set(client.data) == {"read", "ahead"}

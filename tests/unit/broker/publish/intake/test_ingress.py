"""What comes into a chain while its topic is being opened, its keys are being assigned, or its registration ends."""

from __future__ import annotations

import asyncio

from syncpoint.base.model.errors import StaleEpoch
from tests.kit.chain import TOPIC_NUMBER, Assignment, ChainHarness, simulated
from tests.kit.chain_subscriber import Subscriber
from tests.kit.errors import failing


@simulated
async def test_keys_of_a_new_epoch_do_not_go_where_those_of_an_earlier_one_went(harness: ChainHarness) -> None:
    process = await harness.opened()
    harness.assign(1)
    await process.publish("a", key="k", epoch=1)
    process.assignments = harness.assignments = {TOPIC_NUMBER: Assignment(2, (1,))}  # nothing was sealed for it yet
    await process.publish("b", key="k", epoch=2)
    sources = process.host.chains[1].forwarder.sources.of_topic(TOPIC_NUMBER)
    assert [(one.epoch, one.sealed) for one in sources] == [(1, True), (2, False)]


@simulated
async def test_no_source_takes_keys_of_an_epoch_that_ended_while_others_sealed_theirs(harness: ChainHarness) -> None:
    process = await harness.opened()
    harness.assign(1)
    chain = process.host.chains[1]

    async def sealed(topic: int, epoch: int, number: int) -> None:
        process.assignments = {topic: Assignment(2, (number,))}

    chain.ingress._sealed = sealed
    assert isinstance(await failing(process.publish("a", key="k", epoch=1)), StaleEpoch)
    assert not [one for one in chain.forwarder.sources.of_topic(TOPIC_NUMBER) if one.keyed]


@simulated
async def test_what_waits_for_its_topic_is_not_overtaken_where_somebody_else_opens_it(harness: ChainHarness) -> None:
    process = await harness.subscribed()
    harness.assign(1)
    first = asyncio.ensure_future(process.publish("a", key="k", epoch=1))
    while not harness.registrations:
        await asyncio.sleep(0.001)
    process.host.chains[1].ingress.open_pinned(TOPIC_NUMBER)
    await asyncio.gather(first, process.publish("b", key="k", epoch=1))
    assert await (await Subscriber(process, 11).attached()).read_all() == ["a", "b"]


@simulated
async def test_a_registration_that_ends_while_it_is_read_does_not_count(harness: ChainHarness) -> None:
    process = await harness.opened()
    ingress = process.host.chains[1].ingress
    ingress._left = set()  # nobody knows yet what is registered
    assert ingress._leave(TOPIC_NUMBER)
    harness.registered.add((TOPIC_NUMBER, 1))  # as it was read before
    await ingress._learn()
    assert not ingress.admits(TOPIC_NUMBER)
    await process.publish("a")
    assert not ingress._leave(TOPIC_NUMBER), "a source is open by it"

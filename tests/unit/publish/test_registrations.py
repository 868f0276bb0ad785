"""Registrations of chains for topics: none outlives what it is for, whoever was to end it."""

from __future__ import annotations

import asyncio

from syncpoint.metadata.records import CatalogChange, Topic
from syncpoint.model.errors import MetadataSilent
from tests.kit.chain import TOPIC_NUMBER, ChainWorld, simulated
from tests.kit.errors import failing

WHILE_S = 70.0  # tidying comes round twice


@simulated
async def test_what_an_earlier_owner_left_registered_ends(world: ChainWorld) -> None:
    world.registered.add((77, 1))  # its owner was gone when nothing of the topic was left
    process = await world.opened("f1")
    await process.publish("one")
    await asyncio.sleep(WHILE_S)
    assert world.registered == {(TOPIC_NUMBER, 1)}


@simulated
async def test_what_is_registered_for_another_chain_stays(world: ChainWorld) -> None:
    world.registered.add((77, 2))
    await world.process("f1").open()
    await asyncio.sleep(WHILE_S)
    assert world.registered == {(77, 2)}


@simulated
async def test_what_an_earlier_owner_was_registered_for_is_taken_while_the_metadata_is_down(world: ChainWorld) -> None:
    first = await world.opened("f1")
    await world.subscribe()
    await first.publish("one")
    await first.crash()
    second = await world.opened("f2")
    await asyncio.sleep(1.0)
    writes = world.registrations
    world.metadata_down = True
    await second.publish("two")
    assert world.registrations == writes


@simulated
async def test_a_subscription_that_the_copy_had_not_heard_of_is_followed_before_a_registration_is_trusted(
    world: ChainWorld,
) -> None:
    first = await world.opened("f1")
    await first.publish("one")
    await first.crash()
    process = world.process("f2")
    process.shared.held = True
    world.commit(CatalogChange.put(Topic(77, "projects/p/topics/other")))
    await process.open()
    await asyncio.sleep(1.0)
    world.metadata_down = True
    error = await failing(process.publish("one"))
    assert isinstance(error, MetadataSilent)
    process.shared.held = False
    process.shared.catch_up()
    await asyncio.sleep(1.0)
    assert await process.publish("two")


@simulated
async def test_a_topic_of_which_nothing_is_left_stays_open_to_publishers_while_the_metadata_is_down(
    world: ChainWorld,
) -> None:
    world.registered.add((TOPIC_NUMBER, 1))
    process = world.process("f1")
    await asyncio.sleep(1.0)  # it has tidied once, and does not again soon
    await process.open()
    await asyncio.sleep(0.1)
    world.metadata_down = True
    await asyncio.sleep(WHILE_S)
    assert await process.publish("one")


@simulated
async def test_a_registration_that_ended_is_written_again_before_the_next_message(world: ChainWorld) -> None:
    world.registered.add((TOPIC_NUMBER, 1))
    process = await world.opened("f1")
    await asyncio.sleep(WHILE_S)
    assert world.registered == set()
    await process.publish("one")
    assert world.registered == {(TOPIC_NUMBER, 1)}


@simulated
async def test_a_topic_that_was_never_registered_is_refused_and_nothing_of_it_is_stored_later(
    world: ChainWorld,
) -> None:
    process = world.process("f1")
    chain = await process.open()
    await asyncio.sleep(1.0)
    world.metadata_down = True
    error = await failing(process.publish("one"))
    assert isinstance(error, MetadataSilent)
    world.metadata_down = False
    await asyncio.sleep(WHILE_S)
    assert chain.forwarder.commit.published == 0

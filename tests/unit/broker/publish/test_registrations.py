"""Registrations of chains for topics: none outlives what it is for, whoever was to end it."""

from __future__ import annotations

import asyncio

import pytest

from syncpoint.base.model.errors import MetadataSilent
from syncpoint.catalog.metadata.records import CatalogChange, Topic
from tests.kit.chain import TOPIC_NUMBER, ChainHarness, simulated
from tests.kit.errors import failing

pytestmark = pytest.mark.shows("etcd-down")

WHILE_S = 70.0  # tidying comes round twice


@simulated
async def test_what_an_earlier_owner_left_registered_ends(harness: ChainHarness) -> None:
    harness.registered.add((77, 1))  # its owner was gone when nothing of the topic was left
    process = await harness.opened("f1")
    await process.publish("one")
    await asyncio.sleep(WHILE_S)
    assert harness.registered == {(TOPIC_NUMBER, 1)}


@simulated
async def test_what_is_registered_for_another_chain_stays(harness: ChainHarness) -> None:
    harness.registered.add((77, 2))
    await harness.process("f1").open()
    await asyncio.sleep(WHILE_S)
    assert harness.registered == {(77, 2)}


@simulated
async def test_what_an_earlier_owner_was_registered_for_is_taken_while_the_metadata_is_down(
    harness: ChainHarness,
) -> None:
    first = await harness.subscribed()
    await first.publish("one")
    second = await harness.succeeded(first)
    await asyncio.sleep(1.0)
    writes = harness.registrations
    harness.metadata_down = True
    await second.publish("two")
    assert harness.registrations == writes


@simulated
async def test_a_subscription_that_the_copy_has_not_learned_of_is_followed_before_a_registration_is_trusted(
    harness: ChainHarness,
) -> None:
    first = await harness.opened("f1")
    await first.publish("one")
    await first.crash()
    process = harness.process("f2")
    process.shared.held = True
    harness.commit(CatalogChange.put(Topic(77, "projects/p/topics/other")))
    await process.open()
    await asyncio.sleep(1.0)
    harness.metadata_down = True
    error = await failing(process.publish("one"))
    assert isinstance(error, MetadataSilent)
    process.shared.held = False
    process.shared.catch_up()
    await asyncio.sleep(1.0)
    assert await process.publish("two")


@simulated
async def test_a_topic_of_which_nothing_is_left_stays_open_to_publishers_while_the_metadata_is_down(
    harness: ChainHarness,
) -> None:
    harness.registered.add((TOPIC_NUMBER, 1))
    process = harness.process("f1")
    await asyncio.sleep(1.0)  # it has tidied once, and does not again soon
    await process.open()
    await asyncio.sleep(0.1)
    harness.metadata_down = True
    await asyncio.sleep(WHILE_S)
    assert await process.publish("one")


@simulated
async def test_a_registration_that_ended_is_written_again_before_the_next_message(harness: ChainHarness) -> None:
    harness.registered.add((TOPIC_NUMBER, 1))
    process = await harness.opened("f1")
    await asyncio.sleep(WHILE_S)
    assert harness.registered == set()
    await process.publish("one")
    assert harness.registered == {(TOPIC_NUMBER, 1)}


@simulated
async def test_a_topic_that_was_never_registered_is_refused_and_nothing_of_it_is_stored_later(
    harness: ChainHarness,
) -> None:
    process = harness.process("f1")
    chain = await process.open()
    await asyncio.sleep(1.0)
    harness.metadata_down = True
    error = await failing(process.publish("one"))
    assert isinstance(error, MetadataSilent)
    harness.metadata_down = False
    await asyncio.sleep(WHILE_S)
    assert chain.forwarder.commit.published == 0

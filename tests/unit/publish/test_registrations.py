"""Registrations of chains for topics: none outlives what it is for, whoever was to end it."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from chain_world import TOPIC_NUMBER, ChainWorld, simulated

WHILE_S = 70.0  # tidying comes round twice


@simulated
async def test_what_an_earlier_owner_left_registered_ends(world: ChainWorld) -> None:
    world.registered.add((77, 1))  # its owner was gone when nothing of the topic was left
    process = world.process("f1")
    await process.open()
    await process.publish("one")
    await asyncio.sleep(WHILE_S)
    assert world.registered == {(TOPIC_NUMBER, 1)}


@simulated
async def test_what_is_registered_for_another_chain_stays(world: ChainWorld) -> None:
    world.registered.add((77, 2))
    await world.process("f1").open()
    await asyncio.sleep(WHILE_S)
    assert world.registered == {(77, 2)}
